//! Raw tool names: `interface__function`. Policy binds to them, so they depend on nothing but the component's own names.

use sha2::{Digest, Sha256};

/// The longest name.
const MAX_NAME: usize = 64;
/// How many hexadecimal digits of the digest end a shortened name.
const DIGEST_DIGITS: usize = 8;

/// The last part of an interface's export name: `clock` of `acme:time/clock@1.2.0`. The version does not count: an upgrade of the
/// plugin must not rename its tools.
pub(super) fn interface_name(export: &str) -> &str {
    let unversioned = export.split_once('@').map_or(export, |(name, _)| name);
    unversioned.rsplit_once('/').map_or(unversioned, |(_, name)| name)
}

/// The raw name of a function's tool.
///
/// WIT names have no underscores, so `__` separates without doubt. A name that is too long is cut, and one with other characters
/// changed; both then end in eight hexadecimal digits of the SHA-256 of the whole name.
pub(super) fn tool_name(interface: Option<&str>, function: &str) -> String {
    let raw = interface.map_or_else(|| function.to_owned(), |interface| format!("{interface}__{function}"));
    let legal: String = raw.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect();
    if legal == raw && raw.len() <= MAX_NAME {
        return raw;
    }
    let digest = Sha256::digest(&raw);
    let hex: String = digest.iter().take(DIGEST_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect();
    let kept: String = legal.chars().take(MAX_NAME - DIGEST_DIGITS - 1).collect();
    format!("{kept}_{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_legal_stable_and_apart() {
        assert_eq!(tool_name(None, "get-time"), "get-time");
        assert_eq!(tool_name(Some(interface_name("acme:time/clock@1.2.0")), "now"), "clock__now");
        assert_eq!(tool_name(Some(interface_name("inline")), "now"), "inline__now");
        let long = "a".repeat(129);
        let names =
            [tool_name(None, &long), tool_name(None, &format!("{long}b")), tool_name(Some("i"), &long), tool_name(None, "天")];
        for name in &names {
            assert!(name.len() <= MAX_NAME && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)), "{name}");
        }
        assert_eq!(names[0], format!("{}_{}", "a".repeat(55), "c12cb024"));
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len(), "{names:?}");
    }
}
