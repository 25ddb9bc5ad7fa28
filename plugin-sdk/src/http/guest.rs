//! Requests through `wasi:http/outgoing-handler`.

use std::time::Duration;

use wasip2::clocks::monotonic_clock;
use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, IncomingResponse, Method, OutgoingBody, OutgoingRequest, RequestOptions, Scheme,
};
use wasip2::io::poll::{Pollable, poll};
use wasip2::io::streams::{InputStream, StreamError};

use super::target::Target;
use super::{HttpError, Request, Response};

/// Sends a request and reads the whole answer.
pub(crate) fn send(request: &Request) -> Result<Response, HttpError> {
    let deadline = monotonic_clock::subscribe_duration(nanoseconds(request.timeout));
    let outgoing = outgoing(request)?;
    let body = outgoing.body().map_err(|()| invalid("it can have no body"))?;
    let options = RequestOptions::new();
    // A host that does not know an option still has the deadline here.
    let _ = options.set_connect_timeout(Some(nanoseconds(request.timeout)));
    let _ = options.set_first_byte_timeout(Some(nanoseconds(request.timeout)));
    let future = outgoing_handler::handle(outgoing, Some(options)).map_err(|code| failure(code, request))?;
    // After `handle`: before it, nobody reads what is written. A failure to write shows in the answer, with its reason.
    let _ = write(body, &request.body);
    let incoming = wait(&future, &deadline, request)?;
    read(&incoming, &deadline, request)
}

fn outgoing(request: &Request) -> Result<OutgoingRequest, HttpError> {
    let target = Target::parse(&request.url)?;
    let mut headers: Vec<(String, Vec<u8>)> =
        request.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone().into_bytes())).collect();
    if !request.body.is_empty() {
        headers.push(("content-length".to_owned(), request.body.len().to_string().into_bytes()));
    }
    let fields = Fields::from_list(&headers).map_err(|error| invalid(&format!("a header is not allowed: {error:?}")))?;
    let outgoing = OutgoingRequest::new(fields);
    let method = match request.method.as_str() {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "PATCH" => Method::Patch,
        other => Method::Other(other.to_owned()),
    };
    let scheme = if target.secure { Scheme::Https } else { Scheme::Http };
    outgoing.set_method(&method).map_err(|()| invalid("the method is not one"))?;
    outgoing.set_scheme(Some(&scheme)).map_err(|()| invalid("the scheme is not allowed"))?;
    outgoing.set_authority(Some(target.authority)).map_err(|()| invalid("the host or port is not one"))?;
    outgoing.set_path_with_query(Some(&target.path_with_query)).map_err(|()| invalid("the path is not one"))?;
    Ok(outgoing)
}

fn write(body: OutgoingBody, bytes: &[u8]) -> Result<(), StreamError> {
    if !bytes.is_empty() {
        let stream = body.write().map_err(|()| StreamError::Closed)?;
        // The most that `blocking-write-and-flush` takes at once.
        for chunk in bytes.chunks(4096) {
            stream.blocking_write_and_flush(chunk)?;
        }
    }
    // The stream is a child of the body and is gone by now.
    OutgoingBody::finish(body, None).map_err(|_| StreamError::Closed)
}

fn wait(future: &FutureIncomingResponse, deadline: &Pollable, request: &Request) -> Result<IncomingResponse, HttpError> {
    loop {
        match future.get() {
            Some(Ok(Ok(response))) => return Ok(response),
            Some(Ok(Err(code))) => return Err(failure(code, request)),
            Some(Err(())) => return Err(HttpError::Failed("the answer was taken twice".to_owned())),
            None => ready_or_late(&future.subscribe(), deadline)?,
        }
    }
}

