//! `wasi:logging/logging`: a guest's messages to the operator, bounded and cleaned.

use std::sync::Arc;

use wasmtime::component::{HasData, Linker};

use crate::sandbox::pace::Pace;
use crate::secret::Secrets;
use crate::text;
use crate::tool::{LogLevel, LogLine, LogSink};
use wasi::logging::logging::{Host, Level};

mod generated {
    #![allow(missing_docs, reason = "generated from WIT, where each item is documented")]
    wasmtime::component::bindgen!({
        inline: "
            package honeycomb:host;
            world logs {
                import wasi:logging/logging@0.1.0-draft;
            }
        ",
        path: "../wit",
        world: "honeycomb:host/logs",
        imports: { default: async },
    });
}
use generated::wasi;

/// The longest that one message may be, in bytes; the rest is cut.
const MAX_MESSAGE: usize = 4096;
const MAX_CONTEXT: usize = 64;
/// What a message counts for beyond its bytes, so that empty ones are bounded as well.
const MESSAGE_COST: u64 = 64;

/// The log of one call.
pub(in crate::sandbox) struct Log {
    plugin: Arc<str>,
    secrets: Arc<Secrets>,
    room: u64,
    dropped: u64,
    sink: Option<LogSink>,
    pace: Pace,
}

/// A borrow of a [`Log`], as the host functions see it.
pub(in crate::sandbox) struct LogView<'a> {
    pub(in crate::sandbox) ctx: &'a mut Log,
}

impl Log {
    /// A log that takes `max_bytes`, then drops. What it takes goes to the host's log and to `sink`.
    pub(in crate::sandbox) fn new(plugin: Arc<str>, secrets: Arc<Secrets>, max_bytes: u64, sink: Option<LogSink>) -> Self {
        Self { plugin, secrets, room: max_bytes, dropped: 0, sink, pace: Pace::default() }
    }

    /// Takes one message if there is room, cleaned.
    fn admit(&mut self, context: &str, message: &str) -> Option<String> {
        // On one line: what follows a newline would read as the host's own words.
        let message = text::clean_line(message, MAX_MESSAGE);
        let context = text::clean_line(context, MAX_CONTEXT);
        let cost = MESSAGE_COST + (message.len() + context.len()) as u64;
        let Some(left) = self.room.checked_sub(cost) else {
            // The first message that does not fit ends the log: later, shorter ones would read as if nothing were missing.
            self.room = 0;
            self.dropped += 1;
            return (self.dropped == 1).then(|| "[log full: `max_log` of the policy is used up]".to_owned());
        };
        self.room = left;
        let line = if context.is_empty() { message } else { format!("{context}: {message}") };
        Some(self.secrets.redactor().redact(&line).into_owned())
    }
}

impl Host for LogView<'_> {
    async fn log(&mut self, level: Level, context: String, message: String) {
        self.ctx.pace.spend(context.len().saturating_add(message.len())).await;
        let Some(line) = self.ctx.admit(&context, &message) else { return };
        let plugin = &*self.ctx.plugin;
        match level {
            Level::Trace => tracing::trace!(target: "plugin", plugin, "{line}"),
            Level::Debug => tracing::debug!(target: "plugin", plugin, "{line}"),
            Level::Info => tracing::info!(target: "plugin", plugin, "{line}"),
            Level::Warn => tracing::warn!(target: "plugin", plugin, "{line}"),
            Level::Error | Level::Critical => tracing::error!(target: "plugin", plugin, "{line}"),
        }
        if let Some(sink) = &self.ctx.sink {
            sink(LogLine { plugin: Arc::clone(&self.ctx.plugin), level: level_of(level), text: line });
        }
    }
}

fn level_of(level: Level) -> LogLevel {
    match level {
        Level::Trace => LogLevel::Trace,
        Level::Debug => LogLevel::Debug,
        Level::Info => LogLevel::Info,
        Level::Warn => LogLevel::Warn,
        Level::Error => LogLevel::Error,
        Level::Critical => LogLevel::Critical,
    }
}

struct HasLog;

impl HasData for HasLog {
    type Data<'a> = LogView<'a>;
}

/// Offers the interface.
pub(in crate::sandbox) fn add_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    view: fn(&mut T) -> LogView<'_>,
) -> wasmtime::Result<()> {
    wasi::logging::logging::add_to_linker::<T, HasLog>(linker, view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleans_and_cuts() {
        let mut log = Log::new("demo".into(), Arc::default(), 1 << 20, None);
        assert_eq!(log.admit("http", "北京 \u{1b}[2J\u{202e}ok").as_deref(), Some("http: 北京 [2Jok"));
        let long = log.admit("", &"x".repeat(10_000)).unwrap();
        assert!(long.len() < MAX_MESSAGE + 64 && long.ends_with("10000 bytes in all]"), "{long}");
    }

    #[test]
    fn is_bounded_in_bytes_and_in_lines_and_says_once_that_it_is_full() {
        let mut log = Log::new("demo".into(), Arc::default(), 1000, None);
        let lines: Vec<String> = (0..10_000).filter_map(|_| log.admit("", "")).collect();
        assert_eq!(lines.len(), 1000 / 64 + 1);
        assert!(lines.last().unwrap().contains("`max_log`"));
        assert_eq!(log.dropped, 10_000 - 1000 / 64);
    }
}
