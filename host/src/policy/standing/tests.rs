use proptest::prelude::*;
use serde_json::json;

use super::*;

const SHA256: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const RULE: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";

/// An object.
macro_rules! object {
    ($($json:tt)+) => {
        json!($($json)+).as_object().expect("an object").clone()
    };
}

fn call(arguments: &Map<String, Value>) -> StandingCall<'_> {
    StandingCall { plugin: "notes", sha256: SHA256, tool: "delete_note", rule_id: RULE, arguments }
}

#[test]
fn a_grant_covers_the_same_call_and_no_other() {
    let arguments = object!({"title": "天气", "count": 1});
    let mut grants = StandingGrants::default();
    assert!(!grants.covers(&call(&arguments)));
    grants.add(&call(&arguments), "policy.toml:7").expect("added");
    grants.add(&call(&arguments), "policy.toml:7").expect("there already");
    assert_eq!(grants.len(), 1);
    let grants = StandingGrants::parse("grants.toml", &grants.to_toml()).expect("reads back");
    assert!(grants.covers(&call(&arguments)));
    assert!(grants.covers(&call(&object!({"count": 1, "title": "天气"}))), "the order of members means nothing");
    let same = call(&arguments);
    for (what, other) in [
        ("plugin", StandingCall { plugin: "note", ..same }),
        ("component", StandingCall { sha256: RULE, ..same }),
        ("tool", StandingCall { tool: "delete_notes", ..same }),
        ("rule", StandingCall { rule_id: SHA256, ..same }),
        ("arguments", StandingCall { arguments: &object!({"title": "天气", "count": 2}), ..same }),
        ("fewer arguments", StandingCall { arguments: &object!({"title": "天气"}), ..same }),
        ("more arguments", StandingCall { arguments: &object!({"title": "天气", "count": 1, "force": true}), ..same }),
        ("number", StandingCall { arguments: &object!({"title": "天气", "count": 1.0}), ..same }),
        ("kind", StandingCall { arguments: &object!({"title": "天气", "count": "1"}), ..same }),
    ] {
        assert!(!grants.covers(&other), "{what}");
    }
}

#[test]
fn a_file_that_is_not_understood_is_an_error_with_its_line() {
    let good = format!(
        "version = 1\n[[grants]]\nplugin = \"notes\"\nsha256 = \"{SHA256}\"\ntool = \"delete_note\"\nrule = \"p.toml:3\"\nrule_id = \"{RULE}\"\narguments = \"{{}}\"\n"
    );
    assert!(StandingGrants::parse("grants.toml", &good).expect("valid").covers(&call(&object!({}))));
    for (from, to, expected) in [
        ("version = 1\n", "", "grants.toml:1:1: the top level has no `version`"),
        ("version = 1", "version = 2", "grants.toml:1:11: this version is not known"),
        ("plugin = \"notes\"\n", "", "grants.toml:2:1: `[[grants]]` has no `plugin`"),
        ("plugin = \"notes\"", "plugin = \"No\"", "grants.toml:3:10: `plugin` cannot be `No`"),
        ("tool = \"delete_note\"", "tool = \"*\\u001b\"", "grants.toml:5:8: `tool` cannot be"),
        (SHA256, "0123", "grants.toml:4:10: `sha256` is not a SHA-256 digest"),
        (RULE, "*", "grants.toml:7:11: `rule_id` is not a SHA-256 digest"),
        ("arguments = \"{}\"\n", "", "grants.toml:2:1: `[[grants]]` has no `arguments`"),
        ("arguments = \"{}\"", "arguments = \"*\"", "grants.toml:8:13: `arguments`: "),
        ("arguments = \"{}\"", "arguments = '{\"a\":1,\"a\":2}'", "grants.toml:8:13: `arguments`: "),
        ("arguments = \"{}\"", "arguments = \"{}\"\nall = true", "grants.toml:9:1: unknown field `all`"),
        ("[[grants]]", "[[grant]]", "grants.toml:2:3: unknown field `grant`"),
    ] {
        let text = good.replacen(from, to, 1);
        let error = StandingGrants::parse("grants.toml", &text).expect_err(expected).to_string();
        assert!(error.starts_with(expected), "{expected}\n{error}");
    }
}

#[test]
fn grants_are_bounded() {
    let mut grants = StandingGrants::default();
    let long = object!({"text": "x".repeat(MAX_ARGUMENTS)});
    assert_eq!(grants.add(&call(&long), "p:1"), Err(StandingError::TooLong));
    for number in 0..MAX_GRANTS {
        grants.add(&call(&object!({"n": number})), "p:1").expect("room");
    }
    assert_eq!(grants.add(&call(&object!({"n": "one more"})), "p:1"), Err(StandingError::TooMany));
    let text = grants.to_toml();
    assert_eq!(StandingGrants::parse("g", &text).expect("valid").len(), MAX_GRANTS);
    assert!(StandingGrants::parse("g", &format!("{text}{}", "#".repeat(MAX_GRANTS_BYTES))).is_err());
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(key: String, text: String, number: i64, tool in "[a-z/\"\\\\京-]{1,20}", rule: String) {
        let mut arguments = serde_json::Map::new();
        arguments.insert(key, json!([text, number, null]));
            let mut grants = StandingGrants::default();
        let call = StandingCall { tool: &tool, ..call(&arguments) };
        grants.add(&call, &rule).expect("added");
        let read = StandingGrants::parse("grants.toml", &grants.to_toml()).expect("reads back");
        prop_assert!(read.covers(&call));
        prop_assert_eq!(read.to_toml(), grants.to_toml());
    }

    #[test]
    fn any_text_is_grants_or_an_error(text: String) {
        let _ = StandingGrants::parse("grants.toml", &text);
    }
}
