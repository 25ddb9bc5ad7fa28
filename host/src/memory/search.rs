//! Finding entries by their words: several lists, each by what it is good at, made one by the ranks in them.

use std::collections::HashMap;

use rusqlite::{Connection, params_from_iter};
use sha2::{Digest as _, Sha256};

use super::words::{self, quote};
use super::{Place, Scope};

/// The most entries of one list.
pub(super) const DEPTH: usize = 64;

/// A word in more entries than this says too little to be worth ranking them all; this bounds what one word costs.
const COMMON: usize = 4_000;

/// The most entries that are ranked: words are taken from the rarest on until there are as many.
const RANKED: usize = 8_000;

/// The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009).
const FUSION: f64 = 60.0;

/// After so long, half of what being new counts for is gone.
const HALF_LIFE_MS: f64 = 30.0 * 24.0 * 3_600_000.0;

/// How much being new counts for, of one.
const RECENCY: f64 = 0.25;

/// The places to look in, as words of the index.
pub(super) struct Places(Vec<String>);

impl Places {
    pub(super) fn new(places: &[Place]) -> Self {
        Self(places.iter().map(place_word).collect())
    }

    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// A condition on `entry.place`, with parameters from `first` on.
    pub(super) fn sql(&self, first: usize) -> String {
        let parameters: Vec<String> = (0..self.0.len()).map(|index| format!("?{}", first + index)).collect();
        format!("entry.place IN ({})", parameters.join(", "))
    }

    /// A condition of FTS5's.
    fn fts(&self) -> String {
        format!("place : ({})", any(self.0.iter()))
    }
}

/// A place as one word, that no text can hold by chance and no owner can forge.
pub(super) fn place_word(place: &Place) -> String {
    let letter = match place.scope() {
        Scope::User => return "user".to_owned(),
        Scope::Project => 'p',
        Scope::Session => 's',
    };
    format!("{letter}{}", crate::text::hex(&Sha256::digest(place.owner())[..16]))
}

/// The entries that fit a query by its words, best first. Entries that expired must be gone already.
pub(super) fn by_words(connection: &Connection, places: &Places, query: &str, now_ms: u64) -> rusqlite::Result<Vec<Vec<i64>>> {
    let (mut rare, mut common, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for term in words::terms(query) {
        match count(connection, &term)? {
            0 => unknown.push(term),
            many if many > COMMON => common.push(term),
            few => rare.push((few, term)),
        }
    }
    rare.sort_by_key(|(count, _)| *count);
    let mut total = 0;
    let mut within_budget = |count: usize| {
        let begins_within = total < RANKED;
        total += count;
        begins_within
    };
    let rare: Vec<String> = rare.into_iter().take_while(|(count, _)| within_budget(*count)).map(|(_, term)| term).collect();

    let mut lists = Vec::new();
    if !rare.is_empty() {
        lists.push(ranked(connection, places, &rare, now_ms)?);
    }
    if !common.is_empty() {
        // Together, common words may still be rare.
        let all: Vec<String> = common.iter().map(|term| quote(term)).collect();
        let mut list = newest(connection, places, &all.join(" AND "))?;
        if list.is_empty() && rare.is_empty() {
            list = newest(connection, places, &any(common.iter()))?;
        }
        lists.push(list);
    }
    // What is no word of any entry may be part of one, or have no letters at all.
    let parts: Vec<&str> = words::pieces(query).into_iter().filter(|piece| is_part(piece, &unknown)).collect();
    let long = |piece: &&&str| piece.chars().count() >= 3;
    if parts.iter().any(|piece| long(&piece)) {
        lists.push(containing(connection, places, &any(parts.iter().filter(long)))?);
    }
    if lists.iter().all(Vec::is_empty) {
        for piece in parts.iter().filter(|piece| !long(piece)).take(4) {
            lists.push(scanned(connection, places, piece)?);
        }
    }
    Ok(lists)
}

/// Makes one list of several: an entry counts for one by its rank in each (reciprocal rank fusion).
pub(super) fn fuse(lists: &[Vec<i64>]) -> Vec<i64> {
    let mut scores: HashMap<i64, f64> = HashMap::new();
    for list in lists {
        for (rank, number) in list.iter().enumerate() {
            *scores.entry(*number).or_default() += 1.0 / (FUSION + rank as f64 + 1.0);
        }
    }
    let mut fused: Vec<(i64, f64)> = scores.into_iter().collect();
    // The newer of two equals first.
    fused.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
    fused.into_iter().map(|(number, _)| number).collect()
}

/// In how many entries a word stands, counted up to one more than [`COMMON`].
fn count(connection: &Connection, term: &str) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare_cached("SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ?1 LIMIT ?2)")?;
    let limit = i64::try_from(COMMON + 1).unwrap_or(i64::MAX);
    let found: i64 = statement.query_row((format!("tokens : {}", quote(term)), limit), |row| row.get(0))?;
    Ok(usize::try_from(found).unwrap_or(0))
}

