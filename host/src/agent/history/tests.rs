use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::message::Reasoning;

fn call(id: &str, arguments: &str) -> Part {
    Part::ToolCall(ToolCall { id: id.into(), provider_id: None, name: "a__b".into(), arguments: arguments.into() })
}

fn result(id: &str, text: &str) -> Part {
    let (call_id, name, text) = (id.into(), "a__b".into(), text.into());
    Part::ToolResult(ToolResult { call_id, name, status: ToolStatus::Ok, text })
}

fn message(role: Role, parts: Vec<Part>) -> Message {
    Message { role, parts }
}

fn user(text: &str) -> Message {
    Message::user(text)
}

fn says(text: &str) -> Message {
    message(Role::Assistant, vec![Part::text(text)])
}

fn rules() -> [WireRules; 4] {
    let text = WireRules { reasoning: ReasoningReplay::Text, ..WireRules::openai() };
    [WireRules::openai(), WireRules::anthropic(), WireRules::default(), text]
}

/// Normalises, and sees that the provider would accept it and that doing it again changes nothing.
fn accepted(messages: &[Message], rules: &WireRules) -> Vec<Message> {
    let out = normalise(messages, rules);
    if let Err(problem) = validate_history(&out, rules) {
        panic!("{problem}\nfrom {messages:#?}\nto {out:#?}");
    }
    assert_eq!(normalise(&out, rules), out, "normalising is idempotent");
    out
}

fn results_of(messages: &[Message]) -> Vec<(&str, ToolStatus, &str)> {
    let parts = messages.iter().flat_map(|message| &message.parts);
    parts
        .filter_map(|part| match part {
            Part::ToolResult(result) => Some((result.call_id.as_str(), result.status, result.text.as_str())),
            _ => None,
        })
        .collect()
}

