//! Counts calls against `max_calls` and `rate` of the policy's rules.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::policy::{CallLimit, Policy, Rate, ToolRule};
use crate::tool::{ErrorCode, Failure};

/// The time since some fixed moment; never goes back.
type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// What was counted so far. It outlives a reload of the policy.
pub(super) struct Counts {
    clock: Clock,
    counted: Mutex<Counted>,
}

#[derive(Default)]
struct Counted {
    /// Calls by run and rule.
    runs: HashMap<String, HashMap<Arc<str>, u64>>,
    /// When each rule's bucket is full again.
    full_at: HashMap<Arc<str>, Duration>,
}

impl Default for Counts {
    fn default() -> Self {
        let start = Instant::now();
        Self::with_clock(Arc::new(move || start.elapsed()))
    }
}

impl Counts {
    fn with_clock(clock: Clock) -> Self {
        Self { clock, counted: Mutex::default() }
    }

    /// Counts a call against every rule that matched it: against all of them, or, when one is used up, against none.
    pub(super) fn count<'a>(&self, run_id: &str, limits: &'a [CallLimit]) -> Result<(), UsedUp<'a>> {
        if limits.is_empty() {
            return Ok(());
        }
        let now = (self.clock)();
        let mut counted = self.lock();
        let Counted { runs, full_at } = &mut *counted;
        for limit in limits {
            let made = runs.get(run_id).and_then(|run| run.get(&limit.key)).copied().unwrap_or(0);
            if let Some(max_calls) = limit.max_calls.filter(|max_calls| made >= *max_calls) {
                return Err(UsedUp::Calls(max_calls, limit));
            }
            if let Some(rate) = limit.rate {
                let wait = wait(full_at.get(&limit.key).copied(), now, rate);
                if !wait.is_zero() {
                    return Err(UsedUp::Rate(rate, wait, limit));
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
    pub(super) fn forget(&self, run_id: &str) {
        self.lock().runs.remove(run_id);
    }

    /// Goes over to another policy: what was counted for a rule is counted for the same rule there, on whatever line it stands.
    pub(super) fn carry_over(&self, old: &Policy, new: &Policy) {
        let names = renamed(old, new);
        let mut counted = self.lock();
        let Counted { runs, full_at } = &mut *counted;
        for run in runs.values_mut() {
            for (key, count) in std::mem::take(run) {
                if let Some(name) = names.get(&key) {
                    *run.entry(Arc::clone(name)).or_default() += count;
                }
            }
        }
        let moved = std::mem::take(full_at).into_iter().filter_map(|(key, full)| Some((Arc::clone(names.get(&key)?), full)));
        full_at.extend(moved);
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long until the bucket has a token (the generic cell rate algorithm: one time stands for the whole bucket).
fn wait(full_at: Option<Duration>, now: Duration, rate: Rate) -> Duration {
    let others = u32::try_from(rate.calls - 1).unwrap_or(u32::MAX);
    let missing = full_at.unwrap_or_default().saturating_sub(now);
    missing.saturating_sub(rate.interval().saturating_mul(others))
}

/// The limit that a call ran into.
#[derive(Debug)]
pub(super) enum UsedUp<'a> {
    /// `max_calls`.
    Calls(u64, &'a CallLimit),
    /// `rate`, and how long until it allows the call.
    Rate(Rate, Duration, &'a CallLimit),
}

impl UsedUp<'_> {
    /// What the model reads; `call` is `plugin/tool`.
    pub(super) fn failure(&self, call: &str) -> Failure {
        match self {
            Self::Calls(max_calls, limit) => {
                let times = if *max_calls == 1 { "once".to_owned() } else { format!("{max_calls} times") };
                Failure::new(ErrorCode::LIMIT_CALLS, format!("`{call}` may be called {times} in a run, and was"))
                    .hint(format!("raise `max_calls` of the rule at {}, or do without this tool", limit.rule))
            }
            Self::Rate(rate, wait, limit) => {
                // Rounded up, so that whoever waits as long is not too early.
                let millis = wait.as_nanos().div_ceil(1_000_000);
                let wait = if millis < 1_000 { format!("{millis} ms") } else { format!("{} s", millis.div_ceil(1_000)) };
                Failure::new(ErrorCode::LIMIT_RATE, format!("`{call}` may be called at a rate of {rate}, and was called faster"))
                    .hint(format!("try again in {wait}; `rate` of the rule at {} says so", limit.rule))
            }
        }
    }
}

/// The new key of every old rule that is still there. The same rule is one for the same tools and arguments; where none is left, one for
/// the same tools: an operator who narrows a rule does not mean to give its calls back.
fn renamed(old: &Policy, new: &Policy) -> HashMap<Arc<str>, Arc<str>> {
    let mut names = HashMap::new();
    for plugin in old.plugins() {
        let mut free: Vec<&ToolRule> = new.plugin(&plugin.id).into_iter().flat_map(|plugin| plugin.rules.all()).collect();
        let mut left: Vec<&ToolRule> = plugin.rules.all().iter().collect();
        for same in [same_rule, same_tools] {
            left.retain(|rule| {
                let Some(index) = free.iter().position(|other| same(rule, other)) else { return true };
                names.insert(Arc::clone(&rule.id), Arc::clone(&free.remove(index).id));
                false
            });
        }
    }
    names
}

fn same_rule(a: &ToolRule, b: &ToolRule) -> bool {
    same_tools(a, b) && a.args.as_ref().map(|args| args.schema()) == b.args.as_ref().map(|args| args.schema())
}

fn same_tools(a: &ToolRule, b: &ToolRule) -> bool {
    a.tools == b.tools
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use proptest::prelude::*;

    use super::*;
    use crate::policy::{PolicySource, RuleRef};

    fn limit(key: &str, max_calls: Option<u64>, rate: Option<(u64, u64)>) -> CallLimit {
        let rule = RuleRef { file: Arc::from("policy.toml"), line: 7 };
        let rate = rate.map(|(calls, seconds)| Rate { calls, period: Duration::from_secs(seconds) });
        CallLimit { key: Arc::from(key), rule, max_calls, rate }
    }

    /// Counters and their clock, in milliseconds.
    fn counters() -> (Counts, Arc<AtomicU64>) {
        let now = Arc::new(AtomicU64::new(5_000));
        let clock = Arc::clone(&now);
        (Counts::with_clock(Arc::new(move || Duration::from_millis(clock.load(Ordering::Relaxed)))), now)
    }

    #[test]
    fn a_rate_gives_its_calls_at_once_and_then_one_at_a_time() {
        let (counters, now) = counters();
        let limits = [limit("a", None, Some((3, 60)))];
        let call = |run: &str| counters.count(run, &limits).map_err(|used_up| used_up.failure("p/t").hint.unwrap_or_default());
        // A rate is not a run's: another run does not start anew.
        assert!(call("1").is_ok() && call("2").is_ok() && call("1").is_ok());
        assert_eq!(call("1").expect_err("empty"), "try again in 20 s; `rate` of the rule at policy.toml:7 says so");
        counters.forget("1");
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
        let count = |limits: &[CallLimit]| counters.count("1", limits).map_err(|used_up| used_up.failure("p/t").code);
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
        let count = |run: &str, key: &str| counters.count(run, &[limit(key, Some(2), None)]).is_ok();
        assert_eq!(
            [count("1", "a"), count("1", "a"), count("1", "a"), count("1", "b"), count("2", "a")],
            [true, true, false, true, true]
        );
        counters.forget("1");
        assert!(count("1", "a"));
    }

    #[test]
    fn a_rule_that_matched_twice_counts_once() {
        let (counters, _) = counters();
        let limits = [limit("a", Some(2), Some((2, 1))), limit("a", Some(2), Some((2, 1)))];
        assert_eq!((0..5).filter(|_| counters.count("1", &limits).is_ok()).count(), 2);
    }

    fn policy(text: &str) -> Policy {
        let source = PolicySource { name: Arc::from("policy.toml"), text, base_dir: "/srv".into() };
        Policy::parse(&[source]).expect("valid")
    }

    fn limits(policy: &Policy, tool: &str) -> Vec<CallLimit> {
        policy.decide("p", tool, &serde_json::Map::new()).limits
    }

    #[test]
    fn counts_move_with_their_rules() {
        let rule =
            |tool: &str, max: u32| format!("[[plugins.p.tools]]\nname = \"{tool}\"\ndecision = \"allow\"\nmax_calls = {max}\n");
        let old = policy(&format!("version = 1\n{}{}", rule("a", 2), rule("b", 2)));
        // A comment above, the other order, and another limit.
        let new = policy(&format!("version = 1\n# 新\n{}{}", rule("b", 2), rule("a", 3)));
        let counts = Counts::default();
        for tool in ["a", "a", "b"] {
            counts.count("r", &limits(&old, tool)).expect("within the limit");
        }
        assert!(counts.count("r", &limits(&old, "a")).is_err());
        counts.carry_over(&old, &new);
        counts.count("r", &limits(&new, "a")).expect("the third of three");
        assert!(counts.count("r", &limits(&new, "a")).is_err());
        counts.count("r", &limits(&new, "b")).expect("the second of two");
        assert!(counts.count("r", &limits(&new, "b")).is_err());
        counts.count("other", &limits(&new, "b")).expect("another run");
        let rated = |line: &str| {
            policy(&format!("version = 1\n{line}[[plugins.p.tools]]\nname = \"c\"\ndecision = \"allow\"\nrate = \"1/h\"\n"))
        };
        let (old, new) = (rated(""), rated("[limits]\nfuel = 7\n"));
        counts.count("r", &limits(&old, "c")).expect("the first");
        counts.carry_over(&old, &new);
        assert!(counts.count("r", &limits(&new, "c")).is_err(), "a reload does not fill the bucket");
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
                allowed += u64::from(counters.count("1", &limits).is_ok());
            }
            prop_assert!(allowed <= calls + elapsed * calls / (seconds * 1_000));
        }
    }
}
