//! `run`: one task, to its end. Also what sets up an agent for `chat`.

use std::process::ExitCode;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::approve::{self, TerminalApprover};
use super::model::{load_config, open_provider};
use super::output::{self, CliError};
use super::session::{self, Opened};
use super::view::{JsonView, LiveView};
use super::{Common, host, signals};
use crate::agent::{Observer, Price, PromptError, Run, Runner, RunnerSettings, StopReason, SystemPrompt, WireRules};
use crate::approval::{Approver, DenyAll};
use crate::config::Config;
use crate::policy::Policy;
use crate::provider::price;
use crate::registry::{LiveRegistry, LoadSelection};
use crate::store::Session;

pub(super) async fn run(common: &Common, task: &str) -> Result<ExitCode, CliError> {
    if task.trim().is_empty() {
        return Err(CliError::usage("the task is empty").hint("such as `honeycomb-host \"what is 123 + 456?\"`"));
    }
    let cancel = CancellationToken::new();
    signals::cancel_on_signal(cancel.clone());
    let policy = host::load_policy(&common.policy)?;
    let opened = session::open(common, &host::read_secrets(&policy)?)?;
    let mut agent = open_agent(common, policy, opened).await?;
    let earlier = agent.earlier.take();
    let mut run = agent.next_run(earlier, task).await?;
    let result = agent.runner.resume(&mut run, &cancel).await;
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
    /// Ends a run that was left, and shows nothing of that.
    closer: Runner,
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

/// Loads everything that a task needs.
pub(super) async fn open_agent(common: &Common, policy: Arc<Policy>, opened: Option<Opened>) -> Result<Agent, CliError> {
    let config = load_config(common)?;
    // Before any plugin is compiled: a missing key should not cost the wait.
    let provider = open_provider(common, &config)?;
    let (registry, report) = host::open_registry(common, policy, LoadSelection::Granted).await?;
    if common.policy.is_empty() {
        output::note("no --policy was given, so the agent has no tools; `honeycomb-host policy suggest` writes a starter");
    } else if !report.skipped.is_empty() {
        tracing::info!("not loaded, since the policy has no block for them: {}", report.skipped.join(", "));
    }
    let settings = runner_settings(common, &config, provider.model())?;
    let observer: Arc<dyn Observer> = if common.json { Arc::new(JsonView) } else { Arc::new(LiveView::new()) };
    let approver: Arc<dyn Approver> = if approve::can_ask() { Arc::new(TerminalApprover::default()) } else { Arc::new(DenyAll) };
    let tools = Arc::new(LiveRegistry::new(registry));
    let mut closer = Runner::new(provider.clone(), tools.clone());
    let mut runner = Runner::new(provider, tools).with_approver(approver).with_observer(observer).with_settings(settings);
    let (session, earlier) = opened.map_or((None, None), |opened| (Some(opened.session), opened.earlier));
    if let Some(session) = &session {
        runner = runner.with_observer(session.clone());
        closer = closer.with_observer(session.clone());
    }
    Ok(Agent { runner: Arc::new(runner), session, earlier, closer })
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
