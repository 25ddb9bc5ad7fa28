//! Workers of a run: what the runner does when the model, or the embedder, delegates.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Drive, Runner};
use crate::agent::event::{Emitter, Observer};
use crate::agent::prompt::PromptError;
use crate::agent::run::{Run, RunSettings};
use crate::agent::stop::StopReason;
use crate::agent::workers::delegate::{self, DELEGATE};
use crate::agent::workers::subset::Subset;
use crate::agent::workers::supervise::{Parent, Supervisor};
use crate::agent::workers::{DelegateError, Delegation, Ledger, TeamReport, WorkerSettings};
use crate::message::{ToolCall, ToolStatus};
use crate::tool::{Check, ErrorCode, ToolOutcome, ToolSpec, Tools};

/// A run with calls under way that may delegate.
pub(super) struct Delegating {
    parent: Parent,
    begun: Instant,
}

impl Delegating {
    pub(super) fn new(run: &Run) -> Self {
        Self { parent: parent(run), begun: Instant::now() }
    }

    /// The run as it is now, after what its workers used meanwhile.
    fn now(&self, ledger: &Ledger) -> Parent {
        let mut parent = self.parent.clone();
        let mut used = ledger.peek();
        used.wall_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        parent.left = parent.left.left(&used);
        parent
    }
}

impl Runner {
    /// Offers the model the tool `delegate`, with which it runs parts of its task side by side.
    ///
    /// Runs that this runner starts from now on may use it, and their workers as far as [`WorkerSettings::max_depth`] goes.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use honeycomb_host::agent::{Runner, WorkerSettings};
    /// use honeycomb_host::provider::Provider;
    /// use honeycomb_host::tool::Tools;
    ///
    /// fn with_two_at_once(provider: Arc<dyn Provider>, tools: Arc<dyn Tools>) -> Runner {
    ///     Runner::new(provider, tools).with_workers(WorkerSettings { max_parallel: 2, ..WorkerSettings::default() })
    /// }
    /// ```
    #[must_use]
    pub fn with_workers(mut self, settings: WorkerSettings) -> Self {
        self.workers = Some(settings);
        self
    }

