//! Providers over real connections to a fake server.

use std::time::Duration;

use honeycomb_host::provider::settings::{ApiKey, ProviderKind, ProviderSettings, build};
use honeycomb_host::provider::{ModelEvent, ProviderErrorClass};
use honeycomb_tests::fakellm::render::{
    anthropic_message, anthropic_stream_of, openai_calls, openai_chunk, openai_error, openai_text,
};
use honeycomb_tests::fakellm::{Exchange, FakeLlm, Signal, Step, validate};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Client, calls, request};

#[tokio::test]
async fn a_chat_completion_streams_over_http() {
    let server = FakeLlm::strict([Exchange::stream(openai_text(&["你", "好"]))], validate::openai).await.expect("a port");
    let client = Client::with(&server, ProviderKind::OpenAi, |settings| {
        settings.api_key = Some(ApiKey::new("sk-1"));
        settings.extra_headers = vec![("X-Title".to_owned(), "honeycomb".to_owned())];
        settings.temperature = Some(0.5);
        settings.max_output_tokens = Some(99);
    });
    let (result, events) = client.ask(&request("北京天气怎么样？")).await;
    assert_eq!(result.expect("a turn").text(), "你好");
    assert_eq!(events.len(), 2);
    let sent = &server.requests()[0];
    assert_eq!((sent.method.as_str(), sent.path.as_str()), ("POST", "/chat/completions"));
    assert_eq!((sent.header("authorization"), sent.header("x-title")), (Some("Bearer sk-1"), Some("honeycomb")));
    assert_eq!((&sent.body["max_tokens"], &sent.body["temperature"]), (&json!(99), &json!(0.5)));
    assert_eq!(sent.body["stream_options"], json!({"include_usage": true}));
}

