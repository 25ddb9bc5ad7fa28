//! Dialling, TLS, and one request and response over HTTP/1.1.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};

use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use wasmtime_wasi_http::Error;

use super::body::RequestBody;
use super::tls::handshake_error;
use crate::policy::{NetTarget, Scheme};

/// The most headers of a response.
const MAX_HEADERS: usize = 128;

/// The most bytes of a response's head, and of its trailers. Large cookies and policies come to about 16 KiB.
const MAX_HEAD: usize = 64 * 1024;

/// A connection that still has to be driven.
pub(super) type Connection = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// A connection, with or without TLS.
pub(super) type Stream = Box<dyn Duplex>;

/// Both directions of a connection.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Connects to the first of these addresses that answers; `dialled` learns of each attempt.
///
/// # Errors
///
/// Returns the last address's error, or that of TLS. The time covers the TLS handshake.
pub(super) async fn connect(
    target: &NetTarget,
    addresses: &[IpAddr],
    tls: &TlsConnector,
    by: Instant,
    mut dialled: impl FnMut(SocketAddr),
) -> Result<Stream, Error> {
    let mut last = Error::ConnectionTimeout;
    let mut connected = None;
    for (index, address) in addresses.iter().enumerate() {
        let address = SocketAddr::new(*address, target.port);
        dialled(address);
        // An address that does not answer leaves an equal share of the time to each of the others.
        let left = by.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                connected = Some(stream);
                break;
            }
            Ok(Err(error)) => last = dial_error(&error),
            Err(_) => last = Error::ConnectionTimeout,
        }
    }
    let stream = connected.ok_or(last)?;
    // A request is written as a whole; waiting for more would only delay it.
    let _ = stream.set_nodelay(true);
    match target.scheme {
        Scheme::Http => Ok(Box::new(stream)),
        Scheme::Https => {
            let name = ServerName::try_from(target.host.clone()).map_err(|_| Error::HttpRequestUriInvalid)?;
            let handshake = timeout_at(by, tls.connect(name, stream)).await.map_err(|_| Error::ConnectionTimeout)?;
            Ok(Box::new(handshake.map_err(|error| handshake_error(&error))?))
        }
    }
}

/// Sends a request and waits for the head of its response.
///
/// # Errors
///
/// Returns what the guest is told.
pub(super) async fn exchange(
    stream: Stream,
    request: http::Request<RequestBody>,
    by: Instant,
) -> Result<(http::Response<Incoming>, Connection), Error> {
    let exchanged = async {
        let mut builder = http1::Builder::new();
        builder.max_headers(MAX_HEADERS).max_header_size(MAX_HEAD).max_buf_size(MAX_HEAD);
        let (mut sender, connection) =
            builder.handshake::<_, RequestBody>(TokioIo::new(stream)).await.map_err(|error| http_error(&error))?;
        let mut connection: Connection = Box::pin(async move { connection.await.map_err(|error| http_error(&error)) });
        let mut response = pin!(sender.send_request(request));
        let response = tokio::select! {
            biased;
            response = &mut response => response,
            ended = &mut connection => {
                connection = Box::pin(std::future::ready(ended));
                response.await
            }
        };
        let response = response.map_err(|error| http_error(&error))?;
        if response.status() == http::StatusCode::SWITCHING_PROTOCOLS {
            // Nobody asked for it, and what follows is not HTTP.
            return Err(Error::HttpUpgradeFailed);
        }
        Ok((response, connection))
    };
    timeout_at(by, exchanged).await.map_err(|_| Error::ConnectionReadTimeout)?
}

/// What a guest is told about a failure of HTTP. No text of the error: it may hold what the server sent.
pub(super) fn http_error(error: &hyper::Error) -> Error {
    if error.is_parse_too_large() {
        Error::HttpResponseHeaderSectionSize(u32::try_from(MAX_HEAD).ok())
    } else if error.is_timeout() {
        Error::HttpResponseTimeout
    } else if error.is_incomplete_message() {
        Error::HttpResponseIncomplete
    } else if error.is_parse() {
        Error::HttpProtocolError
    } else if error.is_closed() || error.is_canceled() || error.is_body_write_aborted() {
        Error::ConnectionTerminated
    } else {
        match std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind) {
            Some(io::ErrorKind::UnexpectedEof) => Error::HttpResponseIncomplete,
            Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted) => {
                Error::ConnectionTerminated
            }
            _ => Error::HttpProtocolError,
        }
    }
}

fn dial_error(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Error::ConnectionRefused,
        io::ErrorKind::TimedOut => Error::ConnectionTimeout,
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable | io::ErrorKind::AddrNotAvailable => {
            Error::DestinationUnavailable
        }
        _ => Error::ConnectionTerminated,
    }
}
