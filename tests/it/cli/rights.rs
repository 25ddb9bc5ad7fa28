//! How often a model may call a tool, and that it cannot give itself more.

use honeycomb_tests::fakellm::{Exchange, FakeLlm, render, validate};
use honeycomb_tests::host::Host;
use serde_json::Value;

/// Lets a scripted model make these calls in one turn, and returns the texts of their results.
async fn results(host: Host, calls: &[(&str, &str, &str)]) -> (Vec<String>, Host) {
    let exchanges = [Exchange::stream(render::openai_calls(calls)), Exchange::stream(render::openai_text(&["done"]))];
    let model = FakeLlm::strict(exchanges, validate::openai).await.expect("a server");
    let host = host.variable("OPENAI_BASE_URL", &format!("{}/v1", model.url()));
    let (ran, host) = tokio::task::spawn_blocking(move || (host.run(&["try"]), host)).await.expect("it ran");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "done\n"), "{ran:?}");
    let requests = model.requests();
    let messages = requests[1].body["messages"].as_array().expect("messages");
    let tool = messages.iter().filter(|message| message["role"] == "tool");
    (tool.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect(), host)
}

const CALCULATE: &str = "version = 1\n[[plugins.calculator.tools]]\nname = \"calculate\"\ndecision = \"allow\"\n";

const THREE: [(&str, &str, &str); 3] = [
    ("a", "calculator__calculate", "{\"expression\":\"1 + 1\"}"),
    ("b", "calculator__calculate", "{\"expression\":\"123 + 456\"}"),
    ("c", "calculator__calculate", "{\"expression\":\"3\"}"),
];