#[tokio::test]
async fn a_message_streams_over_http() {
    let blocks =
        [json!({"type": "text", "text": "ok"}), json!({"type": "tool_use", "id": "t1", "name": "get", "input": {"a": 1}})];
    let body = anthropic_stream_of(&anthropic_message(&blocks, "tool_use"));
    let server = FakeLlm::strict([Exchange::stream(body)], validate::anthropic).await.expect("a port");
    let client = Client::with(&server, ProviderKind::Anthropic, |settings| settings.api_key = Some(ApiKey::new("k")));
    let (result, _) = client.ask(&request("hi")).await;
    assert_eq!(calls(&result.expect("a turn")).len(), 1);
    let sent = &server.requests()[0];
    assert_eq!((sent.path.as_str(), sent.header("x-api-key")), ("/v1/messages", Some("k")));
    assert_eq!((sent.header("anthropic-version"), &sent.body["max_tokens"]), (Some("2023-06-01"), &json!(8192)));
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_is_the_same_answer() {
    let chat = json!({"choices": [{"finish_reason": "stop", "message": {"content": "hi"}}]});
    let server = FakeLlm::start([Exchange::json(200, &chat)]).await.expect("a port");
    let client = Client::with(&server, ProviderKind::OpenAi, |settings| settings.stream = false);
    assert_eq!(client.ask(&request("x")).await.0.expect("a turn").text(), "hi");
    assert!(server.requests()[0].body.get("stream").is_none());
}

#[tokio::test]
async fn what_the_strict_server_refuses_is_an_invalid_request() {
    fn refuse(_: &serde_json::Value) -> Result<(), String> {
        Err("no".to_owned())
    }
    let server = FakeLlm::strict([], refuse).await.expect("a port");
    let error = Client::new(&server, ProviderKind::OpenAi).ask(&request("x")).await.0.expect_err("refused");
    assert_eq!((error.class, error.status), (ProviderErrorClass::InvalidRequest, Some(400)));
    assert_eq!(server.requests().len(), 1, "a 400 is not sent again");
}

#[tokio::test]
async fn an_open_stream_that_goes_silent_times_out_even_when_heartbeats_flow() {
    let never = Signal::default();
    let beat = Exchange::stream(openai_chunk(&json!({"content": "a"}), None));
    // 40 heartbeats, each after a pause of its own, keep the bytes flowing for longer than the idle limit.
    let beats = (0..40).fold(beat, |exchange, _| exchange.bytes(": beat\n\n").step(Step::Pause(Duration::from_millis(10))));
    let server = FakeLlm::start([beats.step(Step::Wait(never))]).await.expect("a port");
    let client = Client::with(&server, ProviderKind::OpenAi, |settings| {
        settings.timeouts.idle = Duration::from_millis(100);
        settings.retries.max_attempts = 1;
    });
    let (result, events) = client.ask(&request("x")).await;
    let error = result.expect_err("silent");
    assert_eq!((error.class, error.response_started), (ProviderErrorClass::Timeout, true));
    assert_eq!(events.len(), 1);
}

#[tokio::test]
async fn headers_that_never_come_time_out() {
    let never = Signal::default();
    let server = FakeLlm::start([Exchange::new(200, "text/event-stream").before_headers(never)]).await.expect("a port");
    let client = Client::with(&server, ProviderKind::OpenAi, |settings| {
        settings.timeouts.headers = Duration::from_millis(50);
        settings.retries.max_attempts = 1;
    });
    assert_eq!(client.ask(&request("x")).await.0.expect_err("no headers").class, ProviderErrorClass::Timeout);
}

#[tokio::test]
async fn a_complete_answer_does_not_wait_for_an_end_mark_that_never_comes() {
    let finish = openai_chunk(&json!({"content": "done"}), Some("stop"));
    let server = FakeLlm::start([Exchange::stream(finish).step(Step::Wait(Signal::default()))]).await.expect("a port");
    let client = Client::with(&server, ProviderKind::OpenAi, |settings| settings.timeouts.idle = Duration::from_millis(50));
    assert_eq!(client.ask(&request("x")).await.0.expect("a turn").text(), "done");
}

#[tokio::test]
async fn a_connection_that_breaks_after_a_complete_answer_does_not_matter() {
    let finish = openai_chunk(&json!({"content": "done"}), Some("stop"));
    let exchange = Exchange::new(200, "text/event-stream").header("content-length", "100000").bytes(finish);
    let server = FakeLlm::start([exchange]).await.expect("a port");
    assert_eq!(Client::new(&server, ProviderKind::OpenAi).ask(&request("x")).await.0.expect("a turn").text(), "done");
}

#[tokio::test]
async fn cancelling_ends_the_request_at_once() {
    let server =
        FakeLlm::start([Exchange::stream(openai_chunk(&json!({"content": "a"}), None)).step(Step::Wait(Signal::default()))])
            .await
            .expect("a port");
    let client = Client::new(&server, ProviderKind::OpenAi);
    let cancel = CancellationToken::new();
    let on_first = cancel.clone();
    let mut events = move |_: ModelEvent| on_first.cancel();
    let error = client.provider.complete(&request("x"), &mut events, cancel).await.expect_err("cancelled");
    assert_eq!(error.class, ProviderErrorClass::Cancelled);
}

#[tokio::test]
async fn redirects_are_not_followed_and_keys_do_not_leak() {
    let other = FakeLlm::start([]).await.expect("a port");
    let quoting = openai_error("invalid_request_error", "Incorrect API key provided: sk-very-secret.");
    let redirect = Exchange::new(307, "text/plain").header("location", &format!("{}/chat/completions", other.url()));
    let server = FakeLlm::start([redirect, Exchange::json(401, &quoting)]).await.expect("a port");
    let client = Client::with(&server, ProviderKind::OpenAi, |settings| settings.api_key = Some(ApiKey::new("sk-very-secret")));
    let error = client.ask(&request("x")).await.0.expect_err("a redirect");
    assert_eq!((error.class, error.status), (ProviderErrorClass::InvalidRequest, Some(307)));
    assert!(other.requests().is_empty());
    let error = client.ask(&request("x")).await.0.expect_err("a wrong key");
    assert_eq!(error.class, ProviderErrorClass::Auth);
    assert!(error.message.contains("[secret]") && !format!("{error:?}").contains("sk-very-secret"), "{error:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_network_error_with_its_address() {
    let mut settings = ProviderSettings::new(ProviderKind::OpenAi, "m");
    settings.base_url = Some("http://127.0.0.1:1/v1".to_owned());
    settings.retries.max_attempts = 1;
    let provider = build(settings).expect("valid");
    let error = provider.complete(&request("x"), &mut |_| {}, CancellationToken::new()).await.expect_err("nobody");
    assert_eq!(error.class, ProviderErrorClass::Network);
    assert!(error.message.contains("cannot connect to `http://127.0.0.1:1`") && error.hint.is_some(), "{error:?}");
}

#[tokio::test]
async fn requests_beyond_the_concurrency_limit_wait_their_turn() {
    let (go, second) = (Signal::default(), Signal::default());
    let held = Exchange::new(200, "text/event-stream").bytes(": x\n\n").step(Step::Wait(go.clone())).bytes(openai_text(&["1"]));
    let server = FakeLlm::start([held, Exchange::stream(openai_text(&["2"]))]).await.expect("a port");
    let client = Client::with(&server, ProviderKind::OpenAi, |settings| settings.concurrency = 1);
    let (task, other) = (request("x"), request("y"));
    let first = client.ask(&task);
    let next = async {
        // Asked while the first is under way: the first request is at the server, and its answer is held back.
        while server.requests().is_empty() {
            tokio::task::yield_now().await;
        }
        let asked = client.ask(&other);
        let mut asked = std::pin::pin!(asked);
        for _ in 0..100 {
            tokio::select! {
                biased;
                _ = &mut asked => panic!("the limit is one"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(server.requests().len(), 1);
        go.fire();
        asked.await
    };
    let (first, next) = tokio::join!(first, next);
    assert_eq!((first.0.expect("1").text().as_str(), next.0.expect("2").text().as_str()), ("1", "2"));
    second.fire();
}

#[tokio::test]
async fn tool_results_go_back_with_the_ids_that_the_provider_gave() {
    use honeycomb_host::message::{Message, Role, ToolResult, ToolStatus};
    let answers =
        [Exchange::stream(openai_calls(&[("c1", "get", "{}"), ("c1", "get", "{}")])), Exchange::stream(openai_text(&["ok"]))];
    let server = FakeLlm::strict(answers, validate::openai).await.expect("a port");
    let client = Client::new(&server, ProviderKind::OpenAi);
    let mut asked = request("x");
    let turn = client.ask(&asked).await.0.expect("calls");
    let results = calls(&turn).into_iter().map(|call| {
        let (call_id, name, text) = (call.id.clone(), call.name.clone(), format!("for {}", call.id));
        honeycomb_host::message::Part::ToolResult(ToolResult { call_id, name, status: ToolStatus::Ok, text })
    });
    let results = Message { role: Role::Tool, parts: results.collect() };
    asked.messages.extend([Message { role: Role::Assistant, parts: turn.parts.clone() }, results]);
    assert_eq!(client.ask(&asked).await.0.expect("an answer").text(), "ok");
    let messages = server.requests()[1].body["messages"].clone();
    let second_id = calls(&turn)[1].id.clone();
    let ids = |pointer: &str| messages.pointer(pointer).and_then(|id| id.as_str()).unwrap_or_default().to_owned();
    assert_eq!((ids("/2/tool_calls/0/id"), ids("/3/tool_call_id")), ("c1".to_owned(), "c1".to_owned()));
    assert_eq!((ids("/2/tool_calls/1/id"), ids("/4/tool_call_id")), (second_id.clone(), second_id));
}
