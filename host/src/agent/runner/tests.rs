mod hooks;
mod session;
mod storage;

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::*;
use crate::agent::clock::FixedClock;
use crate::agent::event::Event;
use crate::agent::testing::{Act, FakeModel, FakeTools, Recorder, calls, outcome, says};
use crate::approval::Scripted;
use crate::message::{ModelTurn, Part, ToolStatus};
use crate::tool::Approval;

/// A runner with a standing clock, and what it tells.
fn runner(model: &Arc<FakeModel>, tools: &Arc<FakeTools>) -> (Runner, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let runner = Runner::new(model.clone(), tools.clone())
        .with_observer(recorder.clone())
        .with_clock(Arc::new(FixedClock(1_796_000_000_000)));
    (runner, recorder)
}

fn three_turns() -> Vec<ModelTurn> {
    vec![
        calls(&[("1", "a__read", r#"{"n":1}"#), ("2", "b__read", r#"{"n":2}"#), ("3", "a__write", "{}")]),
        calls(&[("4", "a__deny", "{}"), ("5", "nope", "{}")]),
        says("done"),
    ]
}

fn statuses(run: &Run) -> Vec<ToolStatus> {
    let parts = run.messages().iter().flat_map(|message| &message.parts);
    parts.filter_map(|part| if let Part::ToolResult(result) = part { Some(result.status) } else { None }).collect()
}

/// Events without what differs between two runs of the same task.
fn comparable(events: &[Event]) -> Vec<(u64, EventKind)> {
    events.iter().map(|event| (event.seq, event.kind.clone())).collect()
}

#[tokio::test]
async fn runs_a_task_from_start_to_end() {
    let (model, tools) = (FakeModel::script(three_turns()), FakeTools::echo());
    let (runner, recorder) = runner(&model, &tools);
    let mut run = runner.start("task").expect("starts");
    let result = runner.resume(&mut run, &CancellationToken::new()).await;
    assert_eq!((result.stop_reason, result.answer.as_deref()), (StopReason::EndTurn, Some("done")));
    assert_eq!((result.usage.steps, result.usage.tool_calls, result.usage.fuel), (3, 3, 30));
    assert_eq!(statuses(&run), [ToolStatus::Ok, ToolStatus::Ok, ToolStatus::Ok, ToolStatus::Denied, ToolStatus::Error]);
    let requests = model.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests[0].system.contains("Today is 2026-11-30"), "{}", requests[0].system);
    let kinds = recorder.kinds();
    assert!(matches!(kinds.first(), Some(EventKind::RunStarted { .. })));
    assert!(matches!(kinds.last(), Some(EventKind::RunFinished { .. })));
    let text: String = kinds
        .iter()
        .filter_map(|kind| if let EventKind::TextDelta { text } = kind { Some(text.as_str()) } else { None })
        .collect();
    assert_eq!(text, "done");
    let deltas = kinds.iter().filter(|kind| matches!(kind, EventKind::TextDelta { .. })).count();
    assert_eq!(deltas, 2, "the first at once, the others joined");
}

#[tokio::test]
async fn stepping_by_hand_is_the_same_as_running() {
    let (first, second) = (FakeModel::script(three_turns()), FakeModel::script(three_turns()));
    let (by_run, all) = runner(&first, &FakeTools::echo());
    by_run.run("task", &CancellationToken::new()).await.expect("runs");

    let (by_step, stepped) = runner(&second, &FakeTools::echo());
    let mut run = by_step.start("task").expect("starts");
    let cancel = CancellationToken::new();
    while by_step.step(&mut run, &cancel).await.is_none() {}
    assert_eq!(comparable(&all.events()), comparable(&stepped.events()));
    assert_eq!(first.requests(), second.requests());
}

#[tokio::test]
async fn a_run_stored_after_any_step_goes_on_with_the_same_events() {
    let model = FakeModel::script(three_turns());
    let (whole, expected) = runner(&model, &FakeTools::echo());
    let mut run = whole.start("task").expect("starts");
    let mut stored = vec![run.to_json().expect("writes")];
    let cancel = CancellationToken::new();
    while whole.step(&mut run, &cancel).await.is_none() {
        stored.push(run.to_json().expect("writes"));
    }
    for json in stored {
        let mut run = Run::from_json(&json).expect("reads");
        let seen = usize::try_from(run.next_seq()).expect("small");
        let turns = three_turns().split_off(run.usage().steps as usize);
        let recorder = Arc::new(Recorder::default());
        let runner = Runner::new(FakeModel::script(turns), FakeTools::echo())
            .with_observer(recorder.clone() as Arc<dyn Observer>)
            .with_clock(Arc::new(FixedClock(1_796_000_000_000)));
        runner.resume(&mut run, &cancel).await;
        let rest: Vec<_> = recorder.unnumbered().iter().map(|event| (event.seq, event.kind.clone())).collect();
        assert_eq!(rest, comparable(&expected.events())[seen..]);
    }
}

#[tokio::test]
async fn readers_run_together_within_the_caps() {
    let many: Vec<_> = (0..12).map(|n| (n.to_string(), if n % 2 == 0 { "a__read" } else { "b__read" })).collect();
    let many: Vec<_> = many.iter().map(|(id, name)| (id.as_str(), *name, "{}")).collect();
    for (parallel, per_plugin) in [(1, 1), (3, 2), (8, 2)] {
        let (model, tools) = (FakeModel::script([calls(&many), says("done")]), FakeTools::echo());
        let (runner, _) = runner(&model, &tools);
        let runner = runner.with_settings(RunnerSettings {
            max_parallel: parallel,
            max_parallel_per_plugin: per_plugin,
            ..RunnerSettings::default()
        });
        runner.run("task", &CancellationToken::new()).await.expect("runs");
        assert_eq!(tools.most_running.load(Ordering::SeqCst), parallel.min(2 * per_plugin));
        assert!(tools.most_of_a_plugin.load(Ordering::SeqCst) <= per_plugin);
    }
}

#[tokio::test]
async fn a_call_that_writes_runs_alone() {
    let turn = calls(&[("1", "a__read", "{}"), ("2", "a__write", "{}"), ("3", "a__write", r#"{"n":1}"#), ("4", "a__read", "{}")]);
    let (model, tools) = (FakeModel::script([turn, says("done")]), FakeTools::echo());
    let (runner, _) = runner(&model, &tools);
    runner.run("task", &CancellationToken::new()).await.expect("runs");
    assert_eq!(tools.log(), ["+1", "-1", "+2", "-2", "+3", "-3", "+4", "-4"]);
}

#[tokio::test]
async fn cancelling_drops_what_is_under_way_and_tells_each_outcome() {
    let cancel = CancellationToken::new();
    let tools = FakeTools::new({
        let cancel = cancel.clone();
        move |call, _| {
            if call.id == "1" {
                return Act::Give(outcome("in time"));
            }
            cancel.cancel();
            Act::Hang
        }
    });
    let model = FakeModel::script([calls(&[("1", "a__read", "{}"), ("2", "b__read", "{}"), ("3", "a__write", "{}")])]);
    let (runner, recorder) = runner(&model, &tools);
    let mut run = runner.start("task").expect("starts");
    let result = runner.resume(&mut run, &cancel).await;
    assert_eq!(result.stop_reason, StopReason::Cancelled);
    assert_eq!(statuses(&run), [ToolStatus::Ok, ToolStatus::Interrupted, ToolStatus::NotExecuted]);
    let completed = recorder.kinds().iter().filter(|kind| matches!(kind, EventKind::ToolCompleted(_))).count();
    assert_eq!(completed, 3);
}

#[tokio::test]
async fn a_parent_that_stops_stops_the_tool_too() {
    let seen = Arc::new(Mutex::new(None));
    let cancel = CancellationToken::new();
    let tools = FakeTools::new({
        let (seen, cancel) = (seen.clone(), cancel.clone());
        move |_, context| {
            *seen.lock().expect("lock") = Some(context.cancel.clone());
            cancel.cancel();
            Act::Hang
        }
    });
    let (runner, _) = runner(&FakeModel::script([calls(&[("1", "a__read", "{}")])]), &tools);
    runner.run("task", &cancel).await.expect("runs");
    assert!(seen.lock().expect("lock").as_ref().is_some_and(CancellationToken::is_cancelled));
}

#[tokio::test]
async fn a_call_or_a_model_that_hangs_ends_at_the_deadline() {
    let mut settings = RunnerSettings::default();
    settings.run.budget.max_wall_ms = Some(20);
    for hang_in_tool in [true, false] {
        let model =
            FakeModel::new(move |_| if hang_in_tool { Act::Give(Ok(calls(&[("1", "a__write", "{}")]))) } else { Act::Hang });
        let (runner, _) = runner(&model, &FakeTools::new(|_, _| Act::Hang));
        let runner = runner.with_settings(settings.clone());
        let mut run = runner.start("task").expect("starts");
        let result = runner.resume(&mut run, &CancellationToken::new()).await;
        assert_eq!(result.stop_reason, StopReason::Deadline);
        assert_eq!(statuses(&run), if hang_in_tool { vec![ToolStatus::Interrupted] } else { vec![] });
    }
}

#[tokio::test]
async fn broken_host_code_does_not_take_the_run_with_it() {
    struct Broken;
    impl Observer for Broken {
        fn event(&self, _: &Event) {
            panic!("the observer is broken");
        }
    }
    let tools = FakeTools::new(|call, _| if call.name == "a__write" { Act::Panic } else { Act::Give(outcome("fine")) });
    let model = FakeModel::script([calls(&[("1", "a__write", "{}"), ("2", "a__read", "{}")]), says("done")]);
    let (runner, recorder) = runner(&model, &tools);
    let runner = runner.with_observer(Arc::new(Broken));
    let mut run = runner.start("task").expect("starts");
    assert_eq!(runner.resume(&mut run, &CancellationToken::new()).await.stop_reason, StopReason::EndTurn);
    assert_eq!(statuses(&run), [ToolStatus::Interrupted, ToolStatus::Ok]);
    recorder.events();

    let (runner, _) = super::tests::runner(&FakeModel::new(|_| Act::Panic), &tools);
    let result = runner.run("task", &CancellationToken::new()).await.expect("runs");
    assert_eq!(result.stop_reason, StopReason::ModelError);
}

#[tokio::test]
async fn an_approval_for_the_run_is_remembered_and_goes_no_further() {
    let turns = || [calls(&[("1", "a__ask", "{}"), ("2", "a__ask", r#"{"n":1}"#)]), says("done")];
    let approver = Arc::new(Scripted::new([Approval::ForRun, Approval::No, Approval::Once]));
    let model = FakeModel::script(turns().into_iter().chain(turns()));
    let (runner, recorder) = runner(&model, &FakeTools::echo());
    let runner = runner.with_approver(approver.clone());
    let mut first = runner.start("task").expect("starts");
    runner.resume(&mut first, &CancellationToken::new()).await;
    assert_eq!(statuses(&first), [ToolStatus::Ok, ToolStatus::Ok]);
    let remembered: Vec<_> = recorder
        .kinds()
        .into_iter()
        .filter_map(|kind| if let EventKind::ApprovalResolved { remembered, .. } = kind { Some(remembered) } else { None })
        .collect();
    assert_eq!(remembered, [false, true]);

    let mut second = runner.start("task").expect("starts");
    runner.resume(&mut second, &CancellationToken::new()).await;
    assert_eq!(statuses(&second), [ToolStatus::Denied, ToolStatus::Ok]);
    assert_eq!(approver.asked().len(), 3);
}

#[tokio::test]
async fn a_tool_that_floods_progress_is_heard_ten_times_a_second() {
    let tools = FakeTools::new(|_, context| {
        let sink = context.progress.clone().expect("has a sink");
        for done in 0..1000 {
            sink(crate::tool::Progress { done, total: None, message: Some("…".into()) });
        }
        Act::Give(outcome("x"))
    });
    let (runner, recorder) = runner(&FakeModel::script([calls(&[("1", "a__read", "{}")]), says("done")]), &tools);
    runner.run("task", &CancellationToken::new()).await.expect("runs");
    assert_eq!(recorder.kinds().iter().filter(|kind| matches!(kind, EventKind::ToolProgress { .. })).count(), 1);
}

#[tokio::test]
async fn a_checkpoint_is_taken_before_a_tool_starts() {
    let recorder = Arc::new(Recorder::default());
    let tools = FakeTools::new({
        let recorder = recorder.clone();
        move |_, _| {
            let last = recorder.checkpoints().pop().expect("has one");
            assert!(last.contains(r#"{"started":null}"#), "{last}");
            Act::Give(outcome("x"))
        }
    });
    let runner =
        Runner::new(FakeModel::script([calls(&[("1", "a__write", "{}")]), says("done")]), tools).with_observer(recorder.clone());
    let result = runner.run("task", &CancellationToken::new()).await.expect("runs");
    assert_eq!(result.stop_reason, StopReason::EndTurn);
    assert!(recorder.checkpoints().iter().all(|json| Run::from_json(json).is_ok()));
}

#[tokio::test]
async fn a_consumer_that_does_not_read_does_not_stall_the_run() {
    let (runner, _) = runner(&FakeModel::script(three_turns()), &FakeTools::echo());
    let runner = Arc::new(runner);
    let mut handle = runner.stream(runner.start("task").expect("starts"));
    let run_id = handle.run_id().to_owned();
    let first = handle.next_event().await.expect("started");
    assert_eq!((first.run_id, first.seq), (run_id, 0));
    let (run, result) = handle.finish().await.expect("ends");
    assert_eq!((result.stop_reason, run.usage().steps), (StopReason::EndTurn, 3));
}

#[tokio::test]
async fn a_stream_can_be_read_to_its_end_steered_and_stopped() {
    let model = FakeModel::script([says("first"), says("second")]);
    let (runner, _) = runner(&model, &FakeTools::echo());
    let runner = Arc::new(runner);
    let mut handle = runner.stream(runner.start("task").expect("starts"));
    handle.steer("and this?");
    let mut last = None;
    while let Some(event) = handle.next_event().await {
        last = Some(event.kind);
    }
    assert!(matches!(last, Some(EventKind::RunFinished { .. })));
    assert!(model.requests()[0].messages[0].parts.len() == 2, "the task and the message");

    let hanging = Arc::new(super::tests::runner(&FakeModel::new(|_| Act::Hang), &FakeTools::echo()).0);
    let handle = hanging.stream(hanging.start("task").expect("starts"));
    handle.stop();
    assert_eq!(handle.finish().await.expect("ends").1.stop_reason, StopReason::Cancelled);
}

#[tokio::test]
async fn a_handle_that_is_dropped_stops_its_run() {
    let hanging = Arc::new(runner(&FakeModel::new(|_| Act::Hang), &FakeTools::echo()).0);
    let handle = hanging.stream(hanging.start("task").expect("starts"));
    let token = handle.cancel_token();
    drop(handle);
    tokio::time::timeout(Duration::from_secs(5), token.cancelled()).await.expect("is cancelled");
}
