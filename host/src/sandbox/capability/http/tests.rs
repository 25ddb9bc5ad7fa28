//! The egress function against real servers on loopback and a resolver that answers what a test says.

mod addresses;
mod fuzz;
mod limits;
mod refused;
mod response;
mod secrets;
mod tls;
mod wire;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use super::{Egress, EgressShared, Resolver};
use crate::policy::Limits;
use crate::policy::RuleRef;
use crate::policy::{Cidr, HostPattern, NetGrant, Scheme};
use crate::sandbox::meter::Meter;
use crate::secret::Secrets;
use crate::tool::{BoxFuture, Failure};

/// Longer than any test should take; a test that fails by time fails by this.
const LONG: Duration = Duration::from_secs(20);

/// A resolver that answers each lookup of a name with the next of its answers, and the last one ever after.
#[derive(Default)]
struct Names {
    answers: HashMap<String, Vec<Vec<IpAddr>>>,
    lookups: Mutex<Vec<String>>,
}

impl Names {
    /// All names are this machine's.
    fn loopback(names: &[&str]) -> Self {
        names.iter().fold(Self::default(), |known, name| known.with(name, &[&["127.0.0.1"]]))
    }

    fn with(mut self, name: &str, answers: &[&[&str]]) -> Self {
        let addresses = |answer: &&[&str]| answer.iter().map(|address| address.parse().expect("an address")).collect();
        self.answers.insert(name.to_owned(), answers.iter().map(addresses).collect());
        self
    }

    fn lookups(&self) -> Vec<String> {
        self.lookups.lock().expect("not poisoned").clone()
    }
}

impl Resolver for Names {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let mut lookups = self.lookups.lock().expect("not poisoned");
        let before = lookups.iter().filter(|looked_up| *looked_up == host).count();
        lookups.push(host.to_owned());
        let answers = self.answers.get(host).cloned();
        Box::pin(async move {
            if host == "hangs.example" {
                std::future::pending::<()>().await;
            }
            let answers = answers.ok_or_else(|| io::Error::other("no such name"))?;
            Ok(answers[before.min(answers.len() - 1)].clone())
        })
    }
}

/// A server on 127.0.0.1 that handles each connection as a test says, and remembers what it read.
struct Server {
    port: u16,
    accepted: Arc<Mutex<Vec<SocketAddr>>>,
    probes: Mutex<Vec<SocketAddr>>,
    requests: mpsc::UnboundedReceiver<String>,
}

impl Server {
    /// Reads each request and writes these bytes; then waits for the client to close.
    async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |mut stream, requests| {
            let answer = answer.clone();
            async move {
                let request = read_request(&mut stream).await;
                if !request.is_empty() {
                    let _ = requests.send(request);
                }
                let _ = stream.write_all(&answer).await;
                read_to_end(&mut stream).await;
            }
        })
        .await
    }

    /// Answers `200` with the body `ok`.
    async fn ok() -> Self {
        Self::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-from: server\r\n\r\nok").await
    }

    async fn start<F, Handled>(handle: F) -> Self
    where
        F: Fn(TcpStream, mpsc::UnboundedSender<String>) -> Handled + Send + 'static,
        Handled: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let port = listener.local_addr().expect("bound").port();
        let accepted: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
        let log = Arc::clone(&accepted);
        let (sender, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                log.lock().expect("not poisoned").push(peer);
                tokio::spawn(handle(stream, sender.clone()));
            }
        });
        Self { port, accepted, probes: Mutex::default(), requests }
    }

    /// How many connections have reached it. Makes one itself and waits for that: connections are accepted in order.
    async fn accepts(&self) -> usize {
        let probe = TcpStream::connect(loopback(self.port)).await.expect("the server listens");
        let address = probe.local_addr().expect("connected");
        loop {
            let accepted = self.accepted.lock().expect("not poisoned").clone();
            if accepted.contains(&address) {
                let mut probes = self.probes.lock().expect("not poisoned");
                probes.push(address);
                return accepted.iter().filter(|peer| !probes.contains(peer)).count();
            }
            tokio::task::yield_now().await;
        }
    }

    async fn next_request(&mut self) -> String {
        tokio::time::timeout(LONG, self.requests.recv()).await.expect("a request").expect("a request")
    }
}

