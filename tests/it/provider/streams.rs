//! Streams: cut anywhere, full of heartbeats, with errors inside, and without an end.

use honeycomb_host::provider::decode::{ResponseDecoder, ResponseLimits};
use honeycomb_host::provider::{ModelEvent, ProviderErrorClass};
use honeycomb_tests::fakellm::render::{
    DONE, anthropic_error, anthropic_event, anthropic_message, anthropic_stream_of, data, openai_calls, openai_chunk,
    openai_error, openai_text, openai_usage,
};
use serde_json::{Value, json};

use super::{ANTHROPIC, OPENAI, calls, counted_ids, decode, decode_chunks};

fn class(format: honeycomb_host::provider::wire::WireFormat, body: &str) -> ProviderErrorClass {
    decode(format, body).expect_err(body).class
}

fn anthropic_body() -> String {
    let thinking = json!({"type": "thinking", "thinking": "想一想🤔", "signature": "c2ln+/=="});
    let text = json!({"type": "text", "text": "北京 👩‍👧 é"});
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "get", "input": {"city": "北京"}});
    anthropic_stream_of(&anthropic_message(&[thinking, text, call], "tool_use"))
}

#[test]
fn characters_split_between_chunks_are_whole() {
    let chat = format!(
        "{}{}",
        openai_chunk(&json!({"content": "北京 👩‍👧 é"}), None),
        openai_calls(&[("c1", "get", "{\"city\":\"北京\"}")])
    );
    for (format, body) in [(OPENAI, chat), (ANTHROPIC, anthropic_body())] {
        let bytes = body.as_bytes();
        let whole = decode_chunks(format, None, [bytes]).expect("a turn");
        assert!(whole.0.text().contains("北京 👩‍👧 é"));
        for cut in 0..=bytes.len() {
            let pieces = decode_chunks(format, None, [&bytes[..cut], &bytes[cut..]]).expect("a turn");
            assert_eq!(pieces, whole, "cut at {cut}");
        }
        assert_eq!(decode_chunks(format, None, bytes.chunks(1)).expect("a turn"), whole);
    }
}

#[test]
fn heartbeats_and_control_only_events_say_nothing() {
    let noise = ": OPENROUTER PROCESSING\n\n:\n\nretry: 3000\n\nid: 7\n\nevent: ping\n\ndata:\n\n";
    let text = openai_text(&["a", "b"]).replace("\n\n", &format!("\n\n{noise}"));
    assert_eq!(decode(OPENAI, &format!("{noise}{text}")).expect("a turn").text(), "ab");
    let ping = anthropic_event(&json!({"type": "ping"}));
    let body = anthropic_body().replace("\n\n", &format!("\n\n{noise}{ping}"));
    assert_eq!(decode(ANTHROPIC, &body).expect("a turn"), decode(ANTHROPIC, &anthropic_body()).expect("a turn"));
}

#[test]
fn a_byte_order_mark_and_every_line_end_are_fine() {
    for end in ["\n", "\r\n", "\r"] {
        let body = format!("\u{feff}{}", openai_text(&["a", "b"]).replace('\n', end));
        assert_eq!(decode(OPENAI, &body).expect("a turn").text(), "ab");
    }
}

#[test]
fn a_stream_without_data_is_an_error_and_not_an_empty_answer() {
    for body in ["", "\n\n", ": nothing\n\n", DONE, ": x\n\ndata: [DONE]\n\n"] {
        assert_eq!(class(OPENAI, body), ProviderErrorClass::StreamIncomplete, "{body:?}");
        assert_eq!(class(ANTHROPIC, body), ProviderErrorClass::StreamIncomplete, "{body:?}");
    }
    assert_eq!(class(OPENAI, &openai_usage(1, 1)), ProviderErrorClass::StreamIncomplete);
}

