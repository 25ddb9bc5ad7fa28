//! Runs a guest to its end, or to its deadline, or until nobody wants it any more.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::pace::{Overran, Turn};

/// How driving a guest ended.
pub(super) enum End<T> {
    /// It ran to its own end.
    Done(T),
    /// The deadline passed.
    Time,
    /// The caller no longer wants it.
    Cancelled,
    /// A host function panicked.
    Panicked(Box<dyn Any + Send>),
}

impl<T> End<T> {
    /// Changes what a guest's own end gave.
    pub(super) fn map_done<U>(self, change: impl FnOnce(T) -> U) -> End<U> {
        match self {
            Self::Done(value) => End::Done(change(value)),
            Self::Time => End::Time,
            Self::Cancelled => End::Cancelled,
            Self::Panicked(panic) => End::Panicked(panic),
        }
    }
}

/// Polls `work` until it ends, its deadline passes or `cancel` is cancelled. Adds the time spent in `work` to `busy`.
///
/// The clock is read at each poll, so that the deadline does not wait for the runtime's timer: with many spinning guests, a worker
/// looks at its timers only once in dozens of turns.
pub(super) async fn drive<T>(
    turn: &Turn,
    cancel: &CancellationToken,
    busy: &mut Duration,
    work: impl Future<Output = T>,
) -> End<T> {
    if cancel.is_cancelled() {
        return End::Cancelled;
    }
    let mut work = pin!(work);
    let mut cancelled = pin!(cancel.cancelled());
    let mut sleep = pin!(tokio::time::sleep_until(turn.deadline().into()));
    poll_fn(|context| {
        let began = Instant::now();
        if began >= turn.deadline() {
            return Poll::Ready(End::Time);
        }
        turn.begin(began);
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        *busy += began.elapsed();
        match polled {
            Ok(Poll::Ready(value)) => Poll::Ready(End::Done(value)),
            Ok(Poll::Pending) => {
                if cancelled.as_mut().poll(context).is_ready() {
                    Poll::Ready(End::Cancelled)
                } else if sleep.as_mut().poll(context).is_ready() {
                    Poll::Ready(End::Time)
                } else {
                    Poll::Pending
                }
            }
            Err(panic) if panic.is::<Overran>() => Poll::Ready(End::Time),
            Err(panic) => Poll::Ready(End::Panicked(panic)),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ended(timeout: Duration, cancel: &CancellationToken, work: impl Future<Output = u8>) -> &'static str {
        let now = Instant::now();
        let turn = Turn::new(now, now + timeout);
        match drive(&turn, cancel, &mut Duration::default(), work).await {
            End::Done(_) => "done",
            End::Time => "time",
            End::Cancelled => "cancelled",
            End::Panicked(_) => "panicked",
        }
    }

    #[tokio::test]
    async fn ends_in_each_of_the_ways() {
        let long = Duration::from_secs(60);
        let token = CancellationToken::new();
        assert_eq!(ended(long, &token, async { 1 }).await, "done");
        assert_eq!(ended(Duration::ZERO, &token, async { 1 }).await, "time");
        assert_eq!(ended(Duration::from_millis(5), &token, std::future::pending()).await, "time");
        assert_eq!(ended(long, &token, async { std::panic::resume_unwind(Box::new(Overran)) }).await, "time");
        assert_eq!(ended(long, &token, async { std::panic::resume_unwind(Box::new("host")) }).await, "panicked");
        let stopper = token.clone();
        let work = async move {
            stopper.cancel();
            std::future::pending().await
        };
        assert_eq!(ended(long, &token, work).await, "cancelled");
        assert_eq!(ended(long, &token, async { 1 }).await, "cancelled");
    }

    #[tokio::test]
    async fn the_deadline_needs_no_timer() {
        // Always ready to go on, so that the runtime never idles.
        let spin = async {
            loop {
                tokio::task::yield_now().await;
            }
        };
        assert_eq!(ended(Duration::from_millis(5), &CancellationToken::new(), spin).await, "time");
    }
}
