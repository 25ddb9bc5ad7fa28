//! What is sent again, when, and what happens to what was shown already.

use std::time::Duration;

use honeycomb_host::provider::settings::ProviderKind;
use honeycomb_host::provider::{ModelEvent, ProviderErrorClass};
use honeycomb_tests::fakellm::render::{anthropic_error, anthropic_event, data, openai_chunk, openai_error, openai_text};
use honeycomb_tests::fakellm::{Exchange, FakeLlm, Signal, Step};
use serde_json::json;

use super::{Client, request};

fn busy() -> Exchange {
    Exchange::json(503, &openai_error("server_error", "busy"))
}

fn fine() -> Exchange {
    Exchange::stream(openai_text(&["fine"]))
}

fn discards(events: &[ModelEvent]) -> Vec<bool> {
    events.iter().filter_map(|event| if let ModelEvent::Retry { discard, .. } = event { Some(*discard) } else { None }).collect()
}

#[tokio::test]
async fn an_overloaded_server_is_asked_again_with_growing_waits() {
    let server = FakeLlm::start([busy(), busy(), busy(), fine()]).await.expect("a port");
    let client = Client::new(&server, ProviderKind::OpenAi);
    let (result, events) = client.ask(&request("x")).await;
    assert_eq!(result.expect("a turn").text(), "fine");
    assert_eq!(client.waits(), [250, 500, 1000].map(Duration::from_millis));
    assert_eq!(discards(&events), [false, false, false]);
    assert!(matches!(&events[0], ModelEvent::Retry { attempt: 2, delay_ms: 250, reason, .. } if reason.contains("busy")));
}

#[tokio::test]
async fn five_attempts_are_enough() {
    let server = FakeLlm::start((0..9).map(|_| busy())).await.expect("a port");
    let error = Client::new(&server, ProviderKind::OpenAi).ask(&request("x")).await.0.expect_err("busy");
    assert_eq!((error.class, server.requests().len()), (ProviderErrorClass::Overloaded, 5));
}

#[tokio::test]
async fn retry_after_is_a_floor_in_every_form_and_zero_is_now() {
    let limited = |name: &str, value: &str| Exchange::json(429, &openai_error("rate_limit_error", "slow")).header(name, value);
    let answers = [
        limited("retry-after", "7"),
        limited("retry-after-ms", "1500"),
        // The test's clock stands at 2001-09-09 01:46:40.
        limited("retry-after", "Sun, 09 Sep 2001 01:47:40 GMT"),
        limited("retry-after", "0"),
        fine(),
    ];
    let server = FakeLlm::start(answers).await.expect("a port");
    let client = Client::new(&server, ProviderKind::OpenAi);
    client.ask(&request("x")).await.0.expect("a turn");
    let waits = client.waits();
    for (wait, floor) in waits.iter().zip([7000, 1500, 60_000, 0].map(Duration::from_millis)) {
        assert!(*wait >= floor && *wait <= floor + Duration::from_millis(500), "{waits:?}");
    }
    assert_eq!(waits.len(), 4);
}

#[tokio::test]
async fn what_would_fail_again_is_not_sent_again() {
    for status in [400, 401, 403, 404, 422] {
        let refusal = Exchange::json(status, &openai_error("x", "no")).header("retry-after", "0");
        let server = FakeLlm::start([refusal, fine()]).await.expect("a port");
        let client = Client::new(&server, ProviderKind::OpenAi);
        client.ask(&request("x")).await.0.expect_err("refused");
        assert_eq!((server.requests().len(), client.waits().len()), (1, 0), "{status}");
    }
}

#[tokio::test]
async fn an_error_with_an_empty_body_is_not_an_empty_answer() {
    let server = FakeLlm::start([Exchange::new(500, "text/plain"), fine()]).await.expect("a port");
    let (result, events) = Client::new(&server, ProviderKind::OpenAi).ask(&request("x")).await;
    assert_eq!((result.expect("a turn").text().as_str(), discards(&events)), ("fine", vec![false]));
}

#[tokio::test]
async fn a_stall_before_any_event_is_retried_without_a_word() {
    let stall = Exchange::new(200, "text/event-stream").bytes(": hello\n\n").step(Step::Wait(Signal::default()));
    let server = FakeLlm::start([stall, fine()]).await.expect("a port");
    let client = Client::with(&server, ProviderKind::OpenAi, |settings| settings.timeouts.idle = Duration::from_millis(60));
    let (result, events) = client.ask(&request("x")).await;
    assert_eq!((result.expect("a turn").text().as_str(), discards(&events)), ("fine", vec![false]));
}

#[tokio::test]
async fn output_already_shown_is_taken_back_and_never_repeated_silently() {
    let half = || openai_chunk(&json!({"content": "half"}), None);
    let calls =
        openai_chunk(&json!({"tool_calls": [{"index": 0, "id": "dead", "function": {"name": "get", "arguments": "{}"}}]}), None);
    let answers = [
        Exchange::stream(half()),
        Exchange::stream(half()).step(Step::Reset),
        Exchange::stream(format!("{}{}", half(), data(&openai_error("server_error", "boom")))),
        Exchange::stream(calls),
        fine(),
    ];
    let server = FakeLlm::start(answers).await.expect("a port");
    let (result, events) = Client::new(&server, ProviderKind::OpenAi).ask(&request("x")).await;
    let turn = result.expect("a turn");
    // Nothing of the dead attempts is in the turn, and each retry says what to do with what they showed. A reset may overtake it.
    assert_eq!((turn.text().as_str(), turn.parts.len()), ("fine", 1));
    let shown = discards(&events);
    assert_eq!((shown.len(), shown[0], shown[2], shown[3]), (4, true, true, true));
    let after_last = events.iter().rposition(|event| matches!(event, ModelEvent::Retry { .. })).expect("present");
    assert_eq!(events[after_last + 1..], [ModelEvent::TextDelta { text: "fine".to_owned() }]);
}

#[tokio::test]
async fn an_overload_inside_a_stream_is_retried() {
    let overloaded = Exchange::stream(anthropic_event(&anthropic_error("overloaded_error", "Overloaded")));
    let message = honeycomb_tests::fakellm::render::anthropic_message(&[json!({"type": "text", "text": "ok"})], "end_turn");
    let answer = Exchange::stream(honeycomb_tests::fakellm::render::anthropic_stream_of(&message));
    let server = FakeLlm::start([overloaded, answer]).await.expect("a port");
    let client = Client::new(&server, ProviderKind::Anthropic);
    assert_eq!(client.ask(&request("x")).await.0.expect("a turn").text(), "ok");
    assert_eq!(client.waits().len(), 1);
}

#[tokio::test]
async fn a_window_that_is_too_small_is_told_from_a_rate_limit() {
    let answers = [
        Exchange::json(429, &openai_error("tokens", "Too many tokens, please wait before trying again.")),
        Exchange::json(400, &openai_error("invalid_request_error", "This model's maximum context length is 8 tokens.")),
    ];
    let server = FakeLlm::start(answers).await.expect("a port");
    let client = Client::new(&server, ProviderKind::OpenAi);
    let error = client.ask(&request("x")).await.0.expect_err("too large");
    assert_eq!((error.class, client.waits().len()), (ProviderErrorClass::ContextOverflow, 1));
}
