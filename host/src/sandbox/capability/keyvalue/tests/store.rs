use super::super::database::{MAX_KEY, MAX_VALUE};
use super::*;

#[tokio::test]
async fn plugins_do_not_see_each_other() {
    let store = memory();
    let (a, b) = (plugin("a"), plugin("a-b"));
    store.set(&a, "b-key".to_owned(), b"1".to_vec(), QUOTA).await.expect("set");
    store.set(&b, "key".to_owned(), b"2".to_vec(), QUOTA).await.expect("set");
    assert_eq!(store.get(&b, "b-key".to_owned()).await.expect("get"), None);
    assert!(!store.exists(&a, "key".to_owned()).await.expect("exists"));
    store.delete(&a, "key".to_owned()).await.expect("deleted");
    assert_eq!(store.get(&b, "key".to_owned()).await.expect("get"), Some(b"2".to_vec()));
    assert_eq!((keys(&store, &a).await, keys(&store, &b).await), (vec!["b-key".to_owned()], vec!["key".to_owned()]));
}

#[tokio::test]
async fn keys_and_values_are_kept_as_they_are() {
    let store = memory();
    let notes = plugin("notes");
    let odd = ["a", "A", "á", "a\0b", "a\0c", "%", "_", "'; DROP TABLE entry; --", " ", "北京", "../../x", "\u{202e}"];
    for (index, key) in odd.into_iter().enumerate() {
        store.set(&notes, key.to_owned(), vec![0, 255, u8::try_from(index).expect("few")], QUOTA).await.expect(key);
    }
    for (index, key) in odd.into_iter().enumerate() {
        let value = store.get(&notes, key.to_owned()).await.expect(key);
        assert_eq!(value, Some(vec![0, 255, u8::try_from(index).expect("few")]), "{key:?}");
    }
    assert_eq!(keys(&store, &notes).await, odd);
    store.set(&notes, "a".to_owned(), Vec::new(), QUOTA).await.expect("an empty value is a value");
    assert_eq!(store.get(&notes, "a".to_owned()).await.expect("get"), Some(Vec::new()));
}

#[tokio::test]
async fn keys_and_values_have_a_largest_size() {
    let store = memory();
    let notes = plugin("notes");
    let longest = "k".repeat(MAX_KEY);
    store.set(&notes, longest.clone(), Vec::new(), QUOTA).await.expect("the longest key");
    for key in [String::new(), longest + "k"] {
        assert!(matches!(store.set(&notes, key.clone(), Vec::new(), QUOTA).await, Err(OperationError::Key)));
        assert!(matches!(store.get(&notes, key.clone()).await, Err(OperationError::Key)));
        assert!(matches!(store.exists(&notes, key.clone()).await, Err(OperationError::Key)));
        assert!(matches!(store.delete(&notes, key.clone()).await, Err(OperationError::Key)));
        assert!(matches!(store.increment(&notes, key.clone(), 1, QUOTA).await, Err(OperationError::Key)));
        assert!(matches!(store.swap(&notes, key, None, Vec::new(), QUOTA).await, Err(OperationError::Key)));
    }
    let large = store.set(&notes, "k".to_owned(), vec![0; MAX_VALUE + 1], u64::MAX).await;
    assert!(matches!(large, Err(OperationError::Value)));
}

#[tokio::test]
async fn pages_are_bounded_and_stable() {
    let store = memory();
    let notes = plugin("notes");
    for index in 0..600 {
        store.set(&notes, format!("key-{index:03}"), Vec::new(), QUOTA).await.expect("set");
    }
    let first = store.list(&notes, None).await.expect("a page");
    assert_eq!(first.keys.len(), 256);
    // What comes and goes between two pages neither hides nor repeats what stays.
    for index in (0..200).chain(250..260) {
        store.delete(&notes, format!("key-{index:03}")).await.expect("deleted");
    }
    store.set(&notes, "aaa".to_owned(), Vec::new(), QUOTA).await.expect("set");
    store.set(&notes, "key-599".to_owned(), vec![1], QUOTA).await.expect("set again");
    let second = store.list(&notes, first.next).await.expect("a page");
    let third = store.list(&notes, second.next).await.expect("a page");
    assert_eq!(third.next, None);
    let rest: Vec<String> = second.keys.into_iter().chain(third.keys).collect();
    let expected: Vec<String> = (260..600).map(|index| format!("key-{index:03}")).chain(["aaa".to_owned()]).collect();
    assert_eq!(rest, expected);
    for cursor in [u64::MAX, u64::MAX / 2, 1 << 62] {
        assert_eq!(store.list(&notes, Some(cursor)).await.expect("past the end").keys, [""; 0]);
    }
}

#[tokio::test]
async fn exactly_one_page_has_no_next() {
    let store = memory();
    let notes = plugin("notes");
    for index in 0..256 {
        store.set(&notes, index.to_string(), Vec::new(), QUOTA).await.expect("set");
    }
    assert_eq!(store.list(&notes, None).await.expect("a page").next, None);
}

