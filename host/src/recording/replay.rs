//! Drives a recorded run again, with the recorded inputs in the place of model, tools, people and clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::format::{Answer, Entry};
use super::reader::Recording;
use super::timeline::{Divergence, Timeline, Took};
use crate::agent::{EventKind, Observer, RunResult, Runner, RunnerSettings};
use crate::approval::Approver;
use crate::message::{ModelTurn, ToolCall, ToolStatus};
use crate::provider::{ModelEvent, ModelRequest, Provider, ProviderError};
use crate::tool::{
    Approval, BoxFuture, CallContext, Check, ErrorCode, Failure, Progress, Question, ToolOutcome, ToolSpec, Tools,
};

/// What a replay came to.
#[derive(Clone, Debug, Serialize)]
pub struct Replayed {
    /// Events that were the same.
    pub events: usize,
    /// Whether all were.
    pub verdict: Verdict,
}

/// Whether a replay did what the recorded run did.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every event and the result are the same.
    Identical,
    /// The recording ends before the run does; all there is of it is the same.
    EndsEarly {
        /// The last line of the file, counted from 1.
        line: usize,
    },
    /// Something else happened.
    Diverged(Divergence),
}

/// Replays a recording. `observer` is told of the events that are as recorded.
///
/// No model is asked, no tool runs and nobody is bothered.
pub async fn replay(recording: &Recording, observer: Option<Arc<dyn Observer>>) -> Replayed {
    let timeline = Arc::new(Timeline::new(recording, observer));
    let header = &recording.header;
    let tools =
        ReplayTools { timeline: timeline.clone(), specs: Mutex::new(header.tools.clone().into()), generation: AtomicU64::new(0) };
    let settings = RunnerSettings {
        max_parallel: header.max_parallel,
        max_parallel_per_plugin: header.max_parallel_per_plugin,
        max_tool_attempts: header.max_tool_attempts,
        // They come joined from the file.
        join_deltas_ms: 0,
        ..RunnerSettings::default()
    };
    let runner =
        Runner::new(Arc::new(ReplayProvider { timeline: timeline.clone(), model: header.model.clone() }), Arc::new(tools))
            .with_approver(Arc::new(ReplayApprover { timeline: timeline.clone() }))
            .with_clock(timeline.clone())
            .with_observer(timeline.clone())
            .with_settings(settings);
    let mut run = recording.run.clone();
    let result = runner.resume(&mut run, &timeline.cancel).await;
    if let Took::NotMine = timeline.take(|entry| ends_as(entry, &result)) {
        timeline.diverge(&format!("the end of the run: {}", serde_json::to_string(&result).unwrap_or_default()));
    }
    let (events, divergence, ran_out) = timeline.close();
    let verdict = match divergence {
        Some(divergence) => Verdict::Diverged(divergence),
        None if ran_out => Verdict::EndsEarly { line: Recording::number(recording.lines.len()) - 1 },
        None => Verdict::Identical,
    };
    Replayed { events, verdict }
}

fn ends_as(entry: &Entry, result: &RunResult) -> Option<()> {
    matches!(entry, Entry::End { result: recorded } if **recorded == *result).then_some(())
}

struct ReplayProvider {
    timeline: Arc<Timeline>,
    model: String,
}

impl ReplayProvider {
    /// Hands on what streamed in. Only pieces of text may follow the answer itself: those were still being joined.
    fn stream(&self, only_text: bool, events: &mut (dyn FnMut(ModelEvent) + Send)) {
        let mut seen = None;
        while let Some((seq, event)) = self.timeline.peek(streamed) {
            let is_text = matches!(event, ModelEvent::TextDelta { .. } | ModelEvent::ReasoningDelta { .. });
            // The same again: the run took it for something else, and that was found to differ.
            if seen == Some(seq) || (only_text && !is_text) {
                return;
            }
            seen = Some(seq);
            events(event);
        }
    }
}

impl Provider for ReplayProvider {
    fn complete<'a>(
        &'a self,
        _request: &'a ModelRequest,
        events: &'a mut (dyn FnMut(ModelEvent) + Send),
        _cancel: CancellationToken,
    ) -> BoxFuture<'a, Result<ModelTurn, ProviderError>> {
        Box::pin(async move {
            self.stream(false, events);
            let pick = |entry: &Entry| if let Entry::Model { answer } = entry { Some(answer.clone()) } else { None };
            let answer: Answer = match self.timeline.take(pick) {
                Took::Taken(answer) => answer,
                Took::Never => std::future::pending().await,
                Took::NotMine => {
                    self.timeline.diverge("the model is asked");
                    std::future::pending().await
                }
            };
            self.stream(true, events);
            answer.into()
        })
    }

    fn model(&self) -> &str {
        &self.model
    }
}

