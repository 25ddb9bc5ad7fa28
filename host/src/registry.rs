//! The tool registry: finds a tool, checks its arguments, asks the policy, and runs it in the sandbox. The only path to a call.

mod audited;
mod builtin;
mod count;
mod live;
mod load;
mod name;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::{Map, Value};

use crate::audit::{Audit, Record};
use crate::message::{ToolCall, ToolStatus};
use crate::policy::{Decision, Policy, StandingCall, StandingGrants, Verdict};
use crate::sandbox::{Call, PluginTool, Sandbox, Trace};
use crate::text;
use crate::tool::{
    Approval, BoxFuture, CallContext, Check, ErrorCode, Failure, Question, ToolHints, ToolOutcome, ToolSpec, Tools,
};

use count::Counters;
use load::Body;

pub use builtin::Builtin;
pub use live::LiveRegistry;
pub use load::{Component, LoadFailure, LoadReport, LoadSelection, PluginEntry, RegistryError};
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
    counters: Arc<Counters>,
    standing: SharedGrants,
    audit: Option<Audit>,
}

/// Standing approvals, shared with whoever writes down a person's answer.
pub type SharedGrants = Arc<RwLock<StandingGrants>>;

/// Where a model-visible name leads.
#[derive(Clone, Debug)]
struct ToolRef {
    plugin: String,
    index: usize,
}

/// A call that passed every check that needs no running code.
struct Admitted<'a> {
    entry: &'a PluginEntry,
    tool: &'a PluginTool,
    /// As the tool gets them: an object.
    arguments: Value,
    decision: Decision,
    /// A person has approved exactly this call for good.
    standing: bool,
}

impl Tools for ToolRegistry {
    fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.specs)
    }

    fn check(&self, run_id: &str, call: &ToolCall) -> Check {
        match self.admit(call) {
            Err(refusal) => {
                self.note_refusal(run_id, call, &refusal);
                Check::Refused(refusal.outcome)
            }
            Ok(admitted) => match admitted.decision.verdict {
                Verdict::Ask if !admitted.standing => {
                    self.note_question(run_id, call, &admitted);
                    Check::Ask(Box::new(admitted.question()))
                }
                Verdict::Allow | Verdict::Ask | Verdict::Deny => Check::Ready,
            },
        }
    }

    fn call<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(self.perform(call, context, |_| std::future::pending()))
    }

    fn declined(&self, run_id: &str, call_id: &str, question: &Question) {
        self.note_declined(run_id, call_id, question);
    }

    fn end_run(&self, run_id: &str) {
        self.counters.end_run(run_id);
    }
}

impl ToolRegistry {
    /// The policy that the registry enforces.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The sandbox that the plugins run in.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Writes every decision and call to an audit file.
    #[must_use]
    pub fn with_audit(mut self, audit: Audit) -> Self {
        self.audit = Some(audit);
        self
    }

    /// Runs what a person has approved for good without asking again.
    #[must_use]
    pub fn with_standing(mut self, standing: StandingGrants) -> Self {
        self.standing = Arc::new(RwLock::new(standing));
        self
    }

    /// The standing approvals, for whoever writes down a person's answer; nothing that the model can call does.
    pub fn standing(&self) -> SharedGrants {
        Arc::clone(&self.standing)
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
        plugin.tools.get(reference.index).map(|tool| (plugin, tool))
    }

