//! What the real providers refuse, with their words.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Value, json};

/// Checks a chat completion request as OpenAI and its stricter imitators do.
///
/// # Errors
///
/// Returns the message that comes with status 400.
pub fn openai(body: &Value) -> Result<(), String> {
    if body["model"].as_str().is_none_or(str::is_empty) {
        return Err("you must provide a model parameter".to_owned());
    }
    let messages = list(&body["messages"]);
    if messages.is_empty() {
        return Err(
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.".into()
        );
    }
    for (at, tool) in list(&body["tools"]).iter().enumerate() {
        let function = &tool["function"];
        let name = function["name"].as_str().unwrap_or_default();
        check_name(name, 64).map_err(|what| format!("Invalid 'tools[{at}].function.name': {what}"))?;
        let parameters = &function["parameters"];
        if parameters["type"] != "object" {
            let kind = &parameters["type"];
            return Err(format!(
                "Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"', got 'type: {kind}'."
            ));
        }
        if !parameters["properties"].is_object() {
            return Err(format!("Invalid schema for function '{name}': In context=(), object schema missing properties."));
        }
    }
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" && !open.is_empty() {
            return Err(unanswered(&open));
        }
        match role {
            "system" | "user" => require_text(at, message)?,
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                let Some(position) = open.iter().position(|wanted| *wanted == id) else {
                    return Err("Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.".into());
                };
                open.swap_remove(position);
                require_text(at, message)?;
            }
            "assistant" => open = openai_assistant(at, message)?,
            other => {
                return Err(format!(
                    "Invalid value: '{other}'. Supported values are: 'system', 'assistant', 'user', and 'tool'."
                ));
            }
        }
    }
    if open.is_empty() { Ok(()) } else { Err(unanswered(&open)) }
}

fn openai_assistant(at: usize, message: &Value) -> Result<Vec<&str>, String> {
    let calls = list(&message["tool_calls"]);
    if message.get("tool_calls").is_some() && calls.is_empty() {
        return Err(format!(
            "Invalid 'messages[{at}].tool_calls': empty array. Expected an array with minimum length 1, but got an empty array instead."
        ));
    }
    let text = text_of(&message["content"]);
    if calls.is_empty() && text.as_ref().is_none_or(|text| text.trim().is_empty()) {
        return Err("Invalid assistant message: content or tool_calls must be set".to_owned());
    }
    if text.is_some_and(|text| text.trim().is_empty()) {
        return Err(format!("Invalid 'messages[{at}].content': text content must be non-empty"));
    }
    let mut ids = Vec::new();
    for (position, call) in calls.iter().enumerate() {
        let id = call["id"].as_str().unwrap_or_default();
        if id.is_empty() || ids.contains(&id) {
            return Err(format!("Duplicate or missing value for 'messages[{at}].tool_calls[{position}].id'"));
        }
        ids.push(id);
        let place = format!("Invalid 'messages[{at}].tool_calls[{position}].function");
        check_name(call["function"]["name"].as_str().unwrap_or_default(), 64).map_err(|what| format!("{place}.name': {what}"))?;
        let arguments: Result<Value, _> = serde_json::from_str(call["function"]["arguments"].as_str().unwrap_or_default());
        if !arguments.is_ok_and(|value| value.is_object()) {
            return Err(format!("{place}.arguments': the function arguments must be a JSON object in text form."));
        }
    }
    Ok(ids)
}

fn unanswered(ids: &[&str]) -> String {
    let ids = ids.join(", ");
    format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {ids}"
    )
}

fn require_text(at: usize, message: &Value) -> Result<(), String> {
    match text_of(&message["content"]) {
        None => Err(format!("Invalid value for 'messages[{at}].content': expected a string, got null.")),
        Some(text) if text.trim().is_empty() => Err(format!("Invalid 'messages[{at}].content': text content must be non-empty")),
        Some(text) if text.contains('\0') => Err("Invalid request: contains NUL character".to_owned()),
        Some(_) => Ok(()),
    }
}

/// A text, or the text of a list of parts; none if it is neither. A part that is no text stands as its type.
fn text_of(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let part = |part: &Value| part["text"].as_str().or_else(|| part["type"].as_str()).map(str::to_owned);
            parts.iter().map(part).collect()
        }
        _ => None,
    }
}

