//! Printing, errors and exit codes.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use serde_json::json;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::tool::{ErrorCode, Failure};

/// Why a command failed, and so how the process ends.
#[derive(Debug)]
pub(super) struct CliError {
    exit: u8,
    code: Option<ErrorCode>,
    error: anyhow::Error,
    hint: Option<String>,
}

impl CliError {
    /// The task or tool failed: exit code 1.
    pub(super) fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: 1, code: None, error: error.into(), hint: None }
    }

    /// Usage, config or policy is wrong: exit code 2.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::config(anyhow::Error::msg(message.into()))
    }

    /// Usage, config or policy is wrong: exit code 2.
    pub(super) fn config(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: 2, code: None, error: error.into(), hint: None }
    }

    /// The person stopped it: exit code 130.
    pub(super) fn interrupted() -> Self {
        Self { exit: 130, code: Some(ErrorCode::CALL_CANCELLED), error: anyhow::Error::msg("interrupted"), hint: None }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds another way out to the hint.
    pub(super) fn hint_also(mut self, hint: &str) -> Self {
        self.hint = Some(self.hint.map_or_else(|| hint.to_owned(), |first| format!("{first}\n{hint}")));
        self
    }

    pub(super) fn code(mut self, code: ErrorCode) -> Self {
        self.code = Some(code);
        self
    }
}

impl std::fmt::Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

impl From<Failure> for CliError {
    fn from(failure: Failure) -> Self {
        Self { exit: 1, code: Some(failure.code), error: anyhow::Error::msg(failure.message), hint: failure.hint }
    }
}

/// Writes text to stdout. A reader that went away is not an error: `honeycomb-host tools | head` is fine.
pub(super) fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
        && error.kind() != io::ErrorKind::BrokenPipe
        && !LOST.swap(true, Ordering::Relaxed)
    {
        note(&format!("error: cannot write to stdout: {error}"));
    }
}

/// Output was lost: the disk is full, say.
static LOST: AtomicBool = AtomicBool::new(false);

/// The exit code of a command that ended well, unless nobody can know what it said.
pub(super) fn exit_code(code: ExitCode) -> ExitCode {
    if code == ExitCode::SUCCESS && LOST.load(Ordering::Relaxed) { ExitCode::FAILURE } else { code }
}

/// Writes one JSON document and a newline to stdout.
pub(super) fn print_json(document: &impl Serialize) {
    match serde_json::to_string(document) {
        Ok(text) => print(&(text + "\n")),
        Err(error) => note(&format!("error: cannot write JSON: {error}")),
    }
}

/// Writes a line to stderr.
pub(super) fn note(line: &str) {
    let mut stderr = io::stderr().lock();
    let _ = writeln!(stderr, "{line}");
}

/// Writes text to stderr, without a newline.
pub(super) fn note_text(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Prints an error and returns the exit code.
pub(super) fn report(error: &CliError, json: bool) -> ExitCode {
    let message = error.to_string();
    // An error of a module below may bring its own `hint:` line.
    let (message, hint) = match (message.split_once("\nhint: "), &error.hint) {
        (Some((what, hint)), None) => (what.to_owned(), Some(hint.to_owned())),
        _ => (message.clone(), error.hint.clone()),
    };
    if json {
        let code =
            error.code.clone().unwrap_or(if error.exit == 2 { ErrorCode::USAGE_INVALID } else { ErrorCode::HOST_INTERNAL });
        print_json(&json!({"status": "error", "error": {"code": code, "message": message, "hint": hint}}));
    } else {
        note(&format!("error: {message}"));
        if let Some(hint) = hint {
            note(&format!("hint: {}", hint.replace('\n', "\n      ")));
        }
    }
    ExitCode::from(error.exit)
}

/// Prints what clap found, with clap's own exit code: 0 for help, 2 for wrong usage.
pub(super) fn clap_error(error: &clap::Error, json: bool) -> ExitCode {
    if error.use_stderr() && json {
        let text = error.render().to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        return report(&CliError::usage(message).hint("`--help` says what there is"), json);
    }
    if error.print().is_err() {
        tracing::debug!("cannot print usage");
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Sends the host's log to stderr.
pub(super) fn init_logging(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // Below warn, these print request headers and bodies, secrets included.
    // The MCP library warns of every request that it answers with an error.
    let targets = Targets::new()
        .with_default(LevelFilter::WARN)
        .with_target("rmcp", LevelFilter::ERROR)
        .with_target("honeycomb_host", level)
        .with_target("plugin", level);
    let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr).without_time().with_target(false).with_ansi(false);
    tracing_subscriber::registry().with(targets).with(layer).init();
}

/// The Levenshtein distance of two short ASCII words.
pub(super) fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
        for (j, y) in b.bytes().enumerate() {
            let above = row.get(j + 1).copied().unwrap_or(usize::MAX - 1);
            let left = row.get(j).copied().unwrap_or(usize::MAX - 1);
            let cost = (diagonal + usize::from(x != y)).min(above + 1).min(left + 1);
            diagonal = above;
            if let Some(cell) = row.get_mut(j + 1) {
                *cell = cost;
            }
        }
    }
    row.last().copied().unwrap_or(0)
}

/// Formats a number of bytes.
pub(super) fn bytes(count: u64) -> String {
    const KIB: u64 = 1024;
    const MIB: u64 = 1024 * KIB;
    if count >= MIB {
        format!("{:.1} MiB", count as f64 / MIB as f64)
    } else if count >= KIB {
        format!("{:.1} KiB", count as f64 / KIB as f64)
    } else {
        format!("{count} B")
    }
}

/// Formats a number with `_` between groups of three digits.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push('_');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_for_people() {
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(10), "10 B");
        assert_eq!(count(1_000_000), "1_000_000");
        assert_eq!(count(12), "12");
        assert_eq!(edit_distance("tolls", "tools"), 1);
        assert_eq!(edit_distance("", "run"), 3);
        assert_eq!(edit_distance("policy", "policy"), 0);
    }
}
