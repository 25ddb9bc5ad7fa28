//! What a session holds, and what it does not.

use super::*;
use crate::message::{Message, Role};

fn finished(session: &Session, id: &str, task: &str) -> Run {
    let mut run = Run::new(id, task, settings());
    drive(session, &mut run, &[vec![call("1", "a__read")]], usize::MAX, &mut |_| {});
    run
}

#[test]
fn a_follow_up_adds_to_the_conversation_and_repeats_nothing() {
    let place = Place::new();
    let store = place.open();
    let session = store.create().expect("begins");
    let first = finished(&session, "first", "北京天气怎么样？\n详细一点");
    let id = session.id().to_owned();
    drop(session);

    let session = store.open_session(&id[..5]).expect("opens");
    let earlier = session.load().expect("loads").expect("has a run");
    assert_eq!(json_of(&earlier), json_of(&first));
    let mut next = earlier.follow_up("next", "适合跑步吗？", settings());
    drive(&session, &mut next, &[], usize::MAX, &mut |_| {});
    let detail = store.show(&id).expect("shows");
    assert_eq!(detail.session.title, "北京天气怎么样？");
    assert_eq!((detail.session.runs, detail.session.messages), (2, next.messages().len() as u64));
    assert_eq!(detail.conversation, next.messages());
    assert_eq!(session.load().expect("loads").as_ref().map(json_of), Some(json_of(&next)));
}

#[test]
fn another_conversation_in_a_session_stands_beside_the_first() {
    let place = Place::new();
    let store = place.open();
    let session = store.create().expect("begins");
    let first = finished(&session, "first", "one");
    let second = finished(&session, "second", "two");
    let detail = store.show(session.id()).expect("shows");
    assert_eq!(detail.session.messages as usize, first.messages().len() + second.messages().len());
    assert_eq!(session.load().expect("loads").as_ref().map(json_of), Some(json_of(&second)));
}

#[test]
fn a_step_writes_what_it_added_however_long_the_conversation_is() {
    let place = Place::new();
    let session = place.open().create().expect("begins");
    let history = (0..1000).map(|index| Message::user(format!("message {index}"))).collect();
    let mut run = Run::new("run", "task", settings()).with_history(history);
    let mut sizes = Vec::new();
    let mut seq = 0;
    super::store(&session, &mut run, &mut seq);
    for index in 0..5 {
        let Step::CallModel(_) = run.next_step(0, &tools()) else { panic!("the model is next") };
        run.on_model(Ok(turn(vec![call(&index.to_string(), "a__nope")])), 0);
        let (checkpoint, progress) = session.prepare(&run).expect("prepares");
        assert_eq!(checkpoint.new_messages.len(), 1);
        sizes.push(checkpoint.state.len());
        let saved = save::save(&mut session.store().writer(), &checkpoint, progress);
        session.settle(checkpoint, saved).expect("stored");
        let Step::CheckCalls(calls) = run.next_step(0, &tools()) else { panic!("calls are next") };
        let checked = |call: &ToolCall| CheckedCall { call_id: call.id.clone(), arguments: None, check: Check::Ready };
        run.on_checks(calls.iter().map(checked).collect(), 0);
        super::store(&session, &mut run, &mut seq);
        if run.result().is_some() {
            break;
        }
    }
    assert!(sizes.iter().all(|size| *size < 4_000), "{sizes:?}");
}

