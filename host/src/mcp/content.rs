//! What a call came to, as MCP says it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, MetaObject, ResourceContents};
use serde_json::{Map, Value};

use crate::tool::{Content, ToolOutcome};

/// The `_meta` key under which a failed call carries its code and hint for programs.
const ERROR_KEY: &str = "honeycomb/error";

/// Turns an outcome into the result of `tools/call`. `call_id` names content that has no name of its own.
///
/// A failed call has text only: a client that validates `structuredContent` against the tool's output schema would refuse an error in it.
pub(super) fn result(outcome: &ToolOutcome, call_id: &str) -> CallToolResult {
    if let Some(failure) = &outcome.error {
        let mut result = CallToolResult::error(vec![ContentBlock::text(outcome.model_text())]);
        if let Ok(failure) = serde_json::to_value(failure) {
            result.meta = Some(MetaObject(Map::from_iter([(ERROR_KEY.to_owned(), failure)])));
        }
        return result;
    }
    let blocks = outcome.content.iter().enumerate().map(|(index, content)| block(content, call_id, index)).collect();
    let mut result = CallToolResult::success(blocks);
    // Before 2026-07-28 structured content is an object, and the SDK's clients refuse anything else.
    result.structured_content = outcome.structured.clone().filter(Value::is_object);
    result
}

fn block(content: &Content, call_id: &str, index: usize) -> ContentBlock {
    match content {
        Content::Text { text } => ContentBlock::text(text.as_str()),
        Content::Json { value } => ContentBlock::text(value.to_string()),
        Content::Blob { mime_type, bytes } if is_type(mime_type, "image/") => {
            ContentBlock::image(STANDARD.encode(bytes), mime_type.as_str())
        }
        Content::Blob { mime_type, bytes } if is_type(mime_type, "audio/") => {
            ContentBlock::audio(STANDARD.encode(bytes), mime_type.as_str())
        }
        Content::Blob { mime_type, bytes } => embedded(&format!("honeycomb://call/{call_id}/{index}"), mime_type, bytes),
        Content::Resource { uri, mime_type, bytes } => embedded(uri, mime_type, bytes),
    }
}

/// A resource in the result: as text when it is text, otherwise as base64.
fn embedded(uri: &str, mime_type: &str, bytes: &[u8]) -> ContentBlock {
    let text = if is_text(mime_type) { std::str::from_utf8(bytes).ok() } else { None };
    let contents = match text {
        Some(text) => ResourceContents::text(text, uri),
        None => ResourceContents::blob(STANDARD.encode(bytes), uri),
    };
    ContentBlock::resource(contents.with_mime_type(mime_type))
}

fn is_type(mime_type: &str, prefix: &str) -> bool {
    mime_type.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

fn is_text(mime_type: &str) -> bool {
    let essence = mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let structured = essence.ends_with("+json") || essence.ends_with("+xml");
    structured || essence.starts_with("text/") || essence == "application/json" || essence == "application/xml"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ToolStatus;
    use crate::tool::{CallUsage, ErrorCode, Failure};
    use serde_json::json;

    fn outcome(content: Vec<Content>, structured: Option<Value>) -> ToolOutcome {
        let usage = CallUsage::default();
        ToolOutcome { status: ToolStatus::Ok, content, structured, error: None, denials: Vec::new(), usage }
    }

    #[test]
    fn each_kind_of_content_has_its_block() {
        let blob = |mime_type: &str, bytes: &[u8]| Content::Blob { mime_type: mime_type.into(), bytes: bytes.into() };
        let resource = |mime_type: &str, bytes: &[u8]| Content::Resource {
            uri: "file:///北京".into(),
            mime_type: mime_type.into(),
            bytes: bytes.into(),
        };
        for (content, expected) in [
            (Content::Text { text: "晴".into() }, json!({"type": "text", "text": "晴"})),
            (Content::Json { value: json!({"t": 9}) }, json!({"type": "text", "text": "{\"t\":9}"})),
            (blob("image/png", b"x"), json!({"type": "image", "data": "eA==", "mimeType": "image/png"})),
            (blob("Audio/wav", b"x"), json!({"type": "audio", "data": "eA==", "mimeType": "Audio/wav"})),
            (
                blob("application/pdf", b"x"),
                json!({"type": "resource", "resource": {"uri": "honeycomb://call/c1/0", "mimeType": "application/pdf", "blob": "eA=="}}),
            ),
            (
                resource("application/ld+json; charset=utf-8", b"{}"),
                json!({"type": "resource", "resource":
                    {"uri": "file:///北京", "mimeType": "application/ld+json; charset=utf-8", "text": "{}"}}),
            ),
            (
                resource("text/plain", &[0xff]),
                json!({"type": "resource", "resource": {"uri": "file:///北京", "mimeType": "text/plain", "blob": "/w=="}}),
            ),
        ] {
            let result = serde_json::to_value(result(&outcome(vec![content], None), "c1")).unwrap();
            assert_eq!(result["content"], json!([expected]));
        }
    }

    #[test]
    fn an_error_is_text_with_code_and_hint_and_never_structured() {
        let failure = Failure::new(ErrorCode::POLICY_DENIED, "no rule allows it").hint("add a rule");
        let mut outcome = ToolOutcome::refused(ToolStatus::Denied, failure);
        outcome.structured = Some(json!({"x": 1}));
        let result = serde_json::to_value(result(&outcome, "c1")).unwrap();
        assert_eq!(result["isError"], true);
        assert_eq!(result["content"][0]["text"], "error policy.denied: no rule allows it\nhint: add a rule");
        assert_eq!(result["_meta"]["honeycomb/error"]["code"], "policy.denied");
        assert_eq!(result.get("structuredContent"), None);
    }

    #[test]
    fn only_objects_are_structured_content() {
        for (structured, expected) in [(json!({"a": 1}), Some(json!({"a": 1}))), (json!([1]), None), (json!(null), None)] {
            let result = serde_json::to_value(result(&outcome(Vec::new(), Some(structured)), "c1")).unwrap();
            assert_eq!(result.get("structuredContent").cloned(), expected);
        }
    }
}
