//! Over stdio.

use std::fmt::Write as _;

use honeycomb_tests::guest::Guest;
use honeycomb_tests::host::{Host, plugins_dir, workspace};
use honeycomb_tests::mcp::{Client, initialize};
use serde_json::{Value, json};

use super::host;

fn begin(host: &Host, arguments: &[&str]) -> Client {
    let (mut client, _) = Client::begin(host, arguments, "2025-11-25", &json!({}));
    client.ready(&json!({}));
    client
}

fn names(client: &mut Client) -> Vec<String> {
    let list = client.request("tools/list", json!({}));
    let tools = list["result"]["tools"].as_array().expect("a list of tools");
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn speaks_the_versions_of_2024_to_2026() {
    for (asked, expected) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let (_client, answer) = Client::begin(&host(), &[], asked, &json!({}));
        assert_eq!(answer["protocolVersion"], expected, "asked for {asked}");
        assert_eq!(answer["capabilities"], json!({"logging": {}, "tools": {"listChanged": true}}));
    }
}

#[test]
fn the_stateless_version_needs_no_handshake_and_cannot_shed_max_calls() {
    let mut client = Client::start(&host(), &[]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let call = json!({"name": "misbehave__echo", "arguments": {"text": "北京"}, "_meta": meta});
    client.ready(&json!({"_meta": meta}));
    for _ in 0..3 {
        let answer = client.request("tools/call", call.clone());
        assert_eq!(answer["result"]["content"][0]["text"], "北京", "{answer}");
    }
    let answer = client.request("tools/call", call);
    assert_eq!(answer["result"]["_meta"]["honeycomb/error"]["code"], "limit.calls", "{answer}");
}

#[test]
fn lists_tools_with_schemas_and_hints_and_calls_them() {
    let host = Host::new().policy_file(workspace().join("examples/policy.toml"));
    let mut client = begin(&host, &[]);
    let list = client.request("tools/list", json!({}));
    let tools = list["result"]["tools"].as_array().expect("tools");
    let calculate = tools.iter().find(|tool| tool["name"] == "calculator__calculate").expect("the calculator");
    assert_eq!(calculate["inputSchema"]["type"], "object");
    assert_eq!(calculate["annotations"]["readOnlyHint"], true);
    assert_eq!(calculate["annotations"]["destructiveHint"], false);
    assert!(tools.windows(2).all(|pair| pair[0]["name"].as_str() < pair[1]["name"].as_str()));
    let result = client.call("calculator__calculate", &json!({"expression": "123 + 456"}));
    assert!(result["content"][0]["text"].as_str().is_some_and(|text| text.contains("579")), "{result}");
    assert_eq!(result["isError"], false);
    if calculate.get("outputSchema").is_some() {
        assert!(result["structuredContent"].is_object(), "{result}");
    }
    assert!(plugins_dir().is_dir());
}

#[test]
fn a_tool_that_fails_is_denied_or_unknown_says_so_in_the_right_way() {
    let mut client = begin(&host(), &[]);
    let failed = client.call("conformance__test_error_handling", &json!({}));
    assert_eq!((&failed["isError"], &failed["_meta"]["honeycomb/error"]["code"]), (&json!(true), &json!("tool.failed")));
    let denied = client.call("misbehave__run_away", &json!({}));
    assert_eq!((&denied["isError"], &denied["_meta"]["honeycomb/error"]["code"]), (&json!(true), &json!("policy.denied")));
    assert!(denied["content"][0]["text"].as_str().is_some_and(|text| text.contains("hint:")), "{denied}");
    let invalid = client.call("misbehave__echo", &json!({"txt": 1}));
    assert_eq!(invalid["_meta"]["honeycomb/error"]["code"], "args.invalid");
    for (method, params, code) in [
        ("tools/call", json!({"name": "no_such_tool", "arguments": {}}), -32602),
        ("tools/call", json!({"name": 7}), -32602),
        ("tools/list", json!({"cursor": "x"}), -32602),
        ("no/such/method", json!({}), -32601),
        ("prompts/list", json!({}), -32601),
    ] {
        let answer = client.request(method, params.clone());
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
    }
    assert!(!names(&mut client).contains(&"misbehave__run_away".to_owned()), "what is always denied is not offered");
}

#[test]
fn whatever_a_guest_prints_the_client_notices_nothing() {
    let mut client = begin(&host(), &[]);
    // 20,000 lines of about 55 bytes on each stream: a megabyte of `{"jsonrpc"…`.
    let result = client.call("misbehave__print", &json!({"lines": 20_000}));
    assert_eq!(result["content"], json!([{"type": "text", "text": "printed"}]));
    assert!(client.unread().is_empty(), "{:?}", client.unread());
    let (status, rest, errors) = client.end();
    assert!(status.success() && rest.is_empty(), "{status} {rest:?}");
    assert!(!errors.contains("jsonrpc"), "{errors}");
}

#[test]
fn a_malformed_line_is_answered_and_the_server_lives_on() {
    let mut client = Client::start(&host(), &[]);
    // A notification before the session begins is dropped.
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    for (line, id, code) in [
        ("{\"jsonrpc\": \"2.0\", \"id\": 1, ", Value::Null, -32700),
        ("北京", Value::Null, -32700),
        ("[]", Value::Null, -32600),
        ("{\"jsonrpc\": \"1.0\", \"id\": \"a\", \"method\": \"ping\"}", json!("a"), -32600),
    ] {
        client.send_line(line);
        let answer = client.wait(|message| message.get("error").is_some());
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{line}");
    }
    client.send_line("");
    let answer = client.request("initialize", initialize("2025-06-18", &json!({})));
    assert_eq!(answer["result"]["serverInfo"]["name"], "honeycomb");
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
}

#[test]
fn progress_goes_to_the_client_that_asked_for_it() {
    let mut client = begin(&host(), &[]);
    let call = json!({"name": "conformance__test_tool_with_progress", "arguments": {}});
    let quiet = client.request("tools/call", call.clone());
    assert!(quiet["result"]["content"].is_array() && client.unread().is_empty(), "{:?}", client.unread());
    let mut asked = call;
    asked["_meta"] = json!({"progressToken": "进度"});
    client.request("tools/call", asked);
    let told: Vec<Value> = client.unread().iter().map(|message| message["params"].clone()).collect();
    let expected: Vec<Value> =
        [0.0, 50.0, 100.0].map(|done| json!({"progressToken": "进度", "progress": done, "total": 100.0})).into();
    assert_eq!(told, expected);
}

#[test]
fn log_lines_come_from_the_level_on_that_the_client_sets() {
    let mut client = begin(&host(), &[]);
    let tool = "conformance__test_tool_with_logging";
    client.call(tool, &json!({}));
    assert!(client.unread().is_empty(), "info is below what a client hears that sets no level");
    assert_eq!(client.request("logging/setLevel", json!({"level": "info"}))["result"], json!({}));
    client.call(tool, &json!({}));
    let lines: Vec<&Value> = client.unread().iter().map(|message| &message["params"]).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines[0]["level"], "info");
    assert_eq!(lines[0]["logger"], "conformance");
    assert!(lines[2]["data"].as_str().is_some_and(|line| line.contains("Tool execution completed")), "{lines:?}");
    assert_eq!(client.request("logging/setLevel", json!({"level": "loud"}))["error"]["code"], -32602);
}

