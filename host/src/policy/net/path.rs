//! Paths: one normal form, so that a prefix means whole segments to every server.

/// Longer paths are refused; servers stop at about 8 KiB.
const MAX_PATH: usize = 8 * 1024;

/// Why a path is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PathError {
    /// Not `/…`, or `//…`, which some readers take for a host.
    #[error("the path must begin with one `/`")]
    NotAbsolute,
    /// More than 8 KiB.
    #[error("the path is too long")]
    TooLong,
    /// `%` without two hex digits.
    #[error("the path has a `%` that is not followed by two hexadecimal digits")]
    BadPercent,
    /// A control character, a space, a backslash, or another character that RFC 3986 keeps out of paths.
    #[error("the path has a character that is not allowed in paths")]
    BadCharacter,
    /// Dots that servers disagree about: `..;x`, `a%2f..`, `/a//..`, `%252e`.
    #[error("the path could be read as leaving its place")]
    Ambiguous,
    /// `..` above the root.
    #[error("the path leaves the root")]
    AboveRoot,
}

/// Brings a path to its normal form: RFC 3986 section 6.2.2, and nothing that servers read in two ways.
///
/// Percent-encoded unreserved characters are decoded, hex digits upper-cased, `.` and `..` resolved. What remains ambiguous is refused:
/// backslashes, encoded slashes next to dots, `..;`, dots next to empty segments, doubly encoded dots and slashes. An encoded slash
/// (`group%2Fproject`) stays encoded: a server that decodes it gets a path below the same prefix.
///
/// # Errors
///
/// Returns why the path is refused.
pub fn normalise_path(path: &str) -> Result<String, PathError> {
    if path.len() > MAX_PATH {
        return Err(PathError::TooLong);
    }
    if !path.starts_with('/') || path.starts_with("//") {
        return Err(PathError::NotAbsolute);
    }
    let decoded = decode_unreserved(path)?;
    let segments: Vec<&str> = decoded[1..].split('/').collect();
    let has_dots = segments.iter().any(|segment| matches!(*segment, "." | ".."));
    let (last, before) = segments.split_last().expect("`split` yields at least one piece");
    if has_dots && before.contains(&"") {
        return Err(PathError::Ambiguous);
    }
    let mut kept: Vec<&str> = Vec::with_capacity(segments.len());
    for segment in before {
        match *segment {
            "." => {}
            ".." => drop(kept.pop().ok_or(PathError::AboveRoot)?),
            other => kept.push(other),
        }
    }
    match *last {
        "." => kept.push(""),
        ".." => {
            kept.pop().ok_or(PathError::AboveRoot)?;
            kept.push("");
        }
        other => kept.push(other),
    }
    if kept.iter().any(|segment| is_ambiguous(segment)) {
        return Err(PathError::Ambiguous);
    }
    Ok(format!("/{}", kept.join("/")))
}

