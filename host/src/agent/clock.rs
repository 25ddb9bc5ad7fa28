//! Time as an input, so that a run can be repeated exactly.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::tool::BoxFuture;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01 UTC.
    fn now_ms(&self) -> u64;

    /// Waits, for a deadline of the run. A replay ends the wait where the recorded run's ended.
    fn sleep(&self, ms: u64) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(ms)))
    }
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A clock that stands still, for tests and replays.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedClock(
    /// The time it shows.
    pub u64,
);

impl Clock for FixedClock {
    fn now_ms(&self) -> u64 {
        self.0
    }
}

/// The date (UTC) of a time, as `YYYY-MM-DD`.
pub(crate) fn date(now_ms: u64) -> String {
    // Days to a civil date: Howard Hinnant, "chrono-compatible low-level date algorithms", for days on or after 1970-01-01.
    let days = now_ms / 86_400_000 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
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
    }
}
