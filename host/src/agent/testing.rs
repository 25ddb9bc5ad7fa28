//! Strict doubles for tests: a model that checks what it is asked, tools that do as told, an observer that remembers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::event::{Event, EventKind, Observer};
use super::history::{WireRules, validate_history};
use super::run::Run;
use crate::message::{FinishReason, ModelTurn, Part, TokenUsage, ToolCall, ToolStatus};
use crate::provider::{ModelEvent, ModelRequest, Provider, ProviderError, ProviderErrorClass};
use crate::tool::{
    BoxFuture, CallContext, CallUsage, Check, Content, ErrorCode, Failure, Question, ToolHints, ToolOutcome, ToolSpec, Tools,
};

/// What a fake does when asked.
pub(super) enum Act<T> {
    Give(T),
    Hang,
    Panic,
}

type Respond = dyn FnMut(&ModelRequest) -> Act<Result<ModelTurn, ProviderError>> + Send;

/// A model that refuses requests that a provider would refuse, and those that its script does not expect.
pub(super) struct FakeModel {
    respond: Mutex<Box<Respond>>,
    requests: Mutex<Vec<ModelRequest>>,
    faults: Mutex<Vec<String>>,
}

impl FakeModel {
    pub(super) fn new(respond: impl FnMut(&ModelRequest) -> Act<Result<ModelTurn, ProviderError>> + Send + 'static) -> Arc<Self> {
        Arc::new(Self { respond: Mutex::new(Box::new(respond)), requests: Mutex::default(), faults: Mutex::default() })
    }

    pub(super) fn script(turns: impl IntoIterator<Item = ModelTurn>) -> Arc<Self> {
        let mut turns: std::collections::VecDeque<_> = turns.into_iter().collect();
        Self::new(move |_| Act::Give(turns.pop_front().ok_or_else(|| error(ProviderErrorClass::ScriptMismatch))))
    }

    pub(super) fn requests(&self) -> Vec<ModelRequest> {
        assert_eq!(*self.faults.lock().expect("lock"), Vec::<String>::new());
        self.requests.lock().expect("lock").clone()
    }
}

impl Provider for FakeModel {
    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        events: &'a mut (dyn FnMut(ModelEvent) + Send),
        _cancel: CancellationToken,
    ) -> BoxFuture<'a, Result<ModelTurn, ProviderError>> {
        Box::pin(async move {
            if let Err(fault) = validate_history(&request.messages, &WireRules::default()) {
                self.faults.lock().expect("lock").push(fault);
            }
            self.requests.lock().expect("lock").push(request.clone());
            let act = (self.respond.lock().expect("lock"))(request);
            let turn = match act {
                Act::Give(turn) => turn?,
                Act::Hang => std::future::pending().await,
                Act::Panic => panic!("the adapter is broken"),
            };
            for part in &turn.parts {
                match part {
                    Part::Text { text } => {
                        for character in text.chars() {
                            events(ModelEvent::TextDelta { text: character.to_string() });
                        }
                    }
                    Part::ToolCall(call) => events(ModelEvent::ToolCallStarted { id: call.id.clone(), name: call.name.clone() }),
                    _ => {}
                }
            }
            Ok(turn)
        })
    }

    fn model(&self) -> &str {
        "fake"
    }
}

pub(super) fn error(class: ProviderErrorClass) -> ProviderError {
    ProviderError { class, message: "no".into(), hint: None, status: None, retry_after: None, response_started: false }
}

pub(super) fn turn(parts: Vec<Part>, finish_reason: FinishReason) -> ModelTurn {
    ModelTurn { parts, finish_reason, usage: TokenUsage::default() }
}

pub(super) fn says(text: &str) -> ModelTurn {
    turn(vec![Part::text(text)], FinishReason::Stop)
}

pub(super) fn calls(calls: &[(&str, &str, &str)]) -> ModelTurn {
    turn(calls.iter().map(|(id, name, arguments)| part(id, name, arguments)).collect(), FinishReason::ToolCalls)
}

pub(super) fn part(id: &str, name: &str, arguments: &str) -> Part {
    Part::ToolCall(ToolCall { id: id.into(), provider_id: None, name: name.into(), arguments: arguments.into() })
}

pub(super) fn outcome(text: impl Into<String>) -> ToolOutcome {
    ToolOutcome {
        status: ToolStatus::Ok,
        content: vec![Content::Text { text: text.into() }],
        structured: None,
        error: None,
        denials: Vec::new(),
        usage: CallUsage { fuel: 10, memory_bytes: 64, wall_us: 5, ..CallUsage::default() },
    }
}

pub(super) fn failed(message: &str) -> ToolOutcome {
    ToolOutcome::failed(ToolStatus::Error, Failure::new(ErrorCode::tool("failed"), message), CallUsage::default())
}

pub(super) fn spec(name: &str, hints: ToolHints) -> ToolSpec {
    ToolSpec {
        name: name.into(),
        title: None,
        description: "Does something.".into(),
        input_schema: json!({"type": "object", "properties": {}}),
        output_schema: None,
        hints,
    }
}

pub(super) fn read_only() -> ToolHints {
    ToolHints { read_only: true, idempotent: true, ..ToolHints::default() }
}

