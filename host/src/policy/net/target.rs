//! Where a request goes, in canonical form, from a URL or its parts.

use super::host::{Host, HostError, canonical_host};
use super::path::{PathError, normalise_path};
use super::{NetRequest, Scheme};

/// A longer query is refused; servers stop at about 8 KiB for the whole line.
const MAX_QUERY: usize = 16 * 1024;

/// Where a request goes. What is judged is what must be sent: build the request line from these parts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NetTarget {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// The canonical host: a domain without a trailing dot, or an IP address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The normalised path.
    pub path: String,
    /// The query without its `?`.
    pub query: Option<String>,
}

/// Why a URL, or its parts, are not a target.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TargetError {
    /// Neither `http` nor `https`.
    #[error("the scheme is neither `http` nor `https`")]
    Scheme,
    /// The host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Not a number from 1 to 65535.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// The path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A control character, a space, `#` or a byte beyond ASCII in the query, or more than 16 KiB.
    #[error("the query has a character that is not allowed there, or is too long")]
    Query,
}

impl NetTarget {
    /// Reads an absolute URL. A fragment is dropped: it is never sent. Characters beyond ASCII in path and query are percent-encoded.
    ///
    /// Stricter than a browser: no backslashes, no userinfo, no missing slashes.
    ///
    /// # Errors
    ///
    /// Returns which part is wrong.
    pub fn from_url(url: &str) -> Result<Self, TargetError> {
        let (scheme, rest) = url.split_once("://").ok_or(TargetError::Scheme)?;
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path_and_query) = rest.split_at(end);
        Self::from_parts(scheme, authority, &encode_beyond_ascii(path_and_query))
    }

    /// Reads the parts that an HTTP library hands over: `https`, `example.com:8443`, `/path?query`.
    ///
    /// # Errors
    ///
    /// Returns which part is wrong.
    pub fn from_parts(scheme: &str, authority: &str, path_and_query: &str) -> Result<Self, TargetError> {
        let scheme = Scheme::parse(scheme).ok_or(TargetError::Scheme)?;
        if authority.contains('@') {
            return Err(HostError::UserInfo.into());
        }
        let (host, port) = split_port(authority)?;
        let host = canonical_host(host)?;
        let port = match port {
            Some(digits) => parse_port(digits).ok_or(TargetError::Port)?,
            None => scheme.default_port(),
        };
        let (path, query) = match path_and_query.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (path_and_query, None),
        };
        if let Some(query) = query
            && (query.len() > MAX_QUERY || query.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'#'))
        {
            return Err(TargetError::Query);
        }
        let path = normalise_path(if path.is_empty() { "/" } else { path })?;
        Ok(Self { scheme, host: Host::into_text(host), port, path, query: query.map(str::to_owned) })
    }

    /// The request as the policy sees it.
    pub fn request<'a>(&'a self, method: &'a str) -> NetRequest<'a> {
        NetRequest { scheme: self.scheme, host: &self.host, port: self.port, method, path: &self.path }
    }

    /// The host as it stands in a URL or a `Host` header: IPv6 in brackets.
    pub fn url_host(&self) -> String {
        bracketed(&self.host)
    }

    /// Path and query, as they stand in a request line (origin form, RFC 9112 section 3.2.1).
    pub fn path_and_query(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }
}

impl std::fmt::Display for NetTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.url_host())?;
        if self.port != self.scheme.default_port() {
            write!(f, ":{}", self.port)?;
        }
        f.write_str(&self.path_and_query())
    }
}

/// The host as it stands in a URL.
pub(super) fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn split_port(authority: &str) -> Result<(&str, Option<&str>), TargetError> {
    let after_brackets = authority.rfind(']').map_or(0, |end| end + 1);
    match authority[after_brackets..].find(':') {
        Some(colon) => {
            let colon = after_brackets + colon;
            Ok((&authority[..colon], Some(&authority[colon + 1..])))
        }
        None if after_brackets > 0 && after_brackets < authority.len() => Err(HostError::Invalid.into()),
        None => Ok((authority, None)),
    }
}

