//! `call PLUGIN/TOOL`: one call, without a model.

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::approve::{self, TerminalApprover};
use super::grants::GrantsFile;
use super::output::{self, CliError};
use super::{Common, host, paths, signals, starter};
use crate::approval::Approver as _;
use crate::message::{ToolCall, ToolStatus};
use crate::registry::{LoadSelection, PluginEntry, ToolRegistry};
use crate::tool::{CallContext, Check, Conversation, ErrorCode, Failure, ToolOutcome, Tools as _};

/// The largest `--args` that is read.
const MAX_ARGUMENT_BYTES: u64 = 16 * 1024 * 1024;

/// `call PLUGIN/TOOL --args JSON`.
#[derive(Args, Debug)]
pub(super) struct CallArgs {
    /// The tool, as `plugin/tool`
    #[arg(value_name = "PLUGIN/TOOL")]
    tool: String,
    /// The arguments: JSON, `@FILE`, or `-` for stdin
    #[arg(long, value_name = "JSON", default_value = "{}", allow_hyphen_values = true)]
    args: String,
}

pub(super) async fn call(common: &Common, args: &CallArgs) -> Result<ExitCode, CliError> {
    let (plugin, tool) = split_tool(&args.tool)?;
    let arguments = read_arguments(&args.args)?;
    let policy = host::load_policy(&common.policy)?;
    let cancel = CancellationToken::new();
    signals::cancel_on_signal(cancel.clone());
    let (registry, report) = host::open_audited_registry(common, policy, LoadSelection::One(plugin)).await?;
    let Some(entry) = registry.plugins().find(|entry| entry.id == plugin) else {
        return Err(match report.failures.into_iter().find(|failed| failed.id == plugin) {
            Some(failed) => failed.failure.into(),
            None => CliError::from(
                Failure::new(ErrorCode::TOOL_UNKNOWN, format!("there is no plugin `{plugin}` in `{}`", common.plugins.display()))
                    .hint("`honeycomb-host tools` lists what is there"),
            ),
        });
    };
    let Some(name) = registry.model_name(plugin, tool).map(str::to_owned) else {
        let names: Vec<&str> = entry.tools.iter().map(|tool| tool.name.as_str()).collect();
        return Err(Failure::new(ErrorCode::TOOL_UNKNOWN, format!("plugin `{plugin}` has no tool `{tool}`"))
            .hint(format!("its tools are {}", names.join(", ")))
            .into());
    };
    let call = ToolCall { id: Uuid::now_v7().to_string(), provider_id: None, name, arguments };
    let approver = TerminalApprover::with_grants(GrantsFile::open(common, registry.standing()));
    let mut outcome = run(&registry, &call, &approver, cancel).await;
    if common.policy.is_empty() {
        show_starter(&mut outcome, entry, tool);
    }
    print(&outcome, common.json);
    Ok(match (outcome.status, outcome.error.as_ref().map(|error| &error.code)) {
        (ToolStatus::Ok, _) => ExitCode::SUCCESS,
        (_, Some(code)) if *code == ErrorCode::CALL_CANCELLED => ExitCode::from(130),
        _ => ExitCode::from(1),
    })
}

async fn run(registry: &ToolRegistry, call: &ToolCall, approver: &TerminalApprover, cancel: CancellationToken) -> ToolOutcome {
    let run_id = Uuid::now_v7().to_string();
    let approval = match registry.check(&run_id, call) {
        Check::Refused(outcome) => return *outcome,
        Check::Ready => None,
        Check::Ask(_) if !approve::can_ask() => None,
        Check::Ask(question) => cancel.run_until_cancelled(approver.ask(&question)).await,
    };
    let context = CallContext {
        run_id,
        idempotency_key: call.id.clone(),
        attempt: 1,
        conversation: Conversation::default(),
        approval,
        cancel,
        progress: None,
    };
    registry.call(call, context).await
}

/// Without a policy there is no rule to point at: show the whole starter that would allow this tool.
fn show_starter(outcome: &mut ToolOutcome, entry: &PluginEntry, tool: &str) {
    if let Some(error) = outcome.error.as_mut().filter(|error| error.code == ErrorCode::POLICY_DENIED) {
        let tools = entry.tools.iter().filter(|found| found.name == tool);
        let starter = starter::of_tools(&entry.id, entry.sha256(), tools, entry.requests.as_ref());
        error.hint = Some(format!("no --policy was given; these lines in a policy file would allow it:\n\n{starter}"));
    }
}

/// Splits `plugin/tool`.
pub(super) fn split_tool(text: &str) -> Result<(&str, &str), CliError> {
    match text.split_once('/') {
        Some((plugin, tool)) if !plugin.is_empty() && !tool.is_empty() => Ok((plugin, tool)),
        _ => Err(CliError::usage(format!("`{text}` is not `plugin/tool`")).hint("such as `calculator/calculate`")),
    }
}

/// Reads `--args`: JSON, `@FILE`, or `-`.
pub(super) fn read_arguments(text: &str) -> Result<String, CliError> {
    let arguments = if text == "-" {
        let mut read = String::new();
        let count = std::io::stdin().lock().take(MAX_ARGUMENT_BYTES + 1).read_to_string(&mut read);
        match count {
            Ok(count) if count as u64 <= MAX_ARGUMENT_BYTES => read,
            Ok(_) => return Err(CliError::usage(format!("the arguments are larger than {MAX_ARGUMENT_BYTES} bytes"))),
            Err(error) => {
                return Err(CliError::config(anyhow::Error::new(error).context("cannot read the arguments from stdin")));
            }
        }
    } else if let Some(file) = text.strip_prefix('@') {
        paths::read_text(Path::new(file), MAX_ARGUMENT_BYTES).map_err(CliError::config)?
    } else {
        text.to_owned()
    };
    match crate::json::parse_object(&arguments) {
        Ok(_) => Ok(arguments),
        Err(message) => Err(CliError::usage(format!("`--args`: {message}"))
            .code(ErrorCode::ARGS_INVALID)
            .hint("such as `--args '{\"expression\":\"123 + 456\"}'`, `--args @file.json` or `--args -`")),
    }
}

fn print(outcome: &ToolOutcome, json: bool) {
    if json {
        let mut document = match &outcome.error {
            None => json!({"status": "ok", "content": outcome.content, "structured": outcome.structured}),
            Some(error) => {
                let status = if outcome.status == ToolStatus::Denied { "denied" } else { "error" };
                json!({"status": status, "error": error})
            }
        };
        if !outcome.denials.is_empty() {
            document["denials"] = json!(outcome.denials);
        }
        document["usage"] = json!(outcome.usage);
        output::print_json(&document);
        return;
    }
    match &outcome.error {
        None => output::print(&(outcome.model_text() + "\n")),
        Some(error) => {
            output::note(&format!("error {}: {}", error.code, error.message));
            if let Some(hint) = &error.hint {
                output::note(&format!("hint: {hint}"));
            }
        }
    }
    for denial in outcome.denials.iter().filter(|denial| Some(*denial) != outcome.error.as_ref()) {
        output::note(&format!("denied {}: {}", denial.code, denial.message));
    }
    let usage = &outcome.usage;
    output::note(&format!(
        "used {} fuel, {} memory, {} us, {} HTTP requests",
        output::count(usage.fuel),
        output::bytes(usage.memory_bytes),
        output::count(usage.wall_us),
        usage.http_requests
    ));
}
