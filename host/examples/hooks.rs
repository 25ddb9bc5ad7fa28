//! Three hooks that agents often want: rules before each call of the model, a failed tool tried again with corrected arguments, and a
//! summary of one's own in place of old messages.
//!
//! `cargo run --example hooks` runs a scripted task with all three; `cargo test` does the same, and checks what they did.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::{Arc, Mutex, PoisonError};

use honeycomb_host::agent::{
    AfterTool, BeforeModel, EventKind, Hook, Observer, OnCompaction, RunInfo, RunResult, Runner, RunnerSettings, channel,
};
use honeycomb_host::message::{ToolCall, ToolStatus};
use honeycomb_host::provider::scripted::ScriptedProvider;
use honeycomb_host::provider::{ModelRequest, Provider};
use honeycomb_host::tool::{
    BoxFuture, CallContext, CallUsage, Check, Content, ErrorCode, Failure, ToolHints, ToolOutcome, ToolSpec, Tools,
};
use tokio_util::sync::CancellationToken;

/// Tells the model, anew before each call, what it may do now. What it may do is still the policy's to decide.
struct Rules(String);

impl Hook for Rules {
    fn name(&self) -> &str {
        "rules"
    }

    fn before_model<'a>(&'a self, run: &'a RunInfo, request: &'a ModelRequest) -> BoxFuture<'a, BeforeModel> {
        let mut request = request.clone();
        request.system.push_str(&format!("\n{} Tool calls so far: {}.", self.0, run.usage.tool_calls));
        Box::pin(std::future::ready(BeforeModel::Patch(Box::new(request))))
    }
}

/// Corrects a mistake that this model makes often, instead of asking it once more. The corrected call is checked like the model's own.
struct Corrected;

impl Hook for Corrected {
    fn name(&self) -> &str {
        "corrected"
    }

    fn after_tool<'a>(&'a self, _: &'a RunInfo, call: &'a ToolCall, outcome: &'a ToolOutcome) -> BoxFuture<'a, AfterTool> {
        let is_unit = outcome.error.as_ref().is_some_and(|error| error.message.contains("unit"));
        let answer = if is_unit && call.arguments.contains("centigrade") {
            AfterTool::Retry(call.arguments.replace("centigrade", "celsius"))
        } else {
            AfterTool::Continue
        };
        Box::pin(std::future::ready(answer))
    }
}

/// Summarises old messages without a model: the places that were asked about, and nothing else.
struct Places(Mutex<u32>);

impl Hook for Places {
    fn name(&self) -> &str {
        "places"
    }

    fn on_compaction<'a>(&'a self, _: &'a RunInfo, request: &'a ModelRequest) -> BoxFuture<'a, OnCompaction> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let transcript: String = request.messages.iter().map(honeycomb_host::message::Message::text).collect();
        let places: Vec<&str> = ["北京", "Paris"].into_iter().filter(|place| transcript.contains(place)).collect();
        let summary = format!("The weather of these places is known: {}.", places.join(", "));
        Box::pin(std::future::ready(OnCompaction::Skip(summary)))
    }
}

/// A tool that knows one unit, and says much.
struct Weather;

impl Tools for Weather {
    fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::new([ToolSpec {
            name: "weather__get".to_owned(),
            title: None,
            description: "The weather in a city.".to_owned(),
            input_schema: serde_json::json!({"type": "object", "properties": {"city": {}, "unit": {}}}),
            output_schema: None,
            hints: ToolHints { read_only: true, ..ToolHints::default() },
        }])
    }

    fn check(&self, _: &str, _: &ToolCall) -> Check {
        Check::Ready
    }

    fn call<'a>(&'a self, call: &'a ToolCall, _: CallContext) -> BoxFuture<'a, ToolOutcome> {
        let outcome = if call.arguments.contains("celsius") {
            let content = vec![Content::Text { text: format!("sunny, {}; {}", call.arguments, "details ".repeat(300)) }];
            let usage = CallUsage::default();
            ToolOutcome { status: ToolStatus::Ok, content, structured: None, error: None, denials: Vec::new(), usage }
        } else {
            let failure = Failure::new(ErrorCode::tool("invalid_arguments"), "this unit is not known");
            ToolOutcome::failed(ToolStatus::Error, failure, CallUsage::default())
        };
        Box::pin(std::future::ready(outcome))
    }
}

const SCRIPT: &str = r#"
version = 1
[[turns]]
[turns.expect]
system_contains = "Only the weather tool may be used. Tool calls so far: 0."
[turns.reply]
[[turns.reply.calls]]
tool = "weather__get"
arguments = { city = "北京", unit = "centigrade" }
[[turns]]
[turns.expect]
system_contains = "Tool calls so far: 1."
[turns.reply]
[[turns.reply.calls]]
tool = "weather__get"
arguments = { city = "Paris", unit = "celsius" }
[[turns]]
[turns.reply]
text = "Sunny in both."
"#;

/// Runs a task with the three hooks; returns how it ended, how often a summary was made, and what happened.
async fn run() -> anyhow::Result<(RunResult, u32, Vec<EventKind>)> {
    let provider: Arc<dyn Provider> = Arc::new(ScriptedProvider::parse(SCRIPT)?);
    let places = Arc::new(Places(Mutex::new(0)));
    let (observer, mut events): (Arc<dyn Observer>, _) = channel();
    let mut settings = RunnerSettings::default();
    // So small that the first result has to go; stubs are off, so that a summary stands for it.
    (settings.run.context.window_tokens, settings.run.context.stub) = (1_600, false);
    (settings.run.context.max_output_tokens, settings.run.context.protect_tokens) = (Some(100), 100);
    let runner = Runner::new(provider, Arc::new(Weather))
        .with_hook(Arc::new(Rules("Only the weather tool may be used.".to_owned())))
        .with_hook(Arc::new(Corrected))
        .with_hook(places.clone())
        .with_observer(observer)
        .with_settings(settings);
    let result = runner.run("How is the weather in 北京 and in Paris?", &CancellationToken::new()).await?;
    let summaries = *places.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((result, summaries, std::iter::from_fn(|| events.try_next()).map(|event| event.kind).collect()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let (result, summaries, events) = run().await?;
    for event in events {
        println!("{}", serde_json::to_string(&event)?);
    }
    println!("{}: {} ({summaries} summaries)", result.stop_reason, result.answer.unwrap_or_default());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_three_hooks_do_what_they_say() {
        let (result, summaries, events) = run().await.expect("runs");
        assert_eq!(result.answer.as_deref(), Some("Sunny in both."), "{:?}", result.error);
        let ended: Vec<(ToolStatus, &str)> = events
            .iter()
            .filter_map(
                |kind| if let EventKind::ToolCompleted(call) = kind { Some((call.status, call.preview.as_str())) } else { None },
            )
            .collect();
        assert!(ended.len() == 2 && ended.iter().all(|(status, _)| *status == ToolStatus::Ok), "{ended:?}");
        assert!(ended[0].1.contains("celsius"), "the corrected arguments: {ended:?}");
        assert!(summaries > 0 && events.iter().any(|kind| matches!(kind, EventKind::ContextSummarised { .. })), "{summaries}");
    }
}
