//! Builds the body of a chat completion request.

use serde_json::{Map, Value, json};

use crate::provider::conversation::{Answer, Assistant, Entry, Piece, entries, legal_name, wire_schema, without_nul};
use crate::provider::quirks::ReasoningReplay;
use crate::provider::{ModelRequest, RequestOptions};

/// The request's body.
pub(in crate::provider) fn request_body(request: &ModelRequest, options: &RequestOptions) -> Value {
    let quirks = &options.quirks;
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    set("model", options.model.clone().into());
    set("messages", messages(request, quirks.reasoning_replay).into());
    if !request.tools.is_empty() {
        let tools: Vec<Value> = request
            .tools
            .iter()
            .map(|tool| {
                json!({"type": "function", "function": {
                    "name": legal_name(&tool.name),
                    "description": without_nul(&tool.description),
                    "parameters": wire_schema(&tool.input_schema),
                }})
            })
            .collect();
        set("tools", tools.into());
        if let Some(parallel) = quirks.parallel_tool_calls {
            set("parallel_tool_calls", parallel.into());
        }
    }
    if let Some(limit) = request.max_output_tokens.or(options.max_output_tokens) {
        set(quirks.max_tokens_field.as_str(), limit.into());
    }
    if let Some(temperature) = options.temperature.filter(|_| quirks.temperature) {
        set("temperature", temperature.into());
    }
    if options.stream {
        set("stream", true.into());
        if quirks.stream_usage {
            set("stream_options", json!({"include_usage": true}));
        }
    }
    Value::Object(body)
}

fn messages(request: &ModelRequest, replay: ReasoningReplay) -> Vec<Value> {
    let mut messages = Vec::new();
    if !request.system.trim().is_empty() {
        messages.push(json!({"role": "system", "content": without_nul(&request.system)}));
    }
    for entry in entries(&request.messages) {
        match entry {
            Entry::User(text) => messages.push(json!({"role": "user", "content": text})),
            Entry::Assistant(turn) => messages.push(assistant(&turn, replay)),
            Entry::Results(answers) => messages.extend(answers.iter().map(tool)),
        }
    }
    messages
}

fn assistant(turn: &Assistant<'_>, replay: ReasoningReplay) -> Value {
    let mut text = String::new();
    let mut calls = Vec::new();
    for piece in &turn.pieces {
        match piece {
            Piece::Text(piece) => text.push_str(piece),
            Piece::Reasoning(_) => {}
            Piece::Call(call) => calls.push(json!({"id": call.id, "type": "function", "function": {
                "name": call.name,
                "arguments": Value::Object(call.arguments.clone()).to_string(),
            }})),
        }
    }
    let mut message = Map::new();
    message.insert("role".to_owned(), "assistant".into());
    message.insert("content".to_owned(), if text.is_empty() { Value::Null } else { text.into() });
    let replays = match replay {
        ReasoningReplay::Never => false,
        ReasoningReplay::ToolTurns => !calls.is_empty(),
        ReasoningReplay::Always => true,
    };
    if replays {
        for piece in &turn.pieces {
            // Only what came in these fields goes back in them; another provider's blocks do not.
            if let Piece::Reasoning(reasoning) = piece {
                for field in ["reasoning_content", "reasoning"] {
                    if let Some(value) = reasoning.raw.as_ref().and_then(|raw| raw.get(field)) {
                        message.insert(field.to_owned(), value.clone());
                    }
                }
            }
        }
    }
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), calls.into());
    }
    Value::Object(message)
}

fn tool(answer: &Answer<'_>) -> Value {
    json!({"role": "tool", "tool_call_id": answer.id, "content": answer.text})
}
