//! The head of a request: judged without I/O, and written anew from its canonical parts.

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{Method, Request, Uri, Version, request};
use wasmtime_wasi_http::Error;

use super::refusal::{Refusal, denied, holds_secret, malformed};
use super::{EgressShared, Rule};
use crate::policy::{NetTarget, TargetError};

/// The most headers of a request; servers stop at about 100.
const MAX_HEADERS: usize = 100;

/// The most bytes of all header names and values of a request; servers stop at 8 to 64 KiB.
const MAX_FIELDS: usize = 64 * 1024;

/// The most bytes of path and query.
const MAX_PATH_AND_QUERY: usize = 16 * 1024;

/// A request that the policy allows.
pub(super) struct Prepared<'a> {
    /// Where it goes.
    pub(super) target: NetTarget,
    /// The rule that allows it.
    pub(super) rule: &'a Rule,
    /// What is sent: origin form, the host's own `Host`, the guest's other headers, the secret.
    pub(super) head: Request<()>,
    /// How long the guest says that the body is.
    pub(super) content_length: Option<u64>,
}

/// Judges a request and writes its head.
///
/// # Errors
///
/// Returns why it is refused.
pub(super) fn prepare<'a>(shared: &'a EgressShared, parts: &request::Parts) -> Result<Prepared<'a>, Refusal> {
    let target = target_of(&parts.uri).map_err(|problem| {
        let error = match problem {
            TargetError::Scheme => Error::HttpProtocolError,
            _ => Error::HttpRequestUriInvalid,
        };
        malformed(&shared.plugin, &guest_text(shared, &parts.method, &parts.uri), error, &problem.to_string())
    })?;
    let request = target.request(parts.method.as_str());
    let shown = || shared.secrets.redactor().redact(&request.to_string()).into_owned();
    if matches!(parts.method, Method::CONNECT | Method::TRACE) {
        // A tunnel would carry anything; TRACE would hand the guest the secret back (RFC 9110 section 9.3.8).
        let problem = "`CONNECT` and `TRACE` are never allowed";
        return Err(malformed(&shared.plugin, &shown(), Error::HttpRequestDenied, problem));
    }
    let rule = shared.matching(&request).ok_or_else(|| denied(shared, &request))?;
    let refuse = |error, problem: &str| malformed(&shared.plugin, &shown(), error, problem);

    let path_and_query = target.path_and_query();
    if path_and_query.len() > MAX_PATH_AND_QUERY {
        return Err(refuse(Error::HttpRequestUriTooLong, "path and query are too long"));
    }
    let content_length = check_headers(&parts.headers, rule, &refuse)?;
    // Only what the guest supplies is looked at; the host's own secret comes after.
    let redactor = shared.secrets.redactor();
    if redactor.contains(target.host.as_bytes()) || redactor.contains(path_and_query.as_bytes()) {
        return Err(holds_secret(&shared.plugin, &shown(), "address"));
    }
    if parts
        .headers
        .iter()
        .any(|(name, value)| redactor.contains(name.as_str().as_bytes()) || redactor.contains(value.as_bytes()))
    {
        return Err(holds_secret(&shared.plugin, &shown(), "head"));
    }

    let mut head = Request::new(());
    *head.method_mut() = parts.method.clone();
    *head.version_mut() = Version::HTTP_11;
    *head.uri_mut() =
        path_and_query.parse::<Uri>().map_err(|_| refuse(Error::HttpRequestUriInvalid, "the path cannot be sent"))?;
    let headers = head.headers_mut();
    headers.insert(
        HOST,
        HeaderValue::try_from(authority_of(&target))
            .map_err(|_| refuse(Error::HttpRequestUriInvalid, "the host cannot be sent"))?,
    );
    for (name, value) in &parts.headers {
        headers.append(name, value.clone());
    }
    if let Some((name, value)) = &rule.secret {
        headers.insert(name, value.clone());
    }
    Ok(Prepared { target, rule, head, content_length })
}

/// Whether a guest may not set this header: it frames the message, belongs to one hop, or says where the request goes.
pub(super) fn is_host_owned(name: &HeaderName) -> bool {
    const OTHERS: [&str; 3] = ["keep-alive", "http2-settings", "proxy"];
    [CONNECTION, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE].contains(name)
        || OTHERS.contains(&name.as_str())
        || name.as_str().starts_with("proxy-")
}

fn target_of(uri: &Uri) -> Result<NetTarget, TargetError> {
    let scheme = uri.scheme_str().ok_or(TargetError::Scheme)?;
    let authority = uri.authority().map_or("", http::uri::Authority::as_str);
    NetTarget::from_parts(scheme, authority, uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str))
}

fn check_headers(headers: &HeaderMap, rule: &Rule, refuse: &dyn Fn(Error, &str) -> Refusal) -> Result<Option<u64>, Refusal> {
    let size = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum::<usize>();
    if headers.len() > MAX_HEADERS || size > MAX_FIELDS {
        let error = Error::HttpRequestHeaderSectionSize(u32::try_from(size).ok());
        return Err(refuse(error, "it has too many or too large headers"));
    }
    for name in headers.keys() {
        if is_host_owned(name) {
            return Err(refuse(Error::HttpRequestDenied, &format!("a plugin may not set the header `{name}`")));
        }
        if rule.secret.as_ref().is_some_and(|(secret, _)| secret == name) {
            let problem = format!("the host itself fills the header `{name}` ({})", rule.grant.rule);
            return Err(refuse(Error::HttpRequestDenied, &problem));
        }
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else { return Ok(None) };
    // Two lengths, or `+5`, are read in different ways by different servers: request smuggling (RFC 9112 section 6.3).
    let length =
        length.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit())).and_then(|text| text.parse().ok());
    match (length, lengths.next()) {
        (Some(length), None) => Ok(Some(length)),
        _ => Err(refuse(Error::HttpRequestDenied, "`content-length` must be one number")),
    }
}

/// The `Host` header: the canonical host, and the port unless it is the scheme's own (RFC 9110 section 7.2).
fn authority_of(target: &NetTarget) -> String {
    let host = target.url_host();
    if target.port == target.scheme.default_port() { host } else { format!("{host}:{}", target.port) }
}

/// A request that could not be read, for a message: without its query, and without what may be a password.
fn guest_text(shared: &EgressShared, method: &Method, uri: &Uri) -> String {
    let authority = uri.authority().map_or("", http::uri::Authority::as_str);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let text = format!("{method} {}://{host}{}", uri.scheme_str().unwrap_or("?"), uri.path());
    shared.secrets.redactor().redact(&text).into_owned()
}
