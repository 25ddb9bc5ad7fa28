//! Saving what can be read of a damaged store into a new one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rusqlite::types::Value;
use rusqlite::{Connection, TransactionBehavior, params, params_from_iter};
use serde::Serialize;

use super::database::{self, beside};
use super::error::sort;
use super::lock::SessionLock;
use super::schema::MIGRATIONS;
use super::{Store, StoreError, short_id};

/// What [`Store::recover`] saved.
#[derive(Clone, Debug, Serialize)]
pub struct Recovered {
    /// Sessions that are in the new store.
    pub sessions: usize,
    /// Of these, sessions of which something is missing.
    pub incomplete: Vec<String>,
    /// Where the damaged file is now.
    pub damaged: PathBuf,
}

/// Tables below a session, and how their rows are found; `?1` is the session's key.
const TABLES: &[(&str, &str)] = &[
    ("session", "key = ?1"),
    ("run", "session = ?1"),
    ("checkpoint", "run IN (SELECT key FROM run WHERE session = ?1)"),
    ("message", "session = ?1"),
    ("kept_result", "session = ?1"),
    ("stub", "session = ?1"),
    ("tool_call", "run IN (SELECT key FROM run WHERE session = ?1)"),
    ("approval", "run IN (SELECT key FROM run WHERE session = ?1)"),
    ("event", "run IN (SELECT key FROM run WHERE session = ?1)"),
];

/// A session whose own row is lost, but not what it held.
const NAMELESS: &str = "INSERT OR IGNORE INTO session (key, id, title, status, created_at, updated_at)
    VALUES (?1, ?2, coalesce((SELECT task FROM run WHERE session = ?1 ORDER BY number LIMIT 1), 'recovered'), 'open', ?3, ?3)";

impl Store {
    /// Whether the file is whole; reads all of it.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read at all.
    pub fn is_whole(path: &Path) -> Result<bool, StoreError> {
        let connection = database::open_to_read(path)?;
        let check = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        match check.map_err(|source| sort(path, source)) {
            Ok(answer) => Ok(answer == "ok"),
            Err(StoreError::Damaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes a new store of what can be read of the one at `path`, puts it in its place, and keeps the damaged file beside it.
    ///
    /// `now`, in milliseconds since 1970-01-01 UTC, is part of the damaged file's new name.
    ///
    /// # Errors
    ///
    /// Returns an error if nothing can be read, the new file cannot be written, or a process works on a session; the old file then stays
    /// where it is.
    pub fn recover(path: &Path, now: u64) -> Result<Recovered, StoreError> {
        let failed = |source| sort(path, source);
        if let Some(error) = SessionLock::anybody(&beside(path, ".locks")) {
            return Err(error);
        }
        let old = database::open_to_read(path)?;
        let target = beside(path, ".recovered");
        let unusable = |path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::File { path, source }
        };
        for stale in [target.clone(), beside(&target, "-wal"), beside(&target, "-shm")] {
            if stale.exists() {
                std::fs::remove_file(&stale).map_err(unusable(&stale))?;
            }
        }
        let mut new = database::open(&target, MIGRATIONS)?;
        // What a row refers to may be lost; it is looked after below.
        new.execute_batch("PRAGMA foreign_keys = OFF").map_err(failed)?;
        let (mut sessions, mut incomplete) = (0, Vec::new());
        for key in keys(&old).map_err(failed)? {
            let transaction = new.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
            let mut whole = true;
            for (table, condition) in TABLES {
                whole &= copy(&old, &transaction, table, condition, key);
            }
            transaction
                .execute(NAMELESS, params![key, short_id(&key.to_le_bytes()), i64::try_from(now).unwrap_or(i64::MAX)])
                .map_err(failed)?;
            let id = transaction.query_row("SELECT id FROM session WHERE key = ?1", [key], |row| row.get::<_, String>(0));
            let id = id.map_err(failed)?;
            transaction.commit().map_err(failed)?;
            sessions += 1;
            if !whole {
                incomplete.push(id);
            }
        }
        new.execute_batch("UPDATE session SET parent = NULL WHERE parent NOT IN (SELECT key FROM session)").map_err(failed)?;
        new.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").map_err(failed)?;
        drop(new);
        drop(old);
        let damaged = beside(path, &format!(".damaged-{now}"));
        for more in ["", "-wal", "-shm"] {
            let from = beside(path, more);
            if from.exists() {
                std::fs::rename(&from, beside(&damaged, more)).map_err(unusable(&from))?;
            }
        }
        std::fs::rename(&target, path).map_err(unusable(&target))?;
        Ok(Recovered { sessions, incomplete, damaged })
    }
}

/// The sessions that any table knows of, parents first. Each is read from both ends, since a damaged page ends the reading.
fn keys(old: &Connection) -> rusqlite::Result<BTreeSet<i64>> {
    let mut keys = BTreeSet::new();
    let mut first_error = None;
    for (table, column) in [("session", "key"), ("run", "session"), ("message", "session")] {
        for order in ["ASC", "DESC"] {
            let read = || -> rusqlite::Result<Vec<rusqlite::Result<i64>>> {
                let mut statement = old.prepare(&format!("SELECT {column} FROM {table} ORDER BY rowid {order}"))?;
                let rows = statement.query_map([], |row| row.get(0))?;
                Ok(rows.collect())
            };
            match read() {
                Ok(found) => keys.extend(found.into_iter().map_while(Result::ok)),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
    }
    match first_error {
        Some(error) if keys.is_empty() => Err(error),
        _ => Ok(keys),
    }
}

/// Copies the rows of a session that can be read. False if some cannot.
fn copy(old: &Connection, new: &Connection, table: &str, condition: &str, key: i64) -> bool {
    let read = || -> rusqlite::Result<bool> {
        let mut whole = true;
        // The new store's names: a damaged schema may hold anything, and rusqlite panics on a name that is not UTF-8.
        let columns =
            new.prepare_cached(&format!("SELECT * FROM {table} LIMIT 0"))?.column_names().map(str::to_owned).collect::<Vec<_>>();
        let (names, places, columns) = (columns.join(", "), vec!["?"; columns.len()].join(", "), columns.len());
        let mut statement = old.prepare_cached(&format!("SELECT {names} FROM {table} WHERE {condition}"))?;
        let mut insert = new.prepare_cached(&format!("INSERT OR IGNORE INTO {table} ({names}) VALUES ({places})"))?;
        let mut rows = statement.query([key])?;
        while let Some(row) = rows.next()? {
            let values: rusqlite::Result<Vec<Value>> = (0..columns).map(|index| row.get(index)).collect();
            whole &= values.and_then(|values| insert.execute(params_from_iter(values))).is_ok();
        }
        Ok(whole)
    };
    read().unwrap_or(false)
}
