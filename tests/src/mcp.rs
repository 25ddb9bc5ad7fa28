//! MCP clients for tests: strict JSON-RPC over the program's pipes, and raw HTTP to its port.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::host::Host;

/// How long anything may take. Plugins may have to be compiled first, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The program as a stdio server, and what it has sent and nobody has asked for yet.
pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
    unread: VecDeque<Value>,
    next_id: u64,
    /// The program has its policy and its audit file in it.
    _directory: Arc<tempfile::TempDir>,
}

impl Client {
    /// Starts `mcp` with further arguments. Sends nothing yet.
    ///
    /// # Panics
    ///
    /// Panics when the program does not start.
    pub fn start(host: &Host, arguments: &[&str]) -> Self {
        let mut command = host.command();
        command.arg("mcp").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let (sender, lines) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut stderr = child.stderr.take().expect("piped");
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let input = child.stdin.take();
        let unread = VecDeque::new();
        Self { child, input, lines, errors: Some(errors), unread, next_id: 0, _directory: host.directory() }
    }

    /// Starts `mcp`, and a session with these capabilities in this protocol version. Returns the server's answer too.
    ///
    /// # Panics
    ///
    /// Panics when the server does not answer as it must.
    pub fn begin(host: &Host, arguments: &[&str], version: &str, capabilities: &Value) -> (Self, Value) {
        let mut client = Self::start(host, arguments);
        let answer = client.request("initialize", initialize(version, capabilities));
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        (client, answer["result"].clone())
    }

    /// Sends a message.
    ///
    /// # Panics
    ///
    /// Panics when the server does not read.
    pub fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string());
    }

    /// Sends a line, whatever it is.
    ///
    /// # Panics
    ///
    /// Panics when the server does not read.
    pub fn send_line(&mut self, line: &str) {
        let input = self.input.as_mut().expect("the input is open");
        input.write_all(line.as_bytes()).and_then(|()| input.write_all(b"\n")).and_then(|()| input.flush()).expect("sent");
    }

    /// Sends a request and returns its id.
    #[expect(clippy::needless_pass_by_value, reason = "tests write `json!` in place")]
    pub fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params}));
        self.next_id
    }

    /// Sends a request and waits for its answer.
    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.answer(id)
    }

    /// Calls a tool and returns the result.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))["result"].clone()
    }

    /// Waits for the answer to a request.
    pub fn answer(&mut self, id: u64) -> Value {
        self.wait(|message| message["id"] == id && message.get("method").is_none())
    }

    /// Waits for a request or notification of the server.
    pub fn told(&mut self, method: &str) -> Value {
        self.wait(|message| message["method"] == method)
    }

    /// Waits for a message; others stay unread.
    ///
    /// # Panics
    ///
    /// Panics when it does not come, or when the server sends anything but JSON-RPC 2.0.
    pub fn wait(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.unread.iter().position(&wanted) {
            return self.unread.remove(at).expect("found just now");
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|error| panic!("{error}; unread: {:?}", self.unread));
            let message = strict(&line);
            if wanted(&message) {
                return message;
            }
            self.unread.push_back(message);
        }
    }

    /// What was sent and not asked for.
    pub fn unread(&self) -> &VecDeque<Value> {
        &self.unread
    }

    /// Waits until the plugins are loaded; `params` go with each question for the tools.
    ///
    /// # Panics
    ///
    /// Panics when there are no tools in the end.
    pub fn ready(&mut self, params: &Value) {
        // Each answer takes up to the 25 s that a request waits for the plugins.
        for _ in 0..6 {
            let list = self.request("tools/list", params.clone());
            if list["result"]["tools"].as_array().is_some_and(|tools| !tools.is_empty()) {
                self.unread.retain(|message| message["method"] != "notifications/tools/list_changed");
                return;
            }
        }
        panic!("there are no tools");
    }

    /// Closes the input, and returns how the program ended, what it had still sent, and its stderr.
    pub fn end(mut self) -> (ExitStatus, Vec<Value>, String) {
        drop(self.input.take());
        self.ended()
    }

    /// Like [`Client::end`], for a program that ends by itself.
    ///
    /// # Panics
    ///
    /// Panics when the program does not end.
    pub fn ended(mut self) -> (ExitStatus, Vec<Value>, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("asked") {
                break status;
            }
            assert!(Instant::now() < deadline, "the program does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let rest = self.unread.drain(..).chain(self.lines.iter().map(|line| strict(&line))).collect();
        let errors = self.errors.take().expect("not yet taken").join().expect("read");
        (status, rest, errors)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The parameters of `initialize`.
pub fn initialize(version: &str, capabilities: &Value) -> Value {
    json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "test", "version": "1"}})
}

