//! What happens during a run, as one list of events: the live view, JSON lines, the step log and callbacks all use it.

mod emitter;
mod queue;

use serde::{Deserialize, Serialize};

use super::stop::{RunUsage, StopReason};
use crate::message::{FinishReason, TokenUsage, ToolStatus};
use crate::tool::{Approval, BoxFuture, Failure};

pub(crate) use emitter::Emitter;
pub use queue::{EventReceiver, channel};

/// One thing that happened in a run. In JSON it is flat: the fields of its kind stand beside these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The run.
    pub run_id: String,
    /// The run that started this one, for workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    /// Counts from 0 within the run, without gaps, also over a resume.
    pub seq: u64,
    /// Milliseconds since 1970-01-01 UTC.
    pub ts: u64,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// Receives the events of a run, in order.
///
/// The run waits for each call to return, and a panic in one is caught. Whoever may be slow (a terminal, a socket) puts
/// [`channel`] or [`Runner::stream`](super::Runner::stream) in between.
pub trait Observer: Send + Sync {
    /// Receives one event.
    fn event(&self, event: &Event);

    /// Receives the run at a point from which it can be continued: before its first step, after each step, after each call, and before
    /// tools start, so that after a crash it is known which calls may have had effects.
    ///
    /// Whoever stores runs answers once this one would survive a crash. The run waits for that: no tool starts, and no model is asked,
    /// before what led to it is stored. A failure ends the run with [`StopReason::StorageFailed`].
    fn checkpoint<'a>(&'a self, run: &'a super::Run) -> BoxFuture<'a, Result<(), Failure>> {
        let _ = run;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Receives word that something the run waited for was dropped. Comes before the events that follow from it.
    fn interrupted(&self, why: Interruption) {
        let _ = why;
    }
}

/// Why the run stopped waiting for a model, a person or its tools.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interruption {
    /// The caller ended the run.
    Cancelled,
    /// The run's time is up.
    Expired,
    /// A summary took too long; the run goes on without it.
    SummaryTimedOut,
}