#[test]
fn a_well_formed_history_stays_as_it_is() {
    let messages = [
        user("hi"),
        message(Role::Assistant, vec![Part::text("let me see"), call("1", "{}"), call("2", r#"{"x":1}"#)]),
        message(Role::Tool, vec![result("1", "one"), result("2", "two")]),
        says("done"),
        user("thanks, 谢谢"),
    ];
    for rules in rules() {
        assert_eq!(accepted(&messages, &rules), messages);
    }
}

#[test]
fn a_cut_between_call_and_result_leaves_no_orphan() {
    let messages =
        [user("hi"), message(Role::Assistant, vec![call("1", "{}")]), message(Role::Tool, vec![result("1", "x")]), says("ok")];
    for rules in rules() {
        for start in 0..messages.len() {
            for end in start..=messages.len() {
                accepted(&messages[start..end], &rules);
            }
        }
        let cut = accepted(&messages[2..], &rules);
        assert_eq!(results_of(&cut), []);
    }
}

#[test]
fn a_call_that_a_crash_left_open_is_reported_as_interrupted() {
    let messages = [user("hi"), message(Role::Assistant, vec![call("1", "{}")]), user("are you there?")];
    let out = accepted(&messages, &WireRules::anthropic());
    assert_eq!(results_of(&out), [("1", ToolStatus::Interrupted, NO_RESULT)]);
    assert_eq!(out[3], user("are you there?"));
}

#[test]
fn results_stand_right_behind_their_calls_in_one_message() {
    let messages = [
        user("hi"),
        message(Role::Assistant, vec![call("1", "{}"), call("2", "{}")]),
        message(Role::Tool, vec![result("2", "two"), Part::text("a note"), result("1", "one")]),
        user("more"),
    ];
    let out = accepted(&messages, &WireRules::anthropic());
    assert_eq!(results_of(&out), [("1", ToolStatus::Ok, "one"), ("2", ToolStatus::Ok, "two")]);
    assert_eq!(out[3].parts, [Part::text("a note"), Part::text("more")]);
    let split = [
        user("hi"),
        message(Role::Assistant, vec![call("1", "{}"), call("2", "{}")]),
        message(Role::Tool, vec![result("1", "one")]),
        message(Role::Tool, vec![result("2", "two")]),
    ];
    assert_eq!(results_of(&accepted(&split, &WireRules::openai())).len(), 2);
}

#[test]
fn malformed_arguments_do_not_poison_later_requests() {
    for arguments in [r#"{"a":"#, "[]", "not json", r#"{"a":1,"a":2}"#, r#"{"a":"\udc00"}"#, r#"{"a":"\u0000"}"#, "", "null"] {
        accepted(&[user("hi"), message(Role::Assistant, vec![call("1", arguments)])], &WireRules::openai());
    }
}

#[test]
fn blank_text_is_left_out() {
    let messages = [user("hi"), says(" \n"), user("\u{3000}"), says("ok"), user("\0"), message(Role::Assistant, vec![])];
    let out = accepted(&messages, &WireRules::anthropic());
    assert_eq!(out, [user("hi"), says("ok"), user(CONTINUE)]);
    let messages = [user("hi"), message(Role::Assistant, vec![call("1", "{}")]), message(Role::Tool, vec![result("1", "\0 ")])];
    assert_eq!(results_of(&accepted(&messages, &WireRules::anthropic())), [("1", ToolStatus::Ok, EMPTY_RESULT)]);
}

#[test]
fn a_history_never_ends_on_the_model_nor_begins_with_it() {
    let out = accepted(&[says("hello"), user("hi"), says("yes?")], &WireRules::anthropic());
    assert_eq!(out, [user(OMITTED), says("hello"), user("hi"), says("yes?"), user(CONTINUE)]);
    assert_eq!(accepted(&[], &WireRules::openai()), [user(CONTINUE)]);
}

#[test]
fn reasoning_is_replayed_byte_for_byte_or_not_at_all() {
    let raw = json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"});
    let signed = Part::Reasoning(Reasoning { text: "hm".into(), raw: Some(raw) });
    let half = Part::Reasoning(Reasoning { text: "hm".into(), raw: None });
    let messages = [
        user("hi"),
        message(Role::Assistant, vec![half.clone(), signed.clone(), Part::text("a"), call("1", "{}")]),
        user("go on"),
    ];
    let reasoning = |rules: &WireRules| -> Vec<Part> {
        let out = accepted(&messages, rules);
        out.into_iter().flat_map(|message| message.parts).filter(|part| matches!(part, Part::Reasoning(_))).collect()
    };
    let text = WireRules { reasoning: ReasoningReplay::Text, ..WireRules::openai() };
    assert_eq!(reasoning(&WireRules::openai()), []);
    assert_eq!(reasoning(&WireRules::anthropic()), std::slice::from_ref(&signed));
    assert_eq!(reasoning(&text), [half, signed.clone()]);
    accepted(&[user("hi"), message(Role::Assistant, vec![signed])], &WireRules::anthropic());
}

#[test]
fn repeated_and_illegal_ids_become_unique() {
    let long = "x".repeat(100);
    let provider = |id: &str, provider_id: &str| {
        let call =
            ToolCall { id: id.into(), provider_id: Some(provider_id.into()), name: "工具".into(), arguments: String::new() };
        Part::ToolCall(call)
    };
    let messages = [
        user("hi"),
        message(Role::Assistant, vec![call("1", "{}"), call("1", "{}"), call("", "{}"), call(&long, "{}"), provider("h", "1")]),
        message(Role::Tool, vec![result("1", "first"), result("1", "second"), result("h", "host")]),
        message(Role::Assistant, vec![provider("h2", "toolu_1"), call("a b", "{}")]),
    ];
    let out = accepted(&messages, &WireRules::openai());
    let texts: Vec<_> = results_of(&out).into_iter().map(|(id, _, text)| (id, text)).collect();
    assert_eq!(texts[..2], [("1", "first"), ("call_1", "second")]);
    assert_eq!(texts[4], ("h", "host"));
    assert_eq!(texts[5].0, "toolu_1");
}

#[test]
fn a_longer_history_keeps_the_beginning_so_that_it_can_be_cached() {
    let messages: Vec<_> = (0..20)
        .flat_map(|n| {
            let id = n.to_string();
            [message(Role::Assistant, vec![call(&id, "{}")]), message(Role::Tool, vec![result(&id, "x")])]
        })
        .collect();
    let messages = [vec![user("hi")], messages].concat();
    let whole = accepted(&messages, &WireRules::anthropic());
    for end in (1..messages.len()).step_by(2) {
        let part = accepted(&messages[..end], &WireRules::anthropic());
        assert_eq!(part, whole[..end]);
    }
}

#[test]
fn the_validator_refuses_what_providers_refuse() {
    let tool = |parts| message(Role::Tool, parts);
    let assistant = |parts| message(Role::Assistant, parts);
    for (messages, expected) in [
        (vec![], "at least one message"),
        (vec![says("x"), user("y")], "first message"),
        (vec![user("x"), says("y")], "prefill"),
        (vec![user("x"), user("y")], "alternate"),
        (vec![user(" ")], "non-whitespace"),
        (vec![user("a\0")], "U+0000"),
        (vec![message(Role::User, vec![])], "non-empty"),
        (vec![user("x"), tool(vec![result("1", "y")])], "preceding message"),
        (vec![user("x"), assistant(vec![call("1", "{}")]), user("y")], "tool_result"),
        (vec![user("x"), assistant(vec![call("1", "[]")]), tool(vec![result("1", "y")])], "dictionary"),
        (vec![user("x"), assistant(vec![call("1", "{")]), tool(vec![result("1", "y")])], "arguments"),
        (vec![user("x"), assistant(vec![call("1", "{}")]), tool(vec![result("1", "y"), Part::text("z")])], "cannot stand"),
        (vec![user("x"), assistant(vec![call("1", "{}"), call("1", "{}")]), tool(vec![result("1", "y")])], "unique"),
        (vec![user("x"), assistant(vec![call("a b", "{}")]), tool(vec![result("a b", "y")])], "pattern"),
        (vec![user("x"), assistant(vec![Part::Reasoning(Reasoning::default())]), user("y")], "signature"),
    ] {
        let problem = validate_history(&messages, &WireRules::anthropic()).expect_err(expected);
        assert!(problem.contains(expected), "{problem} for {expected}");
    }
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just(" \n".to_owned()), Just("\0".to_owned()), "[a-z京\u{0}\"\\\\ ]{0,8}"]
}

fn any_id() -> impl Strategy<Value = String> {
    prop_oneof!["[ab]", Just(String::new()), "call_[1-3]", "[ -~]{1,3}", Just("z".repeat(90))]
}

fn any_arguments() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("{}".to_owned()),
        Just(r#"{"a":"\u0000","b":"\\u0000"}"#.to_owned()),
        Just(r#"{"a":"\ud800"}"#.to_owned()),
        any_text(),
        r#"[\{\}\[\]":,a0 ]{0,10}"#,
    ]
}

fn any_part() -> impl Strategy<Value = Part> {
    let raw = prop_oneof![Just(None), Just(Some(json!({"type": "thinking"})))];
    prop_oneof![
        any_text().prop_map(Part::text),
        (any_text(), raw).prop_map(|(text, raw)| Part::Reasoning(Reasoning { text, raw })),
        (any_id(), prop::option::of(any_id()), any_text(), any_arguments())
            .prop_map(|(id, provider_id, name, arguments)| { Part::ToolCall(ToolCall { id, provider_id, name, arguments }) }),
        (any_id(), any_text(), any_text())
            .prop_map(|(call_id, name, text)| { Part::ToolResult(ToolResult { call_id, name, status: ToolStatus::Ok, text }) }),
    ]
}

fn any_message() -> impl Strategy<Value = Message> {
    let role = prop_oneof![Just(Role::User), Just(Role::Assistant), Just(Role::Tool)];
    (role, prop::collection::vec(any_part(), 0..5)).prop_map(|(role, parts)| Message { role, parts })
}

proptest! {
    #[test]
    fn any_history_and_any_cut_is_accepted(
        messages in prop::collection::vec(any_message(), 0..12),
        cut in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let (a, b) = (cut.0.index(messages.len() + 1), cut.1.index(messages.len() + 1));
        for rules in rules() {
            accepted(&messages, &rules);
            accepted(&messages[a.min(b)..a.max(b)], &rules);
        }
    }
}
