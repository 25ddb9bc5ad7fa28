//! A conversation as both wire formats need it: every call answered once, right after its message; ids unique and legal.
//!
//! The agent normalises its history before it asks. This is the last line: whatever it is given, the request is one that providers
//! accept, since a request they refuse is refused for ever after.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::message::{Message, Part, Reasoning, Role, ToolCall, ToolResult, ToolStatus};

/// One entry of the wire's conversation.
#[derive(Debug, PartialEq)]
pub(crate) enum Entry<'a> {
    /// What the person said; never blank.
    User(String),
    /// What the model said; has text or calls.
    Assistant(Assistant<'a>),
    /// The answers to the calls of the entry before, complete and in call order.
    Results(Vec<Answer<'a>>),
}

/// One message of the model.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Assistant<'a> {
    /// In the model's order, which signatures cover.
    pub(crate) pieces: Vec<Piece<'a>>,
}

/// A piece of a message of the model.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece<'a> {
    /// Never blank.
    Text(Cow<'a, str>),
    Reasoning(&'a Reasoning),
    Call(Call<'a>),
}

/// One tool call, as it goes over the wire.
#[derive(Debug, PartialEq)]
pub(crate) struct Call<'a> {
    pub(crate) id: String,
    pub(crate) name: Cow<'a, str>,
    pub(crate) arguments: Map<String, Value>,
}

/// One tool result, as it goes over the wire.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer<'a> {
    pub(crate) id: String,
    /// Never blank.
    pub(crate) text: Cow<'a, str>,
    pub(crate) is_error: bool,
}

const UNANSWERED: &str = "error: the call was interrupted; it may have had effects";
const NO_OUTPUT: &str = "(no output)";

/// Brings messages into the wire's order.
///
/// A call without an answer gets one that says it was interrupted; an answer without a call, a repeated answer, and a message without
/// content are dropped; messages of one role that follow each other are joined.
pub(crate) fn entries(messages: &[Message]) -> Vec<Entry<'_>> {
    let mut answers: HashMap<&str, &ToolResult> = HashMap::new();
    for message in messages {
        for part in &message.parts {
            if let Part::ToolResult(result) = part {
                answers.entry(&result.call_id).or_insert(result);
            }
        }
    }
    let mut builder = Builder { answers, used: HashSet::new(), entries: Vec::new() };
    for message in messages {
        match message.role {
            Role::User => builder.user(&message.text()),
            Role::Assistant => builder.assistant(message),
            Role::Tool => {}
        }
    }
    builder.entries
}

struct Builder<'a> {
    answers: HashMap<&'a str, &'a ToolResult>,
    used: HashSet<String>,
    entries: Vec<Entry<'a>>,
}

impl<'a> Builder<'a> {
    fn user(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        let text = without_nul(text);
        match self.entries.last_mut() {
            Some(Entry::User(before)) => {
                before.push_str("\n\n");
                before.push_str(&text);
            }
            _ => self.entries.push(Entry::User(text.into_owned())),
        }
    }

    fn assistant(&mut self, message: &'a Message) {
        let mut pieces = Vec::new();
        let mut results = Vec::new();
        for part in &message.parts {
            match part {
                Part::Text { text } if text.trim().is_empty() => {}
                Part::Text { text } => pieces.push(Piece::Text(without_nul(text))),
                Part::Reasoning(reasoning) => pieces.push(Piece::Reasoning(reasoning)),
                Part::ToolCall(call) => {
                    let (call, answer) = self.call(call);
                    pieces.push(Piece::Call(call));
                    results.push(answer);
                }
                Part::ToolResult(_) => {}
            }
        }
        if pieces.iter().all(|piece| matches!(piece, Piece::Reasoning(_))) {
            return;
        }
        match self.entries.last_mut() {
            // Reasoning belongs to one message; the joined one goes without.
            Some(Entry::Assistant(before)) => {
                before.pieces.append(&mut pieces);
                before.pieces.retain(|piece| !matches!(piece, Piece::Reasoning(_)));
            }
            _ => self.entries.push(Entry::Assistant(Assistant { pieces })),
        }
        if !results.is_empty() {
            self.entries.push(Entry::Results(results));
        }
    }

    fn call(&mut self, call: &'a ToolCall) -> (Call<'a>, Answer<'a>) {
        let id = self.wire_id(call);
        let answer = match self.answers.remove(call.id.as_str()) {
            Some(result) => Answer {
                id: id.clone(),
                text: if result.text.trim().is_empty() { Cow::Borrowed(NO_OUTPUT) } else { without_nul(&result.text) },
                is_error: result.status != ToolStatus::Ok,
            },
            None => Answer { id: id.clone(), text: Cow::Borrowed(UNANSWERED), is_error: true },
        };
        (Call { id, name: legal_name(&call.name), arguments: wire_arguments(&call.arguments) }, answer)
    }

    /// The provider's own id where it is legal and not taken yet, else the host's.
    fn wire_id(&mut self, call: &ToolCall) -> String {
        let candidates = call.provider_id.iter().chain(std::iter::once(&call.id));
        let free = candidates.map(String::as_str).find(|id| is_legal_id(id) && !self.used.contains(*id)).map(str::to_owned);
        let id = free.unwrap_or_else(|| {
            // Ends, since only finitely many ids are taken.
            (self.used.len()..).map(|number| format!("call_{number}")).find(|id| !self.used.contains(id)).unwrap_or_default()
        });
        self.used.insert(id.clone());
        id
    }
}

