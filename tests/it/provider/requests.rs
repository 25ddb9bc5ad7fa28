//! Requests: whatever the conversation looks like, the strict server accepts them.

use honeycomb_host::message::{Message, Part, Reasoning, Role, ToolCall, ToolResult, ToolStatus};
use honeycomb_host::provider::ModelRequest;
use honeycomb_host::provider::quirks::{Quirks, ReasoningReplay};
use honeycomb_host::provider::wire::{WireFormat, request_body};
use honeycomb_tests::fakellm::validate;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use serde_json::{Value, json};

use super::{ANTHROPIC, OPENAI, request};

fn body(format: WireFormat, request: &ModelRequest) -> Value {
    request_body(format, "m", Quirks::default(), request)
}

fn accept(request: &ModelRequest) {
    for quirks in
        [Quirks::default(), Quirks { prompt_cache: true, reasoning_replay: ReasoningReplay::Always, ..Quirks::default() }]
    {
        let chat = request_body(OPENAI, "m", quirks.clone(), request);
        validate::openai(&chat).unwrap_or_else(|refusal| panic!("{refusal}\n{chat:#}"));
        let message = request_body(ANTHROPIC, "m", quirks, request);
        validate::anthropic(&message).unwrap_or_else(|refusal| panic!("{refusal}\n{message:#}"));
    }
}

fn call(id: &str, provider_id: Option<&str>, name: &str, arguments: &str) -> Part {
    let provider_id = provider_id.map(str::to_owned);
    Part::ToolCall(ToolCall { id: id.to_owned(), provider_id, name: name.to_owned(), arguments: arguments.to_owned() })
}

fn result(call_id: &str, status: ToolStatus, text: &str) -> Part {
    Part::ToolResult(ToolResult { call_id: call_id.to_owned(), name: "t".to_owned(), status, text: text.to_owned() })
}

fn conversation(messages: Vec<Message>) -> ModelRequest {
    let mut request = request("start");
    request.messages.extend(messages);
    request
}

fn assistant(parts: Vec<Part>) -> Message {
    Message { role: Role::Assistant, parts }
}

#[test]
fn broken_arguments_do_not_break_every_later_request() {
    for arguments in ["{\"cut\":", "[]", "5", "", "null", "{\"a\":1,\"a\":2}", "nonsense"] {
        let request = conversation(vec![
            assistant(vec![call("h1", Some("p1"), "get", arguments)]),
            Message { role: Role::Tool, parts: vec![result("h1", ToolStatus::Error, "no")] },
        ]);
        accept(&request);
    }
}

#[test]
fn an_interrupted_session_is_usable() {
    let request = conversation(vec![
        assistant(vec![call("h1", Some("p1"), "get", "{}"), call("h2", Some("p2"), "get", "{}")]),
        Message { role: Role::Tool, parts: vec![result("h2", ToolStatus::Ok, "two")] },
        Message::user("go on"),
    ]);
    accept(&request);
    let chat = body(OPENAI, &request);
    assert_eq!(chat.pointer("/messages/3/tool_call_id"), Some(&json!("p1")));
    assert!(chat.pointer("/messages/3/content").and_then(Value::as_str).is_some_and(|text| text.contains("interrupted")));
    // The results lead the user message, and what the user says comes after them.
    let kinds: Vec<Value> = body(ANTHROPIC, &request)["messages"][2]["content"]
        .as_array()
        .expect("blocks")
        .iter()
        .map(|block| block["type"].clone())
        .collect();
    assert_eq!(kinds, ["tool_result", "tool_result", "text"]);
}

#[test]
fn a_conversation_that_ends_or_begins_with_the_model_gets_a_user() {
    let mut request = conversation(vec![assistant(vec![Part::text("done")])]);
    accept(&request);
    request.messages.remove(0);
    accept(&request);
    request.messages.clear();
    let message = body(ANTHROPIC, &request);
    validate::anthropic(&message).unwrap_or_else(|refusal| panic!("{refusal}"));
}

