//! `run`: one task, to its end. Also what sets up an agent for `chat`.

use std::process::ExitCode;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::approve::{self, TerminalApprover};
use super::grants::GrantsFile;
use super::model::{load_config, open_provider};
use super::output::{self, CliError};
use super::reload::Watch;
use super::view::{JsonView, LiveView};
use super::{Common, host, reload, signals};
use crate::agent::{Observer, Price, Runner, RunnerSettings, StopReason, SystemPrompt, WireRules};
use crate::approval::{Approver, DenyAll};
use crate::config::Config;
use crate::provider::price;
use crate::registry::{LiveRegistry, LoadSelection};

pub(super) async fn run(common: &Common, task: &str) -> Result<ExitCode, CliError> {
    if task.trim().is_empty() {
        return Err(CliError::usage("the task is empty").hint("such as `honeycomb-host \"what is 123 + 456?\"`"));
    }
    let cancel = CancellationToken::new();
    signals::cancel_on_signal(cancel.clone());
    let (runner, _watch) = open_runner(common).await?;
    let result = runner.run(task, &cancel).await.map_err(|error| CliError::config(anyhow::Error::new(error)))?;
    Ok(match result.stop_reason {
        StopReason::EndTurn => ExitCode::SUCCESS,
        StopReason::Cancelled => ExitCode::from(130),
        _ => ExitCode::from(1),
    })
}

/// Loads everything that a task needs. The policy is reloaded when it changes, until the watch is dropped.
pub(super) async fn open_runner(common: &Common) -> Result<(Arc<Runner>, Watch), CliError> {
    let config = load_config(common)?;
    let policy = host::load_policy(&common.policy)?;
    // Before any plugin is compiled: a missing key should not cost the wait.
    let provider = open_provider(common, &config)?;
    let (registry, report) = host::open_audited_registry(common, policy, LoadSelection::Granted).await?;
    if common.policy.is_empty() {
        output::note("no --policy was given, so the agent has no tools; `honeycomb-host policy suggest` writes a starter");
    } else if !report.skipped.is_empty() {
        tracing::info!("not loaded, since the policy has no block for them: {}", report.skipped.join(", "));
    }
    let settings = runner_settings(common, &config, provider.model())?;
    let observer: Arc<dyn Observer> = if common.json { Arc::new(JsonView) } else { Arc::new(LiveView::new()) };
    let approver: Arc<dyn Approver> = if approve::can_ask() {
        Arc::new(TerminalApprover::with_grants(GrantsFile::open(common, registry.standing())))
    } else {
        Arc::new(DenyAll)
    };
    let live = Arc::new(LiveRegistry::new(registry));
    let watch = reload::watch(common, Arc::clone(&live));
    let runner = Runner::new(provider, live).with_approver(approver).with_observer(observer).with_settings(settings);
    Ok((Arc::new(runner), watch))
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
