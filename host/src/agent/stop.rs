//! How a run ends: the named reason, the answer, and what it used.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::message::TokenUsage;
use crate::tool::Failure;

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Why it ended.
    pub stop_reason: StopReason,
    /// The model's last text, where there is one; complete only if `stop_reason` is [`StopReason::EndTurn`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// What it used.
    pub usage: RunUsage,
    /// What went wrong, for ends other than an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

/// Why a run ended. The names are stable: scripts match on them.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model answered and asked for nothing more.
    EndTurn,
    /// The model was asked as often as it may be.
    MaxSteps,
    /// As many tools were called as may be.
    MaxToolCalls,
    /// The tokens, in or out, are used up.
    MaxTokens,
    /// The money is used up.
    MaxCost,
    /// The fuel for all tool calls together is used up.
    MaxFuel,
    /// The time is used up.
    Deadline,
    /// The same call gave the same result again and again.
    LoopDetected,
    /// The model called unknown tools, or called with unusable arguments, several turns in a row.
    InvalidCalls,
    /// The model said nothing, also after being nudged.
    EmptyResponse,
    /// The model's text was cut at its output limit.
    OutputLimit,
    /// The model refused.
    Refusal,
    /// The provider's filter stopped the answer.
    ContentFilter,
    /// The conversation does not fit the model's window, whatever is left out.
    ContextOverflow,
    /// The provider failed, retries included.
    ModelError,
    /// A hook ended the run.
    HookStopped,
    /// The caller ended the run.
    Cancelled,
    /// The run could not be stored, and nothing is done that is not.
    StorageFailed,
}

impl StopReason {
    /// The name as it stands in events and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EndTurn => "end_turn",
            Self::MaxSteps => "max_steps",
            Self::MaxToolCalls => "max_tool_calls",
            Self::MaxTokens => "max_tokens",
            Self::MaxCost => "max_cost",
            Self::MaxFuel => "max_fuel",
            Self::Deadline => "deadline",
            Self::LoopDetected => "loop_detected",
            Self::InvalidCalls => "invalid_calls",
            Self::EmptyResponse => "empty_response",
            Self::OutputLimit => "output_limit",
            Self::Refusal => "refusal",
            Self::ContentFilter => "content_filter",
            Self::ContextOverflow => "context_overflow",
            Self::ModelError => "model_error",
            Self::HookStopped => "hook_stopped",
            Self::Cancelled => "cancelled",
            Self::StorageFailed => "storage_failed",
        }
    }

    /// Whether the task was done: the model gave its answer of its own accord.
    pub fn is_success(self) -> bool {
        self == Self::EndTurn
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a run used so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunUsage {
    /// Turns asked of the model; summaries are not counted here, their tokens are.
    pub steps: u32,
    /// Tool calls that were started.
    pub tool_calls: u32,
    /// Tokens, as the provider counts them.
    #[serde(flatten)]
    pub tokens: TokenUsage,
    /// Cost in millionths of the price's currency; 0 without a price.
    pub cost_micros: u64,
    /// Fuel of all tool calls.
    pub fuel: u64,
    /// The largest peak of linear memory of any tool call, in bytes.
    pub memory_bytes: u64,
    /// Time that the run was worked on, in milliseconds; a pause between two processes is not counted.
    pub wall_ms: u64,
    /// Workers that were started. What they used is counted above, but for time: they run beside each other.
    pub workers: u32,
}

impl RunUsage {
    /// Adds what workers used. Their time is not added: it passes for the run that waits for them as well.
    pub(crate) fn add(&mut self, other: &Self) {
        self.steps = self.steps.saturating_add(other.steps);
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
        self.tokens += other.tokens;
        self.cost_micros = self.cost_micros.saturating_add(other.cost_micros);
        self.fuel = self.fuel.saturating_add(other.fuel);
        self.memory_bytes = self.memory_bytes.max(other.memory_bytes);
        self.workers = self.workers.saturating_add(other.workers);
    }

    /// What was used since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let TokenUsage { input_tokens, output_tokens, cached_input_tokens, reasoning_tokens } = earlier.tokens;
        Self {
            steps: self.steps.saturating_sub(earlier.steps),
            tool_calls: self.tool_calls.saturating_sub(earlier.tool_calls),
            tokens: TokenUsage {
                input_tokens: self.tokens.input_tokens.saturating_sub(input_tokens),
                output_tokens: self.tokens.output_tokens.saturating_sub(output_tokens),
                cached_input_tokens: self.tokens.cached_input_tokens.saturating_sub(cached_input_tokens),
                reasoning_tokens: self.tokens.reasoning_tokens.saturating_sub(reasoning_tokens),
            },
            cost_micros: self.cost_micros.saturating_sub(earlier.cost_micros),
            fuel: self.fuel.saturating_sub(earlier.fuel),
            memory_bytes: self.memory_bytes,
            wall_ms: self.wall_ms.saturating_sub(earlier.wall_ms),
            workers: self.workers.saturating_sub(earlier.workers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_serialised() {
        for reason in [
            StopReason::EndTurn,
            StopReason::MaxSteps,
            StopReason::MaxToolCalls,
            StopReason::MaxTokens,
            StopReason::MaxCost,
            StopReason::MaxFuel,
            StopReason::Deadline,
            StopReason::LoopDetected,
            StopReason::InvalidCalls,
            StopReason::EmptyResponse,
            StopReason::OutputLimit,
            StopReason::Refusal,
            StopReason::ContentFilter,
            StopReason::ContextOverflow,
            StopReason::ModelError,
            StopReason::HookStopped,
            StopReason::Cancelled,
            StopReason::StorageFailed,
        ] {
            assert_eq!(serde_json::to_value(reason).expect("serialises"), reason.as_str());
        }
    }
}
