//! What a plugin returned, as what the agent gets: bounded, checked and cleaned.

use std::borrow::Cow;

use serde_json::Value;

use super::bindings;
use super::typed::TypedOutput;
use crate::policy::Limits;
use crate::secret::Redactor;
use crate::tool::{Content, ErrorCode, Failure, ToolOutcome};
use crate::{json, text};

/// The longest that a tool's own error message may be, in bytes.
const MAX_TOOL_ERROR: usize = 4096;
/// The most pieces that a result may have.
const MAX_PIECES: usize = 1024;
/// The longest media type or URI that is kept, in bytes.
const MAX_NAME: usize = 2048;

/// A result that is fit to be passed on.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) content: Vec<Content>,
    /// The first JSON piece.
    pub(super) structured: Option<Value>,
}

/// Bytes of a result, as `max_output` counts them.
pub(super) fn output_bytes(content: &[bindings::Content]) -> u64 {
    content
        .iter()
        .map(|piece| match piece {
            bindings::Content::Text(text) | bindings::Content::Json(text) => text.len() as u64,
            bindings::Content::Blob(blob) => (blob.mime_type.len() + blob.bytes.len()) as u64,
            bindings::Content::Resource(resource) => {
                (resource.uri.len() + resource.mime_type.len() + resource.bytes.len()) as u64
            }
        })
        .sum()
}

/// Checks and cleans a result. An error is the failure's code, and a sentence about the result.
pub(super) fn answer(content: Vec<bindings::Content>, bytes: u64, subject: &str, limits: &Limits) -> Result<Answer, Failure> {
    within_limit(bytes, subject, limits)?;
    if content.len() > MAX_PIECES {
        let message = format!("`{subject}` returned {} pieces of content, over the {MAX_PIECES} that are allowed", content.len());
        return Err(Failure::new(ErrorCode::LIMIT_OUTPUT, message).hint("the tool should join its pieces"));
    }
    let mut structured = None;
    let mut cleaned = Vec::with_capacity(content.len());
    for piece in content {
        cleaned.push(match piece {
            bindings::Content::Text(text) => Content::Text { text: clean_text(text) },
            bindings::Content::Json(source) => {
                let value = parse_json(&source).map_err(|problem| {
                    let problem = text::clean_line(&problem, 300);
                    Failure::new(ErrorCode::RESULT_INVALID, format!("`{subject}` returned JSON that is {problem}"))
                        .hint("this is a fault of the plugin")
                })?;
                if structured.is_none() {
                    structured = Some(value.clone());
                }
                Content::Json { value }
            }
            bindings::Content::Blob(blob) => {
                Content::Blob { mime_type: text::clean_line(&blob.mime_type, MAX_NAME), bytes: blob.bytes }
            }
            bindings::Content::Resource(resource) => Content::Resource {
                uri: text::clean_line(&resource.uri, MAX_NAME),
                mime_type: text::clean_line(&resource.mime_type, MAX_NAME),
                bytes: resource.bytes,
            },
        });
    }
    Ok(Answer { content: cleaned, structured })
}

/// Checks and cleans the result of a function that is a tool itself.
pub(super) fn typed_answer(output: TypedOutput, bytes: u64, subject: &str, limits: &Limits) -> Result<Answer, Failure> {
    within_limit(bytes, subject, limits)?;
    let TypedOutput { content, mut structured } = output;
    if let Some(value) = &mut structured {
        clean_value(value);
    }
    let content = content.into_iter().map(|piece| match piece {
        Content::Text { text } => Content::Text { text: clean_text(text) },
        Content::Json { mut value } => {
            clean_value(&mut value);
            Content::Json { value }
        }
        other => other,
    });
    Ok(Answer { content: content.collect(), structured })
}

/// Removes known secrets, in all their encodings: a server may send back what the host added to a request.
pub(super) fn redact(outcome: &mut ToolOutcome, redactor: &Redactor) {
    if redactor.is_empty() {
        return;
    }
    let text = |text: &mut String| {
        if let Cow::Owned(redacted) = redactor.redact(text) {
            *text = redacted;
        }
    };
    for piece in &mut outcome.content {
        match piece {
            Content::Text { text: piece } => text(piece),
            Content::Json { value } => redactor.redact_json(value),
            Content::Resource { uri, .. } => text(uri),
            Content::Blob { .. } => {}
        }
    }
    if let Some(value) = &mut outcome.structured {
        redactor.redact_json(value);
    }
    for failure in outcome.error.iter_mut().chain(&mut outcome.denials) {
        text(&mut failure.message);
        if let Some(hint) = &mut failure.hint {
            text(hint);
        }
    }
}

fn within_limit(bytes: u64, subject: &str, limits: &Limits) -> Result<(), Failure> {
    if bytes <= limits.max_output {
        return Ok(());
    }
    let limit = limits.max_output;
    let message = format!("`{subject}` returned {bytes} bytes, over `max_output` = {limit}");
    Err(Failure::new(ErrorCode::LIMIT_OUTPUT, message).hint("ask for less, or raise `max_output` in the policy's limits"))
}

