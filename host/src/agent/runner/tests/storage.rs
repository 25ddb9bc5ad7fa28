//! Nothing is done that is not stored.

use super::*;
use crate::agent::event::ToolCompleted;
use crate::tool::ErrorCode;

/// Runs a task of one turn with two calls, whose checkpoint `fails_at` fails; returns the calls that ran, and all checkpoints.
async fn run(fails_at: Option<usize>, names: [&str; 2]) -> (RunResult, Vec<String>, Arc<Recorder>) {
    let model = FakeModel::script([calls(&[("1", names[0], "{}"), ("2", names[1], "{}")]), says("done")]);
    let tools = FakeTools::echo();
    let (runner, recorder) = runner(&model, &tools);
    *recorder.fails_at.lock().expect("lock") = fails_at;
    let result = runner.run("task", &CancellationToken::new()).await.expect("runs");
    let ran = tools.log.lock().expect("lock").iter().filter_map(|entry| entry.strip_prefix('+').map(str::to_owned)).collect();
    (result, ran, recorder)
}

#[tokio::test]
async fn a_run_that_cannot_be_stored_ends_before_it_does_more() {
    let (_, _, recorder) = run(None, ["a__write", "b__read"]).await;
    // From there on the end is told, and what has ended is not undone.
    let ended =
        recorder.checkpoints().iter().position(|json| Run::from_json(json).expect("a run").result().is_some()).expect("ends");
    let mut seen = Vec::new();
    for fails_at in 0..ended {
        let (result, ran, recorder) = run(Some(fails_at), ["a__write", "b__read"]).await;
        assert_eq!(result.stop_reason, StopReason::StorageFailed, "checkpoint {fails_at}");
        assert_eq!(result.error.expect("says why").code, ErrorCode::HOST_STORAGE);
        // What ran is exactly what some checkpoint before it says is started.
        let before = &recorder.checkpoints()[..fails_at];
        for id in &ran {
            let started = |json: &String| json.contains(r#"{"started":null}"#) && json.contains(&format!(r#""id":"{id}""#));
            assert!(before.iter().any(started), "call {id} ran and was not stored, checkpoint {fails_at}");
        }
        seen.push(ran.len());
    }
    assert!(seen.contains(&0) && seen.contains(&1) && seen.contains(&2), "{seen:?}");
}

#[tokio::test]
async fn a_call_that_was_not_started_is_said_not_to_have_been() {
    // The task, the turn, the checks; then the calls that start.
    let (result, ran, recorder) = run(Some(3), ["a__read", "b__read"]).await;
    assert_eq!((result.stop_reason, ran.len(), result.usage.tool_calls), (StopReason::StorageFailed, 0, 0));
    let statuses: Vec<ToolStatus> = recorder
        .kinds()
        .into_iter()
        .filter_map(|kind| match kind {
            EventKind::ToolCompleted(completed) => {
                let ToolCompleted { status, .. } = *completed;
                Some(status)
            }
            _ => None,
        })
        .collect();
    assert_eq!(statuses, [ToolStatus::NotExecuted; 2]);
}

#[tokio::test]
async fn the_task_is_stored_before_the_model_is_asked_and_each_outcome_before_it_is_asked_again() {
    let (_, _, recorder) = run(None, ["a__read", "b__read"]).await;
    let checkpoints = recorder.checkpoints();
    assert!(checkpoints[0].contains("task") && checkpoints[0].contains(r#""started":false"#), "{}", checkpoints[0]);
    let started = checkpoints.iter().position(|json| json.matches(r#"{"started":null}"#).count() == 2).expect("both start");
    assert_eq!(checkpoints[started + 1].matches(r#"{"started":null}"#).count(), 1, "the first outcome");
    assert_eq!(checkpoints[started + 2].matches(r#"{"started":null}"#).count(), 0, "the second");
}
