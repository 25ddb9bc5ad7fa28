//! What workers may use: shares of what their parent has left, never more than that in all.

use std::sync::{Mutex, PoisonError};

use super::DelegateError;
use crate::agent::budget::Budget;
use crate::agent::stop::RunUsage;

/// What is shared out, and the least with which a worker can do anything: one step to call a tool, one to report.
const SHARED: [(&str, u64); 6] =
    [("steps", 2), ("tool_calls", 1), ("input_tokens", 1), ("output_tokens", 1), ("cost_micros", 1), ("fuel", 1)];

/// An amount of everything that is shared out, in the order of [`SHARED`]; none is without limit. Time is not among it: workers run
/// beside each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Share {
    amounts: [Option<u64>; 6],
    workers: u64,
}

impl Share {
    fn of_budget(budget: &Budget) -> Self {
        Self {
            amounts: [
                Some(budget.max_steps.into()),
                Some(budget.max_tool_calls.into()),
                budget.max_input_tokens,
                budget.max_output_tokens,
                budget.max_cost_micros,
                budget.max_fuel,
            ],
            workers: budget.max_workers.into(),
        }
    }

    fn of_usage(used: &RunUsage) -> Self {
        let RunUsage { steps, tool_calls, tokens, cost_micros, fuel, workers, .. } = *used;
        let amounts = [steps.into(), tool_calls.into(), tokens.input_tokens, tokens.output_tokens, cost_micros, fuel].map(Some);
        Self { amounts, workers: workers.into() }
    }

    /// The budget of a worker with this share.
    pub(super) fn budget(&self, max_wall_ms: Option<u64>, hand_over_percent: u32) -> Budget {
        let small = |amount: u64| u32::try_from(amount).unwrap_or(u32::MAX);
        let [steps, tool_calls, max_input_tokens, max_output_tokens, max_cost_micros, max_fuel] = self.amounts;
        Budget {
            // The turn that reports comes on top of a run's `max_steps`.
            max_steps: small(steps.unwrap_or(u64::MAX).saturating_sub(1)),
            max_tool_calls: small(tool_calls.unwrap_or(u64::MAX)),
            max_input_tokens,
            max_output_tokens,
            max_cost_micros,
            max_wall_ms,
            max_fuel,
            max_workers: small(self.workers),
            hand_over_percent,
        }
    }

    fn zip(&self, other: &Self, each: impl Fn(u64, u64) -> u64) -> Self {
        let mut amounts = self.amounts;
        for (amount, other) in amounts.iter_mut().zip(other.amounts) {
            *amount = amount.map(|amount| each(amount, other.unwrap_or(0)));
        }
        Self { amounts, workers: each(self.workers, other.workers) }
    }
}

/// What has not been given out. Shares are drawn when a worker starts, and what it leaves goes to those after it.
#[derive(Debug)]
pub(super) struct Pool {
    free: Share,
    waiting: u64,
}

impl Pool {
    /// Sets aside the parent's reserve, so that it can still act on what it gets, and pools the rest.
    ///
    /// `extra` workers are the host's own, such as the one that merges: they get a share and do not count as workers.
    pub(super) fn new(left: &Budget, reserve_percent: u32, workers: u32, extra: u32) -> Result<Self, DelegateError> {
        if left.max_workers < workers {
            return Err(DelegateError::WorkersUsedUp { wanted: workers, left: left.max_workers });
        }
        let waiting = u64::from(workers) + u64::from(extra);
        let mut free = Share::of_budget(left);
        free.workers -= u64::from(workers);
        for (amount, (name, least)) in free.amounts.iter_mut().zip(SHARED) {
            let Some(left) = *amount else { continue };
            let pooled = left - reserve(left, reserve_percent);
            if pooled / waiting.max(1) < least {
                return Err(DelegateError::Budget { name, left, workers });
            }
            *amount = Some(pooled);
        }
        Ok(Self { free, waiting })
    }

    /// The share of the next worker.
    pub(super) fn draw(&mut self) -> Share {
        let waiting = self.waiting.max(1);
        let share = Share {
            amounts: self.free.amounts.map(|amount| amount.map(|amount| amount / waiting)),
            workers: self.free.workers / waiting,
        };
        self.waiting -= u64::from(self.waiting > 0);
        self.free = self.free.zip(&share, u64::saturating_sub);
        share
    }

    /// Takes back what a worker left of its share; a worker that went over it is charged to those to come.
    pub(super) fn give_back(&mut self, share: &Share, used: &RunUsage) {
        let used = Share::of_usage(used);
        let (rest, excess) = (share.zip(&used, u64::saturating_sub), used.zip(share, u64::saturating_sub));
        self.free = self.free.zip(&rest, u64::saturating_add).zip(&excess, u64::saturating_sub);
    }
}

/// What the parent keeps of an amount: the percentage, rounded up.
pub(super) fn reserve(amount: u64, percent: u32) -> u64 {
    let kept = (u128::from(amount) * u128::from(percent.min(100))).div_ceil(100);
    u64::try_from(kept).unwrap_or(amount)
}

/// What workers used and their parent has not counted yet. Filled while they work, so that nothing is lost when they are stopped.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<RunUsage>);