#[test]
fn empty_text_nul_and_illegal_names_stay_off_the_wire() {
    let request = conversation(vec![
        assistant(vec![Part::text(""), Part::text(" \n"), call("h 1", Some("p\u{0}1"), "天气 get\u{0}", "{}")]),
        Message { role: Role::Tool, parts: vec![result("h 1", ToolStatus::Ok, " ")] },
        Message::user("a\u{0}b"),
        Message::user(""),
    ]);
    accept(&request);
    assert!(!body(OPENAI, &request).to_string().contains("\\u0000"));
    // Text that merely spells the escape is left alone.
    let spelled = conversation(vec![Message::user("the text \\u0000 is fine")]);
    assert!(body(OPENAI, &spelled).to_string().contains("the text \\\\u0000 is fine"));
}

#[test]
fn schemas_without_properties_get_some() {
    let mut request = request("x");
    for schema in [json!({"type": "object"}), json!({}), json!(true), json!({"type": "object", "properties": null})] {
        request.tools[0].input_schema = schema;
        accept(&request);
    }
}

#[test]
fn a_last_turn_without_tools_still_defines_those_that_were_called() {
    let mut request = conversation(vec![
        assistant(vec![call("h1", None, "get", "{}")]),
        Message { role: Role::Tool, parts: vec![result("h1", ToolStatus::Denied, "no")] },
    ]);
    request.tools.clear();
    accept(&request);
    let message = body(ANTHROPIC, &request);
    assert_eq!((&message["tool_choice"], &message["tools"][0]["name"]), (&json!({"type": "none"}), &json!("get")));
    assert_eq!(message.pointer("/messages/2/content/0/is_error"), Some(&json!(true)));
    assert!(body(OPENAI, &request).get("tools").is_none());
}

#[test]
fn signed_thinking_goes_back_byte_for_byte_or_not_at_all() {
    let signed = json!({"type": "thinking", "thinking": " 想 \u{1f914}", "signature": "c2ln+/=="});
    let redacted = json!({"type": "redacted_thinking", "data": "AAAA"});
    let thought = |raw: Option<Value>| Part::Reasoning(Reasoning { text: "想".to_owned(), raw });
    let parts = vec![
        thought(Some(signed.clone())),
        thought(Some(redacted.clone())),
        thought(None),
        thought(Some(json!({"reasoning_content": "x"}))),
        Part::text("ok"),
        call("h1", Some("t1"), "get", "{}"),
    ];
    let request = conversation(vec![assistant(parts)]);
    accept(&request);
    let content = body(ANTHROPIC, &request)["messages"][1]["content"].clone();
    assert_eq!(content.as_array().map(Vec::len), Some(4));
    assert_eq!((content[0].to_string(), content[1].to_string()), (signed.to_string(), redacted.to_string()));
}

#[test]
fn reasoning_content_goes_back_only_where_the_quirk_says() {
    let thought = Part::Reasoning(Reasoning { text: "想".to_owned(), raw: Some(json!({"reasoning_content": "想"})) });
    let request = conversation(vec![
        assistant(vec![thought.clone(), Part::text("hm"), call("h1", None, "get", "{}")]),
        Message { role: Role::Tool, parts: vec![result("h1", ToolStatus::Ok, "1")] },
        assistant(vec![thought, Part::text("done")]),
    ]);
    for (replay, expected) in [
        (ReasoningReplay::Never, [false, false]),
        (ReasoningReplay::ToolTurns, [true, false]),
        (ReasoningReplay::Always, [true, true]),
    ] {
        let body = request_body(OPENAI, "m", Quirks { reasoning_replay: replay, ..Quirks::default() }, &request);
        let found = ["/messages/2", "/messages/4"].map(|at| body.pointer(at).is_some_and(|it| it["reasoning_content"] == "想"));
        assert_eq!(found, expected, "{replay:?}");
    }
}

#[test]
fn cache_breakpoints_stand_at_the_ends_of_what_stays() {
    let quirks = Quirks { prompt_cache: true, ..Quirks::default() };
    let message = request_body(ANTHROPIC, "m", quirks, &request("x"));
    for pointer in ["/system/0/cache_control/type", "/messages/0/content/0/cache_control/type"] {
        assert_eq!(message.pointer(pointer), Some(&json!("ephemeral")), "{pointer}");
    }
    assert!(!body(ANTHROPIC, &request("x")).to_string().contains("cache_control"));
}

