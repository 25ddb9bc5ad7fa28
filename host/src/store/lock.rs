//! Who works on a session: a lock that goes with its process, and says whose it is.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::StoreError;

/// A lock may be held for a moment by somebody who only looks; then it is tried again.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);
/// A lock file says a process and a time.
const MAX_TEXT: u64 = 256;

/// The right to work on one session. The system ends it with the process, however that ends.
#[derive(Debug)]
pub(super) struct SessionLock {
    path: PathBuf,
    file: File,
}

impl SessionLock {
    /// Takes the lock, or says who has it. `now`: the time, as it is shown to others.
    pub(super) fn take(directory: &Path, id: &str, now: &str) -> Result<Self, StoreError> {
        crate::file::create_private_dir(directory).map_err(|source| unusable(directory, source))?;
        let path = directory.join(format!("{id}.lock"));
        for attempt in 1.. {
            let mut file = open(&path).map_err(|source| unusable(&path, source))?;
            match file.try_lock() {
                // It may have been removed by its last holder between opening and locking; then it locks nobody out.
                Ok(()) if is_at(&file, &path) => {
                    let text = format!("{} {now}\n", std::process::id());
                    file.set_len(0).and_then(|()| file.write_all(text.as_bytes())).map_err(|source| unusable(&path, source))?;
                    return Ok(Self { path, file });
                }
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if attempt < ATTEMPTS => std::thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => {
                    let (pid, since) = holder(&mut file);
                    return Err(StoreError::Locked { id: id.to_owned(), pid, since });
                }
                Err(TryLockError::Error(source)) => return Err(unusable(&path, source)),
            }
        }
        unreachable!("the loop has no end but a return")
    }

    /// A lock that somebody has, as the error that says so.
    pub(super) fn anybody(directory: &Path) -> Option<StoreError> {
        let entries = std::fs::read_dir(directory).ok()?.flatten();
        entries.map(|entry| entry.path()).find_map(|path| {
            let mut file = File::open(&path).ok()?;
            let Err(TryLockError::WouldBlock) = file.try_lock_shared() else { return None };
            let (pid, since) = holder(&mut file);
            let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Some(StoreError::Locked { id, pid, since })
        })
    }

    /// Whether somebody works on the session now.
    pub(super) fn is_taken(directory: &Path, id: &str) -> bool {
        let Ok(file) = File::open(directory.join(format!("{id}.lock"))) else { return false };
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }
}

impl Drop for SessionLock {
    fn drop(&mut self) {
        // Removed while it is locked: whoever has opened it already sees that it is gone.
        let _ = std::fs::remove_file(&self.path);
        let _ = self.file.unlock();
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(there)) => (open.dev(), open.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

/// Elsewhere, a file that is open cannot be removed.
#[cfg(not(unix))]
fn is_at(_file: &File, _path: &Path) -> bool {
    true
}

/// Process and time, as the holder wrote them.
fn holder(file: &mut File) -> (u32, String) {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(MAX_TEXT).read_to_string(&mut text));
    let parts = read.ok().and_then(|_| text.trim_end().split_once(' '));
    match parts {
        Some((pid, since)) => (pid.parse().unwrap_or(0), crate::text::clean_line(since, 64)),
        None => (0, "an unknown time".to_owned()),
    }
}

fn unusable(path: &Path, source: io::Error) -> StoreError {
    StoreError::File { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_has_it_and_since_when() {
        let directory = tempfile::tempdir().expect("a directory");
        let take = |id| SessionLock::take(directory.path(), id, "2026-11-30 15:00:00");
        let first = take("a").expect("is free");
        assert!(SessionLock::is_taken(directory.path(), "a"));
        match take("a").expect_err("is taken") {
            StoreError::Locked { id, pid, since } => {
                assert_eq!((id.as_str(), pid, since.as_str()), ("a", std::process::id(), "2026-11-30 15:00:00"));
            }
            other => panic!("{other}"),
        }
        let _other = take("b").expect("another session is free");
        drop(first);
        assert!(!SessionLock::is_taken(directory.path(), "a"));
        drop(take("a").expect("is free again"));
        assert!(!directory.path().join("a.lock").exists(), "nothing is left behind");
    }

    #[test]
    fn of_many_at_once_one_has_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let holding = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        if let Ok(lock) = SessionLock::take(directory.path(), "a", "now") {
                            assert_eq!(holding.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                            holding.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                            drop(lock);
                        }
                    }
                });
            }
        });
    }
}
