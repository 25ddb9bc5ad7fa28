//! The recorded lines as a clock that everybody in a replay goes by: each takes what is next if it is theirs, and waits if it is not.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::format::{Entry, Line};
use super::reader::Recording;
use crate::agent::{Clock, Event, Interruption, Observer};
use crate::text::clean_line;
use crate::tool::BoxFuture;

/// How often a call yields to the others before it is clear that none of them takes the next line. Nothing in a replay waits for the
/// outside, so one turn of each would do.
const MAX_YIELDS: usize = 10_000;
/// The most bytes of each side that a difference shows.
const MAX_SHOWN: usize = 400;

/// Where a replay went another way than the recorded run.
#[derive(Clone, Debug, Eq, PartialEq, serde::Serialize)]
pub struct Divergence {
    /// The line of the file, counted from 1.
    pub line: usize,
    /// What is different: a JSON pointer into an event, or words.
    pub what: String,
    /// What the recording says.
    pub recorded: String,
    /// What the replay did.
    pub replayed: String,
}

pub(super) struct Timeline {
    lines: Vec<Line>,
    /// Is told of the events that are as recorded, and of no others.
    view: Option<Arc<dyn Observer>>,
    /// Ends the replayed run where the recorded one was ended, and where the two part.
    pub(super) cancel: CancellationToken,
    state: Mutex<State>,
}

struct State {
    next: usize,
    now: u64,
    events: usize,
    divergence: Option<Divergence>,
    /// The lines ended before the run did.
    ran_out: bool,
}

/// What became of an attempt to take the next line.
pub(super) enum Took<T> {
    Taken(T),
    /// It is somebody else's.
    NotMine,
    /// The replay is over, or waits for an interruption.
    Never,
}

impl Timeline {
    pub(super) fn new(recording: &Recording, view: Option<Arc<dyn Observer>>) -> Self {
        let now = recording.lines.first().map_or(0, |line| line.t);
        let state = State { next: 0, now, events: 0, divergence: None, ran_out: false };
        let timeline = Self { lines: recording.lines.clone(), view, cancel: CancellationToken::new(), state: Mutex::new(state) };
        timeline.settle(&timeline.lock());
        timeline
    }

    /// Takes the next line if `pick` wants it.
    pub(super) fn take<T>(&self, pick: impl FnOnce(&Entry) -> Option<T>) -> Took<T> {
        let mut state = self.lock();
        if state.divergence.is_some() || state.ran_out {
            return Took::Never;
        }
        let Some(line) = self.lines.get(state.next).filter(|line| !matches!(line.entry, Entry::Full)) else {
            state.ran_out = true;
            self.cancel.cancel();
            return Took::Never;
        };
        match pick(&line.entry) {
            Some(taken) => {
                self.consume(&mut state, line);
                Took::Taken(taken)
            }
            None if matches!(line.entry, Entry::Interrupted { .. }) => Took::Never,
            None => Took::NotMine,
        }
    }

    /// Looks at the next line.
    pub(super) fn peek<T>(&self, look: impl FnOnce(&Entry) -> Option<T>) -> Option<T> {
        let state = self.lock();
        if state.divergence.is_some() || state.ran_out {
            return None;
        }
        self.lines.get(state.next).and_then(|line| look(&line.entry))
    }

    /// The replay wants something else than the next line.
    pub(super) fn diverge(&self, replayed: &str) {
        let mut state = self.lock();
        let recorded = self.lines.get(state.next).map_or("nothing more".to_owned(), |line| describe(&line.entry));
        self.part(&mut state, "what comes next", &recorded, replayed);
    }

