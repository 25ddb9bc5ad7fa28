//! Streamable HTTP: connections, and who may use them. The protocol itself is the SDK's.
//!
//! The checks of a request, in order: path, bearer token, `Host` and `Origin` (both by the SDK), session, size. A web page that a person
//! visits can send requests to loopback; `Origin` stops it, and `Host` stops it after DNS rebinding.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use sha2::{Digest as _, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::McpServer;
use super::session::Session;
use super::sessions::{Sessions, SharedSessions};

/// The one path that is served.
const PATH: &str = "/mcp";
/// Connections at once, over all clients; more wait. A client holds one for its own stream and one for each call.
const MAX_CONNECTIONS: usize = 512;
/// The largest request body, in bytes.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// How long a client may take to send the headers of a request.
const HEADER_PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take from the end of the headers to the start of the answer; the body is read in this time. Answers that take longer are
/// streams, and start at once.
const REQUEST_PATIENCE: Duration = Duration::from_secs(60);
/// How long calls that run may take to end when the server stops.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// The shortest token, in bytes: 128 bits as base64.
const MIN_TOKEN: usize = 22;

type Body = BoxBody<Bytes, Infallible>;
type Service = StreamableHttpService<Session, Sessions>;

/// How to serve over HTTP.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// What clients must show. Without one only loopback is served.
    pub token: Option<Token>,
    /// Names that clients may use for this host beside loopback's, as `name` or `name:port`.
    pub allowed_hosts: Vec<String>,
    /// Web pages that may use the server beside those on loopback, as `https://name:port`; `:*` stands for any port.
    pub allowed_origins: Vec<String>,
    /// Sessions at once; a client beyond that is told to come back.
    pub max_sessions: usize,
    /// A session in which nothing happens for so long ends.
    pub session_idle: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            token: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_sessions: 64,
            session_idle: Duration::from_secs(30 * 60),
        }
    }
}

/// A bearer token (RFC 6750). Only its digest is kept.
#[derive(Clone)]
pub struct Token([u8; 32]);

/// Why a text is no token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// It can be guessed.
    #[error("the bearer token has {length} bytes; {MIN_TOKEN} at least")]
    Short {
        /// Its length, in bytes.
        length: usize,
    },
    /// It cannot be sent in a header.
    #[error("the bearer token holds characters that a header cannot carry")]
    Characters,
}

