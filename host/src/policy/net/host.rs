//! Host names: one canonical form for policy text and requests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// RFC 1035 section 2.3.4: a name has at most 253 characters as text, a label 63.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// A host in canonical form.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Host {
    /// A domain: lower case, IDN in punycode, without a trailing dot.
    Domain(String),
    /// An address, however it was spelled.
    Ip(IpAddr),
}

impl Host {
    /// The canonical text: a domain, or an address without brackets.
    pub fn into_text(self) -> String {
        match self {
            Self::Domain(domain) => domain,
            Self::Ip(address) => address.to_string(),
        }
    }
}

/// Why a text is not a host.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HostError {
    /// Nothing, or only a dot.
    #[error("the host is empty")]
    Empty,
    /// `a..b`, `.a`.
    #[error("the host has an empty label")]
    EmptyLabel,
    /// Longer than DNS allows.
    #[error("the host, or a part of it between dots, is too long")]
    TooLong,
    /// `user@host`: the classic way to show one host and reach another.
    #[error("user names and passwords in an address are not allowed")]
    UserInfo,
    /// RFC 6874 zones name an interface of this machine.
    #[error("an IPv6 zone is not allowed")]
    Zone,
    /// Neither a domain nor an address.
    #[error("the host is neither a domain nor an IP address")]
    Invalid,
}

/// Brings a host to its canonical form: the WHATWG URL host parser, less what only serves to deceive.
///
/// Upper case, IDN, full-width digits, a trailing dot and the odd spellings of IPv4 (`127.1`, `0x7f000001`, `2130706433`) have one
/// canonical form. An IPv6 address stands in brackets.
///
/// # Errors
///
/// Returns why the text is not a host. Percent signs are refused: a host name needs none, and a resolver may decode what a policy did
/// not.
pub fn canonical_host(text: &str) -> Result<Host, HostError> {
    if text.is_empty() || text == "." {
        return Err(HostError::Empty);
    }
    // Before punycode a label may be longer than after; four bytes a character is the most that UTF-8 takes.
    if text.len() > MAX_NAME * 4 {
        return Err(HostError::TooLong);
    }
    if text.contains('@') {
        return Err(HostError::UserInfo);
    }
    if let Some(inside) = text.strip_prefix('[') {
        let inside = inside.strip_suffix(']').ok_or(HostError::Invalid)?;
        return if inside.contains('%') { Err(HostError::Zone) } else { parse_v6(inside) };
    }
    if text.contains('%') {
        return Err(HostError::Invalid);
    }
    match url::Host::parse(text).map_err(|_| HostError::Invalid)? {
        url::Host::Ipv4(address) => Ok(Host::Ip(IpAddr::V4(address))),
        url::Host::Ipv6(address) => Ok(Host::Ip(IpAddr::V6(address))),
        url::Host::Domain(domain) => {
            let domain = domain.strip_suffix('.').unwrap_or(&domain);
            if domain.is_empty() {
                return Err(HostError::Empty);
            }
            if domain.split('.').any(str::is_empty) {
                return Err(HostError::EmptyLabel);
            }
            if domain.len() > MAX_NAME || domain.split('.').any(|label| label.len() > MAX_LABEL) {
                return Err(HostError::TooLong);
            }
            // What the WHATWG parser lets through and no resolver needs: `!`, `$`, `*`, quotes.
            let plain = domain.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.'));
            if plain { Ok(Host::Domain(domain.to_owned())) } else { Err(HostError::Invalid) }
        }
    }
}

fn parse_v6(text: &str) -> Result<Host, HostError> {
    text.parse::<Ipv6Addr>().map(|address| Host::Ip(IpAddr::V6(address))).map_err(|_| HostError::Invalid)
}

/// Brings the host of a policy rule to its canonical form. Like [`canonical_host`], and brackets around IPv6 may be left out.
pub(crate) fn canonical_policy_host(text: &str) -> Result<Host, HostError> {
    if text.contains(':') && !text.starts_with('[') {
        return if text.contains('%') { Err(HostError::Zone) } else { parse_v6(text) };
    }
    canonical_host(text)
}