#[test]
fn a_cancelled_call_ends_without_an_answer() {
    let mut client = begin(&host(), &[]);
    let id = client.ask("tools/call", json!({"name": "misbehave__sleep", "arguments": {"milliseconds": 50_000}}));
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    // What follows is answered, and the cancelled call never is.
    assert_eq!(client.call("misbehave__echo", &json!({"text": "a"}))["content"][0]["text"], "a");
    let (status, rest, _) = client.end();
    assert!(status.success() && rest.is_empty(), "{rest:?}");
}

#[test]
fn the_end_of_the_input_stops_what_runs_and_ends_cleanly() {
    let mut client = begin(&host(), &[]);
    client.ask("tools/call", json!({"name": "misbehave__sleep", "arguments": {"milliseconds": 50_000}}));
    let begun = std::time::Instant::now();
    let (status, rest, errors) = client.end();
    assert!(status.success(), "{status} {errors}");
    assert!(begun.elapsed().as_secs() < 40, "the call was not stopped");
    assert!(rest.iter().all(|message| message["result"]["_meta"]["honeycomb/error"]["code"] == "call.cancelled"), "{rest:?}");
}

#[test]
fn a_plugin_that_takes_long_to_compile_does_not_delay_the_handshake() {
    let host = Host::new();
    let plugins = host.path().join("slow");
    // Seconds of compiling, never in the cache: the number is new each time.
    let unique =
        u64::from(std::process::id()) << 20 | u64::from(std::time::UNIX_EPOCH.elapsed().expect("after 1970").subsec_nanos());
    let mut fields = format!("(global $unique i64 (i64.const {unique}))");
    for function in 0..4000 {
        let _ = write!(fields, "(func $f{function} (param i64) (result i64) (local.get 0)");
        for step in 0..40 {
            let _ = write!(fields, "(i64.const {}) (i64.mul) (i64.const {step}) (i64.rotl)", function * 40 + step + 3);
        }
        fields.push(')');
    }
    host.write("slow/slow.wasm", Guest { fields, ..Guest::default() }.bytes().expect("a component"));
    let host = host.plugins(plugins).policy("version = 1\n[[plugins.slow.tools]]\nname = \"run\"\ndecision = \"allow\"\n");
    let begun = std::time::Instant::now();
    let (mut client, _) = Client::begin(&host, &[], "2025-11-25", &json!({}));
    let handshake = begun.elapsed();
    let list = client.request("tools/list", json!({}));
    let listed = begun.elapsed();
    assert!(handshake < listed / 2, "the handshake took {handshake:?} of {listed:?}");
    if list["result"]["tools"] == json!([]) {
        // Slower than a request may wait: then the client is told when the tools are there.
        client.told("notifications/tools/list_changed");
    }
    assert_eq!(names(&mut client), ["slow__run"]);
}

