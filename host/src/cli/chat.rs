//! A chat on the terminal: one task after the other, in one conversation.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use tokio_util::sync::CancellationToken;

use super::output::{self, CliError};
use super::run::open_agent;
use super::{Common, host, session, signals, terminal};
use crate::agent::Run;

pub(super) async fn chat(common: &Common) -> Result<ExitCode, CliError> {
    if !io::stdin().is_terminal() {
        return Err(CliError::usage("there is no task, and stdin is no terminal to chat on")
            .hint("name a task: `honeycomb-host --plugins DIR --policy FILE \"what is 123 + 456?\"`"));
    }
    let policy = host::load_policy(&common.policy)?;
    let opened = session::open(common, &host::read_secrets(&policy)?)?;
    let mut agent = open_agent(common, policy, opened, None).await?;
    output::note("type a task; an empty line or Ctrl-D ends the chat, Ctrl-C stops the task under way");
    let mut conversation: Option<Run> = agent.earlier.take();
    let mut asked = false;
    loop {
        output::note_text("> ");
        let Some(task) = read_line().await else { break };
        if task.trim().is_empty() {
            break;
        }
        let mut run = agent.next_run(conversation.take(), task).await?;
        asked = true;
        let cancel = CancellationToken::new();
        {
            let stop = signals::stop_requested();
            tokio::pin!(stop);
            let driving = agent.runner.resume(&mut run, &cancel);
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
            () = agent.printer.drained() => {}
            () = signals::stop_requested() => break,
        }
        conversation = Some(run);
    }
    if let Some(session) = agent.session.filter(|_| asked) {
        session::tell_end(&session);
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
