//! `replay FILE`: a recorded run again, without model or tools; or its tool calls again, with the tools of today.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::approve::{self, TerminalApprover};
use super::output::{self, CliError};
use super::view::{JsonView, LiveView};
use super::{Common, host, signals};
use crate::agent::Observer;
use crate::approval::{Approver, DenyAll};
use crate::recording::{CallComparison, Origin, Recording, Verdict, compare_live, replay as replay_recording};
use crate::registry::LoadSelection;

const EXAMPLES: &str = "\
Examples:
  honeycomb-host run --record run.jsonl \"what is 123 + 456?\"
  honeycomb-host replay run.jsonl
  honeycomb-host replay run.jsonl --live-tools --plugins target/plugins --policy examples/policy.toml

Exit codes: 0 all is as recorded, 1 something differs or the recording ends early, 2 the file is not a usable recording.";

/// `replay FILE`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReplayArgs {
    /// The recording
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Make the recorded tool calls again, with their effects, under the policy of today; say what differs
    #[arg(long)]
    live_tools: bool,
}

pub(super) async fn replay(common: &Common, args: &ReplayArgs) -> Result<ExitCode, CliError> {
    let recording = Recording::open(&args.file)
        .map_err(|error| CliError::config(anyhow::Error::new(error).context(format!("`{}`", args.file.display()))))?;
    if args.live_tools {
        return live(common, &recording).await;
    }
    let observer: Arc<dyn Observer> = if common.json { Arc::new(JsonView) } else { Arc::new(LiveView::new()) };
    let replayed = replay_recording(&recording, Some(observer)).await;
    match &replayed.verdict {
        Verdict::Identical => {
            output::note(&format!("identical: {} events", replayed.events));
            Ok(ExitCode::SUCCESS)
        }
        Verdict::EndsEarly { line } => Err(CliError::failed(anyhow::Error::msg(format!(
            "the recording ends at line {line}, before the run does; its {} events are as recorded",
            replayed.events
        )))
        .hint("the recorder was stopped, or reached its limit")),
        Verdict::Diverged(divergence) => Err(CliError::failed(anyhow::Error::msg(format!(
            "line {} of the recording: {} differs: recorded {}, replayed {}",
            divergence.line, divergence.what, divergence.recorded, divergence.replayed
        )))
        .hint(format!("recorded by version {}, this is {}", recording.host_version(), env!("CARGO_PKG_VERSION")))),
    }
}

async fn live(common: &Common, recording: &Recording) -> Result<ExitCode, CliError> {
    let cancel = CancellationToken::new();
    signals::cancel_on_signal(cancel.clone());
    let policy = host::load_policy(&common.policy)?;
    let (registry, _) = host::open_registry(common, policy, LoadSelection::Granted).await?;
    let changes = changes(recording.origin(), &host::origin(&registry));
    for change in &changes {
        output::note(&format!("changed: {change}"));
    }
    let approver: Box<dyn Approver> = if approve::can_ask() { Box::new(TerminalApprover::default()) } else { Box::new(DenyAll) };
    let json = common.json;
    let mut tell = |call: &CallComparison| print(call, json);
    let report = compare_live(recording, &registry, approver.as_ref(), &cancel, &mut tell).await;
    if json {
        output::print_json(&json!({"calls": report.calls, "different": report.different, "changed": changes}));
    } else {
        output::print(&format!("{} calls, {} different\n", report.calls, report.different));
    }
    Ok(match (report.stopped, report.different) {
        (true, _) => ExitCode::from(130),
        (false, 0) => ExitCode::SUCCESS,
        (false, _) => ExitCode::from(1),
    })
}

/// What is not the policy and the plugins that the run was recorded with.
fn changes(recorded: &Origin, now: &Origin) -> Vec<String> {
    let mut changes = Vec::new();
    if recorded.policy != now.policy {
        changes.push("the policy is another one".to_owned());
    }
    for plugin in &recorded.plugins {
        match now.plugins.iter().find(|other| other.id == plugin.id) {
            None => changes.push(format!("plugin `{}` is not loaded", plugin.id)),
            Some(other) if other.sha256 != plugin.sha256 => changes.push(format!("plugin `{}` is another file", plugin.id)),
            Some(_) => {}
        }
    }
    let new = now.plugins.iter().filter(|plugin| !recorded.plugins.iter().any(|other| other.id == plugin.id));
    changes.extend(new.map(|plugin| format!("plugin `{}` was not there", plugin.id)));
    changes
}

fn print(call: &CallComparison, json: bool) {
    if json {
        output::print_json(call);
        return;
    }
    let ran = if call.ran { "" } else { " (only checked)" };
    let verdict = if call.differences.is_empty() { "same" } else { "different" };
    output::print(&format!("line {}: {} {}: {verdict}{ran}\n", call.line, call.tool, call.call_id));
    for difference in &call.differences {
        output::print(&format!("  {}: recorded {}, now {}\n", difference.what, difference.recorded, difference.now));
    }
}
