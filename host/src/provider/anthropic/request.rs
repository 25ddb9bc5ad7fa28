//! Builds the body of a messages request.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::message::Message;
use crate::provider::conversation::{Answer, Entry, Piece, entries, legal_name, wire_schema, without_nul};
use crate::provider::{ModelRequest, RequestOptions};
use crate::tool::ToolSpec;

/// What the model is told where the conversation would begin or end with its own words, which the API refuses.
const CONTINUE: &str = "Continue.";

/// The request's body.
pub(in crate::provider) fn request_body(request: &ModelRequest, options: &RequestOptions) -> Value {
    let quirks = &options.quirks;
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    set("model", options.model.clone().into());
    set("max_tokens", request.max_output_tokens.or(options.max_output_tokens).unwrap_or(quirks.max_tokens).into());
    if !request.system.trim().is_empty() {
        let mut block = json!({"type": "text", "text": without_nul(&request.system)});
        if quirks.prompt_cache {
            mark(&mut block);
        }
        set("system", json!([block]));
    }
    let mut messages = messages(request);
    if quirks.prompt_cache
        && let Some(block) =
            messages.last_mut().and_then(|message| message["content"].as_array_mut()).and_then(|list| list.last_mut())
    {
        mark(block);
    }
    set("messages", messages.into());
    if !request.tools.is_empty() {
        let tool = |tool: &ToolSpec| {
            json!({
                "name": legal_name(&tool.name),
                "description": without_nul(&tool.description),
                "input_schema": wire_schema(&tool.input_schema),
            })
        };
        set("tools", request.tools.iter().map(tool).collect());
    } else {
        // Some servers of this protocol, Bedrock's among them, refuse a conversation with calls in it and no tools.
        let calls = request.messages.iter().flat_map(Message::tool_calls);
        let names: BTreeSet<Cow<'_, str>> = calls.map(|call| legal_name(&call.name)).collect();
        if !names.is_empty() {
            let tool = |name: &Cow<'_, str>| json!({"name": name, "input_schema": wire_schema(&Value::Null)});
            set("tools", names.iter().map(tool).collect());
            set("tool_choice", json!({"type": "none"}));
        }
    }
    if let Some(temperature) = options.temperature.filter(|_| quirks.temperature) {
        set("temperature", temperature.into());
    }
    if options.stream {
        set("stream", true.into());
    }
    Value::Object(body)
}

/// The messages: roles alternate, the results of a turn lead the user message after it, and the last message is the user's.
fn messages(request: &ModelRequest) -> Vec<Value> {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    for entry in entries(&request.messages) {
        let (role, mut blocks) = match entry {
            Entry::User(text) => ("user", vec![json!({"type": "text", "text": text})]),
            Entry::Assistant(turn) => ("assistant", turn.pieces.iter().filter_map(assistant_block).collect()),
            Entry::Results(answers) => {
                let block = |answer: &Answer<'_>| {
                    json!({
                        "type": "tool_result",
                        "tool_use_id": answer.id,
                        "content": answer.text,
                        "is_error": answer.is_error,
                    })
                };
                ("user", answers.iter().map(block).collect())
            }
        };
        match messages.last_mut() {
            Some((last, list)) if *last == role => list.append(&mut blocks),
            _ => messages.push((role, blocks)),
        }
    }
    let go_on = || ("user", vec![json!({"type": "text", "text": CONTINUE})]);
    if messages.first().is_none_or(|(role, _)| *role == "assistant") {
        messages.insert(0, go_on());
    }
    if messages.last().is_some_and(|(role, _)| *role == "assistant") {
        messages.push(go_on());
    }
    messages.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
}

fn assistant_block(piece: &Piece<'_>) -> Option<Value> {
    match piece {
        Piece::Text(text) => Some(json!({"type": "text", "text": text})),
        Piece::Call(call) => Some(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments})),
        // Signed and redacted thinking goes back byte for byte; anything else is left out, which the API accepts.
        Piece::Reasoning(reasoning) => {
            let raw = reasoning.raw.as_ref()?;
            let kind = raw.get("type").and_then(Value::as_str)?;
            matches!(kind, "thinking" | "redacted_thinking").then(|| raw.clone())
        }
    }
}

fn mark(block: &mut Value) {
    if let Some(block) = block.as_object_mut()
        && block.get("type").and_then(Value::as_str) != Some("thinking")
    {
        block.insert("cache_control".to_owned(), json!({"type": "ephemeral"}));
    }
}
