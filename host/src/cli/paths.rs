//! Where the host keeps its own files, and how it reads those it is given.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::trusted;

/// The directory of compiled plugins: given, or `$XDG_CACHE_HOME/honeycomb`, or `~/.cache/honeycomb`.
pub(super) fn cache_dir(given: Option<&Path>) -> Option<PathBuf> {
    base_dir(given, "XDG_CACHE_HOME", ".cache")
}

/// The directory of plugins' data: given, or `$XDG_STATE_HOME/honeycomb`, or `~/.local/state/honeycomb`.
pub(super) fn state_dir(given: Option<&Path>) -> Option<PathBuf> {
    base_dir(given, "XDG_STATE_HOME", ".local/state")
}

fn base_dir(given: Option<&Path>, variable: &str, fallback: &str) -> Option<PathBuf> {
    // Also below a directory that was given: what is in it may be somebody's, and the cache clears up after itself.
    if let Some(given) = given {
        return Some(given.join("honeycomb"));
    }
    // XDG Base Directory Specification: a relative path is to be ignored.
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let base = std::env::var_os(variable).map(PathBuf::from).and_then(absolute);
    let home = || std::env::var_os("HOME").map(PathBuf::from).and_then(absolute).map(|home| home.join(fallback));
    base.or_else(home).map(|base| base.join("honeycomb"))
}

/// Reads a text file that decides on rights: nobody else may be able to change it.
pub(super) fn read_trusted_text(path: &Path, max_bytes: u64) -> anyhow::Result<String> {
    let file = File::open(path).with_context(|| format!("cannot open `{}`", path.display()))?;
    let metadata = file.metadata().with_context(|| format!("cannot read `{}`", path.display()))?;
    trusted::check(path, &metadata)?;
    read_open(path, file, max_bytes)
}

/// Makes a directory that only its owner can enter, and those above it. One that is there stays as it is.
pub(super) fn create_private_dir(path: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Reads a text file that a person names, up to `max_bytes`.
pub(super) fn read_text(path: &Path, max_bytes: u64) -> anyhow::Result<String> {
    let file = File::open(path).with_context(|| format!("cannot open `{}`", path.display()))?;
    read_open(path, file, max_bytes)
}

fn read_open(path: &Path, file: File, max_bytes: u64) -> anyhow::Result<String> {
    let metadata = file.metadata().with_context(|| format!("cannot read `{}`", path.display()))?;
    anyhow::ensure!(!metadata.is_dir(), "`{}` is a directory", path.display());
    let mut text = String::new();
    file.take(max_bytes + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read `{}` as UTF-8 text", path.display()))?;
    anyhow::ensure!(text.len() as u64 <= max_bytes, "`{}` is larger than {max_bytes} bytes", path.display());
    Ok(text)
}