#[tokio::test]
async fn increments_are_exact_or_refused() {
    let store = memory();
    let notes = plugin("notes");
    let add = async |delta| store.increment(&notes, "n".to_owned(), delta, QUOTA).await;
    assert_eq!(add(i64::MAX).await.expect("absent is 0"), i64::MAX);
    assert!(matches!(add(1).await, Err(OperationError::Overflow)));
    assert_eq!(add(i64::MIN).await.expect("negative"), -1);
    assert!(matches!(add(i64::MIN).await, Err(OperationError::Overflow)));
    assert_eq!(store.get(&notes, "n".to_owned()).await.expect("get"), Some(b"-1".to_vec()));
    for text in ["", "x", "1.5", " 1", "9223372036854775808", "\u{ff11}"] {
        store.set(&notes, "n".to_owned(), text.as_bytes().to_vec(), QUOTA).await.expect("set");
        assert!(matches!(add(1).await, Err(OperationError::NotANumber)), "{text:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn operations_of_many_tasks_and_two_processes_worth_of_connections_add_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("kv.sqlite");
    let stores = [(); 2].map(|()| KeyValueStore::open(Some(&path)).expect("shared"));
    let tasks = (0..8).map(|task| {
        let store = stores[task % 2].clone();
        tokio::spawn(async move {
            let notes = plugin("notes");
            for _ in 0..50 {
                store.increment(&notes, "n".to_owned(), 1, QUOTA).await.expect("counted");
                loop {
                    let seen = store.get(&notes, "cas".to_owned()).await.expect("get");
                    let next = seen.as_deref().map_or(0, |bytes| bytes.len()) + 1;
                    if store.swap(&notes, "cas".to_owned(), seen, vec![0; next], QUOTA).await.expect("swap").is_ok() {
                        break;
                    }
                }
            }
        })
    });
    for task in futures_util::future::join_all(tasks).await {
        task.expect("no panic");
    }
    let notes = plugin("notes");
    assert_eq!(stores[0].get(&notes, "n".to_owned()).await.expect("get"), Some(b"400".to_vec()));
    assert_eq!(stores[1].get(&notes, "cas".to_owned()).await.expect("get").map(|value| value.len()), Some(400));
}

#[tokio::test]
async fn a_call_that_ends_early_does_not_block_the_others() {
    let (_directory, store) = file();
    let notes = plugin("notes");
    for _ in 0..50 {
        let set = store.set(&notes, "k".to_owned(), vec![0; 1000], QUOTA);
        let _ = tokio::time::timeout(std::time::Duration::ZERO, set).await;
    }
    store.set(&notes, "k".to_owned(), vec![1], QUOTA).await.expect("its turn comes");
    assert_eq!(store.get(&notes, "k".to_owned()).await.expect("get"), Some(vec![1]));
}

#[test]
fn a_new_file_can_be_opened_by_many_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("kv.sqlite");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| KeyValueStore::open(Some(&path)).map(drop).expect("one makes it, all open it"));
        }
    });
}

#[tokio::test]
#[cfg(unix)]
async fn the_file_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let (directory, store) = file();
    store.set(&plugin("notes"), "k".to_owned(), vec![1], QUOTA).await.expect("set");
    for name in ["kv.sqlite", "kv.sqlite-wal"] {
        let mode = std::fs::metadata(directory.path().join(name)).expect(name).permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    drop(store);
}

#[test]
fn what_is_not_a_store_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let open = |name: &str| KeyValueStore::open(Some(&path(name))).map(drop).expect_err(name);
    std::fs::write(path("text"), "not a database, but long enough to be looked at ".repeat(30)).expect("written");
    assert!(matches!(open("text"), OpenError::Foreign { .. }));
    rusqlite::Connection::open(path("other")).and_then(|other| other.execute_batch("CREATE TABLE t (x)")).expect("made");
    let before = std::fs::read(path("other")).expect("read");
    assert!(matches!(open("other"), OpenError::Foreign { .. }));
    assert_eq!(std::fs::read(path("other")).expect("read"), before);
    drop(KeyValueStore::open(Some(&path("newer"))).expect("made"));
    rusqlite::Connection::open(path("newer")).and_then(|newer| newer.execute_batch("PRAGMA user_version = 99")).expect("changed");
    assert!(matches!(open("newer"), OpenError::Newer { found: 99, known: 1, .. }));
    assert!(matches!(open("missing/kv"), OpenError::Create { .. }));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(path("newer"), path("link")).expect("linked");
        assert!(matches!(open("link"), OpenError::Database { .. }), "a link may lead anywhere");
    }
    for error in [open("text"), open("newer"), open("missing/kv")] {
        assert!(error.to_string().contains("\nhint: "), "{error}");
    }
}