fn read(incoming: &IncomingResponse, deadline: &Pollable, request: &Request) -> Result<Response, HttpError> {
    let mut response = Response::new(incoming.status());
    for (name, value) in incoming.headers().entries() {
        response.headers.push((name.to_ascii_lowercase(), String::from_utf8_lossy(&value).into_owned()));
    }
    let body = incoming.consume().map_err(|()| HttpError::Failed("the answer has no body to read".to_owned()))?;
    let stream = body.stream().map_err(|()| HttpError::Failed("the answer has no body to read".to_owned()))?;
    while let Some(chunk) = next_chunk(&stream, request)? {
        if chunk.is_empty() {
            ready_or_late(&stream.subscribe(), deadline)?;
        }
        if response.body.len() + chunk.len() > request.max_bytes {
            return Err(HttpError::TooLarge { limit: Some(request.max_bytes) });
        }
        response.body.extend_from_slice(&chunk);
    }
    Ok(response)
}

/// The bytes that are there by now, or none at the end.
fn next_chunk(stream: &InputStream, request: &Request) -> Result<Option<Vec<u8>>, HttpError> {
    const CHUNK: u64 = 64 * 1024;
    match stream.read(CHUNK) {
        Ok(chunk) => Ok(Some(chunk)),
        Err(StreamError::Closed) => Ok(None),
        Err(StreamError::LastOperationFailed(error)) => Err(match wasip2::http::types::http_error_code(&error) {
            Some(code) => failure(code, request),
            None => HttpError::Connection(error.to_debug_string()),
        }),
    }
}

fn ready_or_late(pollable: &Pollable, deadline: &Pollable) -> Result<(), HttpError> {
    let ready = poll(&[pollable, deadline]);
    if ready.contains(&0) { Ok(()) } else { Err(HttpError::Timeout) }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn invalid(why: &str) -> HttpError {
    HttpError::InvalidRequest(why.to_owned())
}

fn failure(code: ErrorCode, request: &Request) -> HttpError {
    let url = || request.url.clone();
    let connection = |why: &str| HttpError::Connection(why.to_owned());
    match code {
        ErrorCode::HttpRequestDenied => HttpError::Denied { url: url() },
        ErrorCode::DestinationIpProhibited => HttpError::ProhibitedAddress { url: url() },
        ErrorCode::DnsTimeout
        | ErrorCode::ConnectionTimeout
        | ErrorCode::ConnectionReadTimeout
        | ErrorCode::ConnectionWriteTimeout
        | ErrorCode::HttpResponseTimeout => HttpError::Timeout,
        ErrorCode::DnsError(detail) => HttpError::Dns(detail.rcode.unwrap_or_else(|| "no such name".to_owned())),
        ErrorCode::DestinationNotFound => HttpError::Dns("no such host".to_owned()),
        ErrorCode::DestinationUnavailable | ErrorCode::DestinationIpUnroutable => connection("the host cannot be reached"),
        ErrorCode::ConnectionRefused => connection("the host refuses connections at this port"),
        ErrorCode::ConnectionTerminated => connection("it was closed before the answer was complete"),
        ErrorCode::ConnectionLimitReached => connection("too many are open"),
        ErrorCode::TlsProtocolError => connection("the host does not speak TLS"),
        ErrorCode::TlsCertificateError => connection("the host's certificate is not valid"),
        ErrorCode::TlsAlertReceived(_) => connection("the host refuses TLS"),
        ErrorCode::HttpRequestMethodInvalid => invalid("the method is not one"),
        ErrorCode::HttpRequestUriInvalid => invalid("the URL is not one"),
        ErrorCode::HttpRequestUriTooLong => invalid("the URL is too long"),
        ErrorCode::HttpResponseBodySize(_) => HttpError::TooLarge { limit: None },
        ErrorCode::HttpResponseIncomplete => connection("the answer is not complete"),
        ErrorCode::HttpProtocolError => HttpError::Failed("the answer is not HTTP".to_owned()),
        ErrorCode::InternalError(Some(message)) => HttpError::Failed(message),
        other => HttpError::Failed(format!("{other:?}")),
    }
}
