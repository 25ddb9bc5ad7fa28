//! Prints events on a thread of their own, so that a terminal or a pipe that nobody reads does not stall the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use crate::agent::{Event, Observer, channel};

/// Knows how far the printing is.
#[derive(Clone)]
pub(super) struct Printer {
    sent: Arc<AtomicU64>,
    printed: watch::Receiver<u64>,
}

impl Printer {
    /// Starts printing to `view`; what the returned observer hears waits in a queue until then.
    pub(super) fn start(view: impl Observer + 'static) -> (Arc<dyn Observer>, Self) {
        let (queue, mut events) = channel();
        let sent = Arc::new(AtomicU64::new(0));
        let (progress, printed) = watch::channel(0);
        tokio::task::spawn_blocking(move || {
            while let Some(event) = events.blocking_next() {
                view.event(&event);
                progress.send_modify(|count| *count += 1);
            }
        });
        (Arc::new(Counted { queue, sent: sent.clone() }), Self { sent, printed })
    }

    /// Waits until all that was heard so far is printed.
    pub(super) async fn drained(&self) {
        let sent = self.sent.load(Ordering::SeqCst);
        // An error means that the thread is gone, and prints nothing more.
        let _ = self.printed.clone().wait_for(|printed| *printed >= sent).await;
    }
}

/// Counts what goes into the queue.
struct Counted {
    queue: Arc<dyn Observer>,
    sent: Arc<AtomicU64>,
}

impl Observer for Counted {
    fn event(&self, event: &Event) {
        self.sent.fetch_add(1, Ordering::SeqCst);
        self.queue.event(event);
    }
}