/// The kinds of events, under their stable names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum EventKind {
    /// The run begins.
    #[serde(rename = "run.started")]
    RunStarted {
        /// The task, bounded.
        task: String,
    },
    /// The run turns to the model (`think`) or to its calls (`action`).
    #[serde(rename = "step.started")]
    StepStarted {
        /// Turns asked of the model, this one included.
        n: u32,
        /// What it turns to.
        phase: super::Phase,
    },
    /// A request goes to the model.
    #[serde(rename = "model.request")]
    ModelRequest {
        /// The attempt that begins; always 1 here, [`EventKind::ModelRetry`] tells of later ones.
        attempt: u32,
        /// Messages in the request.
        messages: usize,
        /// Tools on offer.
        tools: usize,
        /// Estimated size in tokens.
        tokens: u64,
    },
    /// More of the answer's text. Neighbouring pieces may have been joined.
    #[serde(rename = "text.delta")]
    TextDelta {
        /// The text, as the model wrote it.
        text: String,
    },
    /// More of the model's readable reasoning. Neighbouring pieces may have been joined.
    #[serde(rename = "reasoning.delta")]
    ReasoningDelta {
        /// The text, as the model wrote it.
        text: String,
    },
    /// The model begins to write a call.
    #[serde(rename = "tool_call.started")]
    ToolCallStarted {
        /// The call.
        call_id: String,
        /// The tool, as the model wrote it.
        name: String,
    },
    /// A call is complete. None of it has run.
    #[serde(rename = "tool_call.ready")]
    ToolCallReady {
        /// The call.
        call_id: String,
        /// The tool, as the model wrote it.
        name: String,
        /// The arguments, as the model wrote them, bounded.
        arguments: String,
    },
    /// The request failed and is sent again.
    #[serde(rename = "model.retry")]
    ModelRetry {
        /// The attempt that comes next.
        attempt: u32,
        /// The wait before it, in milliseconds.
        delay_ms: u64,
        /// Why.
        reason: String,
        /// The deltas since `model.request` are void.
        discard: bool,
    },
    /// The model's turn is complete.
    #[serde(rename = "model.completed")]
    ModelCompleted {
        /// What the provider gives as the reason.
        finish_reason: FinishReason,
        /// Tokens of this turn.
        usage: TokenUsage,
        /// Time it took, in milliseconds.
        ms: u64,
    },
    /// The provider gave no turn.
    #[serde(rename = "model.failed")]
    ModelFailed {
        /// Why.
        error: Failure,
    },
    /// The model said nothing, or was cut off, and is asked again.
    #[serde(rename = "model.nudged")]
    ModelNudged {
        /// How often in a row.
        count: u32,
    },
    /// It is decided whether a call may run.
    #[serde(rename = "policy.decision")]
    PolicyDecision {
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// `allow`, `ask` or `deny`.
        decision: Verdict,
        /// Why it may not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Failure>,
    },
    /// A person is asked.
    #[serde(rename = "approval.requested")]
    ApprovalRequested {
        /// The call.
        call_id: String,
        /// The plugin's id.
        plugin: String,
        /// The plugin's own tool name.
        tool: String,
        /// The rule that asks.
        rule: String,
    },
    /// The person answered, or an earlier answer holds.
    #[serde(rename = "approval.resolved")]
    ApprovalResolved {
        /// The call.
        call_id: String,
        /// The answer.
        approval: Approval,
        /// It is an earlier answer for this run.
        remembered: bool,
    },
    /// A call starts.
    #[serde(rename = "tool.started")]
    ToolStarted {
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// Counts from 1; more than 1 is a repeat.
        attempt: u32,
    },
    /// A tool reports how far it has come. At most ten a second for each call.
    #[serde(rename = "tool.progress")]
    ToolProgress {
        /// The call.
        call_id: String,
        /// Units done.
        done: u64,
        /// Units in all, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<u64>,
        /// The tool's text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// A call ended; exactly one for each call, also for those that never started.
    #[serde(rename = "tool.completed")]
    ToolCompleted(Box<ToolCompleted>),
    /// The same call gave the same result several times.
    #[serde(rename = "loop.warning")]
    LoopWarning {
        /// The tool.
        name: String,
        /// How often.
        count: u32,
    },
    /// Old tool results were replaced by stubs, or old messages left out, to fit the window.
    #[serde(rename = "context.trimmed")]
    ContextTrimmed {
        /// Which tier acted: `stub`, `stub_all`, `max_history`.
        tier: String,
        /// Results or messages concerned.
        items: usize,
        /// Estimated tokens of the request before.
        tokens_before: u64,
        /// And after.
        tokens_after: u64,
    },
    /// Old messages were replaced by a summary.
    #[serde(rename = "context.summarised")]
    ContextSummarised {
        /// Messages that the summary stands for.
        messages: usize,
        /// Estimated tokens of the request before.
        tokens_before: u64,
        /// And after.
        tokens_after: u64,
        /// The model gave no usable summary; a list of what was done stands in for it.
        fallback: bool,
    },
    /// Four fifths of a limit are used.
    #[serde(rename = "budget.warning")]
    BudgetWarning {
        /// The limit: `steps`, `tool_calls`, `input_tokens`, `output_tokens`, `cost_micros`, `wall_ms`, `fuel`.
        budget: String,
        /// Used so far.
        used: u64,
        /// The limit.
        limit: u64,
    },
    /// A worker starts. Its own events follow under `worker_run_id`, with this run as their `parent_run_id`.
    #[serde(rename = "worker.started")]
    WorkerStarted {
        /// Counts from 1 within one `delegate`.
        worker: usize,
        /// The worker's run, which is a session of its own.
        worker_run_id: String,
        /// Its task, bounded.
        task: String,
    },
    /// A worker ended; exactly one for each that started.
    #[serde(rename = "worker.completed")]
    WorkerCompleted {
        /// Counts from 1 within one `delegate`.
        worker: usize,
        /// The worker's run.
        worker_run_id: String,
        /// How it ended.
        status: super::WorkerStatus,
        /// Why its run ended; none if it had to be dropped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_reason: Option<StopReason>,
        /// What it used.
        usage: RunUsage,
    },
    /// A hook panicked; the run went on without it, or, before a tool, without the call.
    #[serde(rename = "hook.failed")]
    HookFailed {
        /// The hook's name.
        hook: String,
        /// The point at which it was called.
        point: String,
    },
    /// The run is over; always the last event.
    #[serde(rename = "run.finished")]
    RunFinished {
        /// Why.
        stop_reason: StopReason,
        /// What the run used.
        usage: RunUsage,
        /// The answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<String>,
        /// What went wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Failure>,
    },
}

/// How a call ended and what it used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCompleted {
    /// The call.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// How it ended.
    pub status: ToolStatus,
    /// The error code, unless it ended well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Fuel used.
    pub fuel: u64,
    /// Peak of linear memory, in bytes.
    pub memory_bytes: u64,
    /// Time in the sandbox, in microseconds.
    pub wall_us: u64,
    /// Size of the result's text, in bytes.
    pub bytes: usize,
    /// The model sees less than the whole result.
    pub truncated: bool,
    /// The result's first line or so, for people.
    pub preview: String,
    /// What the guest tried and was not granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denials: Vec<Failure>,
}

/// What was decided about a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may run.
    Allow,
    /// A person decides.
    Ask,
    /// It may not run.
    Deny,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_flat_in_json() {
        let event = Event {
            run_id: "r1".into(),
            parent_run_id: None,
            seq: 3,
            ts: 17,
            kind: EventKind::TextDelta { text: "北京".into() },
        };
        let json = serde_json::to_string(&event).expect("serialises");
        assert_eq!(json, r#"{"run_id":"r1","seq":3,"ts":17,"kind":"text.delta","text":"北京"}"#);
        assert_eq!(serde_json::from_str::<Event>(&json).expect("parses"), event);
    }

    #[test]
    fn a_completed_call_is_flat_too() {
        let kind = EventKind::ToolCompleted(Box::new(ToolCompleted {
            call_id: "c".into(),
            name: "a__b".into(),
            status: ToolStatus::Ok,
            code: None,
            fuel: 1,
            memory_bytes: 2,
            wall_us: 3,
            bytes: 4,
            truncated: false,
            preview: "x".into(),
            denials: Vec::new(),
        }));
        let json = serde_json::to_value(&kind).expect("serialises");
        assert_eq!(json["kind"], "tool.completed");
        assert_eq!(json["fuel"], 1);
    }
}
