//! Opening the file: private, in the present layout, and never one that is not ours.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::error::{StoreError, sort};
use super::schema::APPLICATION_ID;
use crate::file;

/// How long another process may write before an operation fails.
const BUSY: Duration = Duration::from_secs(5);

/// What each connection is set to. `NORMAL`: what was committed survives the end of the process; see [`sync`] for the end of power.
/// `secure_delete`: what was deleted is gone. `cell_size_check` and `trusted_schema`: the file may be damaged or forged.
const SETTINGS: &str = "
    PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON;
    PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA journal_size_limit = 16777216;
";

/// Opens the file, which is made if need be, and brings it to the layout that `migrations` lead to.
pub(super) fn open(path: &Path, migrations: &[&str]) -> Result<Connection, StoreError> {
    if let Some(directory) = path.parent() {
        file::create_private_dir(directory).map_err(|source| StoreError::File { path: directory.to_owned(), source })?;
    }
    file::create_private(path).map_err(|source| StoreError::File { path: path.to_owned(), source })?;
    let failed = |source| sort(path, source);
    // No `URI` flag: a name that begins with `file:` is a name.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(BUSY).map_err(failed)?;
    migrate(&mut connection, path, migrations)?;
    connection.execute_batch(SETTINGS).map_err(failed)?;
    Ok(connection)
}

/// Says whether the next transactions wait for the disk. What is committed then, and all before it, survives a loss of power.
pub(super) fn sync(connection: &Connection, wait: bool) -> rusqlite::Result<()> {
    connection.execute_batch(if wait { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" })
}

/// Opens the file to read it, and changes nothing.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, StoreError> {
    let failed = |source| sort(path, source);
    // A reader of a write-ahead log needs to write its index; `query_only` keeps it from writing more.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(BUSY).map_err(failed)?;
    connection
        .execute_batch("PRAGMA query_only = ON; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;")
        .map_err(failed)?;
    Ok(connection)
}

/// Brings the layout up to date: all steps in one transaction, after a copy of the file was made.
fn migrate(connection: &mut Connection, path: &Path, migrations: &[&str]) -> Result<(), StoreError> {
    let failed = |source| sort(path, source);
    let known = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    // Looked at before anything is written: a foreign or newer file stays as it is, byte for byte.
    let (application, version, tables) = look(connection).map_err(failed)?;
    match (application, version, tables) {
        // Before the first page is written: this cannot be changed later. In a log, making the tables waits for no disk.
        (0, 0, 0) => connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA synchronous = NORMAL").map_err(failed)?,
        (APPLICATION_ID, found, _) if found == known => return Ok(()),
        (APPLICATION_ID, found, _) if found > known => {
            return Err(StoreError::Newer { path: path.to_owned(), found, known });
        }
        (APPLICATION_ID, ..) => {}
        _ => return Err(StoreError::Foreign { path: path.to_owned() }),
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    // Another process may have done it meanwhile.
    let (_, version, _) = look(&transaction).map_err(failed)?;
    if version > 0 && version < known {
        back_up(path, version)?;
    }
    let done = usize::try_from(version).unwrap_or(usize::MAX);
    for step in migrations.iter().skip(done) {
        transaction.execute_batch(step).map_err(failed)?;
    }
    if version < known {
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
        transaction.pragma_update(None, "user_version", known).map_err(failed)?;
    }
    transaction.commit().map_err(failed)
}

fn look(connection: &Connection) -> rusqlite::Result<(i64, i64, i64)> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let tables = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok((number("application_id")?, number("user_version")?, tables))
}

/// Copies the file as it was last committed, log included. The caller holds the write lock, so nothing changes meanwhile.
fn back_up(path: &Path, version: i64) -> Result<(), StoreError> {
    let backup = backup_path(path, version);
    let unusable = |source| StoreError::File { path: backup.clone(), source };
    match std::fs::remove_file(&backup) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unusable(error)),
        _ => {}
    }
    // An empty file is taken as the target, and keeps its permissions.
    file::create_private(&backup).map_err(unusable)?;
    let reader = open_to_read(path)?;
    let target = backup.to_str().ok_or_else(|| unusable(io::Error::other("its path is not Unicode")))?;
    reader.execute_batch("PRAGMA query_only = OFF").map_err(|source| sort(path, source))?;
    reader.execute("VACUUM INTO ?1", [target]).map_err(|source| sort(path, source))?;
    Ok(())
}

