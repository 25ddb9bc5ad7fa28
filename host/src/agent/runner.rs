//! Drives a run: asks the model, people and tools for what the run needs, and tells observers.

mod delegate;
mod handle;
mod model;
mod tools;

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::clock::{Clock, SystemClock};
use super::event::{Emitter, EventKind, Interruption, Observer};
use super::hook::{Hook, OnStop, RunInfo};
use super::prompt::{PromptError, PromptVariables, SystemPrompt};
use super::run::{Run, RunSettings, Step};
use super::stop::{RunResult, StopReason};
use super::workers::{Ledger, WorkerSettings};
use crate::approval::{Approver, DenyAll};
use crate::message::Message;
use crate::provider::Provider;
use crate::tool::Tools;

pub use handle::RunHandle;

/// A hook that is told of the end may take this long: the run is over, and somebody waits.
const ON_STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How a runner behaves.
#[derive(Clone, Debug)]
pub struct RunnerSettings {
    /// What runs are started with. `system` is rendered from `prompt`, unless it holds something already.
    pub run: RunSettings,
    /// The system prompt.
    pub prompt: SystemPrompt,
    /// Calls that run side by side in one run.
    pub max_parallel: usize,
    /// Of these, calls of one plugin.
    pub max_parallel_per_plugin: usize,
    /// How often a call is made, hooks' repeats included.
    pub max_tool_attempts: u32,
    /// Pieces of text that come faster than this, in milliseconds, reach observers joined; 0 joins none.
    pub join_deltas_ms: u64,
}

/// Twenty pieces a second are as smooth as an eye can tell.
const JOIN_DELTAS_MS: u64 = 50;

impl Default for RunnerSettings {
    fn default() -> Self {
        Self {
            run: RunSettings::default(),
            prompt: SystemPrompt::default(),
            max_parallel: 8,
            max_parallel_per_plugin: 4,
            max_tool_attempts: 3,
            join_deltas_ms: JOIN_DELTAS_MS,
        }
    }
}

/// Drives runs. One runner can drive many at once.
pub struct Runner {
    provider: Arc<dyn Provider>,
    tools: Arc<dyn Tools>,
    approver: Arc<dyn Approver>,
    observers: Vec<Arc<dyn Observer>>,
    hooks: Vec<Arc<dyn Hook>>,
    clock: Arc<dyn Clock>,
    settings: RunnerSettings,
    workers: Option<WorkerSettings>,
    /// The rules that a person answered with "for this run", by run. Kept here and not in the run: whoever can edit a stored run must
    /// not be able to approve.
    approved: Mutex<HashMap<String, HashSet<String>>>,
}

impl Runner {
    /// Makes a runner that asks nobody, tells nobody, and has no hooks.
    pub fn new(provider: Arc<dyn Provider>, tools: Arc<dyn Tools>) -> Self {
        Self {
            provider,
            tools,
            approver: Arc::new(DenyAll),
            observers: Vec::new(),
            hooks: Vec::new(),
            clock: Arc::new(SystemClock),
            settings: RunnerSettings::default(),
            workers: None,
            approved: Mutex::default(),
        }
    }

    /// Sets who answers what the policy asks.
    #[must_use]
    pub fn with_approver(mut self, approver: Arc<dyn Approver>) -> Self {
        self.approver = approver;
        self
    }

