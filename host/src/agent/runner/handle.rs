//! A run in a task of its own, seen from outside.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Runner;
use crate::agent::event::{Event, EventReceiver, channel};
use crate::agent::run::Run;
use crate::agent::stop::RunResult;
use crate::message::Message;

/// A run that is being driven in the background. Dropping the handle stops it.
#[derive(Debug)]
pub struct RunHandle {
    run_id: String,
    events: EventReceiver,
    inbox: Arc<Mutex<Vec<Message>>>,
    task: JoinHandle<(Run, RunResult)>,
    cancel: CancellationToken,
    guard: DropGuard,
}

impl RunHandle {
    pub(super) fn spawn(runner: Arc<Runner>, mut run: Run) -> Self {
        let (observer, events) = channel();
        let inbox = Arc::new(Mutex::new(Vec::new()));
        let cancel = CancellationToken::new();
        let run_id = run.id().to_owned();
        let task = tokio::spawn({
            let (inbox, cancel) = (inbox.clone(), cancel.clone());
            async move {
                loop {
                    for message in take(&inbox) {
                        run.steer(message);
                    }
                    if let Some(result) = runner.step_with(&mut run, &cancel, Some(&observer)).await {
                        return (run, result);
                    }
                }
            }
        });
        Self { run_id, events, inbox, task, guard: cancel.clone().drop_guard(), cancel }
    }

    /// The run's id.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Waits for the next event; none after `run.finished`. A caller that does not ask does not stall the run.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.events.next().await
    }

    /// Puts a message of the user before the model's next turn.
    pub fn steer(&self, text: impl Into<String>) {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).push(Message::user(text));
    }

    /// Ends the run as soon as possible: what is under way is dropped, and each call gets its outcome.
    ///
    /// ```no_run
    /// # use honeycomb_host::agent::{RunHandle, StopReason};
    /// # async fn example(handle: RunHandle) -> Result<(), tokio::task::JoinError> {
    /// handle.stop();
    /// let (run, result) = handle.finish().await?;
    /// assert_eq!(result.stop_reason, StopReason::Cancelled);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stop(&self) {
        self.cancel.cancel();
    }

    /// A token that ends the run when it is cancelled, for a signal handler.
    pub fn cancel_token(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// Waits for the end; returns the run, for a next task, and its result.
    ///
    /// # Errors
    ///
    /// Returns an error if the runtime shuts down before.
    pub async fn finish(self) -> Result<(Run, RunResult), JoinError> {
        let Self { task, guard, .. } = self;
        let finished = task.await;
        drop(guard);
        finished
    }
}

fn take(inbox: &Mutex<Vec<Message>>) -> Vec<Message> {
    std::mem::take(&mut *inbox.lock().unwrap_or_else(PoisonError::into_inner))
}