/// Checks a messages request as Anthropic does.
///
/// # Errors
///
/// Returns the message that comes with status 400.
pub fn anthropic(body: &Value) -> Result<(), String> {
    if body["max_tokens"].as_u64().is_none_or(|limit| limit == 0) {
        return Err("max_tokens: Field required".to_owned());
    }
    for (at, block) in list(&body["system"]).iter().enumerate() {
        if block["text"].as_str().is_none_or(|text| text.trim().is_empty()) {
            return Err(format!("system.{at}: text content blocks must be non-empty"));
        }
    }
    for (at, tool) in list(&body["tools"]).iter().enumerate() {
        check_name(tool["name"].as_str().unwrap_or_default(), 128)
            .map_err(|_| format!("tools.{at}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"))?;
        // The provider's own tools have a type instead of a schema.
        if tool["type"].as_str().is_some_and(|kind| kind != "custom") {
            continue;
        }
        match tool["input_schema"]["type"].as_str() {
            Some("object") => {}
            Some(_) => return Err(format!("tools.{at}.custom.input_schema.type: Input should be 'object'")),
            None => return Err(format!("tools.{at}.custom.input_schema.type: Field required")),
        }
    }
    let messages = turns(list(&body["messages"]));
    if messages.is_empty() {
        return Err("messages: at least one message is required".to_owned());
    }
    let mut open: HashSet<&str> = HashSet::new();
    let mut used: HashSet<&str> = HashSet::new();
    for (at, (role, blocks)) in messages.iter().enumerate() {
        if blocks.is_empty() {
            return Err(format!(
                "messages.{at}: all messages must have non-empty content except for the optional final assistant message"
            ));
        }
        if *role == "user" {
            answer_calls(at, blocks, &open)?;
            open.clear();
        }
        for (position, block) in blocks.iter().enumerate() {
            check_block(at, position, block)?;
            if block["type"] == "tool_use" {
                let id = block["id"].as_str().unwrap_or_default();
                if !used.insert(id) {
                    return Err(format!("messages.{at}.content.{position}: `tool_use` ids must be unique"));
                }
                open.insert(id);
            }
        }
    }
    if messages.last().is_some_and(|(role, _)| *role == "assistant") {
        return Err(
            "This model does not support assistant message prefill. The conversation must end with a user message.".into()
        );
    }
    Ok(())
}

/// The messages, those of one role that follow each other joined, as the provider does itself.
fn turns(messages: &[Value]) -> Vec<(&str, Vec<Cow<'_, Value>>)> {
    let mut turns: Vec<(&str, Vec<Cow<'_, Value>>)> = Vec::new();
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        let mut blocks = match &message["content"] {
            Value::String(text) => vec![Cow::Owned(json!({"type": "text", "text": text}))],
            content => list(content).iter().map(Cow::Borrowed).collect(),
        };
        match turns.last_mut() {
            Some((last, list)) if *last == role => list.append(&mut blocks),
            _ => turns.push((role, blocks)),
        }
    }
    turns
}

/// The results of a turn are a contiguous leading run of the next user message, and complete.
fn answer_calls(at: usize, blocks: &[Cow<'_, Value>], open: &HashSet<&str>) -> Result<(), String> {
    let is_result = |block: &&Cow<'_, Value>| block["type"] == "tool_result";
    let leading = blocks.iter().take_while(is_result).count();
    let mut answered = HashSet::new();
    for (position, block) in blocks.iter().enumerate().filter(|(_, block)| is_result(block)) {
        let id = block["tool_use_id"].as_str().unwrap_or_default();
        if !open.contains(id) {
            return Err(format!(
                "messages.{at}.content.{position}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            ));
        }
        if !answered.insert(id) {
            return Err(format!(
                "messages.{at}.content.{position}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}"
            ));
        }
        if position < leading {
            continue;
        }
        answered.remove(id);
    }
    let mut missing: Vec<&str> = open.iter().filter(|id| !answered.contains(*id)).copied().collect();
    missing.sort_unstable();
    if missing.is_empty() {
        return Ok(());
    }
    let (before, ids) = (at.saturating_sub(1), missing.join(", "));
    Err(format!(
        "messages.{before}: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    ))
}

fn check_block(at: usize, position: usize, block: &Value) -> Result<(), String> {
    let place = format!("messages.{at}.content.{position}");
    match block["type"].as_str().unwrap_or_default() {
        "text" if block["text"].as_str().is_none_or(str::is_empty) => {
            Err("messages: text content blocks must be non-empty".into())
        }
        "text" if block["text"].as_str().is_some_and(|text| text.trim().is_empty()) => {
            Err("messages: text content blocks must contain non-whitespace text".into())
        }
        "tool_use" => {
            let id = block["id"].as_str().unwrap_or_default();
            check_name(id, usize::MAX)
                .map_err(|_| format!("{place}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"))?;
            check_name(block["name"].as_str().unwrap_or_default(), 200)
                .map_err(|_| format!("{place}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,200}}$'"))?;
            if block["input"].is_object() {
                Ok(())
            } else {
                Err(format!("{place}.tool_use.input: Input should be a valid dictionary"))
            }
        }
        "thinking" if block["signature"].as_str().is_none_or(str::is_empty) => {
            Err(format!("{place}: Invalid `signature` in `thinking` block"))
        }
        "text"
        | "document"
        | "image"
        | "tool_result"
        | "server_tool_use"
        | "web_search_tool_result"
        | "thinking"
        | "redacted_thinking" => Ok(()),
        other => Err(format!("{place}: Input tag '{other}' found using 'type' does not match any of the expected tags")),
    }
}

fn check_name(name: &str, longest: usize) -> Result<(), String> {
    if name.len() > longest {
        let length = name.len();
        return Err(format!(
            "string too long. Expected a string with maximum length {longest}, but got a string with length {length} instead."
        ));
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || !name.chars().all(legal) {
        return Err("string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.".to_owned());
    }
    Ok(())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
