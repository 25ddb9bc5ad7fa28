use serde_json::Map;

use super::source;
use crate::policy::{Policy, Verdict};

fn merge(texts: &[&str]) -> Result<Policy, String> {
    let names = ["a.toml", "b.toml", "c.toml"];
    let texts: Vec<String> = texts.iter().map(|text| format!("version = 1\n{text}")).collect();
    let sources: Vec<_> = texts.iter().zip(names).map(|(text, name)| source(name, text)).collect();
    Policy::parse(&sources).map_err(|errors| errors.to_string())
}

#[test]
fn grants_add_up_and_any_deny_wins() {
    let policy = merge(&[
        "[[plugins.x.tools]]\nname = \"*\"\ndecision = \"allow\"\n[[plugins.x.net]]\nhost = \"a.example\"\n[plugins.x.env]\nA = \"1\"",
        "[[plugins.x.tools]]\nname = \"rm\"\ndecision = \"deny\"\n[[plugins.x.net]]\nhost = \"b.example\"\n[plugins.x.env]\nA = \"1\"\nB = \"2\"",
        "[[plugins.y.tools]]\nname = \"t\"\ndecision = \"ask\"",
    ])
    .expect("valid");
    let verdict = |plugin: &str, tool: &str| policy.decide(plugin, tool, &Map::new()).verdict;
    assert_eq!((verdict("x", "ls"), verdict("x", "rm"), verdict("y", "t")), (Verdict::Allow, Verdict::Deny, Verdict::Ask));
    let denied = policy.decide("x", "rm", &Map::new());
    assert_eq!(denied.rule.map(|rule| rule.to_string()).as_deref(), Some("b.toml:2"));
    let grants = &policy.plugin("x").expect("plugin x").grants;
    assert_eq!((grants.net.len(), grants.env.len()), (2, 2));
}

#[test]
fn of_limits_the_smallest_counts() {
    let policy = merge(&[
        "[limits]\nfuel = 9\nconcurrency = 3\n[plugins.x.limits]\nfuel = 8\n[plugins.x.kv]\nquota = 5",
        "[limits]\nfuel = 5\n[plugins.x.kv]\nquota = 3",
        "[plugins.x.limits]\nconcurrency = 2",
    ])
    .expect("valid");
    assert_eq!((policy.limits().fuel, policy.limits().concurrency), (5, 3));
    let plugin = policy.plugin("x").expect("plugin x");
    assert_eq!((plugin.limits.fuel, plugin.limits.concurrency), (5, 2));
    assert_eq!(plugin.grants.kv.as_ref().map(|kv| kv.quota_bytes), Some(3));
}

#[test]
fn what_contradicts_is_an_error() {
    let pin = |digit: &str| format!("[plugins.x]\nsha256 = \"{}\"", digit.repeat(64));
    for (first, second, expected) in [
        (pin("a"), pin("b"), "b.toml:3: `sha256` is not the one that a.toml:3 states"),
        (
            "[plugins.x]\nsource = \"a.wasm\"".into(),
            "[plugins.x]\nsource = \"b.wasm\"".into(),
            "b.toml:3: `source` is not the one",
        ),
        ("[plugins.x.env]\nA = \"1\"".into(), "[plugins.x.env]\nA = \"2\"".into(), "b.toml:3: `env.A` is not the one"),
        ("[plugins.x.config]\nA = \"1\"".into(), "[plugins.x.config]\nA = \"2\"".into(), "b.toml:3: `config.A` is not the one"),
        (
            "[limits]\nfuel = 5".into(),
            "[plugins.x.limits]\nfuel = 6".into(),
            "b.toml:3: `fuel` of the plugin is 6, above the ceiling of 5 (stated at a.toml:3)",
        ),
        (
            "[[plugins.x.fs]]\nhost = \"d\"\nguest = \"/d\"\nmode = \"ro\"".into(),
            "[[plugins.x.fs]]\nhost = \"d\"\nguest = \"/e\"\nmode = \"rw\"".into(),
            "b.toml:2: a read-only and a writable mount overlap: this one and that at a.toml:2",
        ),
        (
            "[[plugins.x.fs]]\nhost = \"d\"\nguest = \"/d\"\nmode = \"ro\"".into(),
            "[[plugins.x.fs]]\nhost = \"e\"\nguest = \"/d\"\nmode = \"ro\"".into(),
            "b.toml:2: guest path `/d` is mounted twice, first at a.toml:2",
        ),
    ] {
        let error = merge(&[&first, &second]).expect_err(expected);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn what_repeats_across_files_is_one() {
    let text = "[plugins.x]\nsource = \"y.wasm\"\n[[plugins.x.fs]]\nhost = \"d\"\nguest = \"/d\"\nmode = \"ro\"\n\
                [[plugins.x.net]]\nhost = \"a.example\"\n[[plugins.x.tools]]\nname = \"t\"\ndecision = \"allow\"";
    let policy = merge(&[text, text]).expect("valid");
    assert_eq!(policy.plugin("x").expect("plugin x").grants.fs.len(), 1);
}

#[test]
fn errors_of_all_files_are_reported_in_their_order() {
    let error = merge(&["x = 1", "y = 1"]).expect_err("unknown fields");
    let places: Vec<&str> =
        error.lines().filter(|line| !line.starts_with(' ')).filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(places, ["a.toml:2:1", "b.toml:2:1"]);
}
