//! Which sessions there are: newest first, a page at a time.

use rusqlite::{OptionalExtension as _, params};
use serde::Serialize;

use super::lock::SessionLock;
use super::{Store, StoreError};

/// The most sessions of a page.
const MAX_PAGE: usize = 1000;

/// Which sessions to list.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// The most sessions, up to 1000.
    pub limit: usize,
    /// The last session of the page before; none for the first page.
    pub after: Option<String>,
    /// List the workers' sessions of this session. None lists those that people began.
    pub parent: Option<String>,
}

impl Default for ListQuery {
    fn default() -> Self {
        Self { limit: 20, after: None, parent: None }
    }
}

/// Sessions, and whether there are more.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SessionPage {
    /// The sessions, the one that was worked on last first.
    pub sessions: Vec<SessionSummary>,
    /// What [`ListQuery::after`] must be for the next page; none on the last.
    pub next: Option<String>,
}

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionSummary {
    /// Its id.
    pub id: String,
    /// The session whose run started this one, for workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<String>,
    /// The first line of its first task.
    pub title: String,
    /// `running`, `interrupted`, or the stop reason of its last run.
    pub status: String,
    /// The model that was last asked.
    pub model: Option<String>,
    /// Runs: tasks that were given.
    pub runs: u64,
    /// Messages.
    pub messages: u64,
    /// Tool calls that the model made.
    pub tool_calls: u64,
    /// When it began, in milliseconds since 1970-01-01 UTC.
    pub created_at: u64,
    /// When it was last worked on.
    pub updated_at: u64,
}

/// The columns of a summary, for [`summary`].
pub(super) const COLUMNS: &str = "s.id, p.id, s.title, s.status, s.model, s.runs, s.messages, s.tool_calls, s.created_at, \
    s.updated_at FROM session s LEFT JOIN session p ON p.key = s.parent";

impl Store {
    /// Lists sessions.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails, or `after` or `parent` names no session.
    pub fn list(&self, query: &ListQuery) -> Result<SessionPage, StoreError> {
        let key_of = |id: &Option<String>| id.as_deref().map(|id| self.key(id)).transpose();
        let parent = key_of(&query.parent)?;
        let after = key_of(&query.after)?;
        let limit = query.limit.clamp(1, MAX_PAGE);
        let mut sessions = self.page(parent, after, limit + 1).map_err(|source| self.failed(source))?;
        let more = sessions.len() > limit;
        sessions.truncate(limit);
        for session in &mut sessions {
            self.tell_open(session)?;
        }
        let next = sessions.last().filter(|_| more).map(|last| last.id.clone());
        Ok(SessionPage { sessions, next })
    }

    fn page(&self, parent: Option<i64>, after: Option<i64>, limit: usize) -> rusqlite::Result<Vec<SessionSummary>> {
        let reader = self.reader();
        let (at, key) = match after {
            None => (i64::MAX, i64::MAX),
            Some(key) => (reader.query_row("SELECT updated_at FROM session WHERE key = ?1", [key], |row| row.get(0))?, key),
        };
        let sql = format!(
            "SELECT {COLUMNS} WHERE s.parent IS ?1 AND (s.updated_at, s.key) < (?2, ?3)
             ORDER BY s.updated_at DESC, s.key DESC LIMIT ?4"
        );
        let mut statement = reader.prepare_cached(&sql)?;
        let rows = statement.query_map(params![parent, at, key, super::save::integer(limit)], summary)?;
        rows.collect()
    }

    /// Whether a session that is not over is being worked on.
    pub(super) fn tell_open(&self, session: &mut SessionSummary) -> Result<(), StoreError> {
        if session.status == "open" {
            let root = if session.parent_id.is_none() { session.id.clone() } else { self.root(&session.id)? };
            let taken = SessionLock::is_taken(&self.0.locks, &root);
            session.status = if taken { "running" } else { "interrupted" }.to_owned();
        }
        Ok(())
    }

    /// The whole id of a session, of which the beginning is given.
    ///
    /// # Errors
    ///
    /// Returns an error if no session's id begins like this, or several do.
    pub fn find(&self, id: &str) -> Result<String, StoreError> {
        let unknown = || StoreError::Unknown { id: crate::text::clean_line(id, 64) };
        // Nothing else is in an id, and nothing else may be in a pattern.
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(unknown());
        }
        let id = id.to_ascii_lowercase();
        let found = || -> rusqlite::Result<Vec<String>> {
            let reader = self.reader();
            let mut statement =
                reader.prepare_cached("SELECT id FROM session WHERE id >= ?1 AND id < ?1 || 'g' ORDER BY id LIMIT 100")?;
            statement.query_map([&id], |row| row.get(0))?.collect()
        };
        let mut found = found().map_err(|source| self.failed(source))?;
        match found.len() {
            0 => Err(unknown()),
            1 => Ok(found.remove(0)),
            _ if found[0] == id => Ok(id),
            count => Err(StoreError::Ambiguous { prefix: id, count }),
        }
    }

    fn key(&self, id: &str) -> Result<i64, StoreError> {
        let id = self.find(id)?;
        let key = self.reader().query_row("SELECT key FROM session WHERE id = ?1", [&id], |row| row.get(0)).optional();
        key.map_err(|source| self.failed(source))?.ok_or(StoreError::Unknown { id })
    }

    /// The session that a person began, of which this one is a part; it is what is locked.
    pub(super) fn root(&self, id: &str) -> Result<String, StoreError> {
        let sql = "WITH RECURSIVE up (key, id, parent) AS (
                SELECT key, id, parent FROM session WHERE id = ?1
                UNION SELECT s.key, s.id, s.parent FROM session s JOIN up ON s.key = up.parent
            ) SELECT id FROM up WHERE parent IS NULL";
        let root = self.reader().query_row(sql, [id], |row| row.get(0)).optional();
        Ok(root.map_err(|source| self.failed(source))?.unwrap_or_else(|| id.to_owned()))
    }
}

/// Reads a row of [`COLUMNS`].
pub(super) fn summary(row: &rusqlite::Row<'_>) -> rusqlite::Result<SessionSummary> {
    let number = |index| row.get::<_, i64>(index).map(|value| u64::try_from(value).unwrap_or(0));
    Ok(SessionSummary {
        id: row.get(0)?,
        parent_id: row.get(1)?,
        title: row.get(2)?,
        status: row.get(3)?,
        model: row.get(4)?,
        runs: number(5)?,
        messages: number(6)?,
        tool_calls: number(7)?,
        created_at: number(8)?,
        updated_at: number(9)?,
    })
}
