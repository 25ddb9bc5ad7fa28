//! Fills what a script quotes from the request: `{{result:TOOL:/POINTER}}`, `{{result:TOOL}}`, `{{user}}`.

use serde_json::Value;

use super::expect::{json_in, last_user};
use crate::message::Part;
use crate::provider::ModelRequest;

/// Fills a text. What is filled in is not looked at again.
pub(super) fn fill(text: &str, request: &ModelRequest) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        filled.push_str(&rest[..start]);
        let after = &rest[start + 2..];
        let end = after.find("}}").ok_or_else(|| format!("`{{{{` without `}}}}` in `{text}`"))?;
        filled.push_str(&value_of(after[..end].trim(), request)?);
        rest = &after[end + 2..];
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Fills every text in a value.
pub(super) fn fill_value(value: &Value, request: &ModelRequest) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => Value::String(fill(text, request)?),
        Value::Array(items) => Value::Array(items.iter().map(|item| fill_value(item, request)).collect::<Result<_, _>>()?),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| Ok((name.clone(), fill_value(value, request)?));
            Value::Object(fields.iter().map(field).collect::<Result<_, String>>()?)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    })
}

fn value_of(name: &str, request: &ModelRequest) -> Result<String, String> {
    if name == "user" {
        return Ok(last_user(request));
    }
    let Some(source) = name.strip_prefix("result:") else {
        return Err(format!("`{{{{{name}}}}}` is unknown; there are `result:TOOL`, `result:TOOL:/POINTER` and `user`"));
    };
    let (tool, pointer) = match source.split_once(':') {
        Some((tool, pointer)) => (tool, Some(pointer)),
        None => (source, None),
    };
    let latest = request
        .messages
        .iter()
        .rev()
        .flat_map(|message| message.parts.iter().rev())
        .find_map(|part| if let Part::ToolResult(result) = part { Some(result).filter(|it| it.name == tool) } else { None });
    let result = latest.ok_or_else(|| format!("there is no result of `{tool}` to quote"))?;
    let Some(pointer) = pointer else { return Ok(result.text.clone()) };
    let value = json_in(&result.text).ok_or_else(|| format!("the result of `{tool}` is not JSON"))?;
    match value.pointer(pointer) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(value) => Ok(value.to_string()),
        None => Err(format!("the result of `{tool}` has nothing at `{pointer}`")),
    }
}
