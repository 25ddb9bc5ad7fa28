//! The tests' model server, as a program, before the providers' official Python clients: what pleases them is what the providers send.
//!
//! `cargo xtask clients` installs them. Where this machine cannot, the tests say so and pass; where `CI` is set, they fail.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use honeycomb_tests::host::workspace;
use honeycomb_tests::news::skipped;

#[test]
fn the_official_openai_client_accepts_the_model_server() {
    accepts("openai");
}

#[test]
fn the_official_anthropic_client_accepts_the_model_server() {
    accepts("anthropic");
}

fn accepts(client: &str) {
    let (clients, sources) = (workspace().join("target/clients"), workspace().join("tests/clients"));
    let python = clients.join("env/bin/python");
    if !clients.join("stamp").is_file() {
        let reason = std::fs::read_to_string(clients.join("skipped"));
        skipped(client, &reason.unwrap_or_else(|_| "`cargo xtask clients` has not run".to_owned()));
        return;
    }
    let mut server = Command::new(env!("CARGO_BIN_EXE_fakellm"))
        .arg(sources.join("script.toml"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut url = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut url).expect("its address");
    let output = Command::new(python)
        .arg(sources.join("clients.py"))
        .args([client, url.trim()])
        // A proxy in the environment is not for loopback.
        .env("NO_PROXY", "127.0.0.1")
        .env("PYTHONUTF8", "1")
        .output()
        .expect("Python starts");
    server.kill().expect("it was running");
    server.wait().expect("it ended");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(stdout.trim(), "ok", "{stderr}");
}
