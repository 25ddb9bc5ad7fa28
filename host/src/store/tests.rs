//! What is stored can be gone on with, whatever happens to process, disk and file.

mod damage;
mod sessions;

use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::agent::{CheckedCall, Event, Observer as _, Run, RunSettings, Step};
use crate::message::{FinishReason, ModelTurn, Part, TokenUsage, ToolCall, ToolStatus};
use crate::tool::{Approval, CallUsage, Check, Content, Question, ToolHints, ToolOutcome, ToolSpec};

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("sessions.db")
    }

    fn open(&self) -> Store {
        Store::open(&self.path(), StoreOptions::default()).expect("opens")
    }
}

fn tools() -> Arc<[ToolSpec]> {
    let spec = |name: &str, idempotent| ToolSpec {
        name: name.to_owned(),
        title: None,
        description: "A tool.".to_owned(),
        input_schema: json!({ "type": "object" }),
        output_schema: None,
        hints: ToolHints { read_only: idempotent, idempotent, ..ToolHints::default() },
    };
    [spec("a__read", true), spec("a__write", false)].into_iter().collect()
}

fn turn(parts: Vec<Part>) -> ModelTurn {
    ModelTurn { parts, finish_reason: FinishReason::Stop, usage: TokenUsage::default() }
}

fn call(id: &str, name: &str) -> Part {
    Part::ToolCall(ToolCall {
        id: id.to_owned(),
        provider_id: None,
        name: name.to_owned(),
        arguments: format!("{{\"n\":\"{id}\"}}"),
    })
}

fn outcome(text: &str) -> ToolOutcome {
    ToolOutcome {
        status: ToolStatus::Ok,
        content: vec![Content::Text { text: text.to_owned() }],
        structured: None,
        error: None,
        denials: Vec::new(),
        usage: CallUsage::default(),
    }
}

fn question() -> Question {
    Question {
        plugin: "a".into(),
        tool: "write".into(),
        arguments: json!({}),
        rule: "policy.toml:7".into(),
        rule_id: String::new(),
        sha256: String::new(),
        hints: ToolHints::default(),
    }
}

/// Stores a run with the events since its last checkpoint.
fn store(session: &Session, run: &mut Run, seq: &mut u64) {
    for kind in run.take_events() {
        session.event(&Event { run_id: run.id().to_owned(), parent_run_id: None, seq: *seq, ts: 7, kind });
        *seq += 1;
    }
    session.store_run(run).expect("stores");
}

/// Does what a runner does, up to `checkpoints` checkpoints, each shown to `after`. The model makes one turn of `turns` after the other,
/// then answers.
fn drive(session: &Session, run: &mut Run, turns: &[Vec<Part>], checkpoints: usize, after: &mut dyn FnMut(&Run)) {
    let (mut turns, mut seq, mut done) = (turns.iter(), 0, 0);
    let mut checkpoint = |run: &mut Run| {
        store(session, run, &mut seq);
        after(run);
        done += 1;
        done < checkpoints
    };
    if !checkpoint(run) {
        return;
    }
    loop {
        match run.next_step(0, &tools()) {
            Step::CallModel(_) => {
                let parts = turns.next().cloned().unwrap_or_else(|| vec![Part::text("完成")]);
                run.on_model(Ok(turn(parts)), 0);
            }
            Step::CheckCalls(calls) => {
                let checked = |call: &ToolCall| CheckedCall { call_id: call.id.clone(), arguments: None, check: Check::Ready };
                run.on_checks(calls.iter().map(checked).collect(), 0);
            }
            Step::CallTools(group) => {
                let ids: Vec<String> = group.iter().map(|pending| pending.call.id.clone()).collect();
                run.on_started(&ids, 0);
                if !checkpoint(run) {
                    return;
                }
                for (index, id) in ids.iter().enumerate() {
                    let text = format!("result of {id} in {} {}", run.id(), "长".repeat(300));
                    run.on_tool(id, &outcome(&text), 0);
                    if index + 1 < ids.len() && !checkpoint(run) {
                        return;
                    }
                }
            }
            Step::Done(_) => {
                checkpoint(run);
                return;
            }
            Step::AskApproval(_) | Step::Summarise(_) => unreachable!("nothing asks, and everything fits"),
        }
        if !checkpoint(run) {
            return;
        }
    }
}

