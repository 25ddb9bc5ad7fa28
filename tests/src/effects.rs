//! One server on loopback that is both sides of a task: a model that makes one call a turn, and the service that the calls change.
//!
//! The model goes by the conversation that it is sent, not by what it was asked before, so it answers a process that goes on with a
//! task as it would have answered the one that was killed.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::fakellm::render;

/// The running server. It ends with the process.
pub struct Effects {
    port: u16,
    state: Arc<Shared>,
}

struct Shared {
    steps: usize,
    port: u16,
    delay: Duration,
    log: Mutex<Log>,
    changed: Condvar,
}

#[derive(Default)]
struct Log {
    /// How often each path was asked for.
    effects: BTreeMap<String, usize>,
    /// The tasks that the model was asked about.
    tasks: Vec<String>,
    /// The results that the model was given, by task.
    results: BTreeMap<String, Vec<String>>,
}

impl Effects {
    /// A model that makes `steps` calls, each in a turn of its own, and says `done`. In turn, a call changes something (a request by the
    /// tool of `misbehave`, which declares nothing) and looks something up (a page by `fetch`, which is idempotent). Each answer takes
    /// `delay`, half of it after the effect.
    ///
    /// # Panics
    ///
    /// Panics when loopback has no free port.
    pub fn start(steps: usize, delay: Duration) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(Shared { steps, port, delay, log: Mutex::default(), changed: Condvar::new() });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.answer(&stream));
            }
        });
        Self { port, state }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What a policy must grant for the calls.
    pub fn policy(&self) -> String {
        let grant = |plugin: &str, tool: &str| {
            format!(
                "[[plugins.{plugin}.tools]]\nname = \"{tool}\"\ndecision = \"allow\"\n[[plugins.{plugin}.net]]\n\
                 host = \"127.0.0.1\"\nscheme = \"http\"\nport = {port}\nmethods = [\"GET\", \"POST\"]\n\
                 private = [\"127.0.0.1/32\"]\n",
                port = self.port
            )
        };
        format!("version = 1\n{}{}", grant("misbehave", "request"), grant("fetch", "fetch_page"))
    }

    /// How often each effect of a task happened: of those that may happen once, and of those that may be repeated.
    pub fn of(&self, task: &str) -> (Vec<usize>, Vec<usize>) {
        let log = self.state.log();
        let count = |step: usize| log.effects.get(&format!("/{task}/{step}")).copied().unwrap_or(0);
        let steps = 0..self.state.steps;
        (steps.clone().step_by(2).map(count).collect(), steps.skip(1).step_by(2).map(count).collect())
    }

    /// The results that the model was last given for a task.
    pub fn results(&self, task: &str) -> Vec<String> {
        self.state.log().results.get(task).cloned().unwrap_or_default()
    }

    /// Waits until the model was asked about a task. False if that takes longer than a minute.
    pub fn wait_for(&self, task: &str) -> bool {
        let log = self.state.log();
        let asked = |log: &mut Log| !log.tasks.iter().any(|known| known == task);
        let waited = self.state.changed.wait_timeout_while(log, Duration::from_secs(60), asked);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, stream: &TcpStream) {
        let Some((path, body)) = request(stream) else { return };
        let (content_type, body) = if path == "/v1/chat/completions" {
            ("text/event-stream", self.think(&body))
        } else {
            thread::sleep(self.delay / 2);
            *self.log().effects.entry(path.clone()).or_default() += 1;
            ("text/plain", format!("did {path}"))
        };
        thread::sleep(self.delay / 2);
        let mut writer = stream;
        // A client that was killed is what this is for.
        let _ = write!(
            writer,
            "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
    }

    /// The model: makes the call that comes after those in the conversation.
    fn think(&self, body: &[u8]) -> String {
        let request: Value = serde_json::from_slice(body).unwrap_or_default();
        let messages = request["messages"].as_array().cloned().unwrap_or_default();
        let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
        let task = messages.iter().rfind(|message| message["role"] == "user").map(text).unwrap_or_default();
        let done = messages.iter().filter(|message| message["tool_calls"].is_array()).count();
        let results = messages.iter().filter(|message| message["role"] == "tool").map(text).collect();
        {
            let mut log = self.log();
            log.tasks.push(task.clone());
            log.results.insert(task.clone(), results);
            self.changed.notify_all();
        }
        if done >= self.steps {
            return render::openai_text(&["done"]);
        }
        let url = format!("http://127.0.0.1:{}/{task}/{done}", self.port);
        let id = format!("call_{done}");
        if done.is_multiple_of(2) {
            let arguments = serde_json::json!({ "method": "POST", "url": url }).to_string();
            render::openai_calls(&[(&id, "misbehave__request", &arguments)])
        } else {
            render::openai_calls(&[(&id, "fetch__fetch_page", &serde_json::json!({ "url": url }).to_string())])
        }
    }
}

/// Path and body of a request.
fn request(stream: &TcpStream) -> Option<(String, Vec<u8>)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split_whitespace().nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header).ok()? == 0 || header == "\r\n" {
            break;
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, body))
}
