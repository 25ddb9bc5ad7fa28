//! `policy explain`: one decision, as data.

use serde::Serialize;
use serde_json::{Map, Value};

use super::Policy;
use super::rules::Verdict;
use crate::text::clean_line;

/// What the policy says to one call, and why.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Explanation {
    /// The decision.
    pub decision: Verdict,
    /// The rule, as `file:line`.
    pub rule: Option<String>,
    /// Why.
    pub reason: String,
    /// What would allow the call.
    pub hint: Option<String>,
    /// How often the call may be made: `5 calls a run, 10/min (policy.toml:7)` for each rule that says so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
}

/// Explains the decision on a call of `plugin/tool`.
///
/// # Errors
///
/// Returns a sentence when the text is not `plugin/tool`.
pub fn explain(policy: &Policy, call: &str, arguments: &Map<String, Value>) -> Result<Explanation, String> {
    let (plugin, tool) = split_call(call)?;
    let decision = policy.decide(plugin, tool, arguments);
    let rule = decision.rule.map(|rule| rule.to_string());
    let limits = decision.limits.iter().map(|limit| format!("{limit} ({})", limit.rule)).collect();
    Ok(Explanation { decision: decision.verdict, rule, reason: decision.reason, hint: decision.hint, limits })
}

/// Splits `plugin/tool` at the first slash: a plugin's id has none, a tool's name may.
pub(super) fn split_call(call: &str) -> Result<(&str, &str), String> {
    let parts = call.split_once('/').filter(|(plugin, tool)| !plugin.is_empty() && !tool.is_empty());
    parts.ok_or_else(|| format!("`{}` is not `plugin/tool`", clean_line(call, 100)))
}