impl Ledger {
    pub(crate) fn add(&self, used: &RunUsage) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(used);
    }

    pub(crate) fn take(&self) -> RunUsage {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is in it, left there.
    pub(crate) fn peek(&self) -> RunUsage {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_budget() -> impl Strategy<Value = Budget> {
        let amount = || prop::option::of(prop_oneof![0..200_u64, Just(u64::MAX), any::<u64>()]);
        let small = || prop_oneof![0..100_u32, Just(u32::MAX)];
        (small(), small(), small(), amount(), amount(), amount(), amount()).prop_map(
            |(max_steps, max_tool_calls, max_workers, max_input_tokens, max_output_tokens, max_cost_micros, max_fuel)| Budget {
                max_steps,
                max_tool_calls,
                max_input_tokens,
                max_output_tokens,
                max_cost_micros,
                max_wall_ms: None,
                max_fuel,
                max_workers,
                hand_over_percent: 0,
            },
        )
    }

    /// What a worker uses of its share, by the chances in `dice`; the reporting turn included.
    fn use_up(budget: &Budget, dice: u64) -> RunUsage {
        let part =
            |limit: u64, shift: u32| u64::try_from(u128::from(limit) * u128::from((dice >> shift) & 0xff) / 255).unwrap_or(0);
        let some = |limit: Option<u64>, shift| part(limit.unwrap_or(7), shift);
        RunUsage {
            steps: u32::try_from(part(u64::from(budget.max_steps) + 1, 0)).unwrap_or(u32::MAX),
            tool_calls: u32::try_from(part(budget.max_tool_calls.into(), 8)).unwrap_or(u32::MAX),
            tokens: crate::message::TokenUsage {
                input_tokens: some(budget.max_input_tokens, 16),
                output_tokens: some(budget.max_output_tokens, 24),
                ..Default::default()
            },
            cost_micros: some(budget.max_cost_micros, 32),
            fuel: some(budget.max_fuel, 40),
            workers: u32::try_from(part(budget.max_workers.into(), 48)).unwrap_or(u32::MAX),
            ..RunUsage::default()
        }
    }

    proptest! {
        #[test]
        fn shares_never_sum_to_more_than_the_parent_has_left_and_each_can_report(
            left in any_budget(),
            percent in 1..=90_u32,
            workers in 1..9_u32,
            extra in 0..2_u32,
            events in prop::collection::vec((any::<bool>(), any::<u64>()), 0..40),
        ) {
            let Ok(mut pool) = Pool::new(&left, percent, workers, extra) else { return Ok(()) };
            let (mut live, mut spent) = (Vec::new(), RunUsage::default());
            for (start, dice) in events {
                if start && pool.waiting > 0 {
                    let share = pool.draw();
                    let budget = share.budget(None, percent);
                    prop_assert!(budget.max_steps >= 1 && budget.max_tool_calls >= 1, "a step for work, one on top to report");
                    live.push(share);
                } else if let Some(share) = live.pop() {
                    let used = use_up(&share.budget(None, percent), dice);
                    pool.give_back(&share, &used);
                    spent.add(&used);
                }
                let (limits, spent) = (Share::of_budget(&left), Share::of_usage(&spent));
                for (index, (name, _)) in SHARED.iter().enumerate() {
                    let Some(limit) = limits.amounts[index] else { continue };
                    let given: u128 = live.iter().filter_map(|share| share.amounts[index]).map(u128::from).sum();
                    let all = given + spent.amounts[index].map_or(0, u128::from) + pool.free.amounts[index].map_or(0, u128::from);
                    prop_assert!(all + u128::from(reserve(limit, percent)) <= u128::from(limit), "{name}: {all} of {limit}");
                }
                let given: u64 = live.iter().map(|share| share.workers).sum::<u64>() + u64::from(workers);
                prop_assert!(given + spent.workers <= limits.workers);
            }
        }
    }

    #[test]
    fn what_one_worker_leaves_goes_to_the_next_and_what_it_took_too_much_is_charged() {
        let left = Budget { max_steps: 100, max_input_tokens: Some(1_000), ..Budget::default() };
        let mut pool = Pool::new(&left, 20, 2, 0).expect("enough");
        let first = pool.draw();
        assert_eq!(first.amounts[..3], [Some(40), Some(80), Some(400)]);
        let tokens = crate::message::TokenUsage { input_tokens: 500, ..Default::default() };
        pool.give_back(&first, &RunUsage { steps: 10, tokens, ..RunUsage::default() });
        assert_eq!(pool.draw().amounts[..3], [Some(70), Some(160), Some(300)]);
    }

    #[test]
    fn says_what_there_is_too_little_of() {
        for (budget, expected) in [
            (Budget { max_steps: 9, ..Budget::default() }, "steps"),
            (Budget { max_tool_calls: 4, ..Budget::default() }, "tool_calls"),
            (Budget { max_cost_micros: Some(4), ..Budget::default() }, "cost_micros"),
            (Budget { max_fuel: Some(0), ..Budget::default() }, "fuel"),
            (Budget { max_workers: 3, ..Budget::default() }, "workers"),
        ] {
            let error = Pool::new(&budget, 20, 4, 0).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