/// Whether the canonical host is this machine by name or address.
pub(crate) fn is_loopback(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address.is_loopback(),
        Ok(IpAddr::V6(address)) => address.is_loopback() || address.to_ipv4_mapped().as_ref().is_some_and(Ipv4Addr::is_loopback),
        // RFC 6761 section 6.3.
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// Whether anybody can register a name directly below this domain, as far as its form tells.
///
/// No list of public suffixes: one label is always a suffix, and so is a generic second level below a country code.
pub(crate) fn is_public_suffix(domain: &str) -> bool {
    const SECOND_LEVEL: [&str; 20] = [
        "ac", "co", "com", "edu", "gob", "gouv", "gov", "go", "info", "ltd", "me", "mil", "ne", "net", "nom", "or", "org", "plc",
        "sch", "web",
    ];
    let labels: Vec<&str> = domain.split('.').collect();
    match labels[..] {
        [_] => true,
        [second, top] => top.len() == 2 && SECOND_LEVEL.contains(&second),
        _ => false,
    }
}

/// Whether this domain is known to give a name below it to any customer.
pub(crate) fn is_shared_hosting(domain: &str) -> bool {
    const SHARED: [&str; 22] = [
        "amazonaws.com",
        "appspot.com",
        "azurewebsites.net",
        "azureedge.net",
        "blob.core.windows.net",
        "cloudfront.net",
        "cloudfunctions.net",
        "deno.dev",
        "firebaseapp.com",
        "fly.dev",
        "github.io",
        "gitlab.io",
        "glitch.me",
        "herokuapp.com",
        "netlify.app",
        "ngrok.io",
        "ngrok-free.app",
        "onrender.com",
        "pages.dev",
        "run.app",
        "vercel.app",
        "workers.dev",
    ];
    SHARED.iter().any(|shared| domain == *shared || shared.strip_suffix(domain).is_some_and(|head| head.ends_with('.')))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_canonical_form_for_every_spelling() {
        for (text, expected) in [
            ("Example.COM", "example.com"),
            ("example.com.", "example.com"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("BÜCHER.example", "xn--bcher-kva.example"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("例え.テスト", "xn--r8jz45g.xn--zckzah"),
            ("ｅｘａｍｐｌｅ.com", "example.com"),
            ("ex。ample", "ex.ample"),
            ("_dmarc.example", "_dmarc.example"),
            ("localhost", "localhost"),
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.1.", "127.0.0.1"),
            ("127.1", "127.0.0.1"),
            ("0177.0.0.1", "127.0.0.1"),
            ("0x7f000001", "127.0.0.1"),
            ("0x7f.1", "127.0.0.1"),
            ("2130706433", "127.0.0.1"),
            ("１２７.0.0.1", "127.0.0.1"),
            ("[::1]", "::1"),
            ("[0:0:0:0:0:0:0:1]", "::1"),
            ("[::FFFF:127.0.0.1]", "::ffff:127.0.0.1"),
            ("[::ffff:7f00:1]", "::ffff:127.0.0.1"),
        ] {
            assert_eq!(canonical_host(text).map(Host::into_text), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_host() {
        let long_label = format!("{}.example", "a".repeat(64));
        let long_name = ["abcdefghij"; 24].join(".");
        for (text, expected) in [
            ("", HostError::Empty),
            (".", HostError::Empty),
            ("a..b", HostError::EmptyLabel),
            (".a", HostError::EmptyLabel),
            ("a..", HostError::EmptyLabel),
            ("user@host", HostError::UserInfo),
            ("good.example@evil.example", HostError::UserInfo),
            ("[fe80::1%25eth0]", HostError::Zone),
            ("[fe80::1%eth0]", HostError::Zone),
            ("[::1", HostError::Invalid),
            ("::1", HostError::Invalid),
            ("[127.0.0.1]", HostError::Invalid),
            ("a b", HostError::Invalid),
            ("a/b", HostError::Invalid),
            ("a:80", HostError::Invalid),
            ("a\\b", HostError::Invalid),
            ("a\0b", HostError::Invalid),
            ("%61.example", HostError::Invalid),
            ("*.example", HostError::Invalid),
            ("a!b.example", HostError::Invalid),
            ("256.256.256.256", HostError::Invalid),
            ("1.2.3.4.5", HostError::Invalid),
            ("09.1.1.1", HostError::Invalid),
            ("a.1", HostError::Invalid),
            (&long_label, HostError::TooLong),
            (&long_name, HostError::TooLong),
            (&"a".repeat(100_000), HostError::TooLong),
        ] {
            assert_eq!(canonical_host(text), Err(expected), "{text:.40}");
        }
    }

    #[test]
    fn a_policy_may_leave_the_brackets_out() {
        assert_eq!(canonical_policy_host("::1"), canonical_host("[::1]"));
        assert_eq!(canonical_policy_host("fe80::1%eth0"), Err(HostError::Zone));
        assert_eq!(canonical_policy_host("example.com:80"), Err(HostError::Invalid));
    }

    #[test]
    fn knows_suffixes_that_belong_to_everybody() {
        for domain in ["com", "co.uk", "com.au", "local"] {
            assert!(is_public_suffix(domain), "{domain}");
        }
        for domain in ["example.com", "example.co.uk", "github.io"] {
            assert!(!is_public_suffix(domain), "{domain}");
        }
        for domain in ["github.io", "windows.net", "core.windows.net"] {
            assert!(is_shared_hosting(domain), "{domain}");
        }
        assert!(!is_shared_hosting("example.github.io"));
        assert!(!is_shared_hosting("ub.io"));
    }

    proptest! {
        #[test]
        fn canonical_is_canonical_again(text in "\\PC{0,40}|[a-zA-Z0-9.:\\[\\]xX-]{1,20}|([0-9a-fx]{1,4}\\.){1,4}[0-9]{1,3}") {
            if let Ok(host) = canonical_host(&text) {
                let again = match &host {
                    Host::Ip(IpAddr::V6(address)) => canonical_host(&format!("[{address}]")),
                    other => canonical_host(&other.clone().into_text()),
                };
                prop_assert_eq!(again, Ok(host));
            }
        }
    }
}