    /// Runs subtasks side by side as workers of a run, and counts what they use as used by it.
    ///
    /// The run itself makes no step. Its budget is what the workers share, and its id is the `parent_run_id` of their events. The
    /// future may be dropped at any time; the workers then stop, and what they used in their unfinished steps is not counted.
    ///
    /// ```no_run
    /// # use honeycomb_host::agent::{Aggregation, Delegation, Runner, Subtask};
    /// # async fn example(runner: &Runner) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut run = runner.start("Compare the weather in 北京 and Paris")?;
    /// let subtask = |city: &str| Subtask {
    ///     task: format!("What is the weather in {city}?"),
    ///     tools: Some(vec!["weather__get_weather".to_owned()]),
    /// };
    /// let delegation = Delegation { subtasks: vec![subtask("北京"), subtask("Paris")], aggregation: Aggregation::Collect };
    /// let report = runner.delegate(&mut run, &delegation, &tokio_util::sync::CancellationToken::new()).await?;
    /// for worker in report.workers {
    ///     println!("{}: {:?} {}", worker.worker, worker.status, worker.report.unwrap_or_default());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if no worker was started; how workers ended is in the report.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub async fn delegate(
        &self,
        run: &mut Run,
        delegation: &Delegation,
        cancel: &CancellationToken,
    ) -> Result<TeamReport, DelegateError> {
        let settings = self.workers.unwrap_or_default();
        let emitter = Emitter::new(run, self.observers.clone(), self.clock.clone(), self.settings.join_deltas_ms);
        let ledger = Arc::new(Ledger::default());
        let supervisor =
            Supervisor { runner: self, settings: &settings, emitter: &emitter, ledger: &ledger, parent: parent(run) };
        let report = supervisor.run(delegation, cancel).await;
        run.count_workers(&ledger.take());
        if let Err(failure) = emitter.checkpoint(run).await {
            run.stop(StopReason::StorageFailed, failure);
        }
        emitter.close();
        report
    }

    /// The tools on offer to a run that may have workers this deep.
    pub(super) fn offered(&self, depth: u32) -> Arc<[ToolSpec]> {
        let specs = self.tools.specs();
        match self.worker_settings(depth) {
            None => specs,
            // The host's own name wins, as in the check.
            Some(settings) => {
                let others = specs.iter().filter(|spec| spec.name != DELEGATE).cloned();
                others.chain([delegate::spec(settings)]).collect()
            }
        }
    }

    pub(super) fn worker_settings(&self, depth: u32) -> Option<&WorkerSettings> {
        self.workers.as_ref().filter(|_| depth > 0)
    }

    pub(in crate::agent) fn tools(&self) -> &Arc<dyn Tools> {
        &self.tools
    }

    /// A runner for a worker: the same model, gate, person and hooks, and nothing that the parent was allowed by that person.
    pub(in crate::agent) fn for_worker(
        &self,
        parent_id: &str,
        run_id: &str,
        tools: Option<&[String]>,
        observers: &[Arc<dyn Observer>],
    ) -> Self {
        let subset = Subset::new(Arc::clone(&self.tools), parent_id, run_id);
        let subset = match tools {
            Some(names) => subset.only(names.iter().cloned()),
            None => subset,
        };
        Self {
            provider: Arc::clone(&self.provider),
            tools: Arc::new(subset),
            approver: Arc::clone(&self.approver),
            observers: observers.to_vec(),
            hooks: self.hooks.clone(),
            clock: Arc::clone(&self.clock),
            settings: self.settings.clone(),
            workers: self.workers,
            approved: std::sync::Mutex::default(),
        }
    }

    /// Makes a worker's run. Its system prompt is that of any run with these tools, and a note.
    pub(in crate::agent) fn start_worker(
        &self,
        run_id: &str,
        task: String,
        settings: RunSettings,
        note: &str,
    ) -> Result<Run, PromptError> {
        let system = self.settings.run.system.clone();
        let mut settings = self.rendered(RunSettings { system, ..settings })?;
        settings.system.push_str(note);
        Ok(Run::new(run_id, task, settings))
    }
}

impl Drive<'_> {
    pub(super) fn is_delegate(&self, call: &ToolCall) -> bool {
        call.name == DELEGATE && self.workers.is_some()
    }

    /// Whether a call of `delegate` can be carried out, as far as that can be said without starting anything.
    pub(super) fn check_delegate(&self, call: &ToolCall, settings: &WorkerSettings) -> Check {
        let specs = self.runner.tools.specs();
        let checked = delegate::parse(call).and_then(|delegation| {
            delegation.check(specs.iter().map(|spec| spec.name.as_str()), settings).map_err(|error| error.failure())
        });
        match checked {
            Ok(()) => Check::Ready,
            Err(failure) => Check::Refused(Box::new(ToolOutcome::refused(ToolStatus::Error, failure))),
        }
    }

    pub(super) async fn delegate(
        &self,
        delegating: &Delegating,
        settings: &WorkerSettings,
        call: &ToolCall,
        cancel: &CancellationToken,
    ) -> ToolOutcome {
        let delegation = match delegate::parse(call) {
            Ok(delegation) => delegation,
            Err(failure) => return ToolOutcome::refused(ToolStatus::Error, failure),
        };
        let (emitter, ledger, parent) = (&*self.emitter, &self.ledger, delegating.now(&self.ledger));
        let supervisor = Supervisor { runner: self.runner, settings, emitter, ledger, parent };
        match supervisor.run(&delegation, cancel).await {
            Ok(report) => delegate::outcome(&report),
            Err(error) => {
                let failure = error.failure();
                let status = if failure.code == ErrorCode::LIMIT_RUN { ToolStatus::NotExecuted } else { ToolStatus::Error };
                ToolOutcome::refused(status, failure)
            }
        }
    }
}

fn parent(run: &Run) -> Parent {
    Parent {
        run_id: run.id().to_owned(),
        settings: run.settings().clone(),
        left: run.settings().budget.left(&run.usage()),
        tools_read: run.conversation().tools_read.to_vec(),
    }
}
