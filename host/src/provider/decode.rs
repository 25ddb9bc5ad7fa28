//! Turns the bytes of a response into a model's turn, whole or as a stream, however the bytes are cut. No I/O.

use std::sync::Arc;

use serde_json::Value;

use super::sse::{SseDecoder, SseEvent};
use super::wire::WireFormat;
use super::{ModelEvent, ProviderError, ProviderErrorClass, anthropic, classify, openai};
use crate::message::ModelTurn;
use crate::text::clean_line;

/// Mints ids for tool calls: each different from all before.
pub type IdSource = Arc<dyn Fn() -> String + Send + Sync>;

/// Returns the id source of real runs: ids that no other run has either.
pub fn random_ids() -> IdSource {
    Arc::new(|| format!("call_{}", uuid::Uuid::now_v7().simple()))
}

/// How large a response may be, in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ResponseLimits {
    /// The body in all.
    pub body: usize,
    /// One server-sent event.
    pub event: usize,
}

impl Default for ResponseLimits {
    fn default() -> Self {
        Self { body: 64 << 20, event: 8 << 20 }
    }
}

/// What some bytes brought.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// Nothing, or heartbeats.
    Idle,
    /// Events that say nothing, such as empty deltas. The server is alive, but the answer does not go on.
    Empty,
    /// Something came in, and more will.
    Started,
    /// The answer is complete; only usage or an end mark may follow.
    Complete,
    /// Nothing follows.
    Ended,
}

/// Decodes one response body.
pub struct ResponseDecoder {
    format: WireFormat,
    ids: IdSource,
    content_type: ContentType,
    mode: Mode,
    limits: ResponseLimits,
    received: usize,
}

enum Mode {
    /// Nothing but white space so far.
    Undecided,
    Json(Vec<u8>),
    Stream {
        sse: SseDecoder,
        assembler: Box<dyn Assembler>,
    },
    Refused,
}

/// Builds a turn from a stream's events.
pub(super) trait Assembler: Send {
    /// Takes one event.
    fn event(&mut self, data: &Value, events: &mut dyn FnMut(ModelEvent)) -> Result<(), ProviderError>;
    /// Whether an event brings the answer further.
    fn has_content(&self, data: &Value) -> bool;
    /// How far the answer has come. Never `Idle`, except before the first event with content, and never `Empty`.
    fn progress(&self) -> Progress;
    /// Takes the end mark that is not JSON, `[DONE]`.
    fn end_mark(&mut self);
    /// Returns the turn of a complete answer.
    fn finish(self: Box<Self>, events: &mut dyn FnMut(ModelEvent)) -> Result<ModelTurn, ProviderError>;
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ContentType {
    EventStream,
    Json,
    Html,
    Other,
}

impl ResponseDecoder {
    /// A decoder for a body with this `Content-Type`.
    pub fn new(format: WireFormat, content_type: Option<&str>, ids: IdSource, limits: ResponseLimits) -> Self {
        let essence = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let content_type = match essence.as_str() {
            "text/event-stream" => ContentType::EventStream,
            "text/html" => ContentType::Html,
            _ if essence.ends_with("json") => ContentType::Json,
            _ => ContentType::Other,
        };
        Self { format, ids, content_type, mode: Mode::Undecided, limits, received: 0 }
    }

    /// Takes the next bytes of the body, and says whether the answer goes on.
    ///
    /// # Errors
    ///
    /// Returns a [`ProviderError`] when the body is too large, not what the protocol says, or reports an error itself.
    pub fn push(&mut self, chunk: &[u8], events: &mut dyn FnMut(ModelEvent)) -> Result<Progress, ProviderError> {
        let room = self.limits.body - self.received;
        self.received += chunk.len().min(room);
        let progress = self.take(&chunk[..chunk.len().min(room)], events)?;
        if chunk.len() > room && progress != Progress::Ended {
            return Err(bad_response(format!("the provider's answer is larger than {} bytes", self.limits.body)));
        }
        Ok(progress)
    }

