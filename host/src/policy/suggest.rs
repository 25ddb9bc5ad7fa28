//! `policy suggest`: a starter policy, least privilege first, that an operator reads and edits.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::file::tools::is_tool_name;
use super::grant::FsMode;
use super::limits::{Limits, Unit};
use super::net::{HostPattern, Scheme};
use super::requests::{NetWish, Requests};
use super::units::format_size;
use super::write::{comment, key, string, strings};
use crate::text::clean_line;
use crate::tool::ToolHints;

/// Writes a starter policy for plugins. It parses, and grants what the plugins ask for as far as that needs no decision; the rest stands
/// in comments.
pub fn suggest(plugins: &[PluginFacts<'_>]) -> String {
    let mut text = String::from(
        "version = 1\n\n# A draft. What is not granted here is denied. Tools that only read are allowed, the others ask a person:\n\
         # both are the plugins' own words. Read every line before you use it.\n",
    );
    for plugin in plugins {
        write_plugin(&mut text, plugin);
    }
    text
}

/// What is known of a plugin.
#[derive(Clone, Copy, Debug)]
pub struct PluginFacts<'a> {
    /// Its id; must satisfy [`is_plugin_id`](super::is_plugin_id).
    pub id: &'a str,
    /// The digest of its file, to pin it.
    pub sha256: Option<&'a str>,
    /// Its tools.
    pub tools: &'a [ToolFacts<'a>],
    /// What it asks for, if it says so.
    pub requests: Option<&'a Requests>,
}

/// What is known of a tool.
#[derive(Clone, Copy, Debug)]
pub struct ToolFacts<'a> {
    /// The plugin's own name for it.
    pub name: &'a str,
    /// What it promises; the plugin's word, so it decides no more than between `allow` and `ask` in a draft.
    pub hints: ToolHints,
}

fn write_plugin(text: &mut String, plugin: &PluginFacts<'_>) {
    let id = key(plugin.id);
    text.push_str(&format!("\n[plugins.{id}]\n"));
    if let Some(digest) = plugin.sha256 {
        text.push_str(&format!("sha256 = {}\n", string(digest)));
    }
    for tool in plugin.tools {
        write_tool(text, &id, tool);
    }
    let Some(requests) = plugin.requests else {
        text.push_str("\n# The plugin does not say what else it needs. `honeycomb-host inspect` lists what it imports.\n");
        return;
    };
    write_limits(text, &id, requests);
    let mut rules = BTreeSet::new();
    for wish in &requests.net {
        let mut rule = String::new();
        write_net(&mut rule, &id, wish, requests);
        // A URL in config often defaults to a host that is asked for by name too; a policy refuses the same rule twice.
        if rules.insert(without_comments(&rule)) {
            text.push_str(&rule);
        }
    }
    write_mounts(text, plugin.id, &id, requests);
    if let Some(wish) = &requests.kv {
        text.push('\n');
        text.push_str(&reason(&wish.reason));
        text.push_str(&format!("[plugins.{id}.kv]\nquota = {}\n", string(&format_size(wish.quota_bytes))));
    }
    write_config(text, &id, requests);
    if !requests.env.is_empty() {
        text.push_str(&format!("\n# [plugins.{id}.env]\n"));
        for wish in &requests.env {
            text.push_str(&format!("# {} = \"…\"\n{}", key(&wish.name), reason(&wish.reason)));
        }
    }
}

fn without_comments(rule: &str) -> String {
    rule.lines().filter(|line| !line.starts_with("# The plugin says")).collect()
}

fn reason(text: &str) -> String {
    if text.trim().is_empty() { String::new() } else { comment(&format!("The plugin says: {text}")) }
}

fn write_tool(text: &mut String, id: &str, tool: &ToolFacts<'_>) {
    // Only what the policy takes as one exact name; a `*` from a plugin must not become a pattern.
    if !is_tool_name(tool.name) || tool.name.contains('*') {
        text.push('\n');
        text.push_str(&comment(&format!("A tool has a name that no rule can state: {}", clean_line(tool.name, 60))));
        return;
    }
    let (decision, why) = match tool.hints {
        ToolHints { destructive: true, .. } => ("ask", "# may destroy something\n"),
        ToolHints { read_only: true, .. } => ("allow", ""),
        _ => ("ask", ""),
    };
    text.push_str(&format!("\n[[plugins.{id}.tools]]\n{why}name = {}\ndecision = \"{decision}\"\n", string(tool.name)));
}

