//! Sessions as text for people.

use std::fmt::Write as _;
use std::process::ExitCode;

use crate::cli::output::{self, CliError};
use crate::cli::session::failed;
use crate::message::{Message, Part, Role};
use crate::store::{SessionSummary, Store};
use crate::text;
use crate::time::date_time;

/// The longest text of one message that is shown; `--json` and `export` have all of it.
const MAX_SHOWN: usize = 4_000;
/// The longest line of arguments or of a result.
const MAX_LINE: usize = 300;
const MAX_TITLE: usize = 120;

/// A table of sessions; what may be wide stands last.
pub(super) fn table(sessions: &[SessionSummary]) -> String {
    let mut text = String::new();
    for session in sessions {
        let SessionSummary { id, status, runs, messages, tool_calls, updated_at, .. } = session;
        let title = text::clean_line(&session.title, MAX_TITLE);
        let _ = writeln!(
            text,
            "{id}  {}  {:<12} {:>10}  {title}",
            date_time(*updated_at),
            text::clean_line(status, 20),
            format!("{runs}/{messages}/{tool_calls}"),
        );
    }
    if !text.is_empty() {
        let head = format!("{:<12}  {:<19}  {:<12} {:>10}  title\n", "id", "last used (UTC)", "status", "r/m/c");
        text.insert_str(0, &head);
        text.push_str("r/m/c: runs, messages, tool calls\n");
    }
    text
}

pub(super) fn show(store: &Store, id: &str, json: bool) -> Result<ExitCode, CliError> {
    let detail = store.show(id).map_err(failed)?;
    if json {
        output::print_json(&detail);
        return Ok(ExitCode::SUCCESS);
    }
    let session = &detail.session;
    let mut shown = String::new();
    let _ = writeln!(shown, "session {} ({}): {}", session.id, session.status, text::clean_line(&session.title, MAX_TITLE));
    let _ = writeln!(shown, "begun {}, last used {} (UTC)", date_time(session.created_at), date_time(session.updated_at));
    for run in &detail.run_list {
        let model = run.model.as_deref().unwrap_or("no model");
        let task = text::clean_line(&run.task, MAX_LINE);
        let _ = writeln!(shown, "run {} ({}, {}): {task}", run.id, run.status, text::clean_line(model, 100));
    }
    for worker in &detail.workers {
        let _ = writeln!(shown, "worker {} ({}): {}", worker.id, worker.status, text::clean_line(&worker.title, MAX_TITLE));
    }
    for message in &detail.conversation {
        show_message(&mut shown, message);
    }
    output::print(&shown);
    Ok(ExitCode::SUCCESS)
}

fn show_message(shown: &mut String, message: &Message) {
    let who = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    for part in &message.parts {
        let _ = match part {
            Part::Text { text } => writeln!(shown, "\n{who}: {}", text::clean(text, MAX_SHOWN)),
            Part::Reasoning(_) => Ok(()),
            Part::ToolCall(call) => {
                let (name, arguments) = (text::clean_line(&call.name, 80), text::clean_line(&call.arguments, MAX_LINE));
                writeln!(shown, "  -> {name} {arguments}")
            }
            Part::ToolResult(result) => {
                let status = serde_json::to_value(result.status).ok();
                let status = status.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default();
                writeln!(shown, "  <- {status}: {}", text::clean_line(&result.text, MAX_LINE))
            }
        };
    }
}
