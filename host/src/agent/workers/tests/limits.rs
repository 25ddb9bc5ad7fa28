//! What workers may use.

use super::*;
use crate::agent::{Budget, Price};
use crate::message::TokenUsage;
use crate::tool::ErrorCode;

fn failed_with(run: &Run) -> String {
    last_result(run.messages())
}

#[tokio::test]
async fn limits_on_workers_hold_and_say_what_they_are() {
    let settings = WorkerSettings::default();
    for (settings, budget, expected) in [
        (WorkerSettings { max_per_call: 2, ..settings }, Budget::default(), "args.invalid: 3 subtasks are too many"),
        (settings, Budget { max_workers: 2, ..Budget::default() }, "limit.run: 3 workers are too many"),
        (settings, Budget { max_steps: 8, ..Budget::default() }, "`steps` has 7 left, too little to share among 3 workers"),
        (settings, Budget { max_tool_calls: 4, ..Budget::default() }, "`tool_calls` has 3 left"),
        (settings, Budget { max_fuel: Some(3), ..Budget::default() }, "`fuel` has 3 left"),
    ] {
        let model = team(&["a", "b", "c"], "collect", |_| panic!("no worker starts"));
        let (runner, recorder) = runner(&model, &FakeTools::echo());
        let runner = with_budget(runner, budget).with_workers(settings);
        let (run, _) = run(&runner).await;
        assert!(failed_with(&run).contains(expected), "{expected}: {}", failed_with(&run));
        assert_eq!((run.usage().workers, by_run(&recorder).len()), (0, 1), "{expected}");
    }
}

#[tokio::test]
async fn workers_of_a_run_are_counted_over_all_its_calls() {
    let model = FakeModel::new(|request| match (is_worker(request), statuses(&request.messages).len()) {
        (true, _) => give(says("done")),
        (false, 0..2) => give(delegate_to(&["a", "b"], "collect")),
        (false, _) => give(says("end")),
    });
    let (runner, _) = runner(&model, &FakeTools::echo());
    let (run, _) = run(&with_budget(runner, Budget { max_workers: 3, ..Budget::default() })).await;
    assert_eq!(statuses(run.messages()), [ToolStatus::Ok, ToolStatus::NotExecuted]);
    assert_eq!(run.usage().workers, 2);
}

