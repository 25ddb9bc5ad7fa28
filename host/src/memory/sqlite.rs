//! The memory that is there by default: one SQLite file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params, params_from_iter};
use sha2::{Digest as _, Sha256};

use super::search::{self, Places, place_word};
use super::{Entry, Memory, MemoryError, MemoryLimits, NewEntry, Origin, Place, Query, Recalled, Saved, Scope};
use super::{nearest, schema, words};
use crate::provider::embeddings::Embedder;
use crate::secret::Redactor;
use crate::text;
use crate::tool::BoxFuture;

/// The longest query, in bytes.
const MAX_QUERY: usize = 4 << 10;
/// The most entries that get their vector with one save: those that were saved while the endpoint did not answer.
const EMBED_AT_ONCE: usize = 16;
/// The most tools that an origin names.
const MAX_TOOLS: usize = 16;

/// Tells the time, in milliseconds since 1970.
type Now = dyn Fn() -> u64 + Send + Sync;

/// A memory in an SQLite file, which is made when it is first used. Cheap to clone; clones share the file.
///
/// Texts are found by their words, by parts of words, and, with an [`Embedder`], by their meaning. Several processes may share a file.
#[derive(Clone)]
pub struct SqliteMemory(Arc<Shared>);

struct Shared {
    path: PathBuf,
    limits: MemoryLimits,
    redactors: Vec<Redactor>,
    embedder: Option<Arc<dyn Embedder>>,
    now: Box<Now>,
    connection: Mutex<Option<Connection>>,
}

/// Which entries are meant. Every field that is there must hold; with none, all are.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The entry with this id.
    pub id: Option<String>,
    /// Those of one place.
    pub place: Option<Place>,
    /// Those of one scope, whoever's.
    pub scope: Option<Scope>,
    /// Those whose text holds this one; ASCII letters in either case.
    pub containing: Option<String>,
}

/// How much is remembered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Usage {
    /// Entries.
    pub entries: u64,
    /// Bytes of their texts.
    pub bytes: u64,
}

impl SqliteMemory {
    /// A memory in a file. Nothing is opened or made before it is used.
    pub fn new(path: impl Into<PathBuf>, limits: MemoryLimits) -> Self {
        Self(Arc::new(Shared {
            path: path.into(),
            limits,
            redactors: Vec::new(),
            embedder: None,
            now: Box::new(system_now),
            connection: Mutex::default(),
        }))
    }

    /// Removes the secrets that these know from everything that is saved or looked for.
    #[must_use]
    pub fn with_redactors(self, redactors: Vec<Redactor>) -> Self {
        self.change(|shared| shared.redactors = redactors)
    }

    /// Finds texts by their meaning too.
    #[must_use]
    pub fn with_embedder(self, embedder: Arc<dyn Embedder>) -> Self {
        self.change(|shared| shared.embedder = Some(embedder))
    }

    /// Tells the time another way: milliseconds since 1970.
    #[must_use]
    pub fn with_clock(self, now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.change(|shared| shared.now = Box::new(now))
    }