/// Whether a normal path lies at or below a normal prefix, in whole segments.
///
/// `/a` covers `/a` and `/a/b`, not `/ab`; `/a/` covers `/a/` and `/a/b`, not `/a`.
pub fn path_within(path: &str, prefix: &str) -> bool {
    match path.strip_prefix(prefix) {
        Some(rest) => prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

/// A segment that is harmless here and is dots or slashes to some server.
fn is_ambiguous(segment: &str) -> bool {
    let upper = segment.to_ascii_uppercase();
    // `%5C` is a slash to some servers. `%25` before `2E`, `2F` or `5C` is one for a server that decodes twice.
    if upper.contains("%5C") || ["%252E", "%252F", "%253B", "%255C", "%2525"].iter().any(|twice| upper.contains(twice)) {
        return true;
    }
    // Tomcat and others cut path parameters, `..;x`, after a proxy has looked at the segment (CVE-2020-5902).
    let pieces: Vec<&str> = upper.split("%2F").collect();
    let is_dots = |piece: &str| matches!(piece.split(';').next().map(|name| name.split("%3B").next()), Some(Some("." | "..")));
    let has_empty = pieces.len() > 1 && pieces.iter().any(|piece| piece.is_empty());
    has_empty || pieces.iter().any(|piece| is_dots(piece))
}

/// Decodes unreserved characters (RFC 3986 section 2.3) and upper-cases the other escapes.
fn decode_unreserved(path: &str) -> Result<String, PathError> {
    let bytes = path.as_bytes();
    let mut decoded = String::with_capacity(path.len());
    let mut index = 0;
    while let Some(&byte) = bytes.get(index) {
        if byte == b'%' {
            let digits = bytes.get(index + 1..index + 3).ok_or(PathError::BadPercent)?;
            let value = hex(digits[0]).zip(hex(digits[1])).map(|(high, low)| high * 16 + low).ok_or(PathError::BadPercent)?;
            match value {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => decoded.push(char::from(value)),
                // Encoded controls split lines or end strings in servers written in C.
                0..0x20 | 0x7f => return Err(PathError::BadCharacter),
                _ => decoded.push_str(&format!("%{value:02X}")),
            }
            index += 3;
            continue;
        }
        // pchar and `/`: RFC 3986 section 3.3.
        let plain = byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&byte);
        if !plain {
            return Err(PathError::BadCharacter);
        }
        decoded.push(char::from(byte));
        index += 1;
    }
    Ok(decoded)
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_normal_form() {
        for (path, expected) in [
            ("/", "/"),
            ("/a", "/a"),
            ("/a/", "/a/"),
            ("/%61", "/a"),
            ("/%7euser", "/~user"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%20b", "/a%20b"),
            ("/%e5%8c%97", "/%E5%8C%97"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/.%2e/b", "/b"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/a//b", "/a//b"),
            ("/a//", "/a//"),
            ("/...", "/..."),
            ("/.well-known/x", "/.well-known/x"),
            ("/a;v=1/b", "/a;v=1/b"),
            ("/100%25", "/100%25"),
            ("/a:b@c", "/a:b@c"),
        ] {
            assert_eq!(normalise_path(path).as_deref(), Ok(expected), "{path}");
        }
    }

    #[test]
    fn refuses_what_servers_read_in_two_ways() {
        for (path, expected) in [
            ("", PathError::NotAbsolute),
            ("a", PathError::NotAbsolute),
            ("*", PathError::NotAbsolute),
            ("//evil.example/", PathError::NotAbsolute),
            ("http://evil.example/", PathError::NotAbsolute),
            ("/..", PathError::AboveRoot),
            ("/a/../../b", PathError::AboveRoot),
            ("/%2e%2e/b", PathError::AboveRoot),
            ("/a\\b", PathError::BadCharacter),
            ("/a%5cb", PathError::Ambiguous),
            ("/a/..%5c..%5cb", PathError::Ambiguous),
            ("/a/..%2fb", PathError::Ambiguous),
            ("/a/x%2f..%2f..%2fb", PathError::Ambiguous),
            ("/a%2f%2fb", PathError::Ambiguous),
            ("/a%2f", PathError::Ambiguous),
            ("/a//../b", PathError::Ambiguous),
            ("/a/..;/b", PathError::Ambiguous),
            ("/a/..%3bx/b", PathError::Ambiguous),
            ("/a/.;/b", PathError::Ambiguous),
            ("/a/%252e%252e/b", PathError::Ambiguous),
            ("/a%252fb", PathError::Ambiguous),
            ("/a%25252fb", PathError::Ambiguous),
            ("/a%00b", PathError::BadCharacter),
            ("/a%0d%0ab", PathError::BadCharacter),
            ("/a\r\nb", PathError::BadCharacter),
            ("/a b", PathError::BadCharacter),
            ("/北京", PathError::BadCharacter),
            ("/a?b", PathError::BadCharacter),
            ("/a#b", PathError::BadCharacter),
            ("/%", PathError::BadPercent),
            ("/%4", PathError::BadPercent),
            ("/%zz", PathError::BadPercent),
            (&format!("/{}", "a".repeat(MAX_PATH)), PathError::TooLong),
        ] {
            assert_eq!(normalise_path(path), Err(expected), "{path:.40}");
        }
    }

    #[test]
    fn a_prefix_is_whole_segments() {
        for (path, prefix, expected) in [
            ("/a", "/", true),
            ("/", "/", true),
            ("/a", "/a", true),
            ("/a/", "/a", true),
            ("/a/b", "/a", true),
            ("/ab", "/a", false),
            ("/a/b", "/a/", true),
            ("/a/", "/a/", true),
            ("/a", "/a/", false),
            ("/a%2Fb", "/a", false),
            ("/b/a", "/a", false),
        ] {
            assert_eq!(path_within(path, prefix), expected, "{path} in {prefix}");
        }
    }

    /// What the most generous server would make of a path: decode all, cut parameters, merge slashes, resolve dots.
    fn generous_server(path: &str) -> Vec<String> {
        let mut text = path.to_owned();
        for _ in 0..3 {
            for (escape, plain) in [("%2F", "/"), ("%2E", "."), ("%5C", "/"), ("%3B", ";"), ("%25", "%"), ("\\", "/")] {
                text = text.replace(escape, plain).replace(&escape.to_lowercase(), plain);
            }
        }
        let mut kept: Vec<String> = Vec::new();
        for segment in text.split('/') {
            match segment.split(';').next().unwrap_or("") {
                "" | "." => {}
                ".." => drop(kept.pop()),
                name => kept.push(name.to_owned()),
            }
        }
        kept
    }

    proptest! {
        #[test]
        fn normal_is_normal_again(path in "/[a-c./%;2eEfF5cC]{0,24}") {
            if let Ok(normal) = normalise_path(&path) {
                prop_assert_eq!(normalise_path(&normal), Ok(normal));
            }
        }

        #[test]
        fn no_server_reads_a_path_as_outside_its_prefix(
            parts in prop::collection::vec(
                prop::sample::select(vec!["a", "b", "..", ".", "/", "//", "%2e", "%2f", "%5c", ";", "%252e", "%3b", "%25", "\\"]), 0..12)
        ) {
            let path = format!("/a/{}", parts.concat());
            if let Ok(normal) = normalise_path(&path) && path_within(&normal, "/a") {
                let seen = generous_server(&normal);
                prop_assert_eq!(seen.first().map(String::as_str), Some("a"), "{} -> {}", path, normal);
            }
        }

        #[test]
        fn within_agrees_with_a_list_of_segments(path in "(/[ab]{0,2}){1,4}", prefix in "(/[ab]{1,2}){0,3}") {
            let segments = |text: &str| text[1..].split('/').map(str::to_owned).collect::<Vec<_>>();
            let expected = prefix.is_empty() || segments(&path).starts_with(&segments(&prefix));
            let prefix = if prefix.is_empty() { "/" } else { &prefix };
            prop_assert_eq!(path_within(&path, prefix), expected);
        }

        #[test]
        fn any_text_is_a_path_or_an_error(path: String) {
            let _ = normalise_path(&path);
        }
    }
}
