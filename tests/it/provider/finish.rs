//! Finish reasons and emptiness: what a decoded turn says, on which the agent then decides.

use honeycomb_host::message::{FinishReason, Part};
use honeycomb_tests::fakellm::render::{anthropic_message, anthropic_stream_of, openai_chunk, openai_stream, openai_text};
use serde_json::json;

use super::{ANTHROPIC, OPENAI, calls, decode};

#[test]
fn a_finish_reason_that_hides_calls_does_not_hide_them() {
    let delta = json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "get", "arguments": "{}"}}]});
    for (reason, expected) in
        [("stop", FinishReason::Stop), ("tool_calls", FinishReason::ToolCalls), ("eos", FinishReason::Other("eos".to_owned()))]
    {
        let turn = decode(OPENAI, &openai_stream(std::slice::from_ref(&delta), reason)).expect("a turn");
        assert_eq!((calls(&turn).len(), &turn.finish_reason), (1, &expected));
    }
}

#[test]
fn a_finish_for_calls_without_calls_is_an_empty_turn() {
    let turn = decode(OPENAI, &openai_stream(&[json!({"content": ""})], "tool_calls")).expect("a turn");
    assert_eq!((turn.parts.len(), turn.finish_reason), (0, FinishReason::ToolCalls));
}

#[test]
fn an_empty_list_of_calls_is_not_a_call() {
    let deltas = [json!({"content": "hi", "tool_calls": []}), json!({"content": "", "tool_calls": null})];
    let turn = decode(OPENAI, &openai_stream(&deltas, "stop")).expect("a turn");
    assert_eq!((turn.text().as_str(), calls(&turn).len()), ("hi", 0));
}

#[test]
fn a_cut_a_filter_and_a_refusal_are_told_apart() {
    for (reason, expected) in [("length", FinishReason::Length), ("content_filter", FinishReason::ContentFilter)] {
        let delta = json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "get", "arguments": "{\"a\":"}}]});
        assert_eq!(decode(OPENAI, &openai_stream(&[delta], reason)).expect("a turn").finish_reason, expected);
    }
    let turn =
        decode(OPENAI, &openai_stream(&[json!({"refusal": "I can"}), json!({"refusal": "not."})], "stop")).expect("a turn");
    assert_eq!((turn.text().as_str(), turn.finish_reason), ("I cannot.", FinishReason::Refusal));
    for (reason, expected) in [
        ("end_turn", FinishReason::Stop),
        ("stop_sequence", FinishReason::Stop),
        ("tool_use", FinishReason::ToolCalls),
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::Length),
        ("refusal", FinishReason::Refusal),
        ("pause_turn", FinishReason::Other("pause_turn".to_owned())),
    ] {
        let message = anthropic_message(&[json!({"type": "text", "text": "x"})], reason);
        assert_eq!(decode(ANTHROPIC, &message.to_string()).expect("a turn").finish_reason, expected);
        assert_eq!(decode(ANTHROPIC, &anthropic_stream_of(&message)).expect("a turn").finish_reason, expected);
    }
}

#[test]
fn an_end_mark_without_a_finish_reason_is_an_answer_without_one() {
    let body = format!("{}data: [DONE]\n\n", openai_chunk(&json!({"content": "hi"}), None));
    let turn = decode(OPENAI, &body).expect("a turn");
    assert_eq!((turn.text().as_str(), turn.finish_reason), ("hi", FinishReason::Missing));
}

#[test]
fn a_shortage_in_the_middle_is_a_failure_and_not_an_end() {
    let body = openai_stream(&[json!({"content": "half"})], "insufficient_system_resource");
    assert_eq!(decode(OPENAI, &body).expect_err("a failure").class.as_str(), "overloaded");
    let body = openai_stream(&[json!({"content": "half"})], "error");
    assert_eq!(decode(OPENAI, &body).expect_err("a failure").class.as_str(), "stream_error");
}

#[test]
fn reasoning_is_kept_beside_the_text_in_the_field_it_came_in() {
    let deltas =
        [json!({"reasoning_content": "想", "reasoning": "想"}), json!({"reasoning_content": "想"}), json!({"content": "好"})];
    let turn = decode(OPENAI, &openai_stream(&deltas, "stop")).expect("a turn");
    let Part::Reasoning(reasoning) = &turn.parts[0] else { panic!("{turn:?}") };
    assert_eq!((reasoning.text.as_str(), reasoning.raw.clone()), ("想想", Some(json!({"reasoning_content": "想想"}))));
    assert_eq!(turn.text(), "好");
    assert_eq!(decode(OPENAI, &openai_text(&["a"])).expect("a turn").parts.len(), 1);
}
