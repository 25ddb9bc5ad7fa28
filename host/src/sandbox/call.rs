//! One call of one tool: a fresh store, the guest's run in it, and what came of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use wasmtime::Store;
use wasmtime::component::ComponentExportIndex;

use super::bind::BoundPlugin;
use super::bindings::{self, CallContext, Tool, ToolError};
use super::drive::{End, drive};
use super::meter::{Counts, Meter};
use super::outcome::{self, Answer};
use super::pace::{FUEL_PER_TURN, Turn};
use super::plugin::Entry;
use super::state::HostState;
use super::trace::Trace;
use super::trap::{self, Ended};
use super::typed::{Arguments, TypedFunction, TypedOutput};
use crate::message::ToolStatus;
use crate::tool::{CallUsage, ErrorCode, Failure, ProgressSink, ToolOutcome};
use crate::{json, text};

/// A deadline that never comes, for limits beyond what the clock can express.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// What is shown of a guest's stderr in a failure, in bytes.
const MAX_LAST_WORDS: usize = 300;

/// One call.
#[derive(Clone)]
pub struct Call {
    /// The plugin's own name of the tool.
    pub tool: String,
    /// A JSON object that satisfies the tool's schema.
    pub arguments: String,
    /// Names the run that the call belongs to.
    pub run_id: String,
    /// Names the call.
    pub call_id: String,
    /// The same on every attempt at one model call.
    pub idempotency_key: String,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// Stops the call.
    pub cancel: CancellationToken,
    /// Receives the tool's progress reports.
    pub progress: Option<ProgressSink>,
}

/// Runs a call to its end. Whatever the guest does is an outcome.
pub(super) async fn run(
    all_slots: Arc<Semaphore>,
    bound: Arc<BoundPlugin>,
    call: Call,
    trace: Trace,
    started: Instant,
) -> ToolOutcome {
    let deadline = started.checked_add(bound.limits.timeout).unwrap_or(started + FOREVER);
    let turn = Arc::new(Turn::new(started, deadline));
    let subject = Subject { plugin: Arc::clone(&bound.id), tool: call.tool };
    // Before anything is spent on the call.
    let target = match Target::of(&bound.code.entry, &subject, &call.arguments) {
        Ok(target) => target,
        Err(failure) => return refused(failure, ToolStatus::NotExecuted, started),
    };
    // The plugin's own slot first: a plugin with a long queue must not hold slots that others could use. Both outlive the store.
    let slots = async {
        let own = slot(&bound.slots).await?;
        let shared = slot(&all_slots).await?;
        Some((own, shared))
    };
    let _slots = match drive(&turn, &call.cancel, &mut Duration::default(), slots).await {
        End::Done(Some(slots)) => slots,
        End::Cancelled => return refused(trap::cancelled(&subject.text()), ToolStatus::NotExecuted, started),
        End::Done(None) | End::Time | End::Panicked(_) => {
            return refused(trap::busy(&subject.text()), ToolStatus::NotExecuted, started);
        }
    };

    let state = HostState::new(Arc::clone(&bound), Arc::clone(&turn), call.cancel.clone(), call.progress, trace.0);
    let mut store = match new_store(state) {
        Ok(store) => store,
        Err(error) => {
            tracing::error!("cannot make a store: {error:#}");
            return refused(trap::internal(&subject.text()), ToolStatus::NotExecuted, started);
        }
    };
    let context = CallContext {
        call_id: call.call_id,
        run_id: call.run_id,
        idempotency_key: call.idempotency_key,
        attempt: call.attempt,
        deadline_ms: u64::try_from(deadline.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(u64::MAX),
        traceparent: None,
    };
    let mut busy = Duration::default();
    let work = async {
        let instance = bound.code.pre.instantiate_async(&mut store).await?;
        match target {
            Target::Tools(index) => {
                let call_tool = instance.get_typed_func::<Parameters<'_>, Results>(&mut store, index)?;
                let parameters = (subject.tool.as_str(), call.arguments.as_str(), &context);
                let (result,) = call_tool.call_async(&mut store, parameters).await?;
                Ok(result.map(Returned::Content).map_err(outcome::tool_error))
            }
            Target::Typed(function, arguments) => match function.call(&mut store, &instance, arguments).await {
                Ok(output) => Ok(Ok(Returned::Typed(output))),
                Err(error) => error.into_failure().map(Err),
            },
        }
    };
    let end = drive(&turn, &call.cancel, &mut busy, work).await;
    conclude(store, end, &subject, started, busy)
}

/// Lists a plugin's tools.
pub(super) async fn list_tools(bound: Arc<BoundPlugin>) -> Result<Vec<Tool>, Failure> {
    let started = Instant::now();
    let subject = Subject { plugin: Arc::clone(&bound.id), tool: "list-tools".to_owned() };
    let turn = Arc::new(Turn::new(started, started + bound.limits.timeout));
    let cancel = CancellationToken::new();
    let mut store = new_store(HostState::new(Arc::clone(&bound), Arc::clone(&turn), cancel.clone(), None, Meter::default()))
        .map_err(|error| {
            tracing::error!("cannot make a store: {error:#}");
            trap::internal(&subject.text())
        })?;
    let work = async {
        let instance = bound.code.pre.instantiate_async(&mut store).await?;
        let Entry::Tools { list, call } = &bound.code.entry else { return Ok(Vec::new()) };
        // Checked here once, so that a call cannot find another type than it expects.
        instance.get_typed_func::<Parameters<'_>, Results>(&mut store, call)?;
        let list_tools = instance.get_typed_func::<(), (Vec<Tool>,)>(&mut store, list)?;
        let (tools,) = list_tools.call_async(&mut store, ()).await?;
        wasmtime::Result::Ok(tools)
    };
    let end = drive(&turn, &cancel, &mut Duration::default(), work).await;
    match end {
        End::Done(Ok(tools)) => Ok(tools),
        end => Err(why(&store, end.map_done(|result| result.err()), &subject)),
    }
}

/// The type of `call-tool`.
type Parameters<'a> = (&'a str, &'a str, &'a CallContext);
type Results = (Result<Vec<bindings::Content>, ToolError>,);

