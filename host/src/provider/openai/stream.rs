//! Builds a turn from the chunks of a streamed chat completion.

use serde_json::Value;

use super::Answer;
use super::calls::{CallAssembler, Fragment};
use crate::message::ModelTurn;
use crate::provider::decode::{Assembler, IdSource, Progress, says_something};
use crate::provider::{ModelEvent, ProviderError};

pub(in crate::provider) struct StreamAssembler {
    answer: Answer,
    calls: CallAssembler,
    started: bool,
    ended: bool,
}

impl StreamAssembler {
    pub(in crate::provider) fn new(ids: IdSource) -> Self {
        Self { answer: Answer::default(), calls: CallAssembler::new(ids), started: false, ended: false }
    }
}

impl Assembler for StreamAssembler {
    fn event(&mut self, data: &Value, events: &mut dyn FnMut(ModelEvent)) -> Result<(), ProviderError> {
        self.answer.usage(data);
        // The usage chunk has no choices, and may come first. Further choices, which nobody asked for, would garble the first.
        let choice = data
            .get("choices")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .find(|choice| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0);
        let Some(choice) = choice else { return Ok(()) };
        self.started = true;
        // A few servers send a whole message as their only chunk.
        let delta = choice.get("delta").filter(|delta| !delta.is_null()).or_else(|| choice.get("message"));
        if let Some(delta) = delta {
            self.answer.delta(delta, events);
            if let Some(calls) = delta.get("tool_calls").and_then(Value::as_array) {
                let fragments: Vec<Fragment> = calls.iter().filter(|call| call.is_object()).map(Fragment::read).collect();
                self.calls.delta(&fragments, events)?;
            }
            if let Some(call) = delta.get("function_call").filter(|call| call.is_object()) {
                self.calls.delta(&[Fragment::read_function(call)], events)?;
            }
        }
        self.answer.finish_reason(choice)
    }

    fn has_content(&self, data: &Value) -> bool {
        let choices = data.get("choices").and_then(Value::as_array);
        let parts = ["delta", "message", "finish_reason"];
        choices.into_iter().flatten().any(|choice| parts.iter().filter_map(|part| choice.get(part)).any(says_something))
    }

    fn progress(&self) -> Progress {
        match (self.started, self.ended) {
            (true, true) => Progress::Ended,
            (true, false) if self.answer.finish.is_some() => Progress::Complete,
            (true, false) => Progress::Started,
            // An end mark alone is not an answer.
            (false, _) => Progress::Idle,
        }
    }

    fn end_mark(&mut self) {
        self.ended = true;
    }

    fn finish(self: Box<Self>, events: &mut dyn FnMut(ModelEvent)) -> Result<ModelTurn, ProviderError> {
        Ok(self.answer.into_turn(self.calls, events))
    }
}
