//! What a run may use.

use serde::{Deserialize, Serialize};

use super::stop::{RunUsage, StopReason};

/// What a run may use. Every limit bounds the whole run; none leaves that thing to the other limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Turns asked of the model. One more, without tools, is asked at the limit so that the work is not lost.
    pub max_steps: u32,
    /// Tool calls.
    pub max_tool_calls: u32,
    /// Input tokens, cached ones included.
    pub max_input_tokens: Option<u64>,
    /// Output tokens, reasoning included.
    pub max_output_tokens: Option<u64>,
    /// Cost in millionths of the price's currency. Bites only where the settings hold a price.
    pub max_cost_micros: Option<u64>,
    /// Time, in milliseconds.
    pub max_wall_ms: Option<u64>,
    /// Fuel of all tool calls together.
    pub max_fuel: Option<u64>,
    /// Workers that the run may start, those that its workers start included.
    pub max_workers: u32,
    /// The percentage of tokens, cost and time at the end that is kept for a last turn without tools, so that the work is not lost.
    /// 0 keeps none: the run then ends where the limit is.
    pub hand_over_percent: u32,
}

impl Default for Budget {
    /// 50 steps, 200 tool calls, an hour; enough for long tasks, and an end to stuck ones.
    fn default() -> Self {
        Self {
            max_steps: 50,
            max_tool_calls: 200,
            max_input_tokens: None,
            max_output_tokens: None,
            max_cost_micros: None,
            max_wall_ms: Some(3_600_000),
            max_fuel: None,
            max_workers: 16,
            hand_over_percent: 0,
        }
    }
}

/// One limit with what was used of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Meter {
    pub(crate) name: &'static str,
    pub(crate) used: u64,
    pub(crate) limit: u64,
    pub(crate) reason: StopReason,
    /// A last turn without tools may still be asked.
    pub(crate) hand_over: bool,
}

impl Meter {
    pub(crate) fn is_used_up(&self) -> bool {
        self.used >= self.limit
    }

    /// Only the last `percent` of the limit are left.
    pub(crate) fn is_down_to(&self, percent: u32) -> bool {
        let used = u128::from(self.used) * 100;
        percent > 0 && used >= u128::from(self.limit) * u128::from(100_u32.saturating_sub(percent))
    }

    /// At four fifths, there is still time to wrap up.
    pub(crate) fn is_low(&self) -> bool {
        self.used.saturating_mul(5) >= self.limit.saturating_mul(4)
    }
}

impl Budget {
    /// What is left of the budget when this was used of it.
    #[must_use]
    pub fn left(&self, used: &RunUsage) -> Self {
        let less = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        Self {
            max_steps: self.max_steps.saturating_sub(used.steps),
            max_tool_calls: self.max_tool_calls.saturating_sub(used.tool_calls),
            max_input_tokens: less(self.max_input_tokens, used.tokens.input_tokens),
            max_output_tokens: less(self.max_output_tokens, used.tokens.output_tokens),
            max_cost_micros: less(self.max_cost_micros, used.cost_micros),
            max_wall_ms: less(self.max_wall_ms, used.wall_ms),
            max_fuel: less(self.max_fuel, used.fuel),
            max_workers: self.max_workers.saturating_sub(used.workers),
            hand_over_percent: self.hand_over_percent,
        }
    }

    /// The limits that are set, hard ones first: those decide when several are used up.
    pub(crate) fn meters(&self, usage: &RunUsage) -> impl Iterator<Item = Meter> {
        let meter =
            |name, used, limit: Option<u64>, reason, hand_over| limit.map(|limit| Meter { name, used, limit, reason, hand_over });
        [
            meter("wall_ms", usage.wall_ms, self.max_wall_ms, StopReason::Deadline, false),
            meter("input_tokens", usage.tokens.input_tokens, self.max_input_tokens, StopReason::MaxTokens, false),
            meter("output_tokens", usage.tokens.output_tokens, self.max_output_tokens, StopReason::MaxTokens, false),
            meter("cost_micros", usage.cost_micros, self.max_cost_micros, StopReason::MaxCost, false),
            meter("fuel", usage.fuel, self.max_fuel, StopReason::MaxFuel, true),
            meter("tool_calls", usage.tool_calls.into(), Some(self.max_tool_calls.into()), StopReason::MaxToolCalls, true),
            meter("steps", usage.steps.into(), Some(self.max_steps.into()), StopReason::MaxSteps, true),
        ]
        .into_iter()
        .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::TokenUsage;

    #[test]
    fn each_limit_has_its_meter() {
        let budget = Budget {
            max_steps: 1,
            max_tool_calls: 1,
            max_input_tokens: Some(1),
            max_output_tokens: Some(1),
            max_cost_micros: Some(1),
            max_wall_ms: Some(1),
            max_fuel: Some(1),
            ..Budget::default()
        };
        let unused: Vec<_> = budget.meters(&RunUsage::default()).filter(Meter::is_used_up).collect();
        assert_eq!(unused, []);
        let used = RunUsage {
            steps: 1,
            tool_calls: 1,
            tokens: TokenUsage { input_tokens: 1, output_tokens: 1, ..TokenUsage::default() },
            cost_micros: 1,
            fuel: 1,
            memory_bytes: 1,
            wall_ms: 1,
            workers: 0,
        };
        assert_eq!(budget.meters(&used).filter(Meter::is_used_up).count(), 7);
    }
}
