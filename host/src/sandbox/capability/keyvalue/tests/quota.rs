use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::sandbox::capability::keyvalue::database;

#[tokio::test]
async fn keys_and_values_together_stay_within_the_quota() {
    let store = memory();
    let notes = plugin("notes");
    let set = async |key: &str, bytes: usize, quota: u64| store.set(&notes, key.to_owned(), vec![7; bytes], quota).await;
    set("a", 9, 10).await.expect("exactly the quota");
    assert!(matches!(set("b", 0, 10).await, Err(OperationError::Quota { quota: 10, needed: 11 })));
    assert!(matches!(set("a", 10, 10).await, Err(OperationError::Quota { needed: 11, .. })));
    assert_eq!(store.get(&notes, "a".to_owned()).await.expect("get").map(|value| value.len()), Some(9), "the old value is kept");
    assert_eq!(keys(&store, &notes).await, ["a"]);
    set("a", 8, 10).await.expect("smaller");
    set("b", 0, 10).await.expect("there is room now");
    store.delete(&notes, "a".to_owned()).await.expect("deleted");
    store.delete(&notes, "never there".to_owned()).await.expect("no error");
    set("c", 8, 10).await.expect("what was deleted is given back");
    // A quota that was lowered: nothing grows, and what shrinks may.
    assert!(set("c", 8, 5).await.is_ok(), "the same size");
    assert!(matches!(set("c", 9, 5).await, Err(OperationError::Quota { .. })));
    set("c", 7, 5).await.expect("shrinks, though still above the quota");
    // Another plugin has its own.
    store.set(&plugin("other"), "a".to_owned(), vec![7; 9], 10).await.expect("its own quota");
}

#[tokio::test]
async fn quota_holds_for_every_way_to_write() {
    let store = memory();
    let notes = plugin("notes");
    assert!(matches!(store.increment(&notes, "n".to_owned(), 1000, 4).await, Err(OperationError::Quota { needed: 5, .. })));
    let swap = store.swap(&notes, "n".to_owned(), None, vec![0; 4], 4).await;
    assert!(matches!(swap, Err(OperationError::Quota { needed: 5, .. })));
    assert_eq!(keys(&store, &notes).await, [""; 0]);
    assert_eq!(store.increment(&notes, "n".to_owned(), 999, 4).await.expect("fits"), 999);
    assert!(matches!(store.increment(&notes, "n".to_owned(), 1, 4).await, Err(OperationError::Quota { .. })));
    assert_eq!(store.get(&notes, "n".to_owned()).await.expect("get"), Some(b"999".to_vec()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn quota_holds_with_many_writers() {
    let (_directory, store) = file();
    let notes = plugin("notes");
    let writers = (0..100).map(|index| {
        let (store, notes) = (store.clone(), Arc::clone(&notes));
        tokio::spawn(async move { store.set(&notes, format!("{index:02}"), vec![0; 98], 1000).await.is_ok() })
    });
    let written =
        futures_util::future::join_all(writers).await.into_iter().filter(|done| *done.as_ref().expect("no panic")).count();
    assert_eq!(written, 10);
    assert_eq!(keys(&store, &notes).await.len(), 10);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Against a map: the same answers, and never more than the quota.
    #[test]
    fn behaves_like_a_map_with_a_quota(steps in proptest::collection::vec((0..3u8, "[ab北]{1,3}", 0..12usize), 1..40)) {
        let mut connection = database::open(None).expect("memory");
        let mut model = BTreeMap::<String, Vec<u8>>::new();
        let used = |model: &BTreeMap<String, Vec<u8>>| model.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        for (step, key, size) in steps {
            match step {
                0 => {
                    let mut wanted = model.clone();
                    wanted.insert(key.clone(), vec![1; size]);
                    let fits = used(&wanted) <= 40;
                    prop_assert_eq!(database::set(&mut connection, "p", &key, &vec![1; size], 40).is_ok(), fits);
                    if fits {
                        model = wanted;
                    }
                }
                1 => {
                    database::delete(&mut connection, "p", &key).expect("deleted");
                    model.remove(&key);
                }
                _ => prop_assert_eq!(database::get(&mut connection, "p", &key).expect("get"), model.get(&key).cloned()),
            }
            let sum = "SELECT coalesce(sum(bytes), 0) FROM namespace";
            let bytes: i64 = connection.query_row(sum, [], |row| row.get(0)).expect("a sum");
            prop_assert_eq!(usize::try_from(bytes).expect("positive"), used(&model));
        }
        let mut listed = database::list(&mut connection, "p", None).expect("a page").keys;
        listed.sort();
        prop_assert_eq!(listed, model.into_keys().collect::<Vec<_>>());
    }
}
