//! Makes any history one that providers accept. Runs before every request, on a copy; what is stored stays as it was.
//!
//! Histories go wrong in many ways: a run is interrupted between a call and its result, a cut falls between them, a model writes
//! arguments that are not JSON, a provider repeats ids. Each of these makes a provider refuse the request, and every later one, so the
//! conversation would be lost. [`normalise`] has an answer for each, and [`validate_history`] knows the providers' rules by itself.

mod fuzz;
mod validate;
mod wire;

use std::collections::{HashMap, HashSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::message::{Message, Part, Role, ToolCall, ToolResult, ToolStatus};
use wire::{clean_arguments, clean_text, wire_name};

pub use fuzz::{fuzz_arguments, fuzz_normalise};
pub use validate::validate_history;
pub use wire::{is_wire_name, normalise_tools};

/// What a provider demands of a history, as data.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireRules {
    /// Which reasoning is sent back.
    pub reasoning: ReasoningReplay,
    /// Neighbouring messages of one role become one.
    pub merge_same_role: bool,
    /// The first message is the user's.
    pub starts_with_user: bool,
    /// The longest id of a call, in bytes.
    pub max_id_bytes: usize,
}

/// Which reasoning is sent back to the provider it came from.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningReplay {
    /// None. Every provider accepts a history without it.
    Omit,
    /// Only blocks that were kept exactly as received: a signature covers them, and half a block is refused.
    Exact,
    /// All of it, for providers that demand the text of reasoning back.
    Text,
}

impl WireRules {
    /// OpenAI-compatible chat completions.
    pub fn openai() -> Self {
        Self { reasoning: ReasoningReplay::Omit, merge_same_role: true, starts_with_user: true, max_id_bytes: 40 }
    }

    /// Anthropic messages.
    pub fn anthropic() -> Self {
        Self { reasoning: ReasoningReplay::Exact, merge_same_role: true, starts_with_user: true, max_id_bytes: 64 }
    }
}

impl Default for WireRules {
    /// What both families accept, with reasoning where it is known exactly; an adapter may still leave that out.
    fn default() -> Self {
        Self { reasoning: ReasoningReplay::Exact, ..Self::openai() }
    }
}

/// What stands in for a result that never came.
const NO_RESULT: &str = "interrupted: this call has no result; it may or may not have had effects";
/// What stands in for an empty result: an empty block is refused.
const EMPTY_RESULT: &str = "(no output)";
/// What the user says where a rule wants the user to speak and nobody did.
const CONTINUE: &str = "Continue.";
/// What stands in front of a history whose beginning was cut off.
const OMITTED: &str = "(The beginning of this conversation is left out.)";

/// Returns an equivalent history that a provider with these rules accepts.
///
/// In the result: calls have ids that are unique, legal, and the same in call and result (`provider_id` is used up and empty); each
/// call is answered, by exactly one message right behind its own, in call order; a call without a result is answered with
/// [`ToolStatus::Interrupted`], a result without a call is left out; arguments are JSON objects; names are legal; no text is blank or
/// holds NUL; reasoning is whole or absent; roles alternate; the first and the last word are not the model's. The result for a prefix
/// of a history is a prefix of the result, but for its last messages, so that providers can cache it.
pub fn normalise(messages: &[Message], rules: &WireRules) -> Vec<Message> {
    let mut results = Results::collect(messages);
    let mut ids = Ids { max_bytes: rules.max_id_bytes, ..Ids::default() };
    let mut out = Vec::with_capacity(messages.len() + 2);
    for (index, message) in messages.iter().enumerate() {
        match message.role {
            Role::Assistant => push_assistant(&mut out, message, index, &mut results, &mut ids, rules),
            // Text in a tool message is the host's word on the results before it: the user says it.
            Role::User | Role::Tool => {
                let parts: Vec<Part> = message.parts.iter().filter_map(text_part).collect();
                push(&mut out, Role::User, parts, rules);
            }
        }
    }
    if rules.starts_with_user && out.first().is_none_or(|first| first.role != Role::User) {
        out.insert(0, Message::user(if out.is_empty() { CONTINUE } else { OMITTED }));
    }
    if out.last().is_none_or(|last| last.role == Role::Assistant) {
        out.push(Message::user(CONTINUE));
    }
    out
}

