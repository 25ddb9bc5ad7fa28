use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::policy::{Policy, PolicySource};

fn parse(rules: &[(&str, &str, &str)]) -> Policy {
    let mut text = String::from("version = 1\n");
    for (name, decision, more) in rules {
        text.push_str(&format!("[[plugins.p.tools]]\nname = \"{name}\"\ndecision = \"{decision}\"\n{more}\n"));
    }
    let source = PolicySource { name: Arc::from("p.toml"), text: &text, base_dir: PathBuf::from("/policy") };
    Policy::parse(&[source]).expect("valid")
}

#[test]
fn deny_beats_ask_beats_allow_and_nothing_is_deny() {
    for (rules, tool, expected) in [
        (vec![("x", "allow", "")], "x", Verdict::Allow),
        (vec![("x", "allow", "")], "y", Verdict::Deny),
        (vec![("x", "allow", "")], "X", Verdict::Deny),
        (vec![("x", "allow", "")], "xx", Verdict::Deny),
        (vec![("x", "allow", "")], "", Verdict::Deny),
        (vec![("x", "allow", ""), ("*", "ask", "")], "x", Verdict::Ask),
        (vec![("x*", "ask", ""), ("x", "allow", "")], "x", Verdict::Ask),
        (vec![("x", "allow", ""), ("x*", "deny", "")], "x", Verdict::Deny),
        (vec![("x*", "deny", ""), ("x", "allow", "")], "x", Verdict::Deny),
        (vec![("get_*", "allow", "")], "get_", Verdict::Allow),
        (vec![("get_*", "allow", "")], "get", Verdict::Deny),
        (vec![("get_*", "allow", ""), ("get_secret*", "deny", "")], "get_secrets", Verdict::Deny),
        (vec![("北*", "allow", "")], "北京", Verdict::Allow),
        (vec![("北*", "allow", "")], "南京", Verdict::Deny),
    ] {
        let policy = parse(&rules);
        assert_eq!(policy.decide("p", tool, &Map::new()).verdict, expected, "{rules:?} {tool}");
        assert_eq!(policy.decide_value("p", tool, &json!({})).verdict, expected);
        assert_eq!(policy.decide("q", tool, &Map::new()).verdict, Verdict::Deny);
    }
}

const ACME: &str = "args = { required = [\"repo\"], properties = { repo = { type = \"string\", pattern = \"^acme/\" } } }";

#[test]
fn args_decide_whether_a_rule_applies() {
    let policy = parse(&[("x", "allow", ACME), ("x*", "deny", "args = { required = [\"force\"] }"), ("z", "deny", ACME)]);
    for (tool, arguments, expected) in [
        ("x", json!({"repo": "acme/a"}), Verdict::Allow),
        ("x", json!({"repo": "evil/a"}), Verdict::Deny),
        ("x", json!({}), Verdict::Deny),
        ("x", json!({"repo": "acme/a", "force": false}), Verdict::Deny),
        ("xy", json!({}), Verdict::Deny),
        ("z", json!({"repo": "acme/a"}), Verdict::Deny),
    ] {
        let map = arguments.as_object().expect("an object");
        assert_eq!(policy.decide("p", tool, map).verdict, expected, "{tool} {arguments}");
    }
}

#[test]
fn a_denial_names_plugin_tool_rule_and_what_would_allow_it() {
    let policy = parse(&[("x", "allow", ACME), ("rm*", "deny", ""), ("y", "deny", ACME)]);
    let deny = |tool: &str, arguments: Value| policy.decide("p", tool, arguments.as_object().expect("an object"));

    let denied = deny("rm_all", json!({}));
    assert_eq!(denied.reason, "rule `rm*` (p.toml:6) denies tool `rm_all` of plugin `p`");
    assert_eq!(denied.hint.as_deref(), Some("a deny rule beats every other: remove p.toml:6 or make its `name` narrower"));

    let denied = deny("none", json!({}));
    assert_eq!((denied.reason.as_str(), denied.rule), ("no rule of plugin `p` names tool `none`", None));
    assert_eq!(
        denied.hint.as_deref(),
        Some("to allow it, add to the policy:\n[[plugins.p.tools]]\nname = \"none\"\ndecision = \"allow\"")
    );

    let denied = deny("x", json!({"repo": "evil/x"}));
    assert_eq!(denied.rule.as_ref().map(|rule| rule.line), Some(2));
    assert_eq!(
        denied.reason,
        "rule `x` (p.toml:2) allows tool `x` of plugin `p` with other arguments only: argument `/repo`: \"evil/x\" does not match \"^acme/\""
    );
    let hint = denied.hint.expect("a hint");
    assert!(hint.starts_with("call it with arguments that the rule allows, or change `args` at "), "{hint}");
    assert!(!hint.contains("decision"), "a rule that the model's arguments would write: {hint}");

    let denied = deny("y", json!({}));
    assert_eq!(denied.reason, "only rules that deny name tool `y` of plugin `p`");
    let long = deny("x", json!({"repo": "\u{1b}[2J".repeat(10_000)}));
    assert!(long.reason.len() < 600 && !long.reason.contains('\u{1b}'), "{}", long.reason);
}

