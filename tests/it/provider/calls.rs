//! Tool calls, however a server numbers, names and repeats their pieces.

use honeycomb_host::message::ToolCall;
use honeycomb_tests::fakellm::render::{anthropic_event, openai_stream};
use serde_json::{Value, json};

use super::{ANTHROPIC, OPENAI, calls, decode, decode_chunks};

/// What a stream with these `tool_calls` deltas calls: names and arguments.
fn streamed(deltas: &[Value]) -> Vec<(String, String)> {
    let deltas: Vec<Value> = deltas.iter().map(|calls| json!({"tool_calls": calls})).collect();
    let turn = decode(OPENAI, &openai_stream(&deltas, "tool_calls")).expect("a turn");
    let pair = |call: &&ToolCall| (call.name.clone(), call.arguments.clone());
    let found = calls(&turn);
    let mut ids: Vec<&str> = found.iter().map(|call| call.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), found.len(), "the host's ids are unique");
    found.iter().map(pair).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned())).collect()
}

#[test]
fn a_missing_or_null_index_continues_the_call() {
    for index in [Value::Null, json!("absent")] {
        let with = |mut call: Value| {
            if index.is_null() {
                call["index"] = Value::Null;
            }
            json!([call])
        };
        let found = streamed(&[
            with(json!({"id": "c1", "function": {"name": "get", "arguments": ""}})),
            with(json!({"function": {"arguments": "{\"a\":"}})),
            with(json!({"function": {"arguments": "1}"}})),
        ]);
        assert_eq!(found, pairs(&[("get", "{\"a\":1}")]));
    }
}

#[test]
fn a_missing_index_does_not_merge_two_calls() {
    let found = streamed(&[
        json!([{"id": "c1", "function": {"name": "get", "arguments": "{\"a\":"}}]),
        json!([{"function": {"arguments": "1}"}}]),
        json!([{"id": "c2", "function": {"name": "put", "arguments": ""}}]),
        json!([{"function": {"arguments": "{}"}}]),
    ]);
    assert_eq!(found, pairs(&[("get", "{\"a\":1}"), ("put", "{}")]));
    let whole = streamed(&[
        json!([{"function": {"name": "get", "arguments": "{\"a\":1}"}}]),
        json!([{"function": {"name": "put", "arguments": "{\"a\":2}"}}]),
        json!([{"function": {"name": "put", "arguments": "{\"a\":3}"}}]),
    ]);
    assert_eq!(whole, pairs(&[("get", "{\"a\":1}"), ("put", "{\"a\":2}"), ("put", "{\"a\":3}")]));
    let together = streamed(&[json!([
        {"function": {"name": "get", "arguments": "{\"a\":1}"}},
        {"function": {"name": "put", "arguments": "{\"a\":2}"}},
    ])]);
    assert_eq!(together, pairs(&[("get", "{\"a\":1}"), ("put", "{\"a\":2}")]));
}

#[test]
fn one_index_for_all_calls_does_not_merge_them() {
    let found = streamed(&[
        json!([{"index": 0, "id": "c1", "function": {"name": "get", "arguments": "{\"a\":1}"}}]),
        json!([{"index": 0, "id": "c2", "function": {"name": "get", "arguments": "{\"a\":2}"}}]),
        json!([{"index": 0, "function": {"name": "put", "arguments": "{\"a\":3}"}}]),
    ]);
    assert_eq!(found, pairs(&[("get", "{\"a\":1}"), ("get", "{\"a\":2}"), ("put", "{\"a\":3}")]));
}

#[test]
fn arguments_before_the_name_wait_for_it() {
    let found = streamed(&[
        json!([{"function": {"arguments": "{\"a\":"}}]),
        json!([{"function": {"arguments": "1}"}}]),
        json!([{"id": "c1", "function": {"name": "get"}}]),
    ]);
    assert_eq!(found, pairs(&[("get", "{\"a\":1}")]));
}

