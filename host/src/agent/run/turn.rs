//! What becomes of a model's turn.

use std::collections::HashSet;

use super::calls::Slot;
use super::{Run, State};
use crate::agent::event::EventKind;
use crate::agent::stop::StopReason;
use crate::message::{FinishReason, Message, ModelTurn, Part, Role, ToolCall, ToolResult, ToolStatus};
use crate::provider::{ProviderError, ProviderErrorClass};
use crate::text;
use crate::tool::{ErrorCode, Failure};

const NUDGE: &str = "Your last turn was empty. Go on with the task: call a tool, or answer.";
const NUDGE_CUT: &str =
    "Your last turn was cut off at the output limit before it said anything. Think less, and answer or call a tool.";
const CUT: &str = "not executed: the turn was cut off at the output limit, so its arguments may be incomplete; \
make the call again, with less text or in smaller parts";
const WITHHELD: &str = "not executed: the turn was refused or filtered";
const CLOSED: &str = "not executed: no tools may be called any more";
/// Ids longer than this are replaced, in bytes.
const MAX_ID_BYTES: usize = 128;
/// What events show of arguments, in bytes.
const MAX_SHOWN_ARGUMENTS: usize = 8 * 1024;

impl Run {
    /// Takes the turn that [`Step::CallModel`](super::Step::CallModel) asked for, or the reason why there is none.
    ///
    /// What is done depends on the calls that are there, never on the finish reason alone: providers report `stop` with calls and
    /// `tool_calls` without. Only a turn that is known to be incomplete (cut off, refused, filtered) executes nothing.
    pub fn on_model(&mut self, answer: Result<ModelTurn, ProviderError>, now_ms: u64) {
        let ms = self.last_ms.map_or(0, |last| now_ms.saturating_sub(last));
        self.tick(now_ms);
        if !matches!(self.state, State::Think) {
            return;
        }
        match answer {
            Ok(turn) => {
                self.outbox.push(EventKind::ModelCompleted { finish_reason: turn.finish_reason.clone(), usage: turn.usage, ms });
                self.usage.steps = self.usage.steps.saturating_add(1);
                self.counters.overflows = 0;
                self.spend(turn.usage);
                self.context.set_anchor(turn.usage.input_tokens);
                self.judge(turn);
            }
            Err(error) => self.on_model_error(&error),
        }
    }

    fn on_model_error(&mut self, error: &ProviderError) {
        let failure = Failure {
            code: ErrorCode::provider(error.class.as_str()),
            message: text::clean(&error.message, 4096).into_owned(),
            hint: error.hint.clone(),
        };
        self.outbox.push(EventKind::ModelFailed { error: failure.clone() });
        let reason = match error.class {
            ProviderErrorClass::ContextOverflow => {
                self.counters.overflows += 1;
                if self.counters.overflows < 2 {
                    // The window is smaller than the settings say; once, the conversation is made to fit what it seems to be.
                    self.context.overflowed();
                    return;
                }
                StopReason::ContextOverflow
            }
            ProviderErrorClass::ContentFilter => StopReason::ContentFilter,
            ProviderErrorClass::Cancelled => StopReason::Cancelled,
            _ => StopReason::ModelError,
        };
        self.finish(reason, None, Some(failure));
    }

