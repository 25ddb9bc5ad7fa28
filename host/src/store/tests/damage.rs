//! Files that are not what they were.

use super::*;

/// A closed store with two sessions, and their ids; made once.
fn pair() -> (Place, Vec<String>) {
    static MADE: std::sync::OnceLock<(Vec<u8>, Vec<String>)> = std::sync::OnceLock::new();
    let (bytes, ids) = MADE.get_or_init(|| {
        let (place, ids) = filled(2);
        (std::fs::read(place.path()).expect("read"), ids)
    });
    let place = Place::new();
    std::fs::write(place.path(), bytes).expect("written");
    (place, ids.clone())
}

/// A closed store with some sessions, and their ids.
fn filled(sessions: usize) -> (Place, Vec<String>) {
    let place = Place::new();
    let store = place.open();
    let mut ids = Vec::new();
    for index in 0..sessions {
        let session = store.create().expect("begins");
        let mut run = Run::new(format!("run-{index}"), format!("task {index} {}", "很长".repeat(500)), settings());
        drive(&session, &mut run, &[vec![call("1", "a__read"), call("2", "a__write")]], usize::MAX, &mut |_| {});
        ids.push(session.id().to_owned());
    }
    store.writer().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("checkpointed");
    (place, ids)
}

#[test]
fn a_damaged_store_is_reported_and_what_can_be_read_is_saved() {
    let (place, ids) = filled(20);
    let mut bytes = std::fs::read(place.path()).expect("read");
    let whole = place.open();
    assert!(Store::is_whole(&place.path()).expect("checked"));
    let expected: Vec<Run> = ids.iter().map(|id| whole.load_run(id).expect("loads").expect("has a run")).collect();
    drop(whole);
    // One page in eight, of all kinds; the first ones hold the schema.
    let pages = bytes.len() / 4096;
    for page in (12..pages).step_by(8) {
        bytes[page * 4096..(page + 1) * 4096].fill(0xa5);
    }
    std::fs::write(place.path(), &bytes).expect("written");
    assert!(!Store::is_whole(&place.path()).expect("checked"));

    let recovered = Store::recover(&place.path(), 17).expect("recovers");
    assert_eq!(std::fs::read(&recovered.damaged).expect("kept"), bytes);
    assert!(Store::is_whole(&place.path()).expect("checked"));
    let store = place.open();
    let same = ids.iter().zip(&expected).filter(
        |(id, run)| matches!(store.open_session(id).and_then(|session| session.load()), Ok(Some(found)) if found == **run),
    );
    let same = same.count();
    assert!((1..20).contains(&same), "{same} of 20 are whole");
    assert_eq!(recovered.damaged_tables.contains(&"message".to_owned()), same < 20, "{recovered:?}");
    for session in store.list(&ListQuery { limit: 100, ..ListQuery::default() }).expect("lists").sessions {
        store.export(&session.id, &mut Vec::new()).expect("exports");
        let complete = !recovered.incomplete.contains(&session.id);
        assert_eq!(complete, matches!(store.load_run(&session.id), Ok(Some(_))), "{}", session.id);
    }
}

#[test]
fn a_store_in_use_is_not_recovered() {
    let place = Place::new();
    let store = place.open();
    let session = store.create().expect("begins");
    assert!(matches!(Store::recover(&place.path(), 17), Err(StoreError::Locked { .. })));
    drop(session);
    Store::recover(&place.path(), 17).expect("recovers");
}

#[test]
fn a_session_whose_rows_are_missing_says_so() {
    for (sql, expected) in [
        ("DELETE FROM message WHERE seq = 1", "of 4 messages are there"),
        ("DELETE FROM checkpoint", "no checkpoint"),
        ("UPDATE checkpoint SET state = '{}'", "cannot be continued"),
        ("UPDATE checkpoint SET state = replace(state, '\"schema_version\":1', '\"schema_version\":9')", "cannot be continued"),
        ("UPDATE run SET id = 'other-' || id", "another run's"),
        ("UPDATE run SET settings = 'x'", "cannot be continued"),
        ("UPDATE message SET body = '[]'", "a record of session"),
        ("UPDATE checkpoint SET messages = 9223372036854775807", "of 9223372036854775807 messages"),
        ("UPDATE checkpoint SET messages = -1", "messages are there"),
    ] {
        let (place, ids) = pair();
        let store = place.open();
        store.writer().execute_batch(sql).expect("changed");
        let error = store.open_session(&ids[0]).expect("opens").load().expect_err(sql);
        assert!(error.to_string().contains(expected), "{sql}: {error}");
        assert!(error.hint().is_some());
        store.export(&ids[0], &mut Vec::new()).expect("is exported all the same");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_damage_to_the_file_makes_the_store_panic(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..200)) {
        let (place, ids) = pair();
        let mut bytes = std::fs::read(place.path()).expect("read");
        for (index, value) in flips {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        std::fs::write(place.path(), &bytes).expect("written");
        if let Ok(store) = Store::open(&place.path(), StoreOptions::default()) {
            let _ = store.list(&ListQuery::default());
            for id in &ids {
                let _ = store.show(id);
                let _ = store.export(id, &mut Vec::new());
                let _ = store.open_session(id).and_then(|session| {
                    let run = session.load()?;
                    run.map_or(Ok(()), |run| session.store_run(&run))
                });
            }
            let _ = store.delete(&ids[0]);
        }
        let _ = Store::is_whole(&place.path());
        let _ = Store::recover(&place.path(), 1);
    }
}
