//! How a run is shown: live for people, as JSON lines for scripts.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _};
use std::sync::{Mutex, PoisonError};

use super::output;
use crate::agent::{Event, EventKind, Observer, RunUsage, StopReason, ToolCompleted, WorkerStatus};
use crate::message::ToolStatus;
use crate::text;

/// The longest line of arguments or of a result that is shown.
const MAX_SHOWN: usize = 300;
/// The longest error that is shown.
const MAX_ERROR: usize = 2_000;

/// Prints each event as a JSON line on stdout.
pub(super) struct JsonView;

impl Observer for JsonView {
    fn event(&self, event: &Event) {
        output::print_json(event);
    }
}

/// Shows a run to a person: the answer on stdout, as it streams in if that is a terminal; what happens meanwhile on stderr.
pub(super) struct LiveView {
    streams: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The answer's text stands on an unfinished line of stdout.
    line_open: bool,
    /// Text of the present turn was streamed.
    streamed: bool,
    /// What stands before the lines of a worker's run, such as `2` or `2.1`.
    workers: HashMap<String, String>,
}

impl LiveView {
    pub(super) fn new() -> Self {
        Self { streams: io::stdout().is_terminal(), state: Mutex::default() }
    }

    fn text(&self, state: &mut State, delta: &str) {
        if !self.streams {
            return;
        }
        // The model's words are as untrusted as a tool's: no escape sequence reaches the terminal.
        let shown: String = delta.chars().filter(|&c| !text::is_hidden(c)).collect();
        if !shown.is_empty() {
            output::print(&shown);
            state.line_open = !shown.ends_with('\n');
            state.streamed = true;
        }
    }

    fn note(&self, state: &mut State, line: &str) {
        close_line(state);
        output::note(line);
    }

    fn finish(&self, state: &mut State, stop_reason: StopReason, answer: Option<&str>) {
        let streamed = std::mem::take(&mut state.streamed);
        close_line(state);
        if let Some(answer) = answer.filter(|_| !streamed) {
            output::print(&(text::clean(answer, usize::MAX).into_owned() + "\n"));
        }
        if stop_reason != StopReason::EndTurn {
            output::note(&format!("stopped: {}", stop_reason.as_str()));
        }
    }
}

impl Observer for LiveView {
    fn event(&self, event: &Event) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let label = state.workers.get(&event.run_id).cloned();
        if let EventKind::WorkerStarted { worker, worker_run_id, task } = &event.kind {
            let label = label.map_or_else(|| worker.to_string(), |label| format!("{label}.{worker}"));
            self.note(&mut state, &format!("  [{label}] {}", text::clean_line(task, MAX_SHOWN)));
            state.workers.insert(worker_run_id.clone(), label);
            return;
        }
        if let EventKind::WorkerCompleted { worker_run_id, status, stop_reason, usage, .. } = &event.kind {
            let label = state.workers.remove(worker_run_id).unwrap_or_default();
            self.note(&mut state, &format!("  [{label}] {}", worker_line(*status, *stop_reason, usage)));
            return;
        }
        if let Some(label) = label {
            // A worker's words are for its parent, and stdout is for the answer.
            if let Some(line) = worker_event(&event.kind) {
                self.note(&mut state, &format!("  [{label}]{line}"));
            }
            return;
        }
        match &event.kind {
            EventKind::TextDelta { text } => self.text(&mut state, text),
            EventKind::ModelRequest { .. } => state.streamed = false,
            EventKind::ToolCallReady { name, arguments, .. } => {
                let (name, arguments) = (text::clean_line(name, 80), text::clean_line(arguments, MAX_SHOWN));
                self.note(&mut state, &format!("  -> {name} {arguments}"));
            }
            EventKind::ToolProgress { done, total, message, .. } => {
                let total = total.map(|total| format!("/{total}")).unwrap_or_default();
                self.note(&mut state, &format!("     {done}{total} {}", message.as_deref().unwrap_or_default()));
            }
            EventKind::ToolCompleted(completed) => self.note(&mut state, &result_line(completed)),
            EventKind::ModelRetry { delay_ms, reason, discard, .. } => {
                let void = if *discard { "; what was shown of this answer is void" } else { "" };
                self.note(&mut state, &format!("  the model is asked again in {delay_ms} ms: {reason}{void}"));
            }
            EventKind::ModelFailed { error } => {
                self.note(&mut state, &format!("  {}: {}", error.code, text::clean_line(&error.message, MAX_ERROR)))
            }
            EventKind::LoopWarning { name, count } => {
                self.note(&mut state, &format!("  {name} gave the same result {count} times"));
            }
            EventKind::ContextTrimmed { items, tokens_before, tokens_after, .. } => {
                self.note(&mut state, &format!("  {items} old results left out: {tokens_before} -> {tokens_after} tokens"));
            }
            EventKind::ContextSummarised { messages, tokens_before, tokens_after, .. } => {
                self.note(&mut state, &format!("  {messages} messages summarised: {tokens_before} -> {tokens_after} tokens"));
            }
            EventKind::BudgetWarning { budget, used, limit } => {
                self.note(&mut state, &format!("  {used} of {limit} {budget} used"));
            }
            EventKind::RunFinished { stop_reason, answer, error, .. } => {
                self.finish(&mut state, *stop_reason, answer.as_deref());
                if let Some(error) = error {
                    output::note(&format!("error {}: {}", error.code, text::clean_line(&error.message, MAX_ERROR)));
                    if let Some(hint) = &error.hint {
                        output::note(&format!("hint: {hint}"));
                    }
                }
            }
            _ => {}
        }
    }
}

