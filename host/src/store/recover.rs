//! Saving what can be read of a damaged store into a new one.

use std::path::{Path, PathBuf};

use rusqlite::types::Value;
use rusqlite::{Connection, Row, TransactionBehavior, params, params_from_iter};
use serde::Serialize;

use super::database::{self, beside};
use super::error::sort;
use super::lock::SessionLock;
use super::schema::MIGRATIONS;
use super::{Store, StoreError, StoreOptions, short_id};

/// What [`Store::recover`] saved.
#[derive(Clone, Debug, Serialize)]
pub struct Recovered {
    /// Sessions that are in the new store.
    pub sessions: usize,
    /// Of these, the ids of those that cannot be continued, only shown or exported.
    pub incomplete: Vec<String>,
    /// Tables of which rows could not be read.
    pub damaged_tables: Vec<String>,
    /// Where the damaged file is now.
    pub damaged: PathBuf,
}

/// The tables, and whether their rows have numbers.
const TABLES: &[(&str, bool)] = &[
    ("session", true),
    ("run", true),
    ("checkpoint", true),
    ("message", true),
    ("kept_result", true),
    ("stub", false),
    ("tool_call", true),
    ("approval", true),
    ("event", true),
];

/// Sessions whose own row is lost, but not what they held.
const NAMELESS: &str = "SELECT DISTINCT session FROM run WHERE session NOT IN (SELECT key FROM session)
    UNION SELECT DISTINCT session FROM message WHERE session NOT IN (SELECT key FROM session)";
const NAME: &str = "INSERT OR IGNORE INTO session (key, id, title, status, created_at, updated_at)
    VALUES (?1, ?2, coalesce((SELECT task FROM run WHERE session = ?1 ORDER BY number LIMIT 1), 'recovered'), 'open', ?3, ?3)";

/// A page holds at most some hundred rows: behind an unreadable row, this many numbers are tried one by one, and then in growing steps.
const CLOSE: i64 = 1024;

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
        // If even this fails, there is nothing to read.
        old.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).map_err(failed)?;
        let target = beside(path, ".recovered");
        for more in ["", "-wal", "-shm"] {
            remove(&beside(&target, more))?;
        }
        let mut new = database::open(&target, MIGRATIONS)?;
        // What a row refers to may be lost; it is looked after below.
        new.execute_batch("PRAGMA foreign_keys = OFF").map_err(failed)?;
        let transaction = new.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let mut damaged_tables = Vec::new();
        for (table, numbered) in TABLES {
            let whole =
                if *numbered { copy_numbered(&old, &transaction, table) } else { copy_both_ways(&old, &transaction, table) };
            if !whole.map_err(failed)? {
                damaged_tables.push((*table).to_owned());
            }
        }
        mend(&transaction, i64::try_from(now).unwrap_or(i64::MAX)).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        new.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").map_err(failed)?;
        drop(new);
        drop(old);
        let (sessions, incomplete) = judge(&target)?;
        let damaged = beside(path, &format!(".damaged-{now}"));
        for more in ["", "-wal", "-shm"] {
            let from = beside(path, more);
            if from.exists() {
                std::fs::rename(&from, beside(&damaged, more)).map_err(|source| StoreError::File { path: from, source })?;
            }
        }
        std::fs::rename(&target, path).map_err(|source| StoreError::File { path: target, source })?;
        Ok(Recovered { sessions, incomplete, damaged_tables, damaged })
    }
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(StoreError::File { path: path.to_owned(), source }),
        _ => Ok(()),
    }
}

/// Gives each row what it belongs to.
fn mend(new: &Connection, now: i64) -> rusqlite::Result<()> {
    let nameless: Vec<i64> = new.prepare(NAMELESS)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for key in nameless {
        new.execute(NAME, params![key, short_id(&key.to_le_bytes()), now])?;
    }
    for table in ["checkpoint", "tool_call", "approval", "event"] {
        new.execute(&format!("DELETE FROM {table} WHERE run NOT IN (SELECT key FROM run)"), [])?;
    }
    for table in ["kept_result", "stub"] {
        new.execute(&format!("DELETE FROM {table} WHERE session NOT IN (SELECT key FROM session)"), [])?;
    }
    new.execute("UPDATE session SET parent = NULL WHERE parent NOT IN (SELECT key FROM session)", [])?;
    Ok(())
}