    fn change(self, change: impl FnOnce(&mut Shared)) -> Self {
        let mut shared = Arc::try_unwrap(self.0).unwrap_or_else(|shared| Shared {
            path: shared.path.clone(),
            limits: shared.limits.clone(),
            redactors: shared.redactors.clone(),
            embedder: shared.embedder.clone(),
            now: Box::new(system_now),
            connection: Mutex::default(),
        });
        change(&mut shared);
        Self(Arc::new(shared))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Lists entries, the newest first, and at most `limit`.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the store.
    pub async fn list(&self, filter: Filter, limit: usize) -> Result<Vec<Entry>, MemoryError> {
        self.run(move |_, connection| {
            let (condition, parameters) = filter.sql();
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let sql =
                format!("SELECT {COLUMNS} FROM entry WHERE {condition} ORDER BY updated_at DESC, number DESC LIMIT {limit}");
            connection.prepare(&sql)?.query_map(params_from_iter(parameters), read_entry)?.collect()
        })
        .await
    }

    /// Forgets entries, and returns how many there were. What they held is overwritten in the file.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the store.
    pub async fn forget(&self, filter: Filter) -> Result<u64, MemoryError> {
        self.run(move |_, connection| {
            let (condition, parameters) = filter.sql();
            let forgotten = connection.execute(&format!("DELETE FROM entry WHERE {condition}"), params_from_iter(parameters))?;
            // The log still holds what was written before; another reader may delay this, and the next forgetting makes up for it.
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            Ok(u64::try_from(forgotten).unwrap_or(0))
        })
        .await
    }

    /// How much is remembered in all places.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the store.
    pub async fn usage(&self) -> Result<Usage, MemoryError> {
        self.run(|_, connection| {
            connection.query_row("SELECT coalesce(sum(entries), 0), coalesce(sum(bytes), 0) FROM used", [], |row| {
                Ok(Usage { entries: unsigned(row.get(0)?), bytes: unsigned(row.get(1)?) })
            })
        })
        .await
    }

    /// Does something with the open file, in a thread where blocking is fine. Entries that have expired are gone by then.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared, &mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, MemoryError> {
        let shared = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || shared.with_connection(|connection| work(&shared, connection))).await;
        done.unwrap_or_else(|error| Err(self.0.failed(Box::new(error))))
    }

    async fn save_entry(&self, entry: NewEntry) -> Result<Saved, MemoryError> {
        let (clean, redacted) = self.0.clean(&entry.text)?;
        let place = entry.place.clone();
        let saved = self.run(move |shared, connection| shared.insert(connection, &entry, &clean, redacted)).await?;
        let mut saved = saved?;
        if let Some(embedder) = &self.0.embedder {
            saved.note = self
                .embed_missing(embedder.as_ref(), place)
                .await?
                .map(|problem| format!("it is kept, and for now found by its words only: no embedding: {problem}"));
        }
        Ok(saved)
    }

    /// Gives entries their vectors. Returns what the endpoint did wrong.
    async fn embed_missing(&self, embedder: &dyn Embedder, place: Place) -> Result<Option<String>, MemoryError> {
        let model = embedder.model().to_owned();
        let missing = self
            .run(move |_, connection| {
                let mut statement = connection.prepare_cached(
                    "SELECT number, text FROM entry WHERE place = ?1
                     AND NOT EXISTS (SELECT 1 FROM vector WHERE vector.number = entry.number AND vector.model = ?2)
                     ORDER BY updated_at DESC, number DESC LIMIT ?3",
                )?;
                let limit = i64::try_from(EMBED_AT_ONCE).unwrap_or(1);
                let rows =
                    statement.query_map(params![place_word(&place), model, limit], |row| Ok((row.get(0)?, row.get(1)?)))?;
                rows.collect::<rusqlite::Result<Vec<(i64, String)>>>()
            })
            .await?;
        let (numbers, texts): (Vec<i64>, Vec<String>) = missing.into_iter().unzip();
        if texts.is_empty() {
            return Ok(None);
        }
        let vectors = match embedder.embed(&texts).await {
            Ok(vectors) => vectors,
            Err(error) => return Ok(Some(text::clean_line(&error.to_string(), 300))),
        };
        let model = embedder.model().to_owned();
        self.run(move |_, connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for (number, vector) in numbers.iter().zip(&vectors) {
                if let Some(bytes) = nearest::encode(vector) {
                    // Only for an entry that is still there.
                    transaction.execute(
                        "INSERT OR REPLACE INTO vector (number, model, vector)
                         SELECT number, ?2, ?3 FROM entry WHERE number = ?1",
                        params![number, model, bytes],
                    )?;
                }
            }
            transaction.commit()
        })
        .await?;
        Ok(None)
    }

    async fn recall_entries(&self, query: Query) -> Result<Recalled, MemoryError> {
        let text = self.0.redact(&text::clean(&query.text[..query.text.floor_char_boundary(MAX_QUERY)], MAX_QUERY));
        if query.places.is_empty() || text.trim().is_empty() {
            return Ok(Recalled::default());
        }
        let mut note = None;
        let mut meaning = None;
        if let Some(embedder) = &self.0.embedder {
            match embedder.embed(std::slice::from_ref(&text)).await {
                Ok(vectors) => meaning = vectors.first().and_then(|vector| nearest::encode(vector)),
                Err(error) => {
                    let problem = text::clean_line(&error.to_string(), 300);
                    note = Some(format!("found by words only: no embedding: {problem}"));
                }
            }
        }
        let model = self.0.embedder.as_ref().map(|embedder| embedder.model().to_owned());
        let mut recalled = self
            .run(move |shared, connection| {
                let places = Places::new(&query.places);
                let mut lists = search::by_words(connection, &places, &text, (shared.now)())?;
                if let (Some(meaning), Some(model)) = (&meaning, &model) {
                    lists.push(nearest::nearest(connection, &places, model, meaning)?);
                }
                shared.fetch(connection, &search::fuse(&lists), query.limit)
            })
            .await?;
        recalled.note = note;
        Ok(recalled)
    }
}

