//! Asking the person at the terminal.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;

use tokio::sync::Mutex;

use super::grants::GrantsFile;
use super::printer::Printer;
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
    /// What has to be shown before a question.
    printer: Option<Printer>,
    /// Where an "always" is written; without, it is not offered.
    grants: Option<Arc<GrantsFile>>,
}

impl TerminalApprover {
    /// Also takes "always" for an answer.
    pub(super) fn with_grants(grants: Option<GrantsFile>) -> Self {
        Self { grants: grants.map(Arc::new), ..Self::default() }
    }

    /// Asks once `printer` has shown what came before.
    #[must_use]
    pub(super) fn after(self, printer: Printer) -> Self {
        Self { printer: Some(printer), ..self }
    }
}

impl Approver for TerminalApprover {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Approval> {
        Box::pin(async move {
            let _turn = self.turn.lock().await;
            // The same call may have been asked about a moment ago, in the same turn.
            if self.grants.as_ref().is_some_and(|grants| grants.covers(question)) {
                return Approval::Always;
            }
            if let Some(printer) = &self.printer {
                printer.drained().await;
            }
            ask(question, self.grants.as_deref()).await
        })
    }
}

async fn ask(question: &Question, grants: Option<&GrantsFile>) -> Approval {
    let arguments = readable(&question.arguments.to_string());
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
    // Nobody can mean for ever what they have not seen whole.
    let grants = grants.filter(|_| arguments.len() <= SHOWN_BYTES);
    let always = if grants.is_some() { "[a]lways for exactly this call, " } else { "" };
    loop {
        terminal::discard_typed();
        output::note_text(&format!("Allow it? [o]nce, for this [r]un, {always}[v]iew all arguments, [N]o: "));
        let Some(line) = terminal::read_line().await else { return Approval::No };
        let answer = line.trim().to_ascii_lowercase();
        if let ("a" | "always", Some(grants)) = (answer.as_str(), grants) {
            return always_allow(question, grants);
        }
        match answer.as_str() {
            "o" | "once" | "y" | "yes" => return Approval::Once,
            "r" | "run" => return Approval::ForRun,
            "v" | "view" => output::note(&arguments),
            "" | "n" | "no" => return Approval::No,
            _ => output::note("please answer with one of the letters in brackets"),
        }
    }
}

/// Writes the answer down. What cannot be written down holds once.
fn always_allow(question: &Question, grants: &GrantsFile) -> Approval {
    match grants.add(question) {
        Ok(path) => {
            output::note(&format!("written to `{}`; remove the entry to be asked again", path.display()));
            Approval::Always
        }
        Err(error) => {
            output::note(&format!("warning: allowed once only: {error:#}"));
            Approval::Once
        }
    }
}

/// Escapes what a terminal would act on or not show: the person must see what the tool will get.
fn readable(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len()), |mut shown, c| {
        if text::is_hidden(c) || matches!(c, '\n' | '\t' | '\u{200c}' | '\u{200d}') {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_a_terminal_would_hide() {
        assert_eq!(readable("{\"a\":\"北京\u{202e}\u{1b}[2J\u{200b}\"}"), "{\"a\":\"北京\\u{202e}\\u{1b}[2J\\u{200b}\"}");
    }
}
