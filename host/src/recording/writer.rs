//! Writes a recording: one line for each input and event, on disk before the run goes on.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::decorators::{RecordingApprover, RecordingProvider, RecordingTools};
use super::format::{Entry, FORMAT, Header, Line, Origin, Seal};
use super::{MAX_FILE_BYTES, RecordingError};
use crate::agent::{Clock, Event, Interruption, Observer, Run, RunResult, RunnerSettings, SystemClock};
use crate::approval::Approver;
use crate::provider::Provider;
use crate::secret::Redactor;
use crate::tool::{BoxFuture, ToolSpec, Tools};

/// Records one run.
///
/// Give a [`Runner`](crate::agent::Runner) this recorder's provider, tools, approver, clock and observer, call [`Recorder::begin`] with
/// the run, drive it, and call [`Recorder::finish`]. Hooks stand outside of what is recorded: a run with hooks that change something
/// does not replay.
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    path: PathBuf,
    redactor: Redactor,
    clock: Arc<dyn Clock>,
    now: AtomicU64,
    max_bytes: u64,
    state: Mutex<State>,
}

struct State {
    file: File,
    seal: Seal,
    bytes: u64,
    begun: bool,
    error: Option<RecordingError>,
    /// Lines that wait for the end of the turn: a secret may be spread over several pieces of its text.
    held: Vec<(u64, Entry)>,
    model: String,
    tools: Arc<[ToolSpec]>,
    generation: u64,
}

impl Recorder {
    /// Makes the file, which only its owner may read. Secrets that `redactor` knows do not get into it, nor to the model.
    ///
    /// # Errors
    ///
    /// Fails when the file is there already or cannot be made.
    pub fn create(path: &Path, redactor: Redactor) -> Result<Self, RecordingError> {
        Self::create_with(path, redactor, Arc::new(SystemClock), MAX_FILE_BYTES)
    }

    pub(super) fn create_with(
        path: &Path,
        redactor: Redactor,
        clock: Arc<dyn Clock>,
        max_bytes: u64,
    ) -> Result<Self, RecordingError> {
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let path = path.to_owned();
        let file = options.open(&path).map_err(|source| {
            if source.kind() == std::io::ErrorKind::AlreadyExists {
                RecordingError::Exists { path: path.clone() }
            } else {
                RecordingError::Write { path: path.clone(), source }
            }
        })?;
        let state = State {
            file,
            seal: Seal::default(),
            bytes: 0,
            begun: false,
            error: None,
            held: Vec::new(),
            model: String::new(),
            tools: Arc::default(),
            generation: 0,
        };
        let now = AtomicU64::new(clock.now_ms());
        Ok(Self { shared: Arc::new(Shared { path, redactor, clock, now, max_bytes, state: Mutex::new(state) }) })
    }

    /// Stands before a provider.
    pub fn provider(&self, inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
        inner.model().clone_into(&mut self.shared.lock().model);
        Arc::new(RecordingProvider { inner, shared: self.shared.clone() })
    }

    /// Stands before tools.
    pub fn tools(&self, inner: Arc<dyn Tools>) -> Arc<dyn Tools> {
        self.shared.lock().tools = inner.specs();
        Arc::new(RecordingTools { inner, shared: self.shared.clone() })
    }

    /// Stands before whoever answers questions.
    pub fn approver(&self, inner: Arc<dyn Approver>) -> Arc<dyn Approver> {
        Arc::new(RecordingApprover { inner, shared: self.shared.clone() })
    }

    /// The time of the recorded run. It moves on when something arrives from outside.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.shared.clone()
    }

    /// Writes the events down.
    pub fn observer(&self) -> Arc<dyn Observer> {
        self.shared.clone()
    }

    /// Writes the first line. Returns the run to drive: the same, without any secret that is known.
    ///
    /// # Errors
    ///
    /// Fails when the line cannot be written.
    pub fn begin(&self, run: &Run, settings: &RunnerSettings, origin: Origin) -> Result<Run, RecordingError> {
        let failed = |error: &dyn std::fmt::Display| RecordingError::Run(error.to_string());
        let json = run.to_json().map_err(|error| failed(&error))?;
        let mut value: Value = serde_json::from_str(&json).map_err(|error| failed(&error))?;
        self.shared.redactor.redact_json(&mut value);
        let run = Run::from_json(&value.to_string()).map_err(|error| failed(&error))?;
        let mut state = self.shared.lock();
        let header = Header {
            format: FORMAT,
            host: env!("CARGO_PKG_VERSION").to_owned(),
            model: state.model.clone(),
            origin,
            max_parallel: settings.max_parallel,
            max_parallel_per_plugin: settings.max_parallel_per_plugin,
            max_tool_attempts: settings.max_tool_attempts,
            tools: state.tools.to_vec(),
            run: value,
        };
        state.begun = true;
        self.shared.write(&mut state, self.shared.advance(), Entry::Header(Box::new(header)));
        state.error.take().map_or(Ok(run), Err)
    }

    /// Writes the last line.
    ///
    /// # Errors
    ///
    /// Tells of the first line that could not be written, whenever that was.
    pub fn finish(&self, result: &RunResult) -> Result<(), RecordingError> {
        let mut state = self.shared.lock();
        self.shared.write_all(&mut state, self.shared.now(), Entry::End { result: Box::new(result.clone()) });
        state.error.take().map_or(Ok(()), Err)
    }
}

