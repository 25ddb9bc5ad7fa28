//! Runs the recorded calls again, with the tools and the policy of today.

use serde::Serialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::format::{Entry, Found};
use super::reader::Recording;
use super::timeline::first_difference;
use crate::approval::Approver;
use crate::message::ToolCall;
use crate::text::clean_line;
use crate::tool::{CallContext, Check, Conversation, ToolOutcome, Tools};

/// The most bytes of each side that a difference shows.
const MAX_SHOWN: usize = 400;

/// A recorded call beside the same call of today.
#[derive(Clone, Debug, Serialize)]
pub struct CallComparison {
    /// The line of the file that holds the check of the call, counted from 1.
    pub line: usize,
    /// The call's id.
    pub call_id: String,
    /// The tool's model-visible name.
    pub tool: String,
    /// The call ran now; one that did not run when it was recorded is only checked.
    pub ran: bool,
    /// What is different.
    pub differences: Vec<Difference>,
}

/// One thing that is different.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Difference {
    /// What: `decision`, `status`, `error`, or a JSON pointer into the content.
    pub what: String,
    /// What the recording says.
    pub recorded: String,
    /// What is so now.
    pub now: String,
}

/// What came of running the calls again.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LiveReport {
    /// Calls in the recording.
    pub calls: usize,
    /// Of these, how many came out differently.
    pub different: usize,
    /// It was stopped before the last call.
    pub stopped: bool,
}

/// Makes the recorded calls again, one after the other, and tells `tell` of each what differs. Time and fuel are not compared.
///
/// Nothing in the file grants anything: each call is checked against the policy of today, and where that says `ask`, `approver` is asked,
/// whatever the recorded answer was. A call that did not run when it was recorded is checked and not run.
pub async fn compare_live(
    recording: &Recording,
    tools: &dyn Tools,
    approver: &dyn Approver,
    cancel: &CancellationToken,
    tell: &mut (dyn FnMut(&CallComparison) + Send),
) -> LiveReport {
    let mut report = LiveReport::default();
    let run_id = uuid::Uuid::now_v7().to_string();
    for (index, line) in recording.lines.iter().enumerate() {
        let Entry::Check { call, found } = &line.entry else { continue };
        if cancel.is_cancelled() {
            report.stopped = true;
            break;
        }
        let recorded = recording.lines[index..].iter().find_map(|line| match &line.entry {
            Entry::Outcome { call: ran, outcome, .. } if ran.id == call.id => Some(outcome.as_ref()),
            _ => None,
        });
        let check = tools.check(&run_id, call);
        let mut differences = Vec::new();
        let now = Found::from(check.clone());
        compare("decision", &json!(decision(found)), &json!(decision(&now)), &mut differences);
        let outcome = match (recorded, check) {
            (Some(_), Check::Ready) => Some(run(tools, call, &run_id, None, cancel).await),
            (Some(_), Check::Ask(question)) => {
                let Some(answer) = cancel.run_until_cancelled(approver.ask(&question)).await else { continue };
                Some(run(tools, call, &run_id, Some(answer), cancel).await)
            }
            (Some(_), Check::Refused(outcome)) => Some(*outcome),
            (None, _) => None,
        };
        if let (Some(recorded), Some(outcome)) = (recorded, &outcome) {
            let summary = |outcome: &ToolOutcome| json!(outcome.status);
            compare("status", &summary(recorded), &summary(outcome), &mut differences);
            compare("error", &json!(recorded.error), &json!(outcome.error), &mut differences);
            compare("", &json!(recorded.content), &json!(outcome.content), &mut differences);
        }
        report.calls += 1;
        report.different += usize::from(!differences.is_empty());
        let ran = outcome.is_some();
        let (call_id, tool) = (call.id.clone(), clean_line(&call.name, 100));
        tell(&CallComparison { line: Recording::number(index), call_id, tool, ran, differences });
    }
    tools.end_run(&run_id);
    report
}

async fn run(
    tools: &dyn Tools,
    call: &ToolCall,
    run_id: &str,
    approval: Option<crate::tool::Approval>,
    cancel: &CancellationToken,
) -> ToolOutcome {
    let context = CallContext {
        run_id: run_id.to_owned(),
        idempotency_key: format!("{run_id}:{}", call.id),
        attempt: 1,
        conversation: Conversation::default(),
        approval,
        cancel: cancel.child_token(),
        progress: None,
        log: None,
    };
    tools.call(call, context).await
}

fn decision(found: &Found) -> String {
    match found {
        Found::Ready => "allow".to_owned(),
        Found::Ask(_) => "ask".to_owned(),
        Found::Refused(outcome) => outcome.error.as_ref().map_or("refused".to_owned(), |error| error.code.to_string()),
    }
}

fn compare(what: &str, recorded: &Value, now: &Value, differences: &mut Vec<Difference>) {
    if recorded == now {
        return;
    }
    let (pointer, recorded, now) = first_difference(recorded, now);
    let what = if pointer == "/" { what.to_owned() } else { format!("{what}{pointer}") };
    let what = if what.is_empty() { "content".to_owned() } else { what };
    differences.push(Difference { what, recorded: clean_line(&recorded, MAX_SHOWN), now: clean_line(&now, MAX_SHOWN) });
}
