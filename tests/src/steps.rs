//! One task, always the same, for tests that work on it a step at a time.

use std::sync::Arc;

use honeycomb_host::agent::{EventReceiver, FixedClock, Run, Runner, channel};
use honeycomb_host::message::{ToolCall, ToolStatus};
use honeycomb_host::provider::scripted::{Script, ScriptedProvider};
use honeycomb_host::tool::{
    BoxFuture, CallContext, CallUsage, Check, Content, ErrorCode, Failure, ToolHints, ToolOutcome, ToolSpec, Tools,
};

/// The task.
pub const TASK: &str = "北京天气怎么样？再算 123 + 456。";

/// Two turns with calls, one of them of a tool that does not exist, and an answer.
const SCRIPT: &str = r#"
version = 1
[[turns]]
[turns.reply]
text = "Let me look."
[[turns.reply.calls]]
tool = "city__look"
arguments = { city = "北京" }
[[turns.reply.calls]]
tool = "city__write"
arguments = { note = "123 + 456" }
[[turns]]
[turns.reply]
[[turns.reply.calls]]
tool = "no_such_tool"
[[turns.reply.calls]]
tool = "city__look"
arguments = { city = "Paris" }
[[turns]]
[turns.reply]
text = "晴，579。"
usage = { input_tokens = 120, output_tokens = 9 }
"#;

/// A runner for the task, from where `run` stands or from its start, and what it tells.
///
/// # Panics
///
/// Panics if the script is not valid.
pub fn runner(run: Option<&Run>) -> (Runner, EventReceiver) {
    let mut script: Script = toml::from_str(SCRIPT).expect("a valid script");
    script.turns.drain(..run.map_or(0, |run| run.usage().steps as usize));
    let (observer, events) = channel();
    let runner = Runner::new(Arc::new(ScriptedProvider::new(script)), Arc::new(City))
        .with_observer(observer)
        .with_clock(Arc::new(FixedClock(1_796_000_000_000)));
    (runner, events)
}

/// Tools that answer with their arguments.
struct City;

impl Tools for City {
    fn specs(&self) -> Arc<[ToolSpec]> {
        let tool = |name: &str, read_only| ToolSpec {
            name: name.to_owned(),
            title: None,
            description: "For tests.".to_owned(),
            input_schema: serde_json::json!({"type": "object"}),
            output_schema: None,
            hints: ToolHints { read_only, ..ToolHints::default() },
        };
        Arc::new([tool("city__look", true), tool("city__write", false)])
    }

    fn check(&self, _run_id: &str, call: &ToolCall) -> Check {
        if call.name.starts_with("city__") {
            return Check::Ready;
        }
        let failure = Failure::new(ErrorCode::TOOL_UNKNOWN, format!("there is no tool `{}`", call.name));
        Check::Refused(Box::new(ToolOutcome::failed(ToolStatus::Error, failure, CallUsage::default())))
    }

    fn call<'a>(&'a self, call: &'a ToolCall, _: CallContext) -> BoxFuture<'a, ToolOutcome> {
        let content = vec![Content::Text { text: format!("seen: {}", call.arguments) }];
        let (status, usage) = (ToolStatus::Ok, CallUsage { fuel: 7, ..CallUsage::default() });
        let outcome = ToolOutcome { status, content, structured: None, error: None, denials: Vec::new(), usage };
        Box::pin(std::future::ready(outcome))
    }
}
