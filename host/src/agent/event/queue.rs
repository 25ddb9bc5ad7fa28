//! Events for a consumer that may be slow: the run never waits for it.

use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Event, Observer};

/// Makes an observer that never blocks, and the other end, from which its events are read.
///
/// The queue between them is not bounded by a number: the run's budgets bound what can be in it, since deltas are joined and progress
/// reports thinned before they get here.
pub fn channel() -> (Arc<dyn Observer>, EventReceiver) {
    let (sender, receiver) = unbounded_channel();
    (Arc::new(Sender(sender)), EventReceiver(receiver))
}

/// The reading end of a [`channel`].
#[derive(Debug)]
pub struct EventReceiver(UnboundedReceiver<Event>);

impl EventReceiver {
    /// Waits for the next event; none once the run and its observer are gone.
    pub async fn next(&mut self) -> Option<Event> {
        self.0.recv().await
    }

    /// Waits for the next event, on a thread that may block.
    ///
    /// # Panics
    ///
    /// Panics when called from an asynchronous task.
    pub fn blocking_next(&mut self) -> Option<Event> {
        self.0.blocking_recv()
    }

    /// Returns the next event if it is there already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.0.try_recv().ok()
    }
}

struct Sender(UnboundedSender<Event>);

impl Observer for Sender {
    fn event(&self, event: &Event) {
        // A reader that has gone away wants no more events; the run goes on.
        let _ = self.0.send(event.clone());
    }
}
