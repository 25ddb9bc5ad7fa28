//! `honeycomb:plugin/progress`: how a long call says that it is alive, and learns that nobody waits for it.

use tokio_util::sync::CancellationToken;
use wasmtime::component::{HasData, Linker};

use crate::sandbox::pace::Pace;
use crate::text;
use crate::tool::{Progress as Report, ProgressSink};
use honeycomb::plugin::progress::Host;

mod generated {
    #![allow(missing_docs, reason = "generated from WIT, where each item is documented")]
    wasmtime::component::bindgen!({
        inline: "
            package honeycomb:host;
            world reports {
                import honeycomb:plugin/progress@0.1.0;
            }
        ",
        path: "../wit",
        world: "honeycomb:host/reports",
        imports: { default: async },
    });
}
use generated::honeycomb;

/// The longest that a report's text may be, in bytes.
const MAX_MESSAGE: usize = 256;
/// The most reports of one call that are passed on; more say nothing to a person, and each may be a line on a wire.
const MAX_REPORTS: u32 = 1000;

/// The progress of one call.
pub(in crate::sandbox) struct Progress {
    sink: Option<ProgressSink>,
    cancel: CancellationToken,
    reports: u32,
    pace: Pace,
}

/// A borrow of a [`Progress`], as the host functions see it.
pub(in crate::sandbox) struct ProgressView<'a> {
    pub(in crate::sandbox) ctx: &'a mut Progress,
}

impl Progress {
    /// Progress that goes to `sink` until `cancel` is cancelled.
    pub(in crate::sandbox) fn new(sink: Option<ProgressSink>, cancel: CancellationToken) -> Self {
        Self { sink, cancel, reports: 0, pace: Pace::default() }
    }
}

impl Host for ProgressView<'_> {
    async fn report(&mut self, done: u64, total: Option<u64>, message: Option<String>) -> bool {
        let progress = &mut *self.ctx;
        progress.pace.spend(message.as_ref().map_or(0, String::len)).await;
        if let Some(sink) = &progress.sink
            && progress.reports < MAX_REPORTS
        {
            progress.reports += 1;
            sink(Report { done, total, message: message.map(|message| text::clean_line(&message, MAX_MESSAGE)) });
        }
        !progress.cancel.is_cancelled()
    }
}

struct HasProgress;

impl HasData for HasProgress {
    type Data<'a> = ProgressView<'a>;
}

/// Offers the interface.
pub(in crate::sandbox) fn add_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    view: fn(&mut T) -> ProgressView<'_>,
) -> wasmtime::Result<()> {
    honeycomb::plugin::progress::add_to_linker::<T, HasProgress>(linker, view)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test]
    async fn passes_on_clean_reports_up_to_a_bound() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink: ProgressSink = Arc::new({
            let seen = Arc::clone(&seen);
            move |report| seen.lock().unwrap().push(report)
        });
        let mut progress = Progress::new(Some(sink), CancellationToken::new());
        for done in 0..5000 {
            assert!(ProgressView { ctx: &mut progress }.report(done, Some(5000), Some("第\u{1b}一\n步".to_owned())).await);
        }
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 1000);
        assert_eq!(seen[7], Report { done: 7, total: Some(5000), message: Some("第一 步".to_owned()) });
    }

    #[tokio::test]
    async fn says_that_the_caller_has_gone() {
        let cancel = CancellationToken::new();
        let mut progress = Progress::new(None, cancel.clone());
        assert!(ProgressView { ctx: &mut progress }.report(1, None, None).await);
        cancel.cancel();
        assert!(!ProgressView { ctx: &mut progress }.report(2, None, None).await);
    }
}