fn close_line(state: &mut State) {
    if std::mem::take(&mut state.line_open) {
        output::print("\n");
    }
}

/// What is shown of a worker's event.
fn worker_event(kind: &EventKind) -> Option<String> {
    let error = |code: &str, message: &str| format!(" error {code}: {}", text::clean_line(message, MAX_ERROR));
    match kind {
        EventKind::ToolCallReady { name, arguments, .. } => {
            Some(format!("  -> {} {}", text::clean_line(name, 80), text::clean_line(arguments, MAX_SHOWN)))
        }
        EventKind::ToolCompleted(completed) => Some(result_line(completed)),
        EventKind::ModelRetry { delay_ms, reason, .. } => Some(format!(" the model is asked again in {delay_ms} ms: {reason}")),
        EventKind::ModelFailed { error: failure } => Some(error(failure.code.as_str(), &failure.message)),
        EventKind::BudgetWarning { budget, used, limit } => Some(format!(" {used} of {limit} {budget} used")),
        EventKind::LoopWarning { name, count } => Some(format!(" {name} gave the same result {count} times")),
        _ => None,
    }
}

fn worker_line(status: WorkerStatus, stop_reason: Option<StopReason>, usage: &RunUsage) -> String {
    let status = match status {
        WorkerStatus::Done => "done",
        WorkerStatus::Incomplete => "incomplete",
        WorkerStatus::Failed => "failed",
        WorkerStatus::Interrupted => "interrupted",
        WorkerStatus::NotStarted => "not started",
    };
    let why = stop_reason.filter(|reason| !reason.is_success()).map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{status}{why}  ({} steps, {} calls, {} ms)", usage.steps, usage.tool_calls, output::count(usage.wall_ms))
}

fn result_line(completed: &ToolCompleted) -> String {
    let preview = text::clean_line(&completed.preview, MAX_SHOWN);
    let status = match completed.status {
        ToolStatus::Ok => "ok",
        ToolStatus::Error => "error",
        ToolStatus::Denied => "denied",
        ToolStatus::Interrupted => "interrupted",
        ToolStatus::NotExecuted => "not executed",
    };
    let mut line = format!("  <- {status}: {preview}");
    if completed.fuel > 0 {
        line.push_str(&format!(
            "  ({} fuel, {}, {} us)",
            output::count(completed.fuel),
            output::bytes(completed.memory_bytes),
            output::count(completed.wall_us)
        ));
    }
    line
}
