//! A registry that can be replaced while calls run: policy and plugins are reloaded without a restart.

use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;

use super::ToolRegistry;
use crate::message::ToolCall;
use crate::tool::{BoxFuture, CallContext, Check, ToolOutcome, ToolSpec, Tools};

/// Stands before the [`ToolRegistry`] of the moment. A call keeps the registry, and so the policy, that it began with.
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

    /// Puts another registry in its place. Whoever waits on [`LiveRegistry::changed`] is told.
    ///
    /// What was counted stays counted, and what a person approved for good stays approved, under a rule that is still the same.
    pub fn swap(&self, mut registry: ToolRegistry) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        registry.counters = Arc::clone(&current.counters);
        registry.standing = Arc::clone(&current.standing);
        *current = Arc::new(registry);
        drop(current);
        self.generation.send_modify(|generation| *generation += 1);
    }

    /// Tells of every swap; the value counts them.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }
}

impl Tools for LiveRegistry {
    fn specs(&self) -> Arc<[ToolSpec]> {
        self.current().specs()
    }

    fn check(&self, call: &ToolCall) -> Check {
        self.current().check(call)
    }

    fn call<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move { self.current().call(call, context).await })
    }

    fn end_run(&self, run_id: &str) {
        self.current().end_run(run_id);
    }
}
