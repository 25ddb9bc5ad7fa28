//! Where the host keeps its own files, and how it reads those it is given.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

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

/// Reads a text file that a person names, up to `max_bytes`.
pub(super) fn read_text(path: &Path, max_bytes: u64) -> anyhow::Result<String> {
    let file = File::open(path).with_context(|| format!("cannot open `{}`", path.display()))?;
    let metadata = file.metadata().with_context(|| format!("cannot read `{}`", path.display()))?;
    anyhow::ensure!(!metadata.is_dir(), "`{}` is a directory", path.display());
    let mut text = String::new();
    file.take(max_bytes + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read `{}` as UTF-8 text", path.display()))?;
    anyhow::ensure!(text.len() as u64 <= max_bytes, "`{}` is larger than {max_bytes} bytes", path.display());
    Ok(text)
}