/// Where the copy of a file of an older version is kept.
pub(super) fn backup_path(path: &Path, version: i64) -> PathBuf {
    beside(path, &format!(".v{version}.bak"))
}

/// A path beside the store's, with its name and more.
pub(super) fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(more);
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::schema::MIGRATIONS;

    const STEPS: &[&str] = &[
        "CREATE TABLE note (text TEXT) STRICT; INSERT INTO note VALUES ('北京')",
        "ALTER TABLE note ADD COLUMN read INTEGER NOT NULL DEFAULT 0",
        "CREATE TABLE page (number INTEGER) STRICT",
    ];

    fn at() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("new/state/sessions.db");
        (directory, path)
    }

    fn version(path: &Path) -> i64 {
        look(&Connection::open(path).expect("opens")).expect("reads").1
    }

    #[test]
    fn an_older_version_is_migrated_and_a_copy_is_kept() {
        let (_directory, path) = at();
        drop(open(&path, &STEPS[..1]).expect("made"));
        let connection = open(&path, STEPS).expect("migrated");
        let read: (String, i64) =
            connection.query_row("SELECT text, read FROM note", [], |row| Ok((row.get(0)?, row.get(1)?))).expect("reads");
        assert_eq!(read, ("北京".to_owned(), 0));
        assert_eq!(version(&path), 3);
        let backup = backup_path(&path, 1);
        assert_eq!(version(&backup), 1);
        let text: String = Connection::open(&backup)
            .and_then(|backup| backup.query_row("SELECT text FROM note", [], |row| row.get(0)))
            .expect("the copy is whole");
        assert_eq!(text, "北京");
    }

    #[test]
    fn a_migration_that_fails_leaves_the_older_version() {
        let (_directory, path) = at();
        drop(open(&path, &STEPS[..1]).expect("made"));
        assert!(matches!(open(&path, &[STEPS[0], STEPS[1], "NONSENSE"]), Err(StoreError::Database { .. })));
        assert_eq!(version(&path), 1);
        open(&path, STEPS).expect("and is migrated once it can be");
    }

    #[test]
    fn a_newer_or_foreign_file_is_refused_and_stays_as_it_is() {
        let (_directory, path) = at();
        drop(open(&path, STEPS).expect("made"));
        let before = std::fs::read(&path).expect("reads");
        assert!(matches!(open(&path, &STEPS[..1]), Err(StoreError::Newer { found: 3, known: 1, .. })));
        assert_eq!(std::fs::read(&path).expect("reads"), before);

        std::fs::write(&path, "a diary, not a database; long enough to be looked at").expect("written");
        assert!(matches!(open(&path, STEPS), Err(StoreError::Foreign { .. })));
        std::fs::remove_file(&path).expect("removed");
        Connection::open(&path).and_then(|other| other.execute_batch("CREATE TABLE other (x)")).expect("made");
        assert!(matches!(open(&path, STEPS), Err(StoreError::Foreign { .. })));
    }

    #[test]
    fn a_new_file_can_be_opened_by_many_at_once() {
        let (_directory, path) = at();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| open(&path, MIGRATIONS).expect("opens"));
            }
        });
        assert_eq!(version(&path), 1);
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_what_is_stored() {
        use std::os::unix::fs::PermissionsExt as _;
        let (_directory, path) = at();
        let connection = open(&path, MIGRATIONS).expect("made");
        connection.execute_batch("PRAGMA user_version = 1").expect("written");
        let mode = |path: &Path| std::fs::metadata(path).expect("is there").permissions().mode() & 0o777;
        assert_eq!(mode(path.parent().expect("has one")), 0o700);
        for more in ["", "-wal", "-shm"] {
            assert_eq!(mode(&beside(&path, more)), 0o600, "{more}");
        }
    }
}
