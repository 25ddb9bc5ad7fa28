//! Why a store, or a session in it, cannot be used.

use std::io;
use std::path::PathBuf;

use rusqlite::ErrorCode;

use crate::agent::RunError;

/// Why a store, or a session in it, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file or directory cannot be made or read.
    #[error("cannot use `{}`", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// SQLite failed.
    #[error("the session store `{}` failed", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// Another process has been writing for too long.
    #[error("the session store `{}` is busy: another process has been writing to it for 5 seconds", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The file's pages contradict each other.
    #[error("the session store `{}` is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// The file is something else.
    #[error("`{}` is not a session store", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A newer program has changed the file's layout.
    #[error("the session store `{}` has version {found}, and this program reads up to {known}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest that is known.
        known: i64,
    },
    /// No session has this id.
    #[error("there is no session `{id}`")]
    Unknown {
        /// The id, or the beginning of one.
        id: String,
    },
    /// Several sessions' ids begin like this.
    #[error("`{prefix}` is the beginning of {count} sessions' ids")]
    Ambiguous {
        /// The beginning.
        prefix: String,
        /// How many.
        count: usize,
    },
    /// Another process works on the session.
    #[error("session `{id}` is in use by process {pid} since {since}")]
    Locked {
        /// The session.
        id: String,
        /// The process; 0 if it could not say.
        pid: u32,
        /// Since when, UTC.
        since: String,
    },
    /// The session's last run cannot be read.
    #[error("session `{id}` cannot be continued")]
    Run {
        /// The session.
        id: String,
        /// The cause.
        #[source]
        source: RunError,
    },
    /// Something of the session is missing.
    #[error("session `{id}` is incomplete: {what}")]
    Incomplete {
        /// The session.
        id: String,
        /// What is missing.
        what: String,
    },
    /// JSON in the store is damaged, or could not be written.
    #[error("a record of session `{id}` cannot be read or written")]
    Record {
        /// The session.
        id: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// Writing an export failed.
    #[error("cannot write the export")]
    Output(#[source] io::Error),
    /// The thread of an operation was lost: the program is ending.
    #[error("the session store's thread was lost")]
    Thread,
}

impl StoreError {
    /// What would put it right.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::File { .. } => "check that the directory exists and is writable, or name another with `--state-dir`",
            Self::Database { .. } => "check that the disk is not full and the directory writable",
            Self::Busy { .. } => "wait for the other process, or end it",
            Self::Damaged { .. } => "`sessions recover` saves what can be read into a new store, and keeps the damaged file",
            Self::Foreign { .. } => "move the file away, or name another directory with `--state-dir`",
            Self::Newer { .. } => {
                "use the newer program; a backup of the older version may stand beside the file as `sessions.db.v*.bak`"
            }
            Self::Unknown { .. } => "`sessions list` shows what there is",
            Self::Ambiguous { .. } => "give more of the id",
            Self::Locked { .. } => "wait for it to end, or continue another session",
            Self::Run { .. } | Self::Incomplete { .. } | Self::Record { .. } => {
                "`sessions export` still writes what can be read of it; begin a new session to go on"
            }
            Self::Output(_) => "is the disk full?",
            Self::Thread => return None,
        })
    }
}

/// Sorts an error of SQLite by what can be done about it.
pub(super) fn sort(path: &std::path::Path, source: rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy { path },
        Some(ErrorCode::DatabaseCorrupt) => StoreError::Damaged { path, source },
        Some(ErrorCode::NotADatabase) => StoreError::Foreign { path },
        _ => StoreError::Database { path, source },
    }
}
