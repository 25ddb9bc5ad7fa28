//! `run`: one task, to its end. Also what sets up an agent for `chat`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::approve::{self, TerminalApprover};
use super::grants::GrantsFile;
use super::model::{load_config, open_provider};
use super::output::{self, CliError};
use super::printer::Printer;
use super::reload::Watch;
use super::session::{self, Opened};
use super::settings::{runner_settings, unmatched, worker_settings};
use super::view::{JsonView, LiveView};
use super::{Common, host, reload, signals};
use crate::agent::{PromptError, Run, Runner, RunnerSettings, StopReason};
use crate::approval::{Approver, DenyAll};
use crate::policy::Policy;
use crate::recording::{Origin, Recorder};
use crate::registry::{LiveRegistry, LoadSelection};
use crate::store::Session;
use crate::tool::Tools;

pub(super) async fn run(common: &Common, task: &str, record: Option<&Path>) -> Result<ExitCode, CliError> {
    if task.trim().is_empty() {
        return Err(CliError::usage("the task is empty").hint("such as `honeycomb-host \"what is 123 + 456?\"`"));
    }
    let cancel = CancellationToken::new();
    signals::cancel_on_signal(cancel.clone());
    let policy = host::load_policy(&common.policy)?;
    let opened = session::open(common, &host::read_secrets(&policy)?)?;
    let mut agent = open_agent(common, policy, opened, record).await?;
    let earlier = agent.earlier.take();
    let mut run = agent.next_run(earlier, task).await?;
    if let Some(Recorded { recorder, settings, origin }) = &agent.recorded {
        run = recorder.begin(&run, settings, origin.clone()).map_err(CliError::failed)?;
    }
    let result = agent.runner.resume(&mut run, &cancel).await;
    agent.printer.drained().await;
    if let Some(recorded) = &agent.recorded {
        recorded.recorder.finish(&result).map_err(CliError::failed)?;
    }
    agent.session.iter().for_each(|session| session::tell_end(session));
    Ok(exit_code(result.stop_reason))
}

/// How the process ends after a run that ended like this.
pub(super) fn exit_code(stop_reason: StopReason) -> ExitCode {
    match stop_reason {
        StopReason::EndTurn => ExitCode::SUCCESS,
        StopReason::Cancelled => ExitCode::from(130),
        _ => ExitCode::from(1),
    }
}

/// Everything that a task needs.
pub(super) struct Agent {
    pub(super) runner: Arc<Runner>,
    pub(super) session: Option<Arc<Session>>,
    /// The run that the session goes on from.
    pub(super) earlier: Option<Run>,
    pub(super) printer: Printer,
    /// Ends a run that was left, and shows nothing of that.
    closer: Runner,
    /// The file that the run is written into, if there is one.
    recorded: Option<Recorded>,
    _watch: Watch,
}

impl Agent {
    /// Makes a run for a task, in the conversation of an earlier one.
    pub(super) async fn next_run(&self, earlier: Option<Run>, task: impl Into<String>) -> Result<Run, CliError> {
        let Some(mut earlier) = earlier else { return self.runner.start(task).map_err(prompt_error) };
        if earlier.result().is_none() || !earlier.has_told_its_end() {
            // Its calls get their outcomes, so that the model knows what became of them.
            let ended = CancellationToken::new();
            ended.cancel();
            self.closer.resume(&mut earlier, &ended).await;
        }
        self.runner.follow_up(earlier, task).map_err(prompt_error)
    }
}

fn prompt_error(error: PromptError) -> CliError {
    CliError::config(anyhow::Error::new(error))
}

/// A recorder, and what it is begun with.
struct Recorded {
    recorder: Recorder,
    settings: RunnerSettings,
    origin: Origin,
}

/// Loads everything that a task needs. The policy is reloaded when it changes, as long as the agent is there.
pub(super) async fn open_agent(
    common: &Common,
    policy: Arc<Policy>,
    opened: Option<Opened>,
    record: Option<&Path>,
) -> Result<Agent, CliError> {
    let config = load_config(common)?;
    // Before any plugin is compiled: a missing key should not cost the wait.
    let provider = open_provider(common, &config)?;
    let redactor = host::read_secrets(&policy)?.redactor().clone();
    let (registry, report) = host::open_audited_registry(common, policy, LoadSelection::Granted).await?;
    if common.policy.is_empty() {
        output::note("no --policy was given, so the agent has no tools; `honeycomb-host policy suggest` writes a starter");
    } else if !report.skipped.is_empty() {
        tracing::info!("not loaded, since the policy has no block for them: {}", report.skipped.join(", "));
    }
    let mut settings = runner_settings(common, &config, provider.model())?;
    settings.run.session = opened.as_ref().map(|opened| opened.session.id().to_string());
    for tool in unmatched(&config, &registry.specs()) {
        output::note(&format!("warning: `agent.results.tools.\"{tool}\"` matches no tool that is on offer"));
    }
    let (observer, printer) = if common.json { Printer::start(JsonView) } else { Printer::start(LiveView::new()) };
    let approver: Arc<dyn Approver> = if approve::can_ask() {
        Arc::new(TerminalApprover::with_grants(GrantsFile::open(common, registry.standing())).after(printer.clone()))
    } else {
        Arc::new(DenyAll)
    };
    let origin = host::origin(&registry);
    let live = Arc::new(LiveRegistry::new(registry));
    let watch = reload::watch(common, Arc::clone(&live));
    let mut closer = Runner::new(provider.clone(), live.clone());
    let (mut runner, recorded) = match record {
        None => (Runner::new(provider, live).with_approver(approver), None),
        Some(file) => {
            let recorder = Recorder::create(file, redactor).map_err(CliError::config)?;
            let runner = Runner::new(recorder.provider(provider), recorder.tools(live))
                .with_approver(recorder.approver(approver))
                .with_clock(recorder.clock())
                // First, so that what is shown is in the file.
                .with_observer(recorder.observer());
            (runner, Some(Recorded { recorder, settings: settings.clone(), origin }))
        }
    };
    runner = runner.with_observer(observer).with_settings(settings);
    // One run in one file: what workers do side by side has no one order in which it could be replayed, so there are none.
    if let (Some(workers), None) = (worker_settings(common, &config), record) {
        runner = runner.with_workers(workers);
    }
    let (session, earlier) = opened.map_or((None, None), |opened| (Some(opened.session), opened.earlier));
    if let Some(session) = &session {
        runner = runner.with_observer(session.clone());
        closer = closer.with_observer(session.clone());
    }
    Ok(Agent { runner: Arc::new(runner), session, earlier, printer, closer, recorded, _watch: watch })
}
