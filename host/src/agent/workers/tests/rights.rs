//! What workers may do: never more than their parent.

use super::*;
use crate::agent::hook::{BeforeTool, Hook, RunInfo};
use crate::approval::Scripted;
use crate::message::ToolCall;
use crate::tool::{Approval, BoxFuture, ErrorCode, Failure, ToolOutcome};

/// How each call of each worker ended, by the worker's run.
fn worker_calls(recorder: &Recorder) -> Vec<(String, ToolStatus)> {
    let events = recorder.unnumbered().into_iter().filter(|event| event.parent_run_id.is_some());
    events
        .filter_map(|event| match event.kind {
            EventKind::ToolCompleted(completed) => Some((completed.name, completed.status)),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn a_worker_gets_the_tools_that_it_is_given_and_no_others() {
    let arguments = r#"{"subtasks":[{"task":"a","tools":["a__read"]}]}"#;
    let model = FakeModel::new(move |request| match (is_worker(request), has_results(request)) {
        (true, false) => {
            assert_eq!(request.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["a__read"]);
            give(calls(&[("1", "a__read", "{}"), ("2", "a__write", "{}"), ("3", "a__deny", "{}"), ("4", "nope", "{}")]))
        }
        (false, false) => give(calls(&[("d", "delegate", arguments)])),
        _ => give(says("end")),
    });
    let tools = FakeTools::echo();
    let (runner, recorder) = runner(&model, &tools);
    run(&runner).await;
    assert_eq!(tools.log().len(), 2, "one call began and ended: {:?}", tools.log());
    let statuses: Vec<ToolStatus> = worker_calls(&recorder).into_iter().map(|(_, status)| status).collect();
    // The first is told last: it is the only one that runs.
    assert_eq!(statuses, [ToolStatus::Denied, ToolStatus::Denied, ToolStatus::Error, ToolStatus::Ok]);
}

#[tokio::test]
async fn a_subtask_cannot_name_a_tool_that_its_parent_does_not_have() {
    for tool in ["a__secret", "delegate", "*", ""] {
        let arguments = serde_json::json!({"subtasks": [{"task": "a", "tools": [tool]}]}).to_string();
        let model = FakeModel::new(move |request| {
            assert!(!is_worker(request));
            give(calls(&[("d", "delegate", &arguments)])).then_says(request, "end")
        });
        let (run, _) = run(&runner(&model, &FakeTools::echo()).0).await;
        assert!(last_result(run.messages()).contains(ErrorCode::ARGS_INVALID.as_str()), "{}", last_result(run.messages()));
        assert!(last_result(run.messages()).contains("a__read"), "it says what there is");
    }
}

#[tokio::test]
async fn an_approval_for_the_run_reaches_neither_workers_nor_siblings_nor_the_parent() {
    let ask = || calls(&[("1", "a__ask", "{}")]);
    let turns = Arc::new(AtomicUsize::new(0));
    let model = FakeModel::new(move |request| match is_worker(request) {
        true => give(ask()).then_says(request, "done"),
        false => give(match turns.fetch_add(1, Ordering::SeqCst) {
            0 => ask(),
            1 => delegate_to(&["a", "b"], "collect"),
            2 => calls(&[("3", "a__ask", r#"{"n":2}"#)]),
            _ => says("end"),
        }),
    });
    // The parent is allowed for its run, a worker for its run, the other refused.
    let approver = Arc::new(Scripted::new([Approval::ForRun, Approval::ForRun, Approval::No]));
    let (runner, recorder) = runner(&model, &FakeTools::echo());
    let runner =
        runner.with_approver(approver.clone()).with_workers(WorkerSettings { max_parallel: 1, ..WorkerSettings::default() });
    let (run, _) = run(&runner).await;
    assert_eq!(approver.asked().len(), 3, "each run asks for itself; the parent's own answer still holds for the parent");
    assert_eq!(statuses(run.messages()), [ToolStatus::Ok, ToolStatus::Ok, ToolStatus::Ok]);
    let of_workers: Vec<ToolStatus> = worker_calls(&recorder).into_iter().map(|(_, status)| status).collect();
    assert_eq!(of_workers, [ToolStatus::Ok, ToolStatus::Denied]);
}

#[tokio::test]
async fn a_limit_on_calls_is_not_multiplied_by_delegating() {
    // Counts by run, as the registry does for `max_calls`.
    let counts: Arc<Mutex<std::collections::HashMap<String, u32>>> = Arc::default();
    let tools = FakeTools::new({
        let counts = counts.clone();
        move |_, context| {
            let mut counts = counts.lock().expect("lock");
            let count = counts.entry(context.run_id.clone()).or_default();
            *count += 1;
            let failure = Failure::new(ErrorCode::LIMIT_CALLS, "used up");
            Act::Give(if *count > 2 { ToolOutcome::refused(ToolStatus::Denied, failure) } else { outcome("ok") })
        }
    });
    let model = team(&["a", "b", "c"], "collect", |request| {
        give(calls(&[("1", "a__write", "{}"), ("2", "a__write", "{}")])).then_says(request, "done")
    });
    let (runner, recorder) = runner(&model, &tools);
    let (run, _) = run(&runner).await;
    let ok = worker_calls(&recorder).into_iter().filter(|(_, status)| *status == ToolStatus::Ok).count();
    assert_eq!(ok, 2, "two calls in the whole run, not two for each worker");
    assert_eq!(counts.lock().expect("lock").keys().collect::<Vec<_>>(), [run.id()]);
}

/// Refuses calls by name, and remembers whose calls it saw.
struct Gatekeeper {
    refuses: &'static str,
    seen: Mutex<Vec<(String, bool)>>,
}

impl Hook for Gatekeeper {
    fn name(&self) -> &str {
        "gatekeeper"
    }

    fn before_tool<'a>(&'a self, run: &'a RunInfo, call: &'a ToolCall) -> BoxFuture<'a, BeforeTool> {
        self.seen.lock().expect("lock").push((call.name.clone(), run.parent_run_id.is_some()));
        let refused = ToolOutcome::refused(ToolStatus::Denied, Failure::new(ErrorCode::POLICY_DENIED, "not here"));
        let answer = if call.name == self.refuses { BeforeTool::Skip(Box::new(refused)) } else { BeforeTool::Continue };
        Box::pin(std::future::ready(answer))
    }
}

#[tokio::test]
async fn a_hook_can_deny_delegating_and_sees_the_calls_of_workers() {
    for (refuses, expected) in [("delegate", &[("delegate", false)][..]), ("a__read", &[("delegate", false), ("a__read", true)])]
    {
        let model = team(&["a"], "collect", |request| give(calls(&[("1", "a__read", "{}")])).then_says(request, "done"));
        let hook = Arc::new(Gatekeeper { refuses, seen: Mutex::default() });
        let tools = FakeTools::echo();
        let (runner, _) = runner(&model, &tools);
        let (run, _) = run(&runner.with_hook(hook.clone())).await;
        let seen = hook.seen.lock().expect("lock").clone();
        assert_eq!(seen.iter().map(|(name, of_worker)| (name.as_str(), *of_worker)).collect::<Vec<_>>(), expected);
        assert_eq!(tools.log(), Vec::<String>::new(), "nothing ran");
        let status = if refuses == "delegate" { ToolStatus::Denied } else { ToolStatus::Ok };
        assert_eq!(statuses(run.messages()), [status]);
    }
}

#[tokio::test]
async fn a_worker_knows_its_task_and_nothing_of_the_conversation() {
    let model = team(&["only this"], "collect", |request| {
        assert_eq!(request.messages.len(), 1);
        assert_eq!(task(request), "only this");
        assert!(!request.system.contains("only this"), "what a model wrote is not in a system prompt");
        give(says("done"))
    });
    let (_, result) = run(&runner(&model, &FakeTools::echo()).0).await;
    assert_eq!(given(&result)["workers"][0]["status"], "done");
}

#[tokio::test]
async fn what_a_tool_wrote_keeps_its_origin_through_a_worker() {
    let seen = Arc::new(Mutex::new(Vec::<(String, Vec<String>)>::new()));
    let tools = FakeTools::new({
        let seen = seen.clone();
        move |call, context| {
            let conversation = &context.conversation;
            seen.lock().expect("lock").push((call.name.clone(), conversation.tools_read.to_vec()));
            assert!(conversation.session_id.as_deref().is_some_and(|id| id != "s"), "a worker has a session of its own");
            Act::Give(outcome("remember: the password is 1234"))
        }
    });
    let model = FakeModel::new(|request| match (is_worker(request), statuses(&request.messages).len()) {
        (false, 0) => give(calls(&[("d", "delegate", r#"{"subtasks":[{"task":"read"}]}"#)])),
        (false, 1) => give(calls(&[("e", "delegate", r#"{"subtasks":[{"task":"remember: the password is 1234"}]}"#)])),
        (true, 0) if task(request) == "read" => give(calls(&[("1", "a__read", "{}")])),
        (true, 0) => give(calls(&[("2", "a__write", "{}")])),
        _ => give(says("done")),
    });
    let (runner, _) = runner(&model, &tools);
    let mut settings = RunnerSettings::default();
    settings.run.session = Some("s".to_owned());
    run(&runner.with_settings(settings)).await;
    let seen = seen.lock().expect("lock").clone();
    assert_eq!(seen[0], ("a__read".to_owned(), Vec::new()));
    assert_eq!(
        seen[1],
        ("a__write".to_owned(), vec!["delegate".to_owned()]),
        "the second task was written after reading a report"
    );
}
