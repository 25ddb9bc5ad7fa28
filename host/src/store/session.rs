//! A session that is being worked on: stores the runs that it is told of.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::lock::SessionLock;
use super::save::{Checkpoint, Progress, save};
use super::{Store, StoreError, record, short_id};
use crate::agent::{Event, Observer, Run};
use crate::message::Message;
use crate::text;
use crate::tool::{BoxFuture, ErrorCode, Failure};

/// The longest title, in bytes.
const MAX_TITLE: usize = 200;
/// Events of one step beyond this are not stored; no step has as many.
const MAX_EVENTS: usize = 10_000;

/// A session that this process works on. While it is there, no other process can have it.
///
/// As an [`Observer`] it stores the runs of the session, and the runs that these started (workers) as sessions of their own below it.
pub struct Session {
    store: Store,
    id: String,
    state: Mutex<State>,
    _lock: SessionLock,
}

#[derive(Default)]
struct State {
    /// What of each run is stored; absent while it is being written, or if that is not known.
    progress: HashMap<String, Progress>,
    /// The session of each run that was seen.
    sessions: HashMap<String, String>,
    /// Events that wait for the next checkpoint of their run.
    events: HashMap<String, Vec<Event>>,
    /// The last failure to store, and nothing was stored after it.
    failure: Option<Failure>,
}

impl Session {
    pub(super) fn new(store: Store, id: String, lock: SessionLock) -> Self {
        Self { store, id, state: Mutex::default(), _lock: lock }
    }

    /// The session's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The store it is in.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The session's last run, as of its last checkpoint; none if the session has none yet.
    ///
    /// [`Runner::resume`](crate::agent::Runner::resume) goes on with it if it is not over, and
    /// [`Runner::follow_up`](crate::agent::Runner::follow_up) with the user's next task if it is. What a person allowed is not restored.
    ///
    /// # Errors
    ///
    /// Returns an error if it was stored by a newer program or is damaged.
    pub fn load(&self) -> Result<Option<Run>, StoreError> {
        self.store.load_run(&self.id)
    }

    /// Why the last checkpoint is not stored, if it is not.
    pub fn failure(&self) -> Option<Failure> {
        self.state().failure.clone()
    }

