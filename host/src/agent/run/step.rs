//! What a run asks its driver to do next.

use serde::{Deserialize, Serialize};

use crate::agent::stop::RunResult;
use crate::message::ToolCall;
use crate::provider::ModelRequest;
use crate::tool::{Approval, Check, Question};

/// What a run needs next.
#[derive(Clone, Debug)]
pub enum Step {
    /// Ask the model, then call [`Run::on_model`](super::Run::on_model).
    CallModel(Box<ModelRequest>),
    /// See whether these calls may run, then call [`Run::on_checks`](super::Run::on_checks).
    CheckCalls(Vec<ToolCall>),
    /// Ask a person, then call [`Run::on_approval`](super::Run::on_approval) for each.
    AskApproval(Vec<PendingApproval>),
    /// Run these calls, side by side if they are several, and call [`Run::on_started`](super::Run::on_started) before and
    /// [`Run::on_tool`](super::Run::on_tool) for each.
    CallTools(Vec<PendingCall>),
    /// Ask the model for a summary, then call [`Run::on_summary`](super::Run::on_summary).
    Summarise(Box<ModelRequest>),
    /// The run is over.
    Done(Box<RunResult>),
}

/// A call that may run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingCall {
    /// The call.
    pub call: ToolCall,
    /// What a person answered, if one was asked.
    pub approval: Option<Approval>,
    /// 1 for the first attempt; more after a resume.
    pub attempt: u32,
    /// The same for each attempt.
    pub idempotency_key: String,
}

/// A call that a person has to allow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingApproval {
    /// The call.
    pub call_id: String,
    /// What to ask.
    pub question: Question,
}

/// What was found about a call.
#[derive(Clone, Debug)]
pub struct CheckedCall {
    /// The call's id.
    pub call_id: String,
    /// Other arguments (JSON text) than the model wrote; the check was made with these.
    pub arguments: Option<String>,
    /// Whether it may run.
    pub check: Check,
}

/// What a run is doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The model is next.
    Think,
    /// Calls are being decided or run.
    Action,
    /// Results are being prepared for the model.
    Observe,
    /// The run is over.
    Finish,
}
