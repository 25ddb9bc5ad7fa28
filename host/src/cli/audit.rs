//! `audit verify | show`, and which audit file the other commands write.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::model::load_config;
use super::output::{self, CliError};
use super::{Common, paths};
use crate::audit::{self, Audit, Dialled, Kind, Line, Record};
use crate::file;
use crate::message::ToolStatus;
use crate::policy::Verdict;
use crate::text;
use crate::time;

/// What `--audit` takes for no file at all.
const NONE: &str = "none";
/// The longest piece of a line that is shown, in bytes.
const MAX_SHOWN: usize = 300;

/// What to do with an audit file.
#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// Follow the chain, and name the line where it breaks
    ///
    /// A chain cannot show that its end was cut off. Note the last hash that this prints, and give it with --expect-last next time.
    #[command(
        after_help = "Examples:\n  honeycomb-host audit verify\n  honeycomb-host audit verify audit.jsonl --expect-last 3f0c…"
    )]
    Verify {
        /// The file; that of --audit, or the default, if none is named
        file: Option<PathBuf>,
        /// A hash that was noted earlier: it must still be that of some record
        #[arg(long, value_name = "HASH")]
        expect_last: Option<String>,
    },
    /// Show records
    #[command(
        after_help = "Examples:\n  honeycomb-host audit show --limit 20\n  honeycomb-host audit show --plugin weather --verdict deny --since 2h --json"
    )]
    Show(ShowArgs),
}

