//! The policy is edited while the program runs.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use honeycomb_tests::host::{Host, guests_dir};
use serde_json::Value;

use super::audit::{audit_file, wait_for};

/// A task of two turns: a call that takes a while, and one after it.
fn script(milliseconds: u64) -> String {
    format!(
        "version = 1\nmodel = \"scripted\"\n[[turns]]\n[turns.reply]\n[[turns.reply.calls]]\ntool = \"misbehave__sleep\"\n\
         arguments = {{ milliseconds = {milliseconds} }}\n[[turns]]\n[[turns.expect.results]]\ntool = \"misbehave__sleep\"\n\
         [turns.reply]\n[[turns.reply.calls]]\ntool = \"misbehave__echo\"\narguments = {{ text = \"之后\" }}\n[[turns]]\n\
         [[turns.expect.results]]\ntool = \"misbehave__echo\"\n[turns.reply]\ntext = \"done\"\n"
    )
}

fn policy(rules: &[(&str, &str)]) -> String {
    let rule =
        |(tool, decision): &(&str, &str)| format!("[[plugins.misbehave.tools]]\nname = \"{tool}\"\ndecision = \"{decision}\"\n");
    "version = 1\n".to_owned() + &rules.iter().map(rule).collect::<String>()
}

const BOTH: [(&str, &str); 2] = [("sleep", "allow"), ("echo", "allow")];

/// The program, in the middle of its first call.
struct Running {
    host: Host,
    child: Child,
    stderr: Receiver<String>,
}

impl Running {
    fn start(host: Host, milliseconds: u64) -> Self {
        let script = host.write("script.toml", script(milliseconds));
        let mut child = host
            .command()
            .args(["run", "task", "--json", "--model", &format!("scripted:{}", script.display())])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let (sender, stderr) = mpsc::channel();
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        wait_for(&host, "call.started", &mut child);
        Self { host, child, stderr }
    }

    fn with(text: &str, milliseconds: u64) -> Self {
        Self::start(Host::new().plugins(guests_dir()).policy(text), milliseconds)
    }

    /// Waits for a line on stderr.
    fn hears(&self, text: &str) -> String {
        loop {
            let line = self.stderr.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("nothing said `{text}`"));
            if line.contains(text) {
                return line;
            }
        }
    }

    fn edit(&self, text: &str) {
        // In one step, as an editor does: half a file is not what these tests are about.
        let new = self.host.write("policy.new", text);
        std::fs::rename(new, self.host.path().join("policy0.toml")).expect("renamed");
    }

    /// Waits for the end; returns the status and code of each call.
    fn results(mut self) -> Vec<(String, String)> {
        let mut stdout = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut stdout).expect("UTF-8");
        self.child.wait().expect("ended");
        let verified = self.host.run(&["audit", "verify"]);
        assert_eq!(verified.code, 0, "{verified:?}");
        let audit = std::fs::read_to_string(audit_file(&self.host)).expect("text");
        let records = audit.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let ends = records.filter(|record| record["kind"] == "call.finished" || record["kind"] == "call.refused");
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        ends.map(|record| (text(&record["status"]), text(&record["error"]["code"]))).collect()
    }
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn a_running_call_keeps_its_policy_and_the_next_sees_the_new_one() {
    let running = Running::with(&policy(&BOTH), 12_000);
    running.edit(&policy(&[("sleep", "allow"), ("echo", "deny")]));
    running.hears("reloaded: ");
    assert_eq!(running.results(), pairs(&[("ok", "-"), ("denied", "policy.denied")]));
}

#[test]
fn a_call_whose_tool_or_plugin_is_revoked_is_stopped() {
    let pin = |text: String| text + &format!("[plugins.misbehave]\nsha256 = \"{}\"\n", "0".repeat(64));
    for (what, text) in [
        ("denied", policy(&[("sleep", "deny"), ("echo", "allow")])),
        ("no rule", policy(&[("echo", "allow")])),
        ("no block", "version = 1\n".to_owned()),
        ("another file is pinned", pin("version = 1\n".to_owned()) + &policy(&BOTH)["version = 1\n".len()..]),
    ] {
        let running = Running::with(&policy(&BOTH), 20_000);
        running.edit(&text);
        running.hears("reloaded: ");
        let first = running.results().remove(0);
        assert_eq!(first, ("interrupted".to_owned(), "policy.denied".to_owned()), "{what}");
    }
}

#[test]
fn a_call_whose_plugin_file_is_removed_is_stopped() {
    let host = Host::new();
    let plugin = host.write("own/misbehave.wasm", std::fs::read(guests_dir().join("misbehave.wasm")).expect("built"));
    let own = host.path().join("own");
    let running = Running::start(host.plugins(own).policy(&policy(&BOTH)), 20_000);
    std::fs::remove_file(plugin).expect("removed");
    running.hears("reloaded: ");
    assert_eq!(running.results().remove(0), ("interrupted".to_owned(), "policy.denied".to_owned()));
}

#[test]
fn a_broken_policy_changes_nothing() {
    let running = Running::with(&policy(&BOTH), 12_000);
    running.edit(&policy(&BOTH).replace("decision = \"allow\"", "decision = \"perhaps\""));
    let said = running.hears("not reloaded");
    assert!(said.contains("the earlier policy stays in force") && said.contains("policy0.toml:4"), "{said}");
    assert_eq!(running.results(), pairs(&[("ok", "-"), ("ok", "-")]));
}

#[cfg(unix)]
#[test]
fn sighup_reloads_at_once_and_a_missing_secret_refuses() {
    let hangup = |running: &Running| {
        let pid = running.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-HUP", &pid]).status().expect("started").success());
    };
    let running = Running::with(&policy(&BOTH), 15_000);
    hangup(&running);
    running.hears("reloaded: 1 plugins");
    running.edit(
        &(policy(&BOTH)
            + "[[plugins.misbehave.net]]\nhost = \"example.com\"\nsecret = { header = \"x-key\", format = \"{}\", source = \"env:NO_SUCH\" }\n"),
    );
    hangup(&running);
    let said = running.hears("not reloaded");
    assert!(said.contains("NO_SUCH"), "{said}");
    assert_eq!(running.results(), pairs(&[("ok", "-"), ("ok", "-")]));
}
