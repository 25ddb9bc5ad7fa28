//! What a recall over 100 000 entries costs, beside a lookup by primary key in the same file format. Run it with
//! `cargo run --workspace --example memory_recall [ENTRIES]`.
//!
//! The arms are interleaved, and each is reported as a ratio to the lookup of the same round: times say as much about the machine.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use honeycomb_host::memory::{Memory as _, MemoryLimits, NewEntry, Origin, Place, Query, SqliteMemory};

const ROUNDS: usize = 41;
const SUBJECTS: [&str; 8] = ["The user", "Anna", "The project", "用户", "小明", "The team", "Bob", "项目"];
const VERBS: [&str; 8] = ["likes", "dislikes", "visited", "喜欢", "去过", "decided on", "works with", "负责"];
const OBJECTS: [&str; 10] = ["tea", "Paris", "the blue design", "北京", "上海", "Rust", "跑步", "the budget", "music", "计算器"];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let entries: usize = std::env::args().nth(1).map_or(Ok(100_000), |count| count.parse()).context("a number of entries")?;
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("memory.db");
    let limits = MemoryLimits { max_entries: u64::MAX, max_bytes: u64::MAX, ..MemoryLimits::default() };
    let memory = SqliteMemory::new(&path, limits);
    let started = Instant::now();
    for number in 0..entries {
        memory.save(NewEntry { place: Place::user(), text: text(number), keep: None, origin: Origin::default() }).await?;
    }
    let saving = started.elapsed();
    let usage = memory.usage().await?;
    let size = std::fs::metadata(&path)?.len();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{entries} entries in {saving:.1?} ({:.0?} each)", saving / u32::try_from(entries.max(1))?)?;
    writeln!(out, "{} bytes of text, {size} bytes of file: {:.1} to one", usage.bytes, size as f64 / usage.bytes.max(1) as f64)?;

    let raw = rusqlite::Connection::open(directory.path().join("raw.db"))?;
    raw.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE fact (id TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT; BEGIN")?;
    for number in 0..entries {
        raw.execute("INSERT INTO fact VALUES (?1, ?2)", (format!("{number:09}"), text(number)))?;
    }
    raw.execute_batch("COMMIT")?;

    let queries = [
        ("one rare word", "code7777"),
        ("two Chinese characters, rare", "第七"),
        ("a question, common and rare words", "What does the user think about code4242 and tea?"),
        ("common words only", "the user likes tea"),
        ("a common Chinese word", "北京"),
        ("part of a word", "ode777"),
        ("nothing there", "zebra"),
        ("one character in no index", "*"),
    ];
    writeln!(out, "\n{:<36}{:>12}{:>12}{:>10}", "recall, median of rounds", "recall", "lookup", "ratio")?;
    for (name, query) in queries {
        let (mut recalls, mut lookups, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let key = format!("{:09}", (round * 7919) % entries.max(1));
            let lookup = timed(|| {
                raw.prepare_cached("SELECT text FROM fact WHERE id = ?1")?.query_row([&key], |row| row.get::<_, String>(0))
            })?;
            let started = Instant::now();
            memory.recall(Query { text: query.to_owned(), places: vec![Place::user()], limit: 8 }).await?;
            let recall = started.elapsed();
            ratios.push(recall.as_secs_f64() / lookup.as_secs_f64());
            recalls.push(recall);
            lookups.push(lookup);
        }
        ratios.sort_by(f64::total_cmp);
        writeln!(out, "{name:<36}{:>12.1?}{:>12.1?}{:>10.0}", median(recalls), median(lookups), ratios[ROUNDS / 2])?;
    }
    Ok(())
}

fn text(number: usize) -> String {
    let pick = |words: &[&'static str], step: usize| words[(number / step) % words.len()];
    let special = if number.is_multiple_of(9_973) { " 第七" } else { "" };
    format!("{} {} {} (code{number}){special}", pick(&SUBJECTS, 1), pick(&VERBS, 8), pick(&OBJECTS, 64))
}

fn timed<T>(work: impl FnOnce() -> rusqlite::Result<T>) -> rusqlite::Result<Duration> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
