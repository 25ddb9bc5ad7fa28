//! The tool registry: finds a tool, checks its arguments, asks the policy, and runs it in the sandbox. The only path to a call.

mod live;
mod load;
mod name;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};

use crate::message::{ToolCall, ToolStatus};
use crate::policy::{Decision, Policy, Verdict};
use crate::sandbox::{Bound, Call, PluginTool, Sandbox};
use crate::text;
use crate::tool::{
    Approval, BoxFuture, CallContext, Check, ErrorCode, Failure, Question, ToolHints, ToolOutcome, ToolSpec, Tools,
};

pub use live::LiveRegistry;
pub use load::{LoadFailure, LoadReport, LoadSelection, PluginEntry, RegistryError};
pub use name::model_name;

/// The most schema issues that one refusal lists.
const MAX_ISSUES: usize = 3;
/// The longest schema issue, in bytes.
const MAX_ISSUE_BYTES: usize = 256;

/// Plugins that are loaded and bound to what the policy grants them.
pub struct ToolRegistry {
    sandbox: Sandbox,
    policy: Arc<Policy>,
    plugins: BTreeMap<String, PluginEntry>,
    /// By model-visible name. The policy is asked about the raw names in here, never about the visible one.
    tools: BTreeMap<String, ToolRef>,
    specs: Arc<[ToolSpec]>,
    /// Calls that counted against a rule's `max_calls`, by run and rule.
    counts: Mutex<HashMap<String, HashMap<Arc<str>, u64>>>,
}

/// Where a model-visible name leads.
#[derive(Clone, Debug)]
struct ToolRef {
    plugin: String,
    index: usize,
}

/// A call that passed every check that needs no running code.
struct Admitted<'a> {
    bound: &'a Bound,
    tool: &'a PluginTool,
    plugin: &'a str,
    arguments: Map<String, Value>,
    decision: Decision,
}

impl Tools for ToolRegistry {
    fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.specs)
    }

    fn check(&self, call: &ToolCall) -> Check {
        match self.admit(call) {
            Err(outcome) => Check::Refused(outcome),
            Ok(admitted) => match admitted.decision.verdict {
                Verdict::Ask => Check::Ask(Box::new(admitted.question())),
                Verdict::Allow | Verdict::Deny => Check::Ready,
            },
        }
    }

    fn call<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let admitted = match self.admit(call) {
                Ok(admitted) => admitted,
                Err(outcome) => return *outcome,
            };
            if let Err(failure) = admitted.approved(context.approval) {
                return ToolOutcome::refused(ToolStatus::Denied, failure);
            }
            if let Err(failure) = self.count(&context.run_id, &admitted) {
                return ToolOutcome::refused(ToolStatus::Denied, failure);
            }
            let sandbox_call = Call {
                tool: admitted.tool.name.clone(),
                // Not the model's text: what was validated and judged is what the tool gets.
                arguments: Value::Object(admitted.arguments).to_string(),
                call_id: call.id.clone(),
                run_id: context.run_id,
                idempotency_key: context.idempotency_key,
                attempt: context.attempt,
                cancel: context.cancel,
                progress: context.progress,
                log: context.log,
            };
            self.sandbox.call(admitted.bound, sandbox_call).await
        })
    }

    fn end_run(&self, run_id: &str) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).remove(run_id);
    }
}

impl ToolRegistry {
    /// The policy that the registry enforces.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The plugins, by id.
    pub fn plugins(&self) -> impl Iterator<Item = &PluginEntry> {
        self.plugins.values()
    }

    /// The model-visible name of a plugin's tool.
    pub fn model_name(&self, plugin: &str, tool: &str) -> Option<&str> {
        self.tools
            .iter()
            .find(|(_, reference)| {
                reference.plugin == plugin && self.resolve(reference).is_some_and(|(_, found)| found.name == tool)
            })
            .map(|(name, _)| name.as_str())
    }

    fn resolve(&self, reference: &ToolRef) -> Option<(&PluginEntry, &PluginTool)> {
        let plugin = self.plugins.get(&reference.plugin)?;
        plugin.plugin.tools.get(reference.index).map(|tool| (plugin, tool))
    }

