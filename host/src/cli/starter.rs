//! The starter policy for plugins that are loaded.

use crate::policy::Requests;
use crate::policy::{PluginFacts, ToolFacts, suggest};
use crate::registry::PluginEntry;
use crate::sandbox::PluginTool;
use crate::text::hex;

/// A starter for all tools of some plugins.
pub(super) fn of_plugins(entries: &[&PluginEntry]) -> String {
    let digests: Vec<String> = entries.iter().map(|entry| hex(&entry.plugin.sha256)).collect();
    let tools: Vec<Vec<ToolFacts<'_>>> = entries.iter().map(|entry| facts(entry.plugin.tools.iter())).collect();
    let plugins: Vec<PluginFacts<'_>> = entries
        .iter()
        .zip(&digests)
        .zip(&tools)
        .map(|((entry, digest), tools)| PluginFacts {
            id: &entry.id,
            sha256: Some(digest),
            tools,
            requests: entry.requests.as_ref(),
        })
        .collect();
    suggest(&plugins)
}

/// A starter for some tools of one plugin.
pub(super) fn of_tools<'a>(
    id: &str,
    sha256: &[u8; 32],
    tools: impl Iterator<Item = &'a PluginTool>,
    requests: Option<&Requests>,
) -> String {
    let digest = hex(sha256);
    suggest(&[PluginFacts { id, sha256: Some(&digest), tools: &facts(tools), requests }])
}

fn facts<'a>(tools: impl Iterator<Item = &'a PluginTool>) -> Vec<ToolFacts<'a>> {
    tools.map(|tool| ToolFacts { name: &tool.name, hints: tool.hints }).collect()
}
