//! `honeycomb.toml`: from the file to what a model is sent.

use honeycomb_tests::fakellm::{Exchange, FakeLlm, RecordedRequest, render, validate};
use honeycomb_tests::host::{Host, Ran, guests_dir};
use serde_json::{Value, json};

const POLICY: &str = "version = 1\n[[plugins.misbehave.tools]]\nname = \"*\"\ndecision = \"allow\"\n\
    [[plugins.calculator.tools]]\nname = \"*\"\ndecision = \"allow\"\n";

/// Runs a task with this configuration against a strict server with these answers.
async fn run(config: &str, plugins: Option<std::path::PathBuf>, answers: Vec<String>) -> (Ran, Vec<RecordedRequest>) {
    let model = FakeLlm::strict(answers.into_iter().map(Exchange::stream), validate::openai).await.expect("a server");
    let mut host = Host::new().policy(POLICY).variable("OPENAI_BASE_URL", &format!("{}/v1", model.url()));
    if let Some(plugins) = plugins {
        host = host.plugins(plugins);
    }
    host.write("prompt.txt", "你是助手。Steps: {{ max_steps }}.");
    host.write("honeycomb.toml", config);
    let ran = tokio::task::spawn_blocking(move || host.run(&["--config", "honeycomb.toml", "--json", "task"])).await;
    (ran.expect("it ran"), model.requests())
}

/// The results that a request holds.
fn results(request: &RecordedRequest) -> Vec<String> {
    let messages = request.body["messages"].as_array().expect("messages");
    let tools = messages.iter().filter(|message| message["role"] == "tool");
    tools.map(|message| message["content"].as_str().expect("text").to_owned()).collect()
}

/// A call of `echo` with a text that has a beginning, a middle and an end.
fn echo() -> String {
    let text = format!("BEGIN {} MIDDLE {} END", "天".repeat(200), "气".repeat(200));
    render::openai_calls(&[("big", "misbehave__echo", &json!({ "text": text }).to_string())])
}

