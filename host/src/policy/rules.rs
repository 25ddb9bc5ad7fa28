//! Tool rules of one plugin, and the decision on a call.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::args::ArgsRule;
use super::grant::RuleRef;
use super::rate::Rate;
use super::write::{key, string};
use crate::text::clean_line;

/// What the policy says to a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The call may run.
    Allow,
    /// A person has to allow it first.
    Ask,
    /// It may not run.
    Deny,
}

impl Verdict {
    /// The word that a policy uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// The decision on one call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Decision {
    /// What the policy says.
    pub verdict: Verdict,
    /// The rule that says so; none when nothing matched.
    pub rule: Option<RuleRef>,
    /// Why, in one sentence; names plugin, tool and rule.
    pub reason: String,
    /// On a denial: what would allow the call, with the lines to add.
    pub hint: Option<String>,
    /// How often the call may be made: one entry for each rule that matched and states `max_calls` or `rate`. Each must be counted.
    pub limits: Vec<CallLimit>,
    /// Names the rule and all that it says, in 64 hexadecimal digits: a rule that changes gets another. None when nothing matched.
    pub rule_id: Option<Arc<str>>,
}

/// `max_calls` and `rate` of one rule: the calls that match it are counted together.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CallLimit {
    /// What to count under: the rule's [`id`](ToolRule::id).
    pub key: Arc<str>,
    /// The rule.
    pub rule: RuleRef,
    /// The most calls in one run.
    pub max_calls: Option<u64>,
    /// The most calls in a time, over all runs.
    pub rate: Option<Rate>,
}

/// One `[[plugins.ID.tools]]` rule.
#[derive(Clone, Debug)]
pub struct ToolRule {
    /// Which tools.
    pub tools: ToolPattern,
    /// What it says.
    pub verdict: Verdict,
    /// What the arguments must be for the rule to apply.
    pub args: Option<ArgsRule>,
    /// The most calls in one run.
    pub max_calls: Option<u64>,
    /// The most calls in a time, over all runs.
    pub rate: Option<Rate>,
    /// Where the policy says so.
    pub rule: RuleRef,
    /// Names the rule and all that it says: the SHA-256, in hexadecimal, of its file, its plugin and its fields.
    pub id: Arc<str>,
}

impl ToolRule {
    /// What has to be counted for a call that the rule matches, if anything.
    pub fn limit(&self) -> Option<CallLimit> {
        let (max_calls, rate) = (self.max_calls, self.rate);
        let limited = max_calls.is_some() || rate.is_some();
        limited.then(|| CallLimit { key: Arc::clone(&self.id), rule: self.rule.clone(), max_calls, rate })
    }
}

impl std::fmt::Display for CallLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let calls = self.max_calls.map(|calls| format!("{calls} calls a run"));
        let rate = self.rate.map(|rate| rate.to_string());
        let all: Vec<String> = calls.into_iter().chain(rate).collect();
        f.write_str(&all.join(", "))
    }
}

/// Which tools a rule covers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ToolPattern {
    /// One tool, by the plugin's own name for it.
    Exact(String),
    /// All tools whose name begins so; the policy writes a trailing `*`.
    Prefix(String),
}

impl std::fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

/// The tool rules of one plugin, indexed by name.
#[derive(Clone, Debug, Default)]
pub struct ToolRules {
    rules: Vec<ToolRule>,
    exact: HashMap<String, Vec<usize>>,
    prefixes: HashMap<String, Vec<usize>>,
    /// The lengths of all prefixes, ascending: a lookup tries each once, however many rules there are.
    prefix_lengths: Vec<usize>,
}

impl ToolRules {
    pub(super) fn new(rules: Vec<ToolRule>) -> Self {
        let mut index = Self { rules, ..Self::default() };
        for (number, rule) in index.rules.iter().enumerate() {
            let (map, name) = match &rule.tools {
                ToolPattern::Exact(name) => (&mut index.exact, name),
                ToolPattern::Prefix(prefix) => (&mut index.prefixes, prefix),
            };
            map.entry(name.clone()).or_default().push(number);
        }
        index.prefix_lengths = index.prefixes.keys().map(String::len).collect();
        index.prefix_lengths.sort_unstable();
        index.prefix_lengths.dedup();
        index
    }

    /// All rules, in the order of files and lines.
    pub fn all(&self) -> &[ToolRule] {
        &self.rules
    }

    /// The rules whose pattern covers a tool, the most specific first.
    pub fn covering<'a>(&'a self, tool: &'a str) -> impl Iterator<Item = &'a ToolRule> {
        let exact = self.exact.get(tool);
        let prefixes = self.prefix_lengths.iter().rev().filter_map(|&length| self.prefixes.get(tool.get(..length)?));
        exact.into_iter().chain(prefixes).flatten().map(|&number| &self.rules[number])
    }

    /// What the rules say to a tool whatever its arguments are; `None` when that depends on them.
    pub fn outlook(&self, tool: &str) -> Option<Verdict> {
        let fixed = self.covering(tool).filter(|rule| rule.args.is_none()).map(|rule| rule.verdict).max();
        let mut conditional = self.covering(tool).filter(|rule| rule.args.is_some()).map(|rule| rule.verdict);
        let depends = match fixed {
            Some(fixed) => conditional.any(|verdict| verdict > fixed),
            None => conditional.any(|verdict| verdict != Verdict::Deny),
        };
        if depends { None } else { Some(fixed.unwrap_or(Verdict::Deny)) }
    }

