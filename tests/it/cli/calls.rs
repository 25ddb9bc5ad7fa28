//! `call`, `tools`, `inspect` and `policy`, without a model.

use honeycomb_tests::host::{Host, workspace};
use honeycomb_tests::web::WebServer;
use serde_json::{Value, json};

use super::{weather_policy, weather_responses};

#[test]
fn the_example_policy_lets_the_calculator_answer_and_reports_what_it_used() {
    let host = Host::new().policy_file(workspace().join("examples/policy.toml"));
    let (code, document) = host.call("calculator/calculate", &json!({"expression": "123 + 456"}));
    assert_eq!(code, 0, "{document}");
    assert_eq!(document["status"], "ok");
    assert_eq!(document["structured"]["result"], "579");
    assert!(document["usage"]["fuel"].as_u64().is_some_and(|fuel| fuel > 1_000), "{document}");
    assert!(document["usage"]["memory_bytes"].as_u64().is_some_and(|bytes| bytes >= 65_536), "{document}");
    assert!(document["usage"]["wall_us"].as_u64().is_some_and(|micros| micros > 0), "{document}");
}

#[test]
fn without_a_policy_a_call_is_denied_and_the_lines_it_prints_allow_it() {
    let arguments = json!({"expression": "0.1 + 0.2"});
    let (code, document) = Host::new().call("calculator/calculate", &arguments);
    assert_eq!(code, 1);
    assert_eq!(document["status"], "denied");
    assert_eq!(document["error"]["code"], "policy.denied");
    let hint = document["error"]["hint"].as_str().expect("a hint");
    let lines = &hint[hint.find("version = 1").expect("a policy in the hint")..];

    let (code, document) = Host::new().policy(lines).call("calculator/calculate", &arguments);
    assert_eq!((code, &document["structured"]["result"]), (0, &json!("0.3")), "{document}");
}

#[test]
fn every_example_plugin_answers_under_the_example_policy() {
    let host = Host::new().policy_file(workspace().join("examples/policy.toml"));
    for (tool, arguments, expected) in [
        ("calculator/calculate", json!({"expression": "2^100"}), "1267650600228229401496703205376"),
        ("calculator/calculate", json!({"expression": "１２３＋４５６"}), "579"),
        ("files/list_files", json!({"path": "/data"}), "welcome.md"),
        ("files/read_file", json!({"path": "/data/welcome.md"}), "这个目录"),
        ("files/search_files", json!({"path": "/data", "pattern": "只读"}), "welcome.md"),
        ("notes/save_note", json!({"title": "天气", "text": "北京晴"}), ""),
        ("notes/read_note", json!({"title": "天气"}), "北京晴"),
        ("notes/list_notes", json!({}), "天气"),
        ("text/count_text", json!({"text": "one two\n北京"}), "lines"),
    ] {
        let (code, document) = host.call(tool, &arguments);
        assert_eq!(code, 0, "{tool} {arguments}: {document}");
        assert!(document["content"].to_string().contains(expected), "{tool} {arguments}: {document}");
    }
}

#[test]
fn ask_is_a_denial_where_nobody_can_be_asked() {
    let host = Host::new().policy_file(workspace().join("examples/policy.toml"));
    let (code, document) = host.call("notes/delete_note", &json!({"title": "天气"}));
    assert_eq!((code, &document["status"]), (1, &json!("denied")), "{document}");
    assert!(document["error"]["hint"].as_str().is_some_and(|hint| hint.contains("ask")), "{document}");
}

#[test]
fn a_forecast_comes_over_http_through_the_sandbox() {
    let server = WebServer::start(weather_responses());
    let (code, document) =
        Host::new().policy(&weather_policy(server.port())).call("weather/get_weather", &json!({"city": "北京"}));
    assert_eq!(code, 0, "{document}");
    assert_eq!(document["structured"]["now"]["temperature_celsius"], 9.4);
    assert_eq!(document["usage"]["http_requests"], 2);
    let requests = server.requests();
    assert!(requests.iter().any(|request| request.starts_with("GET /v1/search?name=%E5%8C%97%E4%BA%AC")), "{requests:?}");
    assert!(requests.iter().all(|request| request.contains(&format!("host: 127.0.0.1:{}", server.port()))), "{requests:?}");
}