#[test]
fn a_reload_that_changes_the_tools_is_told() {
    let allow = |tools: &[&str]| {
        tools.iter().fold("version = 1\n".to_owned(), |policy, tool| {
            policy + &format!("[[plugins.conformance.tools]]\nname = \"{tool}\"\ndecision = \"allow\"\n")
        })
    };
    let host = super::host();
    let policy = host.write("live.toml", allow(&["test_simple_text"]));
    let host = Host::new().plugins(honeycomb_tests::host::guests_dir()).policy_file(&policy);
    let mut client = begin(&host, &[]);
    assert_eq!(names(&mut client), ["conformance__test_simple_text"]);
    std::fs::write(&policy, allow(&["test_simple_text", "test_image_content"])).expect("written");
    client.told("notifications/tools/list_changed");
    assert_eq!(names(&mut client), ["conformance__test_image_content", "conformance__test_simple_text"]);
}

#[test]
fn the_tools_of_one_plugin_can_go_without_its_prefix() {
    let mut client = begin(&host(), &["--bare-names", "conformance"]);
    let listed = names(&mut client);
    assert!(listed.contains(&"test_simple_text".to_owned()) && listed.contains(&"misbehave__echo".to_owned()), "{listed:?}");
    assert!(client.call("test_simple_text", &json!({}))["content"][0]["text"].is_string());
    assert_eq!(client.request("tools/call", json!({"name": "echo", "arguments": {}}))["error"]["code"], -32602);

    let (status, rest, errors) = Client::start(&host(), &["--bare-names", "nobody"]).ended();
    assert_eq!(status.code(), Some(2), "{errors}");
    assert!(rest.is_empty() && errors.contains("`nobody`") && errors.contains("hint:"), "{rest:?} {errors}");
}

#[test]
fn two_generic_tools_stand_for_all() {
    let mut client = begin(&host(), &["--generic-tools"]);
    assert_eq!(names(&mut client), ["call_tool", "search_tools"]);
    let found = client.call("search_tools", &json!({"query": "echo"}));
    assert_eq!(found["structuredContent"]["tools"][0]["name"], "misbehave__echo", "{found}");
    let result = client.call("call_tool", &json!({"name": "misbehave__echo", "arguments": {"text": "你好"}}));
    assert_eq!(result["content"][0]["text"], "你好");
    let denied = client.call("call_tool", &json!({"name": "misbehave__run_away", "arguments": {}}));
    assert_eq!(denied["_meta"]["honeycomb/error"]["code"], "policy.denied", "the pair goes through the same gate");
}
