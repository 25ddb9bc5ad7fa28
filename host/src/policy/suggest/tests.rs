use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Map;

use super::*;
use crate::policy::{Policy, PolicySource, Verdict};

const REQUESTS: &str = r#"
version = 1
[[config]]
key = "base_url"
default = "http://127.0.0.1:9000/v1"
reason = "where the forecast is"
[[config]]
key = "units"
required = true
[[net]]
config = "base_url"
methods = ["GET", "HEAD"]
reason = "to get it"
[[net]]
host = "*.example.com"
path = "/x/"
[[net]]
host = "*"
reason = "any page"
[[secrets]]
header = "x-key"
host = "*.example.com"
reason = "evil\" \n[limits]\nfuel = 1"
[[fs]]
guest = "/data"
mode = "rw"
[kv]
quota = "1MiB"
[[env]]
name = "LANG"
[limits]
fuel = 5_000
memory = "1GiB"
"#;

fn parse(text: &str) -> Policy {
    let source = PolicySource { name: Arc::from("draft.toml"), text, base_dir: PathBuf::from("/policy") };
    Policy::parse(&[source]).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

#[test]
fn the_draft_parses_and_grants_no_more_than_it_says() {
    let requests = Requests::parse(REQUESTS).expect("valid");
    let read = ToolHints { read_only: true, ..ToolHints::default() };
    let destroy = ToolHints { destructive: true, read_only: true, ..ToolHints::default() };
    let tools = [
        ToolFacts { name: "forecast", hints: read },
        ToolFacts { name: "store", hints: ToolHints::default() },
        ToolFacts { name: "wipe", hints: destroy },
        ToolFacts { name: "*", hints: read },
        ToolFacts { name: "a\n[limits]", hints: read },
    ];
    let digest = "ab".repeat(32);
    let facts = PluginFacts { id: "weather", sha256: Some(&digest), tools: &tools, requests: Some(&requests) };
    let plain = PluginFacts { id: "2-typed", sha256: None, tools: &tools[..1], requests: None };
    let text = suggest(&[facts, plain]);
    let policy = parse(&text);
    let verdict = |tool: &str| policy.decide("weather", tool, &Map::new()).verdict;
    assert_eq!([verdict("forecast"), verdict("store"), verdict("wipe")], [Verdict::Allow, Verdict::Ask, Verdict::Ask]);
    assert_eq!((verdict("*"), verdict("other")), (Verdict::Deny, Verdict::Deny));
    let plugin = policy.plugin("weather").expect("weather");
    assert_eq!(plugin.sha256.as_deref(), Some(digest.as_str()));
    let net: Vec<String> =
        plugin.grants.net.iter().map(|rule| format!("{}:{}{} {:?}", rule.host, rule.port, rule.path, rule.methods)).collect();
    assert_eq!(net, ["127.0.0.1:9000/v1 [\"GET\", \"HEAD\"]", "*.example.com:443/x/ [\"GET\"]"]);
    assert!(plugin.grants.net.iter().all(|rule| rule.private.is_empty() && rule.secret.is_none()));
    assert!(plugin.grants.fs.is_empty() && plugin.grants.env.is_empty() && plugin.grants.config.is_empty());
    assert_eq!(plugin.grants.kv.as_ref().map(|kv| kv.quota_bytes), Some(1 << 20));
    assert_eq!((plugin.limits.fuel, plugin.limits.memory), (5_000, Limits::default().memory));
    assert_eq!(policy.limits(), &Limits::default());
    for line in
        ["# memory = \"1GiB\"", "# units = \"…\"   # required", "# mode = \"rw\"", "# private = ", "# secret = ", "# LANG = "]
    {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn the_lines_in_comments_parse_too() {
    let requests = Requests::parse(REQUESTS).expect("valid");
    let facts = PluginFacts { id: "weather", sha256: None, tools: &[], requests: Some(&requests) };
    let is_code = |line: &str| !line.contains("The plugin says") && (line.starts_with("# [") || line.contains(" = "));
    let uncommented: Vec<String> = suggest(&[facts])
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(code) if is_code(line) && !line.contains("memory") => {
                code.replace("env:…", "env:TOKEN").replace("host = \"…\"", "host = \"any.example\"")
            }
            _ => line.to_owned(),
        })
        .collect();
    let policy = parse(&uncommented.join("\n"));
    let grants = &policy.plugin("weather").expect("weather").grants;
    assert_eq!((grants.net.len(), grants.fs.len(), grants.config.len(), grants.env.len()), (3, 1, 2, 1));
}

#[test]
fn the_draft_for_each_shipped_plugin_parses() {
    for (id, text, rules) in [
        ("fetch", include_str!("../../../../plugins/fetch/requests.toml"), 0),
        ("files", include_str!("../../../../plugins/files/requests.toml"), 0),
        ("weather", include_str!("../../../../plugins/weather/requests.toml"), 2),
    ] {
        let requests = Requests::parse(text).expect(id);
        let tools = [ToolFacts { name: "x", hints: ToolHints::default() }];
        let policy = parse(&suggest(&[PluginFacts { id, sha256: None, tools: &tools, requests: Some(&requests) }]));
        assert_eq!(policy.plugin(id).expect(id).grants.net.len(), rules, "{id}");
    }
}
