//! How long each part of a request may take. A guest may only shorten it.

use std::time::Duration;

use tokio::time::Instant;
use wasmtime_wasi_http::RequestOptions;

/// Lookup, dialling and TLS together.
const CONNECT: Duration = Duration::from_secs(10);

/// From the request to the head of the response; a slow API needs most of the call's own time.
const FIRST_BYTE: Duration = Duration::from_secs(60);

/// Between two pieces of the response's body.
const BETWEEN_BYTES: Duration = Duration::from_secs(60);

/// The time that one request has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    connect: Duration,
    first_byte: Duration,
    between_bytes: Duration,
    deadline: Instant,
}

impl Timeouts {
    /// The smaller of what the guest asks for, what the host allows, and what is left of the call.
    pub(super) fn new(options: Option<RequestOptions>, deadline: Instant) -> Self {
        let options = options.unwrap_or_default();
        let smaller = |wanted: Option<Duration>, most: Duration| wanted.map_or(most, |wanted| wanted.min(most));
        Self {
            connect: smaller(options.connect_timeout, CONNECT),
            first_byte: smaller(options.first_byte_timeout, FIRST_BYTE),
            between_bytes: smaller(options.between_bytes_timeout, BETWEEN_BYTES),
            deadline,
        }
    }

    /// When the connection must stand, if it is begun now.
    pub(super) fn connect_by(&self) -> Instant {
        self.within(self.connect)
    }

    /// When the head of the response must be there, if the request is sent now.
    pub(super) fn first_byte_by(&self) -> Instant {
        self.within(self.first_byte)
    }

    /// When the next piece of the body must be there.
    pub(super) fn next_byte_by(&self) -> Instant {
        self.within(self.between_bytes)
    }

    fn within(&self, time: Duration) -> Instant {
        // At most a minute from now, so the sum cannot overflow.
        (Instant::now() + time).min(self.deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_can_only_shorten() {
        let deadline = Instant::now() + Duration::from_secs(30);
        for (wanted, connect, first_byte) in [
            (None, CONNECT, FIRST_BYTE),
            (Some(Duration::ZERO), Duration::ZERO, Duration::ZERO),
            (Some(Duration::from_nanos(1)), Duration::from_nanos(1), Duration::from_nanos(1)),
            (Some(Duration::from_secs(3)), Duration::from_secs(3), Duration::from_secs(3)),
            (Some(Duration::from_nanos(u64::MAX)), CONNECT, FIRST_BYTE),
            (Some(Duration::MAX), CONNECT, FIRST_BYTE),
        ] {
            let options = RequestOptions { connect_timeout: wanted, first_byte_timeout: wanted, between_bytes_timeout: wanted };
            let timeouts = Timeouts::new(Some(options), deadline);
            assert_eq!((timeouts.connect, timeouts.first_byte, timeouts.between_bytes), (connect, first_byte, first_byte));
            assert!(timeouts.connect_by() <= Instant::now() + connect, "{wanted:?}");
            assert!(timeouts.first_byte_by() <= deadline && timeouts.next_byte_by() <= deadline, "{wanted:?}");
        }
    }
}
