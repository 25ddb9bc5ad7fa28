//! The calls of one turn, from the model's wish to the results in call order. Each call ends exactly once.

use serde::{Deserialize, Serialize};

use super::parts::replace;
use super::{CheckedCall, PendingApproval, PendingCall, Run, State, Step};
use crate::agent::context::display::ResultDisplay;
use crate::agent::context::results::{READ_RESULT, read_result_spec};
use crate::agent::context::summary;
use crate::agent::event::{EventKind, ToolCompleted, Verdict};
use crate::agent::loop_guard::LoopVerdict;
use crate::agent::stop::StopReason;
use crate::message::{Message, Part, Role, ToolCall, ToolResult, ToolStatus};
use crate::text;
use crate::tool::{Approval, CallUsage, Check, Content, ErrorCode, Failure, Question, ToolHints, ToolOutcome, ToolSpec};

/// The list of tools that an unknown name is answered with is not longer than this, in bytes.
const MAX_TOOL_LIST: usize = 4 * 1024;
/// What events show of a result, in bytes.
const MAX_PREVIEW: usize = 500;

/// One call of a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Slot {
    call: ToolCall,
    state: SlotState,
    attempt: u32,
    hints: ToolHints,
    /// The model named no tool, or gave unusable arguments.
    invalid: bool,
    result: Option<ToolResult>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SlotState {
    Unchecked,
    Asking(Box<Question>),
    Cleared(Option<Approval>),
    Started(Option<Approval>),
    Summarising,
    Done,
}

impl Slot {
    pub(super) fn new(call: ToolCall) -> Self {
        Self { call, state: SlotState::Unchecked, attempt: 0, hints: ToolHints::default(), invalid: false, result: None }
    }

    pub(super) fn scrubbed(&self, scrub: &super::parts::Scrub<'_>) -> Self {
        let mut slot = self.clone();
        replace(&mut slot.call.arguments, scrub);
        if let Some(result) = &mut slot.result {
            replace(&mut result.text, scrub);
        }
        if let SlotState::Asking(_) = slot.state {
            // It is asked anew, and what a person was shown is not needed for that.
            slot.state = SlotState::Unchecked;
        }
        slot
    }

    fn is_cleared(&self) -> bool {
        matches!(self.state, SlotState::Cleared(_))
    }
}

/// Whether each call has its outcome.
pub(super) fn all_done(slots: &[Slot]) -> bool {
    slots.iter().all(|slot| matches!(slot.state, SlotState::Done | SlotState::Summarising))
}

fn is_idempotent(tools: &[ToolSpec], name: &str) -> bool {
    tools.iter().any(|tool| tool.name == name && tool.hints.idempotent)
}

/// Tells of a call that is not executed.
pub(super) fn not_executed_event(call: &ToolCall, why: &str) -> EventKind {
    let outcome = ToolOutcome::refused(ToolStatus::NotExecuted, Failure::new(ErrorCode::CALL_CANCELLED, why));
    completed_event(call, &outcome, why.len(), false, why)
}

impl Run {
    /// Takes what was found about the calls of [`Step::CheckCalls`].
    pub fn on_checks(&mut self, checks: Vec<CheckedCall>, now_ms: u64) {
        self.tick(now_ms);
        for CheckedCall { call_id, arguments, check } in checks {
            let Some(index) = self.find(&call_id, |state| *state == SlotState::Unchecked) else { continue };
            let slot = &mut self.slots_mut()[index];
            if let Some(arguments) = arguments {
                slot.call.arguments = arguments;
            }
            let call = slot.call.clone();
            // A hook answered in the tool's place, whatever the call looks like.
            if let Check::Refused(outcome) = &check
                && outcome.status == ToolStatus::Ok
            {
                self.complete(index, outcome);
                continue;
            }
            if call.name == READ_RESULT {
                self.read_result(index, &call);
                continue;
            }
            let Some(spec) = self.tools.iter().find(|tool| tool.name == call.name) else {
                match check {
                    // There may be such a tool, which is not on offer because it is denied: then that is what the operator must see.
                    Check::Refused(_) => self.decide(index, &call, check),
                    Check::Ready | Check::Ask(_) => {
                        let failure = self.unknown_tool(&call.name);
                        self.refuse_invalid(index, failure);
                    }
                }
                continue;
            };
            let hints = spec.hints;
            self.slots_mut()[index].hints = hints;
            if let Err(problem) = call.parse_arguments() {
                let failure = Failure::new(ErrorCode::ARGS_INVALID, format!("arguments of `{}`: {problem}", call.name));
                self.refuse_invalid(index, failure.hint("give one JSON object that fits the tool's schema"));
                continue;
            }
            self.decide(index, &call, check);
        }
        self.settle();
    }

