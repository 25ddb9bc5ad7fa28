//! Lines of JSON-RPC over a pair of byte streams: one message a line, as MCP's stdio transport has it.
//!
//! The SDK's own reader drops a line that is not JSON and ends a session that begins with anything but a request. Here a malformed line is
//! answered, and the server lives on.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::JsonRpcMessage;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The longest line, in bytes. A client that sends more without a newline must not fill the host's memory.
const MAX_LINE: usize = 16 * 1024 * 1024;
/// How many lines wait to be written. A client that does not read makes the server wait, not grow.
const WAITING: usize = 16;
/// How long the last lines may take to be written.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Reads and writes lines.
pub(super) struct LineTransport<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    /// The line is too long; what comes until its end is dropped.
    dropping: bool,
    /// The client has sent a request.
    begun: bool,
    /// The answer to a malformed line, while there is no room to send it.
    unsent: Option<Vec<u8>>,
    sender: Arc<Mutex<Option<mpsc::Sender<Vec<u8>>>>>,
    writer: Option<JoinHandle<()>>,
    /// Cancelled at the end of the input.
    ended: CancellationToken,
}

/// What a line is.
#[derive(Debug)]
enum Line {
    Message(Box<RxJsonRpcMessage<RoleServer>>),
    /// To be answered with this.
    Malformed(Value),
    /// Nothing to answer: an empty line, or a notification that nobody knows.
    Nothing,
}

impl<R: AsyncRead + Send + Unpin> LineTransport<R> {
    /// Reads from `input` and writes to `output`; `ended` is cancelled when the input ends.
    pub(super) fn new<W: AsyncWrite + Send + Unpin + 'static>(input: R, output: W, ended: CancellationToken) -> Self {
        let (sender, lines) = mpsc::channel(WAITING);
        Self {
            input: BufReader::new(input),
            line: Vec::new(),
            dropping: false,
            begun: false,
            unsent: None,
            sender: Arc::new(Mutex::new(Some(sender))),
            // A task of its own, so that no half line is left when whoever sends is stopped.
            writer: Some(tokio::spawn(write_lines(output, lines))),
            ended,
        }
    }

    fn sender(&self) -> Option<mpsc::Sender<Vec<u8>>> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads up to the next newline into `self.line`. Returns false at the end. May be dropped at any await and called again.
    async fn read_line(&mut self) -> io::Result<bool> {
        loop {
            let available = self.input.fill_buf().await?;
            if available.is_empty() {
                return Ok(false);
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let taken = newline.unwrap_or(available.len());
            if self.line.len() + taken > MAX_LINE {
                self.dropping = true;
                self.line = Vec::new();
            }
            if !self.dropping {
                self.line.extend_from_slice(&available[..taken]);
            }
            self.input.consume(taken + usize::from(newline.is_some()));
            if newline.is_some() {
                return Ok(true);
            }
        }
    }

    /// Sends the answer to a malformed line. May be dropped at any await and called again. Returns false when nobody reads any more.
    async fn send_unsent(&mut self) -> bool {
        if self.unsent.is_none() {
            return true;
        }
        let Some(sender) = self.sender() else { return false };
        let Ok(permit) = sender.reserve().await else { return false };
        if let Some(line) = self.unsent.take() {
            permit.send(line);
        }
        true
    }
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for LineTransport<R> {
    type Error = io::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleServer>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let sender = self.sender();
        async move {
            let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
            let line = to_line(&message)?;
            sender.ok_or_else(gone)?.send(line).await.map_err(|_| gone())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if !self.send_unsent().await {
                return None;
            }
            match self.read_line().await {
                Ok(true) => {}
                Ok(false) => {
                    self.ended.cancel();
                    return None;
                }
                Err(error) => {
                    tracing::warn!("cannot read from the client: {error}");
                    self.ended.cancel();
                    return None;
                }
            }
            let line = std::mem::take(&mut self.line);
            let parsed = if std::mem::take(&mut self.dropping) {
                Line::Malformed(error(&Value::Null, -32600, &format!("the message is longer than {MAX_LINE} bytes")))
            } else {
                parse(&line)
            };
            match parsed {
                Line::Message(message) => {
                    self.begun |= matches!(*message, JsonRpcMessage::Request(_));
                    // The SDK ends a session that begins otherwise.
                    if self.begun {
                        return Some(*message);
                    }
                    tracing::debug!("dropped a message that came before the session began");
                }
                Line::Malformed(answer) => self.unsent = to_line(&answer).ok(),
                Line::Nothing => {}
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = self.writer.take()
            && tokio::time::timeout(LAST_WORDS, writer).await.is_err()
        {
            tracing::debug!("the client does not read any more");
        }
        Ok(())
    }
}

async fn write_lines<W: AsyncWrite + Unpin>(mut output: W, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        let written = async {
            output.write_all(&line).await?;
            output.flush().await
        };
        if let Err(error) = written.await {
            tracing::debug!("cannot write to the client: {error}");
            return;
        }
    }
}

fn to_line(message: &impl serde::Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

fn parse(line: &[u8]) -> Line {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.iter().all(u8::is_ascii_whitespace) {
        return Line::Nothing;
    }
    match serde_json::from_slice(line) {
        Ok(message) => Line::Message(Box::new(message)),
        Err(_) => match serde_json::from_slice::<Value>(line) {
            Err(cause) => Line::Malformed(error(&Value::Null, -32700, &format!("not valid JSON: {cause}"))),
            Ok(value) => invalid(&value),
        },
    }
}

/// JSON that is no message. JSON-RPC 2.0 section 5: an id that cannot be told is null; a notification is never answered.
fn invalid(value: &Value) -> Line {
    let Some(object) = value.as_object() else {
        let what =
            if value.is_array() { "batches are not supported: send each message on a line of its own" } else { "not an object" };
        return Line::Malformed(error(&Value::Null, -32600, what));
    };
    match object.get("id").filter(|id| id.is_string() || id.is_number()) {
        Some(id) => Line::Malformed(error(id, -32600, "not a JSON-RPC 2.0 message of MCP")),
        None if object.contains_key("method") && !object.contains_key("id") => Line::Nothing,
        None => Line::Malformed(error(&Value::Null, -32600, "not a JSON-RPC 2.0 message of MCP")),
    }
}

fn error(id: &Value, code: i32, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_message_or_has_its_answer() {
        for (line, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "message"),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\r", "message"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"no/such","params":{"a":1}}"#, "message"),
            ("", "nothing"),
            ("  \r", "nothing"),
            (r#"{"jsonrpc":"1.0","method":"x"}"#, "nothing"),
            ("{", "null -32700"),
            ("北京", "null -32700"),
            (r#"{"id":1"#, "null -32700"),
            ("[]", "null -32600"),
            ("3", "null -32600"),
            ("{}", "null -32600"),
            (r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, "7 -32600"),
            (r#"{"jsonrpc":"2.0","id":"a"}"#, "\"a\" -32600"),
        ] {
            let found = match parse(line.as_bytes()) {
                Line::Message(_) => "message".to_owned(),
                Line::Nothing => "nothing".to_owned(),
                Line::Malformed(answer) => format!("{} {}", answer["id"], answer["error"]["code"]),
            };
            assert_eq!(found, expected, "{line:?}");
        }
    }
}