#[tokio::test]
async fn no_more_workers_run_at_once_than_may() {
    let tools = FakeTools::echo();
    let model = team(&["a", "b", "c", "d", "e", "f"], "collect", |request| {
        give(calls(&[("1", "a__write", "{}")])).then_says(request, "done")
    });
    let (runner, _) = runner(&model, &tools);
    let (run, _) = run(&runner.with_workers(WorkerSettings { max_parallel: 2, ..WorkerSettings::default() })).await;
    assert_eq!(run.usage().workers, 6);
    assert_eq!(tools.most_running.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn what_workers_use_is_used_by_their_parent() {
    let tokens = TokenUsage { input_tokens: 1_000, output_tokens: 100, ..TokenUsage::default() };
    let model = team(&["a", "b"], "collect", move |request| {
        let turn = if has_results(request) { says("done") } else { calls(&[("1", "a__read", "{}")]) };
        give(ModelTurn { usage: tokens, ..turn })
    });
    let (runner, _) = runner(&model, &FakeTools::echo());
    let mut settings = RunnerSettings::default();
    settings.run.price = Some(Price { input: 1_000_000, cached_input: 0, output: 0 });
    let (_, result) = run(&runner.with_settings(settings)).await;
    let usage = result.usage;
    assert_eq!((usage.steps, usage.tool_calls, usage.fuel), (2 + 4, 1 + 2, 20));
    assert_eq!((usage.tokens.input_tokens, usage.tokens.output_tokens, usage.cost_micros), (4_000, 400, 4_000));
}

#[tokio::test]
async fn a_shared_budget_leaves_enough_to_report_back() {
    // Each worker would go on for ever. It is asked for a report before its share is gone, and the parent can still answer.
    let tokens = TokenUsage { input_tokens: 100, ..TokenUsage::default() };
    for budget in [
        Budget { max_steps: 20, ..Budget::default() },
        Budget { max_tool_calls: 10, ..Budget::default() },
        Budget { max_input_tokens: Some(5_000), ..Budget::default() },
        Budget { max_fuel: Some(200), ..Budget::default() },
    ] {
        let mut n = 0;
        let model = team(&["a", "b"], "collect", move |request| {
            n += 1;
            let turn = if request.tools.is_empty() {
                says("as far as I came")
            } else {
                calls(&[("1", "a__read", &format!(r#"{{"n":{n}}}"#))])
            };
            give(ModelTurn { usage: tokens, ..turn })
        });
        let (runner, _) = runner(&model, &FakeTools::echo());
        let (_, result) = run(&with_budget(runner, budget)).await;
        assert_eq!(result.stop_reason, StopReason::EndTurn, "{budget:?}: {result:?}");
        let given = given(&result);
        for worker in given["workers"].as_array().expect("a list") {
            assert_eq!((&worker["status"], &worker["report"]), (&"incomplete".into(), &"as far as I came".into()), "{budget:?}");
        }
        assert!(result.usage.steps <= budget.max_steps, "{budget:?}: {:?}", result.usage);
        assert!(result.usage.tool_calls <= budget.max_tool_calls);
        assert!(budget.max_input_tokens.is_none_or(|max| result.usage.tokens.input_tokens <= max));
    }
}

#[tokio::test]
async fn a_worker_has_a_time_of_its_own() {
    let model = team(&["hang", "a"], "collect", |request| if task(request) == "a" { give(says("done")) } else { Act::Hang });
    let (runner, _) = runner(&model, &FakeTools::echo());
    let (_, result) = run(&runner.with_workers(WorkerSettings { max_wall_ms: Some(100), ..WorkerSettings::default() })).await;
    let workers = given(&result)["workers"].clone();
    assert_eq!((&workers[0]["stop_reason"], &workers[1]["status"]), (&"deadline".into(), &"done".into()));
}

#[tokio::test]
async fn workers_delegate_only_as_deep_as_they_may() {
    for (max_depth, deepest) in [(1, 1), (2, 2), (3, 3)] {
        let deepest_seen = Arc::new(AtomicUsize::new(0));
        let model = FakeModel::new({
            let seen = deepest_seen.clone();
            move |request| {
                let depth: usize = task(request).parse().unwrap_or(0);
                seen.fetch_max(depth, Ordering::SeqCst);
                let offered = request.tools.iter().any(|tool| tool.name == "delegate");
                assert_eq!(offered, depth < deepest, "depth {depth} of {deepest}");
                let below = (depth + 1).to_string();
                // Also a worker that tries it without being offered it.
                give(delegate_to(&[&below], "collect")).then_says(request, "done")
            }
        });
        let (runner, recorder) = runner(&model, &FakeTools::echo());
        let runner = runner.with_workers(WorkerSettings { max_depth, ..WorkerSettings::default() });
        let (run, result) = run(&runner).await;
        assert_eq!(result.stop_reason, StopReason::EndTurn);
        assert_eq!(deepest_seen.load(Ordering::SeqCst), deepest);
        assert_eq!(usize::try_from(run.usage().workers).expect("few"), deepest, "workers of workers count");
        assert_eq!(by_run(&recorder).len(), deepest + 1);
    }
}

#[tokio::test]
async fn a_worker_that_is_continued_later_does_not_become_its_own_parent() {
    let (runner, _) = runner(&FakeModel::script([]), &FakeTools::echo());
    let worker = Run::new("w", "task", crate::agent::RunSettings::default()).with_parent("p");
    assert_eq!(runner.follow_up(worker, "more").expect("starts").settings().worker_depth, 0);
    let own = runner.start("task").expect("starts");
    assert_eq!(runner.follow_up(own, "more").expect("starts").settings().worker_depth, 1);
}

#[tokio::test]
async fn a_report_is_bounded_and_cleaned() {
    let model = team(&["a"], "collect", |_| give(says(&format!("\u{1b}[2J\u{e0041}{}", "长".repeat(10_000)))));
    let (runner, _) = runner(&model, &FakeTools::echo());
    let (_, result) = run(&runner.with_workers(WorkerSettings { max_report_bytes: 100, ..WorkerSettings::default() })).await;
    let report = given(&result)["workers"][0]["report"].as_str().expect("text").to_owned();
    assert!(report.len() < 200 && report.starts_with("[2J长") && report.contains("bytes in all"), "{report}");
}

#[tokio::test]
async fn without_workers_there_is_no_delegate() {
    let model = FakeModel::new(|request| {
        assert!(request.tools.iter().all(|tool| tool.name != "delegate"));
        give(delegate_to(&["a"], "collect")).then_says(request, "end")
    });
    let (run, _) = run(&Runner::new(model, FakeTools::echo())).await;
    assert_eq!(statuses(run.messages()), [ToolStatus::Error]);
    assert!(failed_with(&run).contains(ErrorCode::TOOL_UNKNOWN.as_str()));
}
