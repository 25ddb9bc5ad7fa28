//! Where a guest's stdout and stderr go: a bounded buffer, never the host's own streams.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

/// The most that one write may carry; also what `write-zeroes` may allocate.
const WRITE_PERMIT: usize = 64 * 1024;

/// Keeps the first bytes that a guest writes, and counts the rest.
///
/// A full buffer takes writes and drops them: a closed stream would make `println!` panic in the guest, and what a tool prints must not
/// decide whether it works. Empty writes leave no trace (GHSA-5m8g: wasmtime's own adapter queues them without a bound).
#[derive(Clone, Debug)]
pub(super) struct BoundedPipe(Arc<Mutex<Kept>>);

#[derive(Debug)]
struct Kept {
    bytes: Vec<u8>,
    capacity: usize,
    written: u64,
}

impl BoundedPipe {
    pub(super) fn new(capacity: u64) -> Self {
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
        Self(Arc::new(Mutex::new(Kept { bytes: Vec::new(), capacity, written: 0 })))
    }

    /// What was kept, as text, and how many bytes were written in all.
    pub(super) fn take(&self) -> (String, u64) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = std::mem::take(&mut kept.bytes);
        (String::from_utf8_lossy(&bytes).into_owned(), kept.written)
    }

    /// What was kept so far, as text.
    pub(super) fn peek(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept.bytes).into_owned()
    }

    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.written = kept.written.saturating_add(bytes.len() as u64);
        let room = kept.capacity.saturating_sub(kept.bytes.len());
        let taken = room.min(bytes.len());
        kept.bytes.extend_from_slice(&bytes[..taken]);
    }
}

#[async_trait]
impl OutputStream for BoundedPipe {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if bytes.len() > WRITE_PERMIT {
            return Err(StreamError::trap("write larger than `check-write` allows"));
        }
        self.push(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_PERMIT)
    }
}

#[async_trait]
impl Pollable for BoundedPipe {
    async fn ready(&mut self) {}
}

impl IsTerminal for BoundedPipe {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for BoundedPipe {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }
}

impl AsyncWrite for BoundedPipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.push(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_first_bytes_and_counts_the_rest() {
        let pipe = BoundedPipe::new(5);
        let mut stream = pipe.p2_stream();
        for text in ["北", "京abc", "def"] {
            stream.write(Bytes::from(text)).unwrap();
        }
        assert_eq!(pipe.take(), ("北\u{fffd}".to_owned(), 12));
    }

    #[test]
    fn a_full_pipe_stays_open() {
        let mut pipe = BoundedPipe::new(0);
        pipe.write(Bytes::from_static(b"x")).unwrap();
        assert_eq!(pipe.check_write().unwrap(), WRITE_PERMIT);
    }

    #[test]
    fn empty_writes_leave_no_trace() {
        let mut pipe = BoundedPipe::new(1 << 20);
        for _ in 0..100_000 {
            pipe.write(Bytes::new()).unwrap();
        }
        let kept = pipe.0.lock().unwrap();
        assert_eq!((kept.bytes.capacity(), kept.written), (0, 0));
    }

    #[test]
    fn refuses_more_zeroes_than_it_permits() {
        let mut pipe = BoundedPipe::new(1 << 20);
        assert!(matches!(pipe.write_zeroes(usize::MAX), Err(StreamError::Trap(_))));
        assert!(pipe.write_zeroes(WRITE_PERMIT).is_ok());
    }
}