    fn decide(&mut self, index: usize, call: &ToolCall, check: Check) {
        let mut tell = |decision, error| {
            let (call_id, name) = (call.id.clone(), call.name.clone());
            self.outbox.push(EventKind::PolicyDecision { call_id, name, decision, error });
        };
        match check {
            Check::Ready => {
                tell(Verdict::Allow, None);
                self.slots_mut()[index].state = SlotState::Cleared(None);
            }
            Check::Ask(question) => {
                tell(Verdict::Ask, None);
                self.slots_mut()[index].state = SlotState::Asking(question);
            }
            Check::Refused(outcome) => {
                if outcome.status == ToolStatus::Denied {
                    tell(Verdict::Deny, outcome.error.clone());
                }
                let code = outcome.error.as_ref().map(|error| &error.code);
                let invalid = code.is_some_and(|code| *code == ErrorCode::ARGS_INVALID || *code == ErrorCode::TOOL_UNKNOWN);
                self.slots_mut()[index].invalid = invalid;
                self.complete(index, &outcome);
            }
        }
    }

    /// Takes a person's answer for one call of [`Step::AskApproval`]. `remembered`: it was given for an earlier call.
    pub fn on_approval(&mut self, call_id: &str, approval: Approval, remembered: bool, now_ms: u64) {
        self.tick(now_ms);
        let Some(index) = self.find(call_id, |state| matches!(state, SlotState::Asking(_))) else { return };
        self.outbox.push(EventKind::ApprovalResolved { call_id: call_id.to_owned(), approval, remembered });
        if approval == Approval::No {
            let failure = Failure::new(ErrorCode::POLICY_DENIED, "the user did not allow this call; it did not run");
            self.complete(index, &ToolOutcome::refused(ToolStatus::Denied, failure));
        } else {
            self.slots_mut()[index].state = SlotState::Cleared(Some(approval));
        }
        self.settle();
    }

    /// Takes note that calls of [`Step::CallTools`] start now. To be stored before they do: what was started may have had effects.
    pub fn on_started(&mut self, call_ids: &[String], now_ms: u64) {
        self.tick(now_ms);
        for call_id in call_ids {
            let Some(index) = self.find(call_id, |state| matches!(state, SlotState::Cleared(_))) else { continue };
            self.usage.tool_calls = self.usage.tool_calls.saturating_add(1);
            let slot = &mut self.slots_mut()[index];
            if let SlotState::Cleared(approval) = slot.state {
                slot.state = SlotState::Started(approval);
            }
            slot.attempt += 1;
            let event =
                EventKind::ToolStarted { call_id: slot.call.id.clone(), name: slot.call.name.clone(), attempt: slot.attempt };
            self.outbox.push(event);
        }
    }

    /// Takes back what [`Run::on_started`] was told, for calls that could not be started.
    pub(in crate::agent) fn on_not_started(&mut self, call_ids: &[String], why: &Failure, now_ms: u64) {
        self.tick(now_ms);
        for call_id in call_ids {
            let Some(index) = self.find(call_id, |state| matches!(state, SlotState::Started(_))) else { continue };
            self.usage.tool_calls = self.usage.tool_calls.saturating_sub(1);
            let message = format!("not executed: {}", why.message);
            self.complete(index, &ToolOutcome::refused(ToolStatus::NotExecuted, Failure::new(why.code.clone(), message)));
        }
    }

    /// Whether calls are started, without an outcome so far, that must not be started again.
    pub(crate) fn has_started_calls(&self) -> bool {
        self.slots().iter().any(|slot| matches!(slot.state, SlotState::Started(_)) && !slot.hints.idempotent)
    }