impl Token {
    /// Takes a token.
    ///
    /// # Errors
    ///
    /// Fails when it is too short to be safe, or holds anything but visible ASCII.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        if text.len() < MIN_TOKEN {
            return Err(TokenError::Short { length: text.len() });
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Characters);
        }
        Ok(Self(Sha256::digest(text).into()))
    }

    /// Whether this is the `Authorization` header of someone who has the token. Takes the same time for every wrong one.
    fn is_shown_by(&self, header: Option<&HeaderValue>) -> bool {
        let value = header.map(HeaderValue::as_bytes).unwrap_or_default();
        let (scheme, shown) = value.split_at_checked("Bearer ".len()).unwrap_or_default();
        let shown: [u8; 32] = Sha256::digest(shown).into();
        let difference = shown.iter().zip(&self.0).fold(0, |difference, (a, b)| difference | (a ^ b));
        std::hint::black_box(difference) == 0 && scheme.eq_ignore_ascii_case(b"Bearer ")
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Why nothing is served over HTTP.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The address is not loopback, and there is no token.
    #[error("`{0}` can be reached from other machines, and there is no bearer token")]
    NoToken(SocketAddr),
    /// The address of the listener is unknown.
    #[error("cannot tell the address that is served")]
    Address(#[source] std::io::Error),
}

impl McpServer {
    /// Serves clients over Streamable HTTP until `stop` is cancelled; calls that still run then have a few seconds to end.
    ///
    /// # Errors
    ///
    /// Fails when the address is not loopback and there is no token.
    pub async fn serve_http(
        &self,
        listener: TcpListener,
        options: HttpOptions,
        stop: CancellationToken,
    ) -> Result<(), HttpError> {
        let address = listener.local_addr().map_err(HttpError::Address)?;
        if !address.ip().is_loopback() && options.token.is_none() {
            return Err(HttpError::NoToken(address));
        }
        let sessions: SharedSessions = Arc::new(Sessions::new(options.max_sessions, options.session_idle));
        let shared = Arc::clone(&self.0);
        let service = StreamableHttpService::new(
            move || Ok(Session::new(Arc::clone(&shared))),
            Arc::clone(&sessions),
            config(address, &options, stop.child_token()),
        );
        let front = Arc::new(Front { service, sessions, token: options.token });
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let connections = TaskTracker::new();
        loop {
            // A semaphore that is never closed always gives a permit.
            let accepted = async {
                let permit = Arc::clone(&permits).acquire_owned().await.ok();
                (listener.accept().await, permit)
            };
            match stop.run_until_cancelled(accepted).await {
                None => break,
                Some((Ok((stream, _)), permit)) => {
                    connections.spawn(connection(stream, Arc::clone(&front), stop.clone(), permit));
                }
                // Out of file descriptors, say: the next attempt may do better.
                Some((Err(error), _)) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(listener);
        connections.close();
        if tokio::time::timeout(STOP_PATIENCE, connections.wait()).await.is_err() {
            tracing::warn!("some connections did not end in time");
        }
        Ok(())
    }
}

fn config(address: SocketAddr, options: &HttpOptions, stop: CancellationToken) -> StreamableHttpServerConfig {
    let loopback = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let mut hosts: Vec<String> = loopback.into_iter().chain(options.allowed_hosts.iter().cloned()).collect();
    hosts.push(address.ip().to_string());
    let pages = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"].map(str::to_owned);
    let config = StreamableHttpServerConfig::default()
        .with_allowed_origins(pages.into_iter().chain(options.allowed_origins.iter().cloned()))
        .enforce_origin_validation()
        .with_max_request_body_bytes(MAX_BODY)
        .with_cancellation_token(stop);
    // On all addresses the names of this host are unknown; the token, which is then required, is what a rebound page does not have.
    if address.ip().is_unspecified() && options.allowed_hosts.is_empty() {
        config.disable_allowed_hosts()
    } else {
        config.with_allowed_hosts(hosts)
    }
}

/// What stands before the SDK's service.
struct Front {
    service: Service,
    sessions: SharedSessions,
    token: Option<Token>,
}

impl Front {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if request.uri().path() != PATH {
            return plain(StatusCode::NOT_FOUND, "MCP is served at /mcp");
        }
        if let Some(token) = &self.token
            && !token.is_shown_by(request.headers().get(header::AUTHORIZATION))
        {
            let mut response = plain(StatusCode::UNAUTHORIZED, "send the server's token as `Authorization: Bearer …`");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"honeycomb\""));
            return response;
        }
        if is_first(&request) && !self.sessions.has_room().await {
            let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open; end one, or try again later");
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("30"));
            return response;
        }
        match tokio::time::timeout(REQUEST_PATIENCE, self.service.handle(request)).await {
            Ok(mut response) => {
                if response.status() == StatusCode::FORBIDDEN {
                    response = plain(
                        StatusCode::FORBIDDEN,
                        "this `Host` or `Origin` is not served; the operator can add it with --allowed-host or --allowed-origin",
                    );
                }
                response
            }
            Err(_) => plain(StatusCode::REQUEST_TIMEOUT, "the request took too long to arrive"),
        }
    }
}

/// Whether the request may begin a session. From 2026-07-28 on there are none, and every request names its version.
fn is_first(request: &Request<Incoming>) -> bool {
    let headers = request.headers();
    let stateless = headers.get("mcp-protocol-version").is_some_and(|version| version.as_bytes() >= b"2026".as_slice());
    request.method() == Method::POST && !headers.contains_key("mcp-session-id") && !stateless
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

async fn connection(stream: TcpStream, front: Arc<Front>, stop: CancellationToken, _permit: Option<OwnedSemaphorePermit>) {
    let service = service_fn(move |request| {
        let front = Arc::clone(&front);
        async move { Ok::<_, Infallible>(front.answer(request).await) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_PATIENCE);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_is_the_token() {
        let token = Token::new("correct-horse-battery-staple").unwrap();
        let shown = |value: &str| token.is_shown_by(Some(&HeaderValue::from_str(value).unwrap()));
        assert!(shown("Bearer correct-horse-battery-staple") && shown("bearer correct-horse-battery-staple"));
        for wrong in ["", "Bearer", "Bearer ", "Bearer correct-horse-battery-stapl", "Bearer correct-horse-battery-staple2"] {
            assert!(!shown(wrong), "{wrong}");
        }
        for wrong in
            ["Basic! correct-horse-battery-staple", "correct-horse-battery-staple", "Bearer  correct-horse-battery-staple"]
        {
            assert!(!shown(wrong), "{wrong}");
        }
        assert!(!token.is_shown_by(None));
    }

    #[test]
    fn a_token_that_can_be_guessed_is_refused() {
        assert!(matches!(Token::new("secret"), Err(TokenError::Short { length: 6 })));
        assert!(matches!(Token::new("twenty two bytes, spaced"), Err(TokenError::Characters)));
        assert_eq!(format!("{:?}", Token::new("correct-horse-battery-staple").unwrap()), "Token");
    }
}
