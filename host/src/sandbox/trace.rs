//! What a call did so far, for whoever started it: also of a call whose future was dropped, and that so has no outcome.

use std::net::SocketAddr;
use std::sync::Arc;

use super::meter::{Counts, Meter};
use crate::policy::RuleRef;
use crate::tool::Failure;

/// Follows one call. Clones follow the same one.
#[derive(Clone, Debug, Default)]
pub struct Trace(pub(super) Meter);

/// What a [`Trace`] has seen.
#[derive(Clone, Debug, Default)]
pub struct Traced {
    /// The hosts and addresses that were dialled, each once.
    pub dialled: Vec<(Arc<str>, SocketAddr)>,
    /// The rules that let something pass, each once, with their kind: `net` or `kv`.
    pub used: Vec<(&'static str, RuleRef)>,
    /// What was denied. May hold secrets; those in a [`ToolOutcome`](crate::tool::ToolOutcome) do not.
    pub denials: Vec<Failure>,
    /// HTTP requests sent.
    pub http_requests: u64,
    /// Bytes of HTTP request and response bodies.
    pub http_bytes: u64,
}

impl Trace {
    /// What was seen so far.
    pub fn so_far(&self) -> Traced {
        let Counts { denials, http_requests, http_bytes, dialled, used } = self.0.counts();
        Traced { dialled, used, denials, http_requests, http_bytes }
    }
}