/// Reads a head, and a body of `content-length` bytes or in chunks.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&read).to_ascii_lowercase();
        if let Some(end) = text.find("\r\n\r\n") {
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok()).unwrap_or(0);
            let chunked = text[..end].contains("transfer-encoding: chunked");
            if if chunked { text.ends_with("0\r\n\r\n") } else { read.len() >= end + 4 + length } {
                break;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => read.extend_from_slice(&buffer[..count]),
        }
    }
    String::from_utf8_lossy(&read).into_owned()
}

async fn read_to_end(stream: &mut (impl AsyncRead + Unpin)) {
    let mut buffer = [0; 4096];
    while matches!(stream.read(&mut buffer).await, Ok(1..)) {}
}

/// One plugin and one call.
struct World {
    egress: Egress,
    meter: Meter,
    names: Arc<Names>,
}

impl World {
    fn new(grants: &[NetGrant], names: Names) -> Self {
        Self::with(grants, names, &Limits::default(), Secrets::default(), LONG)
    }

    fn with(grants: &[NetGrant], names: Names, limits: &Limits, secrets: Secrets, timeout: Duration) -> Self {
        let names = Arc::new(names);
        let resolver: Arc<dyn Resolver> = Arc::clone(&names) as _;
        let shared = EgressShared::new("weather", grants, resolver, tls::client(), Arc::new(secrets)).expect("usable rules");
        let meter = Meter::default();
        let egress = Egress::new(Arc::new(shared), meter.clone(), limits, std::time::Instant::now() + timeout);
        Self { egress, meter, names }
    }

    async fn get(&self, url: &str) -> Result<Answer, Error> {
        self.fetch(request("GET", url), None).await
    }

    /// Sends a request and reads all of the response.
    async fn fetch(&self, request: http::Request<WasiBody>, options: Option<RequestOptions>) -> Result<Answer, Error> {
        let (response, worker) = self.egress.send(request, options).await?;
        let worker = tokio::spawn(worker);
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes());
        worker.abort();
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body: String::from_utf8_lossy(&body?).into_owned() })
    }

    /// The one thing that was denied.
    fn denial(&self) -> Failure {
        let denials = self.meter.counts().denials;
        assert_eq!(denials.len(), 1, "{denials:?}");
        denials[0].clone()
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: http::HeaderMap,
    body: String,
}

fn request(method: &str, url: &str) -> http::Request<WasiBody> {
    http::Request::builder().method(method).uri(url).body(text_body("")).expect("a request")
}

fn text_body(text: impl Into<Bytes>) -> WasiBody {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body that comes in these pieces, and whose length nobody knows before.
fn pieces<P: Into<Bytes>>(pieces: impl IntoIterator<Item = P>) -> WasiBody {
    let frames: Vec<_> = pieces.into_iter().map(|piece| Ok(http_body::Frame::data(piece.into()))).collect();
    http_body_util::StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
}

fn rule() -> RuleRef {
    RuleRef { file: "policy.toml".into(), line: 12 }
}

/// `GET` and `POST` to a host over HTTP, loopback included.
fn grant(host: &str, port: u16) -> NetGrant {
    NetGrant {
        host: HostPattern::Exact(host.to_owned()),
        scheme: Scheme::Http,
        port,
        methods: vec!["GET".to_owned(), "POST".to_owned()],
        path: "/".to_owned(),
        private: vec![Cidr { address: IpAddr::from([127, 0, 0, 0]), prefix: 8 }],
        secret: None,
        ceiling: None,
        rule: rule(),
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// The name of an error without what it holds.
fn name_of(error: &Error) -> String {
    let text = format!("{error:?}");
    text.split(['(', ' ', '{']).next().unwrap_or_default().to_owned()
}
