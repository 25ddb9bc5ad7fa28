//! Turns: a guest gives the processor back in time, whatever it does.
//!
//! The guest's own code yields on fuel. Host functions take no fuel, so a guest could keep a thread with nothing but calls of them, each
//! handling megabytes. Those that handle the guest's bytes in bulk are paced: they yield by themselves. The others are watched: on the
//! way in, the clock is read, and a guest that is past its deadline or keeps its thread far too long is unwound.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Fuel between two yields of the guest's own code: some hundred microseconds. With a yield each million units, 64 spinning guests on two
/// cores kept a healthy one waiting for 30 ms and more; with one each ten thousand, everything took half as long again.
pub(super) const FUEL_PER_TURN: u64 = 250_000;

/// Bytes that paced host functions handle between two yields: tens of microseconds.
const BYTES_PER_TURN: usize = 128 * 1024;
/// What each paced call counts for beyond its bytes.
const CALL_COST: usize = 256;

/// The longest turn, host functions included. Far above any honest one on a loaded machine.
const MAX_TURN: Duration = Duration::from_secs(1);
/// The clock is read on every one of so many host calls.
const CALLS_PER_CLOCK_READ: u32 = 16;

/// Counts what paced host functions handle.
#[derive(Debug, Default)]
pub(in crate::sandbox) struct Pace(usize);

impl Pace {
    /// Counts `bytes`, and lets others run when a turn's worth has been handled.
    pub(in crate::sandbox) async fn spend(&mut self, bytes: usize) {
        if self.due(bytes) {
            tokio::task::yield_now().await;
        }
    }

    /// Counts `bytes`; true when others should run first.
    pub(in crate::sandbox) fn due(&mut self, bytes: usize) -> bool {
        self.0 = self.0.saturating_add(bytes).saturating_add(CALL_COST);
        let due = self.0 >= BYTES_PER_TURN;
        if due {
            self.0 = 0;
        }
        due
    }
}

/// Unwinds a guest that overran its turn. Carried by `resume_unwind`, so that no panic is reported.
pub(super) struct Overran;

/// When the guest's current turn began; shared between the task that polls the guest and the store.
#[derive(Debug)]
pub(super) struct Turn {
    started: Instant,
    deadline: Instant,
    /// In microseconds from `started`.
    began: AtomicU64,
}

impl Turn {
    pub(super) fn new(started: Instant, deadline: Instant) -> Self {
        Self { started, deadline, began: AtomicU64::new(0) }
    }

    /// When the call has to end.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Notes that the guest gets the processor now.
    pub(super) fn begin(&self, now: Instant) {
        let began = now.saturating_duration_since(self.started).as_micros();
        self.began.store(u64::try_from(began).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn overran(&self, now: Instant) -> bool {
        let began = Duration::from_micros(self.began.load(Ordering::Relaxed));
        now >= self.deadline || now.saturating_duration_since(self.started).saturating_sub(began) > MAX_TURN
    }
}

/// Watches the host functions that cannot yield.
#[derive(Debug, Default)]
pub(super) struct Watch(u32);

impl Watch {
    /// Called on the way into a host function. Unwinds the guest with [`Overran`] if its turn is over.
    pub(super) fn enter(&mut self, turn: &Turn) {
        self.0 = self.0.wrapping_add(1);
        if self.0.is_multiple_of(CALLS_PER_CLOCK_READ) && turn.overran(Instant::now()) {
            // A synchronous host function has no other way to end its caller. wasmtime carries a panic through the guest's frames.
            std::panic::resume_unwind(Box::new(Overran));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_over_after_so_many_bytes_or_calls() {
        let mut pace = Pace::default();
        assert!(pace.due(BYTES_PER_TURN));
        assert!(!pace.due(BYTES_PER_TURN / 2));
        assert!(pace.due(BYTES_PER_TURN / 2));
        assert_eq!((0..).position(|_| pace.due(0)), Some(BYTES_PER_TURN / CALL_COST - 1));
        assert!(pace.due(usize::MAX));
    }

    #[test]
    fn overruns_past_the_deadline_or_after_a_long_turn() {
        let start = Instant::now();
        let turn = Turn::new(start, start + Duration::from_secs(10));
        assert!(!turn.overran(start + MAX_TURN));
        assert!(turn.overran(start + Duration::from_secs(2)));
        turn.begin(start + Duration::from_secs(2));
        assert!(!turn.overran(start + Duration::from_secs(2)));
        assert!(turn.overran(start + Duration::from_secs(10)));
    }
}
