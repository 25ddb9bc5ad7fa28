use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::provider::embeddings::{Embedder, EmbeddingError};
use crate::secret::Redactor;

const START: u64 = 1_796_000_000_000;
const DAY: u64 = 24 * 3_600_000;

/// A memory in a directory of its own, with a clock that is set by hand.
struct Fixture {
    directory: tempfile::TempDir,
    clock: Arc<AtomicU64>,
    limits: MemoryLimits,
}

impl Fixture {
    fn new() -> Self {
        Self::with_limits(MemoryLimits::default())
    }

    fn with_limits(limits: MemoryLimits) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        Self { directory, clock: Arc::new(AtomicU64::new(START)), limits }
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("state/memory.db")
    }

    fn open(&self) -> SqliteMemory {
        let clock = Arc::clone(&self.clock);
        SqliteMemory::new(self.path(), self.limits.clone()).with_clock(move || clock.load(Ordering::Relaxed))
    }

    fn pass(&self, ms: u64) {
        self.clock.fetch_add(ms, Ordering::Relaxed);
    }
}

fn entry(place: Place, text: &str) -> NewEntry {
    NewEntry { place, text: text.to_owned(), keep: None, origin: Origin::default() }
}

async fn save(memory: &SqliteMemory, text: &str) -> Saved {
    memory.save(entry(Place::user(), text)).await.expect(text)
}

async fn recall_in(memory: &SqliteMemory, places: Vec<Place>, query: &str) -> Vec<String> {
    let query = Query { text: query.to_owned(), places, limit: 10 };
    memory.recall(query).await.expect("any text is a query").entries.into_iter().map(|entry| entry.text).collect()
}

async fn recall(memory: &SqliteMemory, query: &str) -> Vec<String> {
    recall_in(memory, vec![Place::user()], query).await
}

#[tokio::test]
async fn finds_english_and_chinese_by_words_questions_and_parts() {
    let fixture = Fixture::new();
    let memory = fixture.open();
    for text in [
        "The user's favourite city is Paris.",
        "用户住在北京，喜欢喝茶。",
        "用户的猫叫小白",
        "Deploys run from deploy_prod.sh every Friday",
        "Prefers C++ over Go",
        "她最喜欢的食物是🍜",
        "The café on Main Street closes at 5",
    ] {
        save(&memory, text).await;
    }
    for (query, expected) in [
        ("favourite city", "Paris"),
        ("Which cities does the user like?", "Paris"),
        ("paris", "Paris"),
        ("PARIS!", "Paris"),
        ("北京", "北京"),
        ("茶", "喝茶"),
        ("猫", "小白"),
        ("用户住在哪里？", "住在北京"),
        ("deploy_prod.sh", "deploy_prod"),
        ("loy_pr", "deploy_prod"),
        ("frid", "Friday"),
        ("C++", "C++"),
        ("go", "Go"),
        ("++", "C++"),
        ("🍜", "🍜"),
        ("cafe", "café"),
        ("5", "closes at 5"),
    ] {
        let found = recall(&memory, query).await;
        assert!(found.first().is_some_and(|first| first.contains(expected)), "{query}: {found:?}");
    }
    assert_eq!(recall(&memory, "zebra").await, Vec::<String>::new());
    assert_eq!(recall(&memory, " \n").await, Vec::<String>::new());
}

#[tokio::test]
async fn every_one_or_two_characters_of_a_text_find_it() {
    let memory = Fixture::new();
    let memory = memory.open();
    let text = "我在北京 use C# to ping x_y 100%";
    save(&memory, text).await;
    let characters: Vec<char> = text.chars().collect();
    for length in [1, 2] {
        for part in characters.windows(length) {
            let part: String = part.iter().collect();
            if !part.trim().is_empty() {
                assert_eq!(recall(&memory, &part).await, [text], "{part:?}");
            }
        }
    }
}

#[tokio::test]
async fn better_comes_before_newer_and_newer_before_older() {
    let fixture = Fixture::new();
    let memory = fixture.open();
    save(&memory, "The meeting about the budget is on Monday at ten").await;
    fixture.pass(400 * DAY);
    save(&memory, "A meeting was held").await;
    save(&memory, "Lunch is at noon").await;
    let found = recall(&memory, "budget meeting Monday").await;
    assert!(found[0].contains("budget"), "{found:?}");

    save(&memory, "The password policy is A").await;
    fixture.pass(60 * DAY);
    save(&memory, "The password policy is B").await;
    assert_eq!(recall(&memory, "password policy").await, ["The password policy is B", "The password policy is A"]);
}