#[test]
fn the_strict_servers_refuse_what_the_real_ones_refuse() {
    let tool_message = json!({"role": "tool", "tool_call_id": "x", "content": "1"});
    for (messages, expected) in [
        (json!([tool_message]), "must be a response to a preceeding message"),
        (
            json!([{"role": "assistant", "content": null, "tool_calls": [{"id": "c", "function": {"name": "t", "arguments": "{}"}}]}]),
            "did not have response messages: c",
        ),
        (json!([{"role": "user", "content": ""}]), "non-empty"),
        (json!([{"role": "assistant", "content": null}]), "content or tool_calls must be set"),
    ] {
        let refusal = validate::openai(&json!({"model": "m", "messages": messages})).expect_err("refused");
        assert!(refusal.contains(expected), "{refusal}");
    }
    let tool_use = json!({"type": "tool_use", "id": "c", "name": "t", "input": {}});
    let tool_result = json!({"type": "tool_result", "tool_use_id": "c", "content": "1"});
    let text = json!({"type": "text", "text": "x"});
    let turns = |assistant: Value, user: Value| json!([{"role": "user", "content": [text]}, {"role": "assistant", "content": assistant}, {"role": "user", "content": user}]);
    for (messages, expected) in [
        (turns(json!([tool_use]), json!([text])), "without `tool_result` blocks immediately after: c"),
        (turns(json!([tool_use]), json!([text, tool_result])), "without `tool_result` blocks immediately after: c"),
        (turns(json!([text]), json!([tool_result])), "unexpected `tool_use_id`"),
        (turns(json!([tool_use, tool_use]), json!([tool_result])), "ids must be unique"),
        (turns(json!([{"type": "text", "text": ""}]), json!([text])), "must be non-empty"),
        (turns(json!([{"type": "thinking", "thinking": "x", "signature": ""}]), json!([text])), "Invalid `signature`"),
        (json!([{"role": "user", "content": [text]}, {"role": "assistant", "content": [text]}]), "prefill"),
    ] {
        let body = json!({"model": "m", "max_tokens": 1, "messages": messages, "tools": [{"name": "t", "input_schema": {"type": "object"}}]});
        let refusal = validate::anthropic(&body).expect_err("refused");
        assert!(refusal.contains(expected), "{refusal}");
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just(" \n".to_owned()), Just("\u{0}".to_owned()), Just("北京".to_owned()), any::<String>()]
}

fn part() -> impl Strategy<Value = Part> {
    let id = || proptest::sample::select(vec!["a", "b", "c", "", "é"]);
    let arguments = proptest::sample::select(vec!["{}", "", "[", "{\"a\":1}", "null", "[1]"]);
    let raw = proptest::sample::select(vec![
        Value::Null,
        json!({"type": "thinking", "thinking": "x", "signature": "s"}),
        json!({"reasoning_content": "x"}),
        json!(5),
    ]);
    prop_oneof![
        text().prop_map(Part::text),
        (text(), raw).prop_map(|(text, raw)| Part::Reasoning(Reasoning { text, raw: Some(raw).filter(|raw| !raw.is_null()) })),
        (id(), proptest::option::of(id()), text(), arguments).prop_map(|(id, provider_id, name, arguments)| call(
            id,
            provider_id,
            &name,
            arguments
        )),
        (id(), text()).prop_map(|(id, text)| result(id, ToolStatus::Ok, &text)),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let role = proptest::sample::select(vec![Role::User, Role::Assistant, Role::Tool]);
    (role, proptest::collection::vec(part(), 0..5)).prop_map(|(role, parts)| Message { role, parts })
}

proptest! {
    #[test]
    fn any_conversation_becomes_a_request_that_strict_servers_accept(
        messages in proptest::collection::vec(message(), 0..12),
        has_tools in any::<bool>(),
    ) {
        let mut request = conversation(messages);
        if !has_tools {
            request.tools.clear();
        }
        accept(&request);
    }
}