/// The event of a provider that a recorded event was made from.
fn streamed(entry: &Entry) -> Option<(u64, ModelEvent)> {
    let Entry::Event { event } = entry else { return None };
    let seq = event["seq"].as_u64()?;
    let event = match kind(event)? {
        EventKind::TextDelta { text } => ModelEvent::TextDelta { text },
        EventKind::ReasoningDelta { text } => ModelEvent::ReasoningDelta { text },
        EventKind::ToolCallStarted { call_id, name } => ModelEvent::ToolCallStarted { id: call_id, name },
        EventKind::ModelRetry { attempt, delay_ms, reason, discard } => ModelEvent::Retry { attempt, delay_ms, reason, discard },
        _ => return None,
    };
    Some((seq, event))
}

fn kind(event: &Value) -> Option<EventKind> {
    serde_json::from_value(event.clone()).ok()
}

struct ReplayTools {
    timeline: Arc<Timeline>,
    specs: Mutex<Arc<[ToolSpec]>>,
    generation: AtomicU64,
}

impl Tools for ReplayTools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        let mut specs = self.specs.lock().unwrap_or_else(PoisonError::into_inner);
        let pick = |entry: &Entry| if let Entry::Tools { tools } = entry { Some(tools.clone()) } else { None };
        // Asked only where they are there: what comes next may well be something else.
        if self.timeline.peek(pick).is_some()
            && let Took::Taken(tools) = self.timeline.take(pick)
        {
            *specs = tools.into();
        }
        specs.clone()
    }

    fn check(&self, _run_id: &str, call: &ToolCall) -> Check {
        let pick = |entry: &Entry| match entry {
            Entry::Check { call: recorded, found } if recorded == call => Some(found.clone()),
            _ => None,
        };
        match self.timeline.take(pick) {
            Took::Taken(found) => found.into(),
            Took::NotMine => {
                self.timeline.diverge(&format!("the check of a call `{}` ({}): {}", call.name, call.id, call.arguments));
                refused()
            }
            Took::Never => refused(),
        }
    }

    fn generation(&self) -> u64 {
        let pick = |entry: &Entry| if let Entry::Generation { generation } = entry { Some(*generation) } else { None };
        if self.timeline.peek(pick).is_some()
            && let Took::Taken(generation) = self.timeline.take(pick)
        {
            self.generation.store(generation, Ordering::Relaxed);
        }
        self.generation.load(Ordering::Relaxed)
    }

    fn call<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let attempt = || {
                while let Some((id, report)) = self.timeline.peek(progress)
                    && id == call.id
                {
                    let before = self.timeline.peek(progress);
                    if let Some(sink) = &context.progress {
                        sink(report);
                    }
                    // The run kept the report to itself.
                    if before == self.timeline.peek(progress) {
                        break;
                    }
                }
                self.timeline.take(|entry| match entry {
                    Entry::Outcome { call: recorded, attempt, outcome } if recorded == call && *attempt == context.attempt => {
                        Some((**outcome).clone())
                    }
                    _ => None,
                })
            };
            self.timeline.wait(&format!("a call `{}` ({}) is waited for", call.name, call.id), attempt).await
        })
    }
}

fn progress(entry: &Entry) -> Option<(String, Progress)> {
    let Entry::Event { event } = entry else { return None };
    match kind(event)? {
        EventKind::ToolProgress { call_id, done, total, message } => Some((call_id, Progress { done, total, message })),
        _ => None,
    }
}

fn refused() -> Check {
    let failure = Failure::new(ErrorCode::HOST_INTERNAL, "the replay has left the recording");
    Check::Refused(Box::new(ToolOutcome::refused(ToolStatus::NotExecuted, failure)))
}

struct ReplayApprover {
    timeline: Arc<Timeline>,
}

impl Approver for ReplayApprover {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Approval> {
        Box::pin(async move {
            let pick = |entry: &Entry| match entry {
                Entry::Approval { question: recorded, approval } if **recorded == *question => Some(*approval),
                _ => None,
            };
            match self.timeline.take(pick) {
                Took::Taken(approval) => approval,
                Took::Never => std::future::pending().await,
                Took::NotMine => {
                    self.timeline.diverge(&format!("a question about `{}/{}`", question.plugin, question.tool));
                    Approval::No
                }
            }
        })
    }
}
