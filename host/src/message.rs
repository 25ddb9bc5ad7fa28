//! The shared vocabulary: messages, tool calls, tool results, and what a model's turn consists of.
//!
//! Plain data with public fields, neutral between providers. It does no I/O, and knows neither a provider's wire format nor a tool.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Who a message is from.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The person, or the host speaking for them.
    User,
    /// The model.
    Assistant,
    /// Tools, answering the calls of the assistant message before.
    Tool,
}

/// One entry of a conversation. The system prompt is not one: see [`ModelRequest::system`](crate::provider::ModelRequest::system).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who it is from.
    pub role: Role,
    /// Its content, in order.
    pub parts: Vec<Part>,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// What the model thought; replayed byte for byte to the provider it came from, or not at all.
    Reasoning(Reasoning),
    /// The model calls a tool.
    ToolCall(ToolCall),
    /// A tool's answer.
    ToolResult(ToolResult),
}

/// A piece of a model's reasoning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reasoning {
    /// Readable text; empty when the provider hides it.
    pub text: String,
    /// The provider's own block, exactly as received, when it must be replayed (a signature covers it).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Value>,
}

/// A call of a tool by the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique in the conversation; minted by the host, since providers repeat or omit ids.
    pub id: String,
    /// The id that the provider gave, replayed to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The model-visible name of the tool, as the model wrote it.
    pub name: String,
    /// The arguments as the model wrote them; may be anything. See [`ToolCall::parse_arguments`].
    pub arguments: String,
}

impl ToolCall {
    /// Returns the arguments as a JSON object.
    ///
    /// Absent arguments (empty text or `null`) are an empty object: that is how providers write a call without arguments.
    ///
    /// # Errors
    ///
    /// Returns a sentence for the model when the text is not JSON, is not an object, or names a key twice at any depth. A repeated
    /// key is refused because two readers could disagree on which one counts: the policy would judge one value and the tool get the
    /// other.
    pub fn parse_arguments(&self) -> Result<Map<String, Value>, String> {
        crate::json::parse_object(&self.arguments)
    }
}

/// How a tool call ended. Each call ends exactly once.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// The tool answered.
    Ok,
    /// The tool ran and failed, or could not be run.
    Error,
    /// Policy or a person refused it; it did not run.
    Denied,
    /// It was started and did not end; it may have had effects.
    Interrupted,
    /// It was never started.
    NotExecuted,
}

/// What the model is told about a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The [`ToolCall::id`] that this answers.
    pub call_id: String,
    /// The tool's model-visible name.
    pub name: String,
    /// How the call ended.
    pub status: ToolStatus,
    /// The text for the model: bounded, and free of control characters.
    pub text: String,
}

/// Tokens spent, as the provider counts them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenUsage {
    /// Tokens of the request, cached ones included.
    pub input_tokens: u64,
    /// Tokens of the answer, reasoning included.
    pub output_tokens: u64,
    /// Of the input, tokens read from the provider's cache.
    pub cached_input_tokens: u64,
    /// Of the output, tokens of reasoning.
    pub reasoning_tokens: u64,
}

impl std::ops::AddAssign for TokenUsage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_input_tokens = self.cached_input_tokens.saturating_add(other.cached_input_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(other.reasoning_tokens);
    }
}

/// Why the model stopped, in its provider's view. The agent decides on the calls that are present, never on this alone.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The answer is complete.
    Stop,
    /// The model waits for tools.
    ToolCalls,
    /// The output was cut at the token limit.
    Length,
    /// A filter of the provider cut the output.
    ContentFilter,
    /// The model refused.
    Refusal,
    /// The provider said something else.
    Other(String),
    /// The provider said nothing.
    Missing,
}

/// One complete answer of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelTurn {
    /// Text, reasoning and tool calls, in order.
    pub parts: Vec<Part>,
    /// Why the model stopped.
    pub finish_reason: FinishReason,
    /// Tokens spent, where the provider says.
    pub usage: TokenUsage,
}

impl Message {
    /// A message of the person.
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, parts: vec![Part::text(text)] }
    }

    /// The text parts, joined.
    pub fn text(&self) -> String {
        joined_text(&self.parts)
    }

    /// The tool calls, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| if let Part::ToolCall(call) = part { Some(call) } else { None })
    }
}

impl ModelTurn {
    /// The text parts, joined.
    pub fn text(&self) -> String {
        joined_text(&self.parts)
    }
}

impl Part {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

fn joined_text(parts: &[Part]) -> String {
    parts.iter().filter_map(|part| if let Part::Text { text } = part { Some(text.as_str()) } else { None }).collect()
}
