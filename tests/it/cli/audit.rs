//! The audit file, written by the real program: what is in it, what is not, and what becomes of it when things go wrong.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use honeycomb_tests::fakellm::{Exchange, FakeLlm, render, validate};
use honeycomb_tests::host::{Host, Ran, guests_dir};
use honeycomb_tests::web::{WebServer, json as json_response};
use serde_json::{Value, json};

use super::{weather_policy, weather_responses};

const CALCULATOR: &str = "version = 1\n[[plugins.calculator.tools]]\nname = \"*\"\ndecision = \"allow\"\n";
const MISBEHAVE: &str = "version = 1\n[[plugins.misbehave.tools]]\nname = \"*\"\ndecision = \"allow\"\n";

/// Where the harness has the program keep its audit file.
pub(super) fn audit_file(host: &Host) -> PathBuf {
    host.path().join("state/honeycomb/audit.jsonl")
}

/// The records that `audit show` prints.
fn show(host: &Host, filters: &[&str]) -> Vec<Value> {
    let ran = host.run(&[&["audit", "show", "--json"], filters].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn verify(host: &Host) -> Ran {
    host.run(&["audit", "verify"])
}

/// The records of calls, as kind and error code.
fn outline(records: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    records.iter().map(|record| (text(&record["kind"]), text(&record["error"]["code"]))).collect()
}

/// Waits until the audit file holds this text.
pub(super) fn wait_for(host: &Host, text: &str, child: &mut Child) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let written = std::fs::read_to_string(audit_file(host)).unwrap_or_default();
        if written.contains(text) {
            return;
        }
        assert!(child.try_wait().expect("asked").is_none(), "it ended before `{text}`: {written}");
        assert!(Instant::now() < deadline, "no `{text}` in {written}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn every_call_and_every_refusal_is_written_down() {
    let policy = CALCULATOR.to_owned()
        + "args = { type = \"object\", properties = { expression = { maxLength = 20 } } }\n\
           [[plugins.text.tools]]\nname = \"*\"\ndecision = \"ask\"\n[plugins.notes]\n";
    let host = Host::new().policy(&policy);
    assert_eq!(host.call("calculator/calculate", &json!({"expression": "123 + 456"})).0, 0);
    assert_eq!(host.call("calculator/calculate", &json!({"expression": "1 / 0"})).0, 1);
    assert_eq!(host.call("calculator/calculate", &json!({"wrong": 1})).0, 1);
    assert_eq!(host.call("calculator/calculate", &json!({"expression": "1 + 1 + 1 + 1 + 1 + 1"})).0, 1);
    let records = show(&host, &[]);
    let expected = [
        ("audit.began", "-"),
        ("call.started", "-"),
        ("call.finished", "-"),
        ("call.started", "-"),
        ("call.finished", "tool.invalid_arguments"),
        ("call.refused", "args.invalid"),
        ("call.refused", "policy.denied"),
    ];
    let expected: Vec<(String, String)> = expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    assert_eq!(outline(&records), expected, "{records:#?}");

    let (started, finished, denied) = (&records[1], &records[2], &records[6]);
    assert_eq!((&started["plugin"], &started["tool"]), (&json!("calculator"), &json!("calculate")));
    assert_eq!(started["arguments"], json!({"expression": "123 + 456"}));
    assert_eq!(started["verdict"], "allow");
    assert!(started["rule"].as_str().is_some_and(|rule| rule.ends_with("policy0.toml:2")), "{started}");
    for digest in [&started["sha256"], &started["policy"], &started["hash"], &started["prev"]] {
        assert_eq!(digest.as_str().map(str::len), Some(64), "{started}");
    }
    for name in ["run", "call", "plugin", "tool", "sha256", "attempt"] {
        assert_eq!(started[name], finished[name], "{name}");
    }
    assert_eq!(finished["status"], "ok");
    assert!(finished["usage"]["fuel"].as_u64().is_some_and(|fuel| fuel > 1_000), "{finished}");
    assert_eq!((&denied["verdict"], &denied["status"]), (&json!("deny"), &json!("denied")), "{denied}");
    assert_eq!(verify(&host).code, 0);

    let count = |filters: &[&str]| show(&host, filters).len();
    assert_eq!(count(&["--run", started["run"].as_str().expect("a run")]), 2);
    assert_eq!(count(&["--plugin", "calculator"]), 6);
    assert_eq!(count(&["--plugin", "other"]), 0);
    assert_eq!(count(&["--tool", "calculate", "--limit", "2"]), 2);
    assert_eq!(count(&["--verdict", "deny"]), 1);
    assert_eq!(count(&["--code", "args.invalid"]), 1);
    assert_eq!(count(&["--since", "1h"]), 7);
    assert_eq!(count(&["--since", "9999"]), 0);
    let shown = host.run(&["audit", "show"]);
    assert!(shown.stdout.contains("call.refused") && shown.stdout.lines().count() == 7, "{shown:?}");
}

#[test]
fn a_question_and_its_answer_are_written_down() {
    let host = Host::new().policy(&CALCULATOR.replace("allow", "ask"));
    // Nobody is there to ask.
    assert_eq!(host.call("calculator/calculate", &json!({"expression": "1"})).0, 1);
    let records = show(&host, &["--verdict", "ask"]);
    let expected = [("call.asked".to_owned(), "-".to_owned()), ("call.refused".to_owned(), "policy.denied".to_owned())];
    assert_eq!(outline(&records), expected, "{records:#?}");
    assert_eq!(records[0]["run"], records[1]["run"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_in_no_record_event_log_error_or_result() {
    const SECRET: &str = "s3cret-weather/token+42";
    // base64 of it, of it behind one byte and behind two, hexadecimal, and percent-encoded.
    const FORMS: [&str; 6] = [
        SECRET,
        "czNjcmV0LXdlYXRoZXIvdG9rZW4rND",
        "MzY3JldC13ZWF0aGVyL3Rva2VuKz",
        "zM2NyZXQtd2VhdGhlci90b2tlbis0",
        "7333637265742d776561746865722f746f6b656e2b3432",
        "s3cret-weather%2Ftoken%2B42",
    ];
    let echo = format!(
        r#"{{"results":[{{"name":"{SECRET}","latitude":39.9,"longitude":116.4,"country":"{}","timezone":"{}"}}]}}"#,
        FORMS[1].to_owned() + "I=",
        FORMS[5]
    );
    let server = WebServer::start([("/v1/search", json_response(&echo)), ("/v1/forecast", weather_responses().remove(1).1)]);
    let policy = weather_policy(server.port()).replace(
        "path = \"/v1/\"",
        "path = \"/v1/\"\nsecret = { header = \"x-api-key\", format = \"Key {}\", source = \"env:WEATHER_KEY\" }",
    );
    // The model sends it as arguments, too: whoever told it.
    let cities = [SECRET, "czNjcmV0LXdlYXRoZXIvdG9rZW4rNDI=", FORMS[4], FORMS[5], "s3cret-weather\\/token\\u002b42", "北京"];
    let calls: Vec<(String, String)> =
        cities.iter().enumerate().map(|(index, city)| (format!("call{index}"), format!("{{\"city\":\"{city}\"}}"))).collect();
    let mut calls: Vec<(&str, &str, &str)> =
        calls.iter().map(|(id, arguments)| (id.as_str(), "weather__get_weather", arguments.as_str())).collect();
    calls.push(("not_json", "weather__get_weather", SECRET));
    calls.push(("unknown", "no_such_tool", "{\"a\":\"s3cret-weather/token+42\"}"));
    let exchanges = [Exchange::stream(render::openai_calls(&calls)), Exchange::stream(render::openai_text(&["好"]))];
    let model = FakeLlm::strict(exchanges, validate::openai).await.expect("a server");
    let host =
        Host::new().policy(&policy).variable("WEATHER_KEY", SECRET).variable("OPENAI_BASE_URL", &format!("{}/v1", model.url()));
    let (ran, host) = tokio::task::spawn_blocking(move || (host.run(&["北京天气", "-vvv", "--json"]), host)).await.expect("ran");
    assert_eq!(ran.code, 0, "{ran:?}");
    let requests = server.requests();
    assert!(
        !requests.is_empty() && requests.iter().all(|head| head.contains(&format!("x-api-key: Key {SECRET}"))),
        "{requests:?}"
    );

    let audit = std::fs::read_to_string(audit_file(&host)).expect("text");
    for form in FORMS {
        assert!(!audit.contains(form), "{form} in the audit file: {audit}");
        assert!(!ran.stderr.contains(form), "{form} in the log: {}", ran.stderr);
        // Events repeat what the model itself wrote; nothing that a tool or the host said.
        for line in ran.stdout.lines().filter(|line| line.contains("\"tool.")) {
            let event: Value = serde_json::from_str(line).expect("JSON");
            if event["kind"] == "tool.completed" || event["kind"] == "tool.denied" {
                assert!(!line.contains(form), "{form} in an event: {line}");
            }
        }
    }
    assert!(audit.contains("[secret]"), "{audit}");
    let records = show(&host, &["--tool", "get_weather"]);
    let finished = records.iter().find(|record| record["kind"] == "call.finished" && record["status"] == "ok").expect("one");
    let port = server.port();
    assert_eq!(finished["dialled"][0], json!({"host": "127.0.0.1", "address": format!("127.0.0.1:{port}")}), "{finished}");
    assert!(
        finished["used"][0].as_str().is_some_and(|rule| rule.starts_with("net ") && rule.contains("policy0.toml:")),
        "{finished}"
    );
    assert!(finished["usage"]["http_bytes"].as_u64().is_some_and(|bytes| bytes > 100), "{finished}");
    let started = records.iter().find(|record| record["kind"] == "call.started").expect("one");
    assert!(started["grants"][0].as_str().is_some_and(|grant| grant.contains("GET http://127.0.0.1")), "{started}");
    // All of one run, the refusals too.
    let run = started["run"].as_str().expect("a run");
    assert!(show(&host, &[]).iter().skip(1).all(|record| record["run"] == run));
    assert_eq!(verify(&host).code, 0);
}

#[test]
fn a_changed_byte_is_named_by_its_line_and_a_cut_end_by_a_noted_hash() {
    let host = Host::new().policy(CALCULATOR);
    for _ in 0..3 {
        host.call("calculator/calculate", &json!({"expression": "6*7"}));
    }
    let path = audit_file(&host);
    let whole = std::fs::read_to_string(&path).expect("text");
    let ok = host.run(&["audit", "verify", "--json"]);
    let report: Value = serde_json::from_str(&ok.stdout).expect("JSON");
    assert_eq!((ok.code, &report["status"], &report["report"]["records"]), (0, &json!("ok"), &json!(7)), "{report}");
    let last = report["report"]["last_hash"].as_str().expect("a hash").to_owned();

    std::fs::write(&path, whole.replacen("6*7", "6*8", 2).replacen("6*8", "6*7", 1)).expect("written");
    let broken = host.run(&["audit", "verify", "--json"]);
    let report: Value = serde_json::from_str(&broken.stdout).expect("JSON");
    assert_eq!((broken.code, &report["status"], &report["line"]), (1, &json!("broken"), &json!(4)), "{report}");
    assert!(verify(&host).stdout.starts_with("broken: line 4: "));

    let cut: Vec<&str> = whole.lines().take(5).collect();
    std::fs::write(&path, cut.join("\n") + "\n").expect("written");
    assert_eq!(verify(&host).code, 0, "a chain does not know its own length");
    let expected = host.run(&["audit", "verify", "--expect-last", &last]);
    assert!(expected.code == 1 && expected.stdout.contains("cut off"), "{expected:?}");
    // A file that went on since still holds what was noted.
    std::fs::write(&path, &whole).expect("written");
    host.call("calculator/calculate", &json!({"expression": "6*7"}));
    assert_eq!(host.run(&["audit", "verify", "--expect-last", &last]).code, 0);
}

#[test]
fn a_call_under_way_at_kill_nine_is_visible_and_the_chain_goes_on() {
    let host = Host::new().plugins(guests_dir()).policy(MISBEHAVE);
    let mut child = host
        .command()
        .args(["call", "misbehave/sleep", "--args", "{\"milliseconds\":20000}"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    wait_for(&host, "call.started", &mut child);
    child.kill().expect("killed");
    child.wait().expect("reaped");
    // The machine dies in the middle of the next write.
    let path = audit_file(&host);
    let mut bytes = std::fs::read(&path).expect("read");
    bytes.extend(b"{\"seq\":2,\"prev\":\"");
    std::fs::write(&path, bytes).expect("written");
    assert_eq!(verify(&host).code, 1);
    assert_eq!(host.call("misbehave/echo", &json!({"text": "你好"})).0, 0);
    let verified = verify(&host);
    assert!(verified.code == 0 && verified.stdout.contains("line 3: a torn record"), "{verified:?}");
    let kinds: Vec<String> = outline(&show(&host, &[])).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["audit.began", "call.started", "audit.recovered", "call.started", "call.finished"]);
}

#[cfg(unix)]
#[test]
fn no_call_runs_while_the_audit_file_cannot_be_written() {
    let host = Host::new().plugins(guests_dir()).policy(MISBEHAVE);
    let text = "北".repeat(250);
    for _ in 0..3 {
        host.call("misbehave/echo", &json!({"text": text}));
    }
    let before = std::fs::metadata(audit_file(&host)).expect("there").len();
    // A limit on the size of files, in blocks of 512 bytes, fails in the middle of a write, as a full disk does.
    let inner = host.command();
    let mut limited = Command::new("sh");
    let blocks = (before + 600) / 512;
    limited.args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\""), "sh"]).arg(inner.get_program());
    limited.args(inner.get_args()).args(["call", "misbehave/echo", "--args", &json!({"text": text}).to_string(), "--json"]);
    let output = limited.current_dir(host.path()).output().expect("started");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
    assert_eq!(output.status.code(), Some(1), "{document}");
    assert_eq!(document["error"]["code"], "host.internal", "{document}");
    assert!(document["error"]["hint"].as_str().is_some_and(|hint| hint.contains("disk")), "{document}");
    assert_eq!(document["usage"]["fuel"], 0, "{document}");
    assert!(stderr.contains("cannot write the audit file"), "{stderr}");

    // With room again, what was written in part is closed, and the chain holds.
    assert_eq!(host.call("misbehave/echo", &json!({"text": "again"})).0, 0);
    let verified = verify(&host);
    assert!(verified.code == 0 && verified.stdout.contains("a torn record was closed"), "{verified:?}");
}

#[test]
fn two_programs_write_one_chain() {
    let host = Host::new().policy(CALCULATOR);
    let children: Vec<Child> = (0..4)
        .map(|number| {
            let arguments = json!({"expression": format!("{number} + 1")}).to_string();
            host.command()
                .args(["call", "calculator/calculate", "--args", &arguments])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("started")
        })
        .collect();
    for mut child in children {
        assert!(child.wait().expect("ended").success());
    }
    let verified = verify(&host);
    assert!(verified.code == 0 && verified.stdout.starts_with("ok: 9 records"), "{verified:?}");
}

#[test]
fn none_means_none_and_a_file_that_cannot_be_used_stops_the_start() {
    let host = Host::new().policy(CALCULATOR);
    let call = ["call", "calculator/calculate", "--args", "{\"expression\":\"1\"}"];
    assert_eq!(host.run(&[&call[..], &["--audit", "none"]].concat()).code, 0);
    assert!(!audit_file(&host).exists());
    for (file, why) in
        [("/dev/full", "not a regular file"), ("no/such/directory/a.jsonl", "cannot open"), ("policy0.toml", "something else")]
    {
        let ran = host.run(&[&call[..], &["--audit", file]].concat());
        assert!(ran.code == 2 && ran.stderr.contains(why) && ran.stderr.contains("hint: "), "{file}: {ran:?}");
    }
    let config = host.write("honeycomb.toml", "[audit]\nfile = \"named.jsonl\"\nsync = true\n");
    let ran = host.run(&[&call[..], &["--config", config.to_str().expect("UTF-8")]].concat());
    assert!(ran.code == 0 && host.path().join("named.jsonl").exists() && !audit_file(&host).exists(), "{ran:?}");
}

#[cfg(unix)]
#[test]
fn no_mount_hands_over_the_audit_file() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    for mode in ["ro", "rw"] {
        let host = Host::new();
        host.write("data/note.txt", "");
        symlink("data", host.path().join("link")).expect("a link");
        let host = host.policy(&format!(
            "version = 1\n[[plugins.files.tools]]\nname = \"*\"\ndecision = \"allow\"\n\
             [[plugins.files.fs]]\nhost = \"link\"\nguest = \"/data\"\nmode = \"{mode}\"\n"
        ));
        let call = ["call", "files/list_files", "--args", "{\"path\":\"/data\"}"];
        let ran = host.run(&[&call[..], &["--audit", "data/audit.jsonl"]].concat());
        assert!(ran.code == 2 && ran.stderr.contains("the audit file"), "{mode}: {ran:?}");
        assert_eq!(host.run(&call).code, 0);
    }
    let host = Host::new().policy(CALCULATOR);
    host.call("calculator/calculate", &json!({"expression": "1"}));
    let doctor = || host.run(&["doctor"]).stdout;
    assert!(!doctor().contains("written by others"));
    std::fs::set_permissions(audit_file(&host), std::fs::Permissions::from_mode(0o666)).expect("set");
    assert!(doctor().contains("can be written by others than its owner"), "{}", doctor());
}
