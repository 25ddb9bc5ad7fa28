//! What an event leaves behind: its own row, and the rows of calls and approvals. They are a record; nothing is decided by them.

use rusqlite::{Transaction, params};

use crate::agent::{Event, EventKind};

/// Whether an event is worth keeping: what streams in is in the messages afterwards.
pub(super) fn is_kept(kind: &EventKind) -> bool {
    !matches!(
        kind,
        EventKind::TextDelta { .. }
            | EventKind::ReasoningDelta { .. }
            | EventKind::ToolProgress { .. }
            | EventKind::ToolCallStarted { .. }
    )
}

/// Writes an event. Returns how many calls it began.
pub(super) fn event(transaction: &Transaction<'_>, run: i64, event: &Event, body: &str) -> rusqlite::Result<usize> {
    let ts = i64::try_from(event.ts).unwrap_or(i64::MAX);
    let execute = |sql: &str, values: &[&dyn rusqlite::ToSql]| transaction.prepare_cached(sql)?.execute(values);
    let seq = i64::try_from(event.seq).unwrap_or(i64::MAX);
    execute("INSERT OR REPLACE INTO event (run, seq, ts, body) VALUES (?1, ?2, ?3, ?4)", params![run, seq, ts, body])?;
    match &event.kind {
        EventKind::ToolCallReady { call_id, name, .. } => {
            let arguments = argument_text(body);
            return execute(
                "INSERT INTO tool_call (run, call_id, tool, arguments, status) VALUES (?1, ?2, ?3, ?4, 'pending')
                 ON CONFLICT (run, call_id) DO NOTHING",
                params![run, call_id, name, arguments],
            );
        }
        EventKind::PolicyDecision { call_id, decision, .. } => {
            let decision = name_of(decision);
            execute("UPDATE tool_call SET decision = ?3 WHERE run = ?1 AND call_id = ?2", params![run, call_id, decision])?;
        }
        EventKind::ToolStarted { call_id, attempt, .. } => {
            execute(
                "UPDATE tool_call SET status = 'started', attempts = ?3, started_at = ?4 WHERE run = ?1 AND call_id = ?2",
                params![run, call_id, attempt, ts],
            )?;
        }
        EventKind::ToolCompleted(completed) => {
            let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
            execute(
                "UPDATE tool_call SET status = ?3, code = ?4, fuel = ?5, memory_bytes = ?6, wall_us = ?7, ended_at = ?8
                 WHERE run = ?1 AND call_id = ?2",
                params![
                    run,
                    completed.call_id,
                    name_of(&completed.status),
                    completed.code,
                    number(completed.fuel),
                    number(completed.memory_bytes),
                    number(completed.wall_us),
                    ts
                ],
            )?;
        }
        EventKind::ApprovalRequested { call_id, rule, .. } => {
            execute(
                "INSERT INTO approval (run, call_id, rule, asked_at) VALUES (?1, ?2, ?3, ?4)",
                params![run, call_id, rule, ts],
            )?;
        }
        EventKind::ApprovalResolved { call_id, approval, remembered } => {
            execute(
                "UPDATE approval SET answer = ?3, remembered = ?4, answered_at = ?5
                 WHERE run = ?1 AND call_id = ?2 AND answer IS NULL",
                params![run, call_id, name_of(approval), remembered, ts],
            )?;
        }
        _ => {}
    }
    Ok(0)
}

/// The name of a unit variant in JSON.
fn name_of(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

/// The arguments as they stand in the event's JSON, which is free of secrets.
fn argument_text(body: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Ready {
        #[serde(default)]
        arguments: String,
    }
    serde_json::from_str::<Ready>(body).map(|ready| ready.arguments).unwrap_or_default()
}