#[test]
fn no_rule_is_suggested_that_the_models_arguments_would_write() {
    let text = format!("version = 1\n[[plugins.p.tools]]\nname = \"x\"\ndecision = \"allow\"\n{ACME}\n");
    let source = PolicySource { name: Arc::from("p.toml"), text: &text, base_dir: PathBuf::from("/policy") };
    let policy = Policy::parse(&[source]).expect("valid");
    for value in [json!("evil/\"x\\"), json!("acme\u{200b}"), json!(5), json!(true), json!(null)] {
        let hint = policy.decide_value("p", "x", &json!({ "repo": value })).hint.expect("a hint");
        assert!(hint.contains("p.toml:2") && !hint.contains("[["), "{hint}");
    }
}

#[test]
fn every_rule_that_matches_counts_its_calls() {
    let policy =
        parse(&[("*", "allow", "max_calls = 9"), ("x", "allow", "max_calls = 2"), ("x*", "ask", ""), ("y", "allow", "")]);
    let limits = |tool: &str| {
        let decision = policy.decide("p", tool, &Map::new());
        decision.limits.into_iter().map(|limit| (limit.rule.to_string(), limit.max_calls)).collect::<Vec<_>>()
    };
    assert_eq!(limits("x"), [("p.toml:6".to_owned(), Some(2)), ("p.toml:2".to_owned(), Some(9))]);
    assert_eq!(limits("y"), [("p.toml:2".to_owned(), Some(9))]);
}

#[test]
fn rules_on_one_line_are_counted_apart() {
    let text = "version = 1\n[plugins.p]\ntools = [{ name = \"x\", decision = \"allow\", max_calls = 1 }, { name = \"y\", decision = \"allow\", max_calls = 1 }]";
    let source = PolicySource { name: Arc::from("p.toml"), text, base_dir: PathBuf::from("/policy") };
    let policy = Policy::parse(&[source]).expect("valid");
    let key = |tool: &str| policy.decide("p", tool, &Map::new()).limits[0].key.clone();
    assert_ne!(key("x"), key("y"));
}

#[test]
fn the_outlook_is_what_holds_for_all_arguments() {
    let policy = parse(&[
        ("a", "allow", ""),
        ("b", "allow", ACME),
        ("c", "allow", ""),
        ("c*", "deny", ACME),
        ("d", "deny", ACME),
        ("e", "ask", ""),
    ]);
    let rules = &policy.plugin("p").expect("plugin p").rules;
    for (tool, expected) in [
        ("a", Some(Verdict::Allow)),
        ("b", None),
        ("c", None),
        ("d", Some(Verdict::Deny)),
        ("e", Some(Verdict::Ask)),
        ("f", Some(Verdict::Deny)),
    ] {
        assert_eq!(rules.outlook(tool), expected, "{tool}");
    }
}

/// The plainest possible decision: looks at every rule.
fn reference(rules: &[ToolRule], tool: &str) -> Verdict {
    let covers = |rule: &&ToolRule| match &rule.tools {
        ToolPattern::Exact(name) => name == tool,
        ToolPattern::Prefix(prefix) => tool.starts_with(prefix.as_str()),
    };
    rules.iter().filter(covers).map(|rule| rule.verdict).max().unwrap_or(Verdict::Deny)
}

proptest! {
    #[test]
    fn the_index_agrees_with_looking_at_every_rule(
        rules in prop::collection::btree_set(("[ab京]{0,3}", any::<bool>()), 0..8), verdicts in prop::collection::vec(0..3usize, 8), tool in "[ab京]{0,4}"
    ) {
        let names = ["allow", "ask", "deny"];
        let rules: Vec<(String, &str)> = rules
            .into_iter()
            .zip(verdicts)
            .filter(|((name, prefix), _)| *prefix || !name.is_empty())
            .map(|((name, prefix), verdict)| (if prefix { format!("{name}*") } else { name }, names[verdict]))
            .collect();
        let rows: Vec<(&str, &str, &str)> = rules.iter().map(|(name, decision)| (name.as_str(), *decision, "")).collect();
        let policy = parse(&rows);
        let expected = policy.plugin("p").map_or(Verdict::Deny, |plugin| reference(plugin.rules.all(), &tool));
        prop_assert_eq!(policy.decide("p", &tool, &Map::new()).verdict, expected);
    }
}
