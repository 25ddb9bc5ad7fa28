//! A terminal or a pipe that nobody reads for a while.

use std::io::Read as _;
use std::process::{Command, Stdio};

use honeycomb_tests::fakellm::{Exchange, FakeLlm, render};
use honeycomb_tests::host::{Host, guests_dir, host_program};
use serde_json::{Value, json};

/// A task of so many turns, each with a call whose argument and result have so many bytes.
fn long_task(turns: usize, bytes: usize) -> Vec<Exchange> {
    let turn = |n: usize| {
        let arguments = json!({ "text": format!("{n} {}", "x".repeat(bytes)) }).to_string();
        Exchange::stream(render::openai_calls(&[("c", "misbehave__echo", &arguments)]))
    };
    (0..turns).map(turn).chain([Exchange::stream(render::openai_text(&["终于", "完成"]))]).collect()
}

fn host(model: &FakeLlm) -> Host {
    Host::new()
        .plugins(guests_dir())
        .policy("version = 1\n[[plugins.misbehave.tools]]\nname = \"*\"\ndecision = \"allow\"\n")
        .variable("OPENAI_BASE_URL", &format!("{}/v1", model.url()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_waits_does_not_stall_the_run_and_misses_nothing() {
    let model = FakeLlm::start(long_task(20, 8_000)).await.expect("a server");
    let host = host(&model);
    let mut child = host
        .command()
        .args(["--json", "--max-steps", "50", "task"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    // Nobody reads, and the run gets to its last turn all the same.
    while model.remaining() > 0 {
        assert_eq!(child.try_wait().expect("asked"), None, "it cannot end before it is read");
        tokio::task::yield_now().await;
    }
    let (stdout, status) = tokio::task::spawn_blocking(move || {
        let mut stdout = String::new();
        child.stdout.take().expect("a pipe").read_to_string(&mut stdout).expect("text");
        (stdout, child.wait().expect("it ends"))
    })
    .await
    .expect("read");
    assert!(stdout.len() > 200_000, "{} bytes would fit a pipe: 64 KiB on Linux", stdout.len());
    assert_eq!(status.code(), Some(0));
    let events: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event["seq"], index, "no gap");
    }
    assert_eq!(events.last().expect("events")["kind"], "run.finished");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_for_people_that_nobody_reads_does_not_stall_the_run() {
    let model = FakeLlm::start(long_task(160, 1_000)).await.expect("a server");
    let host = host(&model);
    let mut child = host
        .command()
        .args(["--max-steps", "200", "task"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    while model.remaining() > 0 {
        assert_eq!(child.try_wait().expect("asked"), None);
        tokio::task::yield_now().await;
    }
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await.expect("waited").expect("output");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()), (Some(0), "终于完成\n"));
    assert!(output.stderr.len() > 70_000, "{} bytes would fit a pipe", output.stderr.len());
    drop(host);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_on_file_sizes_is_an_error_and_not_a_death() {
    let model = FakeLlm::start(long_task(3, 8_000)).await.expect("a server");
    let host = host(&model);
    let out = host.path().join("out.jsonl");
    let policy = host.path().join("policy0.toml");
    let script = format!(
        "ulimit -f 8; exec '{}' --plugins '{}' --policy '{}' --json --max-steps 50 task > '{}'",
        host_program().display(),
        guests_dir().display(),
        policy.display(),
        out.display()
    );
    let url = format!("{}/v1", model.url());
    let output = tokio::task::spawn_blocking(move || {
        let mut command = Command::new("sh");
        command.args(["-c", &script]).env_clear().env("OPENAI_BASE_URL", url).env("PATH", "/usr/bin:/bin");
        (command.output().expect("a shell"), host)
    });
    let (output, _host) = output.await.expect("it ran");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot write to stdout: File too large"), "{stderr}");
}