/// `a__read` and `b__read` only read; `a__write` and `a__ask` do not, and `a__ask` asks; `a__deny` is denied.
pub(super) fn specs() -> Arc<[ToolSpec]> {
    [("a__read", read_only()), ("b__read", read_only()), ("a__write", ToolHints::default())]
        .into_iter()
        .chain([("a__ask", ToolHints::default()), ("a__deny", ToolHints::default())])
        .map(|(name, hints)| spec(name, hints))
        .collect()
}

type Answer = dyn Fn(&ToolCall, &CallContext) -> Act<ToolOutcome> + Send + Sync;

pub(super) struct FakeTools {
    answer: Box<Answer>,
    /// Calls as they started and ended.
    pub(super) log: Mutex<Vec<String>>,
    running: AtomicUsize,
    running_by_plugin: Mutex<HashMap<String, usize>>,
    pub(super) most_running: AtomicUsize,
    pub(super) most_of_a_plugin: AtomicUsize,
}

impl FakeTools {
    pub(super) fn new(answer: impl Fn(&ToolCall, &CallContext) -> Act<ToolOutcome> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            answer: Box::new(answer),
            log: Mutex::default(),
            running: AtomicUsize::new(0),
            running_by_plugin: Mutex::default(),
            most_running: AtomicUsize::new(0),
            most_of_a_plugin: AtomicUsize::new(0),
        })
    }

    pub(super) fn echo() -> Arc<Self> {
        Self::new(|call, _| Act::Give(outcome(format!("{} {}", call.name, call.arguments))))
    }

    pub(super) fn log(&self) -> Vec<String> {
        self.log.lock().expect("lock").clone()
    }

    fn count(&self, plugin: &str, up: bool) {
        let mut plugins = self.running_by_plugin.lock().expect("lock");
        let of_plugin = plugins.entry(plugin.to_owned()).or_default();
        if up {
            *of_plugin += 1;
            self.most_of_a_plugin.fetch_max(*of_plugin, Ordering::SeqCst);
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_running.fetch_max(running, Ordering::SeqCst);
        } else {
            *of_plugin -= 1;
            self.running.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Tools for FakeTools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        specs()
    }

    fn check(&self, _: &str, call: &ToolCall) -> Check {
        match call.name.as_str() {
            "a__ask" => Check::Ask(Box::new(Question {
                plugin: "a".into(),
                tool: "ask".into(),
                arguments: call.parse_arguments().map_or(json!(null), Into::into),
                rule: "policy.toml:3".into(),
                rule_id: String::new(),
                sha256: String::new(),
                hints: ToolHints::default(),
            })),
            "a__deny" => Check::Refused(Box::new(ToolOutcome::refused(
                ToolStatus::Denied,
                Failure::new(ErrorCode::POLICY_DENIED, "not allowed"),
            ))),
            _ => Check::Ready,
        }
    }

    fn call<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let plugin = call.name.split("__").next().unwrap_or_default();
            self.log.lock().expect("lock").push(format!("+{}", call.id));
            self.count(plugin, true);
            // Lets others start, so that calls that may run together do.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            let outcome = match (self.answer)(call, &context) {
                Act::Give(outcome) => outcome,
                Act::Hang => std::future::pending().await,
                Act::Panic => panic!("the host is broken"),
            };
            self.count(plugin, false);
            self.log.lock().expect("lock").push(format!("-{}", call.id));
            outcome
        })
    }
}

/// Remembers events and checkpoints.
#[derive(Default)]
pub(super) struct Recorder {
    events: Mutex<Vec<Event>>,
    checkpoints: Mutex<Vec<String>>,
    /// The checkpoint, counted from 0, that cannot be stored.
    pub(super) fails_at: Mutex<Option<usize>>,
}

impl Recorder {
    pub(super) fn events(&self) -> Vec<Event> {
        let events = self.events.lock().expect("lock").clone();
        for (expected, event) in (0..).zip(&events) {
            assert_eq!(event.seq, expected, "sequence numbers have no gaps");
        }
        events
    }

    /// The events, which may begin anywhere.
    pub(super) fn unnumbered(&self) -> Vec<Event> {
        self.events.lock().expect("lock").clone()
    }

    pub(super) fn kinds(&self) -> Vec<EventKind> {
        self.events().into_iter().map(|event| event.kind).collect()
    }

    pub(super) fn checkpoints(&self) -> Vec<String> {
        self.checkpoints.lock().expect("lock").clone()
    }
}

impl Observer for Recorder {
    fn event(&self, event: &Event) {
        self.events.lock().expect("lock").push(event.clone());
    }

    fn checkpoint<'a>(&'a self, run: &'a Run) -> BoxFuture<'a, Result<(), Failure>> {
        let mut checkpoints = self.checkpoints.lock().expect("lock");
        let number = checkpoints.len();
        checkpoints.push(run.to_json().expect("serialises"));
        let failure = || Failure::new(ErrorCode::HOST_STORAGE, "the disk is full");
        let stored = if *self.fails_at.lock().expect("lock") == Some(number) { Err(failure()) } else { Ok(()) };
        Box::pin(std::future::ready(stored))
    }
}
