//! Tool results that the model sees only in part, and the built-in tool that reads them back.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::message::{Message, Part};
use crate::tool::{ErrorCode, Failure, ToolHints, ToolSpec};

/// The name of the built-in tool. No plugin's tool can have it: theirs hold `__`.
pub(crate) const READ_RESULT: &str = "read_result";
/// Whole results are kept up to this many bytes in all; the oldest go first.
const MAX_KEPT_BYTES: usize = 16 * 1024 * 1024;
/// The largest page, in bytes.
const MAX_PAGE: u64 = 16 * 1024;

/// What stands in for a result: the same for the same result, whenever it is made.
pub(crate) fn stub(call_id: &str, text: &str) -> String {
    let digest = crate::text::hex(&Sha256::digest(text)[..8]);
    format!("[trimmed: {} bytes, sha256 {digest}…; {READ_RESULT}({{\"id\":\"{call_id}\"}}) reads it]", text.len())
}

/// What the model is told about the built-in tool; offered from the first time that something is hidden from it.
pub(crate) fn read_result_spec() -> ToolSpec {
    ToolSpec {
        name: READ_RESULT.to_owned(),
        title: None,
        description: "Reads the result of an earlier tool call that was trimmed or shortened, a page at a time.".to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "id": { "type": "string", "description": "The id that the trimmed result names." },
                "offset": { "type": "integer", "minimum": 0, "description": "Where to begin, in bytes." }
            },
            "required": ["id"],
            "additionalProperties": false
        }),
        output_schema: None,
        hints: ToolHints { read_only: true, idempotent: true, ..ToolHints::default() },
    }
}

/// Whole results of which the history holds only a part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptResults(VecDeque<Kept>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    call_id: String,
    text: String,
}

impl KeptResults {
    pub(crate) fn keep(&mut self, call_id: &str, text: String) {
        self.0.push_back(Kept { call_id: call_id.to_owned(), text });
        let mut bytes: usize = self.0.iter().map(|kept| kept.text.len()).sum();
        while bytes > MAX_KEPT_BYTES
            && let Some(oldest) = self.0.pop_front()
        {
            bytes -= oldest.text.len();
        }
    }

    /// Call and text of each, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|kept| (kept.call_id.as_str(), kept.text.as_str()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, call_id: &str) -> Option<&str> {
        self.0.iter().find(|kept| kept.call_id == call_id).map(|kept| kept.text.as_str())
    }

    /// Runs the built-in tool.
    pub(crate) fn read(&self, history: &[Message], arguments: &str, limit_tokens: u64) -> Result<String, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Arguments {
            id: String,
            #[serde(default)]
            offset: usize,
        }
        let invalid = |message: String| Failure::new(ErrorCode::ARGS_INVALID, message);
        let object = crate::json::parse_object(arguments).map_err(invalid)?;
        let Arguments { id, offset } =
            serde_json::from_value(object.into()).map_err(|error| invalid(format!("arguments of `{READ_RESULT}`: {error}")))?;
        let text = self.get(&id).or_else(|| find(history, &id)).ok_or_else(|| {
            invalid(format!("no result with id `{}` is kept", crate::text::clean_line(&id, 100)))
                .hint("the id stands in the text that replaces a trimmed result")
        })?;
        // A page is at most about a quarter of the window, so that reading never leads to trimming what was just read.
        let page = usize::try_from(limit_tokens.clamp(256, MAX_PAGE)).unwrap_or(1024);
        let start = text.floor_char_boundary(offset.min(text.len()));
        let end = text.floor_char_boundary(start.saturating_add(page).min(text.len()));
        let more = if end < text.len() { format!(", next offset {end}") } else { String::new() };
        Ok(format!("{}\n[bytes {start} to {end} of {}{more}]", &text[start..end], text.len()))
    }
}

impl FromIterator<(String, String)> for KeptResults {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(results: I) -> Self {
        Self(results.into_iter().map(|(call_id, text)| Kept { call_id, text }).collect())
    }
}

fn find<'a>(history: &'a [Message], id: &str) -> Option<&'a str> {
    history.iter().rev().flat_map(|message| &message.parts).find_map(|part| match part {
        Part::ToolResult(result) if result.call_id == id => Some(result.text.as_str()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_names_size_and_digest_and_stays_the_same() {
        let text = stub("call_7", "北京");
        assert_eq!(text, "[trimmed: 6 bytes, sha256 68c77e155132565e…; read_result({\"id\":\"call_7\"}) reads it]");
        assert_eq!(text, stub("call_7", "北京"));
    }

    #[test]
    fn reads_a_long_result_page_by_page() {
        let mut kept = KeptResults::default();
        let text = "天气".repeat(1000);
        kept.keep("c", text.clone());
        let (mut offset, mut read) = (0, String::new());
        while offset < text.len() {
            let page = kept.read(&[], &json!({ "id": "c", "offset": offset }).to_string(), 1000).expect("reads");
            let body = page.rsplit_once("\n[").expect("has a trailer").0;
            assert!(body.len() <= 1000);
            read.push_str(body);
            offset += body.len();
        }
        assert_eq!(read, text);
    }

    #[test]
    fn unusable_arguments_are_the_models_mistake() {
        let kept = KeptResults::default();
        for arguments in ["{}", "[", r#"{"id":"x"}"#, r#"{"id":"x","offset":-1}"#, r#"{"id":"x","y":1}"#] {
            assert_eq!(kept.read(&[], arguments, 1000).expect_err(arguments).code, ErrorCode::ARGS_INVALID);
        }
    }

    #[test]
    fn forgets_the_oldest_when_there_is_too_much() {
        let mut kept = KeptResults::default();
        for id in 0..20 {
            kept.keep(&id.to_string(), "x".repeat(1024 * 1024));
        }
        assert!(kept.get("3").is_none());
        assert!(kept.get("4").is_some());
    }
}
