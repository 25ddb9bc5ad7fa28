//! Reads `[[plugins.ID.tools]]`.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::policy::args::ArgsRule;
use crate::policy::document::Table;
use crate::policy::rate::Rate;
use crate::policy::rules::{ToolPattern, ToolRule, Verdict};
use crate::policy::write::string;
use crate::text::{clean_line, hex};

/// The fields of a rule.
pub(in crate::policy) const FIELDS: [&str; 5] = ["name", "decision", "args", "max_calls", "rate"];
const MAX_RULES: usize = 10_000;
const MAX_NAME: usize = 128;
/// No run makes this many calls.
const MAX_CALLS: u64 = 1_000_000_000;

pub(super) fn read(plugin: &Table<'_>, id: &str, base_dir: &Path) -> Vec<ToolRule> {
    let tables = plugin.tables("tools", &format!("[[plugins.{id}.tools]]"), MAX_RULES);
    tables.iter().filter_map(|table| read_rule(table, id, base_dir)).collect()
}

fn read_rule(table: &Table<'_>, id: &str, base_dir: &Path) -> Option<ToolRule> {
    table.expect_only(&FIELDS);
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
    let rate = table.get("rate").and_then(|field| {
        if verdict == Some(Verdict::Deny) {
            field.error("`rate` does nothing on a rule that denies", "remove it");
            return None;
        }
        let rate = Rate::parse(field.text("\"10/min\"")?);
        if let Err((message, hint)) = &rate {
            field.error(message, hint);
        }
        rate.ok()
    });
    let mut rule = ToolRule { tools: tools?, verdict: verdict?, args, max_calls, rate, rule: table.rule(), id: Arc::default() };
    rule.id = identity(&rule, id, base_dir);
    // A rule whose `args` are wrong must not become one without `args`.
    valid.then_some(rule)
}

/// Names a rule by its file and all that it says, so that what was counted or granted for one never serves another.
fn identity(rule: &ToolRule, plugin: &str, base_dir: &Path) -> Arc<str> {
    let ToolRule { tools, verdict, args, max_calls, rate, rule, id: _ } = rule;
    // The file as it is on the disk: its name alone depends on where the host was started.
    let file = Path::new(&*rule.file).file_name().map_or_else(|| base_dir.to_owned(), |name| base_dir.join(name));
    let args = args.as_ref().map(|args| args.schema());
    let rate = rate.map(|rate| rate.to_string());
    let facts = json!([file.to_string_lossy(), plugin, tools.to_string(), verdict.as_str(), args, max_calls, rate]);
    Arc::from(hex(&Sha256::digest(facts.to_string())))
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
