//! Standing grants: the calls that a person answered with "always".
//!
//! A grant is for one call: the same arguments, to the same tool of the same component, under the same policy rule. It answers the
//! question of an `ask` rule and nothing else, and is void as soon as the component or the rule changes.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::document::{Field, Source, Table};
use super::error::PolicyErrors;
use super::file::tools::is_tool_name;
use super::file::{is_plugin_id, read_sha256, read_version};
use super::write::string;
use crate::json::parse_object;
use crate::text::clean_line;

/// The largest file of grants, in bytes.
pub const MAX_GRANTS_BYTES: usize = 1024 * 1024;
/// More grants than a person remembers having given.
const MAX_GRANTS: usize = 1_000;
/// The longest arguments of a grant, in bytes of JSON.
const MAX_ARGUMENTS: usize = 4 * 1024;

const HEADER: &str = "\
# Calls that a person answered with \"always\". honeycomb-host writes this file when a person answers so, and at no other time.
# Each entry allows one call: these arguments, to this tool of this component, under this rule of the policy. It turns an `ask` into
# an `allow`, never a `deny`, and is void when the component or the rule changes. Remove an entry to be asked again.

version = 1
";

/// All standing grants.
#[derive(Clone, Debug, Default)]
pub struct StandingGrants {
    grants: Vec<Grant>,
}

/// A call that a rule asks about.
#[derive(Clone, Copy, Debug)]
pub struct StandingCall<'a> {
    /// The plugin's id.
    pub plugin: &'a str,
    /// The SHA-256 of its file, in hexadecimal.
    pub sha256: &'a str,
    /// The plugin's own tool name.
    pub tool: &'a str,
    /// The rule that asks: [`ToolRule::id`](super::ToolRule::id).
    pub rule_id: &'a str,
    /// The arguments.
    pub arguments: &'a Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq)]
struct Grant {
    plugin: String,
    sha256: String,
    tool: String,
    /// `file:line` when it was granted: for the reader only.
    rule: String,
    rule_id: String,
    arguments: Map<String, Value>,
}

/// Why a call cannot be granted for good.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StandingError {
    /// There are too many grants.
    #[error("there are {MAX_GRANTS} standing grants already; remove some")]
    TooMany,
    /// The arguments are too long.
    #[error("the arguments are longer than {MAX_ARGUMENTS} bytes, too long to be granted for good")]
    TooLong,
}

impl StandingGrants {
    /// Reads a file of grants; `name` is the file's.
    ///
    /// # Errors
    ///
    /// Returns all that is wrong: like a policy, it is understood as a whole or not used at all.
    pub fn parse(name: &str, text: &str) -> Result<Self, PolicyErrors> {
        let source = Source::new(Arc::from(name), text);
        let mut grants = Vec::new();
        if let Some(document) = source.parse(MAX_GRANTS_BYTES) {
            let root = Table::root(&source, &document);
            root.expect_only(&["version", "grants"]);
            read_version(&root);
            grants = root.tables("grants", "[[grants]]", MAX_GRANTS).iter().filter_map(read_grant).collect();
        }
        source.findings.into_inner().finish(&[name])?;
        Ok(Self { grants })
    }

    /// Whether a person said "always" to exactly this call.
    pub fn covers(&self, call: &StandingCall<'_>) -> bool {
        self.grants.iter().any(|grant| {
            let Grant { plugin, sha256, tool, rule: _, rule_id, arguments } = grant;
            plugin == call.plugin
                && sha256 == call.sha256
                && tool == call.tool
                && rule_id == call.rule_id
                && arguments == call.arguments
        })
    }

    /// Adds a grant; `rule` is where the rule stands, for the reader.
    ///
    /// # Errors
    ///
    /// Refuses arguments that are too long, and more grants than there may be.
    pub fn add(&mut self, call: &StandingCall<'_>, rule: &str) -> Result<(), StandingError> {
        if json_text(call.arguments).len() > MAX_ARGUMENTS {
            return Err(StandingError::TooLong);
        }
        if self.covers(call) {
            return Ok(());
        }
        if self.grants.len() >= MAX_GRANTS {
            return Err(StandingError::TooMany);
        }
        let StandingCall { plugin, sha256, tool, rule_id, arguments } = *call;
        self.grants.push(Grant {
            plugin: plugin.to_owned(),
            sha256: sha256.to_owned(),
            tool: tool.to_owned(),
            rule: clean_line(rule, 500),
            rule_id: rule_id.to_owned(),
            arguments: arguments.clone(),
        });
        Ok(())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.grants.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    /// The file; [`StandingGrants::parse`] reads it back.
    pub fn to_toml(&self) -> String {
        let mut text = HEADER.to_owned();
        for Grant { plugin, sha256, tool, rule, rule_id, arguments } in &self.grants {
            text.push_str("\n[[grants]]\n");
            let arguments = json_text(arguments);
            for (name, value) in [
                ("plugin", plugin),
                ("sha256", sha256),
                ("tool", tool),
                ("rule", rule),
                ("rule_id", rule_id),
                ("arguments", &arguments),
            ] {
                text.push_str(&format!("{name} = {}\n", string(value)));
            }
        }
        text
    }
}

fn json_text(arguments: &Map<String, Value>) -> String {
    Value::Object(arguments.clone()).to_string()
}

fn read_grant(table: &Table<'_>) -> Option<Grant> {
    table.expect_only(&["plugin", "sha256", "tool", "rule", "rule_id", "arguments"]);
    let text = |name: &str, valid: fn(&str) -> bool| {
        let field = table.require(name, &format!("{name} = \"…\""))?;
        let text = field.text("\"…\"")?;
        if !valid(text) {
            field.error(
                format!("`{name}` cannot be `{}`", clean_line(text, 60)),
                "remove the entry: the call is then asked about again",
            );
            return None;
        }
        Some(text.to_owned())
    };
    let digest = |name: &str| Some(read_sha256(&table.require(name, &format!("{name} = \"…\""))?)?.value);
    let (plugin, tool) = (text("plugin", is_plugin_id), text("tool", is_tool_name));
    let (sha256, rule_id) = (digest("sha256"), digest("rule_id"));
    let rule = text("rule", |rule| rule.len() <= 1_000);
    let arguments = table.require("arguments", "arguments = \"{}\"").and_then(|field| read_arguments(&field));
    Some(Grant { plugin: plugin?, sha256: sha256?, tool: tool?, rule: rule?, rule_id: rule_id?, arguments: arguments? })
}

fn read_arguments(field: &Field<'_>) -> Option<Map<String, Value>> {
    let text = field.text("\"{}\"")?;
    let parsed = if text.len() > MAX_ARGUMENTS { Err(StandingError::TooLong.to_string()) } else { parse_object(text) };
    match parsed {
        Ok(arguments) => Some(arguments),
        Err(message) => {
            field.error(format!("`arguments`: {message}"), "remove the entry: the call is then asked about again");
            None
        }
    }
}

#[cfg(test)]
mod tests;