/// How many sessions there are, and which of them cannot be continued.
fn judge(path: &Path) -> Result<(usize, Vec<String>), StoreError> {
    let store = Store::open(path, StoreOptions::default())?;
    let ids = || -> rusqlite::Result<Vec<String>> {
        store.reader().prepare("SELECT id FROM session ORDER BY key")?.query_map([], |row| row.get(0))?.collect()
    };
    let ids = ids().map_err(|source| store.failed(source))?;
    let incomplete = ids.iter().filter(|id| !matches!(store.load_run(id), Ok(Some(_)))).cloned().collect();
    Ok((ids.len(), incomplete))
}

/// Copies the rows that can be read, by their numbers and past those that cannot. False if there are such. No index is used: it may
/// be what is damaged.
fn copy_numbered(old: &Connection, new: &Connection, table: &str) -> rusqlite::Result<bool> {
    let Ok(mut read) = old.prepare(&format!("SELECT rowid, * FROM {table} NOT INDEXED WHERE rowid > ?1 ORDER BY rowid")) else {
        return Ok(false);
    };
    let (mut after, mut missed, mut whole) = (0_i64, 0_i64, true);
    loop {
        let mut rows = read.query([after])?;
        loop {
            match rows.next() {
                Ok(Some(row)) => {
                    if let Ok(number) = row.get::<_, i64>(0) {
                        after = after.max(number);
                        missed = 0;
                    }
                    whole &= insert(new, table, row, 1)?;
                }
                // The end; or, behind a damaged page, maybe only the end of what that page leads to.
                Ok(None) => return Ok(whole),
                Err(_) => break,
            }
        }
        whole = false;
        missed += 1;
        let step =
            if missed <= CLOSE { 1 } else { 1_i64.checked_shl(u32::try_from(missed - CLOSE).unwrap_or(63)).unwrap_or(i64::MAX) };
        match after.checked_add(step) {
            Some(next) if missed < CLOSE + 62 => after = next,
            _ => return Ok(false),
        }
    }
}

/// Copies the rows of a table from its beginning and from its end, up to what cannot be read.
fn copy_both_ways(old: &Connection, new: &Connection, table: &str) -> rusqlite::Result<bool> {
    let mut whole = true;
    for order in ["ASC", "DESC"] {
        let Ok(mut read) = old.prepare(&format!("SELECT * FROM {table} ORDER BY session {order}, call_id {order}")) else {
            return Ok(false);
        };
        let mut rows = read.query([])?;
        loop {
            match rows.next() {
                Ok(Some(row)) => whole &= insert(new, table, row, 0)?,
                Ok(None) => break,
                Err(_) => {
                    whole = false;
                    break;
                }
            }
        }
    }
    Ok(whole)
}

/// Inserts a row but its first `skip` columns. False if it cannot be read, or does not fit the table.
fn insert(new: &Connection, table: &str, row: &Row<'_>, skip: usize) -> rusqlite::Result<bool> {
    let count = row.as_ref().column_count();
    let values: rusqlite::Result<Vec<Value>> = (skip..count).map(|index| row.get(index)).collect();
    let Ok(values) = values else { return Ok(false) };
    // The new table's names: in a damaged schema there may be anything, and rusqlite panics on a name that is not UTF-8.
    let table_of = new.prepare_cached(&format!("SELECT * FROM {table} LIMIT 0"))?;
    if table_of.column_count() != values.len() {
        return Ok(false);
    }
    let names = table_of.column_names().collect::<Vec<_>>().join(", ");
    let places = vec!["?"; values.len()].join(", ");
    let mut statement = new.prepare_cached(&format!("INSERT OR IGNORE INTO {table} ({names}) VALUES ({places})"))?;
    Ok(statement.execute(params_from_iter(values)).is_ok())
}