    /// Adds an observer.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Adds a hook, to be called after those added before.
    #[must_use]
    pub fn with_hook(mut self, hook: Arc<dyn Hook>) -> Self {
        self.hooks.push(hook);
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the settings.
    #[must_use]
    pub fn with_settings(mut self, settings: RunnerSettings) -> Self {
        self.settings = settings;
        self
    }

    /// The model that is asked.
    pub fn model(&self) -> &str {
        self.provider.model()
    }

    /// Makes a run for a task, with a new id. Nothing happens yet.
    ///
    /// # Errors
    ///
    /// Returns an error if the system prompt cannot be rendered with the tools that there are.
    pub fn start(&self, task: impl Into<String>) -> Result<Run, PromptError> {
        Ok(Run::new(new_id(), task, self.run_settings()?))
    }

    /// Makes a run for the user's next task in the conversation of an earlier run.
    ///
    /// # Errors
    ///
    /// Returns an error if the system prompt cannot be rendered with the tools that there are.
    pub fn follow_up(&self, earlier: Run, task: impl Into<String>) -> Result<Run, PromptError> {
        let mut settings = self.run_settings()?;
        // The same system prompt, byte for byte, keeps the provider's cache.
        settings.system.clone_from(&earlier.settings().system);
        if earlier.parent_id().is_some() {
            // A worker stays one, also when somebody talks to it later.
            settings.worker_depth = settings.worker_depth.min(earlier.settings().worker_depth);
        }
        Ok(earlier.follow_up(new_id(), task, settings))
    }

    fn run_settings(&self) -> Result<RunSettings, PromptError> {
        let mut settings = self.settings.run.clone();
        settings.worker_depth = self.workers.map_or(0, |workers| workers.max_depth);
        self.rendered(settings)
    }

    /// Settings with their system prompt.
    fn rendered(&self, mut settings: RunSettings) -> Result<RunSettings, PromptError> {
        if settings.system.is_empty() {
            settings.system = self.settings.prompt.render(&PromptVariables {
                date: crate::time::date(self.clock.now_ms()),
                model: self.provider.model().to_owned(),
                tools: self.offered(settings.worker_depth).iter().map(|tool| tool.name.clone()).collect(),
                max_steps: settings.budget.max_steps,
            })?;
        }
        Ok(settings)
    }

    /// Runs a task to its end.
    ///
    /// ```no_run
    /// # use honeycomb_host::agent::{PromptError, Runner};
    /// # async fn example(runner: &Runner) -> Result<(), PromptError> {
    /// let cancel = tokio_util::sync::CancellationToken::new();
    /// let result = runner.run("北京天气怎么样？", &cancel).await?;
    /// println!("{}: {}", result.stop_reason, result.answer.unwrap_or_default());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the run cannot be started; how it ended is in the result.
    pub async fn run(&self, task: impl Into<String>, cancel: &CancellationToken) -> Result<RunResult, PromptError> {
        let mut run = self.start(task)?;
        Ok(self.resume(&mut run, cancel).await)
    }

    /// Drives a run, new or stored, to its end.
    ///
    /// ```no_run
    /// # use honeycomb_host::agent::{Run, RunError, Runner};
    /// # async fn example(runner: &Runner, stored: &str) -> Result<(), RunError> {
    /// let mut run = Run::from_json(stored)?;
    /// let result = runner.resume(&mut run, &tokio_util::sync::CancellationToken::new()).await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn resume(&self, run: &mut Run, cancel: &CancellationToken) -> RunResult {
        loop {
            if let Some(result) = self.step(run, cancel).await {
                return result;
            }
        }
    }

    /// Drives a run one step: one turn of the model, one group of calls, one round of questions. None until the run is over.
    ///
    /// The future may be dropped at any time; the run then stands where it was, with calls that were running interrupted.
    ///
    /// ```no_run
    /// # use honeycomb_host::agent::{Phase, PromptError, RunResult, Runner};
    /// # async fn example(runner: &Runner) -> Result<RunResult, PromptError> {
    /// let cancel = tokio_util::sync::CancellationToken::new();
    /// let mut run = runner.start("What is 123 + 456?")?;
    /// let result = loop {
    ///     if let Some(result) = runner.step(&mut run, &cancel).await {
    ///         break result;
    ///     }
    ///     println!("{:?} after {} turns", run.phase(), run.usage().steps);
    /// };
    /// # Ok(result)
    /// # }
    /// ```
    pub async fn step(&self, run: &mut Run, cancel: &CancellationToken) -> Option<RunResult> {
        self.step_with(run, cancel, None).await
    }

    /// Drives a run in a task of its own, and returns a handle: its events as a stream, and ways to steer and stop it.
    ///
    /// ```no_run
    /// # use honeycomb_host::agent::{EventKind, PromptError, Runner};
    /// # async fn example(runner: &std::sync::Arc<Runner>) -> Result<(), PromptError> {
    /// let mut handle = runner.stream(runner.start("Summarise /data/报告.txt")?);
    /// while let Some(event) = handle.next_event().await {
    ///     match event.kind {
    ///         EventKind::TextDelta { text } => print!("{text}"),
    ///         EventKind::ToolStarted { .. } => handle.stop(), // or handle.steer("Only the first page, please.")
    ///         _ => {}
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn stream(self: &Arc<Self>, run: Run) -> RunHandle {
        RunHandle::spawn(self.clone(), run)
    }

