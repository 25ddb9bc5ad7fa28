//! `policy diff OLD NEW`: what a new version of a plugin asks for beyond the old one, and beyond the policy.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::output::{self, CliError};
use crate::cli::{Common, host, signals};
use crate::policy::{PluginPolicy, Policy, Requests, Ungranted, Verdict, is_plugin_id};
use crate::sandbox::{Plugin, PluginTool, Sandbox};
use crate::text::hex;
use crate::tool::{ErrorCode, Failure};

#[derive(Serialize)]
struct Diff {
    /// The plugin's id in the policy.
    plugin: String,
    old: Version,
    new: Version,
    /// What the new version asks for and the old one did not.
    more: Vec<Ungranted>,
    /// What the new version asks for and the policy does not grant; it runs without, as the old one did if it asked as well.
    not_granted: Vec<Ungranted>,
    tools: ToolsDiff,
    /// The new version asks for more, or brings a tool that the policy lets run already.
    asks_for_more: bool,
}

#[derive(Serialize)]
struct Version {
    path: String,
    sha256: String,
}

#[derive(Default, Serialize)]
struct ToolsDiff {
    added: Vec<AddedTool>,
    removed: Vec<String>,
    /// Tools whose description, schema or hints changed: they may do something else under the old name.
    changed: Vec<String>,
}

#[derive(Serialize)]
struct AddedTool {
    name: String,
    /// What the policy says to it; `args` if that depends on the arguments.
    decision: &'static str,
}

pub(super) async fn diff(common: &Common, old: &str, new: &Path) -> Result<ExitCode, CliError> {
    let policy = host::load_policy(&common.policy)?;
    let (id, old_path) = resolve(common, &policy, old);
    let sandbox = host::open_sandbox(common, &Policy::empty())?;
    let (old, old_requests) = load(&sandbox, &old_path).await?;
    let (new_plugin, new_requests) = load(&sandbox, new).await?;
    let granted = policy.plugin(&id);
    let more = beyond(new_requests.as_ref(), old_requests.as_ref());
    let not_granted = match (granted, &new_requests) {
        (Some(granted), Some(requests)) => requests.beyond(granted),
        _ => Vec::new(),
    };
    let tools = compare_tools(&old.tools, &new_plugin.tools, granted);
    let asks_for_more = !more.is_empty() || tools.added.iter().any(|tool| tool.decision != "deny");
    let version = |path: &Path, plugin: &Plugin| Version { path: path.display().to_string(), sha256: hex(&plugin.sha256) };
    let diff = Diff {
        plugin: id,
        old: version(&old_path, &old),
        new: version(new, &new_plugin),
        more,
        not_granted,
        tools,
        asks_for_more,
    };
    if common.json {
        output::print_json(&diff);
    } else {
        output::print(&describe(&diff, granted));
    }
    Ok(ExitCode::from(u8::from(asks_for_more)))
}

/// The id in the policy, and the old version's file.
fn resolve(common: &Common, policy: &Policy, old: &str) -> (String, PathBuf) {
    if is_plugin_id(old) {
        let file = policy.plugin(old).map_or_else(|| format!("{old}.wasm"), |plugin| plugin.source.clone());
        return (old.to_owned(), common.plugins.join(file));
    }
    let path = PathBuf::from(old);
    let stem = path.file_stem().and_then(|stem| stem.to_str()).filter(|stem| is_plugin_id(stem)).unwrap_or("plugin").to_owned();
    (stem, path)
}

async fn load(sandbox: &Sandbox, path: &Path) -> Result<(Plugin, Option<Requests>), CliError> {
    let plugin = tokio::select! {
        loaded = sandbox.load(path, None) => loaded.map_err(Failure::from)?,
        () = signals::stop_requested() => return Err(CliError::interrupted()),
    };
    let requests = plugin.requests_text.as_deref().map(Requests::parse).transpose().map_err(|error| {
        Failure::new(
            ErrorCode::LOAD_INVALID,
            format!("`{}`: the section `honeycomb:requests` is malformed: {error}", path.display()),
        )
    })?;
    Ok((plugin, requests))
}

/// What the new version asks for beyond the old one. A plugin without requests gets all that the policy grants.
fn beyond(new: Option<&Requests>, old: Option<&Requests>) -> Vec<Ungranted> {
    match (new, old) {
        (Some(new), Some(old)) => new.beyond_older(old),
        (_, None) => Vec::new(),
        (None, Some(_)) => vec![Ungranted {
            table: "requests",
            what: "all that the policy grants: it no longer says what it needs".to_owned(),
            reason: String::new(),
        }],
    }
}

fn compare_tools(old: &[PluginTool], new: &[PluginTool], granted: Option<&PluginPolicy>) -> ToolsDiff {
    let find = |tools: &'_ [PluginTool], name: &str| tools.iter().position(|tool| tool.name == name);
    let mut diff = ToolsDiff::default();
    for tool in new {
        match find(old, &tool.name).map(|index| &old[index]) {
            None => {
                let outlook = granted.map_or(Some(Verdict::Deny), |granted| granted.rules.outlook(&tool.name));
                diff.added.push(AddedTool { name: tool.name.clone(), decision: outlook.map_or("args", Verdict::as_str) });
            }
            Some(before) => {
                let face = |tool: &PluginTool| {
                    (tool.description.clone(), tool.input_schema.clone(), tool.output_schema.clone(), tool.hints)
                };
                if face(before) != face(tool) {
                    diff.changed.push(tool.name.clone());
                }
            }
        }
    }
    diff.removed = old.iter().filter(|tool| find(new, &tool.name).is_none()).map(|tool| tool.name.clone()).collect();
    diff
}

fn describe(diff: &Diff, granted: Option<&PluginPolicy>) -> String {
    let mut text =
        format!("old  {}  sha256 {}\nnew  {}  sha256 {}\n", diff.old.path, diff.old.sha256, diff.new.path, diff.new.sha256);
    let mut list = |title: &str, wanted: &[Ungranted]| {
        if !wanted.is_empty() {
            let _ = writeln!(text, "{title}");
        }
        for Ungranted { table, what, reason } in wanted {
            let reason = if reason.is_empty() { String::new() } else { format!("; it says: {reason}") };
            let _ = writeln!(text, "  {table:<8}{what}{reason}");
        }
    };
    list("asks for, and the old version did not:", &diff.more);
    list("asks for, and the policy does not grant; it runs without:", &diff.not_granted);
    for tool in &diff.tools.added {
        let _ = writeln!(text, "new tool {}: the policy says {}", tool.name, tool.decision);
    }
    for name in &diff.tools.removed {
        let _ = writeln!(text, "tool {name} is gone");
    }
    for name in &diff.tools.changed {
        let _ = writeln!(text, "tool {name} has another description, schema or hints");
    }
    if granted.is_some_and(|granted| granted.sha256.as_ref().is_some_and(|pin| *pin != diff.new.sha256)) {
        let _ = writeln!(text, "the policy pins another file; to use the new one: sha256 = \"{}\"", diff.new.sha256);
    }
    text.push_str(if diff.asks_for_more { "the new version asks for more\n" } else { "the new version asks for no more\n" });
    text
}
