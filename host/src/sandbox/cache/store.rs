//! The cache's files: a private directory, a key, and writes that are seen whole or not at all.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{CacheError, KEY_FILE, io_error};

/// Ends the name of a file that is being written.
const TEMPORARY: &str = ".tmp";

/// Ends the name of an entry.
pub(super) const ENTRY: &str = ".cwasm";

/// Bytes of entries that are kept from one start to the next; beyond it the oldest go.
const MAX_TOTAL: u64 = 4 << 30;

/// The user this process acts for.
pub(super) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Opens the directory, which must be this user's alone; makes it if it is not there.
pub(super) fn open_dir(path: &Path) -> Result<Dir, CacheError> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    // A read-only file system refuses to make what is there already, too; opening it decides.
    let made = builder.create(path);
    let dir = match Dir::open_ambient_dir(path, ambient_authority()) {
        Ok(dir) => dir,
        Err(source) => {
            return Err(made.err().map_or_else(|| io_error("opening the directory")(source), io_error("making the directory")));
        }
    };
    let metadata =
        dir.try_clone().and_then(|dir| dir.into_std_file().metadata()).map_err(io_error("looking at the directory"))?;
    if metadata.uid() != user() {
        return Err(CacheError::Owner);
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(CacheError::Open(metadata.mode() & 0o7777));
    }
    Ok(dir)
}

/// Reads the key, or makes one. A key that others could have read, or of the wrong length, is replaced; every entry is then foreign.
pub(super) fn load_key(dir: &Dir) -> Result<[u8; 32], CacheError> {
    if let Some(key) = read_key(dir) {
        return Ok(key);
    }
    let mut key = [0; 32];
    File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut key)).map_err(io_error("drawing a key"))?;
    let _ = dir.remove_file(KEY_FILE);
    write(dir, KEY_FILE, 0o600, &[&key], Place::New)?;
    // Another process may have made one in the meantime. Either is good, as long as both use the same.
    read_key(dir).ok_or(CacheError::NotPrivate)
}

fn read_key(dir: &Dir) -> Option<[u8; 32]> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(dir, KEY_FILE, flags, Mode::empty()).ok()?);
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.mode() & 0o077 != 0 || metadata.uid() != user() || metadata.len() != 32 {
        return None;
    }
    let mut key = [0; 32];
    file.read_exact(&mut key).ok()?;
    Some(key)
}

/// What happens to a file that has the name already.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// It stays, and that is no error.
    New,
    /// It is replaced.
    Replace,
}

/// Writes a file beside its place, flushes it to the disk and moves it there: after a crash there is the old file or the new one.
pub(super) fn write(dir: &Dir, name: &str, mode: u32, pieces: &[&[u8]], place: Place) -> Result<(), CacheError> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let temporary = format!("{name}.{}-{number}{TEMPORARY}", std::process::id());
    let written = write_temporary(dir, &temporary, mode, pieces).and_then(|_lock| {
        match place {
            Place::Replace => dir.rename(&temporary, dir, name).map_err(io_error("renaming"))?,
            Place::New => match dir.hard_link(&temporary, dir, name) {
                // A file system without links.
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    dir.rename(&temporary, dir, name).map_err(io_error("renaming"))?;
                }
                _ => dir.remove_file(&temporary).map_err(io_error("removing"))?,
            },
        }
        // The new name itself is on disk when the directory is.
        flush(dir).map_err(|errno| io_error("flushing the directory")(errno.into()))
    });
    if written.is_err() {
        let _ = dir.remove_file(&temporary);
    }
    written
}

/// Flushes the directory itself. The handle that stands for it cannot: cap-std opens it with `O_PATH`.
fn flush(dir: &Dir) -> rustix::io::Result<()> {
    let dir = rustix::fs::openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::fsync(dir)
}

/// Returns the open file, whose lock says that its writer is alive.
fn write_temporary(dir: &Dir, name: &str, mode: u32, pieces: &[&[u8]]) -> Result<File, CacheError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode);
    let file = rustix::fs::openat(dir, name, flags, mode).map_err(|errno| io_error("making a file")(errno.into()))?;
    let mut file = File::from(file);
    lock(&file).map_err(io_error("locking a file"))?;
    for piece in pieces {
        file.write_all(piece).map_err(io_error("writing"))?;
    }
    file.sync_all().map_err(io_error("flushing"))?;
    Ok(file)
}

fn lock(file: &File) -> io::Result<()> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        // A file system without locks: leftovers are then taken to be dead, and a write in progress fails its rename.
        Ok(()) | Err(Errno::NOTSUP | Errno::NOLCK) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes temporary files whose writer is gone.
pub(super) fn remove_leftovers(dir: &Dir) {
    let Ok(entries) = dir.entries() else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !name.to_str().is_some_and(|name| name.ends_with(TEMPORARY)) {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(dir, &name, flags, Mode::empty()) else { continue };
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = dir.remove_file(&name);
        }
    }
}

/// Removes the oldest entries beyond [`MAX_TOTAL`]. One that is in use stays mapped without its name.
pub(super) fn prune(dir: &Dir) {
    let Ok(entries) = dir.entries() else { return };
    let mut found: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.ends_with(ENTRY)))
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some((metadata.modified().ok()?.into_std(), metadata.len(), entry.file_name()))
        })
        .collect();
    found.sort();
    let mut total = found.iter().fold(0_u64, |total, (_, length, _)| total.saturating_add(*length));
    for (_, length, name) in found {
        if total <= MAX_TOTAL {
            break;
        }
        if dir.remove_file(name).is_ok() {
            total = total.saturating_sub(length);
        }
    }
}
