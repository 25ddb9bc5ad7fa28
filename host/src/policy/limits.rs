//! Limits: what one call of a plugin may use. Each is on by default and has a name in the policy.

use std::time::Duration;

use super::units;

/// The limits of one call, and of what a plugin's calls may use together.
///
/// The policy's `[limits]` table sets ceilings; a plugin's own table may only lower them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Limits {
    /// `fuel`: units of work in the guest, about one an instruction.
    pub fuel: u64,
    /// `timeout`: wall-clock time around the whole call, waiting and host functions included.
    pub timeout: Duration,
    /// `memory`: bytes, the sum over all linear memories.
    pub memory: u64,
    /// `table_elements`: the sum over all tables.
    pub table_elements: u64,
    /// `instances`: core instances, memories and tables, each.
    pub instances: u64,
    /// `handles`: open resources of the guest (files, streams, requests, pollables).
    pub handles: u64,
    /// `hostcall_bytes`: bytes that one host call, or the result, may carry from guest to host.
    pub hostcall_bytes: u64,
    /// `max_output`: bytes of the result.
    pub max_output: u64,
    /// `max_stdio`: bytes kept of stdout, and of stderr.
    pub max_stdio: u64,
    /// `max_log`: bytes kept of log messages.
    pub max_log: u64,
    /// `random_bytes`: bytes of one request for random data.
    pub random_bytes: u64,
    /// `http_requests`: requests of one call.
    pub http_requests: u64,
    /// `http_connections`: connections of one call that are open at once.
    pub http_connections: u64,
    /// `http_request_bytes`: bytes of one request body.
    pub http_request_bytes: u64,
    /// `http_response_bytes`: bytes of one response body.
    pub http_response_bytes: u64,
    /// `concurrency`: calls of one plugin that run at once; more wait.
    pub concurrency: u64,
}

impl Limits {
    /// For each limit, the smaller of the two.
    #[must_use]
    pub fn smallest(mut self, other: &Self) -> Self {
        for field in &FIELDS {
            let value = (field.get)(&self).min((field.get)(other));
            (field.set)(&mut self, value);
        }
        self
    }

    /// The limits by the names they have in a policy, with their values as a policy writes them.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        FIELDS.iter().map(|field| (field.name, field.unit.show((field.get)(self))))
    }
}

/// How a policy writes a limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Unit {
    Count,
    Bytes,
    Millis,
}

impl Unit {
    pub(super) fn show(self, value: u64) -> String {
        match self {
            Self::Count => value.to_string(),
            Self::Bytes => units::format_size(value),
            Self::Millis => units::format_duration(Duration::from_millis(value)),
        }
    }
}

/// One limit: its name in a policy, and how to reach it.
pub(super) struct LimitField {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    /// The largest value a policy may state.
    pub(super) max: u64,
    pub(super) get: fn(&Limits) -> u64,
    pub(super) set: fn(&mut Limits, u64),
}

/// TOML's own integers end here, and so does the fuel that wasmtime counts in an `i64`.
const MAX_FUEL: u64 = i64::MAX as u64;
/// A day: deadline arithmetic cannot overflow, and no call of a tool is meant to take longer.
const MAX_MILLIS: u64 = 24 * 3_600_000;
/// A TiB: more is a slip of the pen, and sums stay far from overflow.
const MAX_BYTES: u64 = 1 << 40;
/// Far above what a host can hold, and far below what a tokio semaphore panics at (`usize::MAX >> 3`).
const MAX_COUNT: u64 = 100_000_000;

macro_rules! limit {
    ($name:ident, Millis) => {
        LimitField {
            name: stringify!($name),
            unit: Unit::Millis,
            max: MAX_MILLIS,
            get: |limits| u64::try_from(limits.$name.as_millis()).unwrap_or(u64::MAX),
            set: |limits, value| limits.$name = Duration::from_millis(value),
        }
    };
    ($name:ident, $unit:ident, $max:ident) => {
        LimitField {
            name: stringify!($name),
            unit: Unit::$unit,
            max: $max,
            get: |limits| limits.$name,
            set: |limits, value| limits.$name = value,
        }
    };
}

/// Every limit, in the order of [`Limits`].
pub(super) static FIELDS: [LimitField; 16] = [
    limit!(fuel, Count, MAX_FUEL),
    limit!(timeout, Millis),
    limit!(memory, Bytes, MAX_BYTES),
    limit!(table_elements, Count, MAX_COUNT),
    limit!(instances, Count, MAX_COUNT),
    limit!(handles, Count, MAX_COUNT),
    limit!(hostcall_bytes, Bytes, MAX_BYTES),
    limit!(max_output, Bytes, MAX_BYTES),
    limit!(max_stdio, Bytes, MAX_BYTES),
    limit!(max_log, Bytes, MAX_BYTES),
    limit!(random_bytes, Bytes, MAX_BYTES),
    limit!(http_requests, Count, MAX_COUNT),
    limit!(http_connections, Count, MAX_COUNT),
    limit!(http_request_bytes, Bytes, MAX_BYTES),
    limit!(http_response_bytes, Bytes, MAX_BYTES),
    limit!(concurrency, Count, MAX_COUNT),
];

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            fuel: 1_000_000_000,
            timeout: Duration::from_secs(30),
            memory: 128 * MIB,
            table_elements: 100_000,
            instances: 64,
            handles: 1_024,
            hostcall_bytes: 8 * MIB,
            max_output: MIB,
            max_stdio: 64 * 1024,
            max_log: 64 * 1024,
            random_bytes: MIB,
            http_requests: 32,
            http_connections: 8,
            http_request_bytes: MIB,
            http_response_bytes: 8 * MIB,
            concurrency: 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_in_the_table_once() {
        let mut limits = Limits::default();
        for (index, field) in FIELDS.iter().enumerate() {
            (field.set)(&mut limits, index as u64 + 1);
        }
        // Names all fields on purpose: a new limit does not compile here until it is in the table.
        let Limits {
            fuel,
            timeout,
            memory,
            table_elements,
            instances,
            handles,
            hostcall_bytes,
            max_output,
            max_stdio,
            max_log,
            random_bytes,
            http_requests,
            http_connections,
            http_request_bytes,
            http_response_bytes,
            concurrency,
        } = limits;
        let values = [
            fuel,
            timeout.as_millis() as u64,
            memory,
            table_elements,
            instances,
            handles,
            hostcall_bytes,
            max_output,
            max_stdio,
            max_log,
            random_bytes,
            http_requests,
            http_connections,
            http_request_bytes,
            http_response_bytes,
            concurrency,
        ];
        assert_eq!(values.to_vec(), (1..=FIELDS.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn defaults_are_within_what_a_policy_may_state() {
        for field in &FIELDS {
            let value = (field.get)(&Limits::default());
            assert!(value > 0 && value <= field.max, "{}", field.name);
        }
    }

    #[test]
    fn the_smaller_of_each_wins() {
        let a = Limits { fuel: 5, timeout: Duration::from_secs(9), ..Limits::default() };
        let b = Limits { fuel: 7, timeout: Duration::from_secs(1), ..Limits::default() };
        let both = a.smallest(&b);
        assert_eq!((both.fuel, both.timeout), (5, Duration::from_secs(1)));
    }

    #[test]
    fn shows_values_as_a_policy_writes_them() {
        let shown: Vec<String> = Limits::default().entries().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(shown[..4], ["fuel=1000000000", "timeout=30s", "memory=128MiB", "table_elements=100000"]);
    }
}
