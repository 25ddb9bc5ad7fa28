//! A session as JSON lines, one record a line, for other programs.
//!
//! Records stream from the file, so the export of a long session takes little memory, and one that meets a damaged page still has
//! what comes before it and the tables after it.

use std::io::Write;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use serde_json::{Map, Value, json};

use super::{Store, StoreError};

/// The version of the export's format.
const FORMAT: u32 = 1;

/// What is written of a session: kind of record, and the query for it. Columns that end in `_json` hold JSON, and are written as such.
const RECORDS: &[(&str, &str)] = &[
    ("session", "SELECT id, title, status, model, created_at, updated_at FROM session WHERE key = ?1"),
    (
        "run",
        "SELECT id, parent_run_id, number, task, model, settings AS settings_json, first_seq, status, usage AS usage_json, started_at,
         ended_at FROM run WHERE session = ?1 ORDER BY number",
    ),
    (
        "message",
        "SELECT m.seq, r.id AS run_id, m.body AS message_json, m.created_at FROM message m LEFT JOIN run r ON r.key = m.run
         WHERE m.session = ?1 ORDER BY m.seq",
    ),
    (
        "tool_call",
        "SELECT r.id AS run_id, t.call_id, t.tool, t.arguments, t.decision, t.status, t.code, t.attempts, t.fuel, t.memory_bytes,
         t.wall_us, t.started_at, t.ended_at FROM tool_call t JOIN run r ON r.key = t.run WHERE r.session = ?1 ORDER BY t.rowid",
    ),
    (
        "approval",
        "SELECT r.id AS run_id, a.call_id, a.rule, a.asked_at, a.answer, a.remembered, a.answered_at FROM approval a
         JOIN run r ON r.key = a.run WHERE r.session = ?1 ORDER BY a.rowid",
    ),
    (
        "event",
        "SELECT r.id AS run_id, e.seq, e.ts, e.body AS event_json FROM event e JOIN run r ON r.key = e.run
         WHERE r.session = ?1 ORDER BY e.rowid",
    ),
];

impl Store {
    /// Writes a session as JSON lines, by its id or the beginning of it. Returns how many records are unreadable: those tables end
    /// where the file is damaged.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such session, or several, or `output` fails.
    pub fn export(&self, id: &str, output: &mut dyn Write) -> Result<usize, StoreError> {
        let id = self.find(id)?;
        // A connection of its own: writing may take as long as the reader of a pipe.
        let connection = super::database::open_to_read(&self.0.path)?;
        let key: i64 = connection
            .query_row("SELECT key FROM session WHERE id = ?1", [&id], |row| row.get(0))
            .map_err(|source| self.failed(source))?;
        write_line(output, &json!({ "record": "export", "format": FORMAT, "program": env!("CARGO_PKG_VERSION") }))?;
        let mut unreadable = 0;
        for (kind, sql) in RECORDS {
            if let Err(damage) = records(&connection, key, kind, sql, output)? {
                unreadable += 1;
                write_line(output, &json!({ "record": "damage", "in": kind, "error": damage.to_string() }))?;
            }
        }
        output.flush().map_err(StoreError::Output)?;
        Ok(unreadable)
    }
}

/// Writes one kind of record; the inner error is of the database.
fn records(
    connection: &Connection,
    key: i64,
    kind: &str,
    sql: &str,
    output: &mut dyn Write,
) -> Result<rusqlite::Result<()>, StoreError> {
    let mut statement = match connection.prepare(sql) {
        Ok(statement) => statement,
        Err(damage) => return Ok(Err(damage)),
    };
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut rows = match statement.query([key]) {
        Ok(rows) => rows,
        Err(damage) => return Ok(Err(damage)),
    };
    loop {
        let record = match rows.next() {
            Ok(None) => return Ok(Ok(())),
            Ok(Some(row)) => record(row, kind, &names),
            Err(damage) => return Ok(Err(damage)),
        };
        match record {
            Ok(record) => write_line(output, &record)?,
            Err(damage) => return Ok(Err(damage)),
        }
    }
}

fn record(row: &Row<'_>, kind: &str, names: &[String]) -> rusqlite::Result<Value> {
    let mut record = Map::new();
    record.insert("record".to_owned(), kind.into());
    for (index, name) in names.iter().enumerate() {
        let value = match row.get_ref(index)? {
            ValueRef::Null => continue,
            ValueRef::Integer(number) => number.into(),
            ValueRef::Real(number) => number.into(),
            ValueRef::Text(text) => {
                let text = String::from_utf8_lossy(text);
                match name.strip_suffix("_json") {
                    Some(_) => serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.into_owned())),
                    None => Value::String(text.into_owned()),
                }
            }
            ValueRef::Blob(_) => continue,
        };
        record.insert(name.strip_suffix("_json").unwrap_or(name).to_owned(), value);
    }
    Ok(Value::Object(record))
}

fn write_line(output: &mut dyn Write, record: &Value) -> Result<(), StoreError> {
    writeln!(output, "{record}").map_err(StoreError::Output)
}
