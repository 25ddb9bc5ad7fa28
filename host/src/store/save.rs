//! One checkpoint: the transaction that makes a step of a run durable, whole or not at all.

use std::collections::{HashSet, VecDeque};

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use super::{database, record};
use crate::agent::Event;

/// What of a run is stored already, so that a step writes only what it added.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    pub(super) session: i64,
    pub(super) run: i64,
    /// The session's message with which the run's conversation begins.
    pub(super) first_seq: i64,
    /// How many of the run's messages are stored.
    pub(super) messages: usize,
    /// The calls whose whole results are stored, oldest first.
    pub(super) results: VecDeque<String>,
    /// The calls whose stubs are stored.
    pub(super) stubs: HashSet<String>,
}

/// What a checkpoint writes. All text is free of known secrets.
#[derive(Debug)]
pub(super) struct Checkpoint {
    pub(super) session_id: String,
    pub(super) parent_session_id: Option<String>,
    pub(super) run_id: String,
    pub(super) parent_run_id: Option<String>,
    pub(super) title: String,
    pub(super) task: String,
    pub(super) model: Option<String>,
    /// `open`, or the stop reason.
    pub(super) status: &'static str,
    /// Calls start on the word of this checkpoint, and must not start again after a loss of power.
    pub(super) starts: bool,
    pub(super) usage: String,
    pub(super) settings: String,
    pub(super) state: String,
    /// How many messages the run has; `new_messages` are the last of them.
    pub(super) messages: usize,
    pub(super) new_messages: Vec<String>,
    /// The calls whose whole results are kept, oldest first, with the text where it is not stored yet.
    pub(super) results: Vec<(String, Option<String>)>,
    pub(super) new_stubs: Vec<(String, String)>,
    /// The events since the last checkpoint, each with its JSON.
    pub(super) events: Vec<(Event, String)>,
    pub(super) now: i64,
}

/// Writes a checkpoint. Without `progress`, everything of the run must be in it.
pub(super) fn save(
    connection: &mut Connection,
    checkpoint: &Checkpoint,
    progress: Option<Progress>,
) -> rusqlite::Result<Progress> {
    // Waiting for the disk takes milliseconds, and seconds on a busy one. Without it, a loss of power takes back the last checkpoints:
    // a model is asked again, or an outcome is unknown. A call must not be made again for that.
    database::sync(connection, checkpoint.starts)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut progress = match progress {
        Some(progress) => progress,
        None => place(&transaction, checkpoint)?,
    };
    let added = add_messages(&transaction, checkpoint, &mut progress)?;
    keep_results(&transaction, checkpoint, &mut progress)?;
    for (call_id, text) in &checkpoint.new_stubs {
        if progress.stubs.insert(call_id.clone()) {
            let sql = "INSERT OR REPLACE INTO stub (session, call_id, text) VALUES (?1, ?2, ?3)";
            transaction.prepare_cached(sql)?.execute(params![progress.session, call_id, text])?;
        }
    }
    let mut calls = 0;
    for (event, body) in &checkpoint.events {
        calls += record::event(&transaction, progress.run, event, body)?;
    }
    let ended = (checkpoint.status != "open").then_some(checkpoint.now);
    transaction
        .prepare_cached("UPDATE run SET status = ?2, usage = ?3, model = ?4, ended_at = ?5, first_seq = ?6 WHERE key = ?1")?
        .execute(params![progress.run, checkpoint.status, checkpoint.usage, checkpoint.model, ended, progress.first_seq])?;
    transaction
        .prepare_cached(
            "INSERT INTO checkpoint (run, state, messages, created_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (run) DO UPDATE SET state = excluded.state, messages = excluded.messages, created_at = excluded.created_at",
        )?
        .execute(params![progress.run, checkpoint.state, integer(checkpoint.messages), checkpoint.now])?;
    transaction
        .prepare_cached(
            "UPDATE session SET status = ?2, model = coalesce(?3, model), messages = messages + ?4, tool_calls = tool_calls + ?5,
             updated_at = max(updated_at, ?6) WHERE key = ?1",
        )?
        .execute(params![
            progress.session,
            checkpoint.status,
            checkpoint.model,
            integer(added),
            integer(calls),
            checkpoint.now
        ])?;
    transaction.commit()?;
    Ok(progress)
}