#[test]
fn a_missing_empty_or_null_id_does_not_drop_the_call() {
    for id in [Value::Null, json!(""), json!(" ")] {
        let body = openai_stream(
            &[json!({"tool_calls": [{"index": 0, "id": id, "function": {"name": "get", "arguments": "{}"}}]})],
            "tool_calls",
        );
        let turn = decode(OPENAI, &body).expect("a turn");
        let call = calls(&turn)[0];
        assert_eq!((call.id.as_str(), call.provider_id.as_deref(), call.name.as_str()), ("call_1", None, "get"));
    }
}

#[test]
fn a_new_id_in_every_piece_does_not_split_the_call() {
    for index in [json!(0), Value::Null] {
        let found = streamed(&[
            json!([{"index": index, "id": "r1", "function": {"name": "get", "arguments": ""}}]),
            json!([{"index": index, "id": "r2", "function": {"arguments": "{\"a\":"}}]),
            json!([{"index": index, "id": "r3", "function": {"arguments": "1}"}}]),
        ]);
        assert_eq!(found, pairs(&[("get", "{\"a\":1}")]));
    }
}

#[test]
fn a_name_sent_again_with_every_piece_counts_once() {
    let found = streamed(&[
        json!([{"index": 0, "id": "c", "type": "function", "function": {"name": "read_file", "arguments": "{"}}]),
        json!([{"index": 0, "id": "c", "type": "function", "function": {"name": "read_file", "arguments": "\"a\":1"}}]),
        json!([{"index": 0, "id": "c", "type": "function", "function": {"name": "read_file", "arguments": "}"}}]),
    ]);
    assert_eq!(found, pairs(&[("read_file", "{\"a\":1}")]));
}

#[test]
fn a_name_in_pieces_is_put_together() {
    for index in [json!(0), Value::Null] {
        let found = streamed(&[
            json!([{"index": index, "id": "c", "function": {"name": "edit_ex"}}]),
            json!([{"index": index, "function": {"name": "isting_file"}}]),
            json!([{"index": index, "function": {"arguments": "{}"}}]),
        ]);
        assert_eq!(found, pairs(&[("edit_existing_file", "{}")]));
    }
}

#[test]
fn a_call_is_announced_once_with_its_whole_name() {
    use honeycomb_host::provider::ModelEvent;
    let body = openai_stream(
        &[
            json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "edit_"}}]}),
            json!({"tool_calls": [{"index": 0, "function": {"name": "file"}}]}),
            json!({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}),
            json!({"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}),
        ],
        "tool_calls",
    );
    let (turn, events) = decode_chunks(OPENAI, Some("text/event-stream"), [body.as_bytes()]).expect("a turn");
    let id = calls(&turn)[0].id.clone();
    assert_eq!(events, [ModelEvent::ToolCallStarted { id, name: "edit_file".to_owned() }]);
}

#[test]
fn null_absent_and_empty_arguments_are_an_empty_object() {
    for function in [
        json!({"name": "now"}),
        json!({"name": "now", "arguments": null}),
        json!({"name": "now", "arguments": ""}),
        json!({"name": "now", "arguments": {}}),
        json!({"name": "now", "arguments": "{}"}),
    ] {
        let found = streamed(&[json!([{"index": 0, "id": "c", "function": function}])]);
        assert_eq!(found, pairs(&[("now", "{}")]), "{function}");
    }
    let later = streamed(&[
        json!([{"index": 0, "id": "c", "function": {"name": "get", "arguments": null}}]),
        json!([{"index": 0, "function": {"arguments": "{\"a\":1}"}}]),
    ]);
    assert_eq!(later, pairs(&[("get", "{\"a\":1}")]));
}

#[test]
fn arguments_that_are_an_object_are_taken_as_one() {
    let found = streamed(&[json!([{"index": 0, "id": "c", "function": {"name": "get", "arguments": {"city": "北京"}}}])]);
    assert_eq!(found, pairs(&[("get", "{\"city\":\"北京\"}")]));
    let whole = json!({"choices": [{"finish_reason": "tool_calls", "message": {"content": null, "tool_calls": [
        {"id": "c", "function": {"name": "get", "arguments": {"city": "北京"}}},
    ]}}]});
    let turn = decode(OPENAI, &whole.to_string()).expect("a turn");
    assert_eq!(calls(&turn)[0].arguments, "{\"city\":\"北京\"}");
}