#[test]
fn no_secret_is_in_the_file() {
    let place = Place::new();
    let redactors = vec![Redactor::new(["hunter2-令牌"]), Redactor::new(["sk-12345678"])];
    let store = Store::open(&place.path(), StoreOptions { redactors, ..StoreOptions::default() }).expect("opens");
    let session = store.create().expect("begins");
    let mut settings = settings();
    settings.system = "never say sk-12345678".into();
    let mut run = Run::new("run", "my key is hunter2-令牌", settings);
    let secret =
        ToolCall { id: "1".into(), provider_id: None, name: "a__write".into(), arguments: r#"{"key":"sk-12345678"}"#.into() };
    let thought = crate::message::Reasoning { text: "hunter2-令牌?".into(), raw: Some(json!({"signature": "sk-12345678"})) };
    let parts = vec![Part::Reasoning(thought), Part::text("sk-12345678"), Part::ToolCall(secret)];
    let mut dirty = Vec::new();
    drive(&session, &mut run, &[parts, vec![Part::text("it is hunter2-令牌")]], usize::MAX, &mut |_| {
        for more in ["", "-wal"] {
            dirty.extend(std::fs::read(database::beside(&place.path(), more)).expect("read"));
        }
    });
    for secret in ["hunter2", "sk-12345678"] {
        assert!(!dirty.windows(secret.len()).any(|window| window == secret.as_bytes()), "{secret}");
    }
    let restored = session.load().expect("loads").expect("has a run");
    assert_eq!(restored.messages()[0].text(), "my key is [secret]");
    assert_eq!(restored.messages().len(), run.messages().len());
}

#[test]
fn what_a_person_allowed_is_asked_again() {
    let place = Place::new();
    let store = place.open();
    let session = store.create().expect("begins");
    for (started, tool) in [(false, "a__write"), (true, "a__read")] {
        let mut run = Run::new(format!("run-{started}"), "task", settings());
        let Step::CallModel(_) = run.next_step(0, &tools()) else { panic!("the model is next") };
        run.on_model(Ok(turn(vec![call("1", tool)])), 0);
        let Step::CheckCalls(_) = run.next_step(0, &tools()) else { panic!("calls are next") };
        let check = || CheckedCall { call_id: "1".into(), arguments: None, check: Check::Ask(Box::new(question())) };
        run.on_checks(vec![check()], 0);
        let Step::AskApproval(_) = run.next_step(0, &tools()) else { panic!("a person is next") };
        run.on_approval("1", Approval::ForRun, false, 0);
        if started {
            run.on_started(&["1".into()], 0);
        }
        let mut seq = 0;
        super::store(&session, &mut run, &mut seq);
        let mut run = session.load().expect("loads").expect("has a run");
        let Step::CheckCalls(_) = run.next_step(0, &tools()) else { panic!("the policy is asked again") };
        run.on_checks(vec![check()], 0);
        let Step::AskApproval(_) = run.next_step(0, &tools()) else { panic!("and the person") };
    }
    let approvals = store.show(session.id()).expect("shows").approvals;
    assert_eq!(approvals.iter().map(|record| record.answer.as_deref()).collect::<Vec<_>>(), [Some("for_run"); 2]);
}

#[test]
fn workers_are_sessions_of_their_own_below_their_parents() {
    let place = Place::new();
    let store = place.open();
    let session = store.create().expect("begins");
    let mut parent = Run::new("parent", "the whole", settings());
    let mut seq = 0;
    super::store(&session, &mut parent, &mut seq);
    let mut worker = Run::new("worker", "a part: 北京", settings()).with_parent("parent");
    drive(&session, &mut worker, &[vec![call("1", "a__read")]], usize::MAX, &mut |_| {});
    let mut below = Run::new("below", "a part of it", settings()).with_parent("worker");
    drive(&session, &mut below, &[], usize::MAX, &mut |_| {});
    super::store(&session, &mut parent, &mut seq);

    let mine = store.list(&ListQuery::default()).expect("lists").sessions;
    assert_eq!(mine.iter().map(|session| session.title.as_str()).collect::<Vec<_>>(), ["the whole"]);
    assert_eq!((mine[0].messages, mine[0].status.as_str()), (1, "running"));
    let workers = store.show(session.id()).expect("shows").workers;
    assert_eq!((workers.len(), workers[0].title.as_str(), workers[0].messages), (1, "a part: 北京", 4));
    let query = ListQuery { parent: Some(workers[0].id.clone()), ..ListQuery::default() };
    let below = store.list(&query).expect("lists").sessions;
    assert_eq!((below.len(), below[0].parent_id.as_ref()), (1, Some(&workers[0].id)));
    assert!(matches!(store.open_session(&below[0].id), Err(StoreError::Locked { .. })), "it is part of what is in use");
    let id = session.id().to_owned();
    drop(session);
    let taken_up = store.open_session(&workers[0].id).expect("opens");
    assert_eq!(taken_up.load().expect("loads").map(|run| run.id().to_owned()).as_deref(), Some("worker"));
    let next = taken_up.load().expect("loads").expect("has a run").follow_up("worker-2", "and more", settings());
    taken_up.store_run(&next).expect("stores");
    assert_eq!(store.show(&workers[0].id).expect("shows").session.runs, 2, "it stays in its own session");
    drop(taken_up);
    store.delete(&id).expect("deletes");
    assert!(store.find(&workers[0].id).is_err(), "workers go with their parent");
}

#[test]
fn lists_the_newest_first_page_by_page() {
    let place = Place::new();
    let clock = Arc::new(Steps(std::sync::atomic::AtomicU64::new(1_796_000_000_000)));
    let store = Store::open(&place.path(), StoreOptions { clock, ..StoreOptions::default() }).expect("opens");
    for index in 0..25 {
        let session = store.create().expect("begins");
        session.store_run(&Run::new(format!("run-{index}"), format!("task {index}"), settings())).expect("stores");
    }
    let (mut titles, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(&ListQuery { limit: 10, after, parent: None }).expect("lists");
        titles.extend(page.sessions.into_iter().map(|session| session.title));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let expected: Vec<String> = (0..25).rev().map(|index| format!("task {index}")).collect();
    assert_eq!(titles, expected);
}

/// A clock that goes on with each look.
struct Steps(std::sync::atomic::AtomicU64);

impl Clock for Steps {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst)
    }
}