/// Finds or makes the rows of session and run, and what is stored of the conversation.
fn place(transaction: &Transaction<'_>, checkpoint: &Checkpoint) -> rusqlite::Result<Progress> {
    transaction
        .prepare_cached(
            "INSERT INTO session (id, parent, title, status, created_at, updated_at)
             VALUES (?1, (SELECT key FROM session WHERE id = ?2), ?3, 'open', ?4, ?4) ON CONFLICT (id) DO NOTHING",
        )?
        .execute(params![checkpoint.session_id, checkpoint.parent_session_id, checkpoint.title, checkpoint.now])?;
    let session: i64 =
        transaction.query_row("SELECT key FROM session WHERE id = ?1", [&checkpoint.session_id], |row| row.get(0))?;
    let known = transaction
        .query_row("SELECT key, first_seq FROM run WHERE id = ?1 AND session = ?2", params![checkpoint.run_id, session], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })
        .optional()?;
    let last = || {
        let sql = "SELECT first_seq FROM run WHERE session = ?1 ORDER BY number DESC LIMIT 1";
        transaction.query_row(sql, [session], |row| row.get(0)).optional()
    };
    let first_seq = match known {
        Some((_, first_seq)) => first_seq,
        None => last()?.unwrap_or(0),
    };
    let (first_seq, messages) = match stored_messages(transaction, session, first_seq, &checkpoint.new_messages)? {
        Some(messages) => (first_seq, messages),
        // Another conversation than the one that is stored: it stands beside it, and nothing that was said is lost. Its calls may have
        // the same ids.
        None => {
            for table in ["kept_result", "stub"] {
                transaction.execute(&format!("DELETE FROM {table} WHERE session = ?1"), [session])?;
            }
            let sql = "SELECT coalesce(max(seq) + 1, 0) FROM message WHERE session = ?1";
            (transaction.query_row(sql, [session], |row| row.get(0))?, 0)
        }
    };
    let run = match known {
        Some((run, _)) => run,
        None => add_run(transaction, checkpoint, session, first_seq)?,
    };
    let ids = |sql: &str| -> rusqlite::Result<Vec<String>> {
        transaction.prepare(sql)?.query_map([session], |row| row.get(0))?.collect()
    };
    let results = ids("SELECT call_id FROM kept_result WHERE session = ?1 ORDER BY number")?;
    let stubs = ids("SELECT call_id FROM stub WHERE session = ?1")?;
    Ok(Progress { session, run, first_seq, messages, results: results.into(), stubs: stubs.into_iter().collect() })
}

fn add_run(transaction: &Transaction<'_>, checkpoint: &Checkpoint, session: i64, first_seq: i64) -> rusqlite::Result<i64> {
    transaction.execute(
        "INSERT INTO run (id, session, parent_run_id, number, task, model, settings, first_seq, status, usage, started_at)
         VALUES (?1, ?2, ?3, (SELECT coalesce(max(number) + 1, 0) FROM run WHERE session = ?2), ?4, ?5, ?6, ?7, 'open', ?8, ?9)",
        params![
            checkpoint.run_id,
            session,
            checkpoint.parent_run_id,
            checkpoint.task,
            checkpoint.model,
            checkpoint.settings,
            first_seq,
            checkpoint.usage,
            checkpoint.now
        ],
    )?;
    let run = transaction.last_insert_rowid();
    transaction.execute("UPDATE session SET runs = runs + 1 WHERE key = ?1", [session])?;
    Ok(run)
}

/// How many messages from `first_seq` on are stored, if they are the beginning of these.
fn stored_messages(
    transaction: &Transaction<'_>,
    session: i64,
    first_seq: i64,
    messages: &[String],
) -> rusqlite::Result<Option<usize>> {
    let mut statement = transaction.prepare_cached("SELECT body FROM message WHERE session = ?1 AND seq >= ?2 ORDER BY seq")?;
    let mut rows = statement.query(params![session, first_seq])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        if messages.get(count).map(String::as_str) != Some(row.get_ref(0)?.as_str()?) {
            return Ok(None);
        }
        count += 1;
    }
    Ok(Some(count))
}

fn add_messages(transaction: &Transaction<'_>, checkpoint: &Checkpoint, progress: &mut Progress) -> rusqlite::Result<usize> {
    let mut insert =
        transaction.prepare_cached("INSERT INTO message (session, seq, run, body, created_at) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let first_new = checkpoint.messages - checkpoint.new_messages.len();
    let mut added = 0;
    for body in checkpoint.new_messages.iter().skip(progress.messages - first_new) {
        let seq = progress.first_seq + integer(progress.messages);
        insert.execute(params![progress.session, seq, progress.run, body, checkpoint.now])?;
        progress.messages += 1;
        added += 1;
    }
    Ok(added)
}

/// Forgets the results that are not kept any more, and adds those that are new.
fn keep_results(transaction: &Transaction<'_>, checkpoint: &Checkpoint, progress: &mut Progress) -> rusqlite::Result<()> {
    let oldest = checkpoint.results.first().map(|(call_id, _)| call_id);
    while let Some(stored) = progress.results.front().filter(|stored| Some(*stored) != oldest) {
        let sql = "DELETE FROM kept_result WHERE session = ?1 AND call_id = ?2";
        transaction.prepare_cached(sql)?.execute(params![progress.session, stored])?;
        progress.results.pop_front();
    }
    for (call_id, text) in checkpoint.results.iter().skip(progress.results.len()) {
        if let Some(text) = text {
            let sql = "INSERT OR REPLACE INTO kept_result (session, call_id, text) VALUES (?1, ?2, ?3)";
            transaction.prepare_cached(sql)?.execute(params![progress.session, call_id, text])?;
        }
        progress.results.push_back(call_id.clone());
    }
    Ok(())
}

pub(super) fn integer(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
