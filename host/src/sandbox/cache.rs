//! The private cache of compiled artifacts.
//!
//! An artifact is native code, so an entry is used only if it carries the right tag under a key that only this user can read. Anything
//! else — damaged, foreign, stale, with the wrong owner or mode — is as if it were not there: the component is compiled again. A cache
//! that cannot be used at all costs one line in the log and the time to compile.
//!
//! On disk, in a directory of mode 0700: `key` (32 random bytes, mode 0600), and entries `HEX.cwasm` (mode 0400): the artifact, then
//! its tag, then a magic number. The trailer is at the end because the artifact is mapped from the file's first byte. Files appear
//! whole (written beside, flushed, renamed) and never change. A writer locks its temporary file; one that nobody holds is left over
//! from a crash and is removed.

mod mac;
mod store;

use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cap_std::fs::Dir;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use thiserror::Error;
use wasmtime::Engine;

use self::mac::Hmac;
use super::artifact::Artifact;
use crate::text::hex;

/// Ends every entry. The number is the format's version.
const MAGIC: &[u8; 16] = b"honeycomb-cache1";

/// Bytes after the artifact: the tag and [`MAGIC`].
const TRAILER: u64 = 48;

/// The key's file.
const KEY_FILE: &str = "key";

/// How much of an entry is in memory at once while it is checked.
const CHUNK: usize = 256 * 1024;

/// A directory of artifacts. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Cache(Arc<Inner>);

struct Inner {
    dir: Dir,
    path: PathBuf,
    key: [u8; 32],
    /// Digest of what the serving engine demands of an artifact.
    engine: [u8; 32],
    /// Largest artifact that is read, in bytes.
    limit: u64,
    warned: AtomicBool,
}

/// Why the cache, or an entry, cannot be used. No one acts on it; the log and the tests say it.
#[derive(Debug, Error)]
pub(crate) enum CacheError {
    #[error("{what}: {source}")]
    Io {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("the directory belongs to another user")]
    Owner,
    #[error("others may write to the directory (mode {0:o}); run `chmod 700` on it after you have emptied it")]
    Open(u32),
    #[error("no entry")]
    Absent,
    #[error("the entry is not a private regular file")]
    NotPrivate,
    #[error("the entry is damaged or foreign")]
    Damaged,
}

fn io_error(what: &'static str) -> impl FnOnce(io::Error) -> CacheError {
    move |source| CacheError::Io { what, source }
}

/// What an entry is filed under: the digest of a component's bytes, and of everything else that decides its artifact.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct EntryKey([u8; 32]);

impl EntryKey {
    fn file_name(self) -> String {
        format!("{}{}", hex(&self.0), store::ENTRY)
    }
}

impl Cache {
    /// Opens a cache, and makes it if need be. Removes what crashed writers left behind.
    ///
    /// Refuses a directory that others can write to: a key and an artifact that someone else put there would match.
    pub(crate) fn open(path: &Path, engine: &Engine, limit: u64) -> Result<Self, CacheError> {
        let dir = store::open_dir(path)?;
        let key = store::load_key(&dir)?;
        store::remove_leftovers(&dir);
        store::prune(&dir);
        let mut digest = StableHasher(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut digest);
        let engine = digest.0.finalize().into();
        Ok(Self(Arc::new(Inner { dir, path: path.to_owned(), key, engine, limit, warned: AtomicBool::new(false) })))
    }

    /// The key for a component with this digest.
    pub(crate) fn key(&self, wasm_sha256: &[u8; 32]) -> EntryKey {
        let mut digest = Sha256::new_with_prefix(MAGIC);
        digest.update(wasm_sha256);
        digest.update(self.0.engine);
        EntryKey(digest.finalize().into())
    }

