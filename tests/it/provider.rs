//! Providers against the faults that real servers have, each test named after the fault.

mod calls;
mod finish;
mod http;
mod requests;
mod retries;
mod stalls;
mod streams;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use honeycomb_host::message::{Message, ModelTurn, Part, ToolCall};
use honeycomb_host::provider::decode::{IdSource, Progress, ResponseDecoder, ResponseLimits};
use honeycomb_host::provider::retry::Clock;
use honeycomb_host::provider::settings::{ProviderKind, ProviderSettings, build_with_clock};
use honeycomb_host::provider::wire::WireFormat;
use honeycomb_host::provider::{ModelEvent, ModelRequest, Provider, ProviderError};
use honeycomb_host::tool::{BoxFuture, ToolHints, ToolSpec};
use honeycomb_tests::fakellm::FakeLlm;
use serde_json::json;
use tokio_util::sync::CancellationToken;

pub(crate) const OPENAI: WireFormat = WireFormat::OpenAiChat;
pub(crate) const ANTHROPIC: WireFormat = WireFormat::AnthropicMessages;

/// Ids that count from 1, so that two decodings can be compared.
pub(crate) fn counted_ids() -> IdSource {
    let next = AtomicUsize::new(1);
    Arc::new(move || format!("call_{}", next.fetch_add(1, Ordering::Relaxed)))
}

/// Decodes a body that arrives in these chunks.
pub(crate) fn decode_chunks<'a>(
    format: WireFormat,
    content_type: Option<&str>,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(ModelTurn, Vec<ModelEvent>), ProviderError> {
    let mut events = Vec::new();
    let mut keep = |event| events.push(event);
    let mut decoder = ResponseDecoder::new(format, content_type, counted_ids(), ResponseLimits::default());
    for chunk in chunks {
        if decoder.push(chunk, &mut keep)? == Progress::Ended {
            break;
        }
    }
    let turn = decoder.finish(&mut keep)?;
    Ok((turn, events))
}

/// Decodes a stream.
pub(crate) fn decode(format: WireFormat, body: &str) -> Result<ModelTurn, ProviderError> {
    decode_chunks(format, Some("text/event-stream"), [body.as_bytes()]).map(|(turn, _)| turn)
}

/// The tool calls of a turn.
pub(crate) fn calls(turn: &ModelTurn) -> Vec<&ToolCall> {
    turn.parts.iter().filter_map(|part| if let Part::ToolCall(call) = part { Some(call) } else { None }).collect()
}

/// A clock that does not wait, and remembers how long it was asked to.
#[derive(Debug, Default)]
struct FakeClock {
    waits: std::sync::Mutex<Vec<Duration>>,
}

impl Clock for FakeClock {
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.waits.lock().expect("no panic while locked").push(duration);
        Box::pin(std::future::ready(()))
    }

    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
    }

    fn jitter(&self) -> f64 {
        0.5
    }
}

/// A provider in front of a fake server, with its own clock.
struct Client {
    provider: Arc<dyn Provider>,
    clock: Arc<FakeClock>,
}

impl Client {
    fn new(server: &FakeLlm, kind: ProviderKind) -> Self {
        Self::with(server, kind, |_| {})
    }

    fn with(server: &FakeLlm, kind: ProviderKind, change: impl FnOnce(&mut ProviderSettings)) -> Self {
        let clock = Arc::new(FakeClock::default());
        let mut settings = ProviderSettings::new(kind, "fake-model");
        settings.base_url = Some(server.url());
        change(&mut settings);
        let provider = build_with_clock(settings, Arc::clone(&clock) as Arc<dyn Clock>).expect("valid settings");
        Self { provider, clock }
    }

    async fn ask(&self, request: &ModelRequest) -> (Result<ModelTurn, ProviderError>, Vec<ModelEvent>) {
        let mut events = Vec::new();
        let mut keep = |event| events.push(event);
        let result = self.provider.complete(request, &mut keep, CancellationToken::new()).await;
        (result, events)
    }

    fn waits(&self) -> Vec<Duration> {
        self.clock.waits.lock().expect("no panic while locked").clone()
    }
}

/// A request with one user message and one tool.
pub(crate) fn request(task: &str) -> ModelRequest {
    let tool = ToolSpec {
        name: "weather__get_weather".to_owned(),
        title: None,
        description: "The weather in a city.".to_owned(),
        input_schema: json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}),
        output_schema: None,
        hints: ToolHints::default(),
    };
    ModelRequest {
        system: "You are helpful.".to_owned(),
        messages: vec![Message::user(task)],
        tools: vec![tool],
        max_output_tokens: None,
    }
}
