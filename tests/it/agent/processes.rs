//! A run that goes from process to process.

use std::io::Write as _;
use std::process::{Command, Stdio};

use honeycomb_tests::steps::{TASK, runner};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Events without the run's id, which is drawn anew for each run.
fn comparable(mut event: Value) -> Value {
    event.as_object_mut().expect("an event").remove("run_id");
    event
}

#[tokio::test]
async fn a_run_that_changes_process_after_every_step_tells_what_one_process_tells() {
    let (whole, mut events) = runner(None);
    let result = whole.run(TASK, &CancellationToken::new()).await.expect("runs");
    assert_eq!(result.answer.as_deref(), Some("晴，579。"));
    let expected: Vec<Value> =
        std::iter::from_fn(|| events.try_next()).map(|event| comparable(serde_json::to_value(event).expect("JSON"))).collect();

    let (mut stored, mut told, mut processes) = (String::new(), Vec::new(), 0);
    loop {
        let mut child =
            Command::new(env!("CARGO_BIN_EXE_one_step")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        child.stdin.take().expect("a pipe").write_all(stored.as_bytes()).expect("written");
        let output = child.wait_with_output().expect("it ends");
        let step: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        told.extend(step["events"].as_array().expect("events").iter().cloned().map(comparable));
        stored = step["run"].as_str().expect("a run").to_owned();
        processes += 1;
        if step["done"] == true {
            break;
        }
        assert!(processes < 30, "it does not end");
    }
    assert!(processes > 6, "{processes}");
    assert_eq!(told, expected);
}
