//! A registry that can be replaced while calls run: policy and plugins are reloaded without a restart.

use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;

use super::{Admitted, ToolRegistry};
use crate::message::ToolCall;
use crate::policy::Verdict;
use crate::tool::{BoxFuture, CallContext, Check, ErrorCode, Failure, Question, ToolOutcome, ToolSpec, Tools};

/// Stands before the [`ToolRegistry`] of the moment.
///
/// A call keeps the registry, and so the policy, that it began with; but when a later policy would not let it begin any more, it is stopped.
pub struct LiveRegistry {
    current: RwLock<Arc<ToolRegistry>>,
    generation: watch::Sender<u64>,
}

impl LiveRegistry {
    /// Begins with a registry.
    pub fn new(registry: ToolRegistry) -> Self {
        Self { current: RwLock::new(Arc::new(registry)), generation: watch::Sender::new(0) }
    }

    /// The registry of the moment.
    pub fn current(&self) -> Arc<ToolRegistry> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another registry in its place, which goes on with the counts and the audit file of the earlier one, and with what a person
    /// approved for good. Whoever waits on [`LiveRegistry::changed`] is told.
    ///
    /// A call under way is stopped when its plugin is gone, or is no longer the file that the policy pins, or when the policy denies it.
    pub fn swap(&self, mut registry: ToolRegistry) {
        {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            registry.counters = Arc::clone(&current.counters);
            registry.counters.carry_over(&current.policy, &registry.policy);
            registry.standing = Arc::clone(&current.standing);
            if registry.audit.is_none() {
                registry.audit.clone_from(&current.audit);
            }
            registry.note_reload();
            *current = Arc::new(registry);
        }
        self.generation.send_modify(|generation| *generation += 1);
    }

    /// Tells of every swap; the value counts them.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Waits until a later registry revokes a call that runs, and says why.
    async fn revocation(&self, mut changed: watch::Receiver<u64>, running: Running<'_>) -> Failure {
        loop {
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            if let Some(failure) = running.revoked_by(&self.current()) {
                return failure;
            }
        }
    }
}

impl Tools for LiveRegistry {
    fn specs(&self) -> Arc<[ToolSpec]> {
        self.current().specs()
    }

    fn check(&self, run_id: &str, call: &ToolCall) -> Check {
        self.current().check(run_id, call)
    }

    fn call<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            // Before the registry is taken: a swap between the two is seen.
            let changed = self.changed();
            let registry = self.current();
            registry.perform(call, context, |admitted| self.revocation(changed, Running::new(call, admitted))).await
        })
    }

    fn declined(&self, run_id: &str, call_id: &str, question: &Question) {
        self.current().declined(run_id, call_id, question);
    }

    fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    fn end_run(&self, run_id: &str) {
        self.current().end_run(run_id);
    }
}

/// What a later policy is asked about a call that runs.
struct Running<'a> {
    call: &'a ToolCall,
    plugin: String,
    tool: String,
    digest: String,
}

impl<'a> Running<'a> {
    fn new(call: &'a ToolCall, admitted: &Admitted<'_>) -> Self {
        Self { call, plugin: admitted.entry.id.clone(), tool: admitted.tool.name.clone(), digest: admitted.entry.digest() }
    }

    /// Why a registry would not let this call begin, if so.
    fn revoked_by(&self, registry: &ToolRegistry) -> Option<Failure> {
        let plugin = &self.plugin;
        let why = match registry.policy.plugin(plugin) {
            None => format!("the policy does not name plugin `{plugin}` any more"),
            Some(granted) if granted.sha256.as_ref().is_some_and(|pin| *pin != self.digest) => {
                format!("the policy pins another file of plugin `{plugin}` ({})", granted.rule)
            }
            Some(_) if !registry.plugins.contains_key(plugin) => {
                format!("the file of plugin `{plugin}` is gone or cannot be loaded")
            }
            Some(_) => {
                // Read anew, since nearly no call needs it: they were readable when it began.
                let arguments = self.call.parse_arguments().unwrap_or_default();
                let decision = registry.policy.decide(plugin, &self.tool, &arguments);
                if decision.verdict != Verdict::Deny {
                    return None;
                }
                decision.reason
            }
        };
        let message = format!("`{plugin}/{}` was revoked while it ran: {why}", self.tool);
        Some(Failure::new(ErrorCode::POLICY_DENIED, message).hint("the policy was changed by its operator; do without this call"))
    }
}