    /// Runs a call. When the future that `revoked` makes is ready, the call is stopped for the reason that it gives.
    async fn perform<R>(&self, call: &ToolCall, context: CallContext, revoked: impl FnOnce(&Admitted<'_>) -> R) -> ToolOutcome
    where
        R: Future<Output = Failure>,
    {
        let run_id = context.run_id.clone();
        let refusal = match self.admit(call) {
            Err(refusal) => refusal,
            Ok(admitted) => match admitted.approved(context.approval).and_then(|()| self.count(&run_id, &admitted)) {
                Ok(()) => return self.execute(call, context, &admitted, revoked(&admitted)).await,
                Err(failure) => admitted.refusal(failure, context.approval),
            },
        };
        self.note_refusal(&run_id, call, &refusal);
        *refusal.outcome
    }

    async fn execute(
        &self,
        call: &ToolCall,
        context: CallContext,
        admitted: &Admitted<'_>,
        revoked: impl Future<Output = Failure>,
    ) -> ToolOutcome {
        let trace = Trace::default();
        // What cannot be written down is not done.
        let written = match self.note_start(call, &context, admitted, &trace) {
            Ok(written) => written,
            Err(failure) => return ToolOutcome::refused(ToolStatus::NotExecuted, failure),
        };
        // Cancels this call alone.
        let cancel = context.cancel.child_token();
        let running = self.start(call, CallContext { cancel: cancel.clone(), ..context }, admitted, &trace);
        tokio::pin!(running, revoked);
        let outcome = tokio::select! {
            biased;
            outcome = &mut running => outcome,
            failure = revoked => {
                cancel.cancel();
                let outcome = running.await;
                // One that ended in the same moment keeps its outcome.
                if outcome.status == ToolStatus::Ok { outcome } else { ToolOutcome { error: Some(failure), ..outcome } }
            }
        };
        written.finish(&outcome);
        outcome
    }

    async fn start(&self, call: &ToolCall, context: CallContext, admitted: &Admitted<'_>, trace: &Trace) -> ToolOutcome {
        let bound = match &admitted.entry.body {
            Body::Guest(bound) => bound,
            Body::Builtin(builtin) => return builtin::call(builtin.as_ref(), admitted, &context).await,
        };
        let sandbox_call = Call {
            tool: admitted.tool.name.clone(),
            // Not the model's text: what was validated and judged is what the tool gets.
            arguments: admitted.arguments.to_string(),
            call_id: call.id.clone(),
            run_id: context.run_id,
            idempotency_key: context.idempotency_key,
            attempt: context.attempt,
            cancel: context.cancel,
            progress: context.progress,
            log: context.log,
        };
        self.sandbox.call_traced(bound, sandbox_call, trace).await
    }

    /// Finds the tool, checks the arguments and asks the policy.
    fn admit(&self, call: &ToolCall) -> Result<Admitted<'_>, Refusal> {
        let Some((entry, tool)) = self.tools.get(&call.name).and_then(|reference| self.resolve(reference)) else {
            return Err(Refusal::new(ToolStatus::Error, self.unknown(&call.name), Record::default()));
        };
        let arguments = call.parse_arguments().map_err(|message| {
            let failure = Failure::new(ErrorCode::ARGS_INVALID, format!("tool `{}`: {message}", call.name));
            let failure = failure.hint("send one JSON object that satisfies the tool's schema");
            Refusal::new(ToolStatus::Error, failure, audited::about(entry, tool, None))
        })?;
        let arguments = validate(tool, &call.name, arguments)
            .map_err(|failure| Refusal::new(ToolStatus::Error, failure, audited::about(entry, tool, None)))?;
        let decision = self.policy.decide(&entry.id, &tool.name, &arguments);
        if decision.verdict == Verdict::Deny {
            let record = audited::about(entry, tool, Some(&decision));
            return Err(Refusal::new(ToolStatus::Denied, denial(&decision), record));
        }
        let standing = self.stands(entry, tool, &decision, &arguments);
        Ok(Admitted { entry, tool, arguments: Value::Object(arguments), decision, standing })
    }

    /// Whether a person said "always" to this very call. Only an `ask` can be answered: nothing here turns a denial.
    fn stands(&self, entry: &PluginEntry, tool: &PluginTool, decision: &Decision, arguments: &Map<String, Value>) -> bool {
        let Some(rule_id) = decision.rule_id.as_deref().filter(|_| decision.verdict == Verdict::Ask) else { return false };
        let sha256 = entry.digest();
        let standing = self.standing.read().unwrap_or_else(PoisonError::into_inner);
        standing.covers(&StandingCall { plugin: &entry.id, sha256: &sha256, tool: &tool.name, rule_id, arguments })
    }

    fn unknown(&self, name: &str) -> Failure {
        let names: Vec<&str> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
        let hint = if names.is_empty() { "there are no tools".to_owned() } else { format!("the tools are {}", names.join(", ")) };
        Failure::new(ErrorCode::TOOL_UNKNOWN, format!("there is no tool `{}`", text::clean_line(name, 64))).hint(hint)
    }

    fn count(&self, run_id: &str, admitted: &Admitted<'_>) -> Result<(), Failure> {
        let name = format!("{}/{}", admitted.entry.id, admitted.tool.name);
        self.counters.count(run_id, &name, &admitted.decision.limits)
    }
}

/// Why a call does not run, and what is known about it.
struct Refusal {
    outcome: Box<ToolOutcome>,
    record: Box<Record>,
}

impl Refusal {
    fn new(status: ToolStatus, failure: Failure, record: Record) -> Self {
        Self { outcome: Box::new(ToolOutcome::refused(status, failure)), record: Box::new(record) }
    }
}

impl Admitted<'_> {
    fn refusal(&self, failure: Failure, approval: Option<Approval>) -> Refusal {
        let record = audited::about(self.entry, self.tool, Some(&self.decision));
        Refusal::new(ToolStatus::Denied, failure, Record { approval, ..record })
    }

    fn question(&self) -> Question {
        Question {
            plugin: self.entry.id.clone(),
            tool: self.tool.name.clone(),
            arguments: self.arguments.clone(),
            rule: self.decision.rule.as_ref().map(ToString::to_string).unwrap_or_default(),
            rule_id: self.decision.rule_id.as_deref().unwrap_or_default().to_owned(),
            sha256: self.entry.digest(),
            hints: self.tool.hints,
        }
    }

    /// An `ask` runs only with a person's yes; everything else needs none.
    fn approved(&self, approval: Option<Approval>) -> Result<(), Failure> {
        let refusal = match (self.decision.verdict, approval) {
            (Verdict::Allow, _) | (Verdict::Ask, Some(Approval::Once | Approval::ForRun | Approval::Always)) => return Ok(()),
            (Verdict::Ask, None) if self.standing => return Ok(()),
            (Verdict::Ask, Some(Approval::No)) => "a person refused it",
            (Verdict::Ask, None) => "nobody is there to ask",
            (Verdict::Deny, _) => "the policy denies it",
        };
        let rule = self.decision.rule.as_ref().map_or_else(|| "the policy".to_owned(), |rule| format!("the rule at {rule}"));
        let message = format!("`{}/{}` needs a person's approval and {refusal}", self.entry.id, self.tool.name);
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
