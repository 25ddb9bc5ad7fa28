//! A model server for tests that says exactly the bytes its script says, when it says so.
//!
//! Plain TCP and HTTP/1.1, one request a connection: chunk boundaries, stalls and broken connections are part of the script, which a
//! library that speaks correct HTTP would not allow. With [`FakeLlm::strict`] it also refuses what the real providers refuse.

pub mod render;
pub mod script;
pub mod validate;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use self::script::Answer;

/// The largest request that it reads, in bytes.
const MAX_REQUEST: usize = 64 << 20;

/// A running server. It stops when it is dropped.
#[derive(Debug)]
pub struct FakeLlm {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    answers: VecDeque<Answer>,
    requests: Vec<RecordedRequest>,
    checks: Checks,
}

/// What is refused.
#[derive(Clone, Copy, Debug, Default)]
enum Checks {
    /// Nothing.
    #[default]
    None,
    /// Bodies that this validator refuses.
    Body(Validator),
    /// Whatever the provider that the path belongs to would refuse: also unknown paths, and requests without a key.
    Everything,
}

/// Checks a request's body; the error is what the provider would say with status 400.
pub type Validator = fn(&Value) -> Result<(), String>;

/// A request as it came in.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// `POST`, usually.
    pub method: String,
    /// The path, with its query.
    pub path: String,
    /// Header names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body; null if it is not JSON.
    pub body: Value,
}

impl RecordedRequest {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Whether it is for Anthropic's messages.
    pub(crate) fn is_anthropic(&self) -> bool {
        self.path.split('?').next().is_some_and(|path| path.ends_with("/messages"))
    }
}

/// One scripted answer.
#[derive(Clone, Debug)]
pub struct Exchange {
    status: u16,
    headers: Vec<(String, String)>,
    before_headers: Option<Signal>,
    steps: Vec<Step>,
}

/// What the server does next.
#[derive(Clone, Debug)]
pub enum Step {
    /// Sends bytes at once.
    Bytes(Vec<u8>),
    /// Waits until somebody fires the signal; one that nobody fires is a stall.
    Wait(Signal),
    /// Waits for a time, for tests of time limits.
    Pause(std::time::Duration),
    /// Closes the connection in order. The end of the steps does the same.
    Close,
    /// Resets the connection.
    Reset,
}

/// Tells the server to go on.
#[derive(Clone, Debug, Default)]
pub struct Signal(Arc<Notify>);

impl Signal {
    /// Lets one waiting step, or the next to wait, go on.
    pub fn fire(&self) {
        self.0.notify_one();
    }
}

impl Exchange {
    /// An answer with a status, a content type and no body yet.
    pub fn new(status: u16, content_type: &str) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Self { status, headers, before_headers: None, steps: Vec::new() }
    }

    /// A JSON answer.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json").bytes(body.to_string())
    }

    /// A stream of server-sent events, all sent at once.
    pub fn stream(body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, "text/event-stream; charset=utf-8").bytes(body)
    }

    /// Adds a header, or replaces the content type.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(found, _)| found != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Removes a header.
    #[must_use]
    pub fn without_header(mut self, name: &str) -> Self {
        self.headers.retain(|(found, _)| found != name);
        self
    }

    /// Sends nothing, not even the status, before the signal.
    #[must_use]
    pub fn before_headers(mut self, signal: Signal) -> Self {
        self.before_headers = Some(signal);
        self
    }

    /// Adds bytes to the body.
    #[must_use]
    pub fn bytes(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.step(Step::Bytes(bytes.into()))
    }

    /// Adds a step.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

impl FakeLlm {
    /// Starts a server on loopback that gives these answers in turn, and status 500 after the last.
    ///
    /// # Errors
    ///
    /// Returns the error of binding to a port.
    pub async fn start(exchanges: impl IntoIterator<Item = Exchange>) -> std::io::Result<Self> {
        Self::listen(0, exchanges.into_iter().map(Answer::Exchange).collect(), Checks::None).await
    }

    /// Like [`FakeLlm::start`], and answers 400 to requests that the validator refuses, without using up an answer.
    ///
    /// # Errors
    ///
    /// Returns the error of binding to a port.
    pub async fn strict(exchanges: impl IntoIterator<Item = Exchange>, validator: Validator) -> std::io::Result<Self> {
        Self::listen(0, exchanges.into_iter().map(Answer::Exchange).collect(), Checks::Body(validator)).await
    }

