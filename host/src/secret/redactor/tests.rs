use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use proptest::prelude::*;
use serde_json::json;

use super::*;

const SECRET: &str = "sk-北京/ab+c\"d\\e%f";

fn percent(text: &str, keep: impl Fn(u8) -> bool, upper: bool) -> String {
    text.bytes()
        .map(|byte| match byte {
            _ if keep(byte) => char::from(byte).to_string(),
            _ if upper => format!("%{byte:02X}"),
            _ => format!("%{byte:02x}"),
        })
        .collect()
}

fn hex_text(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn json_text(text: &str) -> String {
    let quoted = Value::String(text.to_owned()).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn json_ascii(text: &str) -> String {
    text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect()
}

/// Everything that a secret may look like in a log line.
fn encodings(secret: &str) -> Vec<(&'static str, String)> {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let padded = |before: &str, after: &str| STANDARD.encode(format!("{before}{secret}{after}"));
    vec![
        ("plain", secret.to_owned()),
        ("hex", hex_text(secret)),
        ("HEX", hex_text(secret).to_uppercase()),
        ("percent", percent(secret, unreserved, true)),
        ("percent, lower", percent(secret, unreserved, false)),
        ("percent, all", percent(secret, |_| false, true)),
        ("percent, twice", percent(&percent(secret, unreserved, true), unreserved, true)),
        ("json", json_text(secret)),
        ("json, twice", json_text(&json_text(secret))),
        ("json, ascii", json_ascii(secret)),
        ("json of percent", json_text(&percent(secret, |_| false, true))),
        ("percent of json", percent(&json_text(secret), unreserved, true)),
        ("base64", padded("", "")),
        ("base64 at 1", padded("x", "y")),
        ("base64 at 2", padded("u:", "")),
        ("base64 at 3", padded("abc", "defgh")),
        ("base64url", URL_SAFE.encode(format!("x{secret}zz"))),
        ("base64, no padding", STANDARD_NO_PAD.encode(secret)),
        ("base64, percent", percent(&padded("u:", ""), unreserved, true)),
        ("base64, json", padded("u:", "").replace('/', "\\/")),
    ]
}

#[test]
fn redacts_every_encoding_and_nothing_else() {
    let redactor = Redactor::new(["another one", SECRET]);
    for (name, encoded) in encodings(SECRET) {
        let text = format!("上海 before <{encoded}> after, 100% \\ ok");
        let redacted = redactor.redact(&text);
        assert!(redacted.contains(REDACTED), "{name}: {redacted}");
        assert!(redacted.starts_with("上海 before <") && redacted.ends_with("> after, 100% \\ ok"), "{name}: {redacted}");
        assert!(redactor.contains(text.as_bytes()), "{name}");
        assert!(!redactor.contains(redacted.as_bytes()), "{name}: {redacted}");
    }
    for text in ["", "nothing here", "sk-北京/ab+c\"d\\e%", "%", "%4", "\\", "\\u12", "\\ud800\\u0041", "%zz\\x"] {
        assert_eq!(redactor.redact(text), text);
        assert!(!redactor.contains(text.as_bytes()));
    }
}

#[test]
fn redacts_a_secret_that_is_part_of_another() {
    let redactor = Redactor::new(["token", "token-and-more"]);
    assert_eq!(redactor.redact("a token-and-more, a token"), "a [secret], a [secret]");
    assert_eq!(redactor.redact("tokentoken"), "[secret][secret]");
}

#[test]
fn a_space_may_be_a_plus() {
    let redactor = Redactor::new(["pass word/1"]);
    assert_eq!(redactor.redact("a=pass+word%2f1&b=2"), "a=[secret]&b=2");
}

#[test]
fn base64_leaves_no_bits_at_the_edges() {
    let redactor = Redactor::new(["hunter2!"]);
    for before in ["", "a", "ab", "abc"] {
        let encoded = STANDARD.encode(format!("{before}hunter2!"));
        let redacted = redactor.redact(&encoded).into_owned();
        let left = redacted.replace(REDACTED, "").replace('=', "");
        assert!(left.len() <= before.len() / 3 * 4 + before.len() % 3, "{encoded} -> {redacted}");
    }
}

#[test]
fn redacts_json_values_keys_and_numbers() {
    let redactor = Redactor::new(["12345678", "topsecret"]);
    let mut value = json!({"a": ["x topsecret y", 12345678, 1], "topsecret": {"b": null}, "n": 1.5});
    redactor.redact_json(&mut value);
    assert_eq!(value, json!({"a": ["x [secret] y", "[secret]", 1], "[secret]": {"b": null}, "n": 1.5}));
}

#[test]
fn knows_nothing_when_there_is_no_secret() {
    let redactor = Redactor::new([""]);
    assert!(redactor.is_empty());
    assert_eq!(redactor.window(), 0);
    assert!(matches!(redactor.redact("%41"), Cow::Borrowed("%41")));
}

#[test]
fn the_window_holds_the_longest_form() {
    let redactor = Redactor::new([SECRET]);
    for (name, encoded) in encodings(SECRET) {
        assert!(encoded.len() <= redactor.window(), "{name}");
    }
}

proptest! {
    #[test]
    fn no_encoding_of_any_secret_survives(
        secret in "[ -~é北😀]{4,40}",
        before in "[a-zA-Z%\"é北 ]{0,9}",
        after in "[a-zA-Z%\\\\\"é北 ]{0,9}",
    ) {
        let redactor = Redactor::new([secret.as_str()]);
        for (name, encoded) in encodings(&secret) {
            let text = format!("{before}<{encoded}>{after}");
            prop_assert!(redactor.contains(text.as_bytes()), "{}: {}", name, text);
            let redacted = redactor.redact(&text);
            prop_assert!(redacted.contains(REDACTED), "{}: {} -> {}", name, text, redacted);
            prop_assert!(!redacted.contains(&encoded) || REDACTED.contains(&encoded), "{}: {} -> {}", name, text, redacted);
        }
    }

    #[test]
    fn text_without_secrets_is_borrowed(text in "[a-m %\\\\]{0,80}") {
        let redactor = Redactor::new(["zzzz-never"]);
        prop_assert!(matches!(redactor.redact(&text), Cow::Borrowed(_)));
    }

    #[test]
    fn any_bytes_are_scanned_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let redactor = Redactor::new(["%41\\u0041", "sk-test"]);
        let _ = redactor.contains(&bytes);
        let _ = redactor.redact(&String::from_utf8_lossy(&bytes));
    }
}
