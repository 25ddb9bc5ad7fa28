//! Reading lines from the terminal, so that a wait can end and nothing typed early is taken for an answer.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often a wait for a line looks whether it is still wanted, in milliseconds.
#[cfg(unix)]
const TICK_MS: i64 = 50;
/// The longest line.
const MAX_LINE: usize = 1024 * 1024;

/// Reads a line. None at the end of input, or when the future was dropped before.
///
/// The standard library's reader takes more than a line and keeps the rest; this takes a byte at a time, so that
/// [`discard_typed`] reaches all that was typed and not asked for.
pub(super) async fn read_line() -> Option<String> {
    let unwanted = Arc::new(AtomicBool::new(false));
    let _guard = Guard(Arc::clone(&unwanted));
    tokio::task::spawn_blocking(move || blocking_line(&unwanted)).await.ok().flatten()
}

/// Tells the reading thread that nobody waits any more.
struct Guard(Arc<AtomicBool>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Drops what was typed or pasted before a question stood there.
pub(super) fn discard_typed() {
    #[cfg(unix)]
    if rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush).is_err() {
        tracing::debug!("stdin is no terminal");
    }
}

#[cfg(unix)]
fn blocking_line(unwanted: &AtomicBool) -> Option<String> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdin = io::stdin();
    let tick = Timespec { tv_sec: 0, tv_nsec: TICK_MS * 1_000_000 };
    let mut line = Vec::new();
    loop {
        if unwanted.load(Ordering::Relaxed) {
            return None;
        }
        let ready = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&tick)).ok()?;
        if ready == 0 {
            continue;
        }
        let mut byte = [0];
        match rustix::io::read(&stdin, &mut byte) {
            Ok(0) | Err(_) if line.is_empty() => return None,
            Ok(0) | Err(_) => break,
            Ok(_) if byte == *b"\n" => break,
            Ok(_) if line.len() < MAX_LINE => line.extend(byte),
            Ok(_) => {}
        }
    }
    // Half a character is shown as what it is; it does not end the chat.
    Some(String::from_utf8_lossy(&line).into_owned())
}

#[cfg(not(unix))]
fn blocking_line(_: &AtomicBool) -> Option<String> {
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line).ok()?;
    (read > 0 && line.len() <= MAX_LINE).then_some(line)
}
