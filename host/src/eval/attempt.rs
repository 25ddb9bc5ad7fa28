//! One attempt at a scenario, from an empty directory to what came of it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use super::EvalHost;
use super::judge::judge;
use super::observe::{Events, Observed, Overheard, calls};
use super::scenario::{Model, Scenario, Setup};
use super::world::{NoTools, World};
use crate::agent::{RunSettings, Runner, RunnerSettings};
use crate::approval::Scripted;
use crate::message::{ToolCall, ToolStatus};
use crate::provider::Provider;
use crate::provider::scripted::ScriptedProvider;
use crate::registry::{LoadReport, ToolRegistry};
use crate::tool::{CallContext, Conversation, ErrorCode, Tools};

/// A scenario that says nothing else ends after this long.
const MAX_WALL_MS: u64 = 60_000;
/// How often a plugin that takes too long is loaded.
const LOAD_ATTEMPTS: u32 = 4;

/// How an attempt came out.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// What is not as it should be.
    pub problems: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// Makes one attempt at a scenario.
///
/// # Errors
///
/// Fails when the attempt could not be made, such as for a plugin that is not there; that says nothing about the agent.
pub async fn run_attempt(
    host: &EvalHost,
    path: &Path,
    scenario: &Scenario,
    text: &str,
    cancel: &CancellationToken,
) -> anyhow::Result<Attempt> {
    let began = Instant::now();
    let world = World::make(host, path, scenario, text).await?;
    let observed = observe(host, &world, cancel).await?;
    Ok(Attempt { problems: judge(&world.scenario, &observed), took: began.elapsed() })
}

async fn observe(host: &EvalHost, world: &World, cancel: &CancellationToken) -> anyhow::Result<Observed> {
    let scenario = &world.scenario;
    let mut observed = Observed::default();
    let (registry, report) = match open_tools(host, world, cancel).await {
        Ok(opened) => opened,
        Err(NoTools::Failed(error)) => return Err(error),
        Err(NoTools::Refused(message)) => {
            observed.refused_start = Some(message);
            return Ok(observed);
        }
    };
    let LoadReport { failures, .. } = report;
    observed.not_loaded = failures.into_iter().map(|failed| (failed.id, failed.failure.code.to_string())).collect();
    observed.offered = registry.specs().iter().map(|spec| spec.name.clone()).collect();
    observed.setup_failures = set_up(&registry, &scenario.setup, cancel).await;
    let earlier = world.server.seen().len();

    let script = match &scenario.model {
        Model::Real => None,
        Model::Script(_) => Some(Arc::new(ScriptedProvider::new(scenario.script().map_err(anyhow::Error::msg)?))),
    };
    let provider: Arc<dyn Provider> = match (&script, &host.model) {
        (Some(script), _) => script.clone(),
        (None, Some(model)) => model.clone(),
        (None, None) => anyhow::bail!("it wants a real model, and none is configured"),
    };
    let provider = Arc::new(Overheard::new(provider));
    let approver = Arc::new(Scripted::new(scenario.approvals.iter().copied()));
    let events = Arc::new(Events::default());
    let runner = Runner::new(provider.clone(), registry)
        .with_approver(approver.clone())
        .with_observer(events.clone())
        .with_settings(settings(scenario));
    let mut run = runner.start(scenario.task.as_str()).context("the run cannot be started")?;
    observed.result = Some(runner.resume(&mut run, cancel).await);

    observed.events = events.all();
    observed.calls = calls(&run, &observed.events);
    observed.requests = provider.requests();
    observed.http = world.server.seen().split_off(earlier);
    observed.questions = approver.asked().len();
    (observed.files, observed.changed_files) = world.changed_files()?;
    observed.unused_turns = script.map_or(0, |script| script.remaining());
    Ok(observed)
}

/// Loads the plugins; again, where one took too long: that says that the machine is busy, and nothing about the agent.
async fn open_tools(
    host: &EvalHost,
    world: &World,
    cancel: &CancellationToken,
) -> Result<(Arc<ToolRegistry>, LoadReport), NoTools> {
    let mut opened = world.open_tools(host).await?;
    for _ in 1..LOAD_ATTEMPTS {
        let slow = opened.1.failures.iter().any(|failed| failed.failure.code == ErrorCode::LIMIT_TIME);
        if !slow || cancel.is_cancelled() {
            break;
        }
        opened = world.open_tools(host).await?;
    }
    Ok(opened)
}

fn settings(scenario: &Scenario) -> RunnerSettings {
    let mut run = RunSettings { budget: scenario.budget, ..RunSettings::default() };
    run.budget.max_wall_ms = Some(run.budget.max_wall_ms.unwrap_or(MAX_WALL_MS).min(MAX_WALL_MS));
    if let Some(max_bytes) = scenario.max_result_bytes {
        run.display.default.max_bytes = max_bytes;
        run.display.default.tail_bytes = max_bytes / 4;
    }
    RunnerSettings { run, ..RunnerSettings::default() }
}

/// Makes the calls of `setup`; returns what went wrong.
async fn set_up(registry: &ToolRegistry, setup: &[Setup], cancel: &CancellationToken) -> Vec<String> {
    const RUN: &str = "setup";
    let mut failures = Vec::new();
    for (index, Setup { tool, arguments }) in setup.iter().enumerate() {
        let id = format!("{RUN}-{index}");
        let call = ToolCall { id: id.clone(), provider_id: None, name: tool.clone(), arguments: arguments.to_string() };
        let context = CallContext {
            run_id: RUN.to_owned(),
            idempotency_key: id,
            attempt: 1,
            conversation: Conversation::default(),
            approval: None,
            cancel: cancel.child_token(),
            progress: None,
            log: None,
        };
        let outcome = registry.call(&call, context).await;
        if outcome.status != ToolStatus::Ok {
            failures.push(format!("setup: `{tool}` did not run: {}", outcome.model_text()));
        }
    }
    registry.end_run(RUN);
    failures
}