    /// Finds the tool, checks the arguments and asks the policy.
    fn admit(&self, call: &ToolCall) -> Result<Admitted<'_>, Box<ToolOutcome>> {
        let refuse = |status, failure| Box::new(ToolOutcome::refused(status, failure));
        let Some((entry, tool)) = self.tools.get(&call.name).and_then(|reference| self.resolve(reference)) else {
            return Err(refuse(ToolStatus::Error, self.unknown(&call.name)));
        };
        let arguments = call.parse_arguments().map_err(|message| {
            let failure = Failure::new(ErrorCode::ARGS_INVALID, format!("tool `{}`: {message}", call.name));
            refuse(ToolStatus::Error, failure.hint("send one JSON object that satisfies the tool's schema"))
        })?;
        let arguments = validate(tool, &call.name, arguments).map_err(|failure| refuse(ToolStatus::Error, failure))?;
        let decision = self.policy.decide(&entry.id, &tool.name, &arguments);
        if decision.verdict == Verdict::Deny {
            return Err(refuse(ToolStatus::Denied, denial(&decision)));
        }
        Ok(Admitted { bound: &entry.bound, tool, plugin: &entry.id, arguments, decision })
    }

    fn unknown(&self, name: &str) -> Failure {
        let names: Vec<&str> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
        let hint = if names.is_empty() { "there are no tools".to_owned() } else { format!("the tools are {}", names.join(", ")) };
        Failure::new(ErrorCode::TOOL_UNKNOWN, format!("there is no tool `{}`", text::clean_line(name, 64))).hint(hint)
    }

    /// Counts a call against the `max_calls` of every rule that matched it: all of them, or none when one is used up.
    fn count(&self, run_id: &str, admitted: &Admitted<'_>) -> Result<(), Failure> {
        let limits = &admitted.decision.max_calls;
        if limits.is_empty() {
            return Ok(());
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = counts.entry(run_id.to_owned()).or_default();
        if let Some(used_up) = limits.iter().find(|limit| counts.get(&limit.key).is_some_and(|count| *count >= limit.max_calls)) {
            let message = format!(
                "`{}/{}` may be called {} times in a run, and was",
                admitted.plugin, admitted.tool.name, used_up.max_calls
            );
            return Err(Failure::new(ErrorCode::LIMIT_CALLS, message)
                .hint(format!("raise `max_calls` of the rule at {}, or do without this tool", used_up.key)));
        }
        for limit in limits {
            *counts.entry(Arc::clone(&limit.key)).or_default() += 1;
        }
        Ok(())
    }
}

impl Admitted<'_> {
    fn question(&self) -> Question {
        Question {
            plugin: self.plugin.to_owned(),
            tool: self.tool.name.clone(),
            arguments: Value::Object(self.arguments.clone()),
            rule: self.decision.rule.as_ref().map(ToString::to_string).unwrap_or_default(),
            hints: self.tool.hints,
        }
    }

    /// An `ask` runs only with a person's yes; everything else needs none.
    fn approved(&self, approval: Option<Approval>) -> Result<(), Failure> {
        let refusal = match (self.decision.verdict, approval) {
            (Verdict::Allow, _) | (Verdict::Ask, Some(Approval::Once | Approval::ForRun)) => return Ok(()),
            (Verdict::Ask, Some(Approval::No)) => "a person refused it",
            (Verdict::Ask, None) => "nobody is there to ask",
            (Verdict::Deny, _) => "the policy denies it",
        };
        let rule = self.decision.rule.as_ref().map_or_else(|| "the policy".to_owned(), |rule| format!("the rule at {rule}"));
        let message = format!("`{}/{}` needs a person's approval and {refusal}", self.plugin, self.tool.name);
        Err(Failure::new(ErrorCode::POLICY_DENIED, message).hint(format!(
            "{rule} says `decision = \"ask\"`; run on a terminal, or behind an MCP client that can ask, or set it to `allow`"
        )))
    }
}

/// Checks arguments against the schema that was advertised.
fn validate(tool: &PluginTool, name: &str, arguments: Map<String, Value>) -> Result<Map<String, Value>, Failure> {
    let value = Value::Object(arguments);
    let issues: Vec<String> = tool
        .validator
        .iter_errors(&value)
        .take(MAX_ISSUES)
        .map(|error| {
            let pointer = error.instance_path().to_string();
            let at = if pointer.is_empty() { "/".to_owned() } else { pointer };
            text::clean_line(&format!("at `{at}`: {error}"), MAX_ISSUE_BYTES)
        })
        .collect();
    match value {
        Value::Object(arguments) if issues.is_empty() => Ok(arguments),
        _ => Err(Failure::new(ErrorCode::ARGS_INVALID, format!("arguments of `{name}`: {}", issues.join("; ")))
            .hint(text::clean(&format!("the schema is {}", tool.input_schema), 1500).into_owned())),
    }
}

fn denial(decision: &Decision) -> Failure {
    Failure { code: ErrorCode::POLICY_DENIED, message: decision.reason.clone(), hint: decision.hint.clone() }
}

/// A tool as the model sees it.
fn spec(name: &str, tool: &PluginTool) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        title: tool.title.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
        output_schema: tool.output_schema.clone(),
        hints: ToolHints { ..tool.hints },
    }
}
