//! Reading a session back: to continue its last run, and to show it.

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::Serialize;
use serde_json::value::RawValue;

use super::list::{COLUMNS, SessionSummary, summary};
use super::{Store, StoreError};
use crate::agent::{Run, StoredParts};
use crate::message::Message;

/// All that is known of a session but its events.
#[derive(Debug, Serialize)]
pub struct SessionDetail {
    /// The session.
    #[serde(flatten)]
    pub session: SessionSummary,
    /// Its runs, in order.
    pub run_list: Vec<RunRecord>,
    /// The conversation of its last run.
    pub conversation: Vec<Message>,
    /// The tool calls of all runs, in order.
    pub calls: Vec<CallRecord>,
    /// What people were asked and answered, in order. A record: no answer is taken from it.
    pub approvals: Vec<ApprovalRecord>,
    /// The workers' sessions below it, oldest first.
    pub workers: Vec<SessionSummary>,
}

/// A run of a session.
#[derive(Debug, Serialize)]
pub struct RunRecord {
    /// Its id.
    pub id: String,
    /// The run that started it, for workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    /// Its task.
    pub task: String,
    /// The model.
    pub model: Option<String>,
    /// `open`, or its stop reason.
    pub status: String,
    /// What it used, as [`RunUsage`](crate::agent::RunUsage) in JSON.
    pub usage: Box<RawValue>,
    /// When it began, in milliseconds since 1970-01-01 UTC.
    pub started_at: u64,
    /// When it ended.
    pub ended_at: Option<u64>,
}

/// A tool call.
#[derive(Debug, Serialize)]
pub struct CallRecord {
    /// The run.
    pub run_id: String,
    /// Its id in the run.
    pub call_id: String,
    /// The tool, as the model wrote it.
    pub tool: String,
    /// The arguments, as the model wrote them, bounded.
    pub arguments: String,
    /// `allow`, `ask` or `deny`.
    pub decision: Option<String>,
    /// `pending`, `started`, or how it ended.
    pub status: String,
    /// The error code.
    pub code: Option<String>,
    /// How often it was started.
    pub attempts: u64,
    /// Fuel used.
    pub fuel: Option<u64>,
    /// When it was started, in milliseconds since 1970-01-01 UTC.
    pub started_at: Option<u64>,
    /// When it ended.
    pub ended_at: Option<u64>,
}

/// A question to a person, and the answer.
#[derive(Debug, Serialize)]
pub struct ApprovalRecord {
    /// The run.
    pub run_id: String,
    /// The call.
    pub call_id: String,
    /// The policy's rule that asked.
    pub rule: String,
    /// When, in milliseconds since 1970-01-01 UTC.
    pub asked_at: u64,
    /// The answer.
    pub answer: Option<String>,
}

