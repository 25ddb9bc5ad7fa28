//! Time as an input, so that a run can be repeated exactly.

use std::time::Duration;

use crate::time;
use crate::tool::BoxFuture;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01 UTC.
    fn now_ms(&self) -> u64;

    /// Waits, for a deadline of the run. A replay ends the wait where the recorded run's ended.
    fn sleep(&self, ms: u64) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(ms)))
    }
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        time::now_ms()
    }
}

/// A clock that stands still, for tests and replays.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedClock(
    /// The time it shows.
    pub u64,
);

impl Clock for FixedClock {
    fn now_ms(&self) -> u64 {
        self.0
    }
}
