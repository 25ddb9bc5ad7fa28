//! Calls that the policy says to ask about.

use honeycomb_tests::mcp::Client;
use serde_json::{Value, json};

use super::host;

const CALL: &str = "misbehave__large";

fn begin(capabilities: &Value) -> Client {
    let (mut client, _) = Client::begin(&host(), &[], "2025-06-18", capabilities);
    client.ready(&json!({}));
    client
}

/// Calls the tool, and answers the question that comes.
#[expect(clippy::needless_pass_by_value, reason = "tests write `json!` in place")]
fn answer(client: &mut Client, answer: Value) -> (Value, Value) {
    let id = client.ask("tools/call", json!({"name": CALL, "arguments": {"bytes": 3}}));
    let question = client.told("elicitation/create");
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
    (question, client.answer(id)["result"].clone())
}

#[test]
fn a_person_is_shown_the_call_and_decides() {
    let mut client = begin(&json!({"elicitation": {}}));
    let (question, result) = answer(&mut client, json!({"action": "accept", "content": {"decision": "allow once"}}));
    let message = question["params"]["message"].as_str().expect("a message");
    assert!(message.contains("`misbehave/large`") && message.contains("{\"bytes\":3}"), "{message}");
    assert_eq!(result["content"][0]["text"], "xxx");
    for refusal in [json!({"action": "decline"}), json!({"action": "cancel"}), json!({"action": "accept", "content": {}})] {
        let (_, result) = answer(&mut client, refusal);
        assert_eq!(result["_meta"]["honeycomb/error"]["code"], "policy.denied", "{result}");
        assert!(result["content"][0]["text"].as_str().is_some_and(|text| text.contains("a person refused it")), "{result}");
    }
}

#[test]
fn a_yes_for_the_session_is_asked_for_once() {
    let mut client = begin(&json!({"elicitation": {}}));
    answer(&mut client, json!({"action": "accept", "content": {"decision": "allow for this session"}}));
    assert_eq!(client.call(CALL, &json!({"bytes": 2}))["content"][0]["text"], "xx");
    assert!(client.unread().is_empty(), "{:?}", client.unread());
}

#[test]
fn where_nobody_can_be_asked_it_is_denied() {
    for capabilities in [json!({}), json!({"elicitation": {"url": {}}})] {
        let result = begin(&capabilities).call(CALL, &json!({"bytes": 3}));
        assert_eq!(result["_meta"]["honeycomb/error"]["code"], "policy.denied");
        assert!(result["content"][0]["text"].as_str().is_some_and(|text| text.contains("nobody is there to ask")), "{result}");
    }
}

#[test]
fn the_stateless_version_asks_by_its_answer() {
    let mut client = Client::start(&host(), &[]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    });
    client.ready(&json!({"_meta": meta}));
    let mut call = json!({"name": CALL, "arguments": {"bytes": 3}, "_meta": meta});
    let asked = client.request("tools/call", call.clone())["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    assert_eq!(asked["inputRequests"]["approval"]["method"], "elicitation/create");
    call["inputResponses"] = json!({"approval": {"action": "accept", "content": {"decision": "allow once"}}});
    call["requestState"] = asked["requestState"].clone();
    let mut other = call.clone();
    other["arguments"]["bytes"] = json!(4);
    assert_eq!(client.request("tools/call", other)["result"]["resultType"], "input_required", "the yes was for other arguments");
    assert_eq!(client.request("tools/call", call)["result"]["content"][0]["text"], "xxx");
}
