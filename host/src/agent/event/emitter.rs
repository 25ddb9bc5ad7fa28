//! Numbers events and hands them out; joins deltas that come faster than anybody reads.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;

use super::{Event, EventKind, Interruption, Observer};
use crate::agent::clock::Clock;
use crate::message::ToolCall;
use crate::provider::ModelEvent;
use crate::text;
use crate::tool::{ErrorCode, Failure, Progress};

/// Deltas are joined up to this size.
const DELTA_BYTES: usize = 2 * 1024;
/// A guest cannot flood the log: one report per call in this time, in milliseconds.
const PROGRESS_MS: u64 = 100;

/// The events of one run. Shared with progress sinks, which tools may hold for longer than their call.
pub(crate) struct Emitter {
    run_id: String,
    parent_run_id: Option<String>,
    observers: Vec<Arc<dyn Observer>>,
    clock: Arc<dyn Clock>,
    join_deltas_ms: u64,
    state: Mutex<State>,
}

struct State {
    next_seq: u64,
    pending: Option<EventKind>,
    last_delta_ms: Option<u64>,
    last_progress_ms: HashMap<String, u64>,
    closed: bool,
}

impl Emitter {
    /// `join_deltas_ms`: deltas that come faster than this are joined.
    pub(crate) fn new(
        run: &crate::agent::Run,
        observers: Vec<Arc<dyn Observer>>,
        clock: Arc<dyn Clock>,
        join_deltas_ms: u64,
    ) -> Self {
        Self {
            run_id: run.id().to_owned(),
            parent_run_id: run.parent_id().map(str::to_owned),
            observers,
            clock,
            join_deltas_ms,
            state: Mutex::new(State {
                next_seq: run.next_seq(),
                pending: None,
                last_delta_ms: None,
                last_progress_ms: HashMap::new(),
                closed: false,
            }),
        }
    }

    /// Who is told.
    pub(crate) fn observers(&self) -> &[Arc<dyn Observer>] {
        &self.observers
    }

    /// Emits an event, after any delta that is still held.
    pub(crate) fn emit(&self, kind: EventKind) {
        let mut state = self.lock();
        self.flush_locked(&mut state);
        self.send(&mut state, kind);
    }

    /// Emits what a provider reports while an answer streams in.
    pub(crate) fn model_event(&self, event: ModelEvent) {
        match event {
            ModelEvent::TextDelta { text } => self.delta(EventKind::TextDelta { text }),
            ModelEvent::ReasoningDelta { text } => self.delta(EventKind::ReasoningDelta { text }),
            ModelEvent::ToolCallStarted { id, name } => {
                self.emit(EventKind::ToolCallStarted { call_id: id, name: text::clean_line(&name, 256) });
            }
            ModelEvent::Retry { attempt, delay_ms, reason, discard } => {
                self.emit(EventKind::ModelRetry { attempt, delay_ms, reason, discard });
            }
        }
    }

    /// Emits a tool's report, unless it comes too soon after the one before, or after its step.
    pub(crate) fn progress(&self, call: &ToolCall, progress: Progress) {
        let now = self.clock.now_ms();
        let mut state = self.lock();
        let too_soon = state.last_progress_ms.get(&call.id).is_some_and(|last| now < last.saturating_add(PROGRESS_MS));
        if state.closed || too_soon {
            return;
        }
        state.last_progress_ms.insert(call.id.clone(), now);
        self.flush_locked(&mut state);
        let Progress { done, total, message } = progress;
        let message = message.map(|message| text::clean_line(&message, 1024));
        // Not a later time: from the events alone it must follow which reports came too soon.
        self.send_at(&mut state, EventKind::ToolProgress { call_id: call.id.clone(), done, total, message }, now);
    }

    /// Emits the delta that is held, if any.
    pub(crate) fn flush(&self) {
        let mut state = self.lock();
        self.flush_locked(&mut state);
    }

    /// Emits nothing any more; returns the next sequence number.
    pub(crate) fn close(&self) -> u64 {
        let mut state = self.lock();
        self.flush_locked(&mut state);
        state.closed = true;
        state.next_seq
    }

    /// Tells observers that the run stopped waiting, after any delta that is still held.
    pub(crate) fn interrupted(&self, why: Interruption) {
        self.flush();
        for observer in &self.observers {
            let _ = catch_unwind(AssertUnwindSafe(|| observer.interrupted(why)));
        }
    }

    /// Flushes, and tells observers that the run may be continued from here. Returns the first failure, after all were told.
    pub(crate) async fn checkpoint(&self, run: &mut crate::agent::Run) -> Result<(), Failure> {
        self.flush();
        run.set_next_seq(self.lock().next_seq);
        let mut stored = Ok(());
        for observer in &self.observers {
            // Who panics has stored nothing.
            let answer = AssertUnwindSafe(async { observer.checkpoint(run).await }).catch_unwind().await;
            let answer =
                answer.unwrap_or_else(|_| Err(Failure::new(ErrorCode::HOST_STORAGE, "the host failed while it stored the run")));
            stored = stored.and(answer);
        }
        stored
    }

    fn delta(&self, kind: EventKind) {
        let now = self.clock.now_ms();
        let mut state = self.lock();
        let kind = match (state.pending.take(), kind) {
            (Some(EventKind::TextDelta { text: mut held }), EventKind::TextDelta { text }) => {
                held.push_str(&text);
                EventKind::TextDelta { text: held }
            }
            (Some(EventKind::ReasoningDelta { text: mut held }), EventKind::ReasoningDelta { text }) => {
                held.push_str(&text);
                EventKind::ReasoningDelta { text: held }
            }
            (Some(held), kind) => {
                self.send(&mut state, held);
                kind
            }
            (None, kind) => kind,
        };
        let size = if let EventKind::TextDelta { text } | EventKind::ReasoningDelta { text } = &kind { text.len() } else { 0 };
        let due = state.last_delta_ms.is_none_or(|last| now >= last.saturating_add(self.join_deltas_ms));
        state.pending = Some(kind);
        if due || size >= DELTA_BYTES {
            state.last_delta_ms = Some(now);
            self.flush_locked(&mut state);
        }
    }

    fn flush_locked(&self, state: &mut State) {
        if let Some(kind) = state.pending.take() {
            self.send(state, kind);
        }
    }

    fn send(&self, state: &mut State, kind: EventKind) {
        self.send_at(state, kind, self.clock.now_ms());
    }

    fn send_at(&self, state: &mut State, kind: EventKind, ts: u64) {
        if state.closed {
            return;
        }
        let event =
            Event { run_id: self.run_id.clone(), parent_run_id: self.parent_run_id.clone(), seq: state.next_seq, ts, kind };
        state.next_seq += 1;
        for observer in &self.observers {
            // An observer that panics must not end the run; it loses this event.
            let _ = catch_unwind(AssertUnwindSafe(|| observer.event(&event)));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
