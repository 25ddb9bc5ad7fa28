//! Sessions as people and scripts use them.

use honeycomb_tests::fakellm::{Exchange, FakeLlm, Signal, render, validate};
use honeycomb_tests::host::{Host, Ran};
use serde_json::Value;

const TASK: &str = "北京天气怎么样？";

/// A host whose model gives these answers, and is asked as a provider would allow.
async fn host(answers: &[&str]) -> (Host, FakeLlm) {
    let exchanges: Vec<_> = answers.iter().map(|answer| Exchange::stream(render::openai_text(&[answer]))).collect();
    let model = FakeLlm::strict(exchanges, validate::openai).await.expect("a server");
    let host =
        Host::new().variable("OPENAI_BASE_URL", &format!("{}/v1", model.url())).variable("OPENAI_API_KEY", "sk-very-secret-1");
    (host, model)
}

async fn run(host: &Host, arguments: &[&str]) -> Ran {
    tokio::task::block_in_place(|| host.run(arguments))
}

async fn json(host: &Host, arguments: &[&str]) -> Value {
    let ran = run(host, &[arguments, &["--json"]].concat()).await;
    assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

/// The id that the program says at its end.
fn id_in(ran: &Ran) -> String {
    let line = ran.stderr.lines().find_map(|line| line.strip_prefix("session ")).unwrap_or_else(|| panic!("{ran:?}"));
    line.split_whitespace().next().expect("an id").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_listed_shown_continued_exported_and_deleted() {
    let (host, model) = host(&["晴，9 °C。", "适合。"]).await;
    let first = run(&host, &[TASK]).await;
    let id = id_in(&first);
    let continued = run(&host, &["--session", &id[..6], "适合跑步吗？ my key is sk-very-secret-1"]).await;
    assert_eq!((continued.code, continued.stdout.as_str()), (0, "适合。\n"), "{continued:?}");
    assert_eq!(id_in(&continued), id);
    let asked = model.requests()[1].body["messages"].to_string();
    assert!(asked.contains(TASK) && asked.contains("晴，9 °C。") && asked.contains("适合跑步吗"), "{asked}");

    let page = json(&host, &["sessions", "list"]).await;
    let session = &page["sessions"][0];
    assert_eq!((&session["id"], &session["title"]), (&Value::from(id.as_str()), &Value::from(TASK)));
    assert_eq!((&session["status"], &session["runs"], &session["messages"]), (&"end_turn".into(), &2.into(), &4.into()));
    assert_eq!(page["next"], Value::Null);
    let listed = run(&host, &["sessions", "list"]).await;
    assert!(listed.stdout.contains(&id) && listed.stdout.contains(TASK), "{listed:?}");

    let shown = run(&host, &["sessions", "show", &id]).await;
    assert!(shown.stdout.contains(&format!("user: {TASK}")) && shown.stdout.contains("assistant: 适合。"), "{shown:?}");
    let detail = json(&host, &["sessions", "show", &id]).await;
    assert_eq!(detail["conversation"].as_array().map(Vec::len), Some(4));

    let file = host.path().join("out.jsonl");
    let exported = run(&host, &["sessions", "export", &id, "--output", &file.display().to_string()]).await;
    assert_eq!(exported.code, 0, "{exported:?}");
    let text = std::fs::read_to_string(&file).expect("written");
    assert_eq!(run(&host, &["sessions", "export", &id]).await.stdout, text);
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    assert!(!text.contains("sk-very-secret-1") && text.contains("my key is [secret]"), "{text}");

    // A task that is over is not done again.
    let resumed = run(&host, &["sessions", "resume", &id]).await;
    assert_eq!((resumed.code, resumed.stdout.as_str()), (0, "适合。\n"), "{resumed:?}");
    assert_eq!(model.requests().len(), 2);

    assert_eq!(json(&host, &["sessions", "delete", &id[..7]]).await["deleted"][0], id.as_str());
    let gone = run(&host, &["--session", &id, "more"]).await;
    assert_eq!(gone.code, 2, "{gone:?}");
    assert!(gone.stderr.contains("there is no session") && gone.stderr.contains("sessions list"), "{gone:?}");
    assert_eq!(json(&host, &["sessions", "list"]).await["sessions"].as_array().map(Vec::len), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_kept_without_a_session() {
    let (host, _model) = host(&["hello"]).await;
    let ran = run(&host, &["--no-session", "say hello"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "hello\n"), "{ran:?}");
    assert!(!ran.stderr.contains("session"), "{ran:?}");
    assert!(!host.path().join("state/honeycomb/sessions.db").exists());
    let both = run(&host, &["--no-session", "--session", "a", "x"]).await;
    assert_eq!(both.code, 2, "{both:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_is_told_who_has_the_session() {
    let waiting = Signal::default();
    let exchanges = [
        Exchange::stream(render::openai_text(&["first"])),
        Exchange::stream(render::openai_text(&["second"])).before_headers(waiting.clone()),
    ];
    let model = FakeLlm::start(exchanges).await.expect("a server");
    let host = Host::new().variable("OPENAI_BASE_URL", &format!("{}/v1", model.url()));
    let id = id_in(&run(&host, &["one"]).await);
    let mut holder = host.command();
    holder.args(["--session", &id, "two"]).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let holder = holder.spawn().expect("it starts");
    while model.requests().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(json(&host, &["sessions", "list"]).await["sessions"][0]["status"], "running");
    for arguments in [&["--session", &id, "three"][..], &["sessions", "resume", &id], &["sessions", "delete", &id]] {
        let ran = run(&host, arguments).await;
        assert_eq!(ran.code, 1, "{ran:?}");
        let expected = format!("session `{id}` is in use by process {} since 20", holder.id());
        assert!(ran.stderr.contains(&expected), "{ran:?}");
    }
    waiting.fire();
    let output = tokio::task::spawn_blocking(move || holder.wait_with_output()).await.expect("waited").expect("output");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "second\n");
    assert!(!host.path().join(format!("state/honeycomb/sessions.db.locks/{id}.lock")).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_task_is_closed_when_another_is_given() {
    let call = Exchange::stream(render::openai_calls(&[("c", "calculator__calculate", "{\"expression\":\"123 + 456\"}")]));
    let waiting = Signal::default();
    let hanging = Exchange::stream(render::openai_text(&["never"])).before_headers(waiting.clone());
    let exchanges = [call, hanging, Exchange::stream(render::openai_text(&["else"]))];
    let model = FakeLlm::strict(exchanges, validate::openai).await.expect("a server");
    let host = Host::new()
        .policy("version = 1\n[[plugins.calculator.tools]]\nname = \"*\"\ndecision = \"allow\"\n")
        .variable("OPENAI_BASE_URL", &format!("{}/v1", model.url()));
    let mut victim = host.command().arg("what is 123 + 456?").stdout(std::process::Stdio::null()).spawn().expect("it starts");
    while model.requests().len() < 2 {
        tokio::task::yield_now().await;
    }
    victim.kill().expect("killed");
    victim.wait().expect("reaped");
    waiting.fire();
    let session = json(&host, &["sessions", "list"]).await["sessions"][0].clone();
    assert_eq!((&session["status"], &session["tool_calls"]), (&"interrupted".into(), &1.into()));
    let id = session["id"].as_str().expect("an id");
    let ran = run(&host, &["--session", id, "something else"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "else\n"), "{ran:?}");
    let detail = json(&host, &["sessions", "show", id]).await;
    let ends: Vec<_> = detail["run_list"].as_array().expect("runs").iter().map(|run| run["status"].clone()).collect();
    assert_eq!(ends, ["cancelled", "end_turn"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_used_is_named_with_a_way_out() {
    let (host, model) = host(&["hello"]).await;
    let id = id_in(&run(&host, &["say hello"]).await);
    let file = host.path().join("state/honeycomb/sessions.db");
    let whole = run(&host, &["sessions", "recover"]).await;
    assert!(whole.code == 0 && whole.stderr.contains("nothing to recover"), "{whole:?}");
    let bytes = std::fs::read(&file).expect("read");
    // `user_version`: SQLite file format, section 1.3; the log is empty once the last process has closed it.
    let mut newer = bytes.clone();
    newer[60..64].copy_from_slice(&9_u32.to_be_bytes());
    let mut damaged = bytes.clone();
    let pages = damaged.len() / 4096;
    damaged[4096..4096 * pages].fill(0xa5);
    for (contents, expected) in [
        (&newer[..], "has version 9, and this program reads up to 1"),
        (b"a diary and not a database, long enough to be looked at", "is not a session store"),
        (&damaged, "is damaged"),
    ] {
        std::fs::write(&file, contents).expect("written");
        for arguments in [&["sessions", "list"][..], &["--session", &id, "x"]] {
            let ran = run(&host, arguments).await;
            assert!(ran.code != 0 && ran.stderr.contains(expected) && ran.stderr.contains("hint: "), "{expected}: {ran:?}");
        }
        assert_eq!(std::fs::read(&file).expect("read"), contents, "and stays as it is");
    }
    assert_eq!(model.requests().len(), 1, "nothing was asked of the model");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_plugin_can_be_given_the_sessions() {
    let host = Host::new();
    std::fs::create_dir_all(host.path().join("state/honeycomb")).expect("made");
    let mount = host.path().join("state").display().to_string();
    let host = host.policy(&format!(
        "version = 1\n[[plugins.files.tools]]\nname = \"*\"\ndecision = \"allow\"\n\
         [[plugins.files.fs]]\nhost = \"{mount}\"\nguest = \"/data\"\nmode = \"ro\"\ndangerous = true\n"
    ));
    let ran = run(&host, &["call", "files/list_files", "--args", "{\"path\":\"/data\"}"]).await;
    assert!(ran.code != 0 && ran.stderr.contains("the host's sessions"), "{ran:?}");
}
