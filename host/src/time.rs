//! Dates and times of day, in UTC, as text.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970-01-01 UTC, by the operating system's clock.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The date of a time, as `YYYY-MM-DD`.
pub(crate) fn date(ms: u64) -> String {
    // Days to a civil date: Howard Hinnant, "chrono-compatible low-level date algorithms", for days on or after 1970-01-01.
    let days = ms / 86_400_000 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Date and time, as `YYYY-MM-DD HH:MM:SS`.
pub(crate) fn date_time(ms: u64) -> String {
    let seconds = ms / 1000 % 86_400;
    format!("{} {:02}:{:02}:{:02}", date(ms), seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// A time as RFC 3339 writes it, to the millisecond: `2026-11-30T20:10:29.123Z`. Up to the year 9999 the order of the texts is that of the
/// times.
pub(crate) fn timestamp(ms: u64) -> String {
    let of_day = ms % 86_400_000;
    let (hours, minutes, seconds) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1_000 % 60);
    format!("{}T{hours:02}:{minutes:02}:{seconds:02}.{:03}Z", date(ms), of_day % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_date() {
        for (ms, expected) in [
            (0, "1970-01-01"),
            (951_782_400_000, "2000-02-29"),
            (1_709_164_800_000, "2024-02-29"),
            (1_796_083_199_999, "2026-11-30"),
            (4_107_542_400_000, "2100-03-01"),
        ] {
            assert_eq!(date(ms), expected);
        }
        assert_eq!(date_time(1_796_083_199_999), "2026-11-30 23:59:59");
    }

    #[test]
    fn knows_the_time_of_day() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(1_796_083_199_999), "2026-11-30T23:59:59.999Z");
    }
}
