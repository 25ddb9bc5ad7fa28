//! Time as an input, so that a run can be repeated exactly.

use crate::time;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01 UTC.
    fn now_ms(&self) -> u64;
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
