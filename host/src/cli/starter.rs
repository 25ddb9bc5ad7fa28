//! The starter policy for plugins that are loaded.

use crate::policy::Requests;
use crate::policy::{PluginFacts, ToolFacts, suggest};
use crate::registry::PluginEntry;
use crate::sandbox::PluginTool;
use crate::text::hex;

/// A starter for all tools of some plugins.
pub(super) fn of_plugins(entries: &[&PluginEntry]) -> String {
    let digests: Vec<Option<String>> = entries.iter().map(|entry| entry.sha256().map(|digest| hex(digest))).collect();
    let tools: Vec<Vec<ToolFacts<'_>>> = entries.iter().map(|entry| facts(entry.tools.iter())).collect();
    let plugins: Vec<PluginFacts<'_>> = entries
        .iter()
        .zip(&digests)
        .zip(&tools)
        .map(|((entry, digest), tools)| PluginFacts {
            id: &entry.id,
            sha256: digest.as_deref(),
            tools,
            requests: entry.requests.as_ref(),
        })
        .collect();
    suggest(&plugins)
}

/// A starter for some tools of one plugin.
pub(super) fn of_tools<'a>(
    id: &str,
    sha256: Option<&[u8; 32]>,
    tools: impl Iterator<Item = &'a PluginTool>,
    requests: Option<&Requests>,
) -> String {
    let digest = sha256.map(|digest| hex(digest));
    suggest(&[PluginFacts { id, sha256: digest.as_deref(), tools: &facts(tools), requests }])
}

fn facts<'a>(tools: impl Iterator<Item = &'a PluginTool>) -> Vec<ToolFacts<'a>> {
    tools.map(|tool| ToolFacts { name: &tool.name, hints: tool.hints }).collect()
}