/// A tool's own error, as a failure.
pub(super) fn tool_error(error: bindings::ToolError) -> Failure {
    use bindings::ToolError as Error;
    let (kind, message) = match error {
        Error::InvalidArguments(message) => ("invalid_arguments", message),
        Error::Denied(message) => ("denied", message),
        Error::NotFound(message) => ("not_found", message),
        Error::Unavailable(message) => ("unavailable", message),
        Error::Failed(message) => ("failed", message),
        Error::RateLimited(limit) => {
            let failure = Failure::new(ErrorCode::tool("rate_limited"), clean_error(&limit.message));
            return match limit.retry_after_ms {
                Some(delay) => failure.hint(format!("try again in {delay} ms")),
                None => failure,
            };
        }
    };
    Failure::new(ErrorCode::tool(kind), clean_error(&message))
}

fn clean_error(message: &str) -> String {
    text::clean(message, MAX_TOOL_ERROR).into_owned()
}

fn clean_text(text: String) -> String {
    if is_plain(&text) {
        return text;
    }
    text::clean(&text, usize::MAX).into_owned()
}

/// Whether text is printable ASCII, newlines and tabs: then there is nothing to clean. No early exit, so that it takes 16 bytes a step.
fn is_plain(text: &str) -> bool {
    text.bytes().fold(true, |plain, byte| plain & ((0x20..0x7f).contains(&byte) | (byte == b'\n') | (byte == b'\t')))
}

fn parse_json(source: &str) -> Result<Value, String> {
    let mut value = json::parse_value(source)?;
    // Hidden characters stand in a JSON string as themselves, which plain text cannot hold, or as an escape.
    if !is_plain(source) || source.contains('\\') {
        clean_value(&mut value);
    }
    Ok(value)
}

/// Cleans every string of a value, keys included. Recursion is bounded: the parser takes 128 levels.
fn clean_value(value: &mut Value) {
    match value {
        Value::String(text) => {
            if text.chars().any(text::is_hidden) {
                *text = text::clean(text, usize::MAX).into_owned();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(clean_value),
        Value::Object(map) => {
            if map.keys().any(|key| key.chars().any(text::is_hidden)) {
                let entries = std::mem::take(map);
                map.extend(entries.into_iter().map(|(key, value)| (text::clean(&key, usize::MAX).into_owned(), value)));
            }
            map.values_mut().for_each(clean_value);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use bindings::Content as Raw;

    fn answer_of(content: Vec<Raw>) -> Result<Answer, Failure> {
        let bytes = output_bytes(&content);
        answer(content, bytes, "demo/run", &Limits { max_output: 100, ..Limits::default() })
    }

    #[test]
    fn cleans_text_and_json() {
        let hidden = "北京\u{202e}\u{1b}[31m \u{e0041}ok";
        let source = format!(r#"{{"a\u202e":"{hidden}","n":[1.5,"\u001b[2J"]}}"#).replace('\u{1b}', "\\u001b");
        let answer = answer_of(vec![Raw::Text(hidden.to_owned()), Raw::Json(source)]).unwrap();
        assert_eq!(answer.content[0], Content::Text { text: "北京[31m ok".to_owned() });
        assert_eq!(answer.structured, Some(json!({"a": "北京[31m ok", "n": [1.5, "[2J"]})));
    }

    #[test]
    fn the_first_json_is_the_structured_result() {
        let answer = answer_of(vec![Raw::Text("x".into()), Raw::Json("1".into()), Raw::Json("2".into())]).unwrap();
        assert_eq!(answer.structured, Some(json!(1)));
    }

    #[test]
    fn refuses_what_is_no_json() {
        for source in ["", "NaN", "{\"a\":Infinity}", "{\"a\":1,\"a\":2}", "{", "1 2", "'x'"] {
            assert_eq!(answer_of(vec![Raw::Json(source.to_owned())]).unwrap_err().code, ErrorCode::RESULT_INVALID, "{source}");
        }
        let deep = "[".repeat(100_000);
        let limits = Limits::default();
        assert_eq!(answer(vec![Raw::Json(deep)], 1, "demo/run", &limits).unwrap_err().code, ErrorCode::RESULT_INVALID);
    }

    #[test]
    fn counts_every_byte_and_piece() {
        let text = |length: usize| vec![Raw::Text("x".repeat(length / 2)), Raw::Text("x".repeat(length - length / 2))];
        assert!(answer_of(text(100)).is_ok());
        assert_eq!(answer_of(text(101)).unwrap_err().code, ErrorCode::LIMIT_OUTPUT);
        assert_eq!(answer_of(vec![Raw::Text(String::new()); MAX_PIECES + 1]).unwrap_err().code, ErrorCode::LIMIT_OUTPUT);
    }

    #[test]
    fn keeps_the_kind_of_a_tools_error() {
        use bindings::ToolError as Error;
        for (error, code) in [
            (Error::InvalidArguments("x".into()), "tool.invalid_arguments"),
            (Error::NotFound("x".into()), "tool.not_found"),
            (Error::Failed("x".into()), "tool.failed"),
        ] {
            assert_eq!(tool_error(error).code.as_str(), code);
        }
        let failure = tool_error(Error::Failed("\u{1b}[31m".to_owned() + &"x".repeat(10_000)));
        assert!(failure.message.len() < MAX_TOOL_ERROR + 64 && !failure.message.contains('\u{1b}'));
    }
}
