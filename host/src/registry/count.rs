//! Counts calls against `max_calls` and `rate` of the policy's rules.

mod carry;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::policy::{CallLimit, Policy, Rate};
use crate::tool::{ErrorCode, Failure};

/// The time since some fixed moment; never goes back.
type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// What was counted so far. A registry that takes another's place keeps its counters: a reload gives nobody new calls.
pub(super) struct Counters {
    clock: Clock,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    /// Calls by run and rule.
    runs: HashMap<String, HashMap<Arc<str>, u64>>,
    /// When each rule's bucket is full again.
    full_at: HashMap<Arc<str>, Duration>,
}

impl Default for Counters {
    fn default() -> Self {
        let start = Instant::now();
        Self::with_clock(Arc::new(move || start.elapsed()))
    }
}

impl Counters {
    fn with_clock(clock: Clock) -> Self {
        Self { clock, counts: Mutex::default() }
    }

    /// Counts a call against every rule that matched it: against all of them, or, when one is used up, against none.
    pub(super) fn count(&self, run_id: &str, call: &str, limits: &[CallLimit]) -> Result<(), Failure> {
        if limits.is_empty() {
            return Ok(());
        }
        let now = (self.clock)();
        let mut counts = self.lock();
        let Counts { runs, full_at } = &mut *counts;
        for limit in limits {
            let made = runs.get(run_id).and_then(|run| run.get(&limit.key)).copied().unwrap_or(0);
            if let Some(max_calls) = limit.max_calls.filter(|max_calls| made >= *max_calls) {
                return Err(used_up(call, max_calls, limit));
            }
            if let Some(rate) = limit.rate {
                let wait = wait(full_at.get(&limit.key).copied(), now, rate);
                if !wait.is_zero() {
                    return Err(too_fast(call, rate, wait, limit));
                }
            }
        }
        for (index, limit) in limits.iter().enumerate() {
            // The same rule twice, from one file that was given under two names, is one rule.
            if limits[..index].iter().any(|other| other.key == limit.key) {
                continue;
            }
            if limit.max_calls.is_some() {
                *runs.entry(run_id.to_owned()).or_default().entry(Arc::clone(&limit.key)).or_default() += 1;
            }
            if let Some(rate) = limit.rate {
                let full = full_at.entry(Arc::clone(&limit.key)).or_default();
                *full = (*full).max(now) + rate.interval();
            }
        }
        Ok(())
    }

    /// Forgets a run. Rates go on: they are not a run's.
    pub(super) fn end_run(&self, run_id: &str) {
        self.lock().runs.remove(run_id);
    }