    async fn step_with(&self, run: &mut Run, cancel: &CancellationToken, extra: Option<&Arc<dyn Observer>>) -> Option<RunResult> {
        let observers = self.observers.iter().chain(extra).cloned().collect();
        let emitter = Arc::new(Emitter::new(run, observers, self.clock.clone(), self.settings.join_deltas_ms));
        let workers = self.worker_settings(run.settings().worker_depth);
        let drive = Drive { runner: self, emitter, cancel, workers, ledger: Arc::default() };
        // A task that was taken on is not lost, whatever happens next.
        if !run.has_started()
            && let Err(failure) = drive.emitter.checkpoint(run).await
        {
            run.stop(StopReason::StorageFailed, failure);
        }
        let result = drive.step(run).await;
        run.count_workers(&drive.ledger.take());
        let stored = drive.emitter.checkpoint(run).await;
        drive.emitter.close();
        if let Err(failure) = stored {
            // A run that is over stays as it ended.
            run.stop(StopReason::StorageFailed, failure);
        }
        if result.is_some() {
            self.tools.end_run(run.id());
            self.approved().remove(run.id());
        }
        result
    }

    fn approved(&self) -> std::sync::MutexGuard<'_, HashMap<String, HashSet<String>>> {
        self.approved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One step of one run.
struct Drive<'a> {
    runner: &'a Runner,
    emitter: Arc<Emitter>,
    cancel: &'a CancellationToken,
    /// The run may have workers.
    workers: Option<&'a WorkerSettings>,
    /// What they used, until the run has counted it.
    ledger: Arc<Ledger>,
}

/// Why something was not waited for.
enum Halt {
    Cancelled,
    Expired,
}

impl Drive<'_> {
    async fn step(&self, run: &mut Run) -> Option<RunResult> {
        if run.result().is_none() && self.cancel.is_cancelled() {
            self.halt(run, &Halt::Cancelled);
        }
        if run.result().is_some() && !run.has_told_its_end() {
            self.on_stop(run).await;
        }
        run.set_model(self.runner.provider.model());
        let step = run.next_step(self.now(), &self.runner.offered(run.settings().worker_depth));
        self.tell(run);
        let mut done = None;
        match step {
            Step::CallModel(request) => self.call_model(run, *request).await,
            Step::Summarise(request) => self.summarise(run, *request).await,
            Step::CheckCalls(calls) => self.check_calls(run, calls).await,
            Step::AskApproval(questions) => self.ask_approval(run, questions).await,
            Step::CallTools(group) => self.call_tools(run, group).await,
            Step::Done(result) => done = Some(*result),
        }
        self.tell(run);
        done
    }

    async fn on_stop(&self, run: &mut Run) {
        for hook in &self.runner.hooks {
            let Some(result) = run.result().cloned() else { return };
            let info = info(run);
            let answer = tokio::time::timeout(ON_STOP_TIMEOUT, guarded(async { hook.on_stop(&info, &result).await })).await;
            match answer {
                Ok(Some(OnStop::Continue)) => {}
                Ok(Some(OnStop::Resume(text))) => {
                    if run.reopen(Message::user(text)) {
                        return;
                    }
                }
                Ok(None) | Err(_) => self.hook_failed(hook.as_ref(), "on_stop"),
            }
        }
    }

    /// Hands on what the run has to tell.
    fn tell(&self, run: &mut Run) {
        for kind in run.take_events() {
            self.emitter.emit(kind);
        }
    }

    fn hook_failed(&self, hook: &dyn Hook, point: &str) {
        self.emitter.emit(EventKind::HookFailed { hook: hook.name().to_owned(), point: point.to_owned() });
    }

    /// Waits for something, unless the run is cancelled or its time is up first.
    async fn wait<T>(&self, remaining_ms: Option<u64>, future: impl Future<Output = T>) -> Result<T, Halt> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(Halt::Cancelled),
            value = future => Ok(value),
            () = self.sleep(remaining_ms) => Err(Halt::Expired),
        }
    }

    fn halt(&self, run: &mut Run, halt: &Halt) {
        match halt {
            Halt::Cancelled => {
                self.emitter.interrupted(Interruption::Cancelled);
                run.cancel(self.now());
            }
            Halt::Expired => {
                self.emitter.interrupted(Interruption::Expired);
                run.expire(self.now());
            }
        }
    }

    async fn sleep(&self, ms: Option<u64>) {
        match ms {
            Some(ms) => self.runner.clock.sleep(ms).await,
            None => std::future::pending().await,
        }
    }

    fn hook_stop(&self, run: &mut Run, failure: crate::tool::Failure) {
        run.stop(StopReason::HookStopped, failure);
    }

    fn now(&self) -> u64 {
        self.runner.clock.now_ms()
    }
}

fn info(run: &Run) -> RunInfo {
    RunInfo { run_id: run.id().to_owned(), parent_run_id: run.parent_id().map(str::to_owned), usage: run.usage() }
}

/// Waits for a future; none if it panicked. Foreign code must not take the run with it.
async fn guarded<T>(future: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(future).catch_unwind().await.ok()
}

pub(super) fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

#[cfg(test)]
mod tests;
