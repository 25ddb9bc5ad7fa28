//! Recording a run of the real program, and replaying it.

use honeycomb_tests::host::Host;
use serde_json::Value;

const POLICY: &str = "version = 1\n[[plugins.calculator.tools]]\nname = \"calculate\"\ndecision = \"allow\"\n";
const SCRIPT: &str = r#"
version = 1
[[turns]]
[turns.reply]
text = "我来算一下。"
[[turns.reply.calls]]
tool = "calculator__calculate"
arguments = { expression = "123 + 456" }
[[turns.reply.calls]]
tool = "files__write_file"
arguments = { path = "/data/a", text = "x" }
[[turns]]
expect = { any_results = true }
reply = { text = "123 + 456 = {{result:calculator__calculate:/result}}" }
"#;

fn recorded() -> (Host, String) {
    let host = Host::new().policy(POLICY);
    host.write("script.toml", SCRIPT);
    let ran = host.run(&["--model", "scripted:script.toml", "--json", "run", "--record", "run.jsonl", "123 + 456 等于多少？"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    (host, ran.stdout)
}

#[test]
fn a_recorded_run_replays_byte_for_byte_without_model_or_tools() {
    let (host, events) = recorded();
    // Not the plugins either.
    let ran = host.run(&["replay", "run.jsonl", "--plugins", "nowhere", "--json"]);
    assert_eq!((ran.code, ran.stdout), (0, events), "{}", ran.stderr);
    assert!(ran.stderr.contains("identical: "), "{}", ran.stderr);
    let shown = host.run(&["replay", "run.jsonl"]);
    assert_eq!((shown.code, shown.stdout.as_str()), (0, "123 + 456 = 579\n"), "{shown:?}");
    let again = host.run(&["--model", "scripted:script.toml", "--record", "run.jsonl", "123 + 456 等于多少？"]);
    assert_eq!(again.code, 2, "a recording replaces nothing: {again:?}");
}

#[test]
fn a_damaged_a_cut_and_a_foreign_file_are_told_apart() {
    let (host, _) = recorded();
    let text = std::fs::read_to_string(host.path().join("run.jsonl")).expect("the recording");
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    for (name, contents, code, expected) in [
        ("damaged", text.replacen("579", "580", 1), 2, "is damaged"),
        ("cut", lines[..lines.len() - 3].concat(), 1, "the recording ends at line"),
        ("newer", text.replacen("\"format\":1", "\"format\":9", 1), 2, "use a newer honeycomb-host"),
        ("foreign", "[package]\n".to_owned(), 2, "not a recording"),
    ] {
        host.write(name, contents);
        let ran = host.run(&["replay", name]);
        assert_eq!(ran.code, code, "{name}: {ran:?}");
        assert!(ran.stderr.contains(expected), "{name}: {ran:?}");
    }
    assert_eq!(host.run(&["replay", "nowhere"]).code, 2);
    for arguments in [["--record", "x", "tools"], ["tools", "--record", "x"]] {
        assert_eq!(host.run(&arguments).code, 2, "{arguments:?}");
    }
}

#[test]
fn live_tools_run_again_under_the_policy_of_today() {
    let (host, _) = recorded();
    let same = host.run(&["replay", "run.jsonl", "--live-tools"]);
    assert_eq!(same.code, 0, "{same:?}");
    assert!(same.stdout.ends_with("2 calls, 0 different\n") && !same.stderr.contains("changed"), "{same:?}");
    // The second file takes the right away: any deny wins.
    let host = host.policy("version = 1\n[[plugins.calculator.tools]]\nname = \"*\"\ndecision = \"deny\"\n");
    let ran = host.run(&["replay", "run.jsonl", "--live-tools", "--json"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let lines: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines[0]["differences"][0]["what"], "decision", "{ran:?}");
    assert_eq!(lines[0]["differences"][0]["now"], "\"policy.denied\"", "{ran:?}");
    assert_eq!(lines[2]["different"], 1, "{ran:?}");
    assert!(ran.stderr.contains("changed: the policy is another one"), "{ran:?}");
}
