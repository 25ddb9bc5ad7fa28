//! Fits a conversation into the model's window, anew before every request.
//!
//! Tiers, each only if the one before did not do: keep everything; replace old large tool results with stubs that the model can read
//! back; replace old messages with a summary; do both to what is otherwise protected; give up with a clear error. The system prompt
//! and the user's task are always sent. What is stored is never changed: a stub or summary is only how the conversation is shown.
//! Stubs and summaries stay the same byte for byte once made, so that providers' prompt caches keep working.

pub(crate) mod display;
pub(crate) mod estimate;
pub(crate) mod results;
pub(crate) mod summary;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::event::EventKind;
use crate::message::{Message, Part, Role};
use crate::provider::ModelRequest;
use estimate::{Anchor, message_bytes};

/// How a conversation is made to fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContextSettings {
    /// The model's window in tokens; 0 if unknown: then nothing is left out until the provider complains.
    pub window_tokens: u64,
    /// The most tokens of an answer; they are part of the window.
    pub max_output_tokens: Option<u32>,
    /// Part of the window that stays free, in percent, since token counts are estimates.
    pub reserve_percent: u8,
    /// The most messages that are sent; older ones are left out, at a boundary between turns. None sends all.
    pub max_history: Option<usize>,
    /// Replace old large tool results with stubs.
    pub stub: bool,
    /// Results up to this size, in bytes, are not worth a stub.
    pub stub_min_bytes: usize,
    /// The newest messages up to this many tokens are left alone as long as possible.
    pub protect_tokens: u64,
    /// Ask the model for a summary of old messages.
    pub summarise: bool,
    /// The longest summary, in bytes.
    pub summary_max_bytes: usize,
    /// How long the model may take for a summary, in milliseconds; after that, a list of what was done stands in for it.
    pub summary_timeout_ms: u64,
}

impl Default for ContextSettings {
    fn default() -> Self {
        Self {
            window_tokens: 128_000,
            max_output_tokens: None,
            reserve_percent: 5,
            max_history: None,
            stub: true,
            stub_min_bytes: 1024,
            protect_tokens: 8_000,
            summarise: true,
            summary_max_bytes: 8 * 1024,
            summary_timeout_ms: 30_000,
        }
    }
}

/// Where no limit on answers is set, this much of the window is kept for one, at most a quarter of it.
const DEFAULT_OUTPUT_TOKENS: u64 = 4_096;
/// Summaries that save less than a tenth, or fail, this often in a row are not asked for any more.
const MAX_INEFFECTIVE: u32 = 3;

/// What was done so far to make the conversation fit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ContextState {
    /// Stubs, by call.
    pub(crate) stubs: BTreeMap<String, String>,
    /// Stands for all messages before `from`.
    summary: Option<String>,
    /// The first message that is shown.
    from: usize,
    /// Summaries in a row that did not help.
    ineffective: u32,
    /// The summary that was asked for: it will stand for messages up to here.
    pending: Option<usize>,
    /// Size of the last request, and what the provider said of it.
    last_bytes: u64,
    last_tokens: u64,
    anchor: Option<Anchor>,
    /// A limit that the provider enforces and the settings do not know.
    learned_limit: Option<u64>,
}

impl ContextState {
    /// Takes the provider's count of the last request.
    pub(crate) fn set_anchor(&mut self, input_tokens: u64) {
        if let Some(anchor) = Anchor::new(self.last_bytes, input_tokens) {
            self.anchor = Some(anchor);
        }
    }

    /// Takes note that the last request was too large for the provider, whatever the settings say.
    pub(crate) fn overflowed(&mut self) {
        let limit = self.last_tokens * 7 / 10;
        self.learned_limit = Some(self.learned_limit.map_or(limit, |known| known.min(limit)));
    }

    /// All but the stubs, which are stored on their own. Its size has a bound.
    pub(crate) fn without_stubs(&self, scrub: &super::run::Scrub<'_>) -> Self {
        let summary = self.summary.as_deref().map(|summary| scrub(summary).into_owned());
        Self { stubs: BTreeMap::new(), summary, ..*self }
    }

    /// Whether the model can see less than there is, and so may want to read results back.
    pub(crate) fn is_trimmed(&self) -> bool {
        !self.stubs.is_empty() || self.from > 0
    }
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Plan {
    /// Send these messages, of this estimated size.
    Send { messages: Vec<Message>, tokens: u64 },
    /// Ask for a summary first.
    Summarise(Box<ModelRequest>),
    /// Nothing helps.
    Overflow { tokens: u64, limit: u64 },
}

/// Builds one request's messages from a conversation.
pub(crate) struct ContextManager<'a> {
    pub(crate) settings: &'a ContextSettings,
    pub(crate) state: &'a mut ContextState,
    history: &'a [Message],
    /// The user's last task: always sent.
    task: usize,
    /// Size of system prompt and tools.
    fixed_bytes: u64,
    /// Reasoning before this message is another model's, or of unknown origin, and is not shown.
    pub(crate) reasoning_from: usize,
    sizes: Vec<u64>,
    /// The sum of `sizes` from `state.from` on, kept so that stubbing stays linear in the history.
    shown_bytes: u64,
    events: Vec<EventKind>,
}