fn parse_port(digits: &str) -> Option<u16> {
    let plain = !digits.is_empty() && digits.len() <= 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten().filter(|port| *port != 0)
}

fn encode_beyond_ascii(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii() {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_canonical_target() {
        for (url, expected) in [
            ("https://example.com", "https://example.com/"),
            ("HTTPS://EXAMPLE.com.:443/%61?q=1#frag", "https://example.com/a?q=1"),
            ("http://example.com:8080?x", "http://example.com:8080/?x"),
            ("http://127.1:80/", "http://127.0.0.1/"),
            ("http://0x7f000001/", "http://127.0.0.1/"),
            ("https://[::1]:8443/a/../b", "https://[::1]:8443/b"),
            (
                "https://bücher.example/北京?城市=北京",
                "https://xn--bcher-kva.example/%E5%8C%97%E4%BA%AC?%E5%9F%8E%E5%B8%82=%E5%8C%97%E4%BA%AC",
            ),
        ] {
            assert_eq!(NetTarget::from_url(url).map(|target| target.to_string()).as_deref(), Ok(expected), "{url}");
        }
    }

    #[test]
    fn refuses_what_two_readers_could_send_to_two_places() {
        for (url, expected) in [
            ("", TargetError::Scheme),
            ("example.com", TargetError::Scheme),
            ("ftp://example.com/", TargetError::Scheme),
            ("file:///etc/passwd", TargetError::Scheme),
            ("https:/example.com", TargetError::Scheme),
            ("https:\\\\example.com", TargetError::Scheme),
            ("https://", TargetError::Host(HostError::Empty)),
            ("https:///x", TargetError::Host(HostError::Empty)),
            ("https://user:pw@host/", TargetError::Host(HostError::UserInfo)),
            ("https://allowed.example@evil.example/", TargetError::Host(HostError::UserInfo)),
            ("https://allowed.example:80@evil.example/", TargetError::Host(HostError::UserInfo)),
            ("https://allowed.example\\@evil.example/", TargetError::Host(HostError::UserInfo)),
            ("https://allowed.example\\.evil.example/", TargetError::Host(HostError::Invalid)),
            ("https://a..b/", TargetError::Host(HostError::EmptyLabel)),
            ("https://[fe80::1%25eth0]/", TargetError::Host(HostError::Zone)),
            ("https://[::1]x/", TargetError::Host(HostError::Invalid)),
            ("https://[::1]]/", TargetError::Host(HostError::Invalid)),
            ("https://::1/", TargetError::Host(HostError::Empty)),
            ("https://a:b:1/", TargetError::Port),
            ("https://a:/", TargetError::Port),
            ("https://a:0/", TargetError::Port),
            ("https://a:65536/", TargetError::Port),
            ("https://a:+80/", TargetError::Port),
            ("https://a:8o/", TargetError::Port),
            ("https://a//evil.example/", TargetError::Path(PathError::NotAbsolute)),
            ("https://a/%2e%2e/x", TargetError::Path(PathError::AboveRoot)),
            ("https://a/x y", TargetError::Path(PathError::BadCharacter)),
            ("https://a/?x y", TargetError::Query),
            ("https://a/?x\r\nHost: b", TargetError::Query),
        ] {
            assert_eq!(NetTarget::from_url(url), Err(expected), "{url}");
        }
        for path in ["http://evil.example/", "//evil.example", "*", "x"] {
            let error = NetTarget::from_parts("https", "a.example", path).expect_err(path);
            assert!(matches!(error, TargetError::Path(_)), "{path}");
        }
    }

    proptest! {
        #[test]
        fn canonical_is_canonical_again(url in "https?://[a-zA-Z0-9.\\[\\]:@-]{1,16}(/[a-z.%2eE]{0,8}){0,3}(\\?[a-z=&]{0,5})?") {
            if let Ok(target) = NetTarget::from_url(&url) {
                prop_assert_eq!(NetTarget::from_url(&target.to_string()), Ok(target));
            }
        }

        #[test]
        fn any_text_is_a_target_or_an_error(url: String, authority: String) {
            let _ = NetTarget::from_url(&url);
            let _ = NetTarget::from_url(&format!("https://{authority}"));
        }
    }
}