    /// Waits until `attempt` takes something. Never returns once the replay is over: the run is being cancelled.
    pub(super) async fn wait<T>(&self, replayed: &str, mut attempt: impl FnMut() -> Took<T>) -> T {
        let mut place = self.lock().next;
        let mut yields = 0;
        loop {
            match attempt() {
                Took::Taken(taken) => return taken,
                Took::Never => {}
                Took::NotMine => {
                    let next = self.lock().next;
                    yields = if next == place { yields + 1 } else { 0 };
                    place = next;
                    if yields > MAX_YIELDS {
                        self.diverge(replayed);
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// What there is to say at the end.
    pub(super) fn close(&self) -> (usize, Option<Divergence>, bool) {
        let state = self.lock();
        (state.events, state.divergence.clone(), state.ran_out)
    }

    fn consume(&self, state: &mut State, line: &Line) {
        state.now = state.now.max(line.t);
        state.next += 1;
        self.settle(state);
    }

    /// The recorded run noticed here that it was cancelled.
    fn settle(&self, state: &State) {
        if let Some(Line { entry: Entry::Interrupted { why: Interruption::Cancelled }, .. }) = self.lines.get(state.next) {
            self.cancel.cancel();
        }
    }

    fn part(&self, state: &mut State, what: &str, recorded: &str, replayed: &str) {
        if state.divergence.is_none() && !state.ran_out {
            let (line, what) = (Recording::number(state.next), what.to_owned());
            state.divergence = Some(Divergence {
                line,
                what,
                recorded: clean_line(recorded, MAX_SHOWN),
                replayed: clean_line(replayed, MAX_SHOWN),
            });
        }
        self.cancel.cancel();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Timeline {
    fn event(&self, event: &Event) {
        let Ok(replayed) = serde_json::to_value(event) else { return };
        let mut state = self.lock();
        if state.divergence.is_some() || state.ran_out {
            return;
        }
        match self.lines.get(state.next) {
            Some(line @ Line { entry: Entry::Event { event: recorded }, .. }) => {
                // As text: two values with their keys in another order are equal, and their bytes are not.
                let (before, now) = (recorded.to_string(), replayed.to_string());
                if before == now {
                    state.events += 1;
                    self.consume(&mut state, line);
                    drop(state);
                    if let Some(view) = &self.view {
                        view.event(event);
                    }
                } else {
                    let (pointer, recorded, replayed) = first_difference(recorded, &replayed);
                    self.part(&mut state, &pointer, &recorded, &replayed);
                }
            }
            None | Some(Line { entry: Entry::Full, .. }) => {
                state.ran_out = true;
                self.cancel.cancel();
            }
            Some(line) => self.part(&mut state, "what comes next", &describe(&line.entry), &replayed.to_string()),
        }
    }

    fn interrupted(&self, why: Interruption) {
        let taken = self.take(|entry| matches!(entry, Entry::Interrupted { why: recorded } if *recorded == why).then_some(()));
        if !matches!(taken, Took::Taken(())) {
            self.diverge(&format!("an interruption: {why:?}"));
        }
    }
}

impl Clock for Timeline {
    /// The time of the event that must come next, or of what was taken last.
    fn now_ms(&self) -> u64 {
        let state = self.lock();
        match self.lines.get(state.next) {
            Some(Line { entry: Entry::Event { event }, .. }) => event["ts"].as_u64().unwrap_or(state.now),
            _ => state.now,
        }
    }

    fn sleep(&self, _ms: u64) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let is_up = |entry: &Entry| {
                let up = [Interruption::Expired, Interruption::SummaryTimedOut];
                matches!(entry, Entry::Interrupted { why } if up.contains(why)).then_some(())
            };
            while self.peek(is_up).is_none() {
                tokio::task::yield_now().await;
            }
        })
    }
}

fn describe(entry: &Entry) -> String {
    match entry {
        Entry::Event { event } => event.to_string(),
        Entry::Check { call, .. } | Entry::Outcome { call, .. } => {
            format!("{} `{}` ({}): {}", entry.name(), call.name, call.id, call.arguments)
        }
        Entry::Interrupted { why } => format!("an interruption: {why:?}"),
        _ => entry.name().to_owned(),
    }
}

/// The first place at which two values differ, and what each has there.
pub(super) fn first_difference(recorded: &Value, replayed: &Value) -> (String, String, String) {
    let mut pointer = String::new();
    let (mut a, mut b) = (recorded, replayed);
    loop {
        let step = match (a, b) {
            (Value::Object(left), Value::Object(right)) => {
                let differs = |key: &&String| left.get(*key) != right.get(*key);
                left.keys().chain(right.keys()).find(differs).map(|key| (key.clone(), left.get(key), right.get(key)))
            }
            (Value::Array(left), Value::Array(right)) => (0..left.len().max(right.len()))
                .find(|&index| left.get(index) != right.get(index))
                .map(|index| (index.to_string(), left.get(index), right.get(index))),
            _ => None,
        };
        let Some((key, left, right)) = step else { break };
        pointer.push('/');
        pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
        match (left, right) {
            (Some(left), Some(right)) => (a, b) = (left, right),
            (left, right) => {
                let show = |side: Option<&Value>| side.map_or("nothing".to_owned(), Value::to_string);
                return (pointer, show(left), show(right));
            }
        }
    }
    if pointer.is_empty() {
        pointer.push('/');
    }
    (pointer, a.to_string(), b.to_string())
}
