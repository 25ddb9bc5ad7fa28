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
use super::settings::{runner_settings, unmatched, worker_settings};
use super::view::{JsonView, LiveView};
use super::{Common, host, reload, signals};
use crate::agent::{Runner, RunnerSettings, StopReason};
use crate::approval::{Approver, DenyAll};
use crate::recording::{Origin, Recorder};
use crate::registry::{LiveRegistry, LoadSelection};
use crate::tool::Tools;

pub(super) async fn run(common: &Common, task: &str, record: Option<&Path>) -> Result<ExitCode, CliError> {
    if task.trim().is_empty() {
        return Err(CliError::usage("the task is empty").hint("such as `honeycomb-host \"what is 123 + 456?\"`"));
    }
    let cancel = CancellationToken::new();
    signals::cancel_on_signal(cancel.clone());
    let (runner, printer, _watch, recording) = open(common, record).await?;
    let mut run = runner.start(task).map_err(|error| CliError::config(anyhow::Error::new(error)))?;
    if let Some(Recorded { recorder, settings, origin }) = &recording {
        run = recorder.begin(&run, settings, origin.clone()).map_err(CliError::failed)?;
    }
    let result = runner.resume(&mut run, &cancel).await;
    printer.drained().await;
    if let Some(recorded) = &recording {
        recorded.recorder.finish(&result).map_err(CliError::failed)?;
    }
    Ok(match result.stop_reason {
        StopReason::EndTurn => ExitCode::SUCCESS,
        StopReason::Cancelled => ExitCode::from(130),
        _ => ExitCode::from(1),
    })
}

/// A recorder, and what it is begun with.
struct Recorded {
    recorder: Recorder,
    settings: RunnerSettings,
    origin: Origin,
}

/// Loads everything that a task needs. The policy is reloaded when it changes, until the watch is dropped.
pub(super) async fn open_runner(common: &Common) -> Result<(Arc<Runner>, Printer, Watch), CliError> {
    open(common, None).await.map(|(runner, printer, watch, _)| (runner, printer, watch))
}

type Opened = (Arc<Runner>, Printer, Watch, Option<Recorded>);

async fn open(common: &Common, record: Option<&Path>) -> Result<Opened, CliError> {
    let config = load_config(common)?;
    let policy = host::load_policy(&common.policy)?;
    // Before any plugin is compiled: a missing key should not cost the wait.
    let provider = open_provider(common, &config)?;
    let redactor = host::read_secrets(&policy)?.redactor().clone();
    let (registry, report) = host::open_audited_registry(common, policy, LoadSelection::Granted).await?;
    if common.policy.is_empty() {
        output::note("no --policy was given, so the agent has no tools; `honeycomb-host policy suggest` writes a starter");
    } else if !report.skipped.is_empty() {
        tracing::info!("not loaded, since the policy has no block for them: {}", report.skipped.join(", "));
    }
    let settings = runner_settings(common, &config, provider.model())?;
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
    let Some(file) = record else {
        let runner = Runner::new(provider, live).with_approver(approver).with_observer(observer).with_settings(settings);
        let runner = match worker_settings(common, &config) {
            Some(workers) => runner.with_workers(workers),
            None => runner,
        };
        return Ok((Arc::new(runner), printer, watch, None));
    };
    // One run in one file: what workers do side by side has no one order in which it could be replayed, so there are none.
    let recorder = Recorder::create(file, redactor).map_err(CliError::config)?;
    let runner = Runner::new(recorder.provider(provider), recorder.tools(live))
        .with_approver(recorder.approver(approver))
        .with_clock(recorder.clock())
        // First, so that what is shown is in the file.
        .with_observer(recorder.observer())
        .with_observer(observer)
        .with_settings(settings.clone());
    Ok((Arc::new(runner), printer, watch, Some(Recorded { recorder, settings, origin })))
}
