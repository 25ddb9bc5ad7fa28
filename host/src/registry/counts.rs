//! How often calls counted against the `max_calls` of rules, by run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::policy::{CallLimit, Policy, ToolRule};

/// Counts by run and rule. They outlive a reload of the policy.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<HashMap<String, HashMap<Arc<str>, u64>>>);

impl Counts {
    /// Counts a call against all of these limits, or against none when one is used up; that one is the error.
    pub(super) fn count<'a>(&self, run_id: &str, limits: &'a [CallLimit]) -> Result<(), &'a CallLimit> {
        if limits.is_empty() {
            return Ok(());
        }
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = counts.entry(run_id.to_owned()).or_default();
        if let Some(used_up) = limits.iter().find(|limit| counts.get(&limit.key).is_some_and(|count| *count >= limit.max_calls)) {
            return Err(used_up);
        }
        for limit in limits {
            *counts.entry(Arc::clone(&limit.key)).or_default() += 1;
        }
        Ok(())
    }

    pub(super) fn forget(&self, run_id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(run_id);
    }

    /// Goes over to another policy: what was counted for a rule is counted for the same rule there, on whatever line it stands.
    pub(super) fn carry_over(&self, old: &Policy, new: &Policy) {
        let names = renamed(old, new);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for counted in counts.values_mut() {
            let old = std::mem::take(counted);
            for (key, count) in old {
                if let Some(name) = names.get(&key) {
                    *counted.entry(Arc::clone(name)).or_default() += count;
                }
            }
        }
    }
}

/// The new key of every old rule that is still there. The same rule is one for the same tools and arguments; where none is left, one for
/// the same tools: an operator who narrows a rule does not mean to give its calls back.
fn renamed(old: &Policy, new: &Policy) -> HashMap<Arc<str>, Arc<str>> {
    let mut names = HashMap::new();
    for plugin in old.plugins() {
        let mut free: Vec<&ToolRule> = new.plugin(&plugin.id).into_iter().flat_map(|plugin| plugin.rules.all()).collect();
        let mut left: Vec<&ToolRule> = plugin.rules.all().iter().collect();
        for same in [same_rule, same_tools] {
            left.retain(|rule| {
                let Some(index) = free.iter().position(|other| same(rule, other)) else { return true };
                names.insert(Arc::clone(rule.key()), Arc::clone(free.remove(index).key()));
                false
            });
        }
    }
    names
}

fn same_rule(a: &ToolRule, b: &ToolRule) -> bool {
    same_tools(a, b) && a.args.as_ref().map(|args| args.schema()) == b.args.as_ref().map(|args| args.schema())
}

fn same_tools(a: &ToolRule, b: &ToolRule) -> bool {
    a.tools == b.tools
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PolicySource;

    fn policy(text: &str) -> Policy {
        let source = PolicySource { name: Arc::from("policy.toml"), text, base_dir: "/srv".into() };
        Policy::parse(&[source]).expect("valid")
    }

    fn limits(policy: &Policy, tool: &str) -> Vec<CallLimit> {
        policy.decide("p", tool, &serde_json::Map::new()).max_calls
    }

    #[test]
    fn counts_move_with_their_rules() {
        let rule =
            |tool: &str, max: u32| format!("[[plugins.p.tools]]\nname = \"{tool}\"\ndecision = \"allow\"\nmax_calls = {max}\n");
        let old = policy(&format!("version = 1\n{}{}", rule("a", 2), rule("b", 2)));
        // A comment above, the other order, and another limit.
        let new = policy(&format!("version = 1\n# 新\n{}{}", rule("b", 2), rule("a", 3)));
        let counts = Counts::default();
        for tool in ["a", "a", "b"] {
            counts.count("r", &limits(&old, tool)).expect("within the limit");
        }
        assert!(counts.count("r", &limits(&old, "a")).is_err());
        counts.carry_over(&old, &new);
        counts.count("r", &limits(&new, "a")).expect("the third of three");
        assert!(counts.count("r", &limits(&new, "a")).is_err());
        counts.count("r", &limits(&new, "b")).expect("the second of two");
        assert!(counts.count("r", &limits(&new, "b")).is_err());
        counts.count("other", &limits(&new, "b")).expect("another run");
    }
}