    /// Goes over to another policy: what was counted for a rule is counted for the same rule there, on whatever line it stands.
    pub(super) fn carry_over(&self, old: &Policy, new: &Policy) {
        let names = carry::renamed(old, new);
        let renamed = |key: Arc<str>| names.get(&key).map(Arc::clone);
        let mut counts = self.lock();
        for counted in counts.runs.values_mut() {
            for (key, count) in std::mem::take(counted) {
                if let Some(key) = renamed(key) {
                    *counted.entry(key).or_default() += count;
                }
            }
        }
        for (key, full) in std::mem::take(&mut counts.full_at) {
            if let Some(key) = renamed(key) {
                let at = counts.full_at.entry(key).or_default();
                *at = (*at).max(full);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long until the bucket has a token (the generic cell rate algorithm: one time stands for the whole bucket).
fn wait(full_at: Option<Duration>, now: Duration, rate: Rate) -> Duration {
    let others = u32::try_from(rate.calls - 1).unwrap_or(u32::MAX);
    let missing = full_at.unwrap_or_default().saturating_sub(now);
    missing.saturating_sub(rate.interval().saturating_mul(others))
}

fn used_up(call: &str, max_calls: u64, limit: &CallLimit) -> Failure {
    let times = if max_calls == 1 { "once".to_owned() } else { format!("{max_calls} times") };
    Failure::new(ErrorCode::LIMIT_CALLS, format!("`{call}` may be called {times} in a run, and was"))
        .hint(format!("raise `max_calls` of the rule at {}, or do without this tool", limit.rule))
}

fn too_fast(call: &str, rate: Rate, wait: Duration, limit: &CallLimit) -> Failure {
    // Rounded up, so that whoever waits as long is not too early.
    let millis = wait.as_nanos().div_ceil(1_000_000);
    let wait = if millis < 1_000 { format!("{millis} ms") } else { format!("{} s", millis.div_ceil(1_000)) };
    Failure::new(ErrorCode::LIMIT_RATE, format!("`{call}` may be called at a rate of {rate}, and was called faster"))
        .hint(format!("try again in {wait}; `rate` of the rule at {} says so", limit.rule))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use proptest::prelude::*;

    use super::*;
    use crate::policy::RuleRef;

    fn limit(key: &str, max_calls: Option<u64>, rate: Option<(u64, u64)>) -> CallLimit {
        let rule = RuleRef { file: Arc::from("policy.toml"), line: 7 };
        let rate = rate.map(|(calls, seconds)| Rate { calls, period: Duration::from_secs(seconds) });
        CallLimit { key: Arc::from(key), rule, max_calls, rate }
    }

    /// Counters and their clock, in milliseconds.
    fn counters() -> (Counters, Arc<AtomicU64>) {
        let now = Arc::new(AtomicU64::new(5_000));
        let clock = Arc::clone(&now);
        (Counters::with_clock(Arc::new(move || Duration::from_millis(clock.load(Ordering::Relaxed)))), now)
    }

    #[test]
    fn a_rate_gives_its_calls_at_once_and_then_one_at_a_time() {
        let (counters, now) = counters();
        let limits = [limit("a", None, Some((3, 60)))];
        let call = |run: &str| counters.count(run, "p/t", &limits).map_err(|failure| failure.hint.unwrap_or_default());
        // A rate is not a run's: another run does not start anew.
        assert!(call("1").is_ok() && call("2").is_ok() && call("1").is_ok());
        assert_eq!(call("1").expect_err("empty"), "try again in 20 s; `rate` of the rule at policy.toml:7 says so");
        counters.end_run("1");
        now.fetch_add(19_500, Ordering::Relaxed);
        assert_eq!(call("3").expect_err("empty").split(';').next(), Some("try again in 500 ms"));
        now.fetch_add(500, Ordering::Relaxed);
        assert!(call("1").is_ok() && call("1").is_err());
        now.fetch_add(3_600_000, Ordering::Relaxed);
        assert_eq!((0..9).filter(|_| call("1").is_ok()).count(), 3, "a long pause fills the bucket and no more");
    }

    #[test]
    fn a_call_that_one_rule_refuses_counts_against_none() {
        let (counters, now) = counters();
        let both = [limit("slow", None, Some((1, 1))), limit("few", Some(2), None)];
        let count = |limits: &[CallLimit]| counters.count("1", "p/t", limits).map_err(|failure| failure.code);
        assert_eq!(count(&both), Ok(()));
        for _ in 0..5 {
            assert_eq!(count(&both), Err(ErrorCode::LIMIT_RATE));
        }
        now.fetch_add(1_000, Ordering::Relaxed);
        assert_eq!(count(&both), Ok(()));
        now.fetch_add(1_000, Ordering::Relaxed);
        assert_eq!(count(&both), Err(ErrorCode::LIMIT_CALLS), "two calls, refusals not counted");
        assert_eq!(count(&both[..1]), Ok(()), "the refused call took no token");
    }

    #[test]
    fn max_calls_are_counted_for_each_run_and_rule() {
        let (counters, _) = counters();
        let count = |run: &str, key: &str| counters.count(run, "p/t", &[limit(key, Some(2), None)]).is_ok();
        assert_eq!(
            [count("1", "a"), count("1", "a"), count("1", "a"), count("1", "b"), count("2", "a")],
            [true, true, false, true, true]
        );
        counters.end_run("1");
        assert!(count("1", "a"));
    }

    #[test]
    fn a_rule_that_matched_twice_counts_once() {
        let (counters, _) = counters();
        let limits = [limit("a", Some(2), Some((2, 1))), limit("a", Some(2), Some((2, 1)))];
        assert_eq!((0..5).filter(|_| counters.count("1", "p/t", &limits).is_ok()).count(), 2);
    }

    proptest! {
        /// Within any window of one period a token bucket lets through at most twice its size, and over all at most size plus refill.
        #[test]
        fn never_more_than_the_rate(calls in 1..20u64, seconds in 1..4u64, steps in prop::collection::vec(0..2_000u64, 1..200)) {
            let (counters, now) = counters();
            let limits = [limit("a", None, Some((calls, seconds)))];
            let (mut allowed, mut elapsed) = (0, 0);
            for step in steps {
                now.fetch_add(step, Ordering::Relaxed);
                elapsed += step;
                allowed += u64::from(counters.count("1", "p/t", &limits).is_ok());
            }
            prop_assert!(allowed <= calls + elapsed * calls / (seconds * 1_000));
        }
    }
}
