//! The lines of a recording. Each is a JSON object whose first field seals it and all lines before it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::agent::{Interruption, RunResult};
use crate::message::{ModelTurn, ToolCall};
use crate::provider::{ProviderError, ProviderErrorClass};
use crate::text::hex;
use crate::tool::{Approval, Check, Question, ToolOutcome, ToolSpec};

/// The format of the files that this version writes.
pub const FORMAT: u64 = 1;

/// Bytes of a seal that stand in the file; a change that nobody made on purpose is missed once in 2^64.
const SEAL_BYTES: usize = 8;
const SEAL_START: &str = "{\"sum\":\"";

/// What the tools were, so that a later run can tell whether they still are.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// [`Policy::digest`](crate::policy::Policy::digest).
    pub policy: String,
    /// The plugins that were loaded.
    pub plugins: Vec<PluginOrigin>,
}

/// A plugin that was loaded.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PluginOrigin {
    /// Its id.
    pub id: String,
    /// SHA-256 of its file, in hexadecimal.
    pub sha256: String,
}

/// The first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) format: u64,
    /// The version of the program.
    pub(super) host: String,
    pub(super) model: String,
    pub(super) origin: Origin,
    pub(super) max_parallel: usize,
    pub(super) max_parallel_per_plugin: usize,
    pub(super) max_tool_attempts: u32,
    pub(super) tools: Vec<ToolSpec>,
    /// The run before its first step: id, task, history and settings.
    pub(super) run: Value,
}

/// A line and the time at which it was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    /// Milliseconds since 1970-01-01 UTC.
    pub(super) t: u64,
    #[serde(flatten)]
    pub(super) entry: Entry,
}

/// What a line holds: inputs of the run as they arrived, and the events that followed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Entry {
    Header(Box<Header>),
    /// The tools on offer changed.
    Tools {
        tools: Vec<ToolSpec>,
    },
    /// What decides about calls was replaced.
    Generation {
        generation: u64,
    },
    Model {
        answer: Answer,
    },
    Check {
        call: ToolCall,
        found: Found,
    },
    Outcome {
        call: ToolCall,
        attempt: u32,
        outcome: Box<ToolOutcome>,
    },
    Approval {
        question: Box<Question>,
        approval: Approval,
    },
    Interrupted {
        why: Interruption,
    },
    Event {
        event: Value,
    },
    End {
        result: Box<RunResult>,
    },
    /// The recorder stopped at its limit.
    Full,
}

/// What a provider gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Turn(ModelTurn),
    Error(Fault),
}

/// A [`ProviderError`] in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Fault {
    class: ProviderErrorClass,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
}

/// A [`Check`] in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Found {
    Ready,
    Ask(Box<Question>),
    Refused(Box<ToolOutcome>),
}

impl From<Check> for Found {
    fn from(check: Check) -> Self {
        match check {
            Check::Ready => Self::Ready,
            Check::Ask(question) => Self::Ask(question),
            Check::Refused(outcome) => Self::Refused(outcome),
        }
    }
}

impl From<Found> for Check {
    fn from(found: Found) -> Self {
        match found {
            Found::Ready => Self::Ready,
            Found::Ask(question) => Self::Ask(question),
            Found::Refused(outcome) => Self::Refused(outcome),
        }
    }
}

impl From<Result<ModelTurn, ProviderError>> for Answer {
    fn from(answer: Result<ModelTurn, ProviderError>) -> Self {
        match answer {
            Ok(turn) => Self::Turn(turn),
            Err(ProviderError { class, message, hint, status, .. }) => Self::Error(Fault { class, message, hint, status }),
        }
    }
}

impl From<Answer> for Result<ModelTurn, ProviderError> {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Turn(turn) => Ok(turn),
            Answer::Error(Fault { class, message, hint, status }) => {
                Err(ProviderError { class, message, hint, status, retry_after: None, response_started: false })
            }
        }
    }
}

impl Entry {
    /// The kind, for messages.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Header(_) => "header",
            Self::Tools { .. } => "other tools on offer",
            Self::Generation { .. } => "another policy",
            Self::Model { .. } => "an answer of the model",
            Self::Check { .. } => "the check of a call",
            Self::Outcome { .. } => "the outcome of a call",
            Self::Approval { .. } => "a person's answer",
            Self::Interrupted { .. } => "an interruption",
            Self::Event { .. } => "an event",
            Self::End { .. } => "the end of the run",
            Self::Full => "the end of the file",
        }
    }
}

/// Seals lines one after the other: each seal covers its line and every line before it.
#[derive(Clone, Default)]
pub(super) struct Seal([u8; 32]);

impl Seal {
    /// The line as it stands in the file, newline included. `json` is an object.
    pub(super) fn seal(&mut self, json: &str) -> String {
        let body = json.strip_prefix('{').unwrap_or(json);
        format!("{SEAL_START}{}\",{body}\n", self.next(body))
    }

    /// The object that was sealed; none if this is not what was written.
    pub(super) fn open(&mut self, line: &str) -> Option<String> {
        let rest = line.strip_prefix(SEAL_START)?;
        let (sum, body) = rest.split_at_checked(SEAL_BYTES * 2)?;
        let body = body.strip_prefix("\",")?;
        (self.next(body) == sum).then(|| format!("{{{body}"))
    }

    fn next(&mut self, body: &str) -> String {
        let mut digest = Sha256::new();
        digest.update(self.0);
        digest.update(body);
        self.0 = digest.finalize().into();
        hex(&self.0[..SEAL_BYTES])
    }
}
