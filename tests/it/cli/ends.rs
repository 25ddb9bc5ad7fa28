//! How the program ends when it is told to stop, when nobody reads it, and when the system gives it little.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use honeycomb_tests::host::{Host, guests_dir, host_program, plugins_dir, workspace};
use serde_json::{Value, json};

use super::weather_policy;

fn misbehave() -> Host {
    Host::new().plugins(guests_dir()).policy(
        "version = 1\n[limits]\nfuel = 9_000_000_000_000\ntimeout = \"10m\"\n\
         [[plugins.misbehave.tools]]\nname = \"*\"\ndecision = \"allow\"\n",
    )
}

fn start(host: &Host, tool: &str, arguments: &Value) -> Child {
    host.command()
        .args(["call", tool, "--args", &arguments.to_string(), "--json", "--verbose"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

/// Reads stderr until a line has this text; the rest is read by nobody, which must not matter either.
fn wait_for(child: &mut Child, text: &str) -> BufReader<ChildStderr> {
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).expect("text"), 0, "it ended before it said `{text}`");
    }
    stderr
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill");
    assert!(status.success());
}

/// Clock ticks of processor time that the process took.
fn ticks(child: &Child) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("procfs");
    let after_name = stat.rsplit_once(')').expect("a name").1;
    after_name.split_whitespace().nth(11).and_then(|ticks| ticks.parse().ok()).expect("a number")
}

fn ends_cancelled(mut child: Child, what: &str) {
    let told = Instant::now();
    let mut stdout = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut stdout).expect("text");
    let status = child.wait().expect("it ends");
    assert!(told.elapsed() < Duration::from_secs(3), "{what}: {:?}", told.elapsed());
    assert_eq!(status.code(), Some(130), "{what}: {status} {stdout}");
    let document: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{what}: {error}: {stdout}"));
    assert_eq!(document["error"]["code"], "call.cancelled", "{what}: {document}");
}

#[test]
fn a_signal_ends_a_call_that_spins() {
    let host = misbehave();
    for name in ["-TERM", "-INT"] {
        let mut child = start(&host, "misbehave/run_away", &json!({}));
        let _stderr = wait_for(&mut child, "loaded `misbehave`");
        let begun = ticks(&child);
        while ticks(&child) < begun + 10 {
            assert_eq!(child.try_wait().expect("asked"), None);
            std::thread::yield_now();
        }
        signal(&child, name);
        ends_cancelled(child, name);
    }
}

#[test]
fn a_signal_between_loading_and_calling_is_not_lost() {
    let host = misbehave();
    for _ in 0..10 {
        let mut child = start(&host, "misbehave/sleep", &json!({"milliseconds": 500_000}));
        let _stderr = wait_for(&mut child, "loaded `misbehave`");
        signal(&child, "-TERM");
        ends_cancelled(child, "at once");
    }
}

#[test]
fn a_signal_ends_a_call_that_waits_for_a_server() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let host = Host::new().policy(&weather_policy(listener.local_addr().expect("an address").port()));
    let child = start(&host, "weather/get_weather", &json!({"city": "北京"}));
    let (_connection, _) = listener.accept().expect("a connection");
    signal(&child, "-TERM");
    ends_cancelled(child, "waiting for HTTP");
}

#[test]
fn a_second_signal_ends_the_program_at_once() {
    let host = misbehave();
    let mut child = start(&host, "misbehave/run_away", &json!({}));
    let mut stderr = wait_for(&mut child, "loaded `misbehave`");
    signal(&child, "-STOP");
    signal(&child, "-TERM");
    signal(&child, "-INT");
    signal(&child, "-CONT");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).expect("text");
    assert!(!rest.contains("panicked"), "{rest}");
}

#[test]
fn nobody_reading_stdout_is_no_panic() {
    let host = Host::new().policy_file(workspace().join("examples/policy.toml"));
    for (arguments, code) in [
        (&["call", "calculator/calculate", "--args", "{\"expression\":\"1\"}", "--json"][..], 0),
        (&["call", "calculator/calculate", "--args", "{\"expression\":\"1\"}"], 0),
        (&["call", "calculator/calculate", "--args", "{\"expression\":\"1/0\"}", "--json"], 1),
        (&["tools"], 0),
        (&["tools", "--json"], 0),
        (&["policy", "suggest"], 0),
        (&["doctor"], 0),
        (&["--help"], 0),
    ] {
        let mut child =
            host.command().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        // The reader goes away before anything is written.
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
    }
}

/// One call of the calculator with a cache of its own, under these limits of the shell: stdout, stderr.
fn calculate(shell: &str, cache: &Path) -> (String, String) {
    let output = Command::new("sh")
        .args(["-c", &format!("{shell}exec \"$0\" \"$@\"")])
        .arg(host_program())
        .arg("--plugins")
        .arg(plugins_dir())
        .arg("--policy")
        .arg(workspace().join("examples/policy.toml"))
        .arg("--cache-dir")
        .arg(cache)
        .args(["call", "calculator/calculate", "--args", "{\"expression\":\"6*7\"}", "--json"])
        .output()
        .expect("a shell");
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn answers_with_few_descriptors_and_little_address_space() {
    for shell in ["ulimit -n 64; ", "ulimit -v 3000000; ", "ulimit -n 64; ulimit -v 1500000; "] {
        let directory = tempfile::tempdir().expect("a directory");
        // Compiles, then takes what it compiled.
        for _ in 0..2 {
            let (stdout, stderr) = calculate(shell, &directory.path().join("cache"));
            let document: Value =
                serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{shell}{error}: {stdout}{stderr}"));
            assert_eq!(document["structured"]["result"], "42", "{shell}{document}{stderr}");
        }
    }
}

#[test]
fn a_cache_that_cannot_be_used_costs_a_warning_and_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("文件");
    std::fs::write(&file, "not a directory").expect("written");
    for cache in [Path::new("/proc/honeycomb"), &file, &file.join("below")] {
        let (stdout, stderr) = calculate("", cache);
        let document: Value =
            serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{}: {error}: {stdout}", cache.display()));
        assert_eq!(document["structured"]["result"], "42", "{}: {document}", cache.display());
        assert_eq!(stderr.lines().filter(|line| line.contains("cannot use the cache")).count(), 1, "{stderr}");
    }
}
