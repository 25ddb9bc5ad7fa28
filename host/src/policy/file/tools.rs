//! Reads `[[plugins.ID.tools]]`.

use std::sync::Arc;

use crate::policy::args::ArgsRule;
use crate::policy::document::Table;
use crate::policy::rules::{ToolPattern, ToolRule, Verdict};
use crate::policy::write::string;
use crate::text::clean_line;

const MAX_RULES: usize = 10_000;
const MAX_NAME: usize = 128;
/// No run makes this many calls.
const MAX_CALLS: u64 = 1_000_000_000;

pub(super) fn read(plugin: &Table<'_>, id: &str) -> Vec<ToolRule> {
    let mut rules: Vec<ToolRule> = Vec::new();
    for table in plugin.tables("tools", &format!("[[plugins.{id}.tools]]"), MAX_RULES) {
        if let Some(rule) = read_rule(&table) {
            rules.push(rule);
        }
    }
    rules
}

fn read_rule(table: &Table<'_>) -> Option<ToolRule> {
    table.expect_only(&["name", "decision", "args", "max_calls"]);
    let tools = table.require("name", "name = \"…\"").and_then(|field| {
        let text = field.text("\"get_*\"")?;
        let pattern = read_pattern(text);
        if let Err((message, hint)) = &pattern {
            field.error(message, hint);
        }
        pattern.ok()
    });
    let verdict = table
        .require("decision", "decision = \"allow\"")
        .and_then(|field| field.word(&[("allow", Verdict::Allow), ("ask", Verdict::Ask), ("deny", Verdict::Deny)]));
    let mut valid = true;
    let args = table.get("args").and_then(|field| {
        let compiled = field.json().map(ArgsRule::compile);
        valid = matches!(compiled, Some(Ok(_)));
        if let Some(Err(error)) = &compiled {
            field.error(error.message.clone(), error.hint.clone());
        }
        compiled?.ok()
    });
    let max_calls = table.get("max_calls").and_then(|field| {
        if verdict == Some(Verdict::Deny) {
            field.error("`max_calls` does nothing on a rule that denies", "remove it");
            return None;
        }
        field.count(1, MAX_CALLS, "5")
    });
    let (line, column) = table.source.position(table.span.start);
    let rule = table.rule();
    let key = Arc::from(format!("{}:{line}:{column}", rule.file));
    // A rule whose `args` are wrong must not become one without `args`.
    valid.then_some(ToolRule { tools: tools?, verdict: verdict?, args, max_calls, rule, key })
}

/// Whether a rule can state the name: 1 to 128 bytes, all of them visible.
pub(in crate::policy) fn is_tool_name(name: &str) -> bool {
    let unfit = |c: char| c.is_whitespace() || crate::text::is_hidden(c);
    !name.is_empty() && name.len() <= MAX_NAME && !name.contains(unfit)
}

fn read_pattern(text: &str) -> Result<ToolPattern, (String, String)> {
    let shown = clean_line(text, 60);
    let stem = text.strip_suffix('*');
    if stem.unwrap_or(text).contains('*') {
        let hint = format!("a `*` may stand only at the end: {}", string(&shown.replace('*', "")));
        return Err((format!("`{shown}` has a `*` in its middle"), hint));
    }
    if !is_tool_name(text) {
        let hint = format!(
            "the plugin's own name for the tool, without spaces, at most {MAX_NAME} bytes; `honeycomb-host tools` lists them"
        );
        return Err((format!("`{shown}` cannot be a tool's name"), hint));
    }
    Ok(match stem {
        Some(prefix) => ToolPattern::Prefix(prefix.to_owned()),
        None => ToolPattern::Exact(text.to_owned()),
    })
}