impl Memory for SqliteMemory {
    fn save(&self, entry: NewEntry) -> BoxFuture<'_, Result<Saved, MemoryError>> {
        Box::pin(self.save_entry(entry))
    }

    fn recall(&self, query: Query) -> BoxFuture<'_, Result<Recalled, MemoryError>> {
        Box::pin(self.recall_entries(query))
    }
}

impl Shared {
    fn with_connection<T>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T, MemoryError> {
        let mut slot = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = match &mut *slot {
            Some(connection) => connection,
            None => slot.insert(schema::open(&self.path)?),
        };
        purge(connection, signed((self.now)())).and_then(|()| work(connection)).map_err(|error| self.failed(Box::new(error)))
    }

    fn failed(&self, source: Box<dyn std::error::Error + Send + Sync>) -> MemoryError {
        MemoryError::Store { path: self.path.display().to_string(), source }
    }

    /// Without control characters, invisible ones and known secrets; and whether there was a secret.
    fn clean(&self, source: &str) -> Result<(String, bool), MemoryError> {
        let limit = self.limits.max_entry_bytes;
        // Bounded before it is scanned, and again after: a placeholder may be longer than a secret.
        let too_long = |bytes: usize| MemoryError::TooLong { bytes: bytes as u64, limit };
        if source.len() as u64 > limit {
            return Err(too_long(source.len()));
        }
        let clean = text::clean(source, usize::MAX);
        let redacted = self.redact(&clean);
        let kept = redacted.trim();
        if kept.is_empty() {
            return Err(MemoryError::Empty);
        }
        if kept.len() as u64 > limit {
            return Err(too_long(kept.len()));
        }
        Ok((kept.to_owned(), redacted != clean))
    }

    fn redact(&self, text: &str) -> String {
        self.redactors.iter().fold(text.to_owned(), |text, redactor| redactor.redact(&text).into_owned())
    }

