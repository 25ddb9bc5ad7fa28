//! The layout of the memory's file.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::MemoryError;
use crate::file;

/// `HcMm`: marks the file as ours (SQLite file format, section 1.3.9).
const APPLICATION_ID: i64 = 0x4863_4d6d;

/// The version of the layout, kept in `user_version`.
const VERSION: i64 = 1;

/// How long another process may hold the file before an operation fails.
const BUSY: Duration = Duration::from_secs(5);

/// `place` names scope and owner in one word, so that the index of words knows it too. `tokens` is the text cut into words by `words.rs`.
/// The triggers keep the indexes and `used` true inside the transaction that changes an entry. With `secure-delete`, and the pragma of
/// that name, what is forgotten is overwritten.
const SCHEMA: &str = "
    CREATE TABLE entry (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        scope TEXT NOT NULL,
        owner TEXT NOT NULL,
        place TEXT NOT NULL,
        text TEXT NOT NULL,
        tokens TEXT NOT NULL,
        digest BLOB NOT NULL,
        origin TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        expires_at INTEGER,
        UNIQUE (place, digest)
    ) STRICT;
    CREATE INDEX entry_by_expiry ON entry (expires_at) WHERE expires_at IS NOT NULL;
    CREATE TABLE used (
        place TEXT PRIMARY KEY,
        entries INTEGER NOT NULL,
        bytes INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE vector (
        number INTEGER PRIMARY KEY,
        model TEXT NOT NULL,
        vector BLOB NOT NULL
    ) STRICT;
    CREATE VIRTUAL TABLE words USING fts5(place, tokens, content = 'entry', content_rowid = 'number', tokenize = 'unicode61');
    CREATE VIRTUAL TABLE trigrams USING fts5(text, content = 'entry', content_rowid = 'number', tokenize = 'trigram');
    INSERT INTO words (words, rank) VALUES ('secure-delete', 1);
    INSERT INTO trigrams (trigrams, rank) VALUES ('secure-delete', 1);
    CREATE TRIGGER entry_added AFTER INSERT ON entry BEGIN
        INSERT INTO words (rowid, place, tokens) VALUES (new.number, new.place, new.tokens);
        INSERT INTO trigrams (rowid, text) VALUES (new.number, new.text);
        INSERT INTO used (place, entries, bytes) VALUES (new.place, 1, octet_length(new.text))
            ON CONFLICT (place) DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
    END;
    CREATE TRIGGER entry_removed AFTER DELETE ON entry BEGIN
        INSERT INTO words (words, rowid, place, tokens) VALUES ('delete', old.number, old.place, old.tokens);
        INSERT INTO trigrams (trigrams, rowid, text) VALUES ('delete', old.number, old.text);
        UPDATE used SET entries = entries - 1, bytes = bytes - octet_length(old.text) WHERE place = old.place;
        DELETE FROM used WHERE place = old.place AND entries = 0;
        DELETE FROM vector WHERE number = old.number;
    END;
";

/// Opens the file, for this user only, and brings it to the present layout.
pub(super) fn open(path: &Path) -> Result<Connection, MemoryError> {
    let shown = path.display().to_string();
    let unusable = |source: Box<dyn std::error::Error + Send + Sync>| MemoryError::Store { path: shown.clone(), source };
    let database = |source: rusqlite::Error| match source.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => MemoryError::Foreign { path: shown.clone() },
        _ => unusable(Box::new(source)),
    };
    if let Some(directory) = path.parent() {
        file::create_private_dir(directory).map_err(|source| unusable(Box::new(source)))?;
    }
    file::create_private(path).map_err(|source| unusable(Box::new(source)))?;
    // No `URI` flag: a name that begins with `file:` is a name.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(path, flags).map_err(database)?;
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
        (APPLICATION_ID, found, _) if found > VERSION => return Err(MemoryError::Newer { path: shown, found, known: VERSION }),
        _ => return Err(MemoryError::Foreign { path: shown }),
    }
    transaction.commit().map_err(database)?;
    let settings = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON; PRAGMA trusted_schema = OFF; \
                    PRAGMA cell_size_check = ON;";
    connection.execute_batch(settings).map_err(database)?;
    Ok(connection)
}
