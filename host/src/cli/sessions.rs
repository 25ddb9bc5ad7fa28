//! `sessions`: what was done, and going on with it.

mod show;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::output::{self, CliError};
use super::run;
use super::session::{failed, open_store, path, tell_end};
use super::{Common, host, signals};
use crate::agent::{Clock as _, Event, EventKind, Run, SystemClock};
use crate::secret::Secrets;
use crate::store::{ListQuery, Store};
use crate::text;

/// Lists, shows, resumes, deletes and exports sessions.
#[derive(Debug, Subcommand)]
pub(super) enum SessionsCommand {
    /// List sessions, the one that was worked on last first
    List(ListArgs),
    /// Show a session: its runs, and the conversation
    Show {
        /// The session's id, or the beginning of it
        id: String,
    },
    /// Go on with a session's last task where it was interrupted
    #[command(after_help = RESUME)]
    Resume {
        /// The session's id, or the beginning of it
        id: String,
    },
    /// Delete sessions, with all that belongs to them
    Delete {
        /// The sessions' ids, or the beginnings of them
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Write a session as JSON lines: runs, messages, calls, approvals, events
    Export {
        /// The session's id, or the beginning of it
        id: String,
        /// The file to write [default: stdout]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Save what can be read of a damaged store into a new one, and keep the damaged file
    Recover,
}

const RESUME: &str = "\
Give the same --plugins, --policy and --model as before. Calls that are finished are not repeated. One that was started, and whose end
is not known, is repeated only if its tool says that this does no harm; else the model is told that its outcome is unknown. What a
person allowed before is asked again. A task that is over already is not done again: its answer is printed.

Example:
  honeycomb-host --plugins target/plugins --policy examples/policy.toml sessions resume 3fa9";

/// Which sessions to list.
#[derive(Args, Debug)]
pub(super) struct ListArgs {
    /// The most sessions, up to 1000
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// List those after this one
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// List the sessions of this session's workers
    #[arg(long, value_name = "ID")]
    workers_of: Option<String>,
}

pub(super) async fn sessions(common: &Common, command: SessionsCommand) -> Result<ExitCode, CliError> {
    match command {
        SessionsCommand::List(arguments) => list(common, arguments),
        SessionsCommand::Show { id } => show::show(&open(common)?, &id, common.json),
        SessionsCommand::Resume { id } => resume(common, &id).await,
        SessionsCommand::Delete { ids } => delete(common, &ids),
        SessionsCommand::Export { id, output } => export(&open(common)?, &id, output.as_deref()),
        SessionsCommand::Recover => recover(common),
    }
}

/// Opens the store to read it: nothing is stored that a secret could be in.
fn open(common: &Common) -> Result<Store, CliError> {
    open_store(common, &Secrets::default())
}

fn list(common: &Common, arguments: ListArgs) -> Result<ExitCode, CliError> {
    let ListArgs { limit, after, workers_of } = arguments;
    let query = ListQuery { limit: usize::from(limit), after, parent: workers_of };
    let page = open(common)?.list(&query).map_err(failed)?;
    if common.json {
        output::print_json(&page);
        return Ok(ExitCode::SUCCESS);
    }
    output::print(&show::table(&page.sessions));
    if page.sessions.is_empty() {
        output::note("there are no sessions");
    }
    if let Some(next) = &page.next {
        output::note(&format!("there are more: `sessions list --after {next}`"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn resume(common: &Common, id: &str) -> Result<ExitCode, CliError> {
    if common.no_session || common.session.is_some() {
        return Err(CliError::usage("`sessions resume` takes neither `--session` nor `--no-session`"));
    }
    let cancel = CancellationToken::new();
    signals::cancel_on_signal(cancel.clone());
    // Before any plugin is compiled: an id that is not there should not cost the wait.
    let policy = host::load_policy(&common.policy)?;
    let store = open_store(common, &host::read_secrets(&policy)?)?;
    let mut opened = super::session::take_up(&store, id)?;
    let Some(mut run) = opened.earlier.take() else {
        return Err(CliError::failed(anyhow::anyhow!("session `{}` has no task to go on with", opened.session.id())));
    };
    if let Some(result) = run.result().filter(|_| run.has_told_its_end()) {
        output::note("this task is over already; its answer is:");
        tell_again(&run, common.json);
        tell_end(&opened.session);
        return Ok(run::exit_code(result.stop_reason));
    }
    let agent = run::open_agent(common, policy, Some(opened), None).await?;
    let runner = &agent.runner;
    if let Some(before) = run.model().filter(|before| *before != runner.model()) {
        output::note(&format!("the model was `{}`, and is `{}` now", text::clean_line(before, 100), runner.model()));
    }
    let result = runner.resume(&mut run, &cancel).await;
    agent.printer.drained().await;
    agent.session.iter().for_each(|session| tell_end(session));
    Ok(run::exit_code(result.stop_reason))
}

/// Says how a task ended, which nobody may have heard: the process may have been killed while it said so.
fn tell_again(run: &Run, json: bool) {
    let Some(result) = run.result().cloned() else { return };
    if json {
        let kind = EventKind::RunFinished {
            stop_reason: result.stop_reason,
            usage: result.usage,
            answer: result.answer,
            error: result.error,
        };
        let (run_id, parent_run_id) = (run.id().to_owned(), run.parent_id().map(str::to_owned));
        let seq = run.next_seq().saturating_sub(1);
        output::print_json(&Event { run_id, parent_run_id, seq, ts: SystemClock.now_ms(), kind });
        return;
    }
    if let Some(answer) = result.answer {
        output::print(&(text::clean(&answer, usize::MAX).into_owned() + "\n"));
    }
    if let Some(error) = result.error {
        output::note(&format!("error {}: {}", error.code, text::clean_line(&error.message, 2_000)));
    }
}

fn delete(common: &Common, ids: &[String]) -> Result<ExitCode, CliError> {
    let store = open(common)?;
    let mut deleted = Vec::new();
    for id in ids {
        let gone = store.delete(id).map_err(failed)?;
        if !common.json {
            output::note(&format!("deleted {gone}"));
        }
        deleted.push(gone);
    }
    if common.json {
        output::print_json(&json!({ "deleted": deleted }));
    }
    Ok(ExitCode::SUCCESS)
}

fn export(store: &Store, id: &str, file: Option<&Path>) -> Result<ExitCode, CliError> {
    let unreadable = match file {
        None => store.export(id, &mut io::BufWriter::new(Stdout)).map_err(failed)?,
        Some(file) => {
            // What is not there cannot be exported, and must not empty a file.
            let id = store.find(id).map_err(failed)?;
            let cannot =
                |error| CliError::config(anyhow::Error::new(error).context(format!("cannot write `{}`", file.display())));
            let mut writer = io::BufWriter::new(create_private(file).map_err(cannot)?);
            let unreadable = store.export(&id, &mut writer).map_err(failed)?;
            writer.into_inner().map_err(|error| cannot(error.into_error()))?.sync_all().map_err(cannot)?;
            unreadable
        }
    };
    if unreadable == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    output::note("warning: the store is damaged, and the export is not complete; `sessions recover` saves what can be read");
    Ok(ExitCode::FAILURE)
}

/// Standard output, as the other commands write to it.
struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Lines are whole JSON documents, but the buffer cuts where it is full.
        let mut stdout = io::stdout().lock();
        match stdout.write_all(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(bytes.len()),
            written => written.map(|()| bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match io::stdout().lock().flush() {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}

fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn recover(common: &Common) -> Result<ExitCode, CliError> {
    let path = path(common).ok_or_else(|| CliError::usage("there is no state directory").hint("name one with `--state-dir`"))?;
    if !path.exists() {
        return Err(CliError::usage(format!("there is no session store at `{}`", path.display())));
    }
    if Store::is_whole(&path).map_err(failed)? {
        if common.json {
            output::print_json(&json!({ "whole": true }));
        }
        output::note("the store is whole; there is nothing to recover");
        return Ok(ExitCode::SUCCESS);
    }
    let recovered = Store::recover(&path, SystemClock.now_ms()).map_err(failed)?;
    if common.json {
        output::print_json(&recovered);
    }
    output::note(&format!("saved {} sessions; the damaged file is `{}`", recovered.sessions, recovered.damaged.display()));
    if !recovered.incomplete.is_empty() {
        output::note(&format!("these cannot be continued, only exported: {}", recovered.incomplete.join(", ")));
    }
    Ok(ExitCode::SUCCESS)
}