/// By bm25 and age.
fn ranked(connection: &Connection, places: &Places, terms: &[String], now_ms: u64) -> rusqlite::Result<Vec<i64>> {
    let query = format!("{} AND tokens : ({})", places.fts(), any(terms.iter()));
    let mut statement = connection.prepare_cached(
        "SELECT entry.number, found.score, entry.updated_at FROM (
             SELECT rowid, bm25(words, 0.0, 1.0) AS score FROM words WHERE words MATCH ?1 ORDER BY score LIMIT ?2
         ) AS found JOIN entry ON entry.number = found.rowid",
    )?;
    let rows = statement.query_map((query, depth()), |row| {
        let age = (now_ms as f64 - row.get::<_, i64>(2)? as f64).max(0.0);
        // bm25 is negative, and the lower the better (SQLite FTS5, section 5.1.1).
        let score = row.get::<_, f64>(1)? * (1.0 - RECENCY + RECENCY * (-age / HALF_LIFE_MS).exp2());
        Ok((score, row.get::<_, i64>(0)?))
    })?;
    let mut found = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    found.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    Ok(found.into_iter().map(|(_, number)| number).collect())
}

fn newest(connection: &Connection, places: &Places, tokens: &str) -> rusqlite::Result<Vec<i64>> {
    let query = format!("{} AND tokens : ({tokens})", places.fts());
    let mut statement = connection.prepare_cached("SELECT rowid FROM words WHERE words MATCH ?1 ORDER BY rowid DESC LIMIT ?2")?;
    statement.query_map((query, depth()), |row| row.get(0))?.collect()
}

/// By parts of words, three characters at least.
fn containing(connection: &Connection, places: &Places, parts: &str) -> rusqlite::Result<Vec<i64>> {
    let sql = format!(
        "SELECT entry.number FROM trigrams JOIN entry ON entry.number = trigrams.rowid
         WHERE trigrams MATCH ?1 AND {} ORDER BY trigrams.rowid DESC LIMIT {DEPTH}",
        places.sql(2)
    );
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_map(params_from_iter(std::iter::once(parts).chain(places.words())), |row| row.get(0))?.collect()
}

/// By looking at every entry: for one or two characters that no index knows.
fn scanned(connection: &Connection, places: &Places, part: &str) -> rusqlite::Result<Vec<i64>> {
    let sql = format!(
        "SELECT number FROM entry WHERE text LIKE ?1 ESCAPE '\\' AND {} ORDER BY number DESC LIMIT {DEPTH}",
        places.sql(2)
    );
    let pattern = like(part);
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_map(params_from_iter(std::iter::once(pattern.as_str()).chain(places.words())), |row| row.get(0))?.collect()
}

/// A pattern for LIKE that finds a text anywhere.
pub(super) fn like(part: &str) -> String {
    let escaped = part.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    format!("%{escaped}%")
}

/// Whether the index of words may not know a piece.
fn is_part(piece: &str, unknown: &[String]) -> bool {
    let terms = words::terms(piece);
    let is_plain = piece.chars().all(char::is_alphanumeric);
    !is_plain || terms.is_empty() || terms.iter().any(|term| unknown.contains(term))
}

fn any(terms: impl Iterator<Item = impl AsRef<str>>) -> String {
    terms.map(|term| quote(term.as_ref())).collect::<Vec<_>>().join(" OR ")
}

fn depth() -> i64 {
    i64::try_from(DEPTH).unwrap_or(i64::MAX)
}
