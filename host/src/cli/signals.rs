//! Ctrl-C and SIGTERM.

use tokio_util::sync::CancellationToken;

use super::output;

/// Resolves when the person or the system asks the process to stop.
pub(super) async fn stop_requested() {
    Signals::listen().next().await;
}

/// Cancels `token` at the first signal, and ends the process at the second. Signals count from the moment this returns.
pub(super) fn cancel_on_signal(token: CancellationToken) {
    let mut signals = Signals::listen();
    tokio::spawn(async move {
        signals.next().await;
        output::note("stopping; once more to stop at once");
        token.cancel();
        signals.next().await;
        #[expect(clippy::exit, reason = "the second signal means now")]
        std::process::exit(130);
    });
}

/// Keeps a limit on file sizes (`ulimit -f`) from killing the process: the write that passes it fails instead, and says so.
pub(super) fn outlive_file_size_limit() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let kind = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
        // A handler that was set stays, also when nobody listens.
        if signal(kind).is_err() {
            tracing::debug!("SIGXFSZ keeps its default");
        }
    }
}

/// The signals that ask the process to stop.
///
/// tokio keeps its handlers once it has set them: a signal that nobody listens for is lost, so listening begins where this is made and
/// not where it is first awaited.
#[cfg(unix)]
struct Signals([Option<tokio::signal::unix::Signal>; 2]);

#[cfg(unix)]
impl Signals {
    fn listen() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        Self([SignalKind::interrupt(), SignalKind::terminate()].map(|kind| signal(kind).ok()))
    }

    async fn next(&mut self) {
        let [interrupt, terminate] = &mut self.0;
        tokio::select! {
            () = heard(interrupt) => {}
            () = heard(terminate) => {}
        }
    }
}

/// Where the handler could not be set, the system's own does its work.
#[cfg(unix)]
async fn heard(signal: &mut Option<tokio::signal::unix::Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    std::future::pending().await
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> Self {
        Self
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}

/// SIGHUP, which asks for a reload.
pub(super) struct Hangup {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl Hangup {
    /// From now on, SIGHUP does not end the process.
    pub(super) fn listen() -> Self {
        Self {
            #[cfg(unix)]
            signal: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok(),
        }
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) {
        #[cfg(unix)]
        heard(&mut self.signal).await;
        #[cfg(not(unix))]
        std::future::pending::<()>().await;
    }
}
