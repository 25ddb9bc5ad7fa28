//! Which rule of a new policy goes on with what was counted for a rule of the old one.

use std::collections::HashMap;
use std::sync::Arc;

use crate::policy::{Policy, ToolRule};

/// The new key of every old rule that is still there. The same rule is one for the same tools and arguments; where none is left, one for
/// the same tools: an operator who narrows a rule does not mean to give its calls back.
pub(super) fn renamed(old: &Policy, new: &Policy) -> HashMap<Arc<str>, Arc<str>> {
    let mut names = HashMap::new();
    for plugin in old.plugins() {
        let mut free: Vec<&ToolRule> = new.plugin(&plugin.id).into_iter().flat_map(|plugin| plugin.rules.all()).collect();
        let mut left: Vec<&ToolRule> = plugin.rules.all().iter().collect();
        for same in [same_rule, same_tools] {
            left.retain(|rule| {
                let Some(index) = free.iter().position(|other| same(rule, other)) else { return true };
                names.insert(Arc::clone(&rule.id), Arc::clone(&free.remove(index).id));
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
    use super::super::Counters;
    use super::*;
    use crate::policy::{CallLimit, PolicySource};

    fn policy(text: &str) -> Policy {
        let source = PolicySource { name: Arc::from("policy.toml"), text, base_dir: "/srv".into() };
        Policy::parse(&[source]).expect("valid")
    }

    fn limits(policy: &Policy, tool: &str) -> Vec<CallLimit> {
        policy.decide("p", tool, &serde_json::Map::new()).limits
    }

    #[test]
    fn counts_move_with_their_rules() {
        let rule =
            |tool: &str, max: u32| format!("[[plugins.p.tools]]\nname = \"{tool}\"\ndecision = \"allow\"\nmax_calls = {max}\n");
        let old = policy(&format!("version = 1\n{}{}", rule("a", 2), rule("b", 2)));
        // A comment above, the other order, and another limit.
        let new = policy(&format!("version = 1\n# 新\n{}{}", rule("b", 2), rule("a", 3)));
        let counts = Counters::default();
        for tool in ["a", "a", "b"] {
            counts.count("r", "p/t", &limits(&old, tool)).expect("within the limit");
        }
        assert!(counts.count("r", "p/t", &limits(&old, "a")).is_err());
        counts.carry_over(&old, &new);
        counts.count("r", "p/t", &limits(&new, "a")).expect("the third of three");
        assert!(counts.count("r", "p/t", &limits(&new, "a")).is_err());
        counts.count("r", "p/t", &limits(&new, "b")).expect("the second of two");
        assert!(counts.count("r", "p/t", &limits(&new, "b")).is_err());
        counts.count("other", "p/t", &limits(&new, "b")).expect("another run");
    }
}