    /// Forgets what a person answered or was asked, as read from where anybody might have written it.
    pub(super) fn forget_approvals(&mut self) {
        for slot in self.slots_mut() {
            let idempotent = slot.hints.idempotent;
            match &mut slot.state {
                SlotState::Asking(_) | SlotState::Cleared(Some(_)) => slot.state = SlotState::Unchecked,
                SlotState::Started(Some(_)) if idempotent => slot.state = SlotState::Unchecked,
                SlotState::Started(approval) => *approval = None,
                SlotState::Unchecked | SlotState::Cleared(None) | SlotState::Summarising | SlotState::Done => {}
            }
        }
    }

    /// Takes the outcome of one call of [`Step::CallTools`]. False if the call was not started, or has
    /// an outcome already: then nothing changes.
    pub fn on_tool(&mut self, call_id: &str, outcome: &ToolOutcome, now_ms: u64) -> bool {
        self.tick(now_ms);
        let Some(index) = self.find(call_id, |state| matches!(state, SlotState::Started(_))) else { return false };
        self.complete(index, outcome);
        self.settle();
        true
    }

    pub(super) fn next_action(&mut self) -> Option<Step> {
        self.recover_calls();
        self.refuse_over_budget();
        self.settle();
        let State::Act { slots } = &self.state else { return None };
        let unchecked: Vec<_> =
            slots.iter().filter(|slot| slot.state == SlotState::Unchecked).map(|slot| slot.call.clone()).collect();
        if !unchecked.is_empty() {
            return Some(Step::CheckCalls(unchecked));
        }
        let asking: Vec<_> = slots
            .iter()
            .filter_map(|slot| match &slot.state {
                SlotState::Asking(question) => {
                    Some(PendingApproval { call_id: slot.call.id.clone(), question: (**question).clone() })
                }
                _ => None,
            })
            .collect();
        if !asking.is_empty() {
            for PendingApproval { call_id, question } in asking.clone() {
                let Question { plugin, tool, rule, .. } = question;
                self.outbox.push(EventKind::ApprovalRequested { call_id, plugin, tool, rule });
            }
            return Some(Step::AskApproval(asking));
        }
        let group = self.next_group();
        if !group.is_empty() {
            return Some(Step::CallTools(group));
        }
        let slot = self.slots().iter().find(|slot| slot.state == SlotState::Summarising)?;
        let whole = self.kept.get(&slot.call.id).unwrap_or_default();
        let max_bytes = self.settings.display.for_tool(&slot.call.name).max_bytes;
        Some(Step::Summarise(Box::new(summary::result_request(&slot.call.name, whole, max_bytes, self.page_tokens()))))
    }

    /// The calls that run next: neighbours that only read run side by side; any other runs alone, after those before it.
    fn next_group(&self) -> Vec<PendingCall> {
        let mut room = self.settings.budget.max_tool_calls.saturating_sub(self.usage.tool_calls);
        let mut group = Vec::new();
        for slot in self.slots().iter().filter(|slot| slot.is_cleared()) {
            let SlotState::Cleared(approval) = slot.state else { continue };
            if room == 0 || !(group.is_empty() || slot.hints.read_only) {
                break;
            }
            room -= 1;
            group.push(PendingCall {
                call: slot.call.clone(),
                approval,
                attempt: slot.attempt + 1,
                idempotency_key: format!("{}:{}", self.id, slot.call.id),
            });
            if !slot.hints.read_only {
                break;
            }
        }
        group
    }

    /// A call that was started, and whose driver is gone, runs again only if that does no harm.
    fn recover_calls(&mut self) {
        let tools = self.tools.clone();
        for index in 0..self.slots().len() {
            let slot = &mut self.slots_mut()[index];
            let SlotState::Started(approval) = slot.state else { continue };
            // What the tool declares now counts as well: it may have been replaced since.
            if slot.hints.idempotent && is_idempotent(&tools, &slot.call.name) {
                slot.state = SlotState::Cleared(approval);
            } else {
                let message = "interrupted: the call was started and its outcome is unknown; it may have had effects";
                let failure = Failure::new(ErrorCode::CALL_CANCELLED, message);
                self.complete(index, &ToolOutcome::refused(ToolStatus::Interrupted, failure));
            }
        }
    }