fn write_limits(text: &mut String, id: &str, requests: &Requests) {
    let ceilings = Limits::default();
    let mut lines = String::new();
    for (field, value) in requests.limit_values() {
        let shown = if field.unit == Unit::Count { value.to_string() } else { string(&field.unit.show(value)) };
        match value.cmp(&(field.get)(&ceilings)) {
            Ordering::Less => lines.push_str(&format!("{} = {shown}\n", field.name)),
            Ordering::Equal => {}
            Ordering::Greater => {
                lines.push_str(&format!(
                    "# {} = {shown}   # above the default ceiling: raise that in [limits] first\n",
                    field.name
                ));
            }
        }
    }
    if !lines.is_empty() {
        text.push_str(&format!("\n[plugins.{id}.limits]\n{lines}"));
    }
}

fn write_net(text: &mut String, id: &str, wish: &NetWish, requests: &Requests) {
    let defaults = requests.config.iter().filter_map(|wish| Some((wish.key.clone(), wish.default.clone()?))).collect();
    text.push('\n');
    text.push_str(&reason(&wish.reason));
    let Ok(resolved) = wish.resolve(&defaults) else {
        let name = wish.config.as_deref().unwrap_or_default();
        text.push_str(&comment(&format!("It goes to the URL in config {name}. When that is set, add its host:")));
        text.push_str(&format!("# [[plugins.{id}.net]]\n# host = \"…\"\n# methods = {}\n", strings(&wish.methods)));
        return;
    };
    let Some(host) = &resolved.host else {
        text.push_str("# It asks for any host. Add a rule for each that it may reach:\n");
        text.push_str(&format!("# [[plugins.{id}.net]]\n# host = \"…\"\n# methods = {}\n", strings(&wish.methods)));
        return;
    };
    text.push_str(&format!("[[plugins.{id}.net]]\nhost = {}\n", string(&host.to_string())));
    let scheme = resolved.scheme.unwrap_or(Scheme::Https);
    if scheme == Scheme::Http {
        text.push_str("scheme = \"http\"\n");
    }
    if let Some(port) = resolved.port.filter(|port| *port != scheme.default_port()) {
        text.push_str(&format!("port = {port}\n"));
    }
    if resolved.methods != ["GET"] {
        text.push_str(&format!("methods = {}\n", strings(&resolved.methods)));
    }
    if resolved.path != "/" {
        text.push_str(&format!("path = {}\n", string(&resolved.path)));
    }
    if let HostPattern::Exact(name) = host
        && super::file::http::stays_here(&HostPattern::Exact(name.clone()))
    {
        text.push_str("# private = [\"127.0.0.1/32\"]   # without this, no request to this machine is sent\n");
    }
    for secret in requests.secrets.iter().filter(|secret| secret.covers_host(host, &defaults)) {
        let header = string(&secret.header);
        text.push_str(&reason(&secret.reason));
        text.push_str(&format!("# secret = {{ header = {header}, format = \"Bearer {{}}\", source = \"env:…\" }}\n"));
    }
}

fn write_mounts(text: &mut String, plain_id: &str, id: &str, requests: &Requests) {
    for wish in &requests.fs {
        let mode = if wish.mode == FsMode::ReadWrite { "rw" } else { "ro" };
        text.push('\n');
        text.push_str(&reason(&wish.reason));
        text.push_str(&format!(
            "# [[plugins.{id}.fs]]\n# host = {}   # a directory that exists, relative to this file\n# guest = {}\n# mode = \"{mode}\"\n",
            string(&format!("./{plain_id}-data")),
            string(&wish.guest)
        ));
    }
}

fn write_config(text: &mut String, id: &str, requests: &Requests) {
    if requests.config.is_empty() {
        return;
    }
    text.push_str(&format!("\n# [plugins.{id}.config]\n"));
    for wish in &requests.config {
        let value = wish.default.as_deref().map_or_else(|| "\"…\"".to_owned(), |default| string(&clean_line(default, 200)));
        let note = match (&wish.default, wish.required) {
            (Some(_), _) => "   # its default",
            (None, true) => "   # required",
            (None, false) => "",
        };
        text.push_str(&format!("# {} = {value}{note}\n{}", key(&wish.key), reason(&wish.reason)));
    }
}

#[cfg(test)]
mod tests;