/// Which records to show. All that is given must be so.
#[derive(Args, Debug)]
pub(super) struct ShowArgs {
    /// The file; that of --audit, or the default, if none is named
    file: Option<PathBuf>,
    /// Of this run
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// Of this plugin
    #[arg(long, value_name = "ID")]
    plugin: Option<String>,
    /// Of this tool, as the plugin names it
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// With this verdict of the policy: allow, ask or deny
    #[arg(long, value_name = "VERDICT", value_parser = verdict)]
    verdict: Option<Verdict>,
    /// With this error code, such as `limit.fuel`, of the call or of a denial inside it
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// Since then: `90s`, `15m`, `2h`, `7d`, or the beginning of a UTC time such as `2026-11-30T20:10`
    #[arg(long, value_name = "WHEN", value_parser = since)]
    since: Option<String>,
    /// The last N of them
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// The audit file that calls are written to.
pub(super) struct AuditChoice {
    pub(super) path: PathBuf,
    sync: bool,
    /// Nobody named it.
    default: bool,
}

/// Which file the command line, the configuration or the default says. None: nothing is to be written.
pub(super) fn file(common: &Common) -> Result<Option<AuditChoice>, CliError> {
    let config = load_config(common)?.audit;
    let sync = common.audit_sync || config.sync;
    let named = common.audit.clone().or(config.file);
    let default = named.is_none();
    let path = match named {
        Some(path) if path.as_os_str() == NONE => None,
        Some(path) => Some(path),
        None => paths::state_dir(common.state_dir.as_deref()).map(|directory| directory.join("audit.jsonl")),
    };
    Ok(path.map(|path| AuditChoice { path, sync, default }))
}

/// Opens the audit file for writing.
pub(super) fn open(common: &Common) -> Result<Option<Audit>, CliError> {
    let Some(choice) = file(common)? else {
        if common.audit.is_none() {
            output::note(
                "warning: no audit is written: neither `$HOME` nor an XDG directory says where; name a file with `--audit`",
            );
        }
        return Ok(None);
    };
    if choice.default
        && let Some(directory) = choice.path.parent()
    {
        // A directory that cannot be made is an error of opening the file.
        let _ = file::create_private_dir(directory);
    }
    let audit = Audit::open(&choice.path, choice.sync).map_err(|error| {
        let hint = error.hint();
        CliError::config(anyhow::Error::new(error)).hint(hint)
    })?;
    Ok(Some(audit))
}

pub(super) fn audit(common: &Common, command: &AuditCommand) -> Result<ExitCode, CliError> {
    match command {
        AuditCommand::Verify { file, expect_last } => verify(common, file.as_deref(), expect_last.as_deref()),
        AuditCommand::Show(args) => show(common, args),
    }
}

fn given(common: &Common, file_given: Option<&Path>) -> Result<PathBuf, CliError> {
    match file_given {
        Some(path) => Ok(path.to_owned()),
        None => Ok(file(common)?.ok_or_else(|| CliError::usage("no audit file was named"))?.path),
    }
}

fn unreadable(path: &Path, error: std::io::Error) -> CliError {
    CliError::config(anyhow::Error::new(error).context(format!("cannot read the audit file `{}`", path.display())))
        .hint("name one: `honeycomb-host audit verify FILE`")
}

fn verify(common: &Common, file: Option<&Path>, expect_last: Option<&str>) -> Result<ExitCode, CliError> {
    let path = given(common, file)?;
    let mut seen = expect_last.is_none();
    let outcome =
        audit::verify(&path, &mut |hash| seen |= expect_last == Some(hash)).map_err(|error| unreadable(&path, error))?;
    let problem = match &outcome {
        Err(fault) => Some((Some(fault.line), fault.problem.clone())),
        Ok(_) if !seen => {
            Some((None, "no record has the expected hash: records were cut off, or this is another file".to_owned()))
        }
        Ok(_) => None,
    };
    if common.json {
        output::print_json(&match (&problem, &outcome) {
            (Some((line, problem)), _) => json!({"status": "broken", "line": line, "problem": problem}),
            (None, Ok(report)) => json!({"status": "ok", "report": report}),
            (None, Err(fault)) => json!({"status": "broken", "line": fault.line, "problem": fault.problem}),
        });
    } else if let Some((line, problem)) = &problem {
        let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        output::print(&format!("broken: {line}{problem}\n"));
    } else if let Ok(report) = &outcome {
        output::print(&format!("ok: {} records; last hash {}\n", report.records, report.last_hash));
        for line in &report.recovered {
            output::print(&format!("line {line}: a torn record was closed here\n"));
        }
    }
    Ok(if problem.is_none() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn show(common: &Common, args: &ShowArgs) -> Result<ExitCode, CliError> {
    let path = given(common, args.file.as_deref())?;
    let mut kept = std::collections::VecDeque::new();
    let mut take = |line: Line| {
        if !args.matches(&line) {
            return;
        }
        match args.limit {
            None => print(&line, common.json),
            Some(limit) => {
                kept.push_back(line);
                if kept.len() > limit {
                    kept.pop_front();
                }
            }
        }
    };
    let unreadable_lines = audit::read(&path, &mut take).map_err(|error| unreadable(&path, error))?;
    kept.iter().for_each(|line| print(line, common.json));
    if unreadable_lines > 0 {
        output::note(&format!("warning: {unreadable_lines} lines are not whole; `audit verify` says which is the first"));
    }
    Ok(ExitCode::SUCCESS)
}

impl ShowArgs {
    fn matches(&self, line: &Line) -> bool {
        let record = &line.record;
        let is = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        let code = |code: &String| {
            let failures = record.error.iter().chain(&record.denials);
            failures.map(|failure| failure.code.as_str()).any(|found| found == code)
        };
        is(&self.run, &record.run)
            && is(&self.plugin, &record.plugin)
            && is(&self.tool, &record.tool)
            && (self.verdict.is_none() || self.verdict == record.verdict)
            && self.code.as_ref().is_none_or(code)
            && self.since.as_ref().is_none_or(|since| line.time.as_str() >= since.as_str())
    }
}

fn print(line: &Line, json: bool) {
    if json {
        let text: Value = serde_json::from_str(&line.text).unwrap_or(Value::Null);
        output::print_json(&text);
    } else {
        output::print(&(text::clean_line(&readable(line), usize::MAX) + "\n"));
    }
}

/// A record on one line, for people.
fn readable(line: &Line) -> String {
    let record = &line.record;
    let mut words = vec![line.time.clone(), format!("{:<15}", record.kind.as_str())];
    if let Some(tool) = &record.tool {
        words.push(format!("{}/{tool}", record.plugin.as_deref().unwrap_or("?")));
    }
    if let Some(arguments) = record.arguments.as_ref().filter(|_| record.kind != Kind::Finished) {
        words.push(text::clean_line(&arguments.to_string(), MAX_SHOWN));
    }
    if let Some(verdict) = record.verdict {
        words.push(verdict.as_str().to_owned());
    }
    if let Some(rule) = &record.rule {
        words.push(format!("by {rule}"));
    }
    if let Some(approval) = record.approval {
        words.push(format!("answer {}", json!(approval).as_str().unwrap_or_default()));
    }
    words.extend(ending(record));
    words.extend(record.dialled.iter().map(|Dialled { host, address }| format!("dialled {host} at {address}")));
    words.extend(record.denials.iter().map(|denial| format!("denied {}", denial.code)));
    if let Some(policy) = record.policy.as_ref().filter(|_| record.kind == Kind::Reloaded) {
        words.push(format!("policy {policy}"));
    }
    if let Some(bytes) = record.torn_bytes {
        words.push(format!("{bytes} torn bytes"));
    }
    words.join("  ")
}

fn ending(record: &Record) -> Option<String> {
    let status = record.status?;
    let mut text = match &record.error {
        Some(error) => format!("{}: {}", error.code, text::clean_line(&error.message, MAX_SHOWN)),
        None => json!(status).as_str().unwrap_or_default().to_owned(),
    };
    if status == ToolStatus::Interrupted {
        text.push_str(" (interrupted)");
    }
    if let Some(usage) = &record.usage {
        let (fuel, memory) = (output::count(usage.fuel), output::bytes(usage.memory_bytes));
        text.push_str(&format!(
            "  {fuel} fuel, {memory}, {} us, {} HTTP requests",
            output::count(usage.wall_us),
            usage.http_requests
        ));
    }
    Some(text)
}

fn verdict(text: &str) -> Result<Verdict, String> {
    [Verdict::Allow, Verdict::Ask, Verdict::Deny]
        .into_iter()
        .find(|verdict| verdict.as_str() == text)
        .ok_or_else(|| "a verdict is `allow`, `ask` or `deny`".to_owned())
}

/// The text that the times of wanted records are not less than.
fn since(text: &str) -> Result<String, String> {
    let seconds_of = |unit: char| match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3_600),
        'd' => Some(86_400),
        _ => None,
    };
    if let Some((index, unit)) = text.char_indices().next_back()
        && let (Some(seconds), Ok(number)) = (seconds_of(unit), text[..index].parse::<u64>())
    {
        let ago = number.saturating_mul(seconds).saturating_mul(1_000);
        return Ok(time::timestamp(time::now_ms().saturating_sub(ago)));
    }
    let form = "0000-00-00T00:00:00.000Z";
    let fits = text.len() >= 4
        && text.len() <= form.len()
        && text.bytes().zip(form.bytes()).all(|(byte, form)| if form == b'0' { byte.is_ascii_digit() } else { byte == form });
    if fits { Ok(text.to_owned()) } else { Err("write `15m`, `2h`, `7d`, or a UTC time such as `2026-11-30T20:10`".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_time_in_any_precision() {
        for text in ["2026", "2026-11", "2026-11-30", "2026-11-30T20:10", "2026-11-30T20:10:29.123Z"] {
            assert_eq!(since(text).as_deref(), Ok(text));
        }
        assert!(since("2h").expect("two hours").as_str() > "2020");
        for text in ["", "yesterday", "2026/11/30", "2026-11-30 20:10", "h", "-1h", "2026-11-30T20:10:29.123Z0"] {
            assert!(since(text).is_err(), "{text}");
        }
    }
}
