//! Weather codes in words.

/// What a WMO weather interpretation code means (table 4677, the part that Open-Meteo uses).
pub(crate) fn describe(code: Option<u16>) -> &'static str {
    match code {
        Some(0) => "clear sky",
        Some(1) => "mainly clear",
        Some(2) => "partly cloudy",
        Some(3) => "overcast",
        Some(45) => "fog",
        Some(48) => "freezing fog",
        Some(51) => "light drizzle",
        Some(53) => "drizzle",
        Some(55) => "dense drizzle",
        Some(56 | 57) => "freezing drizzle",
        Some(61) => "light rain",
        Some(63) => "rain",
        Some(65) => "heavy rain",
        Some(66 | 67) => "freezing rain",
        Some(71) => "light snow",
        Some(73) => "snow",
        Some(75) => "heavy snow",
        Some(77) => "snow grains",
        Some(80) => "light rain showers",
        Some(81) => "rain showers",
        Some(82) => "violent rain showers",
        Some(85) => "light snow showers",
        Some(86) => "heavy snow showers",
        Some(95) => "thunderstorm",
        Some(96 | 99) => "thunderstorm with hail",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_words_and_a_strange_one_is_unknown() {
        for (code, expected) in
            [(Some(0), "clear sky"), (Some(99), "thunderstorm with hail"), (Some(1000), "unknown"), (None, "unknown")]
        {
            assert_eq!(describe(code), expected);
        }
    }
}
