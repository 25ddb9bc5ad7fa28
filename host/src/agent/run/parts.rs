//! A run taken apart for a store that appends: what only grows stands beside what is small and changes with each step.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{Counters, Run, RunError, RunSettings, SCHEMA_VERSION, State};
use crate::agent::context::ContextState;
use crate::agent::context::results::KeptResults;
use crate::agent::loop_guard::LoopGuard;
use crate::agent::stop::{RunResult, RunUsage, StopReason};
use crate::message::{Message, Part};

/// Replaces what must not be stored in a text.
pub type Scrub<'s> = dyn for<'t> Fn(&'t str) -> Cow<'t, str> + 's;

/// The parts of a run. Writing each step costs what the step added, however long the conversation is.
#[derive(Debug)]
pub struct RunParts<'a> {
    /// The settings, as JSON; the same over the whole run.
    pub settings: String,
    /// Everything that is in no other part, as JSON: its size depends on the present turn and not on the conversation.
    pub state: String,
    /// The conversation. It only grows at its end.
    pub messages: &'a [Message],
    /// Whole tool results of which the conversation holds only a part: call and text. Grows at its end and shrinks at its beginning.
    pub results: Vec<(&'a str, &'a str)>,
    /// What stands in the place of old results when the model is asked: call and text. Only grows, in no order.
    pub stubs: Vec<(&'a str, &'a str)>,
}

/// The same, as read back.
#[derive(Clone, Debug, Default)]
pub struct StoredParts {
    /// See [`RunParts::settings`].
    pub settings: String,
    /// See [`RunParts::state`].
    pub state: String,
    /// See [`RunParts::messages`].
    pub messages: Vec<Message>,
    /// See [`RunParts::results`].
    pub results: Vec<(String, String)>,
    /// See [`RunParts::stubs`].
    pub stubs: Vec<(String, String)>,
}

#[derive(Serialize, Deserialize)]
struct Rest<'a> {
    schema_version: u64,
    id: Cow<'a, str>,
    parent_id: Option<Cow<'a, str>>,
    task: usize,
    state: Cow<'a, State>,
    usage: RunUsage,
    context: ContextState,
    guard: Cow<'a, LoopGuard>,
    counters: Cow<'a, Counters>,
    closing: Option<StopReason>,
    steering: Cow<'a, [Message]>,
    model: Option<Cow<'a, str>>,
    reasoning_from: usize,
    next_seq: u64,
}

