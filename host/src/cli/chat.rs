//! A chat on the terminal: one task after the other, in one conversation.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use tokio_util::sync::CancellationToken;

use super::output::{self, CliError};
use super::run::open_runner;
use super::{Common, signals, terminal};
use crate::agent::Run;

pub(super) async fn chat(common: &Common) -> Result<ExitCode, CliError> {
    if !io::stdin().is_terminal() {
        return Err(CliError::usage("there is no task, and stdin is no terminal to chat on")
            .hint("name a task: `honeycomb-host --plugins DIR --policy FILE \"what is 123 + 456?\"`"));
    }
    let (runner, printer, _watch) = open_runner(common).await?;
    output::note("type a task; an empty line or Ctrl-D ends the chat, Ctrl-C stops the task under way");
    let mut conversation: Option<Run> = None;
    loop {
        output::note_text("> ");
        let Some(task) = read_line().await else { break };
        if task.trim().is_empty() {
            break;
        }
        let started = match conversation.take() {
            None => runner.start(task),
            Some(earlier) => runner.follow_up(earlier, task),
        };
        let mut run = started.map_err(|error| CliError::config(anyhow::Error::new(error)))?;
        let cancel = CancellationToken::new();
        {
            let stop = signals::stop_requested();
            tokio::pin!(stop);
            let driving = runner.resume(&mut run, &cancel);
            tokio::pin!(driving);
            tokio::select! {
                _ = &mut driving => {}
                () = &mut stop => {
                    cancel.cancel();
                    let _ = driving.await;
                }
            }
        }
        tokio::select! {
            () = printer.drained() => {}
            () = signals::stop_requested() => break,
        }
        conversation = Some(run);
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a line. None at the end of input, or when asked to stop.
async fn read_line() -> Option<String> {
    tokio::select! {
        line = terminal::read_line() => line,
        () = signals::stop_requested() => None,
    }
}
