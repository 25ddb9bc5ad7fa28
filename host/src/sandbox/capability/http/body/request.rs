//! The body of a request.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use wasmtime_wasi_http::{Error, WasiBody};

use super::MAX_EMPTY;
use crate::sandbox::capability::http::refusal::{Refusal, Report};

/// How much of a body is read before anything is sent. A body that ends within it is sent with its length, and a secret or a
/// false length in it is found while nothing has left.
const READ_AHEAD: usize = 64 * 1024;

/// The body of a request, as it is sent.
pub(in super::super) struct RequestBody {
    /// What may be sent.
    ready: BytesMut,
    /// What may yet turn out to be the beginning of a secret.
    held: BytesMut,
    /// None once it has ended.
    guest: Option<WasiBody>,
    rules: Rules,
    problem: Problem,
}

/// What a body must keep to.
struct Rules {
    /// What the guest said in `content-length`.
    expected: Option<u64>,
    limit: u64,
    read: u64,
    report: Arc<Report>,
}

/// Why a body ended early, for who waits for the response: hyper's error does not give it back.
#[derive(Clone, Default)]
pub(in super::super) struct Problem(Arc<Mutex<Option<Error>>>);

impl Problem {
    /// The problem, if there was one.
    pub(in super::super) fn take(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, error: Error) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
}

impl RequestBody {
    /// Reads the beginning of a guest's body, or all of a short one.
    ///
    /// # Errors
    ///
    /// Returns why it must not be sent.
    pub(in super::super) async fn prepare(
        guest: WasiBody,
        expected: Option<u64>,
        limit: u64,
        report: Arc<Report>,
    ) -> Result<Self, Refusal> {
        let rules = Rules { expected, limit, read: 0, report };
        if expected.is_some_and(|expected| expected > limit) {
            return Err(rules.too_large());
        }
        let mut body =
            Self { ready: BytesMut::new(), held: BytesMut::new(), guest: Some(guest), rules, problem: Problem::default() };
        while body.ready.len() + body.held.len() < READ_AHEAD {
            let Some(guest) = &mut body.guest else { break };
            let frame = guest.frame().await;
            body.take(frame)?;
            // A guest can have any number of empty pieces ready.
            tokio::task::coop::consume_budget().await;
        }
        Ok(body)
    }

    /// Where to find out why the body ended early.
    pub(in super::super) fn problem(&self) -> Problem {
        self.problem.clone()
    }

    /// Takes the next piece of the guest's body.
    fn take(&mut self, frame: Option<Result<Frame<Bytes>, Error>>) -> Result<(), Refusal> {
        let Some(frame) = frame else {
            self.guest = None;
            if let Some(expected) = self.rules.expected
                && expected != self.rules.read
            {
                return Err(self.rules.wrong_length());
            }
            self.ready.unsplit(self.held.split());
            return Ok(());
        };
        let data = frame?.into_data().map_err(|_| {
            // Trailers can smuggle headers past the check of the head (GHSA-jxcf).
            self.rules.report.malformed(Error::HttpRequestTrailerSectionSize(None), "trailers are not sent")
        })?;
        self.rules.count(data.len())?;
        let redactor = self.rules.report.redactor();
        if redactor.is_empty() {
            self.ready.extend_from_slice(&data);
            return Ok(());
        }
        self.held.extend_from_slice(&data);
        if redactor.contains(&self.held) {
            return Err(self.rules.report.holds_secret("body"));
        }
        let clear = self.held.len().saturating_sub(redactor.window());
        self.ready.unsplit(self.held.split_to(clear));
        Ok(())
    }
}

impl Rules {
    fn count(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.read = self.read.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        self.report.meter().add_http_bytes(u64::try_from(bytes).unwrap_or(u64::MAX));
        if self.read > self.limit {
            Err(self.too_large())
        } else if self.expected.is_some_and(|expected| self.read > expected) {
            Err(self.wrong_length())
        } else {
            Ok(())
        }
    }

    fn too_large(&self) -> Refusal {
        let error = Error::HttpRequestBodySize(Some(self.limit));
        self.report.limit(error, "http_request_bytes", self.limit, "bytes in the body of a request")
    }

    fn wrong_length(&self) -> Refusal {
        self.report.malformed(Error::HttpRequestBodySize(Some(self.read)), "its body is not as long as `content-length` says")
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        for _ in 0..MAX_EMPTY {
            if !self.ready.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(self.ready.split().freeze()))));
            }
            let Some(guest) = &mut self.guest else { return Poll::Ready(None) };
            let frame = ready!(Pin::new(guest).poll_frame(context));
            if let Err(refusal) = self.take(frame) {
                self.guest = None;
                // The response may long have been handed to the guest, so the operator is told from here.
                let error = self.rules.report.late(refusal);
                self.problem.set(error);
                return Poll::Ready(Some(Err(Error::HttpRequestDenied)));
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.guest.is_none() && self.ready.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.guest {
            None => SizeHint::with_exact(self.ready.len() as u64),
            Some(_) => SizeHint::new(),
        }
    }
}