    fn refuse_over_budget(&mut self) {
        let budget = &self.settings.budget;
        let over = if self.usage.tool_calls >= budget.max_tool_calls {
            Some("tool calls")
        } else if budget.max_fuel.is_some_and(|fuel| self.usage.fuel >= fuel) {
            Some("fuel")
        } else {
            None
        };
        let Some(what) = over else { return };
        for index in 0..self.slots().len() {
            if matches!(self.slots()[index].state, SlotState::Unchecked | SlotState::Asking(_) | SlotState::Cleared(_)) {
                let failure = Failure::new(ErrorCode::LIMIT_RUN, format!("not executed: the run's budget of {what} is used up"));
                self.complete(index, &ToolOutcome::refused(ToolStatus::NotExecuted, failure));
            }
        }
    }

    pub(super) fn drop_excess_calls(&mut self) {
        let max = self.settings.max_calls_per_turn;
        for index in max..self.slots().len() {
            let failure = Failure::new(ErrorCode::LIMIT_RUN, format!("not executed: a turn may hold {max} calls at most"));
            self.complete(index, &ToolOutcome::refused(ToolStatus::NotExecuted, failure));
        }
    }

    /// Gives each call without an outcome the one that is true now, and writes all of them down.
    pub(super) fn close_calls(&mut self) {
        for index in 0..self.slots().len() {
            let (status, message) = match self.slots()[index].state {
                SlotState::Done | SlotState::Summarising => continue,
                SlotState::Started(_) => (ToolStatus::Interrupted, "interrupted: the call was stopped; it may have had effects"),
                _ => (ToolStatus::NotExecuted, "not executed: the run ended before this call was started"),
            };
            let failure = Failure::new(ErrorCode::CALL_CANCELLED, message);
            self.complete(index, &ToolOutcome::refused(status, failure));
        }
        let results = self.take_results();
        if !results.is_empty() {
            let parts = results.into_iter().map(|(_, result)| Part::ToolResult(result)).collect();
            self.messages.push(Message { role: Role::Tool, parts });
        }
    }

    fn complete(&mut self, index: usize, outcome: &ToolOutcome) {
        let slot = &self.slots()[index];
        let display = self.settings.display.for_tool(&slot.call.name);
        // A page that the model asked for is bounded already.
        let page = ResultDisplay { max_bytes: usize::MAX, ..ResultDisplay::default() };
        let display = if slot.call.name == READ_RESULT { &page } else { display };
        let shown = display.show(&slot.call.id, outcome);
        let summarise = display.summarise && outcome.status == ToolStatus::Ok && shown.text.len() > display.max_bytes;
        let call = slot.call.clone();
        let whole_bytes = shown.whole.as_ref().map_or(shown.text.len(), String::len);
        self.usage.fuel = self.usage.fuel.saturating_add(outcome.usage.fuel);
        self.usage.memory_bytes = self.usage.memory_bytes.max(outcome.usage.memory_bytes);
        self.outbox.push(completed_event(&call, outcome, whole_bytes, shown.whole.is_some(), &shown.text));
        if let Some(whole) = shown.whole {
            self.kept.keep(&call.id, whole);
        }
        let result = ToolResult { call_id: call.id, name: call.name, status: outcome.status, text: shown.text };
        let slot = &mut self.slots_mut()[index];
        slot.result = Some(result);
        slot.state = if summarise { SlotState::Summarising } else { SlotState::Done };
    }

    fn refuse_invalid(&mut self, index: usize, failure: Failure) {
        self.slots_mut()[index].invalid = true;
        self.complete(index, &ToolOutcome::refused(ToolStatus::Error, failure));
    }

    fn unknown_tool(&self, name: &str) -> Failure {
        let names: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
        let message = format!("there is no tool `{}`", text::clean_line(name, 100));
        let hint = if names.is_empty() { "there are no tools; answer without".to_owned() } else { names.join(", ") };
        Failure::new(ErrorCode::TOOL_UNKNOWN, message).hint(format!("the tools are: {}", text::clean_line(&hint, MAX_TOOL_LIST)))
    }

    fn read_result(&mut self, index: usize, call: &ToolCall) {
        self.slots_mut()[index].hints = read_result_spec().hints;
        match self.kept.read(&self.messages, &call.arguments, self.page_tokens()) {
            Ok(page) => {
                let content = vec![Content::Text { text: page }];
                let (structured, error, denials, usage) = (None, None, Vec::new(), CallUsage::default());
                self.complete(index, &ToolOutcome { status: ToolStatus::Ok, content, structured, error, denials, usage });
            }
            Err(failure) => self.refuse_invalid(index, failure),
        }
    }

