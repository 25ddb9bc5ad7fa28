//! The store of all plugins, shared by all calls.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::database;

/// A key-value store: an SQLite file, or memory.
///
/// A value that was set is there after `kill -9`: the write-ahead log is in the kernel's hands before `set` returns. A loss of power
/// may take back the last writes, in order, and never tears the file (`synchronous = NORMAL`). Several processes may share a file.
#[derive(Clone)]
pub(crate) struct KeyValueStore(Arc<Shared>);

struct Shared {
    connection: Arc<Mutex<Connection>>,
    /// SQLite blocks, so each operation takes a thread; they wait here for their turn, not there.
    turn: Arc<Semaphore>,
    path: Option<PathBuf>,
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// SQLite cannot use the file.
    #[error(
        "cannot open the key-value store `{path}`\nhint: check that the directory exists and is writable, and the disk not full"
    )]
    Database {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// The file cannot be made.
    #[error("cannot create the key-value store `{path}`\nhint: check that the directory exists and is writable")]
    Create {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file is something else.
    #[error("`{path}` is not a key-value store\nhint: name another file")]
    Foreign {
        /// The file.
        path: String,
    },
    /// A newer host has changed the file's layout.
    #[error("the key-value store `{path}` has version {found}, and this host reads up to {known}\nhint: use the newer host")]
    Newer {
        /// The file.
        path: String,
        /// Its version.
        found: i64,
        /// The newest that is known.
        known: i64,
    },
}

/// Why an operation failed. The text is for the guest.
#[derive(Debug, thiserror::Error)]
pub(super) enum OperationError {
    /// The key is empty or too long.
    #[error("a key must have 1 to {} bytes", database::MAX_KEY)]
    Key,
    /// The value is too long.
    #[error("a value must have at most {} bytes", database::MAX_VALUE)]
    Value,
    /// The write would exceed the quota.
    #[error("the key-value quota of {quota} bytes is used up: this would make it {needed}")]
    Quota {
        /// The quota.
        quota: u64,
        /// What would be used.
        needed: u64,
    },
    /// What is to be incremented is no number.
    #[error("the value is not a decimal number of 64 bits")]
    NotANumber,
    /// The sum does not fit.
    #[error("the sum does not fit into 64 bits")]
    Overflow,
    /// Too many operations of other processes, or a fault of the disk.
    #[error("the key-value store failed")]
    Database(#[from] rusqlite::Error),
    /// The thread of the operation was lost.
    #[error("the key-value store failed")]
    Thread,
}

/// A page of keys.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Page {
    pub(super) keys: Vec<String>,
    /// Where the next page begins; none on the last.
    pub(super) next: Option<u64>,
}

impl KeyValueStore {
    /// Opens the store in a file, which is made if need be, or in memory.
    ///
    /// # Errors
    ///
    /// Returns why the file cannot be used.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, OpenError> {
        let connection = Arc::new(Mutex::new(database::open(path)?));
        Ok(Self(Arc::new(Shared { connection, turn: Arc::new(Semaphore::new(1)), path: path.map(Path::to_owned) })))
    }

    pub(super) async fn get(&self, plugin: &Arc<str>, key: String) -> Result<Option<Vec<u8>>, OperationError> {
        self.run(plugin, move |connection, plugin| database::get(connection, plugin, &key)).await
    }

    pub(super) async fn exists(&self, plugin: &Arc<str>, key: String) -> Result<bool, OperationError> {
        self.run(plugin, move |connection, plugin| database::exists(connection, plugin, &key)).await
    }

    pub(super) async fn set(&self, plugin: &Arc<str>, key: String, value: Vec<u8>, quota: u64) -> Result<(), OperationError> {
        self.run(plugin, move |connection, plugin| database::set(connection, plugin, &key, &value, quota)).await
    }

    pub(super) async fn delete(&self, plugin: &Arc<str>, key: String) -> Result<(), OperationError> {
        self.run(plugin, move |connection, plugin| database::delete(connection, plugin, &key)).await
    }

    pub(super) async fn list(&self, plugin: &Arc<str>, cursor: Option<u64>) -> Result<Page, OperationError> {
        self.run(plugin, move |connection, plugin| database::list(connection, plugin, cursor)).await
    }

    pub(super) async fn increment(&self, plugin: &Arc<str>, key: String, delta: i64, quota: u64) -> Result<i64, OperationError> {
        self.run(plugin, move |connection, plugin| database::increment(connection, plugin, &key, delta, quota)).await
    }

    /// The inner error is the present value, which is not the one that was seen.
    pub(super) async fn swap(
        &self,
        plugin: &Arc<str>,
        key: String,
        seen: Option<Vec<u8>>,
        value: Vec<u8>,
        quota: u64,
    ) -> Result<Result<(), Option<Vec<u8>>>, OperationError> {
        self.run(plugin, move |connection, plugin| database::swap(connection, plugin, &key, seen.as_deref(), &value, quota)).await
    }

    async fn run<T: Send + 'static>(
        &self,
        plugin: &Arc<str>,
        operation: impl FnOnce(&mut Connection, &str) -> Result<T, OperationError> + Send + 'static,
    ) -> Result<T, OperationError> {
        let turn = Arc::clone(&self.0.turn).acquire_owned().await.map_err(|_| OperationError::Thread)?;
        let connection = Arc::clone(&self.0.connection);
        let plugin = Arc::clone(plugin);
        let operation = move || {
            // The thread gives the turn back, not this future: a call that ends early leaves its operation running.
            let _turn = turn;
            operation(&mut connection.lock().unwrap_or_else(PoisonError::into_inner), &plugin)
        };
        tokio::task::spawn_blocking(operation).await.map_err(|_| OperationError::Thread)?
    }
}

impl fmt::Debug for KeyValueStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValueStore").field("path", &self.0.path).finish_non_exhaustive()
    }
}
