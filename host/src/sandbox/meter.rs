//! What one call did, gathered by the host functions while it runs.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::policy::RuleRef;
use crate::tool::Failure;

/// The most denials that are kept of one call.
const MAX_DENIALS: usize = 16;

/// The most dialled addresses that are kept of one call.
const MAX_DIALLED: usize = 64;

/// The most rules that are kept of one call.
const MAX_USED: usize = 64;

/// Counts of one call, shared between the store and the tasks that serve its host functions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Arc<Mutex<Counts>>);

/// A snapshot of a [`Meter`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// What was denied, the first [`MAX_DENIALS`].
    pub(crate) denials: Vec<Failure>,
    /// HTTP requests sent.
    pub(crate) http_requests: u64,
    /// Bytes of HTTP bodies, both ways.
    pub(crate) http_bytes: u64,
    /// The hosts and addresses that were dialled, the first [`MAX_DIALLED`], each once.
    pub(crate) dialled: Vec<(Arc<str>, SocketAddr)>,
    /// The rules that let something pass, and what kind they are; the first [`MAX_USED`], each once.
    pub(crate) used: Vec<(&'static str, RuleRef)>,
}

impl Meter {
    /// Notes that the guest tried something that is not granted, or ran into a limit of a host function.
    pub(crate) fn denied(&self, failure: Failure) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.denials.len() < MAX_DENIALS && !counts.denials.contains(&failure) {
            counts.denials.push(failure);
        }
    }

    /// Counts one more HTTP request; returns how many there are now.
    pub(crate) fn add_http_request(&self) -> u64 {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.http_requests = counts.http_requests.saturating_add(1);
        counts.http_requests
    }

    /// Counts bytes of HTTP bodies.
    pub(crate) fn add_http_bytes(&self, bytes: u64) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.http_bytes = counts.http_bytes.saturating_add(bytes);
    }

    /// Notes that a connection to this address of this host is attempted.
    pub(crate) fn add_dialled(&self, host: &str, address: SocketAddr) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = counts.dialled.iter().any(|(other, known)| &**other == host && *known == address);
        if counts.dialled.len() < MAX_DIALLED && !known {
            counts.dialled.push((host.into(), address));
        }
    }

    /// Notes that a rule of the policy let something pass. `kind` is what the policy calls it, such as `net`.
    pub(crate) fn add_used(&self, kind: &'static str, rule: &RuleRef) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.used.len() < MAX_USED && !counts.used.iter().any(|(other, known)| *other == kind && known == rule) {
            counts.used.push((kind, rule.clone()));
        }
    }

    /// What was counted so far.
    pub(crate) fn counts(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