fn says(text: &str) -> String {
    render::openai_text(&[text])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_result_is_cut_to_head_and_tail_and_can_be_read_back() {
    let config = "[agent.results.tools.\"misbehave/*\"]\nmax_bytes = 60\ntail_bytes = 20\n";
    let back = |offset: u64| {
        let id = "call_to_be_replaced";
        render::openai_calls(&[("r", "read_result", &json!({ "id": id, "offset": offset }).to_string())])
    };
    let (ran, requests) = run(config, Some(guests_dir()), vec![echo(), back(0), says("done")]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let shown = &results(&requests[1])[0];
    assert!(shown.contains("BEGIN") && shown.contains("END") && !shown.contains("MIDDLE"), "{shown}");
    assert!(shown.contains("bytes left out") && shown.len() < 300, "{shown}");
    assert!(requests[0].body["tools"].as_array().expect("tools").iter().all(|tool| tool["function"]["name"] != "read_result"));
    let offered = requests[1].body["tools"].as_array().expect("tools");
    assert!(offered.iter().any(|tool| tool["function"]["name"] == "read_result"), "offered once something is hidden");
    // The id is in the text that the model was shown, so a model can do what this script cannot.
    assert!(results(&requests[2])[1].contains("no result with id `call_to_be_replaced`"), "{:?}", results(&requests[2]));
    let id = shown.split("{\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("the id is shown");
    assert!(!id.is_empty() && shown.contains("\"offset\":"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pointer_picks_a_part_of_a_result() {
    let call = || render::openai_calls(&[("c", "calculator__calculate", r#"{"expression":"123 + 456"}"#)]);
    for (config, expected) in [
        ("[agent.results.tools.\"calculator/calculate\"]\npointer = \"/result\"\n", "579"),
        ("[agent.results.tools.\"calculator/*\"]\npointer = \"/nothing\"\n", r#"{"result":"579","exact":true}"#),
        ("", r#"{"result":"579","exact":true}"#),
    ] {
        let (ran, requests) = run(config, None, vec![call(), says("done")]).await;
        assert_eq!((ran.code, results(&requests[1])), (0, vec![expected.to_owned()]), "{config}: {ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_result_is_shown_as_the_models_own_summary() {
    let config = "[agent.results]\nmax_bytes = 100\n[agent.results.tools.\"misbehave/echo\"]\nsummarise = true\n";
    let (ran, requests) = run(config, Some(guests_dir()), vec![echo(), says("begins, goes on, ends"), says("done")]).await;
    assert_eq!((ran.code, requests.len()), (0, 3), "{ran:?}");
    assert!(requests[1].body.get("tools").is_none() && requests[1].body.to_string().contains("MIDDLE"), "{}", requests[1].body);
    let shown = &results(&requests[2])[0];
    assert!(shown.contains("begins, goes on, ends") && !shown.contains("BEGIN"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn prompt_budgets_history_and_price_reach_the_run() {
    let config = "[model]\nname = \"own-model\"\nprice = { input = 1000, output = 2000 }\nmax_output_tokens = 99\n\
        temperature = 0.5\n[agent]\nsystem_prompt_file = \"prompt.txt\"\nmax_steps = 4\n[agent.context]\nmax_history = 2\n";
    let call =
        |n: u32| render::openai_calls(&[("c", "calculator__calculate", &json!({"expression": n.to_string()}).to_string())]);
    let (ran, requests) = run(config, None, vec![call(1), call(2), call(3), says("done")]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let first = &requests[0].body;
    assert_eq!((&first["model"], &first["temperature"]), (&json!("own-model"), &json!(0.5)));
    assert_eq!(first["max_tokens"].as_u64().or(first["max_completion_tokens"].as_u64()), Some(99));
    assert_eq!(first["messages"][0], json!({"role": "system", "content": "你是助手。Steps: 4."}));
    // The task, and at most two more.
    let last = requests[3].body["messages"].as_array().expect("messages").len();
    assert!(last <= 5, "{}", requests[3].body);
    let finished: Value = serde_json::from_str(ran.stdout.lines().last().expect("events")).expect("JSON");
    // Four answers of 10 tokens in and 5 out.
    assert_eq!(finished["usage"]["cost_micros"], 4 * (10 * 1000 + 5 * 2000), "{finished}");
    assert!(ran.stdout.contains("\"tier\":\"max_history\""), "the log says which tier acted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misspelt_tool_is_told_of() {
    let (ran, _) = run("[agent.results.tools.\"calcualtor/*\"]\nmax_bytes = 9\n", None, vec![says("done")]).await;
    assert_eq!(ran.code, 0);
    assert!(ran.stderr.contains("warning: `agent.results.tools.\"calcualtor/*\"` matches no tool"), "{ran:?}");
}

#[test]
fn a_pipe_or_device_in_the_place_of_a_file_is_refused_and_not_waited_for() {
    let host = Host::new();
    let pipe = host.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let pipe = pipe.to_str().expect("UTF-8").to_owned();
    let script = format!("scripted:{pipe}");
    for (arguments, kind) in [
        (vec!["--config", &pipe, "task"], "a pipe"),
        (vec!["--config", "/dev/zero", "task"], "a device"),
        (vec!["--policy", &pipe, "task"], "a pipe"),
        (vec!["--policy", "/dev/zero", "policy", "check"], "a device"),
        (vec!["--model", &script, "task"], "a pipe"),
        (vec!["--model", "scripted:/dev/zero", "task"], "a device"),
        (vec!["call", "calculator/calculate", "--args", &format!("@{pipe}")], "a pipe"),
    ] {
        let ran = host.run(&arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains(&format!("it is {kind}, not a regular file")), "{arguments:?}: {ran:?}");
    }
    let ran = host.run(&["--config", "absent.toml", "task"]);
    assert!(ran.code == 2 && ran.stderr.contains("No such file"), "{ran:?}");
}
