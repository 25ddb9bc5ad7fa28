//! Measures the session store with many sessions: listing, loading, writing and size, each against plain SQLite in the same run.
//!
//! `cargo run --workspace --example session_scale -- [SESSIONS] [MESSAGES]`; 10000 sessions of 100 messages if nothing is said.

#![expect(clippy::print_stdout, reason = "it prints what it measures")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use honeycomb_host::agent::{CheckedCall, Event, Observer as _, Run, RunSettings, Step};
use honeycomb_host::message::{FinishReason, Message, ModelTurn, Part, TokenUsage, ToolCall, ToolStatus};
use honeycomb_host::store::{ListQuery, Store, StoreOptions};
use honeycomb_host::tool::{CallUsage, Check, Content, ToolHints, ToolOutcome, ToolSpec};
use rusqlite::{Connection, params};
use serde_json::json;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Sessions that are stored step by step, with their events, as a runner stores them.
const STEPPED: usize = 50;
/// How often each query is made.
const ROUNDS: usize = 200;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse());
    let (sessions, messages) = (number(10_000)?, number(100)?.max(4));
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("sessions.db");
    let store = Store::open(&path, StoreOptions::default())?;
    let floor_path = directory.path().join("floor.db");
    let mut floor = open_floor(&floor_path)?;

    let (mut stored, mut raw) = (Duration::ZERO, Duration::ZERO);
    for index in 0..sessions {
        let run = conversation(index, messages);
        let bodies: Vec<String> = run.messages().iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        stored += timed(|| Ok(store.create()?.store_run(&run)?))?;
        raw += timed(|| insert(&mut floor, index, &bodies))?;
    }
    let of = |path: &Path| -> Outcome<f64> { Ok(std::fs::metadata(path)?.len() as f64 / (sessions * messages) as f64) };
    println!("{sessions} sessions of {messages} messages, one checkpoint each");
    compare("write one session", stored / u32::try_from(sessions)?, raw / u32::try_from(sessions)?);
    let (size, floor_size) = (of(&path)?, of(&floor_path)?);
    println!("{:<34} {size:>8.0} B   floor {floor_size:>8.0} B   ratio {:.2}", "size of a message", size / floor_size);

    let newest = store.list(&ListQuery { limit: 1000, ..ListQuery::default() })?;
    let middle = newest.sessions[newest.sessions.len() / 2].id.clone();
    let lists = "SELECT id, title, updated_at FROM session ORDER BY updated_at DESC LIMIT 20";
    let raw_list = || -> Outcome<()> {
        let mut statement = floor.prepare_cached(lists)?;
        let rows =
            statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?)))?;
        black_box(rows.collect::<Result<Vec<_>, _>>()?);
        Ok(())
    };
    let list = |query: &ListQuery| -> Outcome<()> {
        black_box(store.list(query)?);
        Ok(())
    };
    // Interleaved, so that the noise of the machine falls on both.
    let (first, again) = medians(|| list(&ListQuery::default()), raw_list)?;
    compare("list the newest 20", first, again);
    let after = ListQuery { after: Some(middle.clone()), ..ListQuery::default() };
    let (later, again) = medians(|| list(&after), raw_list)?;
    compare("list 20 after the 500th", later, again);
    let number = i64::try_from(sessions / 2)?;
    let (load, raw_load) = medians(
        || {
            black_box(store.open_session(&middle[..8])?.load()?);
            Ok(())
        },
        || {
            let mut statement = floor.prepare_cached("SELECT body FROM message WHERE session = ?1 ORDER BY seq")?;
            let bodies = statement.query_map([number], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
            black_box(bodies.iter().map(|body| serde_json::from_str::<Message>(body)).collect::<Result<Vec<_>, _>>()?);
            Ok(())
        },
    )?;
    compare("take up and load a session", load, raw_load);
    stepped(directory.path(), messages)
}

/// Sessions that are stored at each step, with calls and events.
fn stepped(directory: &Path, messages: usize) -> Outcome<()> {
    let path = directory.join("stepped.db");
    let store = Store::open(&path, StoreOptions::default())?;
    let (mut checkpoints, mut stored, mut early, mut late) = (0_u32, 0, Duration::ZERO, Duration::ZERO);
    for index in 0..STEPPED {
        let session = store.create()?;
        let mut settings = RunSettings { max_invalid_turns: u32::MAX, ..RunSettings::default() };
        settings.loop_guard.warn_at = 0;
        settings.loop_guard.stop_at = 0;
        settings.budget.max_steps = u32::MAX;
        settings.budget.max_tool_calls = u32::MAX;
        let mut run = Run::new(format!("stepped-{index}"), format!("任务 {index}: what is in the reports?"), settings);
        let mut seq = 0;
        while run.messages().len() < messages {
            let took = timed(|| {
                for kind in run.take_events() {
                    session.event(&Event { run_id: run.id().to_owned(), parent_run_id: None, seq, ts: 7, kind });
                    seq += 1;
                }
                Ok(session.store_run(&run)?)
            })?;
            checkpoints += 1;
            *(if run.messages().len() < messages / 2 { &mut early } else { &mut late }) += took;
            step(&mut run);
        }
        stored += run.messages().len();
    }
    drop(store);
    println!("\n{STEPPED} sessions stored at each step, with calls and events: {checkpoints} checkpoints");
    let size = std::fs::metadata(&path)?.len() as f64 / stored as f64;
    println!("{:<34} {size:>8.0} B", "size of a message");
    compare("checkpoints, late against early", late / (checkpoints / 2), early / (checkpoints / 2));
    Ok(())
}

