//! HTTP grants: which requests a plugin may send.

mod address;
mod host;
mod path;
mod target;

use std::sync::Arc;

pub use address::{Cidr, is_prohibited};
pub use host::{Host, HostError, canonical_host};
pub(super) use host::{canonical_policy_host, is_loopback, is_public_suffix, is_shared_hosting};
pub use path::{PathError, normalise_path, path_within};
use target::bracketed;
pub use target::{NetTarget, TargetError};

use super::grant::RuleRef;
use super::requests::NetWish;
use crate::text::clean_line;

/// One rule of `[[plugins.ID.net]]`. A request is allowed when one rule allows all of it.
#[derive(Clone, Debug)]
pub struct NetGrant {
    /// Which hosts.
    pub host: HostPattern,
    /// `http` or `https`.
    pub scheme: Scheme,
    /// The port; the scheme's own if the policy names none.
    pub port: u16,
    /// Allowed methods, upper case.
    pub methods: Vec<String>,
    /// Path prefix in whole segments, normalised; `/` is everything.
    pub path: String,
    /// Addresses that are refused by default (loopback, private, link-local, …) and that this rule allows.
    pub private: Vec<Cidr>,
    /// A secret that the host adds as a header.
    pub secret: Option<SecretRef>,
    /// What the plugin asked for: a request must also be one of these. `None` where the plugin carries no requests.
    pub ceiling: Option<Arc<[NetWish]>>,
    /// Where the policy says so.
    pub rule: RuleRef,
}

impl NetGrant {
    /// Whether this rule, and the plugin's own requests, allow all of the request.
    pub fn allows(&self, request: &NetRequest<'_>) -> bool {
        self.first_difference(request).is_none()
            && self.ceiling.as_ref().is_none_or(|wishes| wishes.iter().any(|wish| wish.covers(request)))
    }

    /// Whether this rule lets a request be dialled to this address: it is public, or one of the rule's `private` ranges holds it.
    pub fn allows_address(&self, address: std::net::IpAddr) -> bool {
        is_prohibited(address).is_none() || self.private.iter().any(|range| range.contains(address))
    }

    /// Names the first field in which the request differs from this rule, for a message.
    pub fn explain_mismatch(&self, request: &NetRequest<'_>) -> Option<String> {
        match self.first_difference(request) {
            Some(NetField::Host) => Some(format!("host `{}` is not `{}`", clean_line(request.host, 253), self.host)),
            Some(NetField::Scheme) => Some(format!("scheme `{}` is not `{}`", request.scheme.as_str(), self.scheme.as_str())),
            Some(NetField::Port) => Some(format!("port {} is not {}", request.port, self.port)),
            Some(NetField::Method) => {
                Some(format!("method `{}` is not one of {}", clean_line(request.method, 20), quoted(&self.methods)))
            }
            Some(NetField::Path) => Some(format!("path `{}` is not within `{}`", clean_line(request.path, 200), self.path)),
            None if !self.allows(request) => Some("the plugin's own requests do not cover it".to_owned()),
            None => None,
        }
    }

    /// The first field that differs; the later it is, the nearer the rule came.
    pub(super) fn first_difference(&self, request: &NetRequest<'_>) -> Option<NetField> {
        if !self.host.matches(request.host) {
            Some(NetField::Host)
        } else if self.scheme != request.scheme {
            Some(NetField::Scheme)
        } else if self.port != request.port {
            Some(NetField::Port)
        } else if !self.methods.iter().any(|method| method == request.method) {
            Some(NetField::Method)
        } else if !path_within(request.path, &self.path) {
            Some(NetField::Path)
        } else {
            None
        }
    }

    /// Whether some request could match both rules.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.scheme == other.scheme
            && self.port == other.port
            && self.host.overlaps(&other.host)
            && self.methods.iter().any(|method| other.methods.contains(method))
            && (path_within(&self.path, &other.path) || path_within(&other.path, &self.path))
    }
}

impl std::fmt::Display for NetGrant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}://{}", self.methods.join(","), self.scheme.as_str(), bracketed(&self.host.to_string()))?;
        if self.port != self.scheme.default_port() {
            write!(f, ":{}", self.port)?;
        }
        f.write_str(&self.path)?;
        for range in &self.private {
            write!(f, ", private {range}")?;
        }
        match &self.secret {
            Some(secret) => write!(f, ", secret in {}", secret.header),
            None => Ok(()),
        }
    }
}

/// The fields of a rule that a request can differ in, in the order they are compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub(super) enum NetField {
    Host,
    Scheme,
    Port,
    Method,
    Path,
}

/// Which hosts a rule covers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HostPattern {
    /// One host: a canonical domain or an IP address.
    Exact(String),
    /// All subdomains of this domain, never the domain itself.
    Subdomains(String),
}

impl HostPattern {
    /// Whether the pattern covers a canonical host.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == host,
            Self::Subdomains(domain) => {
                host.strip_suffix(domain.as_str()).and_then(|head| head.strip_suffix('.')).is_some_and(|label| !label.is_empty())
            }
        }
    }

    /// Whether some host could match both patterns.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(host), pattern) | (pattern, Self::Exact(host)) => pattern.matches(host),
            (Self::Subdomains(a), Self::Subdomains(b)) => a == b || self.matches(b) || other.matches(a),
        }
    }
}

impl std::fmt::Display for HostPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(host) => f.write_str(host),
            Self::Subdomains(domain) => write!(f, "*.{domain}"),
        }
    }
}

/// `http` or `https`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    /// Reads a scheme in any case (RFC 3986 section 3.1).
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            _ if text.eq_ignore_ascii_case("http") => Some(Self::Http),
            _ if text.eq_ignore_ascii_case("https") => Some(Self::Https),
            _ => None,
        }
    }

    /// The scheme as it stands in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port that a URL without one means.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A secret that the host adds to matching requests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SecretRef {
    /// The header, lower case.
    pub header: String,
    /// The header's value; `{}` stands for the secret.
    pub format: String,
    /// Where the secret is.
    pub source: SecretSource,
}

/// Where a secret is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SecretSource {
    /// An environment variable of the host.
    Env(String),
    /// A file; its text without the last newline.
    File(std::path::PathBuf),
    /// An entry of the keyring of the person who runs the host.
    Keyring {
        /// What the secret is for.
        service: String,
        /// Whose it is there.
        account: String,
    },
}

/// One request, as the policy sees it: canonical, from parsed parts. [`NetTarget::request`] makes it.
#[derive(Clone, Copy, Debug)]
pub struct NetRequest<'a> {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// The canonical host (WHATWG URL host parser), without brackets or a trailing dot.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// The method, upper case.
    pub method: &'a str,
    /// The normalised path, without the query.
    pub path: &'a str,
}

impl std::fmt::Display for NetRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (method, host, path) = (clean_line(self.method, 20), clean_line(self.host, 253), clean_line(self.path, 200));
        write!(f, "{method} {}://{}", self.scheme.as_str(), bracketed(&host))?;
        if self.port != self.scheme.default_port() {
            write!(f, ":{}", self.port)?;
        }
        f.write_str(&path)
    }
}

fn quoted(words: &[String]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