    pub(super) fn decide(&self, plugin: &str, tool: &str, arguments: &Arguments<'_>) -> Decision {
        let mut winner: Option<&ToolRule> = None;
        let mut limits = Vec::new();
        let mut skipped = false;
        for rule in self.covering(tool) {
            if rule.args.as_ref().is_some_and(|args| !args.matches(arguments.value())) {
                skipped = true;
                continue;
            }
            limits.extend(rule.limit());
            if winner.is_none_or(|best| rule.verdict > best.verdict) {
                winner = Some(rule);
            }
        }
        match winner {
            Some(rule) if rule.verdict == Verdict::Deny => denied_by(rule, plugin, tool),
            Some(rule) => {
                let reason = format!("rule `{}` ({}) says {}", rule.tools, rule.rule, rule.verdict.as_str());
                Decision {
                    verdict: rule.verdict,
                    rule: Some(rule.rule.clone()),
                    reason,
                    hint: None,
                    limits,
                    rule_id: Some(Arc::clone(&rule.id)),
                }
            }
            None if skipped => self.arguments_differ(plugin, tool, arguments),
            None => unmatched(plugin, tool, &format!("no rule of plugin `{plugin}` names tool `{}`", shown(tool))),
        }
    }

    /// The name matched, the arguments did not.
    fn arguments_differ(&self, plugin: &str, tool: &str, arguments: &Arguments<'_>) -> Decision {
        let near = self.covering(tool).filter(|rule| rule.verdict != Verdict::Deny);
        let found = near.filter_map(|rule| Some((rule, rule.args.as_ref()?.mismatch(arguments.value())?))).next();
        let Some((rule, (pointer, why))) = found else {
            return unmatched(plugin, tool, &format!("only rules that deny name tool `{}` of plugin `{plugin}`", shown(tool)));
        };
        let place = if pointer.is_empty() { "the arguments".to_owned() } else { format!("argument `{pointer}`") };
        let reason = format!(
            "rule `{}` ({}) allows tool `{}` of plugin `{plugin}` with other arguments only: {place}: {why}",
            rule.tools,
            rule.rule,
            shown(tool)
        );
        // No lines to copy: the model chose these arguments, and a rule made from them would drop the conditions of this one.
        let hint = format!("call it with arguments that the rule allows, or change `args` at {}", rule.rule);
        Decision {
            verdict: Verdict::Deny,
            rule: Some(rule.rule.clone()),
            reason,
            hint: Some(hint),
            limits: Vec::new(),
            rule_id: None,
        }
    }
}

/// The arguments of a call; copied into a JSON value only when a rule looks at them.
pub(super) struct Arguments<'a> {
    map: Option<&'a Map<String, Value>>,
    value: std::cell::OnceCell<Cow<'a, Value>>,
}

impl<'a> Arguments<'a> {
    pub(super) fn of_map(map: &'a Map<String, Value>) -> Self {
        Self { map: Some(map), value: std::cell::OnceCell::new() }
    }

    pub(super) fn of_value(value: &'a Value) -> Self {
        Self { map: None, value: std::cell::OnceCell::from(Cow::Borrowed(value)) }
    }

    fn value(&self) -> &Value {
        self.value.get_or_init(|| Cow::Owned(Value::Object(self.map.cloned().unwrap_or_default())))
    }
}

fn denied_by(rule: &ToolRule, plugin: &str, tool: &str) -> Decision {
    let with = if rule.args.is_some() { " with these arguments" } else { "" };
    let reason = format!("rule `{}` ({}) denies tool `{}` of plugin `{plugin}`{with}", rule.tools, rule.rule, shown(tool));
    let narrower = match rule.tools {
        ToolPattern::Exact(_) => "",
        ToolPattern::Prefix(_) => " or make its `name` narrower",
    };
    let hint = format!("a deny rule beats every other: remove {}{narrower}", rule.rule);
    Decision {
        verdict: Verdict::Deny,
        rule: Some(rule.rule.clone()),
        reason,
        hint: Some(hint),
        limits: Vec::new(),
        rule_id: None,
    }
}

/// The denial of a call that no rule allows.
pub(super) fn unmatched(plugin: &str, tool: &str, reason: &str) -> Decision {
    let hint = format!("to allow it, add to the policy:\n{}", lines(plugin, tool));
    Decision {
        verdict: Verdict::Deny,
        rule: None,
        reason: reason.to_owned(),
        hint: Some(hint),
        limits: Vec::new(),
        rule_id: None,
    }
}

fn lines(plugin: &str, tool: &str) -> String {
    format!("[[plugins.{}.tools]]\nname = {}\ndecision = \"allow\"", key(plugin), string(&shown(tool)))
}

/// A tool name for a message: the model chose it.
fn shown(tool: &str) -> String {
    clean_line(tool, 128)
}

#[cfg(test)]
mod tests;
