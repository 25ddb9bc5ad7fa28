//! The run: a state machine that decides and does nothing else.
//!
//! It reads no clock, makes no id from chance, and does no I/O: time, tools, answers and results come in as arguments, and what to do
//! comes out as a [`Step`]. So it can be stepped by hand, stored after any step, continued elsewhere, and tested without a model.
//!
//! A step stays the same until it is answered, so a run that was stored while waiting asks again. A call that was started and has no
//! outcome when the run is continued is repeated only if its tool is idempotent; else its outcome is unknown, and that is what the
//! model is told.

mod calls;
mod parts;
mod settings;
mod step;
mod turn;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::budget::Meter;
use super::context::results::{KeptResults, read_result_spec};
use super::context::{ContextManager, ContextState, Plan, estimate, limit};
use super::event::EventKind;
use super::history::{normalise, normalise_tools};
use super::loop_guard::LoopGuard;
use super::stop::{RunResult, RunUsage, StopReason};
use crate::message::{Message, ModelTurn, Part, ToolStatus};
use crate::provider::{ModelRequest, ProviderError};
use crate::text;
use crate::tool::{Conversation, ErrorCode, Failure, ToolSpec};
use calls::Slot;

pub use parts::{RunParts, Scrub, StoredParts};
pub use settings::RunSettings;
pub use step::{CheckedCall, PendingApproval, PendingCall, Phase, Step};

/// The version of a stored run. It goes up with every change that an older reader would get wrong.
pub const SCHEMA_VERSION: u32 = 1;