    /// Finds an artifact, and checks all of it.
    pub(crate) fn get(&self, key: EntryKey) -> Result<Artifact, CacheError> {
        let name = key.file_name();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut file = match rustix::fs::openat(&self.0.dir, name.as_str(), flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Err(CacheError::Absent),
            Err(Errno::LOOP) => return Err(CacheError::NotPrivate),
            Err(errno) => return Err(io_error("opening an entry")(errno.into())),
        };
        let metadata = file.metadata().map_err(io_error("looking at an entry"))?;
        // A second name, outside the directory, could be written through. None is fine: it was replaced just now.
        let private =
            metadata.is_file() && metadata.mode() & 0o377 == 0 && metadata.uid() == store::user() && metadata.nlink() <= 1;
        if !private {
            return Err(CacheError::NotPrivate);
        }
        check(self.hmac(key), self.0.limit, &mut file, metadata.len())?;
        Ok(Artifact::from_cache(file, self.0.path.join(name)))
    }

    /// Files an artifact. A failure costs the next start a compilation; the first is worth a line in the log.
    pub(crate) fn put(&self, key: EntryKey, artifact: &[u8]) {
        let mut hmac = self.hmac(key);
        hmac.update(artifact);
        let stored =
            store::write(&self.0.dir, &key.file_name(), 0o400, &[artifact, &hmac.finish(), MAGIC], store::Place::Replace);
        if let Err(error) = stored
            && !self.0.warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(cache = %self.0.path.display(), %error, "cannot write to the cache; plugins will be compiled at every start");
        }
    }

    /// Removes an entry that wasmtime refused: it was compiled for another processor.
    pub(crate) fn remove(&self, key: EntryKey) {
        let _ = self.0.dir.remove_file(key.file_name());
    }

    /// The tag covers the entry's key, so that one valid entry cannot stand in for another.
    fn hmac(&self, key: EntryKey) -> Hmac {
        let mut hmac = Hmac::new(&self.0.key);
        hmac.update(MAGIC);
        hmac.update(&key.0);
        hmac
    }
}

/// Reads an entry of `length` bytes to its end, and compares its tag.
fn check(mut hmac: Hmac, limit: u64, entry: &mut impl Read, length: u64) -> Result<(), CacheError> {
    let artifact = length.checked_sub(TRAILER).filter(|&bytes| bytes > 0 && bytes <= limit).ok_or(CacheError::Damaged)?;
    let mut buffer = vec![0; usize::try_from(artifact).map_or(CHUNK, |bytes| bytes.min(CHUNK))];
    let mut left = artifact;
    while left > 0 {
        let want = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
        let read = entry.read(&mut buffer[..want]).map_err(io_error("reading an entry"))?;
        if read == 0 {
            return Err(CacheError::Damaged);
        }
        hmac.update(&buffer[..read]);
        left -= u64::try_from(read).unwrap_or(left);
    }
    let (mut tag, mut magic) = ([0; 32], [0; 16]);
    let trailer = entry.read_exact(&mut tag).and_then(|()| entry.read_exact(&mut magic));
    if trailer.is_err() || magic != *MAGIC || !hmac.verify(&tag) {
        return Err(CacheError::Damaged);
    }
    Ok(())
}

/// Feeds SHA-256 with what a `Hash` writes. `DefaultHasher` may differ between two builds of one program.
struct StableHasher(Sha256);

impl Hasher for StableHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

/// For fuzzing: no bytes pass for an entry but those that end with the right tag.
#[doc(hidden)]
pub fn fuzz_cache_entry(bytes: &[u8]) {
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let checked = check(Hmac::new(b"fuzz"), u64::MAX, &mut &bytes[..], length);
    if checked.is_ok() {
        let (artifact, trailer) = bytes.split_at(bytes.len().saturating_sub(48));
        let mut hmac = Hmac::new(b"fuzz");
        hmac.update(artifact);
        assert!(trailer.starts_with(&hmac.finish()), "an entry with a wrong tag was accepted");
    }
}

#[cfg(test)]
mod tests;