#[test]
fn tools_lists_decisions_grants_and_limits() {
    let host = Host::new().policy_file(workspace().join("examples/policy.toml"));
    let ran = host.run(&["tools", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(document["failures"], json!([]), "{document}");
    let plugins = document["plugins"].as_array().expect("plugins");
    let names: Vec<&str> = plugins.iter().filter_map(|plugin| plugin["plugin"].as_str()).collect();
    assert_eq!(names, ["calculator", "fetch", "files", "memory", "notes", "text", "weather"]);
    let decision = |plugin: &str, tool: &str| {
        let found = plugins.iter().find(|found| found["plugin"] == plugin)?;
        let tool = found["tools"].as_array()?.iter().find(|found| found["name"] == tool)?;
        tool["decision"].as_str().map(str::to_owned)
    };
    assert_eq!(decision("calculator", "calculate").as_deref(), Some("allow"));
    assert_eq!(decision("notes", "delete_note").as_deref(), Some("ask"));
    assert_eq!(decision("files", "write_file").as_deref(), Some("deny"));
    assert_eq!(decision("fetch", "fetch_page").as_deref(), Some("deny"));
    let ran = host.run(&["tools"]);
    assert!(ran.stdout.contains("  allow calculate "), "{}", ran.stdout);
}

#[test]
fn inspect_says_what_a_plugin_is_and_asks_for() {
    let host = Host::new();
    let file = honeycomb_tests::host::plugins_dir().join("weather.wasm");
    let ran = host.run(&["inspect", &file.to_string_lossy(), "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(document["kind"], "tools");
    assert_eq!(document["tools"][0]["name"], "get_weather");
    assert!(document["requests"].as_str().is_some_and(|requests| requests.contains("api.open-meteo.com")), "{document}");
    assert!(document["imports"].to_string().contains("wasi:http/outgoing-handler"), "{document}");
    // What it suggests is a policy.
    let host = Host::new().policy(document["policy"].as_str().expect("a policy"));
    assert_eq!(host.run(&["policy", "check"]).code, 0);
}

#[test]
fn policy_commands_check_explain_test_and_suggest() {
    let host = Host::new().policy_file(workspace().join("examples/policy.toml"));
    assert_eq!(host.run(&["policy", "check"]).code, 0);

    let ran = host.run(&["policy", "explain", "files/write_file", "--args", "{}", "--json"]);
    let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!((ran.code, &document["decision"]), (1, &json!("deny")), "{document}");
    assert!(document["hint"].as_str().is_some_and(|hint| hint.contains("write_file")), "{document}");
    let ran = host.run(&["policy", "explain", "calculator/calculate", "--args", r#"{"expression":"1"}"#, "--json"]);
    let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(document["decision"], "allow");
    assert!(document["rule"].as_str().is_some_and(|rule| rule.contains("policy.toml:")), "{document}");

    let good = host.write("good.jsonl", "{\"call\":\"calculator/calculate\",\"args\":{},\"expect\":\"allow\"}\n");
    assert_eq!(host.run(&["policy", "test", &good.to_string_lossy()]).code, 0);
    let bad = host.write("bad.jsonl", "{\"call\":\"files/write_file\",\"args\":{},\"expect\":\"allow\"}\n");
    let ran = host.run(&["policy", "test", &bad.to_string_lossy()]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("bad.jsonl:1: files/write_file: expected allow, got deny"), "{}", ran.stdout);

    let ran = Host::new().run(&["policy", "suggest"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(Host::new().policy(&ran.stdout).run(&["policy", "check"]).code, 0, "{}", ran.stdout);
}

#[test]
fn doctor_names_the_engine_and_what_is_known_against_it() {
    let ran = Host::new().run(&["doctor"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("wasmtime 48."), "{}", ran.stdout);
    assert!(ran.stdout.contains("GHSA-5m8g"), "{}", ran.stdout);
}
