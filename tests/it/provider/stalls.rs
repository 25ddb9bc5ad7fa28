//! Servers that stay alive and say nothing.

use std::time::{Duration, Instant};

use honeycomb_host::provider::ProviderErrorClass;
use honeycomb_host::provider::settings::{ApiKey, ProviderKind, ProviderSettings};
use honeycomb_tests::fakellm::render::{anthropic_event, openai_chunk, openai_error, openai_text};
use honeycomb_tests::fakellm::{Exchange, FakeLlm, Step};
use serde_json::json;

use super::{Client, request};

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(30);

/// An exchange that goes on sending `bytes`, for longer than any test waits.
fn endless(exchange: Exchange, bytes: &str) -> Exchange {
    (0..2000).fold(exchange, |exchange, _| exchange.bytes(bytes).step(Step::Pause(Duration::from_millis(10))))
}

/// How the request fails, and after how long.
async fn fails(kind: ProviderKind, exchange: Exchange, change: impl FnOnce(&mut ProviderSettings)) -> (String, Duration) {
    let server = FakeLlm::start([exchange]).await.expect("a port");
    let client = Client::with(&server, kind, |settings| {
        settings.retries.max_attempts = 1;
        (settings.timeouts.idle, settings.timeouts.stall, settings.timeouts.whole) = (LONG, LONG, LONG);
        change(settings);
    });
    let started = Instant::now();
    let error = client.ask(&request("x")).await.0.expect_err("a timeout");
    assert_eq!(error.class, ProviderErrorClass::Timeout, "{error:?}");
    (error.message, started.elapsed())
}

#[tokio::test]
async fn empty_deltas_do_not_keep_a_dead_stream_alive() {
    let openai = [json!({}), json!({"content": ""}), json!({"role": "assistant", "content": null, "tool_calls": []})];
    let openai = openai.iter().map(|delta| (ProviderKind::OpenAi, openai_chunk(delta, None)));
    let none = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ""}});
    let anthropic = [none, json!({"type": "some_new_event"})].map(|event| (ProviderKind::Anthropic, anthropic_event(&event)));
    for (kind, empty) in openai.chain(anthropic) {
        let first = if kind == ProviderKind::OpenAi {
            openai_chunk(&json!({"content": "a"}), None)
        } else {
            anthropic_event(&json!({"type": "message_start", "message": {}}))
        };
        let exchange = endless(Exchange::stream(first), &empty);
        let (message, after) = fails(kind, exchange, |settings| settings.timeouts.stall = SHORT).await;
        assert!(message.contains("only empty events") && after >= SHORT, "{empty}: {message}");
    }
}

#[tokio::test]
async fn comments_and_pings_are_no_events_at_all() {
    for heartbeat in [": OPENROUTER PROCESSING\n\n", "data:\n\n", "event: ping\ndata: {\"type\": \"ping\"}\n\n", "\n"] {
        let exchange = endless(Exchange::stream(openai_chunk(&json!({"content": "a"}), None)), heartbeat);
        let (message, _) = fails(ProviderKind::OpenAi, exchange, |settings| settings.timeouts.idle = SHORT).await;
        assert!(message.contains("sent no event within 0.2 s"), "{heartbeat:?}: {message}");
    }
}

#[tokio::test]
async fn an_answer_that_trickles_in_has_one_deadline() {
    let exchange = endless(Exchange::new(200, "application/json").bytes("{\"choices\": ["), " ");
    let whole = |settings: &mut ProviderSettings| (settings.stream, settings.timeouts.whole) = (false, SHORT);
    let (message, _) = fails(ProviderKind::OpenAi, exchange, whole).await;
    assert!(message.contains("sent no whole answer"), "{message}");
}

#[tokio::test]
async fn a_stream_whose_content_comes_slowly_is_not_dead() {
    let mut exchange = Exchange::stream("");
    for piece in ["慢", "慢", "来"] {
        exchange = exchange.step(Step::Pause(Duration::from_millis(150))).bytes(openai_chunk(&json!({"content": piece}), None));
    }
    let server = FakeLlm::start([exchange.bytes(openai_text(&["。"]))]).await.expect("a port");
    let client = Client::with(&server, ProviderKind::OpenAi, |settings| {
        (settings.timeouts.idle, settings.timeouts.stall) = (Duration::from_millis(400), Duration::from_millis(400));
    });
    assert_eq!(client.ask(&request("x")).await.0.expect("a turn").text(), "慢慢来。");
}

#[tokio::test]
async fn times_that_no_clock_can_count_mean_never() {
    for stream in [true, false] {
        let server = FakeLlm::start([Exchange::stream(openai_text(&["ok"]))]).await.expect("a port");
        let client = Client::with(&server, ProviderKind::OpenAi, |settings| {
            settings.stream = stream;
            let timeouts = &mut settings.timeouts;
            (timeouts.connect, timeouts.headers, timeouts.idle) = (Duration::MAX, Duration::MAX, Duration::MAX);
            (timeouts.stall, timeouts.whole) = (Duration::MAX, Duration::from_secs(u64::MAX));
            (settings.retries.base, settings.retries.cap) = (Duration::MAX, Duration::MAX);
        });
        assert_eq!(client.ask(&request("x")).await.0.expect("a turn").text(), "ok");
    }
}

#[tokio::test]
async fn an_error_quotes_the_key_in_no_encoding() {
    let texts = [
        "wrong key sk-very-secret-key-42".to_owned(),
        "wrong credentials c2stdmVyeS1zZWNyZXQta2V5LTQy".to_owned(),
        "wrong header QmVhcmVyIHNrLXZlcnktc2VjcmV0LWtleS00Mg==".to_owned(),
        "wrong key 736b2d766572792d7365637265742d6b65792d3432".to_owned(),
        format!("{} sk-very-secret-key-42", "x".repeat(990)),
    ];
    for text in texts {
        let exchange = Exchange::json(400, &openai_error("invalid_request_error", &text));
        let server = FakeLlm::start([exchange]).await.expect("a port");
        let client =
            Client::with(&server, ProviderKind::OpenAi, |settings| settings.api_key = Some(ApiKey::new("sk-very-secret-key-42")));
        let error = client.ask(&request("x")).await.0.expect_err("refused");
        let shown = format!("{error:?}");
        for part in ["sk-very-", "c2stdmVyeS1zZWNyZXQ", "LXZlcnktc2VjcmV0", "736b2d76657279"] {
            assert!(!shown.contains(part), "{shown}");
        }
    }
}
