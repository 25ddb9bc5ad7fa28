//! The layout of the store in SQLite, and what is done with it.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params};

use super::store::{OpenError, OperationError, Page};
use crate::file;

/// The most bytes of a key.
pub(super) const MAX_KEY: usize = 1024;

/// The most bytes of a value, whatever the quota.
pub(super) const MAX_VALUE: usize = 8 * 1024 * 1024;

/// The most keys of a page: with the longest keys, a quarter of a MiB.
const PAGE: usize = 256;

/// `HcKv`: marks the file as ours (SQLite file format, section 1.3.9).
const APPLICATION_ID: i64 = 0x4863_4b76;

/// The version of the layout, kept in `user_version`.
const VERSION: i64 = 1;

/// How long another process may hold the file before an operation fails.
const BUSY: Duration = Duration::from_secs(5);

/// `number` gives a stable order for pages: a plugin's own count, so that it says nothing about other plugins. The triggers keep
/// `namespace.bytes` true inside the transaction that changes an entry.
const SCHEMA: &str = "
    CREATE TABLE namespace (
        plugin TEXT PRIMARY KEY,
        bytes INTEGER NOT NULL DEFAULT 0,
        next INTEGER NOT NULL DEFAULT 1
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE entry (
        plugin TEXT NOT NULL REFERENCES namespace (plugin),
        key TEXT NOT NULL,
        value BLOB NOT NULL,
        number INTEGER NOT NULL,
        PRIMARY KEY (plugin, key)
    ) STRICT, WITHOUT ROWID;
    CREATE UNIQUE INDEX entry_by_number ON entry (plugin, number);
    CREATE TRIGGER entry_added AFTER INSERT ON entry BEGIN
        UPDATE namespace SET bytes = bytes + octet_length(new.key) + octet_length(new.value), next = next + 1
        WHERE plugin = new.plugin;
    END;
    CREATE TRIGGER entry_changed AFTER UPDATE OF value ON entry BEGIN
        UPDATE namespace SET bytes = bytes + octet_length(new.value) - octet_length(old.value) WHERE plugin = new.plugin;
    END;
    CREATE TRIGGER entry_removed AFTER DELETE ON entry BEGIN
        UPDATE namespace SET bytes = bytes - octet_length(old.key) - octet_length(old.value) WHERE plugin = old.plugin;
    END;
";

/// Opens the file, or memory, and brings it to the present layout.
pub(super) fn open(path: Option<&Path>) -> Result<Connection, OpenError> {
    let shown = path.map_or_else(|| ":memory:".to_owned(), |path| path.display().to_string());
    let database = |source: rusqlite::Error| match source.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::Foreign { path: shown.clone() },
        _ => OpenError::Database { path: shown.clone(), source },
    };
    let mut connection = match path {
        None => Connection::open_in_memory().map_err(database)?,
        Some(path) => {
            file::create_private(path).map_err(|source| OpenError::Create { path: shown.clone(), source })?;
            // No `URI` flag: a name that begins with `file:` is a name.
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
            Connection::open_with_flags(path, flags).map_err(database)?
        }
    };
    connection.busy_timeout(BUSY).map_err(database)?;
    // First the look, then the change: a foreign file stays as it is.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(database)?;
    let number = |name: &str| transaction.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, version) = (number("application_id").map_err(database)?, number("user_version").map_err(database)?);
    let tables = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0)).map_err(database)?;
    match (application, version, tables) {
        (0, 0, 0) => {
            transaction.execute_batch(SCHEMA).map_err(database)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(database)?;
            transaction.pragma_update(None, "user_version", VERSION).map_err(database)?;
        }
        (APPLICATION_ID, VERSION, _) => {}
        (APPLICATION_ID, found, _) if found > VERSION => return Err(OpenError::Newer { path: shown, found, known: VERSION }),
        _ => return Err(OpenError::Foreign { path: shown }),
    }
    transaction.commit().map_err(database)?;
    let settings =
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;";
    connection.execute_batch(settings).map_err(database)?;
    Ok(connection)
}

pub(super) fn get(connection: &mut Connection, plugin: &str, key: &str) -> Result<Option<Vec<u8>>, OperationError> {
    check_key(key)?;
    value_of(connection, plugin, key)
}

pub(super) fn exists(connection: &mut Connection, plugin: &str, key: &str) -> Result<bool, OperationError> {
    check_key(key)?;
    let mut statement = connection.prepare_cached("SELECT 1 FROM entry WHERE plugin = ?1 AND key = ?2")?;
    Ok(statement.exists(params![plugin, key])?)
}