/// What is called in the guest.
enum Target<'a> {
    /// `call-tool`
    Tools(&'a ComponentExportIndex),
    /// A function that is a tool itself, and its arguments.
    Typed(&'a TypedFunction, Arguments),
}

impl<'a> Target<'a> {
    fn of(entry: &'a Entry, subject: &Subject, arguments: &str) -> Result<Self, Failure> {
        let functions = match entry {
            Entry::Tools { call, .. } => return Ok(Self::Tools(call)),
            Entry::Typed(functions) => functions,
        };
        let text = subject.text();
        let function = functions
            .get(&subject.tool)
            .ok_or_else(|| Failure::new(ErrorCode::TOOL_UNKNOWN, format!("there is no tool `{text}`")))?;
        let invalid = |problem: String| Failure::new(ErrorCode::ARGS_INVALID, format!("arguments of `{text}`: {problem}"));
        let arguments = json::parse_object(arguments).map_err(invalid)?;
        let arguments = function.arguments(&arguments).map_err(|error| invalid(error.to_string()))?;
        Ok(Self::Typed(function, arguments))
    }
}

/// What the guest returned.
enum Returned {
    Content(Vec<bindings::Content>),
    Typed(TypedOutput),
}

/// A call's plugin and tool.
struct Subject {
    plugin: Arc<str>,
    tool: String,
}

impl Subject {
    /// `plugin/tool`, as messages name it.
    fn text(&self) -> String {
        format!("{}/{}", self.plugin, text::clean_line(&self.tool, 64))
    }
}

async fn slot(slots: &Semaphore) -> Option<SemaphorePermit<'_>> {
    slots.acquire().await.ok()
}

fn new_store(state: HostState) -> wasmtime::Result<Store<HostState>> {
    let bound = Arc::clone(&state.bound);
    let limits = &bound.limits;
    let size = |limit| usize::try_from(limit).unwrap_or(usize::MAX);
    let mut store = Store::try_new(bound.code.pre.engine(), state)?;
    store.limiter(|state| &mut state.limiter);
    store.set_fuel(limits.fuel)?;
    store.fuel_async_yield_interval(Some(FUEL_PER_TURN))?;
    store.set_hostcall_fuel(size(limits.hostcall_bytes));
    store.set_max_component_handles(size(limits.handles));
    Ok(store)
}

fn conclude(
    mut store: Store<HostState>,
    end: End<wasmtime::Result<Result<Returned, Failure>>>,
    subject: &Subject,
    started: Instant,
    busy: Duration,
) -> ToolOutcome {
    let limits = &Arc::clone(&store.data().bound).limits;
    let mut usage = CallUsage {
        fuel: limits.fuel.saturating_sub(store.get_fuel().unwrap_or(0)),
        memory_bytes: store.data().limiter.peak_memory(),
        ..CallUsage::default()
    };
    let result = match end {
        End::Done(Ok(Ok(Returned::Content(content)))) => {
            usage.output_bytes = outcome::output_bytes(&content);
            outcome::answer(content, usage.output_bytes, &subject.text(), limits)
        }
        End::Done(Ok(Ok(Returned::Typed(output)))) => {
            usage.output_bytes = output.bytes();
            outcome::typed_answer(output, usage.output_bytes, &subject.text(), limits)
        }
        End::Done(Ok(Err(failure))) => Err(failure),
        end => Err(why(&store, end.map_done(|result| result.err()), subject)),
    };
    let result = result.map_err(|failure| with_last_words(failure, &store));
    log_stdio(store.data_mut(), subject, result.is_err());
    let Counts { denials, http_requests, http_bytes, dialled: _, used: _ } = store.data().meter.counts();
    let secrets = Arc::clone(&store.data().bound.secrets);
    // The instance goes before the clock is read: tearing it down is part of the call.
    drop(store);
    usage.http_requests = http_requests;
    usage.http_bytes = http_bytes;
    let wall = started.elapsed();
    usage.wall_us = micros(wall);
    usage.host_us = micros(wall.saturating_sub(busy));
    let mut outcome = match result {
        Ok(Answer { content, structured }) => {
            ToolOutcome { status: ToolStatus::Ok, content, structured, error: None, denials, usage }
        }
        Err(failure) => {
            let status = if failure.code == ErrorCode::CALL_CANCELLED { ToolStatus::Interrupted } else { ToolStatus::Error };
            let failure = blame_denial(failure, &denials);
            ToolOutcome { denials, ..ToolOutcome::failed(status, failure, usage) }
        }
    };
    outcome::redact(&mut outcome, secrets.redactor());
    outcome
}

