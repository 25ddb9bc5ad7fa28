//! Entry points for a fuzzer: each takes any bytes, must not panic, and checks what must hold whatever the bytes are.

use serde_json::Value;

use super::wire::clean_arguments;
use super::{ReasoningReplay, WireRules, normalise, validate_history};
use crate::message::{Message, Part, Reasoning, Role, ToolCall, ToolResult, ToolStatus};

/// More messages than this find nothing new, only later.
const MAX_MESSAGES: usize = 64;

/// Reads the bytes as a history (a JSON list of messages, or else a program that builds one), and checks that what the normaliser makes
/// of it, and of its halves, is accepted by a strict reader under each provider's rules, and stays as it is when it is normalised again.
#[doc(hidden)]
pub fn fuzz_normalise(input: &[u8]) {
    let mut messages: Vec<Message> = serde_json::from_slice(input).unwrap_or_else(|_| Program(input).history());
    messages.truncate(MAX_MESSAGES);
    let cut = usize::from(input.last().copied().unwrap_or(0)) % (messages.len() + 1);
    let text_of_reasoning = WireRules { reasoning: ReasoningReplay::Text, ..WireRules::openai() };
    for rules in [WireRules::openai(), WireRules::anthropic(), WireRules::default(), text_of_reasoning] {
        for part in [&messages[..], &messages[..cut], &messages[cut..]] {
            let sent = normalise(part, &rules);
            assert_eq!(validate_history(&sent, &rules), Ok(()), "{part:?}");
            assert_eq!(normalise(&sent, &rules), sent, "what is normal stays as it is");
        }
    }
}

/// Reads the bytes as a call's arguments, and checks that the wire copy is a JSON object without NUL, and the same byte for byte where
/// nothing was wrong.
#[doc(hidden)]
pub fn fuzz_arguments(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let sent = clean_arguments(&text);
    let value: Value = serde_json::from_str(&sent).expect("arguments on the wire are JSON");
    let object = value.as_object().expect("arguments on the wire are an object");
    assert!(!has_nul(&value), "{sent}");
    assert_eq!(clean_arguments(&sent), sent, "what is clean stays as it is");
    match crate::json::parse_object(&text) {
        Ok(_) if text.trim_start().starts_with('{') && !text.contains("\\u0000") => assert_eq!(sent, text),
        Ok(_) => {}
        Err(_) => assert!(object.contains_key("invalid_arguments"), "{sent}"),
    }
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(fields) => fields.iter().any(|(key, value)| key.contains('\0') || has_nul(value)),
        _ => false,
    }
}

/// Texts that faults are made of.
const TEXTS: [&str; 16] = [
    "",
    " \n",
    "\0",
    "a",
    "b",
    "call_1",
    "北京",
    "functions.read",
    "a__b",
    "{}",
    "[]",
    "{\"a\":1,\"a\":2}",
    "{\"a\":\"\\u0000\"}",
    "{\"a\":\"\\ud800\"}",
    "{\"a\":",
    "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz",
];

/// Bytes that say how to build a history.
struct Program<'a>(&'a [u8]);

impl Program<'_> {
    fn history(mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        while !self.0.is_empty() && messages.len() < MAX_MESSAGES {
            let shape = self.byte();
            let role = [Role::User, Role::Assistant, Role::Tool][usize::from(shape) % 3];
            let parts = (0..(shape >> 4) % 6).map(|_| self.part()).collect();
            messages.push(Message { role, parts });
        }
        messages
    }

    fn part(&mut self) -> Part {
        match self.byte() % 5 {
            0 => Part::Text { text: self.text() },
            1 => {
                let text = self.text();
                let raw = self.byte().is_multiple_of(2).then(|| serde_json::json!({"type": "thinking", "signature": "s"}));
                Part::Reasoning(Reasoning { text, raw })
            }
            2 => {
                let provider_id = self.byte().is_multiple_of(2).then(|| self.text());
                Part::ToolCall(ToolCall { id: self.text(), provider_id, name: self.text(), arguments: self.text() })
            }
            kind => {
                let status = if kind == 3 { ToolStatus::Ok } else { ToolStatus::Interrupted };
                Part::ToolResult(ToolResult { call_id: self.text(), name: self.text(), status, text: self.text() })
            }
        }
    }

    fn text(&mut self) -> String {
        let choice = usize::from(self.byte());
        if let Some(text) = TEXTS.get(choice % 32) {
            return (*text).to_owned();
        }
        let (text, rest) = self.0.split_at((choice % 8).min(self.0.len()));
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }

    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }
}