/// Ids that every provider accepts: Anthropic's alphabet, within a bound.
fn is_legal_id(id: &str) -> bool {
    (1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// A tool's name as providers accept it, `^[a-zA-Z0-9_-]{1,64}$`. A model may have called a tool by a name that is not.
pub(crate) fn legal_name(name: &str) -> Cow<'_, str> {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..=64).contains(&name.len()) && name.chars().all(is_legal) {
        return Cow::Borrowed(name);
    }
    let legal: String = name.chars().take(64).map(|c| if is_legal(c) { c } else { '_' }).collect();
    Cow::Owned(if legal.is_empty() { "unnamed".to_owned() } else { legal })
}

/// Arguments as a JSON object, whatever the model wrote: some servers refuse a whole conversation over one broken call.
fn wire_arguments(arguments: &str) -> Map<String, Value> {
    serde_json::from_str(arguments).unwrap_or_default()
}

/// A tool's schema as providers accept it: an object with `properties`.
pub(crate) fn wire_schema(schema: &Value) -> Value {
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        schema.insert("type".to_owned(), Value::from("object"));
    }
    if !schema.get("properties").is_some_and(Value::is_object) {
        schema.insert("properties".to_owned(), Value::Object(Map::new()));
    }
    Value::Object(schema)
}

/// NUL is legal JSON, and some servers fail on it.
pub(crate) fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(id: &str, provider_id: Option<&str>, arguments: &str) -> Part {
        Part::ToolCall(ToolCall {
            id: id.to_owned(),
            provider_id: provider_id.map(str::to_owned),
            name: "t".to_owned(),
            arguments: arguments.to_owned(),
        })
    }

    fn result(call_id: &str, text: &str) -> Message {
        let result =
            ToolResult { call_id: call_id.to_owned(), name: "t".to_owned(), status: ToolStatus::Ok, text: text.to_owned() };
        Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] }
    }

    fn assistant(parts: Vec<Part>) -> Message {
        Message { role: Role::Assistant, parts }
    }

    fn answers(entry: &Entry<'_>) -> Vec<(String, String)> {
        let Entry::Results(answers) = entry else { panic!("{entry:?}") };
        answers.iter().map(|answer| (answer.id.clone(), answer.text.to_string())).collect()
    }

    #[test]
    fn every_call_is_answered_once_in_call_order_right_after_its_message() {
        let messages = [
            result("orphan", "x"),
            Message::user("你好"),
            assistant(vec![call("h1", Some("p1"), "{}"), call("h2", None, "{}"), call("h3", None, "{}")]),
            Message::user("between"),
            result("h2", "two"),
            result("h1", ""),
            result("h1", "again"),
        ];
        let entries = entries(&messages);
        assert_eq!(entries.len(), 4);
        let pair = |id: &str, text: &str| (id.to_owned(), text.to_owned());
        assert_eq!(answers(&entries[2]), [pair("p1", NO_OUTPUT), pair("h2", "two"), pair("h3", UNANSWERED)]);
        assert_eq!(entries[3], Entry::User("between".to_owned()));
    }

    #[test]
    fn repeated_and_illegal_ids_are_replaced_by_the_hosts() {
        let messages = [
            assistant(vec![call("h1", Some("same"), ""), call("h2", Some("same"), ""), call("h3", Some("a b"), "")]),
            assistant(vec![call("h1", Some("same"), "")]),
        ];
        let ids: Vec<String> = entries(&messages)
            .iter()
            .filter_map(|entry| if let Entry::Results(answers) = entry { Some(answers) } else { None })
            .flatten()
            .map(|answer| answer.id.clone())
            .collect();
        assert_eq!(ids, ["same", "h2", "h3", "h1"]);
    }

    #[test]
    fn nothing_blank_goes_over_the_wire_and_equal_roles_are_joined() {
        let reasoning = Part::Reasoning(Reasoning { text: "hm".to_owned(), raw: None });
        let messages = [
            Message::user("a"),
            Message::user(" "),
            assistant(vec![reasoning, Part::text("\n")]),
            Message::user("b\0"),
            assistant(vec![Part::text("c")]),
            assistant(vec![Part::text("d"), call("h", None, "[1")]),
        ];
        let entries = entries(&messages);
        assert_eq!(entries[0], Entry::User("a\n\nb\u{fffd}".to_owned()));
        let Entry::Assistant(turn) = &entries[1] else { panic!("{entries:?}") };
        assert!(matches!(&turn.pieces[..], [Piece::Text(_), Piece::Text(_), Piece::Call(_)]), "{turn:?}");
    }

    #[test]
    fn arguments_names_and_schemas_are_made_legal() {
        for (arguments, expected) in [
            (r#"{"城市":"北京"}"#, json!({"城市": "北京"})),
            (r#"{"a":1,"a":2}"#, json!({"a": 2})),
            ("", json!({})),
            ("null", json!({})),
            ("[1]", json!({})),
            (r#"{"cut":"#, json!({})),
        ] {
            assert_eq!(Value::Object(wire_arguments(arguments)), expected, "{arguments}");
        }
        assert_eq!(legal_name("weather__get"), "weather__get");
        assert_eq!(legal_name("天气 get"), "___get");
        assert_eq!(legal_name(""), "unnamed");
        assert_eq!(legal_name(&"x".repeat(70)).len(), 64);
        assert_eq!(wire_schema(&json!(true)), json!({"type": "object", "properties": {}}));
        assert_eq!(wire_schema(&json!({"type": "object"})), json!({"type": "object", "properties": {}}));
    }
}