    /// Stores a checkpoint; blocks.
    ///
    /// # Errors
    ///
    /// Returns why it is not stored.
    pub fn store_run(&self, run: &Run) -> Result<(), StoreError> {
        let (checkpoint, progress) = self.prepare(run)?;
        let saved = save(&mut self.store.writer(), &checkpoint, progress);
        self.settle(checkpoint, saved)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of a run, and of the run that started it.
    fn place(&self, run: &Run) -> (String, Option<String>) {
        let mut state = self.state();
        // A run whose parent was not seen here is this session's own, such as a worker's that is continued by itself.
        let parent = run.parent_id().and_then(|parent| state.sessions.get(parent).cloned());
        let session = if parent.is_some() { short_id(run.id().as_bytes()) } else { self.id.clone() };
        state.sessions.insert(run.id().to_owned(), session.clone());
        (session, parent)
    }

    /// Writes down what a checkpoint holds. Takes as long as what the last step added, if all before it is stored.
    pub(super) fn prepare(&self, run: &Run) -> Result<(Checkpoint, Option<Progress>), StoreError> {
        let (session_id, parent_session_id) = self.place(run);
        let unwritable = |source| StoreError::Record { id: session_id.clone(), source };
        let redact = |text: &str| -> String { self.store.redact(text).into_owned() };
        let parts = run.to_parts(&|text| self.store.redact(text)).map_err(unwritable)?;
        let progress = self.state().progress.remove(run.id());
        let first_new = progress.as_ref().map_or(0, |progress| progress.messages.min(parts.messages.len()));
        let body = |message: &Message| serde_json::to_string(&message.scrubbed(&|text| self.store.redact(text)));
        let new_messages: Result<Vec<String>, _> = parts.messages[first_new..].iter().map(body).collect();
        let stored: HashSet<&str> = progress.iter().flat_map(|progress| &progress.results).map(String::as_str).collect();
        let known = |call_id: &str| stored.contains(call_id);
        let has_stub = |call_id: &str| progress.as_ref().is_some_and(|progress| progress.stubs.contains(call_id));
        let task = run.task().map(Message::text).unwrap_or_default();
        let first_line = task.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let checkpoint = Checkpoint {
            parent_session_id,
            run_id: run.id().to_owned(),
            parent_run_id: run.parent_id().map(str::to_owned),
            title: text::clean_line(redact(first_line).trim(), MAX_TITLE),
            task: redact(&task),
            model: run.model().map(str::to_owned),
            status: run.result().map_or("open", |result| result.stop_reason.as_str()),
            starts: run.has_started_calls(),
            usage: serde_json::to_string(&run.usage()).map_err(unwritable)?,
            settings: parts.settings,
            state: parts.state,
            messages: parts.messages.len(),
            new_messages: new_messages.map_err(unwritable)?,
            results: parts
                .results
                .iter()
                .map(|(call_id, text)| ((*call_id).to_owned(), (!known(call_id)).then(|| redact(text))))
                .collect(),
            new_stubs: parts
                .stubs
                .iter()
                .filter(|(call_id, _)| !has_stub(call_id))
                .map(|(call_id, text)| ((*call_id).to_owned(), redact(text)))
                .collect(),
            events: self.take_events(run.id()).map_err(unwritable)?,
            now: i64::try_from(self.store.now()).unwrap_or(i64::MAX),
            session_id: session_id.clone(),
        };
        Ok((checkpoint, progress))
    }

    fn take_events(&self, run_id: &str) -> Result<Vec<(Event, String)>, serde_json::Error> {
        let events = self.state().events.remove(run_id).unwrap_or_default();
        let body = |event: Event| {
            let mut value = serde_json::to_value(&event.kind)?;
            for redactor in &self.store.0.options.redactors {
                redactor.redact_json(&mut value);
            }
            Ok((event, value.to_string()))
        };
        events.into_iter().map(body).collect()
    }

    pub(super) fn settle(&self, checkpoint: Checkpoint, saved: rusqlite::Result<Progress>) -> Result<(), StoreError> {
        let mut state = self.state();
        match saved {
            Ok(progress) => {
                state.progress.insert(checkpoint.run_id, progress);
                state.failure = None;
                Ok(())
            }
            Err(source) => {
                // They belong to the next checkpoint, if there is one.
                let waiting = state.events.entry(checkpoint.run_id).or_default();
                waiting.splice(0..0, checkpoint.events.into_iter().map(|(event, _)| event));
                let error = self.store.failed(source);
                state.failure = Some(failure(&error));
                Err(error)
            }
        }
    }
}

impl Observer for Session {
    fn event(&self, event: &Event) {
        if record::is_kept(&event.kind) {
            let mut state = self.state();
            let waiting = state.events.entry(event.run_id.clone()).or_default();
            if waiting.len() < MAX_EVENTS {
                waiting.push(event.clone());
            }
        }
    }

    /// # Panics
    ///
    /// The future panics outside a tokio runtime.
    fn checkpoint<'a>(&'a self, run: &'a Run) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let stored = async {
                let (checkpoint, progress) = self.prepare(run)?;
                let store = self.store.clone();
                let written = tokio::task::spawn_blocking(move || {
                    let saved = save(&mut store.writer(), &checkpoint, progress);
                    (checkpoint, saved)
                });
                let (checkpoint, saved) = written.await.map_err(|_| StoreError::Thread)?;
                self.settle(checkpoint, saved)
            };
            stored.await.map_err(|error| failure(&error))
        })
    }
}

fn failure(error: &StoreError) -> Failure {
    use std::error::Error as _;
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    let failure = Failure::new(ErrorCode::HOST_STORAGE, message);
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id).field("store", &self.store).finish_non_exhaustive()
    }
}