impl<'a> ContextManager<'a> {
    pub(crate) fn new(
        settings: &'a ContextSettings,
        state: &'a mut ContextState,
        history: &'a [Message],
        task: usize,
        fixed_bytes: u64,
    ) -> Self {
        let sizes: Vec<u64> = history.iter().map(|message| message_bytes(message, &state.stubs)).collect();
        // A state from elsewhere may speak of messages that are not there.
        state.from = state.from.min(history.len());
        let shown_bytes = sizes[state.from..].iter().sum();
        Self { settings, state, history, task, fixed_bytes, reasoning_from: 0, sizes, shown_bytes, events: Vec::new() }
    }

    /// Decides what to do, with the events that tell of it.
    pub(crate) fn plan(mut self) -> (Plan, Vec<EventKind>) {
        self.cut_to_max_history();
        let limit = self.limit();
        let plan = self.fit(limit);
        (plan, self.events)
    }

    /// Takes the summary that was asked for, or makes do without; returns the event that tells of it.
    pub(crate) fn finish_summary(mut self, text: Option<&str>) -> Vec<EventKind> {
        if let Some(upto) = self.state.pending.take().filter(|upto| (self.state.from..=self.history.len()).contains(upto)) {
            self.summarise(upto, text);
        }
        self.events
    }

    fn fit(&mut self, limit: u64) -> Plan {
        if self.tokens() <= limit {
            return self.send();
        }
        let tail = self.tail();
        // Well below the limit, or each step would stub one result and void the provider's cache each time.
        self.stub(self.state.from..tail, limit / 4 * 3, "stub");
        if self.tokens() <= limit {
            return self.send();
        }
        if let Some(plan) = self.compact(tail, limit) {
            return plan;
        }
        self.stub(self.state.from..self.history.len(), limit, "stub_all");
        if self.tokens() <= limit {
            return self.send();
        }
        let last_turn = self.history.iter().rposition(|message| message.role == Role::Assistant).unwrap_or(0);
        match self.compact(last_turn, limit) {
            Some(plan) => plan,
            None => Plan::Overflow { tokens: self.tokens(), limit },
        }
    }

    fn send(&mut self) -> Plan {
        self.state.last_bytes = self.bytes();
        self.state.last_tokens = self.tokens();
        Plan::Send { messages: self.view(), tokens: self.state.last_tokens }
    }

    /// Replaces the messages before a boundary at or before `end`. None if there is no such boundary, or it was not enough.
    fn compact(&mut self, end: usize, limit: u64) -> Option<Plan> {
        let upto = self.boundary(end)?;
        if self.settings.summarise && self.state.ineffective < MAX_INEFFECTIVE {
            self.state.pending = Some(upto);
            let shown = &self.history[self.state.from..upto];
            let request = summary::request(self.summary_bytes(), self.state.summary.as_deref(), shown, limit);
            return Some(Plan::Summarise(Box::new(request)));
        }
        self.summarise(upto, None);
        (self.tokens() <= limit).then(|| self.send())
    }

    fn summarise(&mut self, upto: usize, text: Option<&str>) {
        let before = self.tokens();
        let from = self.state.from;
        let text = text.map(str::trim).filter(|text| !text.is_empty());
        let shown = &self.history[from..upto];
        self.state.summary = Some(match text {
            Some(text) => summary::bounded(text, self.summary_bytes()),
            None => summary::fallback(self.state.summary.as_deref(), shown, self.summary_bytes()),
        });
        self.start_at(upto);
        let after = self.tokens();
        let helped = text.is_some() && after <= before / 10 * 9;
        self.state.ineffective = if helped { 0 } else { self.state.ineffective.saturating_add(1) };
        self.events.push(EventKind::ContextSummarised {
            messages: upto - from,
            tokens_before: before,
            tokens_after: after,
            fallback: text.is_none(),
        });
    }

    /// Stubs large results, oldest first, until the request is small enough.
    fn stub(&mut self, range: std::ops::Range<usize>, limit: u64, tier: &str) {
        if !self.settings.stub {
            return;
        }
        let before = self.tokens();
        let mut items = 0;
        for index in range {
            if self.tokens() <= limit {
                break;
            }
            for part in &self.history[index].parts {
                if let Part::ToolResult(result) = part
                    && result.text.len() > self.settings.stub_min_bytes
                    && !self.state.stubs.contains_key(&result.call_id)
                {
                    self.state.stubs.insert(result.call_id.clone(), results::stub(&result.call_id, &result.text));
                    items += 1;
                }
            }
            let size = message_bytes(&self.history[index], &self.state.stubs);
            self.shown_bytes = self.shown_bytes - self.sizes[index] + size;
            self.sizes[index] = size;
        }
        if items > 0 {
            let tier = tier.to_owned();
            self.events.push(EventKind::ContextTrimmed { tier, items, tokens_before: before, tokens_after: self.tokens() });
        }
    }