pub(super) fn set(connection: &mut Connection, plugin: &str, key: &str, value: &[u8], quota: u64) -> Result<(), OperationError> {
    check_key(key)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    write(&transaction, plugin, key, value, quota)?;
    Ok(transaction.commit()?)
}

pub(super) fn delete(connection: &mut Connection, plugin: &str, key: &str) -> Result<(), OperationError> {
    check_key(key)?;
    connection.prepare_cached("DELETE FROM entry WHERE plugin = ?1 AND key = ?2")?.execute(params![plugin, key])?;
    Ok(())
}

/// Keys that are there from the first page to the last are listed once, whatever is set and deleted meanwhile.
pub(super) fn list(connection: &mut Connection, plugin: &str, cursor: Option<u64>) -> Result<Page, OperationError> {
    let Ok(after) = i64::try_from(cursor.unwrap_or(0)) else { return Ok(Page { keys: Vec::new(), next: None }) };
    let mut statement =
        connection.prepare_cached("SELECT key, number FROM entry WHERE plugin = ?1 AND number > ?2 ORDER BY number LIMIT ?3")?;
    let limit = i64::try_from(PAGE + 1).unwrap_or(i64::MAX);
    let rows = statement.query_map(params![plugin, after, limit], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
    let mut found = rows.collect::<Result<Vec<_>, _>>()?;
    let more = found.len() > PAGE;
    found.truncate(PAGE);
    let next = found.last().filter(|_| more).and_then(|(_, number)| u64::try_from(*number).ok());
    Ok(Page { keys: found.into_iter().map(|(key, _)| key).collect(), next })
}

pub(super) fn increment(
    connection: &mut Connection,
    plugin: &str,
    key: &str,
    delta: i64,
    quota: u64,
) -> Result<i64, OperationError> {
    check_key(key)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let present = match value_of(&transaction, plugin, key)? {
        None => 0,
        Some(value) => {
            let text = std::str::from_utf8(&value).map_err(|_| OperationError::NotANumber)?;
            text.parse::<i64>().map_err(|_| OperationError::NotANumber)?
        }
    };
    let sum = present.checked_add(delta).ok_or(OperationError::Overflow)?;
    write(&transaction, plugin, key, sum.to_string().as_bytes(), quota)?;
    transaction.commit()?;
    Ok(sum)
}

pub(super) fn swap(
    connection: &mut Connection,
    plugin: &str,
    key: &str,
    seen: Option<&[u8]>,
    value: &[u8],
    quota: u64,
) -> Result<Result<(), Option<Vec<u8>>>, OperationError> {
    check_key(key)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let present = value_of(&transaction, plugin, key)?;
    if present.as_deref() != seen {
        return Ok(Err(present));
    }
    write(&transaction, plugin, key, value, quota)?;
    transaction.commit()?;
    Ok(Ok(()))
}

/// Writes an entry. If that exceeds the quota, the transaction must be rolled back, which dropping it does.
fn write(transaction: &Transaction<'_>, plugin: &str, key: &str, value: &[u8], quota: u64) -> Result<(), OperationError> {
    if value.len() > MAX_VALUE {
        return Err(OperationError::Value);
    }
    transaction.prepare_cached("INSERT INTO namespace (plugin) VALUES (?1) ON CONFLICT DO NOTHING")?.execute([plugin])?;
    let used = |transaction: &Transaction<'_>| -> Result<u64, OperationError> {
        let mut statement = transaction.prepare_cached("SELECT bytes FROM namespace WHERE plugin = ?1")?;
        let bytes = statement.query_row([plugin], |row| row.get::<_, i64>(0))?;
        Ok(u64::try_from(bytes).unwrap_or(0))
    };
    let before = used(transaction)?;
    transaction
        .prepare_cached(
            "INSERT INTO entry (plugin, key, value, number)
             VALUES (?1, ?2, ?3, (SELECT next FROM namespace WHERE plugin = ?1))
             ON CONFLICT (plugin, key) DO UPDATE SET value = excluded.value",
        )?
        .execute(params![plugin, key, value])?;
    let needed = used(transaction)?;
    // A quota that was lowered later does not keep a plugin from making its entries smaller.
    if needed > quota && needed > before { Err(OperationError::Quota { quota, needed }) } else { Ok(()) }
}

fn value_of(connection: &Connection, plugin: &str, key: &str) -> Result<Option<Vec<u8>>, OperationError> {
    let mut statement = connection.prepare_cached("SELECT value FROM entry WHERE plugin = ?1 AND key = ?2")?;
    Ok(statement.query_row(params![plugin, key], |row| row.get(0)).optional()?)
}

fn check_key(key: &str) -> Result<(), OperationError> {
    if key.is_empty() || key.len() > MAX_KEY { Err(OperationError::Key) } else { Ok(()) }
}
