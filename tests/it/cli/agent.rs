//! Whole tasks: the agent, a model server on loopback, tools in their sandboxes.

use honeycomb_tests::fakellm::{Exchange, FakeLlm, render, validate};
use honeycomb_tests::host::Host;
use honeycomb_tests::web::WebServer;
use serde_json::{Value, json};

use super::{weather_policy, weather_responses};

const TASK: &str = "北京天气怎么样？适合跑步吗？";

/// Runs the program without blocking the model server.
async fn run(host: Host, arguments: &'static [&'static str]) -> (honeycomb_tests::host::Ran, Host) {
    tokio::task::spawn_blocking(move || (host.run(arguments), host)).await.expect("it ran")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_runs_through_a_model_server_and_the_sandbox() {
    let web = WebServer::start(weather_responses());
    let exchanges = [
        Exchange::stream(render::openai_calls(&[("call_天", "weather__get_weather", "{\"city\":\"北京\"}")])),
        Exchange::stream(render::openai_text(&["北京现在 9.4 °C，", "适合跑步。"])),
    ];
    let model = FakeLlm::strict(exchanges, validate::openai).await.expect("a server");
    let host = Host::new()
        .policy(&weather_policy(web.port()))
        .variable("OPENAI_BASE_URL", &format!("{}/v1", model.url()))
        .variable("OPENAI_API_KEY", "test-key");
    let (ran, host) = run(host, &[TASK]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.stdout, "北京现在 9.4 °C，适合跑步。\n");
    assert!(ran.stderr.contains("weather__get_weather"), "{}", ran.stderr);

    let requests = model.requests();
    assert_eq!(requests.len(), 2, "{ran:?}");
    assert_eq!(requests[0].path, "/v1/chat/completions");
    assert_eq!(requests[0].body["stream"], true);
    let messages = requests[1].body["messages"].as_array().expect("messages");
    let call = messages.iter().find_map(|message| message["tool_calls"][0]["id"].as_str()).expect("the call");
    let result = messages.iter().find(|message| message["role"] == "tool").expect("its result");
    assert_eq!(result["tool_call_id"], call);
    assert!(result["content"].as_str().is_some_and(|text| text.contains("9.4")), "{result}");
    // What a tool wrote stands in no system message.
    assert!(messages.iter().filter(|message| message["role"] == "system").all(|message| !message.to_string().contains("9.4")));
    drop(host);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_json_lines_without_gaps_and_stream_the_answer() {
    let model = FakeLlm::start([Exchange::stream(render::openai_text(&["你", "好", "!"]))]).await.expect("a server");
    let host = Host::new().variable("OPENAI_BASE_URL", &format!("{}/v1", model.url()));
    let (ran, _host) = run(host, &["--json", "say hello"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let events: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event["seq"], index, "{event}");
        assert!(event["run_id"].is_string() && event["ts"].is_u64() && event["kind"].is_string(), "{event}");
    }
    let text: String =
        events.iter().filter(|event| event["kind"] == "text.delta").filter_map(|event| event["text"].as_str()).collect();
    assert_eq!(text, "你好!");
    let last = events.last().expect("events");
    assert_eq!((&last["kind"], &last["stop_reason"]), (&json!("run.finished"), &json!("end_turn")), "{last}");
    assert!(last["usage"].is_object());
}

#[tokio::test(flavor = "multi_thread")]
async fn denials_and_faults_go_back_to_the_model_and_the_run_goes_on() {
    let exchanges = [
        Exchange::stream(render::openai_calls(&[
            ("a", "files__read_file", "{\"path\":\"/etc/passwd\"}"),
            ("b", "calculator__calculate", "{\"expression\":\"1 / 0\"}"),
            ("c", "no_such_tool", "{}"),
            ("d", "calculator__calculate", "not json"),
        ])),
        Exchange::stream(render::openai_text(&["done"])),
    ];
    let model = FakeLlm::strict(exchanges, validate::openai).await.expect("a server");
    let host = Host::new()
        .policy(
            "version = 1\n[[plugins.calculator.tools]]\nname = \"*\"\ndecision = \"allow\"\n\
             [[plugins.files.tools]]\nname = \"list_files\"\ndecision = \"allow\"\n",
        )
        .variable("OPENAI_BASE_URL", &format!("{}/v1", model.url()));
    let (ran, _host) = run(host, &["try"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "done\n"), "{ran:?}");
    let requests = model.requests();
    let results: Vec<&Value> =
        requests[1].body["messages"].as_array().expect("messages").iter().filter(|message| message["role"] == "tool").collect();
    assert_eq!(results.len(), 4);
    for (result, expected) in results.iter().zip(["policy.denied", "tool.invalid_arguments", "tool.unknown", "args.invalid"]) {
        assert!(result["content"].as_str().is_some_and(|text| text.contains(expected)), "{expected}: {result}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_step_limit_ends_a_run_that_would_go_on() {
    let call = || Exchange::stream(render::openai_calls(&[("a", "calculator__calculate", "{\"expression\":\"1\"}")]));
    let exchanges = [call(), call(), Exchange::stream(render::openai_text(&["as far as I came"]))];
    let model = FakeLlm::start(exchanges).await.expect("a server");
    let host = Host::new()
        .policy("version = 1\n[[plugins.calculator.tools]]\nname = \"*\"\ndecision = \"allow\"\n")
        .variable("OPENAI_BASE_URL", &format!("{}/v1", model.url()));
    let (ran, _host) = run(host, &["--max-steps", "2", "go on"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("max_steps"), "{ran:?}");
    assert!(ran.stdout.contains("as far as I came"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_stops_a_run_cleanly() {
    let waiting = honeycomb_tests::fakellm::Signal::default();
    let model = FakeLlm::start([Exchange::stream("").before_headers(waiting.clone())]).await.expect("a server");
    let host = Host::new().variable("OPENAI_BASE_URL", &format!("{}/v1", model.url()));
    let child = host
        .command()
        .args(["--json", "wait"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    // The run is under way once the model was asked.
    while model.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    let pid = child.id().to_string();
    let killed = std::process::Command::new("kill").args(["-INT", &pid]).status().expect("kill");
    assert!(killed.success());
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await.expect("waited").expect("output");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{stdout}");
    let last = stdout.lines().last().expect("events");
    assert!(last.contains("run.finished") && last.contains("cancelled"), "{last}");
    waiting.fire();
}