    fn judge(&mut self, turn: ModelTurn) {
        let text = turn.text();
        let mut parts = turn.parts;
        // A model cannot answer its own calls.
        parts.retain(|part| !matches!(part, Part::ToolResult(_)));
        self.make_ids_unique(&mut parts);
        let calls: Vec<ToolCall> =
            parts.iter().filter_map(|part| if let Part::ToolCall(call) = part { Some(call.clone()) } else { None }).collect();
        for call in &calls {
            self.outbox.push(EventKind::ToolCallReady {
                call_id: call.id.clone(),
                name: text::clean_line(&call.name, 256),
                arguments: text::clean(&call.arguments, MAX_SHOWN_ARGUMENTS).into_owned(),
            });
        }
        let is_empty = calls.is_empty() && text.trim().is_empty();
        if !is_empty {
            self.messages.push(Message { role: Role::Assistant, parts });
        }
        let withheld = match turn.finish_reason {
            FinishReason::Refusal => Some((StopReason::Refusal, "the model refused")),
            FinishReason::ContentFilter => Some((StopReason::ContentFilter, "the provider's filter stopped the answer")),
            _ => None,
        };
        let is_cut = turn.finish_reason == FinishReason::Length;
        if let Some((reason, message)) = withheld {
            self.do_not_execute(&calls, WITHHELD);
            let class = if reason == StopReason::Refusal { "refusal" } else { "content_filter" };
            self.finish(reason, Some(text), Some(Failure::new(ErrorCode::provider(class), message)));
        } else if let Some(reason) = self.closing {
            self.do_not_execute(&calls, CLOSED);
            self.finish(reason, Some(text), None);
        } else if is_empty {
            self.nudge(if is_cut { NUDGE_CUT } else { NUDGE });
        } else if calls.is_empty() && is_cut {
            let failure = Failure::new(ErrorCode::LIMIT_OUTPUT, "the answer was cut off at the model's output limit")
                .hint("raise `max_output_tokens`, or ask for less at once");
            self.finish(StopReason::OutputLimit, Some(text), Some(failure));
        } else if calls.is_empty() {
            self.counters.nudges = 0;
            self.counters.invalid_turns = 0;
            if self.steering.is_empty() {
                self.finish(StopReason::EndTurn, Some(text), None);
            }
        } else if is_cut {
            self.do_not_execute(&calls, CUT);
            self.count_turn(false);
        } else {
            self.counters.nudges = 0;
            let slots = calls.into_iter().map(Slot::new).collect();
            self.state = State::Act { slots };
            self.drop_excess_calls();
        }
    }

    fn nudge(&mut self, message: &str) {
        if self.counters.nudges >= self.settings.max_nudges {
            let failure = Failure::new(ErrorCode::provider("bad_response"), "the model gave no answer and called no tool")
                .hint("try again, or another model");
            self.finish(StopReason::EmptyResponse, None, Some(failure));
            return;
        }
        self.counters.nudges += 1;
        self.outbox.push(EventKind::ModelNudged { count: self.counters.nudges });
        self.messages.push(Message::user(message));
    }

    /// Counts turns in a row whose calls were all unusable.
    pub(super) fn count_turn(&mut self, usable: bool) {
        if usable {
            self.counters.invalid_turns = 0;
            return;
        }
        self.counters.invalid_turns += 1;
        if self.counters.invalid_turns >= self.settings.max_invalid_turns {
            let count = self.counters.invalid_turns;
            let failure = Failure::new(ErrorCode::ARGS_INVALID, format!("{count} turns in a row held no usable tool call"))
                .hint("try another model, or describe the task differently");
            self.finish(StopReason::InvalidCalls, None, Some(failure));
        }
    }

    /// Answers calls that are not executed.
    fn do_not_execute(&mut self, calls: &[ToolCall], why: &str) {
        let mut parts = Vec::with_capacity(calls.len());
        for call in calls {
            let (call_id, name, text) = (call.id.clone(), call.name.clone(), why.to_owned());
            self.outbox.push(super::calls::not_executed_event(call, why));
            parts.push(Part::ToolResult(ToolResult { call_id, name, status: ToolStatus::NotExecuted, text }));
        }
        if !parts.is_empty() {
            self.messages.push(Message { role: Role::Tool, parts });
        }
    }

    /// Providers repeat ids, or leave them out; within a run each call has its own.
    fn make_ids_unique(&mut self, parts: &mut [Part]) {
        if !parts.iter().any(|part| matches!(part, Part::ToolCall(_))) {
            return;
        }
        let mut used: HashSet<String> = self.messages.iter().flat_map(Message::tool_calls).map(|call| call.id.clone()).collect();
        for part in parts {
            let Part::ToolCall(call) = part else { continue };
            while call.id.is_empty() || call.id.len() > MAX_ID_BYTES || used.contains(&call.id) {
                self.counters.minted_ids += 1;
                call.id = format!("call_{}", self.counters.minted_ids);
            }
            used.insert(call.id.clone());
        }
    }
}
