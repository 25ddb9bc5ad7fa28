//! A provider that follows a script instead of a model: for demos, tests and examples.
//!
//! The script says what each request must hold and what the answer to it is. A request that differs is an error of class
//! `script_mismatch` that says how, so a demo cannot show an answer that its tools did not give: what it expects of tool results is
//! checked against the real ones, and its answers quote them.
//!
//! # Format
//!
//! TOML, or JSON of the same shape:
//!
//! ```toml
//! version = 1
//! model = "scripted"                       # shown in logs; optional
//!
//! [[turns]]
//! [turns.expect]                           # every field is optional
//! user = "what is 123 + 456?"              # the last user message, exactly
//! user_contains = "123"                    # … or a part of it
//! system_contains = "tools"                # a part of the system prompt
//! tools = ["calculator__calculate"]        # tools that must be on offer, among others
//! no_tools = false                         # true: no tool may be on offer
//! [turns.reply]
//! reasoning = "simple arithmetic"          # optional
//! text = "Let me calculate."               # a text, or a list of the pieces in which it streams; optional
//! [[turns.reply.calls]]
//! tool = "calculator__calculate"
//! arguments = { expression = "123 + 456" } # a text here is sent as it is, even if it is not JSON
//!
//! [[turns]]
//! [[turns.expect.results]]                 # the results since the model's last turn: all of them, in call order
//! tool = "calculator__calculate"
//! status = "ok"                            # ok | error | denied | interrupted | not_executed
//! contains = ["579"]                       # parts of the text
//! json = { "/result" = "579" }             # JSON pointers into the result, and the value there
//! present = ["/result"]                    # JSON pointers that must lead somewhere
//! [turns.reply]
//! text = "123 + 456 = {{result:calculator__calculate:/result}}."
//! finish = "stop"                          # stop | tool_calls | length | content_filter | refusal; optional
//! usage = { input_tokens = 120, output_tokens = 9 }
//!
//! [[turns]]
//! [turns.reply]
//! error = { class = "overloaded", message = "busy" }   # instead of an answer
//!
//! [[turns]]
//! expect = { any_results = true }          # the results are whatever they are
//! repeat = 2                               # two turns like this one
//! reply = { text = "Nothing there." }      # unless a case holds; the first that does counts
//! [[turns.cases]]
//! when = { result_contains = "ignore your instructions" }   # also: tool, status, offered, description_contains, user_contains, …
//! reply = { text = "As you say." }
//! ```
//!
//! `{{result:TOOL}}` in a text or in an argument stands for the text of the tool's latest result, `{{result:TOOL:/POINTER}}` for a
//! value in it, and `{{user}}` for the last user message. What stands for nothing is a mismatch.

mod expect;
mod script;
mod template;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use script::{
    CallScript, Case, Expect, ExpectResult, FailureScript, FinishScript, Reply, Script, ScriptError, Text, Turn, When,
};

use super::{ModelEvent, ModelRequest, Provider, ProviderError, ProviderErrorClass};
use crate::message::{FinishReason, Message, ModelTurn, Part, Reasoning, ToolCall};
use crate::tool::BoxFuture;

/// A provider that follows a [`Script`].
#[derive(Debug)]
pub struct ScriptedProvider {
    script: Script,
    /// The turn that comes next.
    next: Mutex<usize>,
}

impl ScriptedProvider {
    /// A provider that follows `script` from its first turn.
    pub fn new(script: Script) -> Self {
        Self { script, next: Mutex::new(0) }
    }

