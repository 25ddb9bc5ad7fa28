//! `run`: one task, to its end. Also what sets up an agent for `chat`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::approve::{self, TerminalApprover};
use super::model::{load_config, open_provider};
use super::output::{self, CliError};
use super::view::{JsonView, LiveView};
use super::{Common, host, signals};
use crate::agent::{Observer, Price, Runner, RunnerSettings, StopReason, SystemPrompt, WireRules};
use crate::approval::{Approver, DenyAll};
use crate::config::Config;
use crate::provider::price;
use crate::recording::{Origin, Recorder};
use crate::registry::{LiveRegistry, LoadSelection};
use crate::tool::Tools;

pub(super) async fn run(common: &Common, task: &str, record: Option<&Path>) -> Result<ExitCode, CliError> {
    if task.trim().is_empty() {
        return Err(CliError::usage("the task is empty").hint("such as `honeycomb-host \"what is 123 + 456?\"`"));
    }
    let cancel = CancellationToken::new();
    signals::cancel_on_signal(cancel.clone());
    let (runner, recording) = open(common, record).await?;
    let mut run = runner.start(task).map_err(|error| CliError::config(anyhow::Error::new(error)))?;
    if let Some(Recorded { recorder, settings, origin }) = &recording {
        run = recorder.begin(&run, settings, origin.clone()).map_err(CliError::failed)?;
    }
    let result = runner.resume(&mut run, &cancel).await;
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

/// Loads everything that a task needs.
pub(super) async fn open_runner(common: &Common) -> Result<Arc<Runner>, CliError> {
    Ok(open(common, None).await?.0)
}

async fn open(common: &Common, record: Option<&Path>) -> Result<(Arc<Runner>, Option<Recorded>), CliError> {
    let config = load_config(common)?;
    let policy = host::load_policy(&common.policy)?;
    // Before any plugin is compiled: a missing key should not cost the wait.
    let provider = open_provider(common, &config)?;
    let redactor = host::read_secrets(&policy)?.redactor().clone();
    let (registry, report) = host::open_registry(common, policy, LoadSelection::Granted).await?;
    if common.policy.is_empty() {
        output::note("no --policy was given, so the agent has no tools; `honeycomb-host policy suggest` writes a starter");
    } else if !report.skipped.is_empty() {
        tracing::info!("not loaded, since the policy has no block for them: {}", report.skipped.join(", "));
    }
    let settings = runner_settings(common, &config, provider.model())?;
    let observer: Arc<dyn Observer> = if common.json { Arc::new(JsonView) } else { Arc::new(LiveView::new()) };
    let approver: Arc<dyn Approver> = if approve::can_ask() { Arc::new(TerminalApprover::default()) } else { Arc::new(DenyAll) };
    let origin = host::origin(&registry);
    let tools: Arc<dyn Tools> = Arc::new(LiveRegistry::new(registry));
    let Some(file) = record else {
        let runner = Runner::new(provider, tools).with_approver(approver).with_observer(observer).with_settings(settings);
        return Ok((Arc::new(runner), None));
    };
    let recorder = Recorder::create(file, redactor).map_err(CliError::config)?;
    let runner = Runner::new(recorder.provider(provider), recorder.tools(tools))
        .with_approver(recorder.approver(approver))
        .with_clock(recorder.clock())
        // First, so that what is shown is in the file.
        .with_observer(recorder.observer())
        .with_observer(observer)
        .with_settings(settings.clone());
    Ok((Arc::new(runner), Some(Recorded { recorder, settings, origin })))
}

fn runner_settings(common: &Common, config: &Config, model: &str) -> Result<RunnerSettings, CliError> {
    let mut settings = RunnerSettings::default();
    if let Some(template) = &config.agent.system_prompt {
        settings.prompt = SystemPrompt::new(template)
            .map_err(|error| CliError::config(anyhow::Error::new(error).context("`agent.system_prompt`")))?;
    }
    let budget = &mut settings.run.budget;
    if let Some(max_steps) = common.max_steps.or(config.agent.max_steps) {
        if max_steps == 0 {
            return Err(CliError::usage("`--max-steps` must not be zero"));
        }
        budget.max_steps = max_steps;
    }
    if let Some(max_tool_calls) = config.agent.max_tool_calls {
        budget.max_tool_calls = max_tool_calls;
    }
    if let Some(max_time) = config.max_time() {
        budget.max_wall_ms = Some(u64::try_from(max_time.as_millis()).unwrap_or(u64::MAX));
    }
    let known = price::lookup(model);
    if let Some(window) = config.agent.context_window.or_else(|| known.map(|price| price.window)) {
        settings.run.context.window_tokens = window;
    }
    settings.run.context.max_output_tokens = config.model.max_output_tokens;
    settings.run.price = known.map(|price| Price { input: price.input, cached_input: price.cached, output: price.output });
    settings.run.wire = WireRules::default();
    Ok(settings)
}
