//! Components that other people's compilers made, called by the program itself, under a policy.
//!
//! `cargo xtask languages` builds them. What this machine cannot build is skipped here, with the reason; where `CI` is set,
//! nothing is.

mod callers;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use honeycomb_tests::host::{host_program, workspace};
use serde_json::{Value, json};

/// A name of 129 characters, as it is shortened.
const LONG: &str = "a23456789-b23456789-c23456789-d23456789-e23456789-f2345_1e743a38";

#[test]
fn a_python_component_answers() {
    answers("python");
}

#[test]
fn a_javascript_component_answers() {
    answers("javascript");
}

#[test]
fn a_rust_component_without_the_sdk_answers() {
    answers("typed-rust");
}

fn answers(id: &str) {
    let Some(host) = Host::with(id) else { return };
    host.describes_itself();
    host.maps_every_type();
    host.says_what_is_wrong_with_arguments();
    host.reaches_what_is_granted_and_nothing_else();
    host.answers_an_agent();
    host.answers_an_mcp_client();
}

/// The program, with one component and a policy for it.
struct Host {
    id: &'static str,
    directory: tempfile::TempDir,
    server: String,
}

impl Host {
    fn with(id: &str) -> Option<Self> {
        let id = ["python", "javascript", "typed-rust"].into_iter().find(|known| *known == id)?;
        let built = workspace().join("target/typed");
        let component = built.join(format!("{id}.wasm"));
        if !component.is_file() {
            let reason = std::fs::read_to_string(built.join(format!("{id}.skipped")))
                .unwrap_or_else(|_| "`cargo xtask languages` has not run".to_owned());
            skipped(id, &reason);
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let server = serve();
        std::fs::create_dir(directory.path().join("plugins")).expect("a directory");
        std::fs::create_dir(directory.path().join("data")).expect("a directory");
        std::fs::copy(component, directory.path().join(format!("plugins/{id}.wasm"))).expect("a copy");
        let (host, port) = server.rsplit_once(':').expect("a port");
        let policy = format!(
            r#"
            version = 1
            [limits]
            max_output = "2MiB"     # a mebibyte has 1.4 million characters in base64
            [plugins.{id}]
            [[plugins.{id}.tools]]
            name = "*"
            decision = "allow"
            [[plugins.{id}.net]]
            host = "{host}"
            scheme = "http"
            port = {port}
            path = "/allowed"
            private = ["127.0.0.1/32"]
            [[plugins.{id}.fs]]
            host = "data"
            guest = "/data"
            mode = "rw"
            "#
        );
        std::fs::write(directory.path().join("policy.toml"), policy).expect("a policy");
        Some(Self { id, directory, server })
    }

    fn run(&self, arguments: &[&str]) -> Value {
        self.run_with(arguments, "")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(host_program());
        command.current_dir(self.directory.path()).args([
            "--json",
            "--policy",
            "policy.toml",
            "--state-dir",
            "state",
            "--cache-dir",
        ]);
        // Kept between runs: a component of this size takes a quarter of a minute to compile.
        command.arg(workspace().join("target/typed/cache")).args(arguments);
        command
    }

    fn run_with(&self, arguments: &[&str], input: &str) -> Value {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{arguments:?}: {error}: {}", String::from_utf8_lossy(&output.stdout));
        })
    }

    fn call(&self, tool: &str, arguments: &Value) -> Value {
        self.run_with(&["call", &format!("{}/{tool}", self.id), "--args", "-"], &arguments.to_string())
    }

    /// The structured result of a call that ends well.
    fn result(&self, tool: &str, arguments: &Value) -> Value {
        let answer = self.call(tool, arguments);
        assert_eq!(answer["status"], "ok", "{}: {tool}: {answer}", self.id);
        answer["structured"].clone()
    }

    /// The code and message of a call that does not.
    fn error(&self, tool: &str, arguments: &Value) -> (String, String) {
        let answer = self.call(tool, arguments);
        let text = |key: &str| answer["error"][key].as_str().unwrap_or_else(|| panic!("{tool}: {answer}")).to_owned();
        (text("code"), text("message"))
    }

    fn describes_itself(&self) {
        let file = format!("plugins/{}.wasm", self.id);
        let inspected = self.run(&["inspect", &file]);
        assert_eq!(inspected["kind"], "typed", "{inspected}");
        let tools = inspected["tools"].as_array().expect("tools");
        let tool = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{name}: {inspected}"));
        assert_eq!(tools.len(), 15);
        assert_eq!(tool("shapes__move-point")["description"], "Moves a point by `distance` and returns it.");
        assert_eq!(tool("shapes__move-point")["input_schema"]["properties"]["distance"]["maximum"], 255);
        assert_eq!(tool("data__extremes")["output_schema"]["required"], json!(["result"]));
        assert_eq!(tool("greet")["description"], "Greets someone by name.");
    }

    fn maps_every_type(&self) {
        for (tool, arguments, expected) in [
            ("greet", json!({"name": "世界 🦀"}), json!({"result": "Hello, 世界 🦀!"})),
            (LONG, json!({}), json!({"result": true})),
            (
                "shapes__move-point",
                json!({"point": {"x": 1, "y": 2, "label": "é"}, "direction": "west", "distance": 255}),
                json!({"x": -254, "y": 2, "label": "é"}),
            ),
            ("shapes__area", json!({"shape": {"tag": "empty"}}), json!({"result": 0.0})),
            ("shapes__bounds", json!({"points": []}), json!({"result": null})),
            ("shapes__invert", json!({"permissions": ["write"]}), json!({"result": ["read", "execute"]})),
            (
                "shapes__divide",
                json!({"dividend": "9223372036854775807", "divisor": 1}),
                json!({"result": "9223372036854775807"}),
            ),
            ("data__reverse", json!({"data": ""}), json!({"result": ""})),
            ("data__extremes", json!({}), json!({"result": ["18446744073709551615", "-9223372036854775808"]})),
            ("data__count", json!({"text": "a🦀a"}), json!({"result": [["a", 2], ["🦀", 1]]})),
            ("data__nested", json!({"value": {"some": null}}), json!({"result": {"some": null}})),
            ("data__nested", json!({}), json!({"result": null})),
        ] {
            assert_eq!(self.result(tool, &arguments), expected, "{}: {tool}", self.id);
        }
        // 1 MiB and four bytes more, so that base64 pads.
        let encoded = format!("{}AQIDBA==", "AAAA".repeat((1 << 20) / 3));
        let reversed = self.result("data__reverse", &json!({"data": encoded}));
        let reversed = reversed["result"].as_str().expect("base64");
        assert!(reversed.starts_with("BAMCAQAA") && reversed.len() == encoded.len(), "{}", &reversed[..20]);
    }

    fn says_what_is_wrong_with_arguments(&self) {
        for (tool, arguments, code, words) in [
            ("shapes__area", json!({"shape": {"tag": "polygon", "val": []}}), "tool.failed", "at least 3 corners"),
            ("shapes__divide", json!({"dividend": 1, "divisor": 0}), "tool.failed", r#"{"tag":"by-zero"}"#),
            ("data__not-a-number", json!({}), "result.invalid", "NaN is no JSON number"),
            ("shapes__area", json!({"shape": {"tag": "square"}}), "args.invalid", "/shape"),
            ("greet", json!({}), "args.invalid", "name"),
            ("data__reverse", json!({"data": "%"}), "args.invalid", "/data"),
        ] {
            let (found, message) = self.error(tool, &arguments);
            assert!(found == code && message.contains(words), "{}: {tool}: {found}: {message}", self.id);
        }
        let answer = self.run_with(&["call", &format!("{}/greet", self.id), "--args", "-"], r#"{"name":"\ud800"}"#);
        assert!(answer["error"]["message"].as_str().is_some_and(|message| message.contains("JSON")), "{answer}");
    }

    fn reaches_what_is_granted_and_nothing_else(&self) {
        let url = |path: &str| json!({"url": format!("http://{}{path}", self.server)});
        assert_eq!(self.result("outside__fetch", &url("/allowed/x")), json!({"status": 203, "body": "你好"}));
        let (code, message) = self.error("outside__fetch", &url("/elsewhere"));
        assert_eq!(code, "http.denied", "{}: {message}", self.id);

        let file = |path: &str, text: &str| json!({"path": path, "text": text});
        assert_eq!(self.result("outside__write-file", &file("/data/a.txt", "é🦀")), Value::Null);
        assert_eq!(std::fs::read_to_string(self.directory.path().join("data/a.txt")).expect("written"), "é🦀");
        assert_eq!(self.result("outside__read-file", &json!({"path": "/data/a.txt"})), json!({"result": "é🦀"}));
        let (code, message) = self.error("outside__read-file", &json!({"path": "/etc/passwd"}));
        assert!(code == "tool.failed" || code == "cap.denied", "{}: {code}: {message}", self.id);
    }
}

/// A server on this machine that greets whoever asks; its address.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = Vec::new();
            let mut buffer = [0; 1024];
            while !request.windows(4).any(|window| window == b"\r\n\r\n") {
                match stream.read(&mut buffer) {
                    Ok(0) | Err(_) => break,
                    Ok(read) => request.extend_from_slice(&buffer[..read]),
                }
            }
            let body = "你好";
            let head = format!("HTTP/1.1 203 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    address
}

/// Says so where `cargo test` does not hide it.
fn skipped(id: &str, reason: &str) {
    let _ = writeln!(std::io::stderr().lock(), "SKIPPED {id}: {reason}");
}
