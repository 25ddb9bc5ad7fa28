//! What is seen of an attempt.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use super::server::Seen;
use crate::agent::{Event, EventKind, Observer, Run, RunResult};
use crate::message::{ModelTurn, Part, ToolStatus};
use crate::provider::{ModelEvent, ModelRequest, Provider, ProviderError};
use crate::tool::BoxFuture;

/// Everything that expectations are about.
#[derive(Default)]
pub(super) struct Observed {
    /// The host refused to start.
    pub(super) refused_start: Option<String>,
    /// By plugin, the code.
    pub(super) not_loaded: BTreeMap<String, String>,
    pub(super) offered: Vec<String>,
    pub(super) calls: Vec<SeenCall>,
    pub(super) result: Option<RunResult>,
    pub(super) events: Vec<Event>,
    pub(super) requests: Vec<ModelRequest>,
    pub(super) http: Vec<Seen>,
    pub(super) questions: usize,
    pub(super) files: BTreeMap<String, Vec<u8>>,
    pub(super) changed_files: Vec<String>,
    pub(super) unused_turns: usize,
    /// Calls of `setup` that did not end well.
    pub(super) setup_failures: Vec<String>,
}

/// A call, from the model's wish to what it was told.
#[derive(Clone, Debug)]
pub(super) struct SeenCall {
    pub(super) tool: String,
    pub(super) arguments: String,
    pub(super) status: ToolStatus,
    pub(super) code: Option<String>,
    /// What the model was shown.
    pub(super) text: String,
    pub(super) truncated: bool,
    /// The tool's code ran.
    pub(super) ran: bool,
}

/// The calls of a run.
pub(super) fn calls(run: &Run, events: &[Event]) -> Vec<SeenCall> {
    let results: BTreeMap<&str, &str> = run
        .messages()
        .iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| {
            if let Part::ToolResult(result) = part { Some((result.call_id.as_str(), result.text.as_str())) } else { None }
        })
        .collect();
    let of = |id: &str| {
        let done = events.iter().find_map(|event| match &event.kind {
            EventKind::ToolCompleted(completed) if completed.call_id == id => Some(completed),
            _ => None,
        });
        let started = events.iter().any(|event| matches!(&event.kind, EventKind::ToolStarted { call_id, .. } if call_id == id));
        (done, started)
    };
    run.messages()
        .iter()
        .flat_map(|message| message.tool_calls())
        .map(|call| {
            let (done, started) = of(&call.id);
            let status = done.map_or(ToolStatus::NotExecuted, |done| done.status);
            SeenCall {
                tool: call.name.clone(),
                arguments: call.arguments.clone(),
                status,
                code: done.and_then(|done| done.code.clone()),
                text: results.get(call.id.as_str()).copied().unwrap_or_default().to_owned(),
                truncated: done.is_some_and(|done| done.truncated),
                // A started call may still be refused, such as for `max_calls`.
                ran: started && !matches!(status, ToolStatus::Denied | ToolStatus::NotExecuted),
            }
        })
        .collect()
}

/// Remembers events.
#[derive(Default)]
pub(super) struct Events(Mutex<Vec<Event>>);

impl Events {
    pub(super) fn all(&self) -> Vec<Event> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Observer for Events {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
    }
}

/// Remembers what a model was sent.
pub(super) struct Overheard {
    inner: Arc<dyn Provider>,
    requests: Mutex<Vec<ModelRequest>>,
}

impl Overheard {
    pub(super) fn new(inner: Arc<dyn Provider>) -> Self {
        Self { inner, requests: Mutex::default() }
    }

    pub(super) fn requests(&self) -> Vec<ModelRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Provider for Overheard {
    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        events: &'a mut (dyn FnMut(ModelEvent) + Send),
        cancel: CancellationToken,
    ) -> BoxFuture<'a, Result<ModelTurn, ProviderError>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        self.inner.complete(request, events, cancel)
    }

    fn model(&self) -> &str {
        self.inner.model()
    }
}
