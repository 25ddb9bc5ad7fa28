//! Progress and log lines of a running call, on their way to the client.

// The specification of 2026-07-28 deprecates logging and keeps it working; the SDK marks its types so.
#![expect(deprecated, reason = "clients of every protocol version so far use logging")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::tool::{LogLevel, LogLine, LogSink, Progress, ProgressSink};

/// How many notices wait for the client. A guest is faster than any client; what does not fit is counted and dropped.
const WAITING: usize = 256;

/// Where a call's notices go.
pub(super) struct Notices {
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    sender: mpsc::Sender<Notice>,
    receiver: mpsc::Receiver<Notice>,
    dropped: Arc<AtomicU64>,
}

enum Notice {
    Progress(Progress),
    Log(LogLine),
}

impl Notices {
    /// Notices for `peer`; progress only if the client gave a token for it.
    pub(super) fn new(peer: Peer<RoleServer>, token: Option<ProgressToken>) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        Self { peer, token, sender, receiver, dropped: Arc::default() }
    }

    /// Takes progress, if the client wants it.
    pub(super) fn progress(&self) -> Option<ProgressSink> {
        self.token.as_ref()?;
        let sender = self.sender.clone();
        // Progress that does not fit is stale by the time there is room.
        Some(Arc::new(move |progress| drop(sender.try_send(Notice::Progress(progress)))))
    }

    /// Takes log lines from `least` on.
    pub(super) fn log(&self, least: LogLevel) -> LogSink {
        let (sender, dropped) = (self.sender.clone(), Arc::clone(&self.dropped));
        Arc::new(move |line: LogLine| {
            if line.level >= least && sender.try_send(Notice::Log(line)).is_err() {
                dropped.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    /// Runs `call` and passes its notices on meanwhile; returns when the last of them is sent.
    pub(super) async fn during<T>(self, call: impl Future<Output = T>) -> T {
        let ended = CancellationToken::new();
        let forward = forward(self.peer, self.token, self.receiver, ended.clone(), self.dropped);
        let call = async {
            let output = call.await;
            ended.cancel();
            output
        };
        tokio::join!(call, forward).0
    }
}

async fn forward(
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    mut notices: mpsc::Receiver<Notice>,
    ended: CancellationToken,
    dropped: Arc<AtomicU64>,
) {
    let mut done = None;
    loop {
        let notice = tokio::select! {
            biased;
            notice = notices.recv() => notice,
            () = ended.cancelled() => None,
        };
        let sent = match (notice, &token) {
            (None, _) => break,
            // "The progress value MUST increase with each notification."
            (Some(Notice::Progress(progress)), Some(token)) if done.is_none_or(|done| progress.done > done) => {
                done = Some(progress.done);
                peer.notify_progress(progress_param(token.clone(), progress)).await
            }
            (Some(Notice::Progress(_)), _) => Ok(()),
            (Some(Notice::Log(line)), _) => peer.notify_logging_message(log_param(&line)).await,
        };
        if let Err(error) = sent {
            tracing::debug!("the client is gone: {error}");
        }
    }
    let dropped = dropped.load(Ordering::Relaxed);
    if dropped > 0 {
        let text = format!("{dropped} log lines came too fast and were dropped");
        let line = LogLine { plugin: "honeycomb".into(), level: LogLevel::Warn, text };
        if let Err(error) = peer.notify_logging_message(log_param(&line)).await {
            tracing::debug!("the client is gone: {error}");
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "MCP has no integers here, and nobody counts beyond 2^53 steps")]
fn progress_param(token: ProgressToken, progress: Progress) -> ProgressNotificationParam {
    let mut param = ProgressNotificationParam::new(token, progress.done as f64);
    param.total = progress.total.map(|total| total as f64);
    param.message = progress.message;
    param
}

fn log_param(line: &LogLine) -> LoggingMessageNotificationParam {
    LoggingMessageNotificationParam::new(to_mcp(line.level), line.text.as_str().into()).with_logger(&*line.plugin)
}

fn to_mcp(level: LogLevel) -> LoggingLevel {
    match level {
        LogLevel::Trace | LogLevel::Debug => LoggingLevel::Debug,
        LogLevel::Info => LoggingLevel::Info,
        LogLevel::Warn => LoggingLevel::Warning,
        LogLevel::Error => LoggingLevel::Error,
        LogLevel::Critical => LoggingLevel::Critical,
    }
}

/// The least level of ours that a client wants who asks for `level`; none when nothing of ours is important enough.
pub(super) fn least(level: LoggingLevel) -> Option<LogLevel> {
    match level {
        LoggingLevel::Debug => Some(LogLevel::Trace),
        LoggingLevel::Info => Some(LogLevel::Info),
        LoggingLevel::Notice | LoggingLevel::Warning => Some(LogLevel::Warn),
        LoggingLevel::Error => Some(LogLevel::Error),
        LoggingLevel::Critical => Some(LogLevel::Critical),
        LoggingLevel::Alert | LoggingLevel::Emergency => None,
    }
}
