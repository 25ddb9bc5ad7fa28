//! The pieces of a history as they may stand on the wire: text, arguments, names, schemas.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::tool::ToolSpec;

/// The longest name of a tool, in bytes: the rule of both provider families.
const MAX_NAME_BYTES: usize = 64;
/// How much of unusable arguments the model sees again.
const MAX_INVALID_BYTES: usize = 1024;

/// Whether a name is one that both provider families accept for a tool: `^[a-zA-Z0-9_-]{1,64}$`.
pub fn is_wire_name(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_wire_byte)
}

pub(super) fn is_wire_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// A legal name for a tool that a model called; a model may call tools that do not exist, under names that cannot.
pub(super) fn wire_name(name: &str) -> String {
    if is_wire_name(name) {
        return name.to_owned();
    }
    let legal: String =
        name.chars().take(MAX_NAME_BYTES).map(|c| if c.is_ascii() && is_wire_byte(c as u8) { c } else { '_' }).collect();
    if legal.is_empty() { "unnamed".to_owned() } else { legal }
}

/// Text without NUL, which some providers' stores refuse. Text that only spells `\u0000` is not touched.
pub(super) fn clean_text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "")) } else { Cow::Borrowed(text) }
}

/// Arguments as a JSON object, whatever the model wrote.
///
/// Usable arguments stay as they are, byte for byte. Others (not JSON, no object, a key twice, half a surrogate pair) are shown to the
/// model as the text they were.
pub(super) fn clean_arguments(arguments: &str) -> String {
    match crate::json::parse_object(arguments) {
        // Only the escape can bring NUL into valid JSON, and only as a value is it NUL and not the text `\u0000`.
        Ok(object) if arguments.contains("\\u0000") => without_nul(Value::Object(object)).to_string(),
        Ok(_) if arguments.trim_start().starts_with('{') => arguments.to_owned(),
        Ok(_) => "{}".to_owned(),
        Err(_) => {
            let shown = crate::text::clean(arguments, MAX_INVALID_BYTES);
            json!({ "invalid_arguments": shown }).to_string()
        }
    }
}

fn without_nul(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(clean_text(&text).into_owned()),
        Value::Array(items) => items.into_iter().map(without_nul).collect(),
        // Two keys that differ in NUL alone become one; the wire copy is only what the model is reminded of.
        Value::Object(map) => map.into_iter().map(|(key, value)| (clean_text(&key).into_owned(), without_nul(value))).collect(),
        other => other,
    }
}

/// Returns the tools as they may stand on the wire: legal, distinct names, and schemas whose root is an object with `properties`.
///
/// Tools with an illegal or repeated name are left out: the registry refuses to load them, so this concerns other sources only.
pub fn normalise_tools(tools: &[ToolSpec]) -> Vec<ToolSpec> {
    let mut names = HashSet::new();
    tools
        .iter()
        .filter(|tool| is_wire_name(&tool.name) && names.insert(tool.name.as_str()))
        .map(|tool| ToolSpec { input_schema: object_schema(&tool.input_schema), ..tool.clone() })
        .collect()
}

fn object_schema(schema: &Value) -> Value {
    let mut root = schema.as_object().cloned().unwrap_or_else(Map::new);
    if root.get("type") != Some(&json!("object")) {
        root.insert("type".to_owned(), json!("object"));
    }
    if !root.get("properties").is_some_and(Value::is_object) {
        root.insert("properties".to_owned(), json!({}));
    }
    Value::Object(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_arguments_become_an_object_that_shows_them() {
        for (arguments, expected) in [
            ("", "{}"),
            ("null", "{}"),
            (r#" {"a": 1}"#, r#" {"a": 1}"#),
            ("[1]", r#"{"invalid_arguments":"[1]"}"#),
            (r#"{"a":"#, r#"{"invalid_arguments":"{\"a\":"}"#),
            (r#"{"a":1,"a":2}"#, r#"{"invalid_arguments":"{\"a\":1,\"a\":2}"}"#),
            (r#"{"a":"\ud800"}"#, r#"{"invalid_arguments":"{\"a\":\"\\ud800\"}"}"#),
        ] {
            assert_eq!(clean_arguments(arguments), expected);
        }
    }

    #[test]
    fn nul_is_dropped_and_text_that_spells_it_is_not() {
        assert_eq!(clean_arguments(r#"{"a\u0000":["x\u0000y"]}"#), r#"{"a":["xy"]}"#);
        assert_eq!(clean_arguments(r#"{"a":"x\\u0000y"}"#), r#"{"a":"x\\u0000y"}"#);
        assert_eq!(clean_text("a\0b\\u0000"), "ab\\u0000");
    }

    #[test]
    fn an_invented_name_becomes_legal() {
        for (name, expected) in [("functions.read", "functions_read"), ("", "unnamed"), ("天气", "__"), ("a__b", "a__b")] {
            assert_eq!(wire_name(name), expected);
        }
        assert_eq!(wire_name(&"x".repeat(100)).len(), MAX_NAME_BYTES);
    }

    #[test]
    fn a_schema_without_properties_gets_them() {
        let tool = |name: &str, schema: Value| ToolSpec {
            name: name.into(),
            title: None,
            description: String::new(),
            input_schema: schema,
            output_schema: None,
            hints: crate::tool::ToolHints::default(),
        };
        let tools = [tool("a", json!({"type": "object"})), tool("b", json!(true)), tool("a", json!({})), tool("c.d", json!({}))];
        let wire = normalise_tools(&tools);
        assert_eq!(wire.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        for tool in wire {
            assert_eq!(tool.input_schema, json!({"type": "object", "properties": {}}));
        }
    }
}