#[tokio::test]
async fn recall_looks_only_where_it_is_told_to() {
    let fixture = Fixture::new();
    let memory = fixture.open();
    let places = [
        Place::user(),
        Place::project("/home/a/work"),
        Place::project("user"),
        Place::session("s1"),
        Place::session("/home/a/work"),
        Place::session("place : (\"user\")"),
    ];
    for (index, place) in places.iter().enumerate() {
        memory.save(entry(place.clone(), &format!("secret plan number{index} 秘密 ++"))).await.expect("saved");
    }
    for (index, place) in places.iter().enumerate() {
        for query in ["secret plan", "秘密", "密", "umber", "++", "user", "place"] {
            let found = recall_in(&memory, vec![place.clone()], query).await;
            let own = format!("secret plan number{index} 秘密 ++");
            let expected = if matches!(query, "user" | "place") { Vec::new() } else { vec![own] };
            assert_eq!(found, expected, "{place:?} {query}");
        }
    }
    assert_eq!(recall_in(&memory, vec![places[0].clone(), places[3].clone()], "plan").await.len(), 2);
    assert_eq!(recall_in(&memory, Vec::new(), "plan").await, Vec::<String>::new());
}

#[tokio::test]
async fn the_same_text_is_kept_once_with_its_first_origin() {
    let fixture = Fixture::new();
    let memory = fixture.open();
    let from = |run: &str, tools: &[&str]| Origin {
        run_id: Some(run.to_owned()),
        session_id: None,
        tools_read: tools.iter().map(|tool| (*tool).to_owned()).collect(),
    };
    let first =
        memory.save(NewEntry { origin: from("r1", &["fetch__get"]), ..entry(Place::user(), "tea") }).await.expect("saved");
    fixture.pass(DAY);
    let second = memory.save(NewEntry { origin: from("r2", &[]), ..entry(Place::user(), " tea\u{200b} ") }).await.expect("saved");
    assert_eq!((first.known, second.known, &first.id), (false, true, &second.id));
    let listed = memory.list(Filter::default(), 10).await.expect("listed");
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].created_at, listed[0].updated_at), (START, START + DAY));
    assert_eq!(listed[0].origin, from("r1", &["fetch__get"]));
}

#[tokio::test]
async fn every_limit_holds_and_drops_nothing() {
    let limits =
        MemoryLimits { max_entry_bytes: 10, max_entries: 2, max_bytes: 25, max_results: 2, max_result_bytes: 15, keep: None };
    let fixture = Fixture::with_limits(limits);
    let memory = fixture.open();
    let project = Place::project("p");
    let fails = async |place: &Place, text: &str| memory.save(entry(place.clone(), text)).await.expect_err(text);

    assert!(matches!(fails(&Place::user(), "tea 4567890").await, MemoryError::TooLong { bytes: 11, limit: 10 }));
    assert!(matches!(fails(&Place::user(), " \u{200b}\n").await, MemoryError::Empty));
    save(&memory, "tea 456789").await;
    save(&memory, "tea b").await;
    let error = fails(&Place::user(), "tea c").await;
    assert!(
        matches!(error, MemoryError::TooMany { scope: Scope::User, limit: 2 }) && error.hint().contains("max_entries"),
        "{error}"
    );
    // What is there may be saved again.
    assert!(save(&memory, "tea b").await.known);
    memory.save(entry(project.clone(), "tea 456789")).await.expect("another place");
    let error = fails(&project, "t").await;
    assert!(matches!(error, MemoryError::Full { used: 25, limit: 25 }) && error.hint().contains("max_bytes"), "{error}");
    assert_eq!(memory.usage().await.expect("read"), Usage { entries: 3, bytes: 25 });

    let query = |limit| Query { text: "tea".to_owned(), places: vec![Place::user(), project.clone()], limit };
    let few = memory.recall(query(1)).await.expect("found");
    assert_eq!((few.entries.len(), few.left_out), (1, 2));
    let many = memory.recall(query(10)).await.expect("found");
    assert!(many.entries.len() <= 2 && many.entries.iter().map(|entry| entry.text.len()).sum::<usize>() <= 15, "{many:?}");
    assert_eq!(many.entries.len() + many.left_out, 3);

    assert_eq!(memory.forget(Filter { place: Some(Place::user()), ..Filter::default() }).await.expect("forgotten"), 2);
    save(&memory, "tea c").await;
}

