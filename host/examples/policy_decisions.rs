//! Measures policy decisions: how many a second, and that rules which do not concern the tool cost nothing.

#![expect(clippy::print_stdout, reason = "it prints what it measures")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use honeycomb_host::policy::{Policy, PolicySource};
use serde_json::{Map, Value, json};

const DECISIONS: u32 = 100_000;
const ROUNDS: usize = 5;
const RULES_PER_PLUGIN: usize = 20;

fn main() {
    let (small, parsed_small) = policy(1);
    let (large, parsed_large) = policy(50);
    println!("parse: {} rules in {parsed_small:?}, {} rules in {parsed_large:?}", RULES_PER_PLUGIN, 50 * RULES_PER_PLUGIN);
    for (what, tool, arguments) in [
        ("by name", "tool_7", json!({})),
        ("by prefix", "get_anything", json!({})),
        ("by arguments", "create_issue", json!({"repo": "acme/honeycomb", "title": "a bug", "labels": ["a", "b"]})),
        ("denied", "unknown", json!({})),
    ] {
        let Value::Object(arguments) = arguments else { continue };
        // Interleaved, so that both see the same weather on the machine.
        let mut best = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            for (policy, best) in [&small, &large].into_iter().zip(&mut best) {
                *best = (*best).min(measure(policy, tool, &arguments));
            }
        }
        let [small, large] = best.map(|time| f64::from(DECISIONS) / time.as_secs_f64());
        println!("{what}: {small:.0}/s with {RULES_PER_PLUGIN} rules, {large:.0}/s with {} rules", 50 * RULES_PER_PLUGIN);
    }
}

fn measure(policy: &Policy, tool: &str, arguments: &Map<String, Value>) -> Duration {
    let start = Instant::now();
    for _ in 0..DECISIONS {
        black_box(policy.decide(black_box("plugin-0"), black_box(tool), black_box(arguments)));
    }
    start.elapsed()
}

fn policy(plugins: usize) -> (Policy, Duration) {
    let mut text = String::from("version = 1\n");
    for plugin in 0..plugins {
        let mut rule = |name: &str, more: &str| {
            let _ = write!(text, "[[plugins.plugin-{plugin}.tools]]\nname = \"{name}\"\ndecision = \"allow\"\n{more}\n");
        };
        for tool in 0..RULES_PER_PLUGIN - 2 {
            rule(&format!("tool_{tool}"), "");
        }
        rule("get_*", "");
        let schema =
            "{ type = \"object\", required = [\"repo\"], properties = { repo = { type = \"string\", pattern = \"^acme/\" } } }";
        rule("create_issue", &format!("args = {schema}"));
    }
    let source = PolicySource { name: Arc::from("policy.toml"), text: &text, base_dir: PathBuf::from("/policy") };
    let start = Instant::now();
    let policy = Policy::parse(&[source]).expect("the policy is valid");
    (policy, start.elapsed())
}
