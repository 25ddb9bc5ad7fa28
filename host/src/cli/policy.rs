//! `policy check | explain | test | suggest | diff | import`.

mod diff;
mod import;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::call::read_arguments;
use super::output::{self, CliError};
use super::{Common, host, paths, starter};
use crate::policy::{Policy, Verdict, explain as explain_call, run_cases};
use crate::registry::LoadSelection;
use crate::registry::PluginEntry;
use crate::tool::ErrorCode;

/// The largest file of test cases.
const MAX_CASES_BYTES: u64 = 64 * 1024 * 1024;

/// What to do with a policy.
#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// Parse the policy, and say what looks unsafe
    Check,
    /// Say how a call would be decided, and which line decides
    Explain {
        /// The tool, as `plugin/tool`
        #[arg(value_name = "PLUGIN/TOOL")]
        tool: String,
        /// The arguments: JSON, `@FILE`, or `-` for stdin
        #[arg(long, value_name = "JSON", default_value = "{}", allow_hyphen_values = true)]
        args: String,
    },
    /// Run test cases: lines of `{"call":"plugin/tool","args":{…},"expect":"allow|ask|deny"}`
    Test {
        /// The file of cases (JSON lines)
        #[arg(value_name = "FILE.jsonl")]
        file: PathBuf,
    },
    /// Write a starter policy from what plugins ask for
    Suggest {
        /// The plugins' ids; all of them if none is named
        #[arg(value_name = "PLUGIN")]
        ids: Vec<String>,
    },
    /// Say what a new version of a plugin asks for beyond the old one (exit code 1 if anything), and beyond the policy
    #[command(after_help = DIFF_EXAMPLES)]
    Diff {
        /// The old version: a plugin's id, or a component
        old: String,
        /// The new version, a component
        #[arg(value_name = "NEW.wasm")]
        new: PathBuf,
    },
    /// Turn a Wassette policy (YAML) into one of ours on stdout; what cannot be carried over becomes a comment
    Import {
        /// The policy
        #[arg(value_name = "FILE.yaml")]
        file: PathBuf,
        /// The plugin's id [default: the file's name]
        #[arg(long, value_name = "ID")]
        id: Option<String>,
    },
}

const DIFF_EXAMPLES: &str = "\
Examples:
  honeycomb-host --plugins target/plugins --policy examples/policy.toml policy diff weather new/weather.wasm
  honeycomb-host policy diff old.wasm new.wasm --json";

pub(super) async fn policy(common: &Common, command: PolicyCommand) -> Result<ExitCode, CliError> {
    match command {
        PolicyCommand::Check => check(common),
        PolicyCommand::Explain { tool, args } => explain(common, &tool, &args),
        PolicyCommand::Test { file } => test(common, &file),
        PolicyCommand::Suggest { ids } => suggest_all(common, &ids).await,
        PolicyCommand::Diff { old, new } => diff::diff(common, &old, &new).await,
        PolicyCommand::Import { file, id } => import::import(common, &file, id.as_deref()),
    }
}

fn given_policy(common: &Common) -> Result<std::sync::Arc<Policy>, CliError> {
    if common.policy.is_empty() {
        return Err(CliError::usage("no policy was given").hint("add `--policy FILE`"));
    }
    host::load_policy(&common.policy)
}

fn check(common: &Common) -> Result<ExitCode, CliError> {
    let policy = given_policy(common)?;
    let warnings = policy.warnings();
    if common.json {
        let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        let plugins: Vec<&str> = policy.plugins().map(|plugin| plugin.id.as_str()).collect();
        output::print_json(&json!({"status": "ok", "digest": policy.digest(), "plugins": plugins, "warnings": warnings}));
        return Ok(ExitCode::SUCCESS);
    }
    for warning in warnings {
        output::note(&format!("warning: {warning}"));
    }
    let plugins = policy.plugins().count();
    output::print(&format!("the policy is valid: {plugins} plugins, {} warnings\n", warnings.len()));
    Ok(ExitCode::SUCCESS)
}

fn explain(common: &Common, tool: &str, args: &str) -> Result<ExitCode, CliError> {
    let arguments = crate::json::parse_object(&read_arguments(args)?).map_err(CliError::usage)?;
    let policy = host::load_policy(&common.policy)?;
    let explanation = explain_call(&policy, tool, &arguments)
        .map_err(|message| CliError::usage(message).hint("such as `calculator/calculate`"))?;
    if common.json {
        output::print_json(&explanation);
    } else {
        output::print(&format!("{}: {}\n", explanation.decision.as_str(), explanation.reason));
        if let Some(rule) = &explanation.rule {
            output::print(&format!("rule: {rule}\n"));
        }
        for limit in &explanation.limits {
            output::print(&format!("limit: {limit}\n"));
        }
        if let Some(hint) = &explanation.hint {
            output::print(&format!("hint: {hint}\n"));
        }
    }
    Ok(if explanation.decision == Verdict::Deny { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn test(common: &Common, file: &std::path::Path) -> Result<ExitCode, CliError> {
    let policy = given_policy(common)?;
    let cases = paths::read_text(file, MAX_CASES_BYTES).map_err(CliError::config)?;
    let report = run_cases(&policy, &cases);
    // A file that lost its cases must not look like one that passed.
    if report.passed + report.failed == 0 {
        return Err(CliError::usage(format!("`{}` holds no test case", file.display()))
            .hint("write one a line: `{\"call\":\"plugin/tool\",\"args\":{},\"expect\":\"deny\"}`"));
    }
    if common.json {
        output::print_json(&report);
    } else {
        for failure in &report.failures {
            let expected = failure.expected.map_or("-", Verdict::as_str);
            let got = failure.got.map_or("-", Verdict::as_str);
            let rule = failure.rule.as_deref().map(|rule| format!(" ({rule})")).unwrap_or_default();
            output::print(&format!(
                "{}:{}: {}: expected {expected}, got {got}{rule}: {}\n",
                file.display(),
                failure.line,
                failure.call,
                failure.reason
            ));
        }
        output::print(&format!("{} passed, {} failed\n", report.passed, report.failed));
    }
    Ok(if report.failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

async fn suggest_all(common: &Common, wanted: &[String]) -> Result<ExitCode, CliError> {
    let selection = match wanted {
        [one] => LoadSelection::One(one),
        _ => LoadSelection::All,
    };
    // Not under `--policy`: a starter is for what is not granted yet.
    let (registry, report) = host::open_registry(common, std::sync::Arc::new(Policy::empty()), selection).await?;
    for id in wanted {
        if !registry.plugins().any(|entry| &entry.id == id) {
            let failed = report.failures.iter().find(|failed| &failed.id == id);
            return Err(match failed {
                Some(failed) => failed.failure.clone().into(),
                None => CliError::usage(format!("there is no plugin `{id}` in `{}`", common.plugins.display()))
                    .code(ErrorCode::TOOL_UNKNOWN)
                    .hint("`honeycomb-host tools` lists what is there"),
            });
        }
    }
    let chosen: Vec<&PluginEntry> = registry.plugins().filter(|entry| wanted.is_empty() || wanted.contains(&entry.id)).collect();
    let text = starter::of_plugins(&chosen);
    if common.json {
        output::print_json(&json!({"policy": text}));
    } else {
        output::print(&text);
    }
    Ok(ExitCode::SUCCESS)
}
