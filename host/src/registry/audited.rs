//! What the registry writes into the audit file: every refusal and question, and the beginning and end of every call.

use super::{Admitted, PluginEntry, Refusal, ToolRegistry};
use crate::audit::{Audit, AuditError, Dialled, Kind, Record};
use crate::message::{ToolCall, ToolStatus};
use crate::policy::{Decision, Verdict};
use crate::sandbox::{PluginTool, Sandbox, Trace};
use crate::tool::{Approval, CallContext, CallUsage, ErrorCode, Failure, Question, ToolOutcome};

impl ToolRegistry {
    pub(super) fn note_refusal(&self, run_id: &str, call: &ToolCall, refusal: &Refusal) {
        let Some(audit) = &self.audit else { return };
        let mut record = Record {
            kind: Kind::Refused,
            run: Some(run_id.to_owned()),
            call: Some(call.id.clone()),
            policy: self.policy_digest(),
            status: Some(refusal.outcome.status),
            error: refusal.outcome.error.clone(),
            ..(*refusal.record).clone()
        };
        record.tool.get_or_insert_with(|| call.name.clone());
        record.set_arguments_text(&call.arguments, self.sandbox.redactor());
        self.note_or_tell(audit, record);
    }

    pub(super) fn note_question(&self, run_id: &str, call: &ToolCall, admitted: &Admitted<'_>) {
        let Some(audit) = &self.audit else { return };
        self.note_or_tell(audit, self.record_of(Kind::Asked, run_id, call, admitted));
    }

    pub(super) fn note_declined(&self, run_id: &str, call_id: &str, question: &Question) {
        let Some(audit) = &self.audit else { return };
        let plugin = self.plugins.get(&question.plugin);
        let mut record = Record {
            kind: Kind::Refused,
            run: Some(run_id.to_owned()),
            call: Some(call_id.to_owned()),
            plugin: Some(question.plugin.clone()),
            sha256: plugin.map(PluginEntry::digest),
            tool: Some(question.tool.clone()),
            policy: self.policy_digest(),
            verdict: Some(Verdict::Ask),
            rule: Some(question.rule.clone()),
            approval: Some(Approval::No),
            status: Some(ToolStatus::Denied),
            error: Some(Failure::new(ErrorCode::POLICY_DENIED, "a person refused it")),
            ..Record::default()
        };
        record.set_arguments_text(&question.arguments.to_string(), self.sandbox.redactor());
        self.note_or_tell(audit, record);
    }

    /// Writes that a call begins. What is returned writes how it ends.
    pub(super) fn note_start<'a>(
        &'a self,
        call: &ToolCall,
        context: &CallContext,
        admitted: &Admitted<'_>,
        trace: &Trace,
    ) -> Result<Begun<'a>, Failure> {
        let Some(audit) = &self.audit else { return Ok(Begun(None)) };
        let grants = &admitted.entry.grants;
        let record = Record {
            attempt: Some(context.attempt),
            approval: context.approval.or(admitted.standing.then_some(Approval::Always)),
            grants: grants.lines(),
            ..self.record_of(Kind::Started, &context.run_id, call, admitted)
        };
        let end = Record {
            kind: Kind::Finished,
            run: record.run.clone(),
            call: record.call.clone(),
            plugin: record.plugin.clone(),
            sha256: record.sha256.clone(),
            tool: record.tool.clone(),
            attempt: record.attempt,
            ..Record::default()
        };
        append(audit, &self.sandbox, record).map_err(|error| {
            tell(&error);
            Failure::new(ErrorCode::HOST_INTERNAL, "not executed: the audit file cannot be written").hint(error.hint())
        })?;
        Ok(Begun(Some(Box::new(Open { audit, sandbox: &self.sandbox, trace: trace.clone(), end }))))
    }

    /// Writes that this registry's policy is in force from now on.
    pub(super) fn note_reload(&self) {
        let Some(audit) = &self.audit else { return };
        self.note_or_tell(audit, Record { kind: Kind::Reloaded, policy: self.policy_digest(), ..Record::default() });
    }

    fn record_of(&self, kind: Kind, run_id: &str, call: &ToolCall, admitted: &Admitted<'_>) -> Record {
        let mut record = Record {
            kind,
            run: Some(run_id.to_owned()),
            call: Some(call.id.clone()),
            policy: self.policy_digest(),
            ..about(admitted.entry, admitted.tool, Some(&admitted.decision))
        };
        record.set_arguments(admitted.arguments.clone(), self.sandbox.redactor());
        record
    }

    fn policy_digest(&self) -> Option<String> {
        Some(self.policy.digest().to_owned()).filter(|digest| !digest.is_empty())
    }

    /// Writes a record of something that does not run in any case.
    fn note_or_tell(&self, audit: &Audit, record: Record) {
        if let Err(error) = append(audit, &self.sandbox, record) {
            tell(&error);
        }
    }
}

/// What a record says of a tool, and of the decision on its call.
pub(super) fn about(entry: &PluginEntry, tool: &PluginTool, decision: Option<&Decision>) -> Record {
    Record {
        plugin: Some(entry.id.clone()),
        sha256: Some(entry.digest()),
        tool: Some(tool.name.clone()),
        verdict: decision.map(|decision| decision.verdict),
        rule: decision.and_then(|decision| decision.rule.as_ref()).map(ToString::to_string),
        ..Record::default()
    }
}

/// A call whose beginning was written. Dropped without [`Begun::finish`], it writes that the call was interrupted.
pub(super) struct Begun<'a>(Option<Box<Open<'a>>>);

struct Open<'a> {
    audit: &'a Audit,
    sandbox: &'a Sandbox,
    trace: Trace,
    end: Record,
}

impl Begun<'_> {
    pub(super) fn finish(mut self, outcome: &ToolOutcome) {
        if let Some(open) = self.0.take() {
            open.close(outcome.status, outcome.error.clone(), outcome.denials.clone(), Some(outcome.usage));
        }
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            let failure = Failure::new(ErrorCode::CALL_CANCELLED, "its caller went away before it ended");
            let denials = open.trace.so_far().denials;
            open.close(ToolStatus::Interrupted, Some(failure), denials, None);
        }
    }
}

impl Open<'_> {
    fn close(self, status: ToolStatus, error: Option<Failure>, denials: Vec<Failure>, usage: Option<CallUsage>) {
        let traced = self.trace.so_far();
        let record = Record {
            used: traced.used.iter().map(|(kind, rule)| format!("{kind} {rule}")).collect(),
            dialled: traced
                .dialled
                .iter()
                .map(|(host, address)| Dialled { host: (**host).to_owned(), address: *address })
                .collect(),
            status: Some(status),
            error,
            denials,
            usage,
            ..self.end
        };
        // The call has had its effects. The next one will be refused if this is not a passing trouble.
        if let Err(error) = append(self.audit, self.sandbox, record) {
            tell(&error);
        }
    }
}

fn append(audit: &Audit, sandbox: &Sandbox, mut record: Record) -> Result<(), AuditError> {
    record.seal(sandbox.redactor());
    audit.append(&record)
}

fn tell(error: &AuditError) {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    tracing::error!("{error}{cause}");
}
