//! Tools as the agent sees them: a list of [`ToolSpec`]s and a way to call one. It knows neither policy nor sandbox.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::message::{ToolCall, ToolStatus};

/// A boxed future, for traits that are used as `dyn`.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A set of tools.
///
/// Everything between a call and its effect is behind this trait: finding the tool, checking its arguments, policy, and running it. A
/// decorator over it can record, replay or cache, and cannot skip a check.
pub trait Tools: Send + Sync {
    /// The tools that the model is offered, in a stable order.
    fn specs(&self) -> Arc<[ToolSpec]>;

    /// Says what would happen to a call of a run, without running it.
    fn check(&self, run_id: &str, call: &ToolCall) -> Check;

    /// Runs one call. Checks everything again: a caller cannot skip [`Tools::check`] by not calling it.
    ///
    /// Dropping the future, or cancelling `context.cancel`, stops the tool.
    fn call<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolOutcome>;

    /// Told that a person answered [`Check::Ask`] with no. The call will not be made.
    fn declined(&self, run_id: &str, call_id: &str, question: &Question) {
        let _ = (run_id, call_id, question);
    }

    /// Counts how often what decides about calls was replaced. An approval that is remembered for a run holds within one generation.
    fn generation(&self) -> u64 {
        0
    }

    /// Forgets what was counted for a run, such as calls against `max_calls`.
    fn end_run(&self, run_id: &str) {
        let _ = run_id;
    }
}

/// A tool as it is shown to a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The model-visible name, `plugin__tool`; matches `^[a-zA-Z0-9_-]{1,64}$`.
    pub name: String,
    /// A short name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the tool does: the plugin's text, bounded and free of control characters. Untrusted.
    pub description: String,
    /// JSON Schema of the arguments; the root is an object with `properties`.
    pub input_schema: Value,
    /// JSON Schema of the structured result, if any; the root is an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// What the tool promises about its effects.
    #[serde(default)]
    pub hints: ToolHints,
}

/// What a tool promises about its effects, under MCP's names. A hint grants nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolHints {
    /// Does not change its environment. The agent may run such calls side by side.
    pub read_only: bool,
    /// May destroy or overwrite something.
    pub destructive: bool,
    /// A repeat has no further effect. After a crash, only such a call is repeated.
    pub idempotent: bool,
    /// Deals with the world outside the host.
    pub open_world: bool,
}

/// What [`Tools::check`] found.
#[derive(Clone, Debug)]
pub enum Check {
    /// The call may run.
    Ready,
    /// A person has to allow it first.
    Ask(Box<Question>),
    /// The call will not run; this is its outcome.
    Refused(Box<ToolOutcome>),
}

/// What a person is asked before a call runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The plugin's id.
    pub plugin: String,
    /// The plugin's own tool name.
    pub tool: String,
    /// The arguments, exactly as the tool will get them.
    pub arguments: Value,
    /// The policy rule that asks, as `file:line`.
    pub rule: String,
    /// The rule and all that it says, as a digest; it changes when the rule does.
    #[serde(default)]
    pub rule_id: String,
    /// The SHA-256 of the plugin's file, in hexadecimal.
    #[serde(default)]
    pub sha256: String,
    /// What the tool promises about its effects.
    pub hints: ToolHints,
}

/// What a person answered. Only an [`Approver`](crate::approval::Approver) makes one; nothing that the model can call does.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// This call may run.
    Once,
    /// This call may run, and so may later calls in this run that the same rule asks about.
    ForRun,
    /// This call may run, and so may every later one that is the same: plugin, component, tool, rule and arguments.
    Always,
    /// It may not.
    No,
}

/// What a call is run with. It identifies and bounds the call; it grants nothing but the person's approval.
#[derive(Clone)]
pub struct CallContext {
    /// Names the run that the call belongs to.
    pub run_id: String,
    /// The same on every attempt at one model call.
    pub idempotency_key: String,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// The conversation that the call comes from.
    pub conversation: Conversation,
    /// What a person answered, where [`Tools::check`] said to ask.
    pub approval: Option<Approval>,
    /// Stops the call.
    pub cancel: CancellationToken,
    /// Receives the tool's progress reports.
    pub progress: Option<ProgressSink>,
    /// Receives the tool's log lines, beside the host's own log.
    pub log: Option<LogSink>,
}