/// Names why the guest did not answer.
fn why(store: &Store<HostState>, end: End<Option<wasmtime::Error>>, subject: &Subject) -> Failure {
    let state = store.data();
    let text = subject.text();
    let ended = Ended { subject: &text, limits: &state.bound.limits, refused: state.limiter.refused() };
    match end {
        End::Done(Some(error)) => {
            if let Some(stack) = trap::stack(&error) {
                tracing::debug!(target: "plugin", plugin = &*subject.plugin, "`{text}` ended in\n{stack}");
            }
            ended.failure(&error)
        }
        End::Time => ended.time(),
        End::Cancelled => trap::cancelled(&text),
        End::Done(None) => trap::internal(&text),
        End::Panicked(panic) => {
            let message = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            tracing::error!("a host function panicked in `{text}`: {}", message.unwrap_or("no message"));
            trap::internal(&text)
        }
    }
}

/// Adds the end of stderr to a trap's message: a panic's message is there, and says more than `unreachable`.
fn with_last_words(mut failure: Failure, store: &Store<HostState>) -> Failure {
    let dead = failure.code.as_str().starts_with("trap.") || failure.code == ErrorCode::PLUGIN_EXIT;
    if dead && let Some(stderr) = &store.data().stderr {
        let words = stderr.peek();
        let words = words.trim();
        if !words.is_empty() {
            let from = words.floor_char_boundary(words.len().saturating_sub(MAX_LAST_WORDS));
            let words = text::clean_line(&words[from..], MAX_LAST_WORDS);
            failure.message = format!("{}; it wrote: {words}", failure.message);
        }
    }
    failure
}

fn log_stdio(state: &mut HostState, subject: &Subject, failed: bool) {
    for (name, pipe) in [("stdout", &state.stdout), ("stderr", &state.stderr)] {
        let Some(pipe) = pipe else { continue };
        let (kept, written) = pipe.take();
        if written == 0 {
            continue;
        }
        let kept = text::clean(&kept, usize::MAX).trim_end().replace('\n', "\n    | ");
        let kept = state.bound.secrets.redactor().redact(&kept);
        let (plugin, tool) = (&*subject.plugin, subject.tool.as_str());
        if failed && name == "stderr" {
            tracing::warn!(target: "plugin", plugin, tool, written, "{name}: {kept}");
        } else {
            tracing::debug!(target: "plugin", plugin, tool, written, "{name}: {kept}");
        }
    }
}

/// Where something was denied to a guest that then failed or died, the denial is the reason that a reader needs.
fn blame_denial(failure: Failure, denials: &[Failure]) -> Failure {
    let code = failure.code.as_str();
    let own = code.starts_with("tool.") || code.starts_with("trap.") || failure.code == ErrorCode::PLUGIN_EXIT;
    match denials.first() {
        Some(denial) if own => Failure { message: format!("{}; then: {}", denial.message, failure.message), ..denial.clone() },
        _ => failure,
    }
}

/// A call that never ran.
fn refused(failure: Failure, status: ToolStatus, started: Instant) -> ToolOutcome {
    let wall = micros(started.elapsed());
    ToolOutcome::failed(status, failure, CallUsage { wall_us: wall, host_us: wall, ..CallUsage::default() })
}

/// The task of a call went away: a panic outside the guest, or the end of the runtime.
pub(super) fn lost(bound: &BoundPlugin, tool: &str, panicked: bool, started: Instant) -> ToolOutcome {
    let subject = Subject { plugin: Arc::clone(&bound.id), tool: tool.to_owned() }.text();
    let (failure, status) = if panicked {
        (trap::internal(&subject), ToolStatus::Error)
    } else {
        (trap::cancelled(&subject), ToolStatus::Interrupted)
    };
    refused(failure, status, started)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