impl Store {
    /// The session's last run.
    pub(super) fn load_run(&self, id: &str) -> Result<Option<Run>, StoreError> {
        let reader = self.reader();
        let snapshot = reader.unchecked_transaction().map_err(|source| self.failed(source))?;
        let sql = "SELECT r.id, r.settings, r.first_seq, r.session, c.state, c.messages
            FROM session s JOIN run r ON r.session = s.key LEFT JOIN checkpoint c ON c.run = r.key
            WHERE s.id = ?1 ORDER BY r.number DESC LIMIT 1";
        type Found = (String, String, i64, i64, Option<String>, Option<i64>);
        let read = |row: &Row<'_>| -> rusqlite::Result<Found> {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
        };
        let found = snapshot.query_row(sql, [id], read).optional().map_err(|source| self.failed(source))?;
        let Some((run_id, settings, first_seq, session, state, count)) = found else { return Ok(None) };
        let incomplete = |what: &str| StoreError::Incomplete { id: id.to_owned(), what: what.to_owned() };
        let (Some(state), Some(count)) = (state, count) else { return Err(incomplete("its last run has no checkpoint")) };
        let messages = self.messages(&snapshot, id, session, first_seq, count)?;
        if i64::try_from(messages.len()) != Ok(count) {
            return Err(incomplete(&format!("{} of {count} messages are there", messages.len())));
        }
        let pairs = |sql: &str| self.pairs(&snapshot, sql, session).map_err(|source| self.failed(source));
        let parts = StoredParts {
            settings,
            state,
            messages,
            results: pairs("SELECT call_id, text FROM kept_result WHERE session = ?1 ORDER BY number")?,
            stubs: pairs("SELECT call_id, text FROM stub WHERE session = ?1")?,
        };
        let run = Run::from_parts(parts).map_err(|source| StoreError::Run { id: id.to_owned(), source })?;
        if run.id() == run_id { Ok(Some(run)) } else { Err(incomplete("its last checkpoint is another run's")) }
    }

    fn messages(
        &self,
        snapshot: &Connection,
        id: &str,
        session: i64,
        first: i64,
        count: i64,
    ) -> Result<Vec<Message>, StoreError> {
        let read = || -> rusqlite::Result<Vec<String>> {
            let sql = "SELECT body FROM message WHERE session = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq";
            let mut statement = snapshot.prepare_cached(sql)?;
            statement.query_map(params![session, first, first.saturating_add(count)], |row| row.get(0))?.collect()
        };
        let bodies = read().map_err(|source| self.failed(source))?;
        let parse = |body: String| serde_json::from_str(&body).map_err(|source| StoreError::Record { id: id.to_owned(), source });
        bodies.into_iter().map(parse).collect()
    }

    fn pairs(&self, snapshot: &Connection, sql: &str, session: i64) -> rusqlite::Result<Vec<(String, String)>> {
        let mut statement = snapshot.prepare_cached(sql)?;
        statement.query_map([session], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    }

    /// Everything of a session but its events, to be shown; by its id or the beginning of it.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such session, or several, or what is stored is damaged.
    pub fn show(&self, id: &str) -> Result<SessionDetail, StoreError> {
        let id = self.find(id)?;
        let reader = self.reader();
        let snapshot = reader.unchecked_transaction().map_err(|source| self.failed(source))?;
        let mut detail = self.detail(&snapshot, &id)?;
        drop(snapshot);
        drop(reader);
        for session in std::iter::once(&mut detail.session).chain(&mut detail.workers) {
            self.tell_open(session)?;
        }
        Ok(detail)
    }

    fn detail(&self, snapshot: &Connection, id: &str) -> Result<SessionDetail, StoreError> {
        let failed = |source| self.failed(source);
        let session = snapshot.query_row(&format!("SELECT {COLUMNS} WHERE s.id = ?1"), [id], summary).map_err(failed)?;
        let key: i64 = snapshot.query_row("SELECT key FROM session WHERE id = ?1", [id], |row| row.get(0)).map_err(failed)?;
        let last = "SELECT r.first_seq, c.messages FROM run r JOIN checkpoint c ON c.run = r.key
            WHERE r.session = ?1 ORDER BY r.number DESC LIMIT 1";
        let last = snapshot.query_row(last, [key], |row| Ok((row.get(0)?, row.get(1)?))).optional().map_err(failed)?;
        let conversation = match last {
            Some((first, count)) => self.messages(snapshot, id, key, first, count)?,
            None => Vec::new(),
        };
        let runs = "SELECT id, parent_run_id, task, model, status, usage, started_at, ended_at FROM run
            WHERE session = ?1 ORDER BY number";
        let calls = "SELECT r.id, t.call_id, t.tool, t.arguments, t.decision, t.status, t.code, t.attempts, t.fuel, t.started_at,
            t.ended_at FROM tool_call t JOIN run r ON r.key = t.run WHERE r.session = ?1 ORDER BY r.number, t.rowid";
        let approvals = "SELECT r.id, a.call_id, a.rule, a.asked_at, a.answer FROM approval a JOIN run r ON r.key = a.run
            WHERE r.session = ?1 ORDER BY r.number, a.rowid";
        let workers = format!("SELECT {COLUMNS} WHERE s.parent = ?1 ORDER BY s.key");
        Ok(SessionDetail {
            session,
            run_list: all(snapshot, runs, key, run_record).map_err(failed)?,
            conversation,
            calls: all(snapshot, calls, key, call_record).map_err(failed)?,
            approvals: all(snapshot, approvals, key, approval_record).map_err(failed)?,
            workers: all(snapshot, &workers, key, summary).map_err(failed)?,
        })
    }
}

fn all<T>(
    snapshot: &Connection,
    sql: &str,
    key: i64,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    snapshot.prepare_cached(sql)?.query_map([key], read)?.collect()
}

fn unsigned(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(index)?).unwrap_or(0))
}

fn optional(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(index)?.map(|value| u64::try_from(value).unwrap_or(0)))
}

fn run_record(row: &Row<'_>) -> rusqlite::Result<RunRecord> {
    let usage: String = row.get(5)?;
    Ok(RunRecord {
        id: row.get(0)?,
        parent_run_id: row.get(1)?,
        task: row.get(2)?,
        model: row.get(3)?,
        status: row.get(4)?,
        usage: RawValue::from_string(usage).unwrap_or_default(),
        started_at: unsigned(row, 6)?,
        ended_at: optional(row, 7)?,
    })
}

fn call_record(row: &Row<'_>) -> rusqlite::Result<CallRecord> {
    Ok(CallRecord {
        run_id: row.get(0)?,
        call_id: row.get(1)?,
        tool: row.get(2)?,
        arguments: row.get(3)?,
        decision: row.get(4)?,
        status: row.get(5)?,
        code: row.get(6)?,
        attempts: unsigned(row, 7)?,
        fuel: optional(row, 8)?,
        started_at: optional(row, 9)?,
        ended_at: optional(row, 10)?,
    })
}

fn approval_record(row: &Row<'_>) -> rusqlite::Result<ApprovalRecord> {
    Ok(ApprovalRecord {
        run_id: row.get(0)?,
        call_id: row.get(1)?,
        rule: row.get(2)?,
        asked_at: unsigned(row, 3)?,
        answer: row.get(4)?,
    })
}
