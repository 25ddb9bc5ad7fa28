//! Where the host keeps its own files, and how it reads those it is given.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::trusted;
use crate::file;

/// The directory of compiled plugins: given, or `$XDG_CACHE_HOME/honeycomb`, or `~/.cache/honeycomb`.
pub(super) fn cache_dir(given: Option<&Path>) -> Option<PathBuf> {
    base_dir(given, "XDG_CACHE_HOME", ".cache")
}

/// The directory of plugins' data: given, or `$XDG_STATE_HOME/honeycomb`, or `~/.local/state/honeycomb`.
pub(super) fn state_dir(given: Option<&Path>) -> Option<PathBuf> {
    base_dir(given, "XDG_STATE_HOME", ".local/state")
}

/// The project at hand: the nearest directory from here upwards that holds `.git` or `honeycomb.toml`, or this one.
pub(super) fn project_dir() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().and_then(|here| here.canonicalize()).context("cannot find the current directory")?;
    let is_project = |directory: &&Path| [".git", "honeycomb.toml"].iter().any(|mark| directory.join(mark).exists());
    Ok(here.ancestors().find(is_project).unwrap_or(&here).to_owned())
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
    let unusable = || format!("cannot use `{}`", path.display());
    let file = file::open(path).with_context(unusable)?;
    let metadata = file.metadata().with_context(unusable)?;
    trusted::check(path, &metadata)?;
    file::read_open(file, max_bytes).with_context(unusable)
}

/// Reads a text file that a person names, up to `max_bytes`.
pub(super) fn read_text(path: &Path, max_bytes: u64) -> anyhow::Result<String> {
    file::read_text(path, max_bytes).with_context(|| format!("cannot use `{}`", path.display()))
}