impl Shared {
    /// Lets the time move on: something arrived from outside.
    pub(super) fn advance(&self) -> u64 {
        let now = self.clock.now_ms();
        self.now.fetch_max(now, Ordering::AcqRel).max(now)
    }

    fn now(&self) -> u64 {
        self.now.load(Ordering::Acquire)
    }

    /// Writes an input of the run.
    pub(super) fn input(&self, entry: Entry) {
        let mut state = self.lock();
        let t = self.advance();
        self.write_all(&mut state, t, entry);
    }

    /// Notes what tools are on offer, if that changed.
    pub(super) fn offered(&self, tools: &Arc<[ToolSpec]>) {
        let mut state = self.lock();
        if Arc::ptr_eq(&state.tools, tools) || state.tools == *tools {
            return;
        }
        state.tools = tools.clone();
        if state.begun {
            let t = self.now();
            self.write_all(&mut state, t, Entry::Tools { tools: tools.to_vec() });
        }
    }

    /// Notes that what decides about calls was replaced.
    pub(super) fn generation(&self, generation: u64) {
        let mut state = self.lock();
        if state.generation != generation {
            state.generation = generation;
            let t = self.now();
            self.write_all(&mut state, t, Entry::Generation { generation });
        }
    }

    /// A value as whoever reads the file will see it: without secrets, and with numbers as JSON keeps them. The run gets this one, so that
    /// a replay has the very same. None if it cannot be read back.
    pub(super) fn as_recorded<T: Serialize + DeserializeOwned>(&self, value: &T) -> Option<T> {
        let mut json = serde_json::to_value(value).ok()?;
        self.redactor.redact_json(&mut json);
        serde_json::from_str(&json.to_string()).ok()
    }

    fn write_all(&self, state: &mut State, t: u64, entry: Entry) {
        // The last piece of the text is told after the answer itself.
        if matches!(entry, Entry::Model { .. }) && !state.held.is_empty() {
            state.held.push((t, entry));
            return;
        }
        self.release(state);
        self.write(state, t, entry);
    }

    /// Writes the pieces of text that were held.
    fn release(&self, state: &mut State) {
        let mut held = std::mem::take(&mut state.held);
        for field in ["text.delta", "reasoning.delta"] {
            let mut pieces: Vec<&mut Value> = held
                .iter_mut()
                .filter_map(|(_, entry)| if let Entry::Event { event } = entry { Some(event) } else { None })
                .filter(|event| event["kind"] == field)
                .map(|event| &mut event["text"])
                .collect();
            let whole: String = pieces.iter().filter_map(|piece| piece.as_str()).collect();
            let redacted = self.redactor.redact(&whole);
            if redacted != whole {
                let mut rest = redacted.into_owned();
                for piece in &mut pieces {
                    **piece = Value::String(std::mem::take(&mut rest));
                }
            }
        }
        for (t, entry) in held {
            self.write(state, t, entry);
        }
    }

    fn write(&self, state: &mut State, t: u64, entry: Entry) {
        if !state.begun || state.error.is_some() {
            return;
        }
        let Ok(mut json) = serde_json::to_value(Line { t, entry }) else { return };
        self.redactor.redact_json(&mut json);
        let line = state.seal.clone().seal(&json.to_string());
        // Room for the line that says so.
        const SPARE: u64 = 256;
        if state.bytes + line.len() as u64 + SPARE > self.max_bytes {
            let full = state.seal.seal(&format!("{{\"t\":{t},\"kind\":\"full\"}}"));
            let _ = state.file.write_all(full.as_bytes());
            state.error = Some(RecordingError::Full { path: self.path.clone() });
            return;
        }
        let line = state.seal.seal(&json.to_string());
        state.bytes += line.len() as u64;
        if let Err(source) = state.file.write_all(line.as_bytes()) {
            state.error = Some(RecordingError::Write { path: self.path.clone(), source });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for Shared {
    fn now_ms(&self) -> u64 {
        self.now()
    }

    fn sleep(&self, ms: u64) -> BoxFuture<'_, ()> {
        self.clock.sleep(ms)
    }
}

impl Observer for Shared {
    fn event(&self, event: &Event) {
        let Ok(event) = serde_json::to_value(event) else { return };
        let mut state = self.lock();
        let t = self.now();
        if !self.redactor.is_empty() && (event["kind"] == "text.delta" || event["kind"] == "reasoning.delta") {
            state.held.push((t, Entry::Event { event }));
        } else {
            self.write_all(&mut state, t, Entry::Event { event });
        }
    }

    fn interrupted(&self, why: Interruption) {
        self.input(Entry::Interrupted { why });
    }
}
