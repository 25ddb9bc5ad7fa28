//! The evals that are shipped, and what the command does with scenarios that fail or make no sense.

use honeycomb_tests::host::{Host, workspace};
use serde_json::Value;

#[test]
fn every_shipped_scenario_comes_out_as_it_should() {
    let directory = workspace().join("evals");
    let host = Host::new();
    let ran = host.run(&["eval", directory.to_str().expect("UTF-8"), "--json"]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    let scenarios = report["scenarios"].as_array().expect("scenarios");
    let failed: Vec<&Value> = scenarios.iter().filter(|scenario| scenario["problems"] != serde_json::json!([])).collect();
    assert_eq!((ran.code, failed), (0, Vec::new()), "{}", ran.stderr);
    let adversarial = scenarios.iter().filter(|scenario| scenario["adversarial"] == true).count();
    assert!(scenarios.len() >= 25 && adversarial >= 10, "{} scenarios, {adversarial} adversarial", scenarios.len());
}

/// A scenario that passes, from which broken ones are made.
const SUM: &str = r#"
description = "a sum"
task = "what is 123 + 456?"
plugins = ["calculator"]
policy = '''
version = 1
[[plugins.calculator.tools]]
name = "calculate"
decision = "allow"
'''
[[model.turns]]
[[model.turns.reply.calls]]
tool = "calculator__calculate"
arguments = { expression = "123 + 456" }
[[model.turns]]
reply = { text = "579" }
[expect]
stop_reason = "end_turn"
answer = { equals = "579" }
[[expect.calls]]
tool = "calculator__calculate"
json = { "/result" = "579" }
"#;

#[test]
fn a_scenario_broken_on_purpose_fails_and_says_why() {
    for (from, to, expected) in [
        ("equals = \"579\"", "equals = \"580\"", "the answer should be `580`, and is `579`"),
        ("equals = \"579\"", "contains = [\"北京\"]", "the answer should hold `北京`"),
        ("equals = \"579\"", "matches = \"^[a-z]+$\"", "the answer should match"),
        ("stop_reason = \"end_turn\"", "stop_reason = \"max_steps\"", "should end with `max_steps`, and ended with `end_turn`"),
        ("\"/result\" = \"579\"", "\"/result\" = \"1\"", "at `/result` there is"),
        ("tool = \"calculator__calculate\"\njson", "tool = \"files__read_file\"\njson", "should be called"),
        ("decision = \"allow\"", "decision = \"deny\"", "call `calculator__calculate`"),
        ("[expect]", "[never]\ncalls = [\"calculator__*\"]\n[expect]", "a run of `calculator__*` must not be, and is"),
        ("[expect]", "[never]\noffered = [\"*\"]\n[expect]", "a tool `*` must not be, and is"),
        ("[expect]", "[never]\nanswer_contains = [\"57\"]\n[expect]", "in the answer, `57`"),
        ("[expect]", "[never]\nsystem_contains = [\"assistant\"]\n[expect]", "in the system prompt, `assistant`"),
        ("[expect]", "[never]\nmodel_sees = [\"579\"]\n[expect]", "in what the model is sent, `579`"),
        ("[expect]", "[never]\nstop_reasons = [\"end_turn\"]\n[expect]", "an end by `end_turn`"),
        ("[expect]", "[expect]\nhttp = [{ request = \"GET /\" }]", "the server should get `GET /`"),
        ("[expect]", "[expect]\nfiles = { \"a.txt\" = \"x\" }", "file `a.txt` should hold `x`, and is not there"),
        ("[expect]", "[expect]\nevents = [\"loop.warning\"]", "there is no event `loop.warning`"),
        ("[expect]", "[expect]\nquestions = 1", "should be asked 1 times, and was 0"),
        ("[expect]", "[expect]\nat_most = { tool_calls = 0 }", "it used 1 tool calls; 0 at most"),
        ("[expect]", "[expect]\nrefused_start = \"policy\"", "should refuse to start with `policy`, and it started"),
        ("[expect]", "[expect]\nnot_loaded = { calculator = \"load.invalid\" }", "should not be loaded"),
        ("[expect]", "[expect]\nmodel_sees = [\"no such text\"]", "should be sent `no such text`, and was not"),
        (
            "reply = { text = \"579\" }",
            "reply = { text = \"579\" }\n[[model.turns]]\nreply = { text = \"more\" }",
            "1 turns of the script",
        ),
        ("plugins = [\"calculator\"]", "plugins = [\"nobody\"]", "cannot open"),
    ] {
        assert!(SUM.contains(from), "{from}");
        let host = Host::new();
        host.write("evals/sum.toml", SUM.replacen(from, to, 1));
        let ran = host.run(&["eval", "evals"]);
        assert_eq!(ran.code, 1, "{to}: {ran:?}");
        assert!(ran.stdout.contains(expected), "{to}: {expected}: {ran:?}");
        assert!(ran.stdout.contains("FAILED sum") && ran.stdout.ends_with("0 passed, 1 failed\n"), "{ran:?}");
    }
}

#[test]
fn a_scenario_that_makes_no_sense_is_refused_with_file_and_line() {
    for (from, to, expected) in [
        ("stop_reason = \"end_turn\"", "stop_raeson = \"end_turn\"", "sum.toml:18: unknown field `stop_raeson`"),
        ("task = \"what is 123 + 456?\"", "task = \" \"", "sum.toml:3: the task is empty"),
        ("equals = \"579\"", "matches = \"(\"", "sum.toml:19: not a regular expression"),
        ("\"/result\" =", "\"result\" =", "sum.toml:22: `result` is not a JSON pointer"),
        ("description = \"a sum\"\n", "", "missing field `description`"),
        ("reply = { text = \"579\" }", "repeat = 0", "`repeat` must not be zero"),
        ("[expect]", "[fixtures.files]\n\"../a\" = \"x\"\n[expect]", "`../a` is not a relative path"),
        ("[[model.turns]]", "[[model.truns]]", "unknown field `truns`"),
        ("description", "]", "sum.toml:2:"),
    ] {
        assert!(SUM.contains(from), "{from}");
        let host = Host::new();
        host.write("evals/sum.toml", SUM.replacen(from, to, 1));
        let ran = host.run(&["eval", "evals"]);
        assert_eq!(ran.code, 2, "{to}: {ran:?}");
        assert!(ran.stderr.contains(expected), "{to}: {expected}: {ran:?}");
    }
    let host = Host::new();
    host.write("evals/sum.toml", SUM);
    for arguments in [["eval", "nowhere", "--json"], ["eval", "evals", "--filter=x*"], ["eval", "evals", "--repeat=0"]] {
        assert_eq!(host.run(&arguments).code, 2, "{arguments:?}");
    }
}

#[test]
fn attempts_are_repeated_and_reported_to_build_servers() {
    let host = Host::new();
    host.write("evals/a/sum.toml", SUM);
    host.write("evals/a/wrong.toml", SUM.replacen("equals = \"579\"", "equals = \"<1> & 2\"", 1));
    host.write("evals/b.toml", SUM);
    let ran = host.run(&["eval", "evals", "--filter", "a/*", "--repeat", "3", "--jobs", "1", "--junit", "report.xml", "--json"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let report: Value = serde_json::from_str(&ran.stdout).expect("one document");
    assert_eq!((&report["passed"], &report["failed"]), (&Value::from(1), &Value::from(1)), "{report}");
    assert_eq!(report["scenarios"][0]["name"], "a/sum");
    assert_eq!((&report["scenarios"][0]["passed"], &report["scenarios"][0]["attempts"]), (&Value::from(3), &Value::from(3)));
    assert!(ran.stderr.contains("[2/2]"), "progress: {}", ran.stderr);
    let xml = std::fs::read_to_string(host.path().join("report.xml")).expect("the report");
    assert!(xml.contains("tests=\"2\" failures=\"1\"") && xml.contains("&lt;1&gt; &amp; 2"), "{xml}");
}
