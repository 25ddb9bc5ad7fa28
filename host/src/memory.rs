//! Memory: facts that outlive a conversation, kept in an SQLite file and found again by words or by meaning.
//!
//! What is remembered is text that a model wrote, often after it had read what a stranger wrote. So it comes back only as the result of a
//! tool call, with where it came from, and never enters a system prompt.

mod limits;
mod nearest;
mod schema;
mod search;
mod sqlite;
mod tools;
mod words;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::tool::BoxFuture;

pub use limits::MemoryLimits;
pub use sqlite::{Filter, SqliteMemory, Usage};
pub use tools::{MEMORY_PLUGIN, MemoryTools};

/// Keeps texts, and finds them again.
pub trait Memory: Send + Sync {
    /// Keeps a text. The same text in the same place is kept once; saving it again makes it the newest.
    ///
    /// # Errors
    ///
    /// Says which limit is reached, or what is wrong with the store. A save that would exceed a limit drops nothing that is there: whoever
    /// makes the model save much must not be able to push out what was known before.
    fn save(&self, entry: NewEntry) -> BoxFuture<'_, Result<Saved, MemoryError>>;

    /// Finds what fits a text best, in the places that are named and nowhere else. Any text is a query.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the store.
    fn recall(&self, query: Query) -> BoxFuture<'_, Result<Recalled, MemoryError>>;
}

/// How far a memory reaches.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Everything that this user does.
    User,
    /// One project: a directory, or a name in the configuration.
    Project,
    /// One session.
    Session,
}

impl Scope {
    /// All of them, the widest first.
    pub const ALL: [Self; 3] = [Self::User, Self::Project, Self::Session];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
            Self::Session => "session",
        }
    }

    /// The scope that a word names.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a memory belongs: the user, one project, or one session.
#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize)]
pub struct Place {
    scope: Scope,
    owner: String,
}

impl Place {
    /// The user.
    pub fn user() -> Self {
        Self { scope: Scope::User, owner: String::new() }
    }

    /// A project, by its directory or name.
    pub fn project(name: impl Into<String>) -> Self {
        Self { scope: Scope::Project, owner: name.into() }
    }

    /// A session, by its id.
    pub fn session(id: impl Into<String>) -> Self {
        Self { scope: Scope::Session, owner: id.into() }
    }

    /// How far it reaches.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The project's name or the session's id; empty for the user.
    pub fn owner(&self) -> &str {
        &self.owner
    }
}

/// Where a memory came from.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// The run in which it was saved.
    pub run_id: Option<String>,
    /// The session in which it was saved.
    pub session_id: Option<String>,
    /// The tools whose results the model had read by then: what it saved may be their words.
    pub tools_read: Vec<String>,
}

/// A text to be kept.
#[derive(Clone, Debug)]
pub struct NewEntry {
    /// Where it belongs.
    pub place: Place,
    /// The text; it is cleaned, and known secrets are removed, before it is kept.
    pub text: String,
    /// How long it is kept; none is as long as the settings say.
    pub keep: Option<Duration>,
    /// Where it came from.
    pub origin: Origin,
}

/// What became of a text that was to be kept.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Saved {
    /// The entry's id.
    pub id: String,
    /// Whether the same text was there before.
    pub known: bool,
    /// Whether a secret was removed from it.
    pub redacted: bool,
    /// When it expires, in milliseconds since 1970.
    pub expires_at: Option<u64>,
    /// What did not work, and does no harm.
    pub note: Option<String>,
}

/// What is looked for.
#[derive(Clone, Debug)]
pub struct Query {
    /// Any text: words, a question, part of a word.
    pub text: String,
    /// Where to look. Nothing is found in an empty list.
    pub places: Vec<Place>,
    /// The most entries; the settings have a limit as well.
    pub limit: usize,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Recalled {
    /// The entries, best first.
    pub entries: Vec<Entry>,
    /// Entries that fit as well, and were left out because the answer would have been too long.
    pub left_out: usize,
    /// What did not work, and does no harm.
    pub note: Option<String>,
}

/// A text that was kept.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// Where it belongs.
    #[serde(flatten)]
    pub place: Place,
    /// The text. Untrusted: a model wrote it, and who knows after reading what.
    pub text: String,
    /// Where it came from.
    pub origin: Origin,
    /// When it was saved first, in milliseconds since 1970.
    pub created_at: u64,
    /// When it was saved last.
    pub updated_at: u64,
    /// When it expires.
    pub expires_at: Option<u64>,
}

/// Why something could not be kept, or looked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// There is no text.
    #[error("there is no text to remember")]
    Empty,
    /// The text is too long.
    #[error("the text has {bytes} bytes, and one memory may have {limit}")]
    TooLong {
        /// How many it has.
        bytes: u64,
        /// How many it may have.
        limit: u64,
    },
    /// The place holds as many entries as it may.
    #[error("the {scope} scope holds {limit} memories, and may hold no more")]
    TooMany {
        /// The scope.
        scope: Scope,
        /// How many it may hold.
        limit: u64,
    },
    /// The store holds as many bytes as it may.
    #[error("the memory holds {used} bytes, and with this text would exceed its {limit}")]
    Full {
        /// How many it holds.
        used: u64,
        /// How many it may hold.
        limit: u64,
    },
    /// A newer host has changed the file's layout.
    #[error("the memory `{path}` has version {found}, and this host reads up to {known}")]
    Newer {
        /// The file.
        path: String,
        /// Its version.
        found: i64,
        /// The newest that is known.
        known: i64,
    },
    /// The file is something else.
    #[error("`{path}` is not a memory of this host")]
    Foreign {
        /// The file.
        path: String,
    },
    /// The store cannot be used.
    #[error("cannot use the memory `{path}`: {source}")]
    Store {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl MemoryError {
    /// What would put it right.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Empty => "say what to remember",
            Self::TooLong { .. } => "save shorter facts, one at a time, or raise `max_entry_bytes` under `[memory]`",
            Self::TooMany { .. } => "forget some with `honeycomb-host memory forget`, or raise `max_entries` under `[memory]`",
            Self::Full { .. } => "forget some with `honeycomb-host memory forget`, or raise `max_bytes` under `[memory]`",
            Self::Newer { .. } => "use the newer host",
            Self::Foreign { .. } => "move the file away, or name another directory with `--state-dir`",
            Self::Store { .. } => {
                "check that the state directory is writable and the disk not full; a damaged file can be moved away"
            }
        }
    }
}

#[cfg(test)]
mod tests;