/// What is known of the conversation that a call belongs to. It says where the call comes from; it grants nothing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Conversation {
    /// Names the session, if there is one.
    pub session_id: Option<String>,
    /// The model-visible names of the tools whose results the model had read when it made the call, sorted.
    pub tools_read: Arc<[String]>,
}

/// Receives progress reports.
pub type ProgressSink = Arc<dyn Fn(Progress) + Send + Sync>;

/// A tool's word on how far it has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Units done.
    pub done: u64,
    /// Units in all, if known.
    pub total: Option<u64>,
    /// The tool's text, bounded and free of control characters.
    pub message: Option<String>,
}

/// Receives log lines. It is called from within the tool's call and must not block.
pub type LogSink = Arc<dyn Fn(LogLine) + Send + Sync>;

/// One line that a tool logged.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogLine {
    /// The plugin's id.
    pub plugin: Arc<str>,
    /// How important the tool says it is.
    pub level: LogLevel,
    /// The tool's text on one line: bounded, free of control characters and of known secrets.
    pub text: String,
}

/// How important a log line is, from the least to the most.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum LogLevel {
    /// The finest detail.
    Trace,
    /// Detail for debugging.
    Debug,
    /// Worth knowing.
    Info,
    /// Something is off.
    Warn,
    /// Something failed.
    Error,
    /// The plugin cannot go on.
    Critical,
}

/// How a call ended, with everything that is known about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolOutcome {
    /// How it ended.
    pub status: ToolStatus,
    /// What the tool returned; empty unless `status` is `Ok`.
    pub content: Vec<Content>,
    /// The structured result: the first JSON content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// What went wrong, unless `status` is `Ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// What the guest tried and was not granted, also when the call ended well. For the operator; the model sees only `error`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denials: Vec<Failure>,
    /// What the call used.
    pub usage: CallUsage,
}

impl ToolOutcome {
    /// An outcome without a result.
    pub fn failed(status: ToolStatus, failure: Failure, usage: CallUsage) -> Self {
        Self { status, content: Vec::new(), structured: None, error: Some(failure), denials: Vec::new(), usage }
    }

    /// A call that was refused before it ran.
    pub fn refused(status: ToolStatus, failure: Failure) -> Self {
        Self::failed(status, failure, CallUsage::default())
    }

    /// The outcome as the text that the model reads.
    pub fn model_text(&self) -> String {
        if let Some(failure) = &self.error {
            let mut text = format!("error {}: {}", failure.code, failure.message);
            if let Some(hint) = &failure.hint {
                text.push_str("\nhint: ");
                text.push_str(hint);
            }
            return text;
        }
        let pieces: Vec<Cow<'_, str>> = self
            .content
            .iter()
            .map(|content| match content {
                Content::Text { text } => Cow::Borrowed(text.as_str()),
                Content::Json { value } => Cow::Owned(value.to_string()),
                Content::Blob { mime_type, bytes } => Cow::Owned(format!("[{mime_type}, {} bytes]", bytes.len())),
                Content::Resource { uri, mime_type, bytes } => Cow::Owned(format!("[{uri}: {mime_type}, {} bytes]", bytes.len())),
            })
            .collect();
        pieces.join("\n")
    }
}

/// One piece of a tool's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Text, bounded and free of control characters.
    Text {
        /// The text.
        text: String,
    },
    /// A JSON value.
    Json {
        /// The value.
        value: Value,
    },
    /// Bytes.
    Blob {
        /// Media type.
        mime_type: String,
        /// The bytes; base64 in JSON.
        #[serde(with = "crate::json::base64_bytes")]
        bytes: Vec<u8>,
    },
    /// Bytes with a URI.
    Resource {
        /// Names the content.
        uri: String,
        /// Media type.
        mime_type: String,
        /// The bytes; base64 in JSON.
        #[serde(with = "crate::json::base64_bytes")]
        bytes: Vec<u8>,
    },
}

/// What went wrong with a call, for the model, the operator and scripts alike.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Stable, documented; scripts match on it.
    pub code: ErrorCode,
    /// What was wrong, and which.
    pub message: String,
    /// What would put it right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Failure {
    /// A failure without a hint.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A stable error code, such as `limit.fuel`. The README lists them all.