    /// Where the newest messages begin that are left alone as long as possible.
    fn tail(&self) -> usize {
        // A small window has a small tail.
        let protect = self.settings.protect_tokens.min(self.limit() / 4);
        let mut bytes = 0;
        for index in (self.state.from..self.history.len()).rev() {
            bytes += self.sizes[index];
            if Anchor::tokens(self.state.anchor, bytes) > protect {
                return index + 1;
            }
        }
        self.state.from
    }

    /// The last place at or before `end` where the history can be cut without parting a call from its result.
    fn boundary(&self, end: usize) -> Option<usize> {
        let first = self.state.from + 2;
        (first..=end.min(self.history.len().saturating_sub(1))).rev().find(|&index| self.history[index].role != Role::Tool)
    }

    fn cut_to_max_history(&mut self) {
        let Some(max) = self.settings.max_history else { return };
        let max = max.max(2);
        let shown = self.history.len() - self.state.from;
        if shown <= max {
            return;
        }
        let before = self.tokens();
        // More than one at a time, or each step would void the provider's cache.
        let start = self.history.len() - max * 3 / 4;
        let is_boundary = |index: &usize| self.history[*index].role != Role::Tool;
        let start = (start..self.history.len()).find(is_boundary).or_else(|| (0..start).rev().find(is_boundary));
        let Some(start) = start.filter(|start| *start > self.state.from) else { return };
        let items = start - self.state.from;
        self.start_at(start);
        let tier = "max_history".to_owned();
        self.events.push(EventKind::ContextTrimmed { tier, items, tokens_before: before, tokens_after: self.tokens() });
    }

    fn start_at(&mut self, index: usize) {
        self.state.from = index;
        self.shown_bytes = self.sizes[index..].iter().sum();
    }

    /// The longest summary: in a small window, about a quarter of it.
    fn summary_bytes(&self) -> usize {
        self.settings.summary_max_bytes.min(usize::try_from(self.limit()).unwrap_or(usize::MAX))
    }

    /// The most tokens that a request may have.
    fn limit(&self) -> u64 {
        limit(self.settings, self.state)
    }

    fn tokens(&self) -> u64 {
        Anchor::tokens(self.state.anchor, self.bytes())
    }

    fn bytes(&self) -> u64 {
        let task = if self.task < self.state.from { self.sizes.get(self.task).copied().unwrap_or(0) } else { 0 };
        let summary = self.state.summary.as_ref().map_or(0, |text| estimate::part_bytes(text.len()));
        self.fixed_bytes + task + summary + self.shown_bytes
    }

    /// The messages as they are shown.
    fn view(&self) -> Vec<Message> {
        let from = self.state.from;
        let mut view = Vec::with_capacity(self.history.len() - from + 2);
        view.extend(self.history.get(self.task).filter(|_| self.task < from).cloned());
        view.extend(self.state.summary.as_ref().map(Message::user));
        view.extend(self.history.iter().enumerate().skip(from).map(|(index, message)| self.shown(index, message)));
        view
    }

    fn shown(&self, index: usize, message: &Message) -> Message {
        let mut shown = Message { role: message.role, parts: Vec::with_capacity(message.parts.len()) };
        for part in &message.parts {
            if index < self.reasoning_from && matches!(part, Part::Reasoning(_)) {
                continue;
            }
            let stub = if let Part::ToolResult(result) = part { self.state.stubs.get(&result.call_id) } else { None };
            shown.parts.push(match (part, stub) {
                (Part::ToolResult(result), Some(stub)) => Part::ToolResult(crate::message::ToolResult {
                    call_id: result.call_id.clone(),
                    name: result.name.clone(),
                    status: result.status,
                    text: stub.clone(),
                }),
                _ => part.clone(),
            });
        }
        shown
    }
}

/// The most tokens that a request may have; no limit where the window is unknown.
pub(crate) fn limit(settings: &ContextSettings, state: &ContextState) -> u64 {
    let learned = state.learned_limit.unwrap_or(u64::MAX);
    if settings.window_tokens == 0 {
        return learned;
    }
    let window = settings.window_tokens;
    let output = settings.max_output_tokens.map_or(DEFAULT_OUTPUT_TOKENS.min(window / 4), u64::from);
    let reserve = window * u64::from(settings.reserve_percent.min(90)) / 100;
    window.saturating_sub(output).saturating_sub(reserve).min(learned)
}

#[cfg(test)]
mod tests;
