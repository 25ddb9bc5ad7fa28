//! The same components, called by an agent and by an MCP client.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use serde_json::{Value, json};

use super::Host;

impl Host {
    /// An agent calls it: one request is granted, one is not, and the model reads what became of both.
    pub(super) fn answers_an_agent(&self) {
        let (tool, server) = (format!("{}__outside__fetch", self.id), &self.server);
        let script = format!(
            r#"
            version = 1
            model = "scripted"
            [[turns]]
            [turns.expect]
            tools = ["{tool}"]
            [[turns.reply.calls]]
            tool = "{tool}"
            arguments = {{ url = "http://{server}/allowed/x" }}
            [[turns.reply.calls]]
            tool = "{tool}"
            arguments = {{ url = "http://{server}/elsewhere" }}
            [[turns]]
            [[turns.expect.results]]
            tool = "{tool}"
            status = "ok"
            contains = ["你好"]
            [[turns.expect.results]]
            tool = "{tool}"
            status = "error"
            contains = ["http.denied"]
            [turns.reply]
            text = "好"
            "#
        );
        std::fs::write(self.directory.path().join("script.toml"), script).expect("written");
        let output = self.command(&["--model", "scripted:script.toml", "fetch"]).output().expect("it ends");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(output.status.success(), "{}: {text}", self.id);
        let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let ended: Vec<&Value> = events.iter().filter(|event| event["kind"] == "tool.completed").collect();
        assert_eq!(ended.len(), 2, "{text}");
        assert!(ended[0]["status"] == "ok" && ended[0]["preview"].as_str().is_some_and(|shown| shown.contains("你好")), "{text}");
        assert_eq!(ended[1]["code"], "http.denied", "{text}");
    }

    /// An MCP client calls it.
    pub(super) fn answers_an_mcp_client(&self) {
        let mut child = self.command(&["mcp"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut input = child.stdin.take().expect("a pipe");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut ask = |id: u64, method: &str, params: &Value| -> Value {
            writeln!(input, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).expect("sent");
            loop {
                let line = lines.next().expect("an answer").expect("UTF-8");
                let answer: Value = serde_json::from_str(&line).expect("JSON");
                if answer["id"] == id {
                    return answer["result"].clone();
                }
            }
        };
        let client = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        ask(1, "initialize", &client);
        let tool = format!("{}__outside__fetch", self.id);
        let listed = ask(2, "tools/list", &json!({}));
        let names: Vec<&str> =
            listed["tools"].as_array().expect("tools").iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert!(names.contains(&tool.as_str()), "{names:?}");
        let mut fetch = |id: u64, path: &str| {
            let url = format!("http://{}{path}", self.server);
            ask(id, "tools/call", &json!({"name": tool, "arguments": {"url": url}}))
        };
        let granted = fetch(3, "/allowed/x");
        assert_eq!(granted["structuredContent"], json!({"status": 203, "body": "你好"}), "{}: {granted}", self.id);
        let denied = fetch(4, "/elsewhere");
        assert_eq!(denied["isError"], true, "{}: {denied}", self.id);
        assert_eq!(denied["_meta"]["honeycomb/error"]["code"], "http.denied", "{}: {denied}", self.id);
        // The end of its input ends the server.
        drop(input);
        assert!(child.wait().expect("it ends").success());
    }
}
