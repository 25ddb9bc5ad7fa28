//! Asking the person at the terminal.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;

use tokio::sync::Mutex;

use super::{output, terminal};
use crate::approval::Approver;
use crate::text;
use crate::tool::{Approval, BoxFuture, Question};

/// How many bytes of the arguments are shown at once; the rest on request.
const SHOWN_BYTES: usize = 2_000;

/// Whether a person is there to be asked.
pub(super) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks on the terminal, one question at a time.
#[derive(Clone, Default)]
pub(super) struct TerminalApprover {
    turn: Arc<Mutex<()>>,
}

impl Approver for TerminalApprover {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Approval> {
        Box::pin(async move {
            let _turn = self.turn.lock().await;
            ask(question).await
        })
    }
}

async fn ask(question: &Question) -> Approval {
    let arguments = text::escape_hidden(&question.arguments.to_string());
    output::note("");
    output::note(&format!("The agent wants to call `{}/{}`.", question.plugin, question.tool));
    output::note(&format!("  asked because of {}", question.rule));
    if question.hints.destructive {
        output::note("  the tool says that it may destroy or overwrite something");
    }
    if arguments.len() <= SHOWN_BYTES {
        output::note(&format!("  arguments: {arguments}"));
    } else {
        let head = &arguments[..arguments.floor_char_boundary(SHOWN_BYTES / 2)];
        let tail = &arguments[arguments.ceil_char_boundary(arguments.len() - SHOWN_BYTES / 2)..];
        output::note(&format!("  arguments, {} bytes, cut in the middle: {head}", arguments.len()));
        output::note(&format!("  … {tail}"));
    }
    loop {
        terminal::discard_typed();
        output::note_text("Allow it? [o]nce, for this [r]un, [v]iew all arguments, [N]o: ");
        let Some(line) = terminal::read_line().await else { return Approval::No };
        match line.trim().to_ascii_lowercase().as_str() {
            "o" | "once" | "y" | "yes" => return Approval::Once,
            "r" | "run" => return Approval::ForRun,
            "v" | "view" => output::note(&arguments),
            "" | "n" | "no" => return Approval::No,
            _ => output::note("please answer o, r, v or n"),
        }
    }
}
