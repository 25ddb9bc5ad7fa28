//! A fixture for measuring what the agent adds to a turn of the model.

use std::sync::Arc;

use serde_json::json;

use super::event::Event;
use super::run::{CheckedCall, Run, RunSettings, Step};
use crate::message::{FinishReason, Message, ModelTurn, Part, Role, TokenUsage, ToolCall, ToolResult, ToolStatus};
use crate::tool::{CallUsage, Check, Content, ToolHints, ToolOutcome, ToolSpec};

/// A run with a history of a given length, ready for one more step.
#[derive(Clone, Debug)]
pub struct StepFixture {
    run: Run,
    tools: Arc<[ToolSpec]>,
}

impl StepFixture {
    /// Makes a run whose history has this many messages of ordinary size.
    pub fn new(messages: usize) -> Self {
        let history = (0..messages).map(|index| match index % 4 {
            0 => Message::user(format!("Question {index}: what is in the report?")),
            1 => Message { role: Role::Assistant, parts: vec![Part::ToolCall(call(format!("call-{index}")))] },
            2 => {
                let (call_id, name) = (format!("call-{}", index - 1), "files__read".to_owned());
                let text = format!("{index} {}", "Lines of a report, 报告. ".repeat(40));
                Message {
                    role: Role::Tool,
                    parts: vec![Part::ToolResult(ToolResult { call_id, name, status: ToolStatus::Ok, text })],
                }
            }
            _ => Message { role: Role::Assistant, parts: vec![Part::text("The report says that all is well. ".repeat(10))] },
        });
        let settings = RunSettings { system: super::DEFAULT_PROMPT.to_owned(), ..RunSettings::default() };
        let run = Run::new("bench", "And what else?", settings).with_history(history.collect());
        let tools = (0..20).map(|index| spec(&format!("plugin{index}__tool"))).chain([spec("files__read")]).collect();
        Self { run, tools }
    }

    /// Does everything that a step needs but the model's and the tool's own time: builds the request, takes a turn with one call,
    /// checks and runs it, takes the result, and writes run and events down. Returns the bytes written, so that nothing is optimised
    /// away.
    pub fn step(&mut self) -> usize {
        let mut run = self.run.clone();
        let mut written = 0;
        let Step::CallModel(request) = run.next_step(0, &self.tools) else { return 0 };
        written += request.messages.len();
        let (parts, usage) = (vec![Part::ToolCall(call("call-now".to_owned()))], TokenUsage::default());
        run.on_model(Ok(ModelTurn { parts, finish_reason: FinishReason::ToolCalls, usage }), 1);
        if let Step::CheckCalls(calls) = run.next_step(2, &self.tools) {
            let check = |call: ToolCall| CheckedCall { call_id: call.id, arguments: None, check: Check::Ready };
            run.on_checks(calls.into_iter().map(check).collect(), 3);
        }
        if let Step::CallTools(calls) = run.next_step(4, &self.tools) {
            for pending in calls {
                run.on_started(std::slice::from_ref(&pending.call.id), 5);
                let content = vec![Content::Text { text: "All is well.".to_owned() }];
                let (structured, error, denials, usage) = (None, None, Vec::new(), CallUsage::default());
                let outcome = ToolOutcome { status: ToolStatus::Ok, content, structured, error, denials, usage };
                run.on_tool(&pending.call.id, &outcome, 6);
            }
        }
        for (seq, kind) in (0..).zip(run.take_events()) {
            let event = Event { run_id: "bench".to_owned(), parent_run_id: None, seq, ts: 7, kind };
            written += serde_json::to_string(&event).map_or(0, |line| line.len());
        }
        written + run.to_json().map_or(0, |json| json.len())
    }
}

fn call(id: String) -> ToolCall {
    let arguments = json!({ "path": "/data/报告.txt", "offset": 0 }).to_string();
    ToolCall { id, provider_id: None, name: "files__read".to_owned(), arguments }
}

fn spec(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        title: None,
        description: "Reads a file, or a part of one, and returns its text.".to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": { "path": { "type": "string" }, "offset": { "type": "integer" }, "limit": { "type": "integer" } },
            "required": ["path"]
        }),
        output_schema: None,
        hints: ToolHints { read_only: true, ..ToolHints::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_a_whole_step() {
        for messages in [0, 10, 101] {
            let written = StepFixture::new(messages).step();
            assert!(written > 1_000, "{messages}: {written}");
        }
    }
}
