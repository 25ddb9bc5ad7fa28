//! A URL, in the parts that an HTTP request has.
//!
//! Only what a request needs; the host reads the parts again, by the URL standard, and decides. A tool that joins or compares URLs uses
//! the crate `url`.

use super::HttpError;

/// Where a request goes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Target<'a> {
    /// Whether the scheme is `https`.
    pub(super) secure: bool,
    /// The host, and the port if there is one.
    pub(super) authority: &'a str,
    /// The path and the query, percent-encoded.
    pub(super) path_with_query: String,
}

impl<'a> Target<'a> {
    /// Reads an absolute `http` or `https` URL.
    pub(super) fn parse(url: &'a str) -> Result<Self, HttpError> {
        let wrong = |why: &str| HttpError::InvalidRequest(format!("`{}`: {why}", url.chars().take(200).collect::<String>()));
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("a URL begins with `https://` or `http://`"))?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(wrong("only `https` and `http` can be requested")),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.is_empty() {
            return Err(wrong("there is no host in it"));
        }
        if authority.contains('@') {
            // They would end up in logs; and `https://good.example@evil.example/` reads as what it is not.
            return Err(wrong("a user name or password does not belong in a URL"));
        }
        if !authority.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b)) {
            return Err(wrong("the host has a character that is not allowed; write a non-ASCII name as `xn--…`"));
        }
        let mut path_with_query = String::with_capacity(path.len() + 1);
        if !path.starts_with('/') {
            path_with_query.push('/');
        }
        for c in path.chars() {
            match c {
                '\\' => return Err(wrong("`\\` does not belong in a URL; write `%5C`")),
                '!'..='~' if !"\"<>^`{|}".contains(c) => path_with_query.push(c),
                _ if c.is_ascii_control() => return Err(wrong("a control character does not belong in a URL")),
                _ => encode_char(&mut path_with_query, c),
            }
        }
        Ok(Self { secure, authority, path_with_query })
    }
}

/// Appends `text` with all but the unreserved characters (RFC 3986, section 2.3) percent-encoded.
pub(super) fn encode(out: &mut String, text: &str) {
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || "-._~".contains(c) { out.push(c) } else { encode_char(out, c) }
    }
}

fn encode_char(out: &mut String, c: char) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        out.push('%');
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_a_url() {
        for (url, secure, authority, path) in [
            ("https://a.example", true, "a.example", "/"),
            ("HTTP://127.0.0.1:8080/v1/x?y=1#z", false, "127.0.0.1:8080", "/v1/x?y=1"),
            ("https://[::1]:8443?q", true, "[::1]:8443", "/?q"),
            ("https://a.example/北 京?名=%20\"", true, "a.example", "/%E5%8C%97%20%E4%BA%AC?%E5%90%8D=%20%22"),
        ] {
            let expected = Target { secure, authority, path_with_query: path.to_owned() };
            assert_eq!(Target::parse(url).expect(url), expected);
        }
    }

    #[test]
    fn refuses_what_is_not_a_plain_http_url() {
        for url in [
            "",
            "a.example/x",
            "//a.example/",
            "ftp://a.example/",
            "https://",
            "https:///path",
            "https://user:pass@a.example/",
            "https://good.example@evil.example/",
            "https://例子.example/",
            "https://a.example\\@evil.example/",
            "https://a b/",
            "https://a.example/x\ny",
            "https://a.example/x\\y",
        ] {
            assert!(matches!(Target::parse(url), Err(HttpError::InvalidRequest(_))), "{url}");
        }
    }
}
