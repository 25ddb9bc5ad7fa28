//! The official conformance suite against the HTTP server: what it must pass, and what it is known not to.
//!
//! `cargo xtask mcp` installs the suite. Where this machine cannot, the test says so and passes; where `CI` is set, it fails.

use std::process::Command;

use honeycomb_tests::host::{Host, guests_dir, workspace};
use honeycomb_tests::mcp::Server;
use honeycomb_tests::news::tell;

use super::clients::installed;

/// What the suite must have found to pass; it may find more to.
const PASS: [&str; 16] = [
    "server-initialize",
    "logging-set-level",
    "ping",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-with-logging",
    "tools-call-error",
    "tools-call-with-progress",
    "json-schema-2020-12",
    "server-sse-polling",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
];

#[test]
fn passes_the_official_conformance_suite_but_for_the_failures_written_down() {
    let Some(installed) = installed("the MCP conformance suite") else { return };
    let sources = workspace().join("tests/mcp");
    let host = Host::new().plugins(guests_dir()).policy_file(sources.join("policy.toml"));
    let server = Server::start(&host, &["--bare-names", "conformance"]);
    // The suite does not wait for tools that come later.
    server.begin();
    let output = Command::new(installed.join("node/node"))
        .current_dir(host.path())
        .arg(installed.join("node_modules/@modelcontextprotocol/conformance/dist/index.js"))
        .args(["server", "--url", &format!("http://{}/mcp", server.address), "--suite", "all", "--expected-failures"])
        .arg(sources.join("expected-failures.yml"))
        // A proxy in the environment is not for loopback.
        .env("NO_PROXY", "127.0.0.1")
        .output()
        .expect("Node starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {stdout}\n{stderr}", output.status);
    let summary = stdout.split_once("=== SUMMARY ===").expect("a summary").1;
    let passed: Vec<&str> = summary.lines().filter_map(|line| line.trim().strip_prefix("✓ ")?.split(':').next()).collect();
    tell(&format!("mcp conformance: passed {}: {}", passed.len(), passed.join(", ")));
    for scenario in PASS {
        assert!(passed.contains(&scenario), "`{scenario}` is not among {passed:?}");
    }
}