impl Run {
    /// Takes the run apart. `scrub` sees each text of `settings` and `state` that a person, a model or a tool wrote; the other parts
    /// are given as they are.
    ///
    /// # Errors
    ///
    /// Does not fail; the type is that of the serialiser.
    pub fn to_parts(&self, scrub: &Scrub<'_>) -> Result<RunParts<'_>, serde_json::Error> {
        // No `..`: a new field must be thought of here.
        let Self {
            schema_version,
            id,
            parent_id,
            settings,
            messages,
            task,
            state,
            usage,
            context,
            kept,
            guard,
            counters,
            closing,
            steering,
            model,
            reasoning_from,
            next_seq,
            outbox: _,
            last_ms: _,
            tools: _,
        } = self;
        let rest = Rest {
            schema_version: u64::from(*schema_version),
            id: id.into(),
            parent_id: parent_id.as_deref().map(Cow::from),
            task: *task,
            state: Cow::Owned(state.scrubbed(scrub)),
            usage: *usage,
            context: context.without_stubs(scrub),
            guard: Cow::Borrowed(guard),
            counters: Cow::Borrowed(counters),
            closing: *closing,
            steering: steering.iter().map(|message| message.scrubbed(scrub)).collect(),
            model: model.as_deref().map(Cow::from),
            reasoning_from: *reasoning_from,
            next_seq: *next_seq,
        };
        let settings = RunSettings { system: scrub(&settings.system).into_owned(), ..settings.clone() };
        Ok(RunParts {
            settings: serde_json::to_string(&settings)?,
            state: serde_json::to_string(&rest)?,
            messages,
            results: kept.iter().collect(),
            stubs: context.stubs.iter().map(|(id, text)| (id.as_str(), text.as_str())).collect(),
        })
    }

    /// Puts a run together again. As with [`Run::from_json`], what a person allowed is not taken from it.
    ///
    /// # Errors
    ///
    /// Returns an error if the run was stored by another version, or is damaged.
    pub fn from_parts(parts: StoredParts) -> Result<Self, RunError> {
        #[derive(Deserialize)]
        struct Version {
            schema_version: u64,
        }
        let Version { schema_version } = serde_json::from_str(&parts.state).map_err(RunError::Malformed)?;
        if schema_version != u64::from(SCHEMA_VERSION) {
            return Err(RunError::Version { found: schema_version });
        }
        let settings: RunSettings = serde_json::from_str(&parts.settings).map_err(RunError::Malformed)?;
        let rest: Rest<'static> = serde_json::from_str(&parts.state).map_err(RunError::Malformed)?;
        let mut context = rest.context;
        context.stubs = parts.stubs.into_iter().collect();
        let mut run = Self::new(rest.id, String::new(), settings);
        run.parent_id = rest.parent_id.map(Cow::into_owned);
        run.messages = parts.messages;
        run.task = rest.task;
        run.state = rest.state.into_owned();
        run.usage = rest.usage;
        run.context = context;
        run.kept = KeptResults::from_iter(parts.results);
        run.guard = rest.guard.into_owned();
        run.counters = rest.counters.into_owned();
        run.closing = rest.closing;
        run.steering = rest.steering.into_owned();
        run.model = rest.model.map(Cow::into_owned);
        run.reasoning_from = rest.reasoning_from;
        run.next_seq = rest.next_seq;
        run.forget_approvals();
        Ok(run)
    }
}

impl State {
    fn scrubbed(&self, scrub: &Scrub<'_>) -> Self {
        match self {
            Self::Think => Self::Think,
            Self::Act { slots } => Self::Act { slots: slots.iter().map(|slot| slot.scrubbed(scrub)).collect() },
            Self::Finished { result } => {
                let mut result: RunResult = (**result).clone();
                result.answer = result.answer.map(|answer| scrub(&answer).into_owned());
                if let Some(error) = &mut result.error {
                    error.message = scrub(&error.message).into_owned();
                    error.hint = error.hint.take().map(|hint| scrub(&hint).into_owned());
                }
                Self::Finished { result: Box::new(result) }
            }
        }
    }
}

impl Message {
    /// This message with its texts passed through `scrub`: all but ids, names and a provider's own block, whose signature a change would
    /// break; that block is left out if `scrub` would change it.
    pub fn scrubbed(&self, scrub: &Scrub<'_>) -> Self {
        let parts = self.parts.iter().map(|part| {
            let mut part = part.clone();
            match &mut part {
                Part::Text { text } => replace(text, scrub),
                Part::Reasoning(reasoning) => {
                    replace(&mut reasoning.text, scrub);
                    reasoning.raw = reasoning.raw.take().filter(|raw| matches!(scrub(&raw.to_string()), Cow::Borrowed(_)));
                }
                Part::ToolCall(call) => replace(&mut call.arguments, scrub),
                Part::ToolResult(result) => replace(&mut result.text, scrub),
            }
            part
        });
        Self { role: self.role, parts: parts.collect() }
    }
}

/// Scrubs a text in place.
pub(super) fn replace(text: &mut String, scrub: &Scrub<'_>) {
    if let Cow::Owned(scrubbed) = scrub(text) {
        *text = scrubbed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Role, ToolCall};

    fn as_it_is(text: &str) -> Cow<'_, str> {
        Cow::Borrowed(text)
    }

    #[test]
    fn the_state_does_not_grow_with_the_conversation() {
        let size = |messages: usize| {
            let history = (0..messages).map(|index| Message::user(format!("message {index}"))).collect();
            let run = Run::new("run", "北京天气", RunSettings::default()).with_history(history);
            run.to_parts(&as_it_is).expect("writes").state.len()
        };
        assert!(size(10_000) < size(1) + 20, "{} {}", size(1), size(10_000));
    }

    #[test]
    fn a_secret_is_in_no_part_of_a_message_but_ids_and_names() {
        fn scrub(text: &str) -> Cow<'_, str> {
            if text.contains("hunter2") { Cow::Owned(text.replace("hunter2", "[secret]")) } else { Cow::Borrowed(text) }
        }
        let call = ToolCall { id: "1".into(), provider_id: None, name: "a__b".into(), arguments: r#"{"k":"hunter2"}"#.into() };
        let message = Message { role: Role::Assistant, parts: vec![Part::text("hunter2!"), Part::ToolCall(call)] };
        let text = serde_json::to_string(&message.scrubbed(&scrub)).expect("writes");
        assert!(!text.contains("hunter2") && text.contains("[secret]"), "{text}");
    }

    #[test]
    fn parts_of_another_version_or_damaged_ones_are_refused() {
        let run = Run::new("run", "task", RunSettings::default());
        let parts = run.to_parts(&as_it_is).expect("writes");
        let with = |state: String| StoredParts { settings: parts.settings.clone(), state, ..StoredParts::default() };
        let newer = parts.state.replace("\"schema_version\":1", "\"schema_version\":7");
        assert!(matches!(Run::from_parts(with(newer)), Err(RunError::Version { found: 7 })));
        for damaged in ["", "{}", "[]", &parts.state[..parts.state.len() / 2]] {
            assert!(matches!(Run::from_parts(with(damaged.to_owned())), Err(RunError::Malformed(_))), "{damaged}");
        }
    }
}
