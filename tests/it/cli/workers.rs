//! The program with workers.

use std::time::{Duration, Instant};

use honeycomb_tests::fakellm::{Exchange, FakeLlm, Signal, render, validate};
use honeycomb_tests::host::Host;
use serde_json::{Value, json};

const CALCULATOR: &str = "version = 1\n[[plugins.calculator.tools]]\nname = \"*\"\ndecision = \"allow\"\nmax_calls = 2\n";

fn delegate(tasks: &[&str]) -> Exchange {
    let subtasks: Vec<Value> = tasks.iter().map(|task| json!({ "task": task })).collect();
    let arguments = json!({ "subtasks": subtasks }).to_string();
    Exchange::stream(render::openai_calls(&[("d", "delegate", &arguments)]))
}

fn says(text: &str) -> Exchange {
    Exchange::stream(render::openai_text(&[text]))
}

fn host(model: &FakeLlm) -> Host {
    Host::new().policy(CALCULATOR).variable("OPENAI_BASE_URL", &format!("{}/v1", model.url()))
}

async fn run(host: Host, arguments: Vec<String>) -> honeycomb_tests::host::Ran {
    let run = move || host.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(run).await.expect("it ran")
}

fn events(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_holds_with_a_hanging_worker_and_only_the_answer_is_printed() {
    let never = Signal::default();
    let exchanges = [
        delegate(&["北京", "Paris", "Oslo", "Quito"]),
        says("worker's words"),
        says("worker's words").before_headers(never.clone()),
        says("worker's words"),
        says("worker's words"),
        says("三个城市是晴天"),
    ];
    let model = FakeLlm::strict(exchanges, validate::openai).await.expect("a server");
    let host = host(&model);
    let config = host.write(
        "honeycomb.toml",
        "[agent]\nmax_seconds = 8\n[agent.workers]\nenabled = true\nmax_per_run = 4\nmax_seconds = 2\nreserve_percent = 50\n",
    );
    let begun = Instant::now();
    let ran = run(host, vec!["--config".into(), config.display().to_string(), "北京天气怎么样？".into()]).await;
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "三个城市是晴天\n"), "{ran:?}");
    for expected in ["  [1] 北京", "  [4] Quito", "interrupted: deadline"] {
        assert!(ran.stderr.contains(expected), "{expected}: {}", ran.stderr);
    }
    assert_eq!(ran.stderr.matches("] done").count(), 3, "{}", ran.stderr);
    never.fire();
}

#[tokio::test(flavor = "multi_thread")]
async fn max_calls_of_the_policy_holds_for_parent_and_workers_together() {
    let calculate = || {
        Exchange::stream(render::openai_calls(&[
            ("a", "calculator__calculate", "{\"expression\":\"123 + 456\"}"),
            ("b", "calculator__calculate", "{\"expression\":\"1 + 1\"}"),
        ]))
    };
    let exchanges = [delegate(&["x", "y"]), calculate(), says("579"), calculate(), says("nothing"), calculate(), says("end")];
    let model = FakeLlm::strict(exchanges, validate::openai).await.expect("a server");
    let ran = run(host(&model), ["--json", "--workers", "1", "task"].map(str::to_owned).to_vec()).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let events = events(&ran.stdout);
    let completed: Vec<&Value> =
        events.iter().filter(|event| event["kind"] == "tool.completed" && event["name"] == "calculator__calculate").collect();
    assert_eq!(completed.len(), 6);
    assert_eq!(completed.iter().filter(|event| event["status"] == "ok").count(), 2, "{ran:?}");
    assert_eq!(completed.iter().filter(|event| event["code"] == "limit.calls").count(), 4);

    // Each run's events have no gaps, and a worker's name their parent.
    let last = events.last().expect("events");
    assert_eq!((&last["kind"], &last["parent_run_id"]), (&json!("run.finished"), &Value::Null));
    let mut runs: std::collections::HashMap<&str, Vec<&Value>> = std::collections::HashMap::new();
    for event in &events {
        runs.entry(event["run_id"].as_str().expect("an id")).or_default().push(event);
    }
    assert_eq!(runs.len(), 3);
    for events in runs.values() {
        for (seq, event) in events.iter().enumerate() {
            assert_eq!(event["seq"], seq);
            assert!(event["run_id"] == last["run_id"] || event["parent_run_id"] == last["run_id"], "{event}");
        }
    }
    assert_eq!((&last["usage"]["workers"], &last["usage"]["tool_calls"]), (&json!(2), &json!(7)));
}

#[tokio::test(flavor = "multi_thread")]
async fn delegate_is_offered_only_to_who_asks_for_it() {
    for (arguments, config, offered) in [
        (&[][..], "", false),
        (&[], "[agent.workers]\nmax_parallel = 2\n", false),
        (&[], "[agent.workers]\nenabled = true\n", true),
        (&["--workers", "2"], "", true),
        (&["--workers", "0"], "[agent.workers]\nenabled = true\n", false),
    ] {
        let model = FakeLlm::strict([says("end")], validate::openai).await.expect("a server");
        let host = host(&model);
        let config = host.write("honeycomb.toml", config);
        let mut all = vec!["--config".to_owned(), config.display().to_string()];
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        all.push("say something".to_owned());
        let ran = run(host, all).await;
        assert_eq!(ran.code, 0, "{ran:?}");
        let tools = model.requests()[0].body["tools"].to_string();
        assert_eq!(tools.contains("\"delegate\""), offered, "{arguments:?}: {tools}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_stops_the_workers_with_their_parent() {
    let waiting = Signal::default();
    let hang = || says("late").before_headers(waiting.clone());
    let model = FakeLlm::strict([delegate(&["x", "y"]), hang(), hang()], validate::openai).await.expect("a server");
    let host = host(&model);
    let mut child = host
        .command()
        .args(["--json", "--workers", "2", "wait for both"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    while model.requests().len() < 3 {
        assert_eq!(child.try_wait().expect("its state"), None, "it ended before both workers asked");
        tokio::task::yield_now().await;
    }
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await.expect("waited").expect("output");
    assert_eq!(output.status.code(), Some(130));
    let events = events(&String::from_utf8(output.stdout).expect("UTF-8"));
    let ends: Vec<&Value> = events.iter().filter(|event| event["kind"] == "run.finished").collect();
    assert_eq!(ends.len(), 3, "{events:?}");
    assert!(ends.iter().all(|event| event["stop_reason"] == "cancelled"));
    assert_eq!(ends[2]["run_id"], events[0]["run_id"], "the parent ends last");
    drop(host);
}