/// One task from its start to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    schema_version: u32,
    id: String,
    parent_id: Option<String>,
    settings: RunSettings,
    /// The whole conversation; never shortened.
    messages: Vec<Message>,
    /// Where the user's task stands in it.
    task: usize,
    state: State,
    usage: RunUsage,
    context: ContextState,
    kept: KeptResults,
    guard: LoopGuard,
    counters: Counters,
    /// A limit is reached: the next turn has no tools and is the last.
    closing: Option<StopReason>,
    /// Messages that wait to be put before the next turn.
    steering: Vec<Message>,
    /// The model that the reasoning since `reasoning_from` came from; other reasoning is never replayed.
    model: Option<String>,
    reasoning_from: usize,
    next_seq: u64,
    outbox: Vec<EventKind>,
    /// When time was last counted; a pause between two processes is not.
    #[serde(skip)]
    last_ms: Option<u64>,
    #[serde(skip)]
    tools: Arc<[ToolSpec]>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum State {
    Think,
    Act { slots: Vec<Slot> },
    Finished { result: Box<RunResult> },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Counters {
    started: bool,
    finished: bool,
    nudges: u32,
    invalid_turns: u32,
    overflows: u32,
    resumes: u32,
    minted_ids: u64,
    /// The limits that were warned of.
    warned: Vec<String>,
    /// A phase whose start was told: turn and phase.
    told: Option<(u32, Phase)>,
    /// Calls that the model made, whatever became of them.
    calls: u64,
}

/// Why a stored run cannot be continued.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It was stored by another version.
    #[error("the stored run has schema version {found}, this program reads {SCHEMA_VERSION}")]
    Version {
        /// The version that was found.
        found: u64,
    },
    /// It is damaged.
    #[error("the stored run cannot be read")]
    Malformed(#[source] serde_json::Error),
}

/// A hook may keep a run from ending this often.
const MAX_RESUMES: u32 = 3;
const CLOSING: &str = "You have reached a limit of this run and cannot call tools any more. \
Answer now with what you have, and say what is missing.";

impl Run {
    /// Starts a run on a task.
    pub fn new(id: impl Into<String>, task: impl Into<String>, settings: RunSettings) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            id: id.into(),
            parent_id: None,
            settings,
            messages: vec![Message::user(task)],
            task: 0,
            state: State::Think,
            usage: RunUsage::default(),
            context: ContextState::default(),
            kept: KeptResults::default(),
            guard: LoopGuard::default(),
            counters: Counters::default(),
            closing: None,
            steering: Vec::new(),
            model: None,
            reasoning_from: 0,
            next_seq: 0,
            outbox: Vec::new(),
            last_ms: None,
            tools: Arc::default(),
        }
    }

    /// Names the run that started this one.
    #[must_use]
    pub fn with_parent(mut self, parent_id: impl Into<String>) -> Self {
        self.parent_id = Some(parent_id.into());
        self
    }

    /// Puts an earlier conversation before the task.
    #[must_use]
    pub fn with_history(mut self, mut history: Vec<Message>) -> Self {
        self.task += history.len();
        history.append(&mut self.messages);
        self.messages = history;
        self.reasoning_from = self.task;
        self
    }

    /// Starts a run on the user's next task in the same conversation: what is known stays known, what was used is counted anew.
    #[must_use]
    pub fn follow_up(self, id: impl Into<String>, task: impl Into<String>, settings: RunSettings) -> Self {
        let mut next = Self::new(id, task, settings);
        next.parent_id = self.parent_id;
        next.task = self.messages.len();
        let task = std::mem::replace(&mut next.messages, self.messages);
        next.messages.extend(task);
        next.context = self.context;
        next.kept = self.kept;
        next.model = self.model;
        next.reasoning_from = self.reasoning_from;
        next.counters.minted_ids = self.counters.minted_ids;
        next
    }

    /// Says what is next. `tools` are those on offer now; `now_ms` is the time.
    pub fn next_step(&mut self, now_ms: u64, tools: &Arc<[ToolSpec]>) -> Step {
        self.tick(now_ms);
        self.tools = tools.clone();
        if !self.counters.started {
            self.counters.started = true;
            let task = self.messages.get(self.task).map(Message::text).unwrap_or_default();
            self.outbox.push(EventKind::RunStarted { task: text::clean(&task, 4096).into_owned() });
        }
        loop {
            if let Some(step) = self.try_step() {
                return step;
            }
        }
    }

    /// One attempt at a step; none if the state changed instead.
    fn try_step(&mut self) -> Option<Step> {
        match &self.state {
            State::Finished { result } => {
                let result = result.clone();
                if !self.counters.finished {
                    self.counters.finished = true;
                    let RunResult { stop_reason, usage, answer, error } = (*result).clone();
                    self.outbox.push(EventKind::RunFinished { stop_reason, usage, answer, error });
                }
                Some(Step::Done(result))
            }
            State::Act { .. } => {
                self.check_budgets(true);
                self.tell_phase(Phase::Action);
                self.next_action()
            }
            State::Think => {
                self.messages.append(&mut self.steering);
                self.check_budgets(false);
                if matches!(self.state, State::Finished { .. }) {
                    return None;
                }
                self.tell_phase(Phase::Think);
                self.build_request()
            }
        }
    }

    fn build_request(&mut self) -> Option<Step> {
        let mut tools = if self.closing.is_some() { Vec::new() } else { normalise_tools(&self.tools) };
        if self.closing.is_none() && (self.context.is_trimmed() || !self.kept.is_empty()) {
            tools.push(read_result_spec());
        }
        // Tools count also in a last turn without them: they are gone from that request only.
        let fixed_bytes = estimate::part_bytes(self.settings.system.len()) + estimate::tools_bytes(&tools);
        let (plan, events) = self.context_manager(fixed_bytes).plan();
        self.outbox.extend(events);
        match plan {
            Plan::Send { messages, tokens } => {
                let messages = normalise(&messages, &self.settings.wire);
                self.outbox.push(EventKind::ModelRequest { attempt: 1, messages: messages.len(), tools: tools.len(), tokens });
                let max_output_tokens = self.settings.context.max_output_tokens;
                Some(Step::CallModel(Box::new(ModelRequest {
                    system: self.settings.system.clone(),
                    messages,
                    tools,
                    max_output_tokens,
                })))
            }
            Plan::Summarise(request) => Some(Step::Summarise(request)),
            Plan::Overflow { tokens, limit } => {
                let failure = Failure::new(
                    ErrorCode::provider("context_overflow"),
                    format!("the conversation needs about {tokens} tokens, and {limit} fit the model's window"),
                )
                .hint("shorten the task, offer fewer tools, or use a model with a larger window");
                self.finish(StopReason::ContextOverflow, None, Some(failure));
                None
            }
        }
    }

    fn context_manager(&mut self, fixed_bytes: u64) -> ContextManager<'_> {
        let mut manager = ContextManager::new(&self.settings.context, &mut self.context, &self.messages, self.task, fixed_bytes);
        manager.reasoning_from = self.reasoning_from;
        manager
    }

    /// Takes the summary that [`Step::Summarise`] asked for.
    pub fn on_summary(&mut self, answer: Result<ModelTurn, ProviderError>, now_ms: u64) {
        self.tick(now_ms);
        if let Ok(turn) = &answer {
            self.spend(turn.usage);
        }
        let text = answer.ok().map(|turn| turn.text());
        match &self.state {
            State::Think => {
                let events = self.context_manager(0).finish_summary(text.as_deref());
                self.outbox.extend(events);
            }
            State::Act { .. } => self.on_result_summary(text.as_deref()),
            State::Finished { .. } => {}
        }
    }

    /// Puts a message of the user before the next turn. A run that ended with an answer, and has not told so yet, goes on with it.
    pub fn steer(&mut self, message: Message) {
        self.steering.push(message);
        if self.ended_well() && !self.counters.finished {
            self.state = State::Think;
        }
    }

    /// Ends the run. Calls that were started are interrupted, the others not executed; nothing that comes later changes that.
    pub fn cancel(&mut self, now_ms: u64) {
        self.tick(now_ms);
        self.stop(StopReason::Cancelled, Failure::new(ErrorCode::CALL_CANCELLED, "the run was cancelled"));
    }

    /// Ends the run because its time is up.
    pub fn expire(&mut self, now_ms: u64) {
        self.tick(now_ms);
        self.stop(StopReason::Deadline, Failure::new(ErrorCode::LIMIT_TIME, "the run's time is used up"));
    }

    /// Ends the run for a reason of the driver, such as a hook.
    pub fn stop(&mut self, reason: StopReason, failure: Failure) {
        if matches!(self.state, State::Finished { .. }) {
            return;
        }
        self.close_calls();
        self.finish(reason, None, Some(failure));
    }

    /// Goes on after an answer with another message of the user. False if the run did not end with an answer, has told its end, or
    /// was reopened three times already.
    pub fn reopen(&mut self, message: Message) -> bool {
        if !self.ended_well() || self.counters.finished || self.counters.resumes >= MAX_RESUMES {
            return false;
        }
        self.counters.resumes += 1;
        self.steer(message);
        true
    }

    fn ended_well(&self) -> bool {
        self.result().is_some_and(|result| result.stop_reason.is_success())
    }

    fn finish(&mut self, stop_reason: StopReason, answer: Option<String>, error: Option<Failure>) {
        let answer = answer.filter(|answer| !answer.trim().is_empty());
        let result = RunResult { stop_reason, answer, usage: self.usage, error };
        self.state = State::Finished { result: Box::new(result) };
    }

    /// Ends the run if a hard limit is reached, or makes the next turn the last. `acting`: only what needs no turn of the model.
    fn check_budgets(&mut self, acting: bool) {
        let meters: Vec<Meter> = self.settings.budget.meters(&self.usage).collect();
        for meter in &meters {
            if meter.is_low() && !self.counters.warned.iter().any(|name| name == meter.name) {
                self.counters.warned.push(meter.name.to_owned());
                let (budget, used, limit) = (meter.name.to_owned(), meter.used, meter.limit);
                self.outbox.push(EventKind::BudgetWarning { budget, used, limit });
            }
        }
        let reserve = self.settings.budget.hand_over_percent;
        let due = meters
            .iter()
            .find(|meter| meter.is_used_up() && !(acting && meter.hand_over))
            .or_else(|| meters.iter().find(|meter| !acting && !meter.hand_over && meter.is_down_to(reserve)));
        let Some(meter) = due else { return };
        if !meter.hand_over && meter.is_used_up() {
            let failure = Failure::new(
                ErrorCode::LIMIT_RUN,
                format!("the run's budget `{}` is used up: {} of {}", meter.name, meter.used, meter.limit),
            );
            self.stop(meter.reason, failure.hint("raise the limit, or split the task"));
        } else if self.closing.is_none() {
            self.closing = Some(meter.reason);
            self.messages.push(Message::user(CLOSING));
        }
    }

    fn spend(&mut self, tokens: crate::message::TokenUsage) {
        self.usage.tokens += tokens;
        let cost = self.settings.price.map_or(0, |price| price.cost_micros(&tokens));
        self.usage.cost_micros = self.usage.cost_micros.saturating_add(cost);
    }

    /// Counts what the run's workers used.
    pub(crate) fn count_workers(&mut self, used: &RunUsage) {
        self.usage.add(used);
    }

    fn tick(&mut self, now_ms: u64) {
        let passed = self.last_ms.map_or(0, |last| now_ms.saturating_sub(last));
        self.usage.wall_ms = self.usage.wall_ms.saturating_add(passed);
        self.last_ms = Some(now_ms);
    }

    fn tell_phase(&mut self, phase: Phase) {
        let n = if phase == Phase::Think { self.usage.steps + 1 } else { self.usage.steps };
        if self.counters.told != Some((n, phase)) {
            self.counters.told = Some((n, phase));
            self.outbox.push(EventKind::StepStarted { n, phase });
        }
    }

    /// Tells which model is asked. Reasoning of another one is not replayed.
    pub fn set_model(&mut self, model: &str) {
        if self.model.as_deref().is_some_and(|known| known != model) {
            self.reasoning_from = self.messages.len();
        }
        self.model = Some(model.to_owned());
    }

    /// The run's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The run that started this one.
    pub fn parent_id(&self) -> Option<&str> {
        self.parent_id.as_deref()
    }

    /// The message that holds the task.
    pub fn task(&self) -> Option<&Message> {
        self.messages.get(self.task)
    }

    /// The model that was last asked.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The settings.
    pub fn settings(&self) -> &RunSettings {
        &self.settings
    }

    /// The whole conversation, as it happened.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Where the run's calls come from: its session, and the tools whose results the model has read.
    pub fn conversation(&self) -> Conversation {
        let mut read: BTreeSet<String> = self.settings.tools_read.iter().cloned().collect();
        for part in self.messages.iter().flat_map(|message| &message.parts) {
            if let Part::ToolResult(result) = part
                && matches!(result.status, ToolStatus::Ok | ToolStatus::Error)
            {
                read.insert(result.name.clone());
            }
        }
        Conversation { session_id: self.settings.session.clone(), tools_read: read.into_iter().collect() }
    }

    /// What was used so far.
    pub fn usage(&self) -> RunUsage {
        self.usage
    }

    /// The result, once the run is over.
    pub fn result(&self) -> Option<&RunResult> {
        if let State::Finished { result } = &self.state { Some(result) } else { None }
    }

    /// What the run is doing.
    pub fn phase(&self) -> Phase {
        match &self.state {
            State::Think => Phase::Think,
            State::Act { slots } if calls::all_done(slots) => Phase::Observe,
            State::Act { .. } => Phase::Action,
            State::Finished { .. } => Phase::Finish,
        }
    }

    /// How much longer the run may take, in milliseconds.
    pub fn remaining_ms(&self) -> Option<u64> {
        self.settings.budget.max_wall_ms.map(|limit| limit.saturating_sub(self.usage.wall_ms))
    }

    /// Takes what happened since the last call, in order. The driver numbers and hands on these events.
    pub fn take_events(&mut self) -> Vec<EventKind> {
        std::mem::take(&mut self.outbox)
    }

    /// The run as JSON, to be stored.
    ///
    /// # Errors
    ///
    /// Does not fail; the type is that of the serialiser.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Reads a stored run. What a person allowed is not taken from it: whoever can edit a stored run must not be able to approve, so
    /// calls that wait or were interrupted are asked about again.
    ///
    /// # Errors
    ///
    /// Returns an error if the run was stored by another version, or is damaged.
    pub fn from_json(json: &str) -> Result<Self, RunError> {
        #[derive(Deserialize)]
        struct Version {
            schema_version: u64,
        }
        let Version { schema_version } = serde_json::from_str(json).map_err(RunError::Malformed)?;
        if schema_version != u64::from(SCHEMA_VERSION) {
            return Err(RunError::Version { found: schema_version });
        }
        let mut run: Self = serde_json::from_str(json).map_err(RunError::Malformed)?;
        run.forget_approvals();
        Ok(run)
    }

    pub(crate) fn has_started(&self) -> bool {
        self.counters.started
    }

    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    pub(crate) fn set_next_seq(&mut self, next_seq: u64) {
        self.next_seq = next_seq;
    }

    pub(crate) fn has_told_its_end(&self) -> bool {
        self.counters.finished
    }

    fn page_tokens(&self) -> u64 {
        limit(&self.settings.context, &self.context)
    }
}

#[cfg(test)]
mod tests;