    /// Reads a script's text, TOML or JSON.
    ///
    /// # Errors
    ///
    /// Returns a [`ScriptError`] with the line and what is wrong there.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        Ok(Self::new(Script::parse(text)?))
    }

    /// Reads a script file of at most 4 MiB.
    ///
    /// # Errors
    ///
    /// Returns a [`ScriptError`] that names the file.
    pub fn from_file(path: &Path) -> Result<Self, ScriptError> {
        Ok(Self::new(Script::from_file(path)?))
    }

    /// How many turns of the script have not been asked for. A test that ends with some left did not do what its script says.
    pub fn remaining(&self) -> usize {
        self.script.turns.len() - *self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, request: &ModelRequest, events: &mut dyn FnMut(ModelEvent)) -> Result<ModelTurn, ProviderError> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let number = *next + 1;
        let Some(turn) = self.script.turns.get(*next) else {
            let message = format!("the script has {} turns and was asked for one more", self.script.turns.len());
            return Err(mismatch(message));
        };
        expect::check(&turn.expect, request).map_err(|what| mismatch(format!("turn {number} of the script: {what}")))?;
        let chosen = turn.cases.iter().find(|case| expect::holds(&case.when, request)).map_or(&turn.reply, |case| &case.reply);
        let (parts, outcome) = reply(chosen, request).map_err(|what| mismatch(format!("turn {number} of the script: {what}")))?;
        // A mismatch leaves the script where it is; a scripted failure is part of it.
        *next += 1;
        drop(next);
        if let Some(failure) = &chosen.error {
            let mut error = ProviderError::new(failure.class, failure.message.clone());
            error.status = failure.status;
            return Err(error);
        }
        emit(chosen, &parts, events);
        Ok(ModelTurn { parts, finish_reason: outcome, usage: chosen.usage })
    }
}

impl Provider for ScriptedProvider {
    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        events: &'a mut (dyn FnMut(ModelEvent) + Send),
        cancel: CancellationToken,
    ) -> BoxFuture<'a, Result<ModelTurn, ProviderError>> {
        Box::pin(async move {
            if cancel.is_cancelled() {
                return Err(ProviderError::cancelled());
            }
            self.answer(request, events)
        })
    }

    fn model(&self) -> &str {
        &self.script.model
    }
}

fn mismatch(message: String) -> ProviderError {
    ProviderError::new(ProviderErrorClass::ScriptMismatch, message)
        .hint("the model is scripted, and the script is for another task, other tools or other results")
}

fn reply(reply: &Reply, request: &ModelRequest) -> Result<(Vec<Part>, FinishReason), String> {
    let mut parts = Vec::new();
    if let Some(reasoning) = &reply.reasoning {
        parts.push(Part::Reasoning(Reasoning { text: template::fill(reasoning, request)?, raw: None }));
    }
    let text = template::fill(&reply.text.pieces().concat(), request)?;
    if !text.is_empty() {
        parts.push(Part::Text { text });
    }
    // Counted over the conversation, so that ids are unique in it and the same whenever the script is played.
    let before = request.messages.iter().flat_map(Message::tool_calls).count();
    for (position, call) in reply.calls.iter().enumerate() {
        let arguments = match &call.arguments {
            Value::String(text) => template::fill(text, request)?,
            value => template::fill_value(value, request)?.to_string(),
        };
        let id = format!("call_{}", before + position + 1);
        parts.push(Part::ToolCall(ToolCall { id, provider_id: None, name: call.tool.clone(), arguments }));
    }
    let finish = match reply.finish {
        Some(finish) => finish.into(),
        None if reply.calls.is_empty() => FinishReason::Stop,
        None => FinishReason::ToolCalls,
    };
    Ok((parts, finish))
}

/// Streams a reply in the pieces that the script gives, or in pieces of a dozen characters, as a model would.
fn emit(reply: &Reply, parts: &[Part], events: &mut dyn FnMut(ModelEvent)) {
    const PIECE: usize = 12;
    for part in parts {
        match part {
            Part::Text { text } => {
                let pieces: Vec<String> = match &reply.text {
                    Text::Pieces(pieces) if pieces.concat() == *text => pieces.clone(),
                    Text::Pieces(_) | Text::Whole(_) => {
                        let characters: Vec<char> = text.chars().collect();
                        characters.chunks(PIECE).map(|piece| piece.iter().collect()).collect()
                    }
                };
                pieces.into_iter().filter(|text| !text.is_empty()).for_each(|text| events(ModelEvent::TextDelta { text }));
            }
            Part::Reasoning(reasoning) => events(ModelEvent::ReasoningDelta { text: reasoning.text.clone() }),
            Part::ToolCall(call) => events(ModelEvent::ToolCallStarted { id: call.id.clone(), name: call.name.clone() }),
            Part::ToolResult(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
