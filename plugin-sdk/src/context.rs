//! What a tool may use while it runs.

use std::time::Duration;

use crate::config::Config;
use crate::http::Http;
use crate::kv::Kv;

#[cfg(not(target_family = "wasm"))]
mod double;
#[cfg(target_family = "wasm")]
mod guest;

#[cfg(not(target_family = "wasm"))]
pub(crate) use double::Host;
#[cfg(not(target_family = "wasm"))]
pub use double::{LogLine, ProgressReport};
#[cfg(target_family = "wasm")]
pub(crate) use guest::{Host, log};

/// What a tool may use while it runs. It carries no right of its own: each use works as far as the operator's policy grants it.
///
/// In a plugin it speaks to the host. On any other target it holds test doubles: see [`Context::test`].
#[derive(Debug)]
pub struct Context {
    call: Call,
    pub(crate) host: Host,
}

/// The call that a tool serves.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Call {
    /// Names this call; unique within the host.
    pub id: String,
    /// Names the run of the agent that the call belongs to.
    pub run_id: String,
    /// The same on every attempt at the same model call, for use with services that accept such a key.
    pub idempotency_key: String,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// How long the call may take, counted from its start.
    pub deadline: Duration,
    /// W3C Trace Context `traceparent`, if the host traces.
    pub traceparent: Option<String>,
}

/// How important a log message is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Level {
    /// The finest detail.
    Trace,
    /// Detail for debugging.
    Debug,
    /// Worth knowing.
    Info,
    /// Something is off.
    Warn,
    /// Something failed.
    Error,
    /// The plugin cannot go on.
    Critical,
}

impl Context {
    #[cfg(target_family = "wasm")]
    pub(crate) fn guest(call: Call) -> Self {
        Self { call, host: Host::default() }
    }

    /// The call that the tool serves.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Writes a message to the operator's log. The model does not see it.
    pub fn log(&self, level: Level, message: &str) {
        self.host.log(level, message);
    }

    /// Says how far the call has come: `done` of `total` steps, in any unit.
    ///
    /// Returns false when the caller no longer wants the result; the tool should then return soon.
    pub fn progress(&self, done: u64, total: Option<u64>, message: Option<&str>) -> bool {
        self.host.progress(done, total, message)
    }

    /// Sends HTTP requests.
    pub fn http(&self) -> Http<'_> {
        Http::new(&self.host)
    }

    /// The plugin's key-value store, kept between calls.
    pub fn kv(&self) -> Kv<'_> {
        Kv::new(&self.host)
    }

    /// The values that the operator's policy sets for the plugin.
    pub fn config(&self) -> Config<'_> {
        Config::new(&self.host)
    }
}