#[test]
fn an_error_inside_a_stream_is_not_an_end() {
    let start = openai_chunk(&json!({"content": "half"}), None);
    let in_band = format!("{start}{}", data(&openai_error("server_error", "boom")));
    assert_eq!(class(OPENAI, &in_band), ProviderErrorClass::StreamError);
    let numbered = format!("{start}{}{DONE}", data(&json!({"error": {"code": 502, "message": "upstream"}, "choices": []})));
    assert_eq!(class(OPENAI, &numbered), ProviderErrorClass::Overloaded);
    let named = format!("{start}event: error\ndata: {{\"message\":\"boom\"}}\n\n");
    assert_eq!(class(OPENAI, &named), ProviderErrorClass::StreamError);
    for (kind, expected) in [
        ("overloaded_error", ProviderErrorClass::Overloaded),
        ("rate_limit_error", ProviderErrorClass::RateLimited),
        ("api_error", ProviderErrorClass::StreamError),
        ("authentication_error", ProviderErrorClass::Auth),
        ("invalid_request_error", ProviderErrorClass::InvalidRequest),
    ] {
        let cut = anthropic_body().find("event: message_delta").expect("present");
        let body = format!("{}{}", &anthropic_body()[..cut], anthropic_event(&anthropic_error(kind, "boom")));
        assert_eq!(class(ANTHROPIC, &body), expected, "{kind}");
    }
}

#[test]
fn an_error_with_status_200_and_any_content_type_is_an_error() {
    let body = openai_error("server_error", "boom").to_string();
    for content_type in [None, Some("text/event-stream"), Some("application/json"), Some("text/plain")] {
        let error = decode_chunks(OPENAI, content_type, [body.as_bytes()]).expect_err("an error");
        assert_eq!(error.class, ProviderErrorClass::StreamError, "{content_type:?}");
        assert!(error.message.contains("boom"));
    }
}

#[test]
fn a_body_that_is_neither_json_nor_a_stream_is_a_bad_response() {
    for content_type in [None, Some("text/html; charset=utf-8"), Some("text/plain"), Some("image/png")] {
        let error = decode_chunks(OPENAI, content_type, [&b"<html>login</html>"[..]]).expect_err("html");
        assert_eq!(error.class, ProviderErrorClass::BadResponse, "{content_type:?}");
        assert!(error.hint.is_some_and(|hint| hint.contains("base URL")));
    }
    for body in ["{\"id\":1}", "[]", "{\"choices\":[]}", "{]"] {
        assert_eq!(class(OPENAI, body), ProviderErrorClass::BadResponse, "{body}");
    }
    assert_eq!(class(OPENAI, "data: {nonsense}\n\n"), ProviderErrorClass::BadResponse);
}