    pub(super) fn on_result_summary(&mut self, summary: Option<&str>) {
        let Some(index) = self.slots().iter().position(|slot| slot.state == SlotState::Summarising) else { return };
        let slot = &self.slots()[index];
        let max_bytes = self.settings.display.for_tool(&slot.call.name).max_bytes;
        let bytes = self.kept.get(&slot.call.id).map_or(0, str::len);
        let text = summary.map(str::trim).filter(|summary| !summary.is_empty()).map(|summary| {
            let summary = text::clean(summary, max_bytes);
            let id = &slot.call.id;
            format!("[summary of a result of {bytes} bytes; {READ_RESULT}({{\"id\":\"{id}\"}}) reads the whole]\n{summary}")
        });
        let slot = &mut self.slots_mut()[index];
        slot.state = SlotState::Done;
        if let (Some(text), Some(result)) = (text, &mut slot.result) {
            result.text = text;
        }
        self.settle();
    }

    /// Once each call is done: gives the results to the model, in call order, and judges whether this leads anywhere.
    fn settle(&mut self) {
        let State::Act { slots } = &self.state else { return };
        if !slots.iter().all(|slot| slot.state == SlotState::Done) {
            return;
        }
        let usable = slots.iter().any(|slot| !slot.invalid);
        let results = self.take_results();
        self.state = State::Think;
        let (mut notes, mut stuck) = (Vec::new(), None);
        for (call, result) in &results {
            let whole = self.kept.get(&call.id).unwrap_or(&result.text);
            match self.guard.record(call, whole, self.usage.steps, &self.settings.loop_guard) {
                LoopVerdict::Fine => {}
                LoopVerdict::Warn(count) => {
                    self.outbox.push(EventKind::LoopWarning { name: call.name.clone(), count });
                    let name = text::clean_line(&call.name, 100);
                    notes.push(format!(
                        "This call of `{name}` has given the same result {count} times. Do something else, or answer with what you have."
                    ));
                }
                LoopVerdict::Stop(count) => stuck = Some((call.name.clone(), count)),
            }
        }
        let parts = results.into_iter().map(|(_, result)| Part::ToolResult(result)).collect();
        self.messages.push(Message { role: Role::Tool, parts });
        if let Some((name, count)) = stuck {
            let name = text::clean_line(&name, 100);
            let failure =
                Failure::new(ErrorCode::LIMIT_RUN, format!("the same call of `{name}` gave the same result {count} times"));
            self.finish(StopReason::LoopDetected, None, Some(failure.hint("change the task, or what the tool can reach")));
            return;
        }
        self.messages.extend(notes.into_iter().map(Message::user));
        self.count_turn(usable);
    }

    fn take_results(&mut self) -> Vec<(ToolCall, ToolResult)> {
        let State::Act { slots } = &mut self.state else { return Vec::new() };
        slots.drain(..).filter_map(|slot| slot.result.map(|result| (slot.call, result))).collect()
    }

    fn slots(&self) -> &[Slot] {
        if let State::Act { slots } = &self.state { slots } else { &[] }
    }

    fn slots_mut(&mut self) -> &mut [Slot] {
        if let State::Act { slots } = &mut self.state { slots } else { &mut [] }
    }

    fn find(&self, call_id: &str, state: impl Fn(&SlotState) -> bool) -> Option<usize> {
        self.slots().iter().position(|slot| slot.call.id == call_id && state(&slot.state))
    }
}

fn completed_event(call: &ToolCall, outcome: &ToolOutcome, bytes: usize, truncated: bool, shown: &str) -> EventKind {
    EventKind::ToolCompleted(Box::new(ToolCompleted {
        call_id: call.id.clone(),
        name: text::clean_line(&call.name, 256),
        status: outcome.status,
        code: outcome.error.as_ref().map(|error| error.code.to_string()),
        fuel: outcome.usage.fuel,
        memory_bytes: outcome.usage.memory_bytes,
        wall_us: outcome.usage.wall_us,
        bytes,
        truncated,
        preview: text::clean_line(shown, MAX_PREVIEW),
        denials: outcome.denials.clone(),
    }))
}
