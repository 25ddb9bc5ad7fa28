//! Workers over a real provider's connections: what they hold is gone when the call that started them ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use honeycomb_host::agent::{Runner, RunnerSettings, StopReason, WorkerSettings};
use honeycomb_host::provider::settings::{ProviderKind, ProviderSettings, build};
use honeycomb_tests::alone::alone;
use honeycomb_tests::fakellm::{Exchange, FakeLlm, Signal, render, validate};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::agent::Weather;

/// What this process holds.
#[derive(Debug, Eq, PartialEq)]
struct Held {
    tasks: usize,
    threads: usize,
    sockets: usize,
}

impl Held {
    fn now() -> Self {
        let links =
            std::fs::read_dir("/proc/self/fd").expect("Linux").filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        Self {
            tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks(),
            threads: std::fs::read_dir("/proc/self/task").expect("Linux").count(),
            sockets: links.filter(|link| link.to_string_lossy().starts_with("socket:")).count(),
        }
    }

    /// Waits until this is what is held; connections close a moment after their futures are dropped.
    async fn settles_at(&self, what: &str) {
        let until = Instant::now() + Duration::from_secs(10);
        while Self::now() != *self {
            assert!(Instant::now() < until, "{what}: {:?} is held, not {self:?}", Self::now());
            tokio::task::yield_now().await;
        }
    }
}

#[test]
fn four_workers_one_hanging_three_answers_arrive_and_nothing_keeps_running() {
    if !alone("workers::four_workers_one_hanging_three_answers_arrive_and_nothing_keeps_running") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(four_workers());
}

async fn four_workers() {
    let subtasks: Vec<Value> = ["北京", "Paris", "Oslo", "Quito"].iter().map(|city| json!({ "task": city })).collect();
    let arguments = json!({ "subtasks": subtasks }).to_string();
    let never = Signal::default();
    let answer = || Exchange::stream(render::openai_text(&["晴"]));
    let exchanges = [
        Exchange::stream(render::openai_calls(&[("d", "delegate", &arguments)])),
        answer(),
        Exchange::stream(render::openai_text(&["晴"])).before_headers(never.clone()),
        answer(),
        answer(),
        Exchange::stream(render::openai_text(&["三个城市是晴天"])),
    ];
    let server = FakeLlm::strict(exchanges, validate::openai).await.expect("listens");
    let mut settings = ProviderSettings::new(ProviderKind::OpenAi, "fake-model");
    settings.base_url = Some(server.url());
    let mut runner_settings = RunnerSettings::default();
    runner_settings.run.budget.max_wall_ms = Some(4_000);
    let runner = Runner::new(build(settings).expect("valid settings"), Arc::new(Weather))
        .with_settings(runner_settings)
        .with_workers(WorkerSettings { reserve_percent: 50, ..WorkerSettings::default() });

    tokio::task::yield_now().await;
    let before = Held::now();
    let begun = Instant::now();
    let result = runner.run("北京天气怎么样？", &CancellationToken::new()).await.expect("starts");
    assert!(begun.elapsed() < Duration::from_millis(4_000), "{:?}", begun.elapsed());
    assert_eq!((result.stop_reason, result.answer.as_deref()), (StopReason::EndTurn, Some("三个城市是晴天")), "{result:?}");
    assert_eq!((result.usage.workers, result.usage.steps), (4, 5));
    // The server is still about to answer the one that hung; its end of that connection goes with the answer.
    never.fire();
    before.settles_at("after the run").await;

    let requests = server.requests();
    assert_eq!((requests.len(), server.remaining()), (6, 0));
    let last = requests[5].body["messages"].as_array().expect("messages").clone();
    let result = last.iter().find(|message| message["role"] == "tool").expect("the reports")["content"].to_string();
    assert_eq!((result.matches("晴").count(), result.matches("deadline").count()), (3, 1), "{result}");
}
