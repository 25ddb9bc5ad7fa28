//! `tools`: every tool, its decision, its grants, its limits.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::{Map, Value, json};

use super::output::{self, CliError};
use super::{Common, host};
use crate::policy::{Policy, Verdict};
use crate::registry::{LoadSelection, PluginEntry, model_name};
use crate::sandbox::PluginTool;
use crate::text::hex;

/// How much of a description stands beside its tool.
const SHOWN_CHARACTERS: usize = 90;

pub(super) async fn tools(common: &Common) -> Result<ExitCode, CliError> {
    let policy = host::load_policy(&common.policy)?;
    let (registry, report) = host::open_registry(common, policy, LoadSelection::All).await?;
    if common.json {
        let plugins: Vec<Value> = registry.plugins().map(|entry| describe(entry, registry.policy())).collect();
        let failures: Vec<Value> = report
            .failures
            .iter()
            .map(|failed| json!({"plugin": failed.id, "path": failed.path.display().to_string(), "error": failed.failure}))
            .collect();
        output::print_json(&json!({"plugins": plugins, "failures": failures}));
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for entry in registry.plugins() {
        let origin = entry.component.as_ref().map_or_else(
            || "built in".to_owned(),
            |found| format!("{}, sha256 {}", output::bytes(found.plugin.bytes), &hex(&found.plugin.sha256)[..12]),
        );
        let _ = writeln!(text, "{}  ({origin})", entry.id);
        for tool in entry.tools.iter() {
            let decision = decision(registry.policy(), &entry.id, &tool.name);
            let first_line: String = tool.description.lines().next().unwrap_or_default().chars().take(SHOWN_CHARACTERS).collect();
            let _ = writeln!(text, "  {:<6}{:<24}{first_line}", decision, tool.name);
            for limit in call_limits(registry.policy(), &entry.id, &tool.name) {
                let _ = writeln!(text, "        at most {limit}");
            }
        }
        for grant in entry.grants.lines() {
            let _ = writeln!(text, "  grant {grant}");
        }
        for dropped in &entry.dropped {
            let _ = writeln!(text, "  not given: {dropped}");
        }
        let limits = &entry.limits;
        let _ = writeln!(
            text,
            "  limit fuel {}, timeout {:?}, memory {}, output {}",
            output::count(limits.fuel),
            limits.timeout,
            output::bytes(limits.memory),
            output::bytes(limits.max_output)
        );
    }
    if text.is_empty() {
        output::note(&format!("no plugins in `{}`", common.plugins.display()));
    }
    output::print(&text);
    if common.policy.is_empty() && !text.is_empty() {
        output::note("no --policy was given, so every tool is denied; `honeycomb-host policy suggest` writes a starter");
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(entry: &PluginEntry, policy: &Policy) -> Value {
    let tools: Vec<Value> = entry.tools.iter().map(|tool| describe_tool(entry, tool, policy)).collect();
    json!({
        "plugin": entry.id,
        "built_in": entry.component.is_none(),
        "path": entry.component.as_ref().map(|found| found.path.display().to_string()),
        "sha256": entry.sha256().map(|digest| hex(digest)),
        "from_cache": entry.component.as_ref().map(|found| found.plugin.from_cache),
        "tools": tools,
        "grants": entry.grants.lines(),
        "not_given": entry.dropped.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "limits": limits(entry),
    })
}

fn describe_tool(entry: &PluginEntry, tool: &PluginTool, policy: &Policy) -> Value {
    json!({
        "name": tool.name,
        "model_name": model_name(&entry.id, &tool.name),
        "decision": decision(policy, &entry.id, &tool.name),
        "call_limits": call_limits(policy, &entry.id, &tool.name),
        "title": tool.title,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "hints": tool.hints,
    })
}

/// What the policy says to a tool before its arguments are known; `args` means that it depends on them.
fn decision(policy: &Policy, plugin: &str, tool: &str) -> &'static str {
    match policy.plugin(plugin).map(|granted| granted.rules.outlook(tool)) {
        None => Verdict::Deny.as_str(),
        Some(Some(verdict)) => verdict.as_str(),
        Some(None) => "args",
    }
}

/// How often a tool may be called, a line for each rule that says so; those with `args` hold for some calls only.
fn call_limits(policy: &Policy, plugin: &str, tool: &str) -> Vec<String> {
    let rules = policy.plugin(plugin).into_iter().flat_map(|granted| granted.rules.covering(tool));
    rules.filter_map(|rule| Some(format!("{} ({})", rule.limit()?, rule.rule))).collect()
}

fn limits(entry: &PluginEntry) -> Value {
    let mut limits = Map::new();
    for (name, value) in entry.limits.entries() {
        limits.insert(name.to_owned(), Value::from(value));
    }
    Value::Object(limits)
}
