//! The audit file: what was decided and done, one JSON object a line, each line chained to the one before it by its hash.
//!
//! Each record is one `write` under an exclusive lock of the file, so that several processes may append to one file, and is in the kernel's
//! hands when [`Audit::append`] returns: `kill -9` loses nothing that was appended, a power failure may unless `sync` is asked for.
//!
//! The chain is not keyed. It finds a line that was changed, dropped, repeated or moved; who may write the file can replace it from some line
//! to its end, and cut its end off. Whoever must find that too notes the last hash elsewhere.

mod file;
mod line;
mod record;
mod verify;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub use self::record::{Dialled, Kind, Record};
pub use self::verify::{Fault, Line, Report, read, verify};

use self::file::AuditFile;

/// An open audit file. Cheap to clone; clones append to the same file.
#[derive(Clone, Debug)]
pub struct Audit {
    path: Arc<Path>,
    file: Arc<Mutex<AuditFile>>,
}

/// Why the audit file cannot be used. Calls are refused as long as it cannot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The file cannot be opened or made.
    #[error("cannot open the audit file `{}`", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// It is a device, a pipe or a directory.
    #[error("the audit file `{}` is not a regular file", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// What is in it is not an audit file, or its end was changed.
    #[error("the end of `{}` is not what an audit file ends in: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// It is shorter than what this process has written.
    #[error("the audit file `{}` was shortened or removed while it was in use", path.display())]
    Shortened {
        /// The file.
        path: PathBuf,
    },
    /// Another process has held the lock for too long.
    #[error("the audit file `{}` is locked by another process", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read or written.
    #[error("cannot write the audit file `{}`", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl AuditError {
    /// What would put it right.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Open { .. } | Self::NotAFile { .. } => "name another with `--audit FILE`, or do without with `--audit none`",
            Self::Damaged { .. } => {
                "`honeycomb-host audit verify FILE` says which line; keep that file, and name a new one with `--audit`"
            }
            Self::Shortened { .. } => "start again with another file; nothing but this program may change it while it is in use",
            Self::Locked { .. } => "end the process that holds it (`fuser FILE`), or name another file with `--audit`",
            Self::Write { .. } => "make room on the disk, or name another file with `--audit`",
        }
    }
}

impl Audit {
    /// Opens the file, or makes it, readable by its owner alone. A line that was torn when a process was killed is closed with a record that
    /// says so. With `sync`, every record is on the disk before [`Audit::append`] returns.
    ///
    /// # Errors
    ///
    /// Fails when it is not a regular file, cannot be written, or does not end as an audit file does.
    pub fn open(path: &Path, sync: bool) -> Result<Self, AuditError> {
        Ok(Self { path: path.into(), file: Arc::new(Mutex::new(AuditFile::open(path, sync)?)) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a record. It is written when this returns.
    ///
    /// # Errors
    ///
    /// Fails when it was not written as a whole. What was written of it is closed by the next record that can be written.
    pub fn append(&self, record: &Record) -> Result<(), AuditError> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).append(record)
    }
}

#[cfg(test)]
mod tests;
