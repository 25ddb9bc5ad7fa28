//! Model providers: what the agent asks of one. Each provider's wire format is private to its own file.

mod anthropic;
mod classify;
mod conversation;
pub mod decode;
pub mod embeddings;
mod http;
mod openai;
pub mod price;
pub mod quirks;
pub mod retry;
pub mod scripted;
pub mod settings;
pub mod sse;
pub mod wire;

use tokio_util::sync::CancellationToken;

use serde::{Deserialize, Serialize};

use crate::message::{Message, ModelTurn};
use crate::tool::{BoxFuture, ToolSpec};

/// A model that can be asked for a turn.
pub trait Provider: Send + Sync {
    /// Asks for one turn. Events arrive in `events` while the answer streams in; the result is the whole turn.
    ///
    /// # Errors
    ///
    /// Returns a [`ProviderError`] once retries, which are the provider's own business, are used up.
    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        events: &'a mut (dyn FnMut(ModelEvent) + Send),
        cancel: CancellationToken,
    ) -> BoxFuture<'a, Result<ModelTurn, ProviderError>>;

    /// The model that answers, for logs.
    fn model(&self) -> &str;
}

/// One request for a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// The system prompt. Nothing that a tool wrote is ever in it.
    pub system: String,
    /// The conversation.
    pub messages: Vec<Message>,
    /// The tools on offer; none for a last turn that must answer.
    pub tools: Vec<ToolSpec>,
    /// The most tokens that the answer may have; none leaves it to the provider.
    pub max_output_tokens: Option<u32>,
}

/// What a request holds beside the conversation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RequestOptions {
    pub(crate) model: String,
    pub(crate) temperature: Option<f64>,
    pub(crate) max_output_tokens: Option<u32>,
    pub(crate) stream: bool,
    pub(crate) quirks: quirks::Quirks,
}

/// What happens while an answer streams in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ModelEvent {
    /// More text.
    TextDelta {
        /// The text.
        text: String,
    },
    /// More readable reasoning.
    ReasoningDelta {
        /// The text.
        text: String,
    },
    /// A tool call begins.
    ToolCallStarted {
        /// The [`ToolCall::id`](crate::message::ToolCall::id).
        id: String,
        /// The tool's model-visible name.
        name: String,
    },
    /// The request failed and is sent again.
    Retry {
        /// The attempt that comes next; the first was 1.
        attempt: u32,
        /// How long it waits before that, in milliseconds.
        delay_ms: u64,
        /// Why.
        reason: String,
        /// What was streamed so far is void: the next attempt starts the answer anew.
        discard: bool,
    },
}

/// Why a provider gave no turn.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ProviderError {
    /// The class, on which callers decide.
    pub class: ProviderErrorClass,
    /// What happened, with the provider's own words, bounded. Never holds a key.
    pub message: String,
    /// What would put it right.
    pub hint: Option<String>,
    /// HTTP status, if there was a response.
    pub status: Option<u16>,
    /// How long the provider asked to wait.
    pub retry_after: Option<std::time::Duration>,
    /// Part of the answer had arrived.
    pub response_started: bool,
}

/// The classes of provider faults; `provider.<class>` is their error code.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderErrorClass {
    /// HTTP 429, or the provider's word for it.
    RateLimited,
    /// HTTP 500, 502, 503, 529 and their like.
    Overloaded,
    /// No connection, no headers or no event in time.
    Timeout,
    /// The connection could not be made or broke.
    Network,
    /// The stream ended before the answer did.
    StreamIncomplete,
    /// The provider reported an error inside a stream.
    StreamError,
    /// The response is not what the protocol says.
    BadResponse,
    /// The request is larger than the model's window.
    ContextOverflow,
    /// HTTP 400, 404, 422: a repeat would fail the same way.
    InvalidRequest,
    /// HTTP 401, 403: the key is missing, wrong or not enough.
    Auth,
    /// The provider's filter refused the request.
    ContentFilter,
    /// The run was cancelled.
    Cancelled,
    /// A scripted or replayed provider was asked something else than its script expects.
    ScriptMismatch,
}

impl ProviderErrorClass {
    /// The class as it stands in an error code.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::Network => "network",
            Self::StreamIncomplete => "stream_incomplete",
            Self::StreamError => "stream_error",
            Self::BadResponse => "bad_response",
            Self::ContextOverflow => "context_overflow",
            Self::InvalidRequest => "invalid_request",
            Self::Auth => "auth",
            Self::ContentFilter => "content_filter",
            Self::Cancelled => "cancelled",
            Self::ScriptMismatch => "script_mismatch",
        }
    }
}
