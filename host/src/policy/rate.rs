//! Rate limits as a policy writes them: `10/min`.

use std::fmt;
use std::time::Duration;

use crate::text::clean_line;

const PERIODS: [(&str, u64); 3] = [("s", 1), ("min", 60), ("h", 3_600)];
/// The most calls a rate may state. The time between two is then still at least a nanosecond.
const MAX_CALLS: u64 = 1_000_000_000;

/// So many calls in so long: that many at once, and then evenly spread, as a token bucket does it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rate {
    /// How many calls; at least 1.
    pub calls: u64,
    /// In how long: a second, a minute or an hour.
    pub period: Duration,
}

impl Rate {
    /// Parses `NUMBER/PERIOD`, without spaces; the period is `s`, `min` or `h`.
    ///
    /// # Errors
    ///
    /// Returns what is wrong, and how to write it.
    pub(super) fn parse(text: &str) -> Result<Self, (String, String)> {
        let hint = || "write a number and `/s`, `/min` or `/h`, such as `\"10/min\"`".to_owned();
        let shown = clean_line(text, 40);
        let wrong = || (format!("`{shown}` is not a rate"), hint());
        let (number, unit) = text.split_once('/').ok_or_else(wrong)?;
        let period = PERIODS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1;
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        match number.parse() {
            Ok(0) => Err((format!("the rate `{shown}` is zero, which would stop every call"), hint())),
            Ok(calls) if calls <= MAX_CALLS => Ok(Self { calls, period: Duration::from_secs(period) }),
            _ => Err((format!("the rate `{shown}` is too large"), hint())),
        }
    }

    /// The time after which one more call is allowed, once the first ones are used up; rounded up to a nanosecond.
    pub fn interval(&self) -> Duration {
        let nanos = u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos.div_ceil(self.calls.max(1)))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = PERIODS.iter().find(|(_, seconds)| *seconds == self.period.as_secs()).map_or("?", |(name, _)| name);
        write!(f, "{}/{unit}", self.calls)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_rates() {
        for (text, calls, seconds) in [("1/s", 1, 1), ("10/min", 10, 60), ("007/h", 7, 3_600), ("1000000000/s", MAX_CALLS, 1)] {
            let rate = Rate { calls, period: Duration::from_secs(seconds) };
            assert_eq!(Rate::parse(text), Ok(rate), "{text}");
            assert!(rate.interval() >= Duration::from_nanos(1));
        }
    }

    #[test]
    fn refuses_what_is_not_a_rate() {
        for text in [
            "",
            "/",
            "10",
            "10/",
            "/min",
            "10/m",
            "10/minute",
            "10/MIN",
            "10 / min",
            "-1/s",
            "+1/s",
            "1.5/s",
            "10/min ",
            "１/s",
            "1/s/s",
        ] {
            assert!(
                Rate::parse(text).is_err_and(|(message, hint)| message.ends_with("not a rate") && hint.contains("10/min")),
                "{text}"
            );
        }
        assert!(Rate::parse("0/s").is_err_and(|(message, _)| message.contains("zero")));
        for text in ["1000000001/s", "99999999999999999999/h"] {
            assert!(Rate::parse(text).is_err_and(|(message, _)| message.contains("too large")), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(calls in 1..=MAX_CALLS, period in 0..PERIODS.len()) {
            let rate = Rate { calls, period: Duration::from_secs(PERIODS[period].1) };
            prop_assert_eq!(Rate::parse(&rate.to_string()), Ok(rate));
        }

        #[test]
        fn any_text_is_a_rate_or_an_error(text: String) {
            let _ = Rate::parse(&text);
        }
    }
}