#[test]
fn arguments_that_are_no_object_are_refused_where_arguments_are_checked() {
    for arguments in [json!("[]"), json!([]), json!("5"), json!("{\"a\":")] {
        let body = openai_stream(
            &[json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "get", "arguments": arguments}}]})],
            "tool_calls",
        );
        let turn = decode(OPENAI, &body).expect("a turn");
        assert!(calls(&turn)[0].parse_arguments().is_err(), "{arguments}");
    }
}

#[test]
fn two_calls_with_one_id_both_stand() {
    let found = streamed(&[
        json!([{"index": 0, "id": "same", "function": {"name": "get", "arguments": "{\"a\":1}"}}]),
        json!([{"index": 1, "id": "same", "function": {"name": "get", "arguments": "{\"a\":2}"}}]),
    ]);
    assert_eq!(found, pairs(&[("get", "{\"a\":1}"), ("get", "{\"a\":2}")]));
    let whole = json!({"choices": [{"finish_reason": "tool_calls", "message": {"content": null, "tool_calls": [
        {"id": "same", "function": {"name": "get", "arguments": "{\"a\":1}"}},
        {"id": "same", "function": {"name": "get", "arguments": "{\"a\":2}"}},
    ]}}]});
    assert_eq!(calls(&decode(OPENAI, &whole.to_string()).expect("a turn")).len(), 2);
}

#[test]
fn two_calls_of_one_tool_both_stand() {
    let found = streamed(&[
        json!([{"index": 0, "id": "c1", "function": {"name": "get", "arguments": ""}}]),
        json!([{"index": 1, "id": "c2", "function": {"name": "get", "arguments": ""}}]),
        json!([{"index": 1, "function": {"arguments": "{\"a\":2}"}}]),
        json!([{"index": 0, "function": {"arguments": "{\"a\":1}"}}]),
    ]);
    assert_eq!(found, pairs(&[("get", "{\"a\":1}"), ("get", "{\"a\":2}")]));
}

#[test]
fn a_call_repeated_at_its_end_stands_once() {
    let found = streamed(&[
        json!([{"index": 0, "id": "c", "function": {"name": "get", "arguments": "{\"a\":"}}]),
        json!([{"index": 0, "function": {"arguments": "1}"}}]),
        json!([{"index": 0, "id": "c", "function": {"name": "get", "arguments": "{\"a\":1}"}}]),
    ]);
    assert_eq!(found, pairs(&[("get", "{\"a\":1}")]));
}

#[test]
fn a_repeated_block_start_does_not_repeat_the_call() {
    let start = json!({"type": "content_block_start", "index": 0,
        "content_block": {"type": "tool_use", "id": "toolu_1", "name": "get", "input": {}}});
    let delta = json!({"type": "content_block_delta", "index": 0,
        "delta": {"type": "input_json_delta", "partial_json": "{\"a\":1}"}});
    let end = json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}});
    let body: String = [&start, &start, &delta, &end, &json!({"type": "message_stop"})].map(anthropic_event).concat();
    let turn = decode(ANTHROPIC, &body).expect("a turn");
    let found = calls(&turn);
    assert_eq!((found.len(), found[0].arguments.as_str(), found[0].provider_id.as_deref()), (1, "{\"a\":1}", Some("toolu_1")));
}

#[test]
fn a_function_call_of_the_older_protocol_is_a_call() {
    let body = openai_stream(
        &[json!({"function_call": {"name": "get", "arguments": "{\"a\":"}}), json!({"function_call": {"arguments": "1}"}})],
        "function_call",
    );
    let turn = decode(OPENAI, &body).expect("a turn");
    assert_eq!((calls(&turn).len(), calls(&turn)[0].arguments.as_str()), (1, "{\"a\":1}"));
}

#[test]
fn more_calls_than_any_model_makes_are_a_bad_response() {
    let many: Vec<Value> = (0..200).map(|index| json!({"index": index, "function": {"name": "get"}})).collect();
    let error = decode(OPENAI, &openai_stream(&[json!({"tool_calls": many})], "tool_calls")).expect_err("too many");
    assert_eq!(error.class.as_str(), "bad_response");
}
