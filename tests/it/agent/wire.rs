//! Whatever the history: what the normaliser makes of it, and a provider's adapter writes, the provider accepts.

use honeycomb_host::agent::{WireRules, normalise};
use honeycomb_host::message::{Message, Part, Reasoning, Role, ToolCall, ToolResult, ToolStatus};
use honeycomb_host::provider::ModelRequest;
use honeycomb_host::provider::quirks::Quirks;
use honeycomb_host::provider::wire::{WireFormat, request_body};
use honeycomb_tests::fakellm::validate;
use proptest::prelude::*;
use serde_json::json;

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just(" \n".to_owned()), "[a-z京\u{0}\"\\\\ ]{0,8}"]
}

fn any_id() -> impl Strategy<Value = String> {
    prop_oneof!["[ab]", Just(String::new()), "call_[1-3]", "[ -~]{1,3}", Just("z".repeat(90))]
}

fn any_arguments() -> impl Strategy<Value = String> {
    prop_oneof![Just("{}".to_owned()), Just(r#"{"a":"\u0000"}"#.to_owned()), Just(r#"{"a":"\ud800"}"#.to_owned()), any_text()]
}

fn any_part() -> impl Strategy<Value = Part> {
    let signed = json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"});
    let raw = prop_oneof![Just(None), Just(Some(signed))];
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
    fn any_history_and_any_cut_is_accepted_on_the_wire(
        messages in prop::collection::vec(any_message(), 0..10),
        cut in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let (a, b) = (cut.0.index(messages.len() + 1), cut.1.index(messages.len() + 1));
        for (format, rules, check) in [
            (WireFormat::OpenAiChat, WireRules::openai(), validate::openai as fn(&serde_json::Value) -> Result<(), String>),
            (WireFormat::OpenAiChat, WireRules::default(), validate::openai),
            (WireFormat::AnthropicMessages, WireRules::anthropic(), validate::anthropic),
            (WireFormat::AnthropicMessages, WireRules::default(), validate::anthropic),
        ] {
            for messages in [&messages[..], &messages[a.min(b)..a.max(b)]] {
                let messages = normalise(messages, &rules);
                let request = ModelRequest { system: "s".to_owned(), messages, tools: Vec::new(), max_output_tokens: None };
                let body = request_body(format, "fake-model", Quirks::default(), &request);
                prop_assert_eq!(check(&body), Ok(()), "{}", body);
            }
        }
    }
}
