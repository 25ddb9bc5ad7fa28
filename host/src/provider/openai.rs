//! OpenAI's chat completions, as OpenAI and the many servers that copy it speak them.

mod calls;
mod request;
mod stream;

use serde_json::Value;

pub(super) use request::request_body;
pub(super) use stream::StreamAssembler;

use self::calls::{CallAssembler, Fragment};
use super::decode::{IdSource, bad_response};
use super::{ModelEvent, ProviderError, ProviderErrorClass};
use crate::message::{FinishReason, ModelTurn, Part, Reasoning, TokenUsage};

/// Reads a response that was not streamed.
pub(super) fn parse_response(
    value: &Value,
    ids: &IdSource,
    events: &mut dyn FnMut(ModelEvent),
) -> Result<ModelTurn, ProviderError> {
    let choice = value
        .get("choices")
        .and_then(Value::as_array)
        .and_then(|choices| choices.first())
        .ok_or_else(|| bad_response("the provider's answer has no `choices`"))?;
    let message = choice.get("message").unwrap_or(&Value::Null);
    let mut answer = Answer::default();
    answer.delta(message, events);
    let mut calls = CallAssembler::new(ids.clone());
    for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
        calls.whole(&Fragment::read(call))?;
    }
    if let Some(call) = message.get("function_call").filter(|call| call.is_object()) {
        calls.whole(&Fragment::read_function(call))?;
    }
    answer.finish_reason(choice)?;
    answer.usage(value);
    Ok(answer.into_turn(calls, events))
}

/// What of an answer is not a tool call. Shared by both ways of receiving one.
#[derive(Debug, Default)]
struct Answer {
    text: String,
    reasoning: String,
    /// The field that the reasoning came in, and has to go back in.
    reasoning_field: Option<&'static str>,
    refused: bool,
    finish: Option<FinishReason>,
    usage: TokenUsage,
}

impl Answer {
    /// Takes the text, reasoning and refusal of a message or delta.
    fn delta(&mut self, delta: &Value, events: &mut dyn FnMut(ModelEvent)) {
        for field in ["reasoning_content", "reasoning"] {
            let text = delta.get(field).and_then(Value::as_str).unwrap_or_default();
            // Some servers send both fields with the same text; the first one that says something counts.
            if !text.is_empty() && *self.reasoning_field.get_or_insert(field) == field {
                self.reasoning.push_str(text);
                events(ModelEvent::ReasoningDelta { text: text.to_owned() });
            }
        }
        let mut say = |text: &str| {
            if !text.is_empty() {
                self.text.push_str(text);
                events(ModelEvent::TextDelta { text: text.to_owned() });
            }
        };
        match delta.get("content") {
            Some(Value::String(text)) => say(text),
            Some(Value::Array(parts)) => {
                parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).for_each(say);
            }
            _ => {}
        }
        if let Some(refusal) = delta.get("refusal").and_then(Value::as_str)
            && !refusal.is_empty()
        {
            self.refused = true;
            self.text.push_str(refusal);
            events(ModelEvent::TextDelta { text: refusal.to_owned() });
        }
    }

    /// Takes the finish reason of a choice.
    fn finish_reason(&mut self, choice: &Value) -> Result<(), ProviderError> {
        let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) else { return Ok(()) };
        self.finish = Some(match reason {
            "" => return Ok(()),
            "stop" => FinishReason::Stop,
            "tool_calls" | "function_call" => FinishReason::ToolCalls,
            "length" => FinishReason::Length,
            "content_filter" => FinishReason::ContentFilter,
            "refusal" => FinishReason::Refusal,
            // DeepSeek's word for an answer that its own shortage cut off; OpenRouter's for one that failed upstream.
            "insufficient_system_resource" => {
                let message = "the provider ran out of resources in the middle of its answer";
                return Err(ProviderError::new(ProviderErrorClass::Overloaded, message));
            }
            "error" => {
                let message = "the provider's answer ended with the finish reason `error`";
                return Err(ProviderError::new(ProviderErrorClass::StreamError, message));
            }
            other => FinishReason::Other(crate::text::clean_line(other, 64)),
        });
        Ok(())
    }

    /// Takes the usage of a response or chunk. Later reports replace earlier ones, since they count from the start.
    fn usage(&mut self, value: &Value) {
        let usage = value.get("usage").filter(|usage| usage.is_object()).or_else(|| value.pointer("/x_groq/usage"));
        let Some(usage) = usage else { return };
        let number = |pointers: &[&str]| pointers.iter().find_map(|pointer| usage.pointer(pointer)?.as_u64()).unwrap_or(0);
        self.usage = TokenUsage {
            input_tokens: number(&["/prompt_tokens"]),
            output_tokens: number(&["/completion_tokens"]),
            cached_input_tokens: number(&["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens"]),
            reasoning_tokens: number(&["/completion_tokens_details/reasoning_tokens"]),
        };
    }

    fn into_turn(self, calls: CallAssembler, events: &mut dyn FnMut(ModelEvent)) -> ModelTurn {
        let mut parts = Vec::new();
        if let Some(field) = self.reasoning_field {
            let raw = Value::Object([(field.to_owned(), Value::from(self.reasoning.as_str()))].into_iter().collect());
            parts.push(Part::Reasoning(Reasoning { text: self.reasoning, raw: Some(raw) }));
        }
        if !self.text.is_empty() {
            parts.push(Part::Text { text: self.text });
        }
        parts.extend(calls.finish(events).into_iter().map(Part::ToolCall));
        let finish_reason = match self.finish {
            _ if self.refused => FinishReason::Refusal,
            Some(reason) => reason,
            None => FinishReason::Missing,
        };
        ModelTurn { parts, finish_reason, usage: self.usage }
    }
}
