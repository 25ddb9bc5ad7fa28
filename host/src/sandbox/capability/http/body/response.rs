//! The body of a response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use tokio_util::sync::DropGuard;
use wasmtime_wasi_http::Error;

use super::MAX_EMPTY;
use crate::sandbox::capability::http::connect::http_error;
use crate::sandbox::capability::http::refusal::{Refusal, Report};
use crate::sandbox::capability::http::timeouts::Timeouts;

/// The body of a response, as the guest reads it. Dropping it closes the connection.
pub(in super::super) struct ResponseBody {
    /// None once it has ended or failed.
    server: Option<Server>,
    read: u64,
    limit: u64,
    timeouts: Timeouts,
    timer: Pin<Box<Sleep>>,
    report: Arc<Report>,
}

struct Server {
    body: Incoming,
    _held: Held,
}

/// What is let go when the body ends: the first closes the connection, the second makes room for another one.
pub(in super::super) type Held = (DropGuard, OwnedSemaphorePermit);

impl ResponseBody {
    /// Wraps what the server sends.
    ///
    /// # Errors
    ///
    /// Returns the limit, if the server announces more.
    pub(in super::super) fn new(
        body: Incoming,
        limit: u64,
        timeouts: Timeouts,
        held: Held,
        report: Arc<Report>,
    ) -> Result<Self, Refusal> {
        if body.size_hint().lower() > limit {
            return Err(too_large(&report, limit));
        }
        let timer = Box::pin(tokio::time::sleep_until(timeouts.next_byte_by()));
        Ok(Self { server: Some(Server { body, _held: held }), read: 0, limit, timeouts, timer, report })
    }

    fn fail(&mut self, error: Error) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.server = None;
        Poll::Ready(Some(Err(error)))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        for _ in 0..MAX_EMPTY {
            let Some(server) = &mut self.server else { return Poll::Ready(None) };
            let frame = match Pin::new(&mut server.body).poll_frame(context) {
                Poll::Ready(Some(frame)) => frame,
                Poll::Ready(None) => {
                    self.server = None;
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    ready!(self.timer.as_mut().poll(context));
                    return self.fail(Error::ConnectionReadTimeout);
                }
            };
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return self.fail(http_error(&error)),
            };
            let by = self.timeouts.next_byte_by();
            self.timer.as_mut().reset(by);
            let Some(data) = frame.data_ref() else { return Poll::Ready(Some(Ok(frame))) };
            let bytes = u64::try_from(data.len()).unwrap_or(u64::MAX);
            self.report.meter().add_http_bytes(bytes);
            self.read = self.read.saturating_add(bytes);
            if self.read > self.limit {
                let error = self.report.late(too_large(&self.report, self.limit));
                return self.fail(error);
            }
            if bytes != 0 {
                return Poll::Ready(Some(Ok(frame)));
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.server.as_ref().is_none_or(|server| server.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.server.as_ref().map_or_else(|| SizeHint::with_exact(0), |server| server.body.size_hint())
    }
}

fn too_large(report: &Report, limit: u64) -> Refusal {
    let error = Error::HttpResponseBodySize(Some(limit));
    report.limit(error, "http_response_bytes", limit, "bytes in the body of a response")
}
