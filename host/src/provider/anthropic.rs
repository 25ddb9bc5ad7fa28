//! Anthropic's messages.

mod request;
mod stream;

use serde_json::{Map, Value};

pub(super) use request::request_body;
pub(super) use stream::StreamAssembler;

use super::decode::{IdSource, bad_response};
use super::{ModelEvent, ProviderError};
use crate::message::{FinishReason, ModelTurn, Part, Reasoning, TokenUsage, ToolCall};

/// Reads a response that was not streamed.
pub(super) fn parse_response(
    value: &Value,
    ids: &IdSource,
    events: &mut dyn FnMut(ModelEvent),
) -> Result<ModelTurn, ProviderError> {
    let blocks =
        value.get("content").and_then(Value::as_array).ok_or_else(|| bad_response("the provider's answer has no `content`"))?;
    let mut parts = Vec::new();
    for block in blocks {
        let Some(part) = part(block, ids) else { continue };
        match &part {
            Part::Text { text } => events(ModelEvent::TextDelta { text: text.clone() }),
            Part::Reasoning(reasoning) if !reasoning.text.is_empty() => {
                events(ModelEvent::ReasoningDelta { text: reasoning.text.clone() });
            }
            Part::ToolCall(call) => events(ModelEvent::ToolCallStarted { id: call.id.clone(), name: call.name.clone() }),
            Part::Reasoning(_) | Part::ToolResult(_) => {}
        }
        parts.push(part);
    }
    let finish_reason = finish_reason(value.get("stop_reason"));
    let mut usage = Usage::default();
    usage.set(value.get("usage"));
    Ok(ModelTurn { parts, finish_reason, usage: usage.total() })
}

/// A complete content block as a part. Blocks of the provider's own tools, and unknown ones, are left out.
fn part(block: &Value, ids: &IdSource) -> Option<Part> {
    let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    match block.get("type").and_then(Value::as_str)? {
        "text" => Some(text("text")).filter(|text| !text.is_empty()).map(Part::text),
        "thinking" => {
            // An unsigned block would be refused; a missing one is not.
            let raw = (!text("signature").is_empty()).then(|| block.clone());
            Some(Part::Reasoning(Reasoning { text: text("thinking"), raw }))
        }
        "redacted_thinking" => Some(Part::Reasoning(Reasoning { text: String::new(), raw: Some(block.clone()) })),
        "tool_use" => {
            let arguments = match block.get("input") {
                None | Some(Value::Null) => "{}".to_owned(),
                Some(Value::String(text)) => text.clone(),
                Some(input) => input.to_string(),
            };
            Some(Part::ToolCall(tool_call(block, arguments, ids())))
        }
        _ => None,
    }
}

fn tool_call(block: &Value, arguments: String, id: String) -> ToolCall {
    let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
    let provider_id = Some(text("id")).filter(|id| !id.is_empty()).map(str::to_owned);
    ToolCall { id, provider_id, name: text("name").to_owned(), arguments }
}

fn finish_reason(value: Option<&Value>) -> FinishReason {
    match value.and_then(Value::as_str) {
        None | Some("") => FinishReason::Missing,
        Some("end_turn" | "stop_sequence") => FinishReason::Stop,
        Some("tool_use") => FinishReason::ToolCalls,
        Some("max_tokens" | "model_context_window_exceeded") => FinishReason::Length,
        Some("refusal") => FinishReason::Refusal,
        Some(other) => FinishReason::Other(crate::text::clean_line(other, 64)),
    }
}

/// Usage as Anthropic counts it: cached tokens beside the input, and every report counted from the start of the message.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    input: u64,
    cache_write: u64,
    cache_read: u64,
    output: u64,
    thinking: u64,
}

impl Usage {
    /// Sets what a report mentions. Reports are cumulative, so nothing is added up.
    fn set(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage else { return };
        for (field, pointer) in [
            (&mut self.input, "/input_tokens"),
            (&mut self.cache_write, "/cache_creation_input_tokens"),
            (&mut self.cache_read, "/cache_read_input_tokens"),
            (&mut self.output, "/output_tokens"),
            (&mut self.thinking, "/output_tokens_details/thinking_tokens"),
        ] {
            if let Some(number) = usage.pointer(pointer).and_then(Value::as_u64) {
                *field = number;
            }
        }
    }

    fn total(&self) -> TokenUsage {
        TokenUsage {
            input_tokens: self.input.saturating_add(self.cache_write).saturating_add(self.cache_read),
            output_tokens: self.output,
            cached_input_tokens: self.cache_read,
            reasoning_tokens: self.thinking,
        }
    }
}

/// A block under construction, as its start event gave it.
type Block = Map<String, Value>;