#[test]
fn a_json_answer_to_a_request_for_a_stream_is_an_answer() {
    let body = json!({"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}]}).to_string();
    let (turn, events) = decode_chunks(OPENAI, Some("application/json"), [body.as_bytes()]).expect("a turn");
    assert_eq!((turn.text().as_str(), events), ("hi", vec![ModelEvent::TextDelta { text: "hi".to_owned() }]));
}

#[test]
fn an_end_before_the_finish_is_incomplete_wherever_it_comes() {
    let finish_at = |body: &str, mark: &str| body.find(mark).expect("present");
    let chat = openai_text(&["a", "b"]);
    let complete = finish_at(&chat, "\"finish_reason\":\"stop\"") + "\"finish_reason\":\"stop\"".len();
    for cut in 1..complete {
        assert_eq!(class(OPENAI, &chat[..cut]), ProviderErrorClass::StreamIncomplete, "cut at {cut}");
    }
    let message = anthropic_body();
    let complete = finish_at(&message, "\"stop_reason\":\"tool_use\"");
    let cuts = (1..complete).filter(|cut| message.is_char_boundary(*cut));
    for cut in cuts {
        assert_eq!(class(ANTHROPIC, &message[..cut]), ProviderErrorClass::StreamIncomplete, "cut at {cut}");
    }
}

#[test]
fn an_end_after_the_finish_is_complete() {
    let chat = openai_text(&["a", "b"]);
    let end_of_finish =
        chat.find("data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"choices\":[]").expect("usage");
    assert_eq!(decode(OPENAI, &chat[..end_of_finish]).expect("a turn").text(), "ab");
    assert_eq!(decode(OPENAI, chat[..end_of_finish].trim_end()).expect("without the last blank line").text(), "ab");
    let message = anthropic_body();
    let cut = message.find("event: message_stop").expect("present");
    assert_eq!(calls(&decode(ANTHROPIC, &message[..cut]).expect("a turn")).len(), 1);
}

#[test]
fn a_usage_chunk_without_choices_is_counted_wherever_it_stands() {
    let text = openai_text(&["a"]);
    let (before_usage, _) = text.split_once(&openai_usage(10, 5)).expect("present");
    for body in [format!("{}{before_usage}{DONE}", openai_usage(10, 5)), format!("{before_usage}{}{DONE}", openai_usage(10, 5))] {
        let usage = decode(OPENAI, &body).expect("a turn").usage;
        assert_eq!((usage.input_tokens, usage.output_tokens), (10, 5));
    }
}

#[test]
fn cumulative_usage_is_set_and_not_added_up() {
    let start = json!({"type": "message_start", "message": {"usage":
        {"input_tokens": 10, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 1}}});
    let block = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "hi"}});
    let delta = |output: u64| {
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
            "usage": {"input_tokens": 10, "output_tokens": output}})
    };
    let events = [start, block, delta(5), delta(8), json!({"type": "message_stop"})];
    let body: String = events.iter().map(anthropic_event).collect();
    let usage = decode(ANTHROPIC, &body).expect("a turn").usage;
    assert_eq!((usage.input_tokens, usage.cached_input_tokens, usage.output_tokens), (17, 4, 8));
}

#[test]
fn unknown_events_blocks_and_fields_are_tolerated() {
    let server_tool = json!({"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}});
    let blocks = [server_tool, json!({"type": "new_thing", "x": [1]}), json!({"type": "text", "text": "hi"})];
    let message = anthropic_message(&blocks, "end_turn");
    let stream = format!("{}{}", anthropic_event(&json!({"type": "new_event"})), anthropic_stream_of(&message));
    for body in [message.to_string(), stream] {
        assert_eq!(decode(ANTHROPIC, &body).expect("a turn").parts, [honeycomb_host::message::Part::text("hi")]);
    }
}

#[test]
fn giant_events_and_bodies_are_refused() {
    let limits = ResponseLimits { body: 4000, event: 1000 };
    let try_body = |body: &str| -> Option<ProviderErrorClass> {
        let mut decoder = ResponseDecoder::new(OPENAI, Some("text/event-stream"), counted_ids(), limits);
        let mut ignore = |_: ModelEvent| {};
        body.as_bytes()
            .chunks(100)
            .try_for_each(|chunk| decoder.push(chunk, &mut ignore).map(|_| ()))
            .err()
            .map(|error| error.class)
    };
    assert_eq!(try_body(&openai_chunk(&json!({"content": "x".repeat(2000)}), None)), Some(ProviderErrorClass::BadResponse));
    assert_eq!(
        try_body(&openai_chunk(&json!({"content": "x".repeat(100)}), None).repeat(30)),
        Some(ProviderErrorClass::BadResponse)
    );
    assert_eq!(try_body(&openai_chunk(&json!({"content": "x".repeat(100)}), None).repeat(5)), None);
}

#[test]
fn other_choices_do_not_garble_the_first() {
    let chunk = |index: u64, text: &str| {
        data(&json!({"choices": [{"index": index, "delta": {"content": text}, "finish_reason": Value::Null}]}))
    };
    let finish = openai_chunk(&json!({}), Some("stop"));
    let body = [chunk(0, "a"), chunk(1, "x"), chunk(0, "b"), finish].concat();
    assert_eq!(decode(OPENAI, &body).expect("a turn").text(), "ab");
}
