//! Sizes and durations as a policy writes them: `128MiB`, `10MB`, `30s`, `500ms`.

use std::time::Duration;

const SIZE_UNITS: [(&str, u64); 7] =
    [("B", 1), ("KB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
const TIME_UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Parses a size: a whole number and a unit, without a space.
///
/// # Errors
///
/// Returns what is wrong, and how to write it.
pub(super) fn parse_size(text: &str) -> Result<u64, (String, String)> {
    parse(text, "size", &SIZE_UNITS, "write a whole number and a unit, such as `\"128MiB\"`, `\"1KiB\"` or `\"10MB\"`")
}

/// Parses a duration: a whole number and a unit, without a space.
///
/// # Errors
///
/// Returns what is wrong, and how to write it.
pub(super) fn parse_duration(text: &str) -> Result<Duration, (String, String)> {
    parse(text, "duration", &TIME_UNITS, "write a whole number and a unit, such as `\"500ms\"`, `\"30s\"` or `\"2m\"`")
        .map(Duration::from_millis)
}

/// Writes a size in the largest unit that is exact; [`parse_size`] reads it back.
pub(super) fn format_size(bytes: u64) -> String {
    format(bytes, &[SIZE_UNITS[6], SIZE_UNITS[5], SIZE_UNITS[4], SIZE_UNITS[0]])
}

/// Writes a duration in the largest unit that is exact, in milliseconds at the finest; [`parse_duration`] reads it back.
pub(super) fn format_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    format(millis, &[TIME_UNITS[3], TIME_UNITS[2], TIME_UNITS[1], TIME_UNITS[0]])
}

fn parse(text: &str, what: &str, units: &[(&str, u64)], hint: &str) -> Result<u64, (String, String)> {
    let shown = crate::text::clean_line(text, 40);
    let wrong = || (format!("`{shown}` is not a {what}"), hint.to_owned());
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(wrong());
    }
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
        let meant = names.iter().find(|name| name.eq_ignore_ascii_case(unit.trim()));
        return Err(match meant {
            Some(name) => (format!("`{shown}` is not a {what}"), format!("did you mean `\"{number}{name}\"`?")),
            None => wrong(),
        });
    };
    let value = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*factor));
    value.ok_or_else(|| (format!("the {what} `{shown}` is too large"), hint.to_owned()))
}

fn format(value: u64, units: &[(&str, u64)]) -> String {
    let unit = units.iter().find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor));
    let (name, factor) = unit.copied().unwrap_or(units[units.len() - 1]);
    format!("{}{name}", value / factor)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_sizes() {
        for (text, expected) in [
            ("0B", 0),
            ("1B", 1),
            ("1KiB", 1024),
            ("10MB", 10_000_000),
            ("128MiB", 134_217_728),
            ("2GiB", 2_147_483_648),
            ("007KB", 7_000),
            ("18446744073709551615B", u64::MAX),
        ] {
            assert_eq!(parse_size(text).ok(), Some(expected), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_size() {
        for text in [
            "",
            "MiB",
            "1",
            "1.5MiB",
            "1 MiB",
            "-1MiB",
            "+1MiB",
            "1_000B",
            "0x1B",
            "1TiB",
            "1mib",
            "1k",
            "１MiB",
            "1MiB ",
            "99999999999GiB",
            "18446744073709551616B",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!(parse_size("10mb").expect_err("unit").1, "did you mean `\"10MB\"`?");
        assert_eq!(parse_size("99999999999GiB").expect_err("overflow").0, "the size `99999999999GiB` is too large");
    }

    #[test]
    fn reads_durations() {
        for (text, millis) in [("500ms", 500), ("30s", 30_000), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(parse_duration(text).ok(), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["30", "30S", "1m30s", "1d", "-1s", "1.5s", "s", "99999999999999999999s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value: u64) {
            prop_assert_eq!(parse_size(&format_size(value)).ok(), Some(value));
            let duration = Duration::from_millis(value);
            prop_assert_eq!(parse_duration(&format_duration(duration)).ok(), Some(duration));
        }

        #[test]
        fn a_number_and_a_unit_multiply(number: u32, unit in 0..SIZE_UNITS.len()) {
            let (name, factor) = SIZE_UNITS[unit];
            prop_assert_eq!(parse_size(&format!("{number}{name}")).ok(), u64::from(number).checked_mul(factor));
        }

        #[test]
        fn any_text_is_a_size_or_an_error(text: String) {
            let _ = parse_size(&text);
            let _ = parse_duration(&text);
        }
    }
}
