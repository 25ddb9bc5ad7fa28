use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::Map;

use super::*;
use crate::policy::{FsMode, NetTarget, PluginPolicy, Verdict};

fn imported(text: &str) -> (String, PluginPolicy) {
    let written = import("tool", text, Path::new("/srv/policy")).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let source = PolicySource { name: Arc::from("imported.toml"), text: &written, base_dir: PathBuf::from("/srv/policy") };
    let policy = Policy::parse(&[source]).unwrap_or_else(|errors| panic!("{errors}\n{written}"));
    assert_eq!(policy.decide("tool", "anything", &Map::new()).verdict, Verdict::Ask);
    let plugin = policy.plugin("tool").expect("the plugin").clone();
    (written, plugin)
}

/// All that the format has, from its specification and examples.
const FULL: &str = r#"
$schema: https://raw.githubusercontent.com/microsoft/policy-mcp/main/schema/v1.json
version: "1.0"
description: "天气 policy"
permissions:
  storage:
    allow:
    - uri: "fs:///srv/data/**"
      access: ["read", "write"]
    - uri: "fs:///srv/models"
      access: [read]
    - uri: "fs:///home/ann"
      access: [read]
    - uri: "fs://work/agent/**"
      access: ["read"]
    - uri: "fs:///srv/one/*"
      access: ["read"]
    - uri: "fs:///srv/drop"
      access: ["write"]
    - uri: "fs:///srv/mixed/**"
      access: ["read"]
    deny:
    - uri: "fs:///srv/mixed/keys/*"
      access: ["read"]
  network:
    allow:
    - host: "API.GitHub.com"
    - host: "*.example.org"
    - host: "*"
    - host: "https://a.example"
    - host: "*.denied.example"
    - cidr: "10.0.0.0/8"
    - defaults: true
    deny:
    - host: "x.denied.example"
    - cidr: "192.168.0.0/16"
  environment:
    allow:
    - key: "GITHUB_TOKEN"
  runtime:
    docker:
      security: { privileged: false }
    wasm:
      engine: wasmtime
      wasi:
        inherit_env: true
        preopens:
        - { host_path: "fs:///srv/cache", guest_path: /cache, access: [read, write] }
  resources:
    cpu: 50.0
    memory: 64
  ipc: { allow: null }
"#;

#[test]
fn carries_over_what_means_the_same_and_comments_on_the_rest() {
    let (text, plugin) = imported(FULL);
    let net: Vec<String> = plugin.grants.net.iter().map(ToString::to_string).collect();
    assert_eq!(net, ["GET https://api.github.com/", "GET https://*.example.org/"], "{text}");
    let fs: Vec<_> = plugin.grants.fs.iter().map(|fs| (fs.host.to_str().expect("text"), fs.guest.as_str(), fs.mode)).collect();
    assert_eq!(
        fs,
        [
            ("/srv/data", "/srv/data", FsMode::ReadWrite),
            ("/srv/models", "/srv/models", FsMode::ReadOnly),
            ("/srv/cache", "/cache", FsMode::ReadWrite)
        ],
        "{text}"
    );
    assert_eq!(plugin.limits.memory, 64_000_000);
    assert!(plugin.grants.env.is_empty() && plugin.grants.kv.is_none());
    for left_out in [
        "天气 policy",
        "is a home directory",
        "what a relative path starts from",
        "cannot follow a pattern",
        "it may be written and not read",
        "line 23 denies part of it",
        "line 29: host `*`, since line 35 denies",
        "line 30: host `https://a.example`, since line 35 denies",
        "`*.denied.example`, since line 35 denies `x.denied.example`",
        "cidr 10.0.0.0/8",
        "defaults: true",
        "environment `GITHUB_TOKEN`",
        "resources.cpu",
        "runtime.docker",
        "runtime.wasm.wasi.inherit_env",
        "`ipc`",
    ] {
        let flat = text.replace("\n# ", " ");
        assert!(flat.contains(left_out), "{left_out}\n{text}");
    }
}