fn push_assistant(
    out: &mut Vec<Message>,
    message: &Message,
    index: usize,
    results: &mut Results<'_>,
    ids: &mut Ids,
    rules: &WireRules,
) {
    let mut parts = Vec::with_capacity(message.parts.len());
    let mut answers = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text { .. } => parts.extend(text_part(part)),
            Part::Reasoning(reasoning) => {
                let kept = match rules.reasoning {
                    ReasoningReplay::Omit => false,
                    ReasoningReplay::Exact => reasoning.raw.is_some(),
                    ReasoningReplay::Text => reasoning.raw.is_some() || !clean_text(&reasoning.text).trim().is_empty(),
                };
                if kept {
                    parts.push(part.clone());
                }
            }
            Part::ToolCall(call) => {
                let id = ids.wire_id(call);
                let name = wire_name(&call.name);
                let answer = results.take(&call.id, index);
                answers.push(Part::ToolResult(ToolResult {
                    call_id: id.clone(),
                    name: name.clone(),
                    status: answer.map_or(ToolStatus::Interrupted, |answer| answer.status),
                    text: answer.map_or_else(|| NO_RESULT.to_owned(), |answer| result_text(&answer.text)),
                }));
                parts.push(Part::ToolCall(ToolCall { id, provider_id: None, name, arguments: clean_arguments(&call.arguments) }));
            }
            // The results of calls are gathered from wherever they stand.
            Part::ToolResult(_) => {}
        }
    }
    // A message of reasoning alone is refused.
    if parts.iter().all(|part| matches!(part, Part::Reasoning(_))) {
        return;
    }
    push(out, Role::Assistant, parts, rules);
    if !answers.is_empty() {
        out.push(Message { role: Role::Tool, parts: answers });
    }
}

fn push(out: &mut Vec<Message>, role: Role, parts: Vec<Part>, rules: &WireRules) {
    if parts.is_empty() {
        return;
    }
    match out.last_mut() {
        Some(last) if rules.merge_same_role && last.role == role => {
            last.parts.extend(parts);
            // Reasoning is only legal where the provider put it, at the head of a turn of its own.
            last.parts.retain(|part| !matches!(part, Part::Reasoning(_)));
        }
        _ => out.push(Message { role, parts }),
    }
}

fn text_part(part: &Part) -> Option<Part> {
    let Part::Text { text } = part else { return None };
    let text = clean_text(text);
    (!text.trim().is_empty()).then(|| Part::text(text))
}

fn result_text(text: &str) -> String {
    let text = clean_text(text);
    if text.trim().is_empty() { EMPTY_RESULT.to_owned() } else { text.into_owned() }
}

/// The results of a history, by the call that they answer, in order.
struct Results<'a>(HashMap<&'a str, VecDeque<(usize, &'a ToolResult)>>);

impl<'a> Results<'a> {
    fn collect(messages: &'a [Message]) -> Self {
        let mut results: HashMap<&str, VecDeque<_>> = HashMap::new();
        for (index, message) in messages.iter().enumerate() {
            for part in &message.parts {
                if let Part::ToolResult(result) = part {
                    results.entry(&result.call_id).or_default().push_back((index, result));
                }
            }
        }
        Self(results)
    }

    /// The first result of a call that comes after it. One from before belongs to another call of the same id.
    fn take(&mut self, call_id: &str, after: usize) -> Option<&'a ToolResult> {
        let queue = self.0.get_mut(call_id)?;
        while let Some((index, result)) = queue.pop_front() {
            if index > after {
                return Some(result);
            }
        }
        None
    }
}

/// Chooses the id that a call has on the wire.
#[derive(Default)]
struct Ids {
    used: HashSet<String>,
    minted: usize,
    max_bytes: usize,
}

impl Ids {
    /// The provider's own id if it is legal and new; else the host's; else a number.
    fn wire_id(&mut self, call: &ToolCall) -> String {
        for id in call.provider_id.iter().chain([&call.id]) {
            let legal = !id.is_empty() && id.len() <= self.max_bytes && id.bytes().all(wire::is_wire_byte);
            if legal && self.used.insert(id.clone()) {
                return id.clone();
            }
        }
        loop {
            self.minted += 1;
            let id = format!("call_{}", self.minted);
            if self.used.insert(id.clone()) {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests;