#[derive(Clone, Debug, Eq, PartialEq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorCode(Cow<'static, str>);

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        impl ErrorCode {
            $($(#[$doc])* pub const $name: Self = Self(Cow::Borrowed($code));)*
        }
    };
}

error_codes! {
    /// The file is not a usable component.
    LOAD_INVALID = "load.invalid";
    /// The component needs a feature that is switched off.
    LOAD_UNSUPPORTED = "load.unsupported";
    /// The component is too large, or too costly to compile.
    LOAD_LIMIT = "load.limit";
    /// The component imports something that the host does not offer.
    LINK_MISSING = "link.missing";
    /// The call used up its fuel.
    LIMIT_FUEL = "limit.fuel";
    /// The call reached its deadline.
    LIMIT_TIME = "limit.time";
    /// The call needs more memory, or table elements, than it may have.
    LIMIT_MEMORY = "limit.memory";
    /// The result is larger than it may be.
    LIMIT_OUTPUT = "limit.output";
    /// Too many bytes crossed from guest to host at once.
    LIMIT_HOSTCALL = "limit.hostcall";
    /// Too many handles are open at once.
    LIMIT_HANDLES = "limit.handles";
    /// Too many HTTP requests or bytes.
    LIMIT_HTTP = "limit.http";
    /// No room to run the call now.
    LIMIT_BUSY = "limit.busy";
    /// `max_calls` of the policy is used up.
    LIMIT_CALLS = "limit.calls";
    /// `rate` of the policy is used up for now.
    LIMIT_RATE = "limit.rate";
    /// A budget of the whole run is used up, or the run goes round in circles.
    LIMIT_RUN = "limit.run";
    /// The plugin ended itself.
    PLUGIN_EXIT = "plugin.exit";
    /// The arguments are not what the tool's schema wants.
    ARGS_INVALID = "args.invalid";
    /// The plugin returned something malformed.
    RESULT_INVALID = "result.invalid";
    /// The policy denies the call.
    POLICY_DENIED = "policy.denied";
    /// The policy itself is wrong.
    POLICY_INVALID = "policy.invalid";
    /// The call used a capability that is not granted.
    CAP_DENIED = "cap.denied";
    /// The request is not granted.
    HTTP_DENIED = "http.denied";
    /// The host's address is one that plugins may not reach.
    HTTP_IP_PROHIBITED = "http.ip_prohibited";
    /// There is no tool of that name.
    TOOL_UNKNOWN = "tool.unknown";
    /// The call was stopped before it ended.
    CALL_CANCELLED = "call.cancelled";
    /// The command line, or a file that it names, is wrong.
    USAGE_INVALID = "usage.invalid";
    /// A fault of the host.
    HOST_INTERNAL = "host.internal";
    /// What happened cannot be stored.
    HOST_STORAGE = "host.storage";
}

impl ErrorCode {
    /// `trap.<kind>`: the guest trapped.
    pub fn trap(kind: &str) -> Self {
        Self(Cow::Owned(format!("trap.{kind}")))
    }

    /// `tool.<kind>`: the tool reported an error itself.
    pub fn tool(kind: &str) -> Self {
        Self(Cow::Owned(format!("tool.{kind}")))
    }

    /// `provider.<class>`: the model's provider failed.
    pub fn provider(class: &str) -> Self {
        Self(Cow::Owned(format!("provider.{class}")))
    }

    /// The code as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a call used.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallUsage {
    /// Fuel, in wasmtime's units: about one an instruction.
    pub fuel: u64,
    /// Peak of the sum over all linear memories, in bytes.
    pub memory_bytes: u64,
    /// Wall-clock time of the call in the sandbox, waiting included, in microseconds.
    pub wall_us: u64,
    /// Of `wall_us`, time outside the guest's own code: set-up, host functions and tear-down.
    pub host_us: u64,
    /// Requests sent.
    pub http_requests: u64,
    /// Bytes of HTTP request and response bodies.
    pub http_bytes: u64,
    /// Bytes of the result.
    pub output_bytes: u64,
}