fn settings() -> RunSettings {
    let mut settings = RunSettings::default();
    settings.display.default.max_bytes = 200;
    settings
}

fn any_turns() -> impl Strategy<Value = Vec<Vec<Part>>> {
    let name = prop_oneof![Just("a__read"), Just("a__write"), Just("a__nope")];
    let turn = prop::collection::vec(name, 1..4);
    prop::collection::vec(turn, 0..4).prop_map(|turns| {
        let name = |turn: usize, index: usize, name: &str| call(&format!("{turn}-{index}"), name);
        let turns = turns.into_iter().enumerate();
        turns.map(|(turn, names)| names.into_iter().enumerate().map(|(index, tool)| name(turn, index, tool)).collect()).collect()
    })
}

fn json_of(run: &Run) -> String {
    // As it is read back: without what is not stored, and without what is not believed.
    Run::from_json(&run.to_json().expect("writes")).expect("reads").to_json().expect("writes")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The log is what a crash can cut: at each byte of it, the session is what it was at one of its checkpoints, and goes on.
    #[test]
    fn a_log_that_is_cut_anywhere_is_a_session_that_goes_on(turns in any_turns(), cut in 0.0..1.0_f64) {
        let place = Place::new();
        let store = place.open();
        let session = store.create().expect("begins");
        let mut run = Run::new("run", "北京天气", settings());
        let mut seen = Vec::new();
        drive(&session, &mut run, &turns, usize::MAX, &mut |run| seen.push(json_of(run)));

        let after = Place::new();
        std::fs::copy(place.path(), after.path()).expect("copied");
        let log = std::fs::read(database::beside(&place.path(), "-wal")).expect("read");
        let kept = (log.len() as f64 * cut) as usize;
        std::fs::write(database::beside(&after.path(), "-wal"), &log[..kept]).expect("written");

        let store = after.open();
        let Some(first) = store.list(&ListQuery::default()).expect("lists").sessions.pop() else { return Ok(()) };
        let session = store.open_session(&first.id).expect("opens");
        let mut run = session.load().expect("loads").expect("has a run");
        prop_assert!(seen.contains(&json_of(&run)));
        drive(&session, &mut run, &[], usize::MAX, &mut |_| {});
        prop_assert!(run.result().is_some());
        let again = session.load().expect("loads").expect("has a run");
        prop_assert_eq!(json_of(&again), json_of(&run));
    }

    /// The same for a process that ends after any checkpoint; and no call that is not idempotent is started twice.
    #[test]
    fn a_run_that_ends_after_any_checkpoint_goes_on_in_another_process(turns in any_turns(), checkpoints in 1..20_usize) {
        let place = Place::new();
        let store = place.open();
        let session = store.create().expect("begins");
        let mut run = Run::new("run", "北京天气", settings());
        drive(&session, &mut run, &turns, checkpoints, &mut |_| {});
        let id = session.id().to_owned();
        drop((session, store));

        let store = place.open();
        let session = store.open_session(&id).expect("opens");
        let mut run = session.load().expect("loads").expect("has a run");
        drive(&session, &mut run, &[], usize::MAX, &mut |_| {});
        prop_assert!(run.result().is_some());
        let detail = store.show(&id).expect("shows");
        prop_assert_eq!(detail.conversation.as_slice(), run.messages());
        for call in &detail.calls {
            prop_assert!(call.attempts <= 1 || call.tool == "a__read", "{:?}", call);
            prop_assert!(!["pending", "started"].contains(&call.status.as_str()), "{:?}", call);
        }
        prop_assert_eq!(detail.session.messages as usize, run.messages().len());
        prop_assert_eq!(detail.session.tool_calls as usize, detail.calls.len());
    }
}