fn strict(line: &str) -> Value {
    let message: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("not JSON: {error}: {line:?}"));
    let is_call = message["method"].is_string() && message.get("result").is_none() && message.get("error").is_none();
    let is_answer = message.get("method").is_none() && message.get("id").is_some();
    let has_one = message.get("result").is_some() != message.get("error").is_some();
    assert!(message["jsonrpc"] == "2.0" && (is_call || (is_answer && has_one)), "no JSON-RPC message: {line}");
    message
}

/// The program as an HTTP server.
pub struct Server {
    child: Child,
    /// `address:port`.
    pub address: String,
    _directory: Arc<tempfile::TempDir>,
}

/// An answer over HTTP.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The head, in lower case.
    pub head: String,
    /// The body.
    pub body: String,
}

impl Server {
    /// Starts `mcp --http 127.0.0.1:0` with further arguments.
    ///
    /// # Panics
    ///
    /// Panics when the program does not say where it listens.
    pub fn start(host: &Host, arguments: &[&str]) -> Self {
        let mut command = host.command();
        command.args(["mcp", "--http", "127.0.0.1:0"]).args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut errors = BufReader::new(child.stderr.take().expect("piped"));
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(errors.read_line(&mut line).expect("read") > 0, "the program ended: {said}");
            if let Some((_, rest)) = line.split_once("http://") {
                break rest.trim_end().trim_end_matches("/mcp").to_owned();
            }
            said.push_str(&line);
        };
        // A full pipe would block the program.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        Self { child, address, _directory: host.directory() }
    }

    /// Sends a POST with a JSON body; `headers` replace the usual ones of the same name.
    pub fn post(&self, headers: &[(&str, &str)], body: &Value) -> Answer {
        let body = body.to_string();
        let length = body.len().to_string();
        let usual = [
            ("host", self.address.as_str()),
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("content-length", length.as_str()),
        ];
        let usual = usual.iter().filter(|(name, _)| !headers.iter().any(|(other, _)| other == name));
        let head: String = usual.chain(headers).map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        self.exchange(&format!("POST /mcp HTTP/1.1\r\nconnection: close\r\n{head}\r\n{body}"))
    }

    /// Begins a session, waits until the plugins are loaded, and returns the session's id.
    ///
    /// # Panics
    ///
    /// Panics when the server refuses.
    pub fn begin(&self) -> String {
        let answer = self.post(&[], &request(1, "initialize", initialize("2025-11-25", &json!({}))));
        assert_eq!(answer.status, 200, "{answer:?}");
        let session = answer.header("mcp-session-id").expect("a session").to_owned();
        for _ in 0..6 {
            let list = self.post(&[("mcp-session-id", &session)], &request(0, "tools/list", json!({})));
            if list.events().iter().any(|event| event["result"]["tools"].as_array().is_some_and(|tools| !tools.is_empty())) {
                return session;
            }
        }
        panic!("there are no tools");
    }

    /// Sends a request as it stands, and reads the answer to its end.
    ///
    /// # Panics
    ///
    /// Panics when the connection breaks.
    pub fn exchange(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        // A server that refuses a large body answers before it has read it, and may then reset the connection.
        let sent = stream.write_all(request.as_bytes());
        let mut raw = Vec::new();
        let read = stream.read_to_end(&mut raw);
        assert!(!raw.is_empty(), "no answer: {sent:?} {read:?}");
        let text = String::from_utf8(raw).expect("UTF-8");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let head = head.to_lowercase();
        let body = if head.contains("transfer-encoding: chunked") { dechunk(body) } else { body.to_owned() };
        Answer { status, head, body }
    }

    /// Asks the program to stop, and returns how it ended.
    ///
    /// # Panics
    ///
    /// Panics when it does not end.
    pub fn stop(mut self) -> ExitStatus {
        let id = self.child.id().to_string();
        let sent = std::process::Command::new("kill").args(["-TERM", &id]).status().expect("`kill` runs");
        assert!(sent.success());
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("asked") {
                return status;
            }
            assert!(Instant::now() < deadline, "the program does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Answer {
    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The messages of an event stream.
    ///
    /// # Panics
    ///
    /// Panics when an event is not JSON.
    pub fn events(&self) -> Vec<Value> {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim).filter(|data| !data.is_empty());
        data.map(|data| serde_json::from_str(data).expect("JSON")).collect()
    }
}

/// A JSON-RPC request.
#[expect(clippy::needless_pass_by_value, reason = "tests write `json!` in place")]
pub fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn dechunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a chunk's size");
        if size == 0 {
            break;
        }
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}
