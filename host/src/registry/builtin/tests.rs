use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::message::ToolCall;
use crate::policy::PolicySource;
use crate::registry::{LoadSelection, ToolRegistry};
use crate::sandbox::{Sandbox, SandboxOptions};
use crate::tool::{Check, Conversation, ToolHints, Tools as _};

/// A built-in plugin that does what its tools are called.
struct Probe;

impl Builtin for Probe {
    fn id(&self) -> &str {
        "probe"
    }

    fn tools(&self) -> Vec<RawTool> {
        let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": false});
        let tool = |name: &str| RawTool {
            name: name.to_owned(),
            input_schema: schema.to_string(),
            hints: ToolHints { read_only: true, ..ToolHints::default() },
            ..RawTool::default()
        };
        ["echo", "wait", "panic", "flood"].map(tool).into()
    }

    fn call<'a>(&'a self, tool: &'a str, arguments: Map<String, Value>, _: &'a CallContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let text = match tool {
                "wait" => std::future::pending().await,
                "panic" => panic!("as asked"),
                "flood" => "x".repeat(5000),
                _ => arguments.get("text").and_then(Value::as_str).unwrap_or_default().to_owned(),
            };
            ToolOutcome {
                content: vec![Content::Text { text }],
                error: None,
                ..ToolOutcome::refused(ToolStatus::Ok, Failure::new(ErrorCode::HOST_INTERNAL, ""))
            }
        })
    }
}

fn policy(text: &str) -> Arc<Policy> {
    let text = format!("version = 1\n{text}");
    let source = PolicySource { name: Arc::from("policy.toml"), text: &text, base_dir: "/nowhere".into() };
    Arc::new(Policy::parse(&[source]).expect("a valid policy"))
}

async fn load(directory: &Path, text: &str) -> Result<ToolRegistry, RegistryError> {
    let sandbox = Sandbox::new(SandboxOptions::new("/nowhere".into())).expect("a sandbox");
    let builtins: [Arc<dyn Builtin>; 1] = [Arc::new(Probe)];
    let loaded = ToolRegistry::load(&sandbox, directory, policy(text), &builtins, LoadSelection::All, &|_| ()).await;
    loaded.map(|(registry, _)| registry)
}

async fn registry(text: &str) -> ToolRegistry {
    let directory = tempfile::tempdir().expect("a directory");
    load(directory.path(), text).await.expect("loaded")
}

async fn run(registry: &ToolRegistry, name: &str, arguments: &Value, cancel: CancellationToken) -> ToolOutcome {
    let call = ToolCall { id: "c".to_owned(), provider_id: None, name: name.to_owned(), arguments: arguments.to_string() };
    let context = CallContext {
        run_id: "run".to_owned(),
        idempotency_key: "key".to_owned(),
        attempt: 1,
        conversation: Conversation::default(),
        approval: None,
        cancel,
        progress: None,
        log: None,
    };
    if let Check::Refused(outcome) = registry.check("run", &call) {
        return *outcome;
    }
    registry.call(&call, context).await
}

fn code(outcome: &ToolOutcome) -> &str {
    outcome.error.as_ref().map_or("ok", |error| error.code.as_str())
}

#[tokio::test]
async fn a_built_in_tool_passes_the_same_gate_as_a_guest() {
    let rules = "[[plugins.probe.tools]]\nname = \"echo\"\ndecision = \"allow\"\nmax_calls = 2\n\
                 args = { type = \"object\", properties = { text = { maxLength = 5 } } }\n";
    let registry = registry(rules).await;
    let names: Vec<String> = registry.specs().iter().map(|spec| spec.name.clone()).collect();
    assert_eq!(names, ["probe__echo"], "only what a rule may allow is offered");
    let call = async |name: &str, arguments: Value| run(&registry, name, &arguments, CancellationToken::new()).await;
    assert_eq!(code(&call("probe__wait", json!({})).await), "policy.denied");
    assert_eq!(code(&call("probe__echo", json!({"other": 1})).await), "args.invalid");
    assert_eq!(code(&call("probe__echo", json!({"text": "too long"})).await), "policy.denied");
    for _ in 0..2 {
        assert_eq!(call("probe__echo", json!({"text": "你好"})).await.model_text(), "你好");
    }
    assert_eq!(code(&call("probe__echo", json!({})).await), "limit.calls");
}

#[tokio::test]
async fn a_call_ends_in_time_when_cancelled_when_it_panics_and_when_it_says_too_much() {
    let registry = registry(
        "[plugins.probe.limits]\ntimeout = \"20ms\"\nmax_output = \"4KiB\"\n[[plugins.probe.tools]]\nname = \"*\"\ndecision = \"allow\"\n",
    )
    .await;
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    for (tool, cancel, expected) in [
        ("probe__wait", CancellationToken::new(), "limit.time"),
        ("probe__wait", cancelled, "call.cancelled"),
        ("probe__panic", CancellationToken::new(), "host.internal"),
        ("probe__flood", CancellationToken::new(), "limit.output"),
    ] {
        let ended =
            tokio::time::timeout(Duration::from_secs(20), run(&registry, tool, &json!({}), cancel)).await.expect("it ends");
        assert_eq!(code(&ended), expected, "{tool}");
        assert!(ended.content.is_empty(), "{tool}");
    }
}

#[tokio::test]
async fn nothing_else_may_have_its_id_and_it_gets_no_grants() {
    let directory = tempfile::tempdir().expect("a directory");
    let pinned = format!("[plugins.probe]\nsha256 = \"{}\"\n", "0".repeat(64));
    let kv = "[plugins.probe.kv]\nquota = \"1KiB\"\n";
    let registry = load(directory.path(), kv).await.expect("loaded");
    let entry = registry.plugins().find(|entry| entry.id == "probe").expect("listed");
    assert!(entry.grants.kv.is_none() && !entry.dropped.is_empty() && entry.sha256().is_none());
    for (file, text, expected) in [
        ("probe.wasm", "", "probe.wasm` claims its id"),
        ("probe.wasm", kv, "probe.wasm` claims its id"),
        ("x.wasm", pinned.as_str(), "policy.toml:2 claims its id"),
        ("x.wasm", "[plugins.probe]\nsource = \"x.wasm\"\n", "policy.toml:2 claims its id"),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join(file), "").expect("written");
        let error = load(directory.path(), text).await.map(|_| ()).expect_err(text).to_string();
        assert!(error.contains("`probe` is a built-in plugin") && error.contains(expected), "{error}");
    }
    // Under another id, the file is a plugin like any other.
    std::fs::write(directory.path().join("probe.wasm"), "").expect("written");
    assert!(load(directory.path(), "[plugins.other]\nsource = \"probe.wasm\"\n").await.is_ok());
}