#[test]
fn an_id_is_found_by_its_beginning_if_that_is_enough() {
    let place = Place::new();
    let store = place.open();
    for index in 0..40 {
        let session = store.create().expect("begins");
        session.store_run(&Run::new(format!("run-{index}"), "task", settings())).expect("stores");
    }
    let sessions = store.list(&ListQuery { limit: 40, ..ListQuery::default() }).expect("lists").sessions;
    for session in &sessions {
        assert_eq!(store.find(&session.id).expect("found"), session.id);
        assert_eq!(store.find(&session.id[..10].to_uppercase()).expect("found"), session.id);
    }
    // Forty sessions, sixteen digits: two begin alike.
    let ambiguous =
        "0123456789abcdef".chars().filter(|c| matches!(store.find(&c.to_string()), Err(StoreError::Ambiguous { .. })));
    assert!(ambiguous.count() > 0);
    for unknown in ["", "zz", "%", "a' OR 1=1 --", "北京", "ffffffffffffff"] {
        assert!(matches!(store.find(unknown), Err(StoreError::Unknown { .. })), "{unknown}");
    }
}

#[test]
fn what_is_deleted_is_gone_from_the_file() {
    let place = Place::new();
    let store = place.open();
    let mut ids = Vec::new();
    for index in 0..3 {
        let session = store.create().expect("begins");
        finished(&session, &format!("run-{index}"), &format!("the secret plan number {index}"));
        ids.push(session.id().to_owned());
    }
    let busy = store.open_session(&ids[1]).expect("opens");
    assert!(matches!(store.delete(&ids[1]), Err(StoreError::Locked { .. })));
    drop(busy);
    store.delete(&ids[1]).expect("deletes");
    assert!(matches!(store.show(&ids[1]), Err(StoreError::Unknown { .. })));
    let mut bytes = std::fs::read(place.path()).expect("read");
    bytes.extend(std::fs::read(database::beside(&place.path(), "-wal")).expect("read"));
    let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(!holds("plan number 1") && holds("plan number 0") && holds("plan number 2"));
}

#[test]
fn an_export_has_every_kind_of_record_as_json_lines() {
    let place = Place::new();
    let store = place.open();
    let session = store.create().expect("begins");
    let run = finished(&session, "run", "北京天气");
    let mut output = Vec::new();
    assert_eq!(store.export(session.id(), &mut output).expect("exports"), 0);
    let lines: Vec<serde_json::Value> =
        String::from_utf8(output).expect("UTF-8").lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |kind: &str| lines.iter().filter(|line| line["record"] == kind).collect::<Vec<_>>();
    assert_eq!((of("export").len(), of("session").len(), of("run").len(), of("tool_call").len()), (1, 1, 1, 1));
    let messages: Vec<Message> =
        of("message").into_iter().map(|line| serde_json::from_value(line["message"].clone()).expect("a message")).collect();
    assert_eq!(messages, run.messages());
    assert_eq!(messages[1].role, Role::Assistant);
    assert!(of("event").iter().any(|line| line["event"]["kind"] == "tool.completed"));
}

#[test]
fn many_writers_of_one_file_lose_nothing_and_leave_no_long_log() {
    let place = Place::new();
    drop(place.open());
    std::thread::scope(|scope| {
        for writer in 0..4 {
            // A connection of its own, as another process has.
            let store = place.open();
            scope.spawn(move || {
                for number in 0..5 {
                    let session = store.create().expect("begins");
                    finished(&session, &format!("run-{writer}-{number}"), "北京");
                }
            });
        }
    });
    let store = place.open();
    let sessions = store.list(&ListQuery { limit: 100, ..ListQuery::default() }).expect("lists").sessions;
    assert_eq!(sessions.len(), 20);
    assert!(sessions.iter().all(|session| session.messages == 4 && store.load_run(&session.id).is_ok_and(|run| run.is_some())));
    let log = std::fs::metadata(place.path().with_extension("db-wal")).map_or(0, |log| log.len());
    assert!(log < 8 << 20, "{log} bytes of log");
}