#[tokio::test]
async fn what_has_expired_is_gone() {
    let limits = MemoryLimits { keep: Some(Duration::from_millis(10 * DAY)), ..MemoryLimits::default() };
    let fixture = Fixture::with_limits(limits);
    let memory = fixture.open();
    let short = NewEntry { keep: Some(Duration::from_millis(DAY)), ..entry(Place::user(), "tea today") };
    assert_eq!(memory.save(short).await.expect("saved").expires_at, Some(START + DAY));
    assert_eq!(save(&memory, "tea always").await.expires_at, Some(START + 10 * DAY));
    fixture.pass(DAY - 1);
    assert_eq!(recall(&memory, "tea").await.len(), 2);
    fixture.pass(1);
    assert_eq!(recall(&memory, "tea").await, ["tea always"]);
    let rows = |path: &Path| {
        let connection = rusqlite::Connection::open(path).expect("opened");
        connection.query_row("SELECT count(*) FROM entry", [], |row| row.get::<_, i64>(0)).expect("counted")
    };
    assert_eq!(rows(&fixture.path()), 1, "recall removes it from the file");
    // Saving again keeps it for longer.
    save(&memory, "tea always").await;
    fixture.pass(10 * DAY - 1);
    assert_eq!(recall(&memory, "tea").await, ["tea always"]);
    fixture.pass(1);
    drop(memory);
    let reopened = fixture.open();
    assert_eq!(reopened.usage().await.expect("read"), Usage { entries: 0, bytes: 0 });
    assert_eq!(rows(&fixture.path()), 0);
}

#[tokio::test]
async fn what_is_forgotten_is_not_in_the_file() {
    let fixture = Fixture::new();
    let memory = fixture.open();
    for index in 0..50 {
        save(&memory, &format!("filler {index}")).await;
    }
    save(&memory, "the xylophone is under the bed 床底下").await;
    let holds = |what: &str| {
        let directory = fixture.path().parent().expect("a directory").to_owned();
        let files = std::fs::read_dir(directory).expect("read").flatten();
        files
            .map(|file| std::fs::read(file.path()).expect("read"))
            .any(|bytes| bytes.windows(what.len()).any(|w| w == what.as_bytes()))
    };
    assert!(holds("xylophone"));
    for filter in [
        Filter { containing: Some("no%such".to_owned()), ..Filter::default() },
        Filter { id: Some("x".to_owned()), ..Filter::default() },
        Filter { scope: Some(Scope::Session), ..Filter::default() },
        Filter { place: Some(Place::project("user")), ..Filter::default() },
    ] {
        assert_eq!(memory.forget(filter).await.expect("forgotten"), 0);
    }
    assert_eq!(memory.forget(Filter { containing: Some("XYLO".to_owned()), ..Filter::default() }).await.expect("forgotten"), 1);
    assert!(!holds("xylophone") && !holds("床底下") && holds("filler"));
    assert_eq!(recall(&memory, "xylophone").await, Vec::<String>::new());
}

#[tokio::test]
async fn secrets_are_removed_before_anything_is_kept() {
    let fixture = Fixture::new();
    let memory = fixture.open().with_redactors(vec![Redactor::new(["hunter2-hunter2"]), Redactor::new(["sk-other-key"])]);
    let saved = save(&memory, "The token is hunter2-hunter2, the key sk-other-key").await;
    assert!(saved.redacted);
    assert_eq!(recall(&memory, "token").await, ["The token is [secret], the key [secret]"]);
    // Searching for a secret must not say whether it is there.
    assert_eq!(recall(&memory, "hunter2-hunter2").await.len(), recall(&memory, "[secret]").await.len());
}

#[tokio::test]
async fn the_file_is_private_and_foreign_ones_are_left_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = Fixture::new();
    save(&fixture.open(), "tea").await;
    let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&fixture.path()), mode(fixture.path().parent().expect("a directory"))), (0o600, 0o700));

    let at = |name: &str| fixture.directory.path().join(name);
    std::fs::write(at("text"), "not a database, but long enough to look at. ".repeat(50)).expect("written");
    rusqlite::Connection::open(at("other")).and_then(|other| other.execute_batch("CREATE TABLE t (x)")).expect("made");
    std::fs::copy(fixture.path(), at("newer")).expect("copied");
    rusqlite::Connection::open(at("newer")).and_then(|newer| newer.execute_batch("PRAGMA user_version = 99")).expect("changed");
    for (name, expected) in [("text", "not a memory"), ("other", "not a memory"), ("newer", "version 99")] {
        let before = std::fs::read(at(name)).expect("read");
        let error = SqliteMemory::new(at(name), MemoryLimits::default()).usage().await.expect_err(name);
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(std::fs::read(at(name)).expect("read"), before, "{name}");
    }
}