    fn insert(
        &self,
        connection: &mut Connection,
        entry: &NewEntry,
        text: &str,
        redacted: bool,
    ) -> rusqlite::Result<Result<Saved, MemoryError>> {
        let now = (self.now)();
        let keep = entry.keep.or(self.limits.keep);
        let expires_at = keep.map(|keep| now.saturating_add(millis(keep)));
        let place = place_word(&entry.place);
        let digest = Sha256::digest(text);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let known: Option<(i64, String)> = transaction
            .prepare_cached("SELECT number, id FROM entry WHERE place = ?1 AND digest = ?2")?
            .query_row(params![place, &digest[..]], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        if let Some((number, id)) = known {
            // Where it came from first stays: a second hand does not make it better or worse.
            transaction
                .prepare_cached("UPDATE entry SET updated_at = ?2, expires_at = ?3 WHERE number = ?1")?
                .execute(params![number, signed(now), expires_at.map(signed)])?;
            transaction.commit()?;
            return Ok(Ok(Saved { id, known: true, redacted, expires_at, note: None }));
        }
        if let Some(full) = self.full(&transaction, entry.place.scope(), &place, text.len() as u64)? {
            return Ok(Err(full));
        }
        let id = uuid::Uuid::now_v7().to_string();
        let mut origin = entry.origin.clone();
        origin.tools_read.truncate(MAX_TOOLS);
        origin.tools_read.iter_mut().for_each(|tool| *tool = text::clean_line(tool, 64));
        transaction
            .prepare_cached(
                "INSERT INTO entry (id, scope, owner, place, text, tokens, digest, origin, created_at, updated_at, expires_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10)",
            )?
            .execute(params![
                id,
                entry.place.scope().as_str(),
                entry.place.owner(),
                place,
                text,
                words::index(text),
                &digest[..],
                serde_json::to_string(&origin).unwrap_or_default(),
                signed(now),
                expires_at.map(signed),
            ])?;
        transaction.commit()?;
        Ok(Ok(Saved { id, known: false, redacted, expires_at, note: None }))
    }

    /// Which limit one more text would exceed.
    fn full(
        &self,
        transaction: &Transaction<'_>,
        scope: Scope,
        place: &str,
        bytes: u64,
    ) -> rusqlite::Result<Option<MemoryError>> {
        let entries: i64 = transaction
            .prepare_cached("SELECT coalesce(max(entries), 0) FROM used WHERE place = ?1")?
            .query_row([place], |row| row.get(0))?;
        if unsigned(entries) >= self.limits.max_entries {
            return Ok(Some(MemoryError::TooMany { scope, limit: self.limits.max_entries }));
        }
        let used: i64 =
            transaction.prepare_cached("SELECT coalesce(sum(bytes), 0) FROM used")?.query_row([], |row| row.get(0))?;
        let (used, limit) = (unsigned(used), self.limits.max_bytes);
        Ok((used.saturating_add(bytes) > limit).then_some(MemoryError::Full { used, limit }))
    }

    fn fetch(&self, connection: &Connection, numbers: &[i64], limit: usize) -> rusqlite::Result<Recalled> {
        let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM entry WHERE number = ?1"))?;
        let mut recalled = Recalled::default();
        let mut bytes = 0;
        let limit = limit.clamp(1, self.limits.max_results);
        for number in numbers {
            let entry = statement.query_row([number], read_entry)?;
            bytes += entry.text.len() as u64;
            if recalled.entries.len() >= limit || (bytes > self.limits.max_result_bytes && !recalled.entries.is_empty()) {
                break;
            }
            recalled.entries.push(entry);
        }
        recalled.left_out = numbers.len() - recalled.entries.len();
        Ok(recalled)
    }
}

/// Removes what has expired. Looks first: a deletion takes the lock that writers wait for, even when it finds nothing.
fn purge(connection: &Connection, now: i64) -> rusqlite::Result<()> {
    let expired = connection.prepare_cached("SELECT 1 FROM entry WHERE expires_at <= ?1 LIMIT 1")?.exists([now])?;
    if expired {
        connection.execute("DELETE FROM entry WHERE expires_at <= ?1", [now])?;
    }
    Ok(())
}

const COLUMNS: &str = "id, scope, owner, text, origin, created_at, updated_at, expires_at";

fn read_entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let scope: String = row.get(1)?;
    let origin: String = row.get(4)?;
    Ok(Entry {
        id: row.get(0)?,
        place: Place { scope: Scope::parse(&scope).unwrap_or(Scope::Session), owner: row.get(2)? },
        text: row.get(3)?,
        origin: serde_json::from_str::<Origin>(&origin).unwrap_or_default(),
        created_at: unsigned(row.get(5)?),
        updated_at: unsigned(row.get(6)?),
        expires_at: row.get::<_, Option<i64>>(7)?.map(unsigned),
    })
}

impl Filter {
    fn sql(&self) -> (String, Vec<String>) {
        let fields = [
            ("id = ?", self.id.clone()),
            ("place = ?", self.place.as_ref().map(place_word)),
            ("scope = ?", self.scope.map(|scope| scope.as_str().to_owned())),
            ("text LIKE ? ESCAPE '\\'", self.containing.as_deref().map(search::like)),
        ];
        let (conditions, parameters): (Vec<&str>, Vec<String>) =
            fields.into_iter().filter_map(|(condition, value)| Some((condition, value?))).unzip();
        (if conditions.is_empty() { "true".to_owned() } else { conditions.join(" AND ") }, parameters)
    }
}

fn system_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
