//! Sessions that outlive the process: one SQLite file, from which a run continues wherever it was killed.
//!
//! [`Store::create`] and [`Store::open_session`] give a [`Session`]: an [`Observer`](crate::agent::Observer) that stores the runs it is
//! told of, and the right to work on the session, which one process has at a time. [`Session::load`] gives the last run back.
//!
//! Order of writing, one transaction each: the task, before the model is asked; the model's turn; the calls that start, before they
//! start; the outcome of each call, before the model is asked again. So after a crash a finished call is not repeated, and one that
//! was started is known to have been. The start of calls that may have effects also waits for the disk, and so survives a loss of
//! power; that may take back other checkpoints since, and then a model is asked again or the outcome of a call is unknown.
//!
//! ```
//! use std::sync::Arc;
//! use honeycomb_host::agent::{Observer, Run, RunSettings};
//! use honeycomb_host::store::{ListQuery, Store, StoreOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("sessions.db");
//! let store = Store::open(&path, StoreOptions::default())?;
//! let session = Arc::new(store.create()?);
//! let id = session.id().to_owned();
//! // `Runner::with_observer(session)` does this at each step.
//! session.checkpoint(&Run::new("run-1", "北京天气怎么样？", RunSettings::default())).await.map_err(|failure| failure.message)?;
//! drop(session);
//!
//! let page = store.list(&ListQuery::default())?;
//! assert_eq!(page.sessions[0].title, "北京天气怎么样？");
//! let session = store.open_session(&id[..6])?;
//! let run = session.load()?.expect("it has a run");
//! assert_eq!(run.id(), "run-1"); // and `Runner::resume` goes on with it
//! # Ok(())
//! # }
//! ```

mod database;
mod error;
mod export;
mod list;
mod load;
mod lock;
mod record;
mod recover;
mod save;
mod schema;
mod session;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use sha2::{Digest as _, Sha256};

use crate::agent::{Clock, SystemClock};
use crate::secret::Redactor;
use crate::text::hex;
use crate::time::date_time;
use lock::SessionLock;

pub use error::StoreError;
pub use list::{ListQuery, SessionPage, SessionSummary};
pub use load::{ApprovalRecord, CallRecord, RunRecord, SessionDetail};
pub use recover::Recovered;
pub use session::Session;

/// How a store behaves.
#[derive(Clone)]
pub struct StoreOptions {
    /// What is removed from all text before it is stored.
    pub redactors: Vec<Redactor>,
    /// Tells when things happened.
    pub clock: Arc<dyn Clock>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { redactors: Vec::new(), clock: Arc::new(SystemClock) }
    }
}

/// All sessions of one file. Cheap to clone; several processes may share the file.
///
/// Its functions block for as long as SQLite takes, at most some seconds while another process writes.
#[derive(Clone)]
pub struct Store(Arc<Shared>);

struct Shared {
    path: PathBuf,
    locks: PathBuf,
    /// The one connection that writes.
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
    options: StoreOptions,
}

impl Store {
    /// Opens the store in a file, which is made if need be with its directory, for its owner only. A file of an older version is
    /// migrated, and a copy of it is kept beside it as `NAME.vN.bak`.
    ///
    /// # Errors
    ///
    /// Returns why the file cannot be used; a newer version's, or somebody else's, stays as it is.
    pub fn open(path: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        let path = std::path::absolute(path).map_err(|source| StoreError::File { path: path.to_owned(), source })?;
        let writer = Mutex::new(database::open(&path, schema::MIGRATIONS)?);
        let reader = Mutex::new(database::open_to_read(&path)?);
        let locks = database::beside(&path, ".locks");
        Ok(Self(Arc::new(Shared { path, locks, writer, reader, options })))
    }

    /// Begins a session. Nothing of it is stored before its first run is.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory of locks cannot be used.
    pub fn create(&self) -> Result<Session, StoreError> {
        let id = short_id(uuid::Uuid::now_v7().as_bytes());
        let lock = self.lock(&id)?;
        Ok(Session::new(self.clone(), id, lock))
    }

    /// Takes up a session, by its id or the beginning of it.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such session, or several, or another process works on it.
    pub fn open_session(&self, id: &str) -> Result<Session, StoreError> {
        let id = self.find(id)?;
        let lock = self.lock(&self.root(&id)?)?;
        Ok(Session::new(self.clone(), id, lock))
    }

    /// Deletes a session with all that belongs to it, workers' sessions too. The space is given back, and the text is overwritten.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such session, or several, or a process works on it.
    pub fn delete(&self, id: &str) -> Result<String, StoreError> {
        let id = self.find(id)?;
        let _lock = self.lock(&self.root(&id)?)?;
        let writer = self.writer();
        writer.execute("DELETE FROM session WHERE id = ?1", [&id]).map_err(|source| self.failed(source))?;
        // The log still holds the text, and the file the pages.
        let tidy = "PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE);";
        writer.execute_batch(tidy).map_err(|source| self.failed(source))?;
        Ok(id)
    }

    fn lock(&self, id: &str) -> Result<SessionLock, StoreError> {
        SessionLock::take(&self.0.locks, id, &date_time(self.now()))
    }

    fn now(&self) -> u64 {
        self.0.options.clock.now_ms()
    }

    fn writer(&self) -> MutexGuard<'_, Connection> {
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reader(&self) -> MutexGuard<'_, Connection> {
        self.0.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, source: rusqlite::Error) -> StoreError {
        error::sort(&self.0.path, source)
    }

    /// Removes what must not be stored.
    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        for redactor in &self.0.options.redactors {
            if let Cow::Owned(redacted) = redactor.redact(&text) {
                text = Cow::Owned(redacted);
            }
        }
        text
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("path", &self.0.path).finish_non_exhaustive()
    }
}

/// An id that people can type the beginning of: the first characters already tell ten thousand sessions apart.
fn short_id(of: &[u8]) -> String {
    hex(&Sha256::digest(of)[..6])
}

#[cfg(test)]
mod tests;