    /// Starts a server on a port of loopback (0: any) that speaks both protocols; if it is strict, it refuses whatever their providers
    /// refuse.
    ///
    /// # Errors
    ///
    /// Returns the error of binding to the port.
    pub async fn scripted(port: u16, answers: Vec<Answer>, strict: bool) -> std::io::Result<Self> {
        Self::listen(port, answers.into(), if strict { Checks::Everything } else { Checks::None }).await
    }

    async fn listen(port: u16, answers: VecDeque<Answer>, checks: Checks) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Mutex::new(Shared { answers, requests: Vec::new(), checks }));
        let server = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&server);
                // A client that goes away is part of many tests.
                connections.spawn(async move { serve(stream, &shared).await.unwrap_or_default() });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, shared, task })
    }

    /// The server's address, as `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        lock(&self.shared).requests.clone()
    }

    /// How many answers have not been given.
    pub fn remaining(&self) -> usize {
        lock(&self.shared).answers.len()
    }
}

impl Drop for FakeLlm {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Checks {
    fn refusal(self, request: &RecordedRequest) -> Option<Exchange> {
        let is_anthropic = request.is_anthropic();
        let refuse = |status, kind: &str, message: &str| {
            let error = if is_anthropic { render::anthropic_error(kind, message) } else { render::openai_error(kind, message) };
            Some(Exchange::json(status, &error))
        };
        let validator = match self {
            Self::None => return None,
            Self::Body(validator) => validator,
            Self::Everything => {
                let path = request.path.split('?').next().unwrap_or_default();
                if !is_anthropic && !path.ends_with("/chat/completions") || request.method != "POST" {
                    return refuse(404, "invalid_request_error", &format!("Invalid URL ({} {path})", request.method));
                }
                // Anthropic takes a key in either, and its client has used both.
                let key = request.header("x-api-key").filter(|_| is_anthropic).or_else(|| request.header("authorization"));
                match key.map(|key| key.trim_start_matches("Bearer ").trim()) {
                    None | Some("") if is_anthropic => {
                        return refuse(401, "authentication_error", "x-api-key header is required");
                    }
                    None | Some("") => {
                        let message = "You didn't provide an API key. You need to provide your API key in an Authorization header \
                            using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).";
                        return refuse(401, "invalid_request_error", message);
                    }
                    Some(_) if is_anthropic && request.header("anthropic-version").is_none() => {
                        return refuse(400, "invalid_request_error", "anthropic-version: header is required");
                    }
                    Some(_) if is_anthropic => validate::anthropic,
                    Some(_) => validate::openai,
                }
            }
        };
        validator(&request.body).err().and_then(|message| refuse(400, "invalid_request_error", &message))
    }
}

async fn serve(mut stream: TcpStream, shared: &Mutex<Shared>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let Some(request) = read_request(&mut stream).await? else { return Ok(()) };
    let exchange = {
        let mut shared = lock(shared);
        let refusal = shared.checks.refusal(&request);
        let exchange = refusal.unwrap_or_else(|| match shared.answers.pop_front() {
            Some(answer) => answer.exchange(&request),
            None => Exchange::new(500, "text/plain").bytes("no answer is left"),
        });
        shared.requests.push(request);
        exchange
    };
    if let Some(signal) = &exchange.before_headers {
        signal.0.notified().await;
    }
    let mut head = format!("HTTP/1.1 {} Scripted\r\nconnection: close\r\n", exchange.status);
    for (name, value) in &exchange.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await?;
    for step in exchange.steps {
        match step {
            Step::Bytes(bytes) => {
                stream.write_all(&bytes).await?;
                stream.flush().await?;
            }
            Step::Wait(signal) => signal.0.notified().await,
            Step::Pause(duration) => tokio::time::sleep(duration).await,
            Step::Close => break,
            Step::Reset => {
                stream.set_zero_linger()?;
                return Ok(());
            }
        }
    }
    stream.shutdown().await
}

async fn read_request(stream: &mut TcpStream) -> std::io::Result<Option<RecordedRequest>> {
    let mut received = Vec::new();
    let head_end = loop {
        if let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if received.len() > MAX_REQUEST || stream.read_buf(&mut received).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&received[..head_end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let mut body = received.split_off(head_end + 4);
    while body.len() < length && body.len() <= MAX_REQUEST {
        if stream.read_buf(&mut body).await? == 0 {
            return Ok(None);
        }
    }
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Ok(Some(RecordedRequest { method, path, headers, body }))
}
