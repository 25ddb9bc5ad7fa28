//! Turns a compiled artifact into a component: the one place in the host where memory safety rests on a promise.
//!
//! An artifact is native code and the tables that describe it. wasmtime runs it as it is, so whoever can choose its bytes can run
//! anything. The promise is therefore about where the bytes came from:
//!
//! 1. [`Artifact::from_compiler`] is given what the compile child wrote to its pipe before it ended with success. The child is this
//!    program's own executable, with this program's own wasmtime; its input is hostile, its code is not.
//! 2. [`Artifact::from_cache`] is given an open file whose bytes were all read and whose keyed digest was right, with a key that only
//!    this user can read. So the bytes are those of (1), at some earlier time. The file is owned by this user, nobody else may write
//!    to it (nor to its directory, mode 0700), and the cache replaces entries by renaming and never writes to one in place; a mapping
//!    of it thus stays as it was checked for as long as it lives, even after the name is gone. A process of the same user that writes
//!    to it all the same could as well attach a debugger to the host.
//!
//! An artifact of another wasmtime version, processor or configuration is no danger: wasmtime compares them and refuses.

use std::fs::File;
use std::path::PathBuf;

use wasmtime::Engine;
use wasmtime::component::Component;

/// The bytes of a component that this host compiled.
pub(crate) struct Artifact(Source);

enum Source {
    Compiler(Vec<u8>),
    Cache { file: File, path: PathBuf },
}

impl Artifact {
    /// What the compile child wrote. The caller promises point 1 of the module's documentation.
    pub(crate) fn from_compiler(bytes: Vec<u8>) -> Self {
        Self(Source::Compiler(bytes))
    }

    /// An entry of the cache: the file that was checked, and its path. The caller promises point 2 of the module's documentation.
    pub(crate) fn from_cache(file: File, path: PathBuf) -> Self {
        Self(Source::Cache { file, path })
    }

    /// The bytes, if they are in memory.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            Source::Compiler(bytes) => Some(bytes),
            Source::Cache { .. } => None,
        }
    }

    /// Makes a component of it. A file is mapped, not copied: its pages are shared and loaded when they are run.
    ///
    /// # Errors
    ///
    /// Fails if the engine differs from the one that compiled it in version, processor or configuration.
    #[expect(unsafe_code, reason = "wasmtime cannot check native code; the module's documentation says why this is sound")]
    pub(crate) fn into_component(self, engine: &Engine) -> wasmtime::Result<Component> {
        // SAFETY: `self` was made by one of the two constructors, whose callers keep the module's promise: the bytes came out of
        // `Engine::precompile_component` of this program, and a mapped file does not change while it is mapped.
        unsafe {
            match &self.0 {
                Source::Compiler(bytes) => Component::deserialize(engine, bytes),
                Source::Cache { file, path } => Component::deserialize_file(engine, same_file(file, path)),
            }
        }
    }
}

/// A path to the very file that is open, so that what is mapped is what was checked, whatever its name points to by now.
fn same_file(file: &File, path: &std::path::Path) -> PathBuf {
    use std::os::fd::AsRawFd;
    let open = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    // Without /proc (another system, a bare container) the name has to do: only this user can rename in the directory.
    if open.exists() { open } else { path.to_owned() }
}