    fn take(&mut self, mut chunk: &[u8], events: &mut dyn FnMut(ModelEvent)) -> Result<Progress, ProviderError> {
        if matches!(self.mode, Mode::Undecided) {
            let Some(start) = chunk.iter().position(|byte| !is_padding(*byte)) else { return Ok(Progress::Idle) };
            chunk = &chunk[start..];
            self.mode = self.decide(chunk[0]);
        }
        match &mut self.mode {
            Mode::Undecided => Ok(Progress::Idle),
            Mode::Json(body) => {
                body.extend_from_slice(chunk);
                Ok(Progress::Started)
            }
            Mode::Stream { sse, assembler } => {
                let outcome = sse.push(chunk);
                let mut seen = Seen::Nothing;
                while let Some(event) = sse.next_event() {
                    seen = seen.max(take_event(&event, assembler.as_mut(), events)?);
                }
                if assembler.progress() == Progress::Ended {
                    return Ok(Progress::Ended);
                }
                outcome.map_err(|error| bad_response(error.to_string()))?;
                Ok(match (seen, assembler.progress()) {
                    (Seen::Nothing, _) => Progress::Idle,
                    (Seen::Empty, Progress::Idle | Progress::Started) => Progress::Empty,
                    (Seen::Content, Progress::Idle) => Progress::Started,
                    (_, progress) => progress,
                })
            }
            Mode::Refused => Err(self.refusal(chunk)),
        }
    }

    /// Ends the body and returns the turn.
    ///
    /// # Errors
    ///
    /// Returns a [`ProviderError`], of class `stream_incomplete` when the body ended before the answer did.
    pub fn finish(mut self, events: &mut dyn FnMut(ModelEvent)) -> Result<ModelTurn, ProviderError> {
        match std::mem::replace(&mut self.mode, Mode::Refused) {
            Mode::Undecided => Err(incomplete("the provider's answer is empty")),
            Mode::Refused => Err(self.refusal(b"")),
            Mode::Json(body) => {
                let value: Value = serde_json::from_slice(&body).map_err(|error| {
                    let what = format!("the provider's answer is not valid JSON: {error}");
                    if error.is_eof() { incomplete(what) } else { bad_response(what) }
                })?;
                if let Some(error) = reported_error(&value) {
                    return Err(classify::in_band(error));
                }
                match self.format {
                    WireFormat::OpenAiChat => openai::parse_response(&value, &self.ids, events),
                    WireFormat::AnthropicMessages => anthropic::parse_response(&value, &self.ids, events),
                }
            }
            Mode::Stream { mut sse, mut assembler } => {
                if let Some(event) = sse.finish() {
                    // The end may have cut this event: what cannot be read of it was never said.
                    let outcome = take_event(&event, assembler.as_mut(), events);
                    if let Err(error) = outcome
                        && error.class != ProviderErrorClass::BadResponse
                    {
                        return Err(error);
                    }
                }
                match assembler.progress() {
                    Progress::Complete | Progress::Ended => assembler.finish(events),
                    Progress::Idle | Progress::Empty => Err(incomplete("the provider's stream ended without any content")),
                    Progress::Started => Err(incomplete("the provider's stream ended before the answer did")),
                }
            }
        }
    }

    /// Decides how to read the body. The first byte tells a stream (`data:`, `event:`, `id:`, `retry:`, a comment) from JSON; where
    /// it contradicts the header it wins, since a JSON error labelled as a stream would pass for an empty stream.
    fn decide(&self, first: u8) -> Mode {
        let stream = || {
            let ids = Arc::clone(&self.ids);
            let assembler: Box<dyn Assembler> = match self.format {
                WireFormat::OpenAiChat => Box::new(openai::StreamAssembler::new(ids)),
                WireFormat::AnthropicMessages => Box::new(anthropic::StreamAssembler::new(ids)),
            };
            Mode::Stream { sse: SseDecoder::new(self.limits.event), assembler }
        };
        match (self.content_type, first) {
            (ContentType::Html, _) => Mode::Refused,
            (_, b'{' | b'[') => Mode::Json(Vec::new()),
            (ContentType::EventStream, _) | (_, b'd' | b'e' | b'i' | b'r' | b':') => stream(),
            (ContentType::Json, _) => Mode::Json(Vec::new()),
            (ContentType::Other, _) => Mode::Refused,
        }
    }

    fn refusal(&self, body: &[u8]) -> ProviderError {
        let start = clean_line(String::from_utf8_lossy(&body[..body.len().min(400)]).trim(), 200);
        bad_response(format!("the provider answered with something that is neither JSON nor an event stream: `{start}`"))
            .hint("check the base URL; it may point at a web page or a login form")
    }
}

/// What some events were.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Seen {
    /// Heartbeats, if anything.
    Nothing,
    /// Events that say nothing.
    Empty,
    /// A part of the answer.
    Content,
}