/// One step of a run: a turn with a call, its check, its start, or its outcome.
fn step(run: &mut Run) {
    let spec = ToolSpec {
        name: "files__read".to_owned(),
        title: None,
        description: "Reads a file.".to_owned(),
        input_schema: json!({ "type": "object" }),
        output_schema: None,
        hints: ToolHints::default(),
    };
    match run.next_step(0, &Arc::from([spec])) {
        Step::CallModel(_) => {
            let (parts, usage) = (vec![Part::ToolCall(call(String::new()))], TokenUsage::default());
            run.on_model(Ok(ModelTurn { parts, finish_reason: FinishReason::ToolCalls, usage }), 0);
        }
        Step::CheckCalls(calls) => {
            let check = |call: ToolCall| CheckedCall { call_id: call.id, arguments: None, check: Check::Ready };
            run.on_checks(calls.into_iter().map(check).collect(), 0);
        }
        Step::CallTools(group) => {
            for pending in group {
                run.on_started(std::slice::from_ref(&pending.call.id), 0);
                let content = vec![Content::Text { text: result() }];
                let (structured, error, denials, usage) = (None, None, Vec::new(), CallUsage::default());
                let outcome = ToolOutcome { status: ToolStatus::Ok, content, structured, error, denials, usage };
                run.on_tool(&pending.call.id, &outcome, 0);
            }
        }
        Step::AskApproval(_) | Step::Summarise(_) | Step::Done(_) => {}
    }
}

fn conversation(index: usize, messages: usize) -> Run {
    let history = (0..messages - 1).map(|message| match message % 4 {
        0 => Message::user(format!("Question {message} of session {index}: 报告里写了什么？")),
        1 => Message {
            role: honeycomb_host::message::Role::Assistant,
            parts: vec![Part::ToolCall(call(format!("call-{message}")))],
        },
        2 => {
            let (call_id, name) = (format!("call-{}", message - 1), "files__read".to_owned());
            let result = honeycomb_host::message::ToolResult { call_id, name, status: ToolStatus::Ok, text: result() };
            Message { role: honeycomb_host::message::Role::Tool, parts: vec![Part::ToolResult(result)] }
        }
        _ => Message {
            role: honeycomb_host::message::Role::Assistant,
            parts: vec![Part::text("The report says that all is well. ".repeat(10))],
        },
    });
    Run::new(format!("run-{index}"), format!("北京天气 {index}"), RunSettings::default()).with_history(history.collect())
}

fn call(id: String) -> ToolCall {
    let arguments = json!({ "path": "/data/报告.txt", "offset": 0 }).to_string();
    ToolCall { id, provider_id: None, name: "files__read".to_owned(), arguments }
}

fn result() -> String {
    "Lines of a report, 报告. ".repeat(40)
}

/// As little as can be stored: the messages' JSON under session and number, and a list of sessions.
fn open_floor(path: &Path) -> Outcome<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
         CREATE TABLE session (key INTEGER PRIMARY KEY, id TEXT, title TEXT, updated_at INTEGER) STRICT;
         CREATE INDEX session_by_age ON session (updated_at);
         CREATE TABLE message (session INTEGER, seq INTEGER, body TEXT, UNIQUE (session, seq)) STRICT;",
    )?;
    Ok(connection)
}

fn insert(floor: &mut Connection, index: usize, bodies: &[String]) -> Outcome<()> {
    let transaction = floor.transaction()?;
    let session = i64::try_from(index)?;
    transaction.prepare_cached("INSERT INTO session VALUES (?1, ?2, ?3, ?4)")?.execute(params![
        session,
        format!("{index:012x}"),
        format!("北京天气 {index}"),
        session
    ])?;
    let mut statement = transaction.prepare_cached("INSERT INTO message VALUES (?1, ?2, ?3)")?;
    for (seq, body) in (0_i64..).zip(bodies) {
        statement.execute(params![session, seq, body])?;
    }
    drop(statement);
    Ok(transaction.commit()?)
}

fn timed(work: impl FnOnce() -> Outcome<()>) -> Outcome<Duration> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed())
}

/// The median time of each, made in turn.
fn medians(one: impl Fn() -> Outcome<()>, other: impl Fn() -> Outcome<()>) -> Outcome<(Duration, Duration)> {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        first.push(timed(&one)?);
        second.push(timed(&other)?);
    }
    first.sort();
    second.sort();
    Ok((first[ROUNDS / 2], second[ROUNDS / 2]))
}

fn compare(what: &str, took: Duration, floor: Duration) {
    let ratio = took.as_secs_f64() / floor.as_secs_f64().max(f64::EPSILON);
    println!("{what:<34} {took:>10.1?}   floor {floor:>10.1?}   ratio {ratio:.2}");
}
