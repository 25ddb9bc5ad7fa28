//! Two tools in place of all: `search_tools` finds, `call_tool` calls. For clients that offer few tools to their model.
//!
//! `call_tool` grants nothing: what it names is found, checked and judged like any other call.

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use super::catalog::Catalog;

/// Finds tools.
const SEARCH: &str = "search_tools";
/// Calls one.
const CALL: &str = "call_tool";
/// How many tools one search returns: with their schemas they fill a model's window.
const MAX_FOUND: usize = 10;

/// Whether one of the generic tools has this name.
pub(super) fn is_generic(name: &str) -> bool {
    name == SEARCH || name == CALL
}

/// What a client asked for.
#[derive(Debug, PartialEq)]
pub(super) enum Request {
    /// `search_tools`.
    Search(String),
    /// A tool, called by its own name or through `call_tool`.
    Call(String, JsonObject),
    /// Arguments that a generic tool does not take, and why.
    Invalid(String),
}

/// Unwraps a call of a generic tool.
pub(super) fn unwrap(name: &str, mut arguments: JsonObject) -> Request {
    match name {
        SEARCH => match arguments.get("query") {
            None => Request::Search(String::new()),
            Some(Value::String(query)) => Request::Search(query.clone()),
            Some(_) => Request::Invalid("`query` must be a string".to_owned()),
        },
        CALL => {
            let inner = match arguments.remove("arguments") {
                None | Some(Value::Null) => JsonObject::new(),
                Some(Value::Object(inner)) => inner,
                Some(_) => return Request::Invalid("`arguments` must be an object: the arguments of the tool".to_owned()),
            };
            match arguments.remove("name") {
                Some(Value::String(name)) if !is_generic(&name) => Request::Call(name, inner),
                _ => Request::Invalid(format!("`name` must be the name of a tool, as `{SEARCH}` returns it")),
            }
        }
        _ => Request::Call(name.to_owned(), arguments),
    }
}

/// The tools whose name, title or description holds the most of the words of `query`, best first.
pub(super) fn search(catalog: &Catalog, query: &str) -> Value {
    let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
    let mut found: Vec<(usize, &Tool)> =
        catalog.all.iter().map(|tool| (score(tool, &words), tool)).filter(|(score, _)| words.is_empty() || *score > 0).collect();
    // Stable: tools of one score keep the order of their names.
    found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    let tools: Vec<Value> = found
        .iter()
        .take(MAX_FOUND)
        .map(|(_, tool)| json!({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}))
        .collect();
    json!({"tools": tools, "found": found.len(), "of": catalog.all.len()})
}

/// A word in the name counts more than one in the description.
fn score(tool: &Tool, words: &[String]) -> usize {
    let name = tool.name.to_lowercase();
    let text = format!("{} {}", tool.title.as_deref().unwrap_or_default(), tool.description.as_deref().unwrap_or_default());
    let text = text.to_lowercase();
    words.iter().map(|word| 3 * usize::from(name.contains(word)) + usize::from(text.contains(word))).sum()
}

/// The generic tools themselves.
pub(super) fn tools() -> Vec<Tool> {
    let search = json!({
        "type": "object",
        "properties": {"query": {"type": "string", "description": "Words that describe what is wanted; empty for all tools"}},
        "additionalProperties": false,
    });
    let call = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The name of the tool, as search_tools returns it"},
            "arguments": {"type": "object", "description": "The tool's arguments; they satisfy its input_schema"},
        },
        "required": ["name"],
        "additionalProperties": false,
    });
    let about_search = "Finds tools by words. Returns names, descriptions and input schemas for call_tool.";
    let about_call = "Calls a tool that search_tools found.";
    vec![
        tool(CALL, about_call, call),
        tool(SEARCH, about_search, search)
            .with_annotations(ToolAnnotations::new().read_only(true).idempotent(true).open_world(false)),
    ]
}

fn tool(name: &'static str, description: &'static str, schema: Value) -> Tool {
    let Value::Object(schema) = schema else { unreachable!("the schemas above are objects") };
    Tool::new(name, description, schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: &Value) -> JsonObject {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn unwraps_a_call_and_refuses_what_would_nest() {
        let call = unwrap(CALL, object(&json!({"name": "calculator__calculate", "arguments": {"expression": "123 + 456"}})));
        assert_eq!(call, Request::Call("calculator__calculate".into(), object(&json!({"expression": "123 + 456"}))));
        assert_eq!(unwrap("a__b", object(&json!({"name": "c"}))), Request::Call("a__b".into(), object(&json!({"name": "c"}))));
        for arguments in [json!({}), json!({"name": 1}), json!({"name": "call_tool"}), json!({"name": "a", "arguments": [1]})] {
            assert!(matches!(unwrap(CALL, object(&arguments)), Request::Invalid(_)));
        }
        assert_eq!(unwrap(SEARCH, object(&json!({"query": "天气"}))), Request::Search("天气".into()));
    }
}
