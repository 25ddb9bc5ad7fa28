//! Hooks: code of the embedder that watches a run, changes what passes, or ends it.

use serde::{Deserialize, Serialize};

use super::stop::{RunResult, RunUsage};
use crate::message::{ModelTurn, ToolCall};
use crate::provider::ModelRequest;
use crate::tool::{BoxFuture, Failure, ToolOutcome};

/// What a hook may know about the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The run.
    pub run_id: String,
    /// The run that started this one.
    pub parent_run_id: Option<String>,
    /// What it used so far.
    pub usage: RunUsage,
}

/// Watches and steers a run. Every method has a default that changes nothing.
///
/// Order: hooks are called in the order in which they were added, each one with what the one before made of it. The first answer other
/// than "continue" or "change" ends the round: later hooks are not asked.
///
/// | point | when | what a change is subject to |
/// |---|---|---|
/// | `before_model` | the request is built and fits the window | the provider's limits |
/// | `after_model` | the turn is complete | everything that applies to a model's own turn |
/// | `before_tool` | before the check | the check: a changed call is checked as if the model had written it |
/// | `after_tool` | the call ended | the display rules; a repeat is checked first |
/// | `on_compaction` | before old messages are summarised | the bound on summaries |
/// | `on_stop` | the run is about to end | the budgets |
///
/// A hook cannot widen what a call may do: policy is checked after it. A hook that panics is reported as `hook.failed` and left out;
/// before a tool, the call then does not run.
///
/// `host/examples/hooks.rs` has three: rules before each call of the model, a failed tool tried again with corrected arguments, and a
/// summary of one's own.
pub trait Hook: Send + Sync {
    /// The hook's name, for events.
    fn name(&self) -> &str;

    /// Is called with each request before it goes to the model.
    fn before_model<'a>(&'a self, run: &'a RunInfo, request: &'a ModelRequest) -> BoxFuture<'a, BeforeModel> {
        let _ = (run, request);
        Box::pin(std::future::ready(BeforeModel::Continue))
    }

    /// Is called with each turn of the model before anything is decided on it.
    fn after_model<'a>(&'a self, run: &'a RunInfo, turn: &'a ModelTurn) -> BoxFuture<'a, AfterModel> {
        let _ = (run, turn);
        Box::pin(std::future::ready(AfterModel::Continue))
    }

    /// Is called with each call before it is checked.
    fn before_tool<'a>(&'a self, run: &'a RunInfo, call: &'a ToolCall) -> BoxFuture<'a, BeforeTool> {
        let _ = (run, call);
        Box::pin(std::future::ready(BeforeTool::Continue))
    }

    /// Is called with the outcome of each call that was started. Calls that run together are reported as they end.
    fn after_tool<'a>(&'a self, run: &'a RunInfo, call: &'a ToolCall, outcome: &'a ToolOutcome) -> BoxFuture<'a, AfterTool> {
        let _ = (run, call, outcome);
        Box::pin(std::future::ready(AfterTool::Continue))
    }

    /// Is called before the model is asked for a summary.
    fn on_compaction<'a>(&'a self, run: &'a RunInfo, request: &'a ModelRequest) -> BoxFuture<'a, OnCompaction> {
        let _ = (run, request);
        Box::pin(std::future::ready(OnCompaction::Continue))
    }

    /// Is called when the run is about to end.
    fn on_stop<'a>(&'a self, run: &'a RunInfo, result: &'a RunResult) -> BoxFuture<'a, OnStop> {
        let _ = (run, result);
        Box::pin(std::future::ready(OnStop::Continue))
    }
}

/// A hook's answer before the model is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum BeforeModel {
    /// Go on.
    Continue,
    /// Send this request instead.
    Patch(Box<ModelRequest>),
    /// Do not ask; this is the turn.
    Skip(Box<ModelTurn>),
    /// End the run; the text says why.
    Stop(String),
}

/// A hook's answer to a turn of the model.
#[derive(Clone, Debug, PartialEq)]
pub enum AfterModel {
    /// Go on.
    Continue,
    /// Take this turn instead. The tokens spent stay spent: `usage` is taken from the original.
    Patch(Box<ModelTurn>),
    /// End the run; the text says why.
    Stop(String),
}

/// A hook's answer to a call.
#[derive(Clone, Debug, PartialEq)]
pub enum BeforeTool {
    /// Go on.
    Continue,
    /// Call with these arguments (JSON text) instead.
    Patch(String),
    /// Do not call; this is the outcome.
    Skip(Box<ToolOutcome>),
    /// End the run; the text says why.
    Stop(String),
}

/// A hook's answer to the outcome of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum AfterTool {
    /// Go on.
    Continue,
    /// Take this outcome instead. What the call used stays used: `usage` and `denials` are taken from the original.
    Patch(Box<ToolOutcome>),
    /// Call once more with these arguments (JSON text).
    ///
    /// Bounded by [`RunnerSettings::max_tool_attempts`](super::RunnerSettings::max_tool_attempts). A repeat that the policy refuses, or
    /// would ask a person about, is not made, and the outcome stands: nobody approved these arguments.
    Retry(String),
    /// End the run; the text says why.
    Stop(String),
}

/// A hook's answer before the model is asked for a summary.
#[derive(Clone, Debug, PartialEq)]
pub enum OnCompaction {
    /// Go on.
    Continue,
    /// Ask with this request instead.
    Patch(Box<ModelRequest>),
    /// Do not ask; this is the summary.
    Skip(String),
    /// End the run; the text says why.
    Stop(String),
}

/// A hook's answer when the run is about to end.
#[derive(Clone, Debug, PartialEq)]
pub enum OnStop {
    /// End it.
    Continue,
    /// Go on with this message of the user.
    ///
    /// Works at most three times, and only on a run that ended with an answer.
    Resume(String),
}

/// The failure that stands for a hook's wish to end the run.
pub(crate) fn stop_failure(hook: &str, reason: &str) -> Failure {
    let reason = crate::text::clean_line(reason, 1024);
    Failure::new(crate::tool::ErrorCode::CALL_CANCELLED, format!("hook `{hook}` stopped the run: {reason}"))
}
