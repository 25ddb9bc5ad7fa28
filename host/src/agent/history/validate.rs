//! A strict reader of histories, written from the providers' rules and not from the normaliser.

use std::collections::HashSet;

use super::{ReasoningReplay, WireRules};
use crate::message::{Message, Part, Role};

/// Checks that a provider with these rules would accept a history.
///
/// # Errors
///
/// Returns the first rule that is broken, in the manner of the providers' own answers with status 400.
pub fn validate_history(messages: &[Message], rules: &WireRules) -> Result<(), String> {
    if messages.is_empty() {
        return Err("messages: at least one message is required".into());
    }
    let mut seen_ids = HashSet::new();
    for (index, message) in messages.iter().enumerate() {
        let at = |problem: String| format!("messages.{index}: {problem}");
        if message.parts.is_empty() {
            return Err(at("must have non-empty content".into()));
        }
        message.parts.iter().try_for_each(|part| check_part(part, message.role, rules)).map_err(at)?;
        let next = messages.get(index + 1);
        check_neighbours(message, index.checked_sub(1).and_then(|before| messages.get(before)), rules).map_err(at)?;
        for call in message.tool_calls() {
            if !seen_ids.insert(call.id.as_str()) {
                return Err(at(format!("`tool_use` ids must be unique: `{}`", call.id)));
            }
            let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if call.id.is_empty() || call.id.len() > rules.max_id_bytes || !call.id.chars().all(legal) {
                return Err(at(format!("tool call id `{}` does not match the pattern", call.id)));
            }
            if call.provider_id.is_some() {
                return Err(at("a call must have one id".into()));
            }
        }
        check_answers(message, next).map_err(at)?;
    }
    if rules.starts_with_user && messages[0].role != Role::User {
        return Err("messages.0: first message must use the `user` role".into());
    }
    match messages.last() {
        Some(last) if last.role == Role::Assistant => {
            Err("this model does not support assistant message prefill: the conversation must end with a user message".into())
        }
        _ => Ok(()),
    }
}

fn check_part(part: &Part, role: Role, rules: &WireRules) -> Result<(), String> {
    match (part, role) {
        (Part::Text { text }, Role::User | Role::Assistant) => check_text(text),
        (Part::Reasoning(reasoning), Role::Assistant) => match rules.reasoning {
            ReasoningReplay::Omit => Err("unexpected reasoning".into()),
            ReasoningReplay::Exact if reasoning.raw.is_none() => Err("thinking.signature: field required".into()),
            ReasoningReplay::Text if reasoning.raw.is_none() && reasoning.text.trim().is_empty() => {
                Err("reasoning must not be blank".into())
            }
            _ => Ok(()),
        },
        (Part::ToolCall(call), Role::Assistant) => {
            let name_is_legal = (1..=64).contains(&call.name.len())
                && call.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
            if !name_is_legal {
                return Err(format!("tool name `{}` does not match `^[a-zA-Z0-9_-]{{1,64}}$`", call.name));
            }
            match serde_json::from_str::<serde_json::Value>(&call.arguments) {
                Ok(value) if value.is_object() && !has_nul(&value) => Ok(()),
                Ok(_) => Err("tool_use.input: input should be a valid dictionary".into()),
                Err(error) => Err(format!("function.arguments: {error}")),
            }
        }
        (Part::ToolResult(result), Role::Tool) => check_text(&result.text),
        _ => Err(format!("a part of this type cannot stand in a message of role {role:?}")),
    }
}

fn check_text(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        Err("text content blocks must contain non-whitespace text".into())
    } else if text.contains('\0') {
        Err("text must not contain U+0000".into())
    } else {
        Ok(())
    }
}

fn has_nul(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::String(text) => text.contains('\0'),
        serde_json::Value::Array(items) => items.iter().any(has_nul),
        serde_json::Value::Object(map) => map.iter().any(|(key, value)| key.contains('\0') || has_nul(value)),
        _ => false,
    }
}

fn check_neighbours(message: &Message, before: Option<&Message>, rules: &WireRules) -> Result<(), String> {
    if rules.merge_same_role && before.is_some_and(|before| before.role == message.role) {
        return Err(format!("roles must alternate, but found two of {:?} in a row", message.role));
    }
    let answers_calls = before.is_some_and(|before| before.tool_calls().next().is_some());
    if message.role == Role::Tool && !answers_calls {
        return Err("messages with role `tool` must be a response to a preceding message with `tool_calls`".into());
    }
    if message.role == Role::Assistant && message.parts.iter().all(|part| matches!(part, Part::Reasoning(_))) {
        return Err("a message of thinking alone has no content".into());
    }
    Ok(())
}

fn check_answers(message: &Message, next: Option<&Message>) -> Result<(), String> {
    let calls: Vec<_> = message.tool_calls().map(|call| (call.id.as_str(), call.name.as_str())).collect();
    if calls.is_empty() {
        return Ok(());
    }
    let answers: Vec<_> = next
        .filter(|next| next.role == Role::Tool)
        .into_iter()
        .flat_map(|next| &next.parts)
        .filter_map(|part| {
            if let Part::ToolResult(result) = part { Some((result.call_id.as_str(), result.name.as_str())) } else { None }
        })
        .collect();
    if answers == calls {
        Ok(())
    } else {
        Err(format!("`tool_use` ids {calls:?} were found without `tool_result` blocks immediately after: {answers:?}"))
    }
}
