//! The official clients before the server, over stdio and HTTP: the inspector, and the SDKs of Python and TypeScript.
//!
//! `cargo xtask mcp` installs them. Where this machine cannot, the tests say so and pass; where `CI` is set, they fail.

use std::path::PathBuf;
use std::process::Command;

use honeycomb_tests::host::{Host, workspace};
use honeycomb_tests::mcp::Server;
use honeycomb_tests::news::skipped;
use serde_json::Value;

/// Where `cargo xtask mcp` has installed the clients, unless it could not.
pub(super) fn installed(test: &str) -> Option<PathBuf> {
    let directory = workspace().join("target/mcp");
    if directory.join("stamp").is_file() {
        return Some(directory);
    }
    let reason = std::fs::read_to_string(directory.join("skipped"));
    skipped(test, &reason.unwrap_or_else(|_| "`cargo xtask mcp` has not run".to_owned()));
    None
}

/// The calculator and the tools for text may run; reading files may not.
fn host() -> Host {
    Host::new().policy(
        r#"
version = 1
[[plugins.calculator.tools]]
name = "*"
decision = "allow"
[[plugins.text.tools]]
name = "*"
decision = "allow"
[plugins.files]
[[plugins.files.tools]]
name = "*"
decision = "deny"
"#,
    )
}

/// The words that start the server over stdio, as a client gets them.
fn stdio(host: &Host) -> Vec<String> {
    let command = host.command();
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_str().expect("UTF-8").to_owned()).chain(["mcp".to_owned()]).collect()
}

/// Runs a client against both transports; `words` makes the rest of its command line from where the server is.
fn pleases(test: &str, client: impl Fn(&PathBuf) -> Command) {
    let Some(installed) = installed(test) else { return };
    let host = host();
    let server = Server::start(&host, &[]);
    server.begin();
    let url = format!("http://{}/mcp", server.address);
    for server in [stdio(&host), vec![url]] {
        let output = client(&installed).args(&server).env("NO_PROXY", "127.0.0.1").output().expect("it starts");
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(stdout.trim(), "ok", "{server:?}: {}: {stderr}", output.status);
    }
}

#[test]
fn the_official_python_client_lists_and_calls_tools() {
    pleases("the Python MCP client", |installed| {
        let mut python = Command::new(installed.join("env/bin/python"));
        python.arg(workspace().join("tests/mcp/client.py")).env("PYTHONUTF8", "1");
        python
    });
}

#[test]
fn the_official_typescript_client_lists_and_calls_tools() {
    pleases("the TypeScript MCP client", |installed| {
        // Imports are looked up from where the script is.
        let script = installed.join("client.js");
        std::fs::copy(workspace().join("tests/mcp/client.js"), &script).expect("a copy");
        let mut node = Command::new(installed.join("node/node"));
        node.arg(script);
        node
    });
}

#[test]
fn the_inspector_lists_and_calls_tools() {
    let Some(installed) = installed("the MCP inspector") else { return };
    let host = host();
    let server = Server::start(&host, &[]);
    server.begin();
    let url = format!("http://{}/mcp", server.address);
    for server in [stdio(&host), vec![url, "--transport".to_owned(), "http".to_owned()]] {
        let document = |arguments: &[&str]| -> Value {
            let mut inspector = Command::new(installed.join("node/node"));
            inspector.arg(installed.join("node_modules/@modelcontextprotocol/inspector/cli/build/cli.js")).arg("--cli");
            let output = inspector.args(&server).args(arguments).env("NO_PROXY", "127.0.0.1").output().expect("it starts");
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{server:?} {arguments:?}: {error}: {output:?}"))
        };
        let list = document(&["--method", "tools/list"]);
        let tools = list["tools"].as_array().expect("tools");
        assert!(tools.iter().any(|tool| tool["name"] == "calculator__calculate"), "{list}");
        let call = |tool: &str, tool_arguments: &[&str]| {
            let result = document(&[&["--method", "tools/call", "--tool-name", tool, "--tool-arg"], tool_arguments].concat());
            result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{tool}: {result}")).to_owned()
        };
        assert!(call("calculator__calculate", &["expression=123+456"]).contains("579"));
        assert!(call("text__find_text", &["text=北京，上海", "pattern=北京"]).contains("北京"));
        assert!(call("files__read_file", &["path=/etc/passwd"]).contains("hint:"));
    }
}
