//! A web server on loopback that answers by path and remembers what it was asked.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The running server. It ends with the process.
pub struct WebServer {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl WebServer {
    /// Serves whole responses, head and body, by path without query; anything else is 404.
    ///
    /// # Panics
    ///
    /// Panics when loopback has no free port.
    pub fn start(responses: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let responses: Arc<HashMap<&str, String>> = Arc::new(responses.into_iter().collect());
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (responses, log) = (Arc::clone(&responses), Arc::clone(&log));
                thread::spawn(move || answer(&stream, &responses, &log));
            }
        });
        Self { port, requests }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The heads of all requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A response with a JSON body.
pub fn json(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// A redirect.
pub fn redirect(location: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}

fn answer(stream: &TcpStream, responses: &HashMap<&str, String>, log: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(stream);
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    let target = head.split_whitespace().nth(1).unwrap_or_default().to_owned();
    log.lock().unwrap_or_else(PoisonError::into_inner).push(head);
    let path = target.split('?').next().unwrap_or_default();
    let missing = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned();
    let mut writer = stream;
    // A client that has gone away is its own business.
    let _ = writer.write_all(responses.get(path).unwrap_or(&missing).as_bytes());
}