/// Takes one event.
fn take_event(
    event: &SseEvent,
    assembler: &mut dyn Assembler,
    events: &mut dyn FnMut(ModelEvent),
) -> Result<Seen, ProviderError> {
    if assembler.progress() == Progress::Ended {
        return Ok(Seen::Nothing);
    }
    let data = event.data.trim();
    if data == "[DONE]" {
        assembler.end_mark();
        return Ok(Seen::Content);
    }
    let value: Value = serde_json::from_str(data)
        .map_err(|error| bad_response(format!("an event of the provider's stream is not valid JSON: {error}")))?;
    if let Some(error) = reported_error(&value) {
        return Err(classify::in_band(error));
    }
    if event.event == "error" {
        return Err(classify::in_band(&value));
    }
    if value.get("type").and_then(Value::as_str) == Some("ping") {
        return Ok(Seen::Nothing);
    }
    let seen = if assembler.has_content(&value) { Seen::Content } else { Seen::Empty };
    assembler.event(&value, events)?;
    Ok(seen)
}

/// Whether a delta holds any text, in any field but those that only say what kind of thing it is.
pub(super) fn says_something(delta: &Value) -> bool {
    match delta {
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => items.iter().any(says_something),
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| !matches!(name.as_str(), "role" | "type" | "id") && says_something(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The error that a body or event reports instead of an answer: `{"type": "error", …}`, `{"error": …}`, or a list with one.
fn reported_error(value: &Value) -> Option<&Value> {
    let value = value.as_array().and_then(|list| list.first()).unwrap_or(value);
    let has_error = value.get("error").is_some_and(|error| !error.is_null());
    let is_error = value.get("type").and_then(Value::as_str) == Some("error");
    (has_error || is_error).then_some(value)
}

fn is_padding(byte: u8) -> bool {
    // The byte order mark is made of these three, and no JSON or event begins with one.
    byte.is_ascii_whitespace() || matches!(byte, 0xef | 0xbb | 0xbf)
}

pub(super) fn bad_response(message: impl Into<String>) -> ProviderError {
    ProviderError::new(ProviderErrorClass::BadResponse, message)
}

pub(super) fn incomplete(message: impl Into<String>) -> ProviderError {
    ProviderError::new(ProviderErrorClass::StreamIncomplete, message)
}

/// Fuzz entry point: decodes any bytes in both formats, whole and in pieces, and panics if the outcomes differ.
#[doc(hidden)]
pub fn fuzz_decode(input: &[u8]) {
    let Some((&first, body)) = input.split_first() else { return };
    let format = if first & 1 == 0 { WireFormat::OpenAiChat } else { WireFormat::AnthropicMessages };
    let content_type = [None, Some("text/event-stream"), Some("application/json")][usize::from(first >> 1) % 3];
    let size = usize::from(first >> 4) + 1;
    assert_eq!(decode_in_pieces(format, content_type, body, usize::MAX), decode_in_pieces(format, content_type, body, size));
}

fn decode_in_pieces(
    format: WireFormat,
    content_type: Option<&str>,
    body: &[u8],
    size: usize,
) -> Result<ModelTurn, ProviderErrorClass> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let ids: IdSource = Arc::new(move || format!("call_{}", next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)));
    let mut decoder = ResponseDecoder::new(format, content_type, ids, ResponseLimits { body: 1 << 16, event: 1 << 12 });
    let mut ignore = |_: ModelEvent| {};
    for chunk in body.chunks(size) {
        match decoder.push(chunk, &mut ignore).map_err(|error| error.class)? {
            Progress::Ended => break,
            Progress::Idle | Progress::Empty | Progress::Started | Progress::Complete => {}
        }
    }
    decoder.finish(&mut ignore).map_err(|error| error.class)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop_oneof, proptest};

    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let known = proptest::sample::select(vec![
            "data: ",
            "data: [DONE]\n\n",
            "\n\n",
            "event: error\n",
            "{\"error\":{\"code\":429}}",
            "{\"choices\":[{\"delta\":{\"content\":\"北\"}}]}",
            "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"a\",\"arguments\":\"{}\"}}]}}]}",
            "{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}",
            "{\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\",\"id\":\"x\"}}",
            "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\"}}",
            "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"}}",
            "{\"type\":\"message_stop\"}",
        ]);
        prop_oneof![1 => any::<Vec<u8>>(), 6 => known.prop_map(|text| text.as_bytes().to_vec())]
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_give_one_outcome(first in any::<u8>(), pieces in proptest::collection::vec(piece(), 0..20)) {
            let mut input = vec![first];
            input.extend(pieces.concat());
            super::fuzz_decode(&input);
        }
    }
}