#[tokio::test(flavor = "multi_thread")]
async fn max_calls_ends_the_calls_of_a_run() {
    let (results, _) = results(Host::new().policy(&format!("{CALCULATE}max_calls = 2\n")), &THREE).await;
    assert_eq!(results.iter().filter(|text| text.contains("limit.calls")).count(), 1, "{results:?}");
    let refused = results.iter().find(|text| text.contains("limit.calls")).expect("one");
    assert!(
        refused.contains("`calculator/calculate` may be called 2 times in a run") && refused.contains(".toml:2"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_refuses_what_comes_too_fast_and_says_when_to_try_again() {
    let (results, _) = results(Host::new().policy(&format!("{CALCULATE}rate = \"2/h\"\n")), &THREE).await;
    let refused: Vec<&String> = results.iter().filter(|text| text.contains("limit.rate")).collect();
    assert_eq!(refused.len(), 1, "{results:?}");
    assert!(refused[0].contains("at a rate of 2/h") && refused[0].contains("try again in 1800 s"), "{}", refused[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_the_rates_of_several_files_the_smallest_counts() {
    for rates in [["2/h", "1/h"], ["1/h", "2/h"]] {
        let host = rates.iter().fold(Host::new(), |host, rate| host.policy(&format!("{CALCULATE}rate = \"{rate}\"\n")));
        let (results, _) = results(host, &THREE).await;
        assert_eq!(results.iter().filter(|text| text.contains("at a rate of 1/h")).count(), 2, "{rates:?}: {results:?}");
    }
}

#[test]
fn explain_and_tools_show_how_often_a_tool_may_be_called() {
    let host = Host::new().policy(&format!("{CALCULATE}max_calls = 5\nrate = \"10/min\"\n"));
    let ran = host.run(&["policy", "explain", "calculator/calculate"]);
    assert!(ran.stdout.contains("limit: 5 calls a run, 10/min (") && ran.stdout.contains("policy0.toml:2)"), "{}", ran.stdout);
    let ran = host.run(&["tools", "--json"]);
    let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let limits = &document["plugins"][0]["tools"][0]["call_limits"];
    assert!(limits[0].as_str().is_some_and(|limit| limit.starts_with("5 calls a run, 10/min (")), "{document}");
    let ran = host.run(&["tools"]);
    assert!(ran.stdout.contains("at most 5 calls a run, 10/min ("), "{}", ran.stdout);
}

/// A policy under which notes may be kept, and deleting one asks.
const NOTES: &str = "version = 1\n[[plugins.notes.tools]]\nname = \"*\"\ndecision = \"allow\"\n\
                     [[plugins.notes.tools]]\nname = \"delete_note\"\ndecision = \"ask\"\n[plugins.notes.kv]\nquota = \"1MiB\"\n";

/// Runs `call TOOL` on a pseudo terminal, and answers the question with a line.
#[cfg(target_os = "linux")]
fn answer(host: &Host, tool: &str, arguments: &str, line: &str) -> (i32, String) {
    use std::io::{Read as _, Write as _};
    use std::process::{Command, Stdio};
    let quoted = |text: &std::ffi::OsStr| format!("'{}'", text.to_str().expect("UTF-8").replace('\'', "'\\''"));
    let inner = host.command();
    let words: Vec<String> = std::iter::once(inner.get_program()).chain(inner.get_args()).map(quoted).collect();
    // `script` (util-linux, essential on every Linux) gives the program a terminal.
    let mut child = Command::new("script")
        .args(["-q", "-e", "-c", &format!("{} call {tool} --args '{arguments}'", words.join(" ")), "/dev/null"])
        .current_dir(host.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("`script` is installed");
    let (mut stdin, mut stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let (mut seen, mut answered, mut buffer) = (String::new(), false, [0; 4096]);
    loop {
        let count = stdout.read(&mut buffer).expect("output");
        if count == 0 {
            break;
        }
        seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        if !answered && seen.contains("[N]o: ") {
            answered = true;
            writeln!(stdin, "{line}").expect("typed");
        }
    }
    (child.wait().expect("it ends").code().expect("an exit code"), seen)
}

#[cfg(target_os = "linux")]
#[test]
fn always_is_one_call_of_one_component_under_one_rule_and_only_a_persons_answer_writes_it() {
    let host = Host::new().policy(NOTES);
    let grants = host.path().join("state/honeycomb/grants.toml");
    let delete = "notes/delete_note";
    let denied = |host: &Host, title: &str| {
        let (_, document) = host.call(delete, &serde_json::json!({ "title": title }));
        document["error"]["code"] == "policy.denied"
    };
    for title in ["天气", "other"] {
        assert_eq!(host.call("notes/save_note", &serde_json::json!({"title": title, "text": "x"})).0, 0);
    }
    // No, and once, write nothing.
    for (line, code) in [("n", 1), ("", 1), ("o", 0)] {
        let (ended, seen) = answer(&host, delete, "{\"title\":\"other\"}", line);
        assert_eq!(ended, code, "{line}: {seen}");
        assert!(!grants.exists() && denied(&host, "other"), "{line}: {seen}");
    }
    let (ended, seen) = answer(&host, delete, "{\"title\":\"天气\"}", "a");
    assert_eq!(ended, 0, "{seen}");
    assert!(seen.contains("[a]lways for exactly this call") && seen.contains("written to `"), "{seen}");

    // Nobody is there to be asked, and the call runs; a call with other arguments does not.
    assert!(!denied(&host, "天气") && denied(&host, "other"));
    let text = std::fs::read_to_string(&grants).expect("written");
    assert!(text.contains("tool = \"delete_note\"") && text.contains("天气"), "{text}");

    // Another digest of the component, and another rule: void.
    let line = text.lines().find(|line| line.starts_with("sha256 = ")).expect("a digest");
    std::fs::write(&grants, text.replace(line, &format!("sha256 = \"{}\"", "0".repeat(64)))).expect("changed");
    assert!(denied(&host, "天气"), "another component");
    std::fs::write(&grants, &text).expect("changed back");
    assert!(!denied(&host, "天气"));
    let policy = host.path().join("policy0.toml");
    std::fs::write(&policy, NOTES.replace("\"ask\"", "\"ask\"\nmax_calls = 3")).expect("changed");
    assert!(denied(&host, "天气"), "another rule");
    std::fs::write(&policy, NOTES.replace("\"ask\"", "\"deny\"")).expect("changed");
    assert!(denied(&host, "天气"), "a denial is not asked about");
    std::fs::write(&policy, NOTES).expect("changed back");
    assert!(!denied(&host, "天气"), "the rule as it was");
    // A second file that denies wins over a grant.
    let host = host.policy("version = 1\n[[plugins.notes.tools]]\nname = \"delete_note\"\ndecision = \"deny\"\n");
    assert!(denied(&host, "天气"));
}

#[test]
fn a_grants_file_that_is_wrong_or_that_others_can_write_stops_the_start() {
    let host = Host::new().policy(CALCULATE);
    let path = host.write("grants.toml", "version = 1\n[[grants]]\nplugin = \"notes\"\n");
    let file = path.to_string_lossy().into_owned();
    let call = ["call", "calculator/calculate", "--args", "{\"expression\":\"1\"}", "--grants", &file, "--json"];
    let ran = host.run(&call);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stdout.contains("policy.invalid") && ran.stdout.contains("grants.toml:2:1"), "{ran:?}");
    host.write("grants.toml", "version = 1\n");
    assert_eq!(host.run(&call).code, 0);
    #[cfg(unix)]
    {
        chmod(&path, 0o666);
        let ran = host.run(&call);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stdout.contains("can be written by everybody") && ran.stdout.contains("chmod go-w"), "{ran:?}");
    }
}

#[cfg(unix)]
fn chmod(path: &std::path::Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
}

#[cfg(unix)]
#[test]
fn what_decides_on_rights_must_be_in_nobody_elses_hands() {
    let secret = "[[plugins.calculator.net]]\nhost = \"a.example\"\nsecret = { header = \"x-a\", source = \"file:key\" }\n";
    let policy = format!("{CALCULATE}{secret}");
    let with = |host: &Host, more: &[&str]| {
        let mut arguments = vec!["call", "calculator/calculate", "--args", "{\"expression\":\"1\"}", "--json"];
        arguments.extend(more);
        host.run(&arguments)
    };
    for (what, path, mode) in [
        ("the policy", "policy0.toml", 0o646),
        ("a secret", "key", 0o602),
        ("the configuration", "honeycomb.toml", 0o666),
        ("the plugins' directory", "plugins", 0o777),
        ("an unpinned plugin", "plugins/calculator.wasm", 0o646),
        ("the directory of them all", ".", 0o777),
    ] {
        let host = Host::new();
        host.write("key", "0123456789");
        host.write("honeycomb.toml", "");
        let plugin = std::fs::read(honeycomb_tests::host::plugins_dir().join("calculator.wasm")).expect("a plugin");
        let plugins = host.write("plugins/calculator.wasm", plugin).parent().expect("a directory").to_owned();
        let host = host.plugins(plugins).policy(&policy);
        let ran = with(&host, &["--config", "honeycomb.toml"]);
        assert_eq!(ran.code, 0, "{what}: {ran:?}");
        chmod(&host.path().join(path), mode);
        // `call` needs no configuration; a task does.
        let ran = if path.ends_with("comb.toml") { host.run(&["--config", path, "--json", "a task"]) } else { with(&host, &[]) };
        assert_eq!(ran.code, 2, "{what}: {ran:?}");
        assert!(ran.stdout.contains("can be written by everybody") && ran.stdout.contains("chmod go-w"), "{what}: {ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_cannot_widen_its_rights_by_any_tool() {
    // The most that a policy can give: all tools of all example plugins, and a writable mount beside the policy and the grants.
    let tools =
        ["files", "notes", "text"].map(|id| format!("[[plugins.{id}.tools]]\nname = \"*\"\ndecision = \"allow\"\n")).concat();
    let policy = format!(
        "version = 1\n{tools}[[plugins.notes.tools]]\nname = \"delete_note\"\ndecision = \"ask\"\n[plugins.notes.kv]\nquota = \"1MiB\"\n\
         [[plugins.files.fs]]\nhost = \"data\"\nguest = \"/data\"\nmode = \"rw\"\n"
    );
    let host = Host::new();
    host.write("data/inside.txt", "");
    let before = "version = 1\n";
    host.write("state/honeycomb/grants.toml", before);
    #[cfg(unix)]
    std::os::unix::fs::symlink("../policy0.toml", host.path().join("data/link.toml")).expect("a link");
    let host = host.policy(&policy);
    let write = |path: &str| format!("{{\"path\":\"{path}\",\"text\":\"version = 1\",\"if_exists\":\"replace\"}}");
    let absolute = host.path().join("policy0.toml").to_string_lossy().into_owned();
    let arguments = [
        ("files__write_file", write("/data/../policy0.toml")),
        ("files__write_file", write("/data/../state/honeycomb/grants.toml")),
        ("files__write_file", write("/data/link.toml")),
        ("files__write_file", write(&absolute)),
        ("notes__delete_note", "{\"title\":\"x\"}".to_owned()),
        ("notes__delete_note", "{\"title\":\"x\",\"approval\":\"always\"}".to_owned()),
        ("policy__allow", "{\"tool\":\"notes/delete_note\"}".to_owned()),
        ("grants__add", "{}".to_owned()),
    ];
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let calls: Vec<(&str, &str, &str)> =
        ids.iter().zip(&arguments).map(|(id, (tool, arguments))| (*id, *tool, arguments.as_str())).collect();
    let (results, host) = results(host, &calls).await;
    assert_eq!(results.len(), calls.len());
    for ((_, tool, arguments), result) in calls.iter().zip(&results) {
        assert!(result.starts_with("error "), "{tool} {arguments}: {result}");
    }
    let read = |path: &str| std::fs::read_to_string(host.path().join(path)).expect("there");
    assert_eq!((read("policy0.toml"), read("state/honeycomb/grants.toml")), (policy, before.to_owned()));
}