#[test]
fn refuses_what_it_does_not_understand() {
    for (text, expected) in [
        ("", "line 1: the file is empty"),
        ("permissions: {}", "line 1: there is no `version`"),
        ("version: 2.0", "line 1: only version 1"),
        ("version: 1.0\nlimits: {}", "line 2: `limits` is not known"),
        ("version: 1.0\nversion: 1.1", "line 2: `version` appears twice"),
        ("version: 1.0\n---\nversion: 1.0", "there is more than one document"),
        ("version: 1.0\npermissions:\n  network:\n    block: []", "line 4: `block` is not known, and could be a restriction"),
        (
            "version: 1.0\npermissions:\n  network:\n    allow:\n    - host: a.example\n      methods: [GET]",
            "line 5: an entry here is one of",
        ),
        (
            "version: 1.0\npermissions:\n  storage:\n    allow:\n    - uri: fs:///a\n      access: [execute]",
            "line 6: `execute` is not known",
        ),
        ("version: 1.0\npermissions:\n  storage:\n    allow:\n    - access: [read]", "line 5: an entry here has a `uri`"),
        ("version: &a 1.0\ndescription: *a", "line 2: aliases"),
        ("version: !!str 1.0", "line 1: tags"),
        ("[a, b]", "line 1: `the file` must be a map"),
        ("{[a]: b}", "line 1: a key must be"),
        ("version: [", "this is not YAML"),
        (&"[".repeat(100_000), "line 1: "),
        (&"- ".repeat(10_000), "nested too deeply"),
        (&"#".repeat(MAX_IMPORT_BYTES + 1), "is larger than"),
    ] {
        let error = import("tool", text, Path::new("/srv/policy")).expect_err(expected).to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn a_denial_that_cannot_be_carried_over_takes_what_it_could_touch() {
    let net = |deny: &str| {
        let text = format!("version: 1.0\npermissions:\n  network:\n    allow: [{{host: a.example}}]\n    deny: [{deny}]");
        imported(&text).1.grants.net.len()
    };
    for (deny, kept) in [
        ("", 1),
        ("{host: b.example}", 1),
        ("{host: A.example.}", 0),
        ("{host: \"*.example\"}", 0),
        ("{host: \"*\"}", 0),
        ("{host: \"https://b.example\"}", 0),
        ("{cidr: 10.1.0.0/16}", 1),
        ("{cidr: 0.0.0.0/0}", 0),
        ("{cidr: 93.184.216.34/32}", 0),
        ("{cidr: 10.0.0.0/7}", 0),
        ("{cidr: nonsense}", 0),
        ("{defaults: true}", 0),
    ] {
        assert_eq!(net(deny), kept, "{deny}");
    }
    for (host, why) in [("*", "hosts that nobody has looked at"), ("https://a.example", "is more than a host")] {
        let (text, plugin) = imported(&format!("version: 1.0\npermissions: {{network: {{allow: [{{host: \"{host}\"}}]}}}}"));
        assert!(plugin.grants.net.is_empty() && text.replace("\n# ", " ").contains(why), "{text}");
    }
    let fs = |deny: &str| {
        let text = format!(
            "version: 1.0\npermissions:\n  storage:\n    allow: [{{uri: \"fs:///srv/a\", access: [read]}}]\n    deny: [{{uri: \"{deny}\", access: [read]}}]"
        );
        imported(&text).1.grants.fs.len()
    };
    for (deny, kept) in [
        ("fs:///srv/b", 1),
        ("fs:///srv/ab/**", 1),
        ("fs:///srv/a", 0),
        ("fs:///srv/a/x", 0),
        ("fs:///srv", 0),
        ("fs:///**", 0),
        ("fs:///srv/*/x", 0),
        ("fs:///srv/b*", 0),
        ("fs:///srv/b/../a", 0),
        ("fs://a", 0),
        ("*", 0),
    ] {
        assert_eq!(fs(deny), kept, "{deny}");
    }
}

#[test]
fn sizes_of_kubernetes_are_read() {
    for (text, bytes) in [("64Mi", 64 << 20), ("64M", 64_000_000), ("1000k", 1_000_000), ("65536", 65_536)] {
        let (_, plugin) =
            imported(&format!("version: 1.0\npermissions:\n  resources:\n    limits: {{memory: {text}, cpu: 500m}}"));
        assert_eq!(plugin.limits.memory, bytes, "{text}");
    }
    let (text, plugin) = imported("version: 1.0\npermissions: {resources: {memory: 4096}}");
    assert!(text.contains("above the ceiling") && plugin.limits.memory == 128 << 20, "{text}");
}

const HOSTS: [&str; 8] = ["a.example", "b.example", "x.a.example", "*.a.example", "*.example", "*", "A.EXAMPLE", "10.0.0.1"];
const PATHS: [&str; 8] = ["/srv", "/srv/a", "/srv/a/b", "/srv/b", "/srv/a/**", "/srv/*", "/", "rel"];

/// What the source says about a host, by the plainest reading: some `allow` matches, no `deny` does.
fn source_allows(allow: &[usize], deny: &[usize], host: &str) -> bool {
    let matches = |&index: &usize| {
        let pattern = HOSTS[index].to_lowercase();
        pattern == "*" || pattern == host || pattern.strip_prefix('*').is_some_and(|suffix| host.ends_with(suffix))
    };
    allow.iter().any(matches) && !deny.iter().any(matches)
}

/// Whether the source lets a path be used, likewise.
fn source_opens(allow: &[(usize, bool)], deny: &[usize], path: &str, write: bool) -> bool {
    let below = |pattern: &str| {
        let pattern = pattern.strip_suffix("/**").unwrap_or(pattern);
        let pattern = if pattern == "/" { "" } else { pattern };
        match pattern.strip_suffix("/*") {
            Some(parent) => path.strip_prefix(parent).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/')),
            None => path.strip_prefix(pattern).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        }
    };
    allow.iter().any(|(index, writable)| below(PATHS[*index]) && (*writable || !write))
        && !deny.iter().any(|index| below(PATHS[*index]))
}

proptest! {
    #[test]
    fn what_is_imported_is_a_policy_and_allows_no_more_than_the_source(
        allow in prop::collection::vec(0..HOSTS.len(), 0..5), deny in prop::collection::vec(0..HOSTS.len(), 0..3),
        open in prop::collection::vec((0..PATHS.len(), any::<bool>()), 0..5), shut in prop::collection::vec(0..PATHS.len(), 0..3),
    ) {
        let hosts = |list: &[usize]| list.iter().map(|index| format!("{{host: \"{}\"}}", HOSTS[*index])).collect::<Vec<_>>().join(", ");
        let opened: Vec<String> = open
            .iter()
            .map(|(index, write)| format!("{{uri: \"fs://{}\", access: [read{}]}}", PATHS[*index], if *write { ", write" } else { "" }))
            .collect();
        let closed: Vec<String> = shut.iter().map(|index| format!("{{uri: \"fs://{}\", access: [read]}}", PATHS[*index])).collect();
        let text = format!(
            "version: \"1.0\"\npermissions:\n  network:\n    allow: [{}]\n    deny: [{}]\n  storage:\n    allow: [{}]\n    deny: [{}]\n",
            hosts(&allow), hosts(&deny), opened.join(", "), closed.join(", ")
        );
        let (written, plugin) = imported(&text);
        for host in ["a.example", "b.example", "x.a.example", "y.x.a.example", "c.example", "example", "10.0.0.1"] {
            for method in ["GET", "POST"] {
                let target = NetTarget::from_url(&format!("https://{host}/")).expect("valid");
                let allowed = plugin.grants.allow_net("tool", &target.request(method)).is_ok();
                prop_assert!(!allowed || source_allows(&allow, &deny, host), "{method} {host}\n{text}\n{written}");
            }
        }
        for mount in &plugin.grants.fs {
            for inside in ["", "/a", "/a/b", "/b", "/x"] {
                let path = format!("{}{inside}", mount.host.display());
                let write = mount.mode == FsMode::ReadWrite;
                prop_assert!(source_opens(&open, &shut, &path, write), "{path}\n{text}\n{written}");
            }
        }
    }

    #[test]
    fn any_text_is_a_policy_or_an_error(text in "[ -~\n\t京:\\-\\[\\]{}&*!|>\"']{0,200}") {
        if let Ok(written) = import("tool", &format!("version: 1.0\n{text}"), Path::new("/srv/policy")) {
            let source = PolicySource { name: Arc::from("imported.toml"), text: &written, base_dir: PathBuf::from("/srv/policy") };
            prop_assert!(Policy::parse(&[source]).is_ok(), "{}", written);
        }
    }
}