#[tokio::test]
async fn two_programs_share_a_file() {
    let fixture = Fixture::new();
    let (one, other) = (fixture.open(), fixture.open());
    save(&one, "北京 one").await;
    save(&other, "北京 other").await;
    assert_eq!(recall(&one, "北京").await.len(), 2);
    assert_eq!(recall(&other, "北京").await.len(), 2);
}

/// Knows two meanings, and can be broken.
#[derive(Default)]
struct Meanings {
    broken: AtomicBool,
    texts: AtomicUsize,
}

impl Embedder for Meanings {
    fn model(&self) -> &str {
        "meanings"
    }

    fn embed<'a>(&'a self, texts: &'a [String]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, EmbeddingError>> {
        let answer = if self.broken.load(Ordering::Relaxed) {
            Err(EmbeddingError::Unreachable { origin: "http://127.0.0.1:1".to_owned(), reason: "refused".to_owned() })
        } else {
            self.texts.fetch_add(texts.len(), Ordering::Relaxed);
            let drink = |text: &String| ["tea", "茶", "beverage"].iter().any(|word| text.contains(word));
            Ok(texts.iter().map(|text| if drink(text) { vec![1.0, 0.1] } else { vec![-0.1, 1.0] }).collect())
        };
        Box::pin(std::future::ready(answer))
    }
}

#[tokio::test]
async fn meaning_finds_what_words_do_not_and_both_count() {
    let fixture = Fixture::new();
    let meanings = Arc::new(Meanings::default());
    let memory = fixture.open().with_embedder(meanings.clone());
    for text in ["Likes tea", "Lives in Paris", "喜欢喝茶", "The word beverage stands here, with tea"] {
        assert_eq!(save(&memory, text).await.note, None);
    }
    let found = recall(&memory, "beverage").await;
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].contains("word beverage"), "in both lists: {found:?}");

    meanings.broken.store(true, Ordering::Relaxed);
    let query = Query { text: "beverage".to_owned(), places: vec![Place::user()], limit: 10 };
    let by_words = memory.recall(query).await.expect("found");
    assert_eq!(by_words.entries.len(), 1);
    assert!(by_words.note.is_some_and(|note| note.contains("words only") && note.contains("refused")));
    let saved = save(&memory, "Drinks green tea").await;
    assert!(saved.note.is_some_and(|note| note.contains("words only")));

    // Once the endpoint is back, the next save makes up for it.
    meanings.broken.store(false, Ordering::Relaxed);
    save(&memory, "Rides a bike").await;
    assert_eq!(recall(&memory, "beverage").await.len(), 4);
    assert_eq!(memory.forget(Filter::default()).await.expect("forgotten"), 6);
    let vectors = rusqlite::Connection::open(fixture.path()).expect("opened");
    let left: i64 = vectors.query_row("SELECT count(*) FROM vector", [], |row| row.get(0)).expect("counted");
    assert_eq!(left, 0);
}

#[test]
fn any_text_is_a_safe_query() {
    let fixture = Fixture::new();
    let memory = fixture.open();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        save(&memory, "tea").await;
        memory.save(entry(Place::session("x"), "elsewhere NEAR AND OR NOT 北京")).await.expect("saved");
    });
    let syntax = prop::sample::select(vec![
        "\"",
        "'",
        "*",
        "(",
        ")",
        "^",
        ":",
        "-",
        "+",
        "{",
        "}",
        " AND ",
        " OR ",
        " NOT ",
        "NEAR(",
        "place:",
        "tokens : ",
        "\0",
        "%",
        "_",
        "\\",
        "北京",
        "tea",
        ";--",
        "\u{301}",
        "🍜",
        " ",
    ]);
    let query = prop_oneof![any::<String>(), prop::collection::vec(syntax, 0..12).prop_map(|parts| parts.concat())];
    proptest!(ProptestConfig::with_cases(200), |(query in query)| {
        let found = runtime.block_on(recall(&memory, &query));
        prop_assert!(found.iter().all(|text| text == "tea"), "{query:?}: {found:?}");
    });
    // The same text can be saved, and then be found.
    let text = any::<String>().prop_filter("not blank", |text| !crate::text::clean(text, usize::MAX).trim().is_empty());
    proptest!(ProptestConfig::with_cases(50), |(text in text)| {
        let text: String = text.chars().take(200).collect();
        if let Ok(saved) = runtime.block_on(memory.save(entry(Place::project("p"), &text))) {
            let whole = runtime.block_on(memory.list(Filter { id: Some(saved.id), ..Filter::default() }, 1)).expect("listed");
            let found = runtime.block_on(recall_in(&memory, vec![Place::project("p")], &whole[0].text));
            prop_assert!(!found.is_empty(), "{text:?}");
        }
    });
}
