//! Paths, and what the system says about them.

use std::io;
use std::path::Path;

use honeycomb_sdk::prelude::*;

/// WASI's `errno::notcapable`, for which `std` has no kind: what a path out of a mount meets.
const NOT_CAPABLE: i32 = 76;

/// WASI's `errno::ilseq`: a name that is not UTF-8.
const ILLEGAL_BYTE_SEQUENCE: i32 = 25;

/// Whether an entry of a directory has a name that WASI cannot say.
pub(crate) fn is_illegal_name(error: &io::Error) -> bool {
    cfg!(target_family = "wasm") && error.raw_os_error() == Some(ILLEGAL_BYTE_SEQUENCE)
}

/// Turns an error of the system into one that the model can act on.
pub(crate) fn explain(error: io::Error, path: &str) -> Error {
    let explained = match error.kind() {
        io::ErrorKind::NotFound => Error::not_found(format!("`{path}` does not exist{}", mounts())),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => not_granted(path),
        _ if error.raw_os_error() == Some(NOT_CAPABLE) => not_granted(path),
        io::ErrorKind::IsADirectory => Error::invalid_arguments(format!("`{path}` is a directory")),
        io::ErrorKind::NotADirectory => Error::invalid_arguments(format!("`{path}`, or a part of it, is not a directory")),
        io::ErrorKind::AlreadyExists => Error::invalid_arguments(format!("`{path}` exists already")),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Error::failed(format!("there is no space left for `{path}`"))
        }
        _ => Error::failed(format!("`{path}`: {error}")),
    };
    explained.because(error)
}

/// A path as the guest sees files: absolute, as mounts are, and in one of them.
///
/// This is for the message only. Whether the path leads out of the mount again is the sandbox's to find.
pub(crate) fn path(text: &str) -> Result<&Path> {
    if !text.starts_with('/') {
        return Err(Error::invalid_arguments(format!("`{text}` is not an absolute path: begin with `/`{}", mounts())));
    }
    if text.contains('\0') {
        return Err(Error::invalid_arguments("a path has no NUL in it"));
    }
    let path = Path::new(text);
    match roots() {
        Some(roots) if text != "/" && !roots.iter().any(|root| path.starts_with(root)) => Err(not_granted(text)),
        _ => Ok(path),
    }
}

fn not_granted(path: &str) -> Error {
    Error::denied(format!(
        "access to `{path}` is not granted: it is outside the granted directories, or they are read-only{}",
        mounts()
    ))
}

/// The granted directories, for the end of a message.
fn mounts() -> String {
    match roots() {
        Some(roots) if roots.is_empty() => "; no directory is granted".to_owned(),
        Some(roots) => format!("; granted: {}", roots.join(", ")),
        None => String::new(),
    }
}

/// The granted directories.
#[cfg(target_family = "wasm")]
pub(crate) fn roots() -> Option<Vec<String>> {
    Some(wasip2::filesystem::preopens::get_directories().into_iter().map(|(_, path)| path).collect())
}

/// Outside a sandbox there is no such list.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn roots() -> Option<Vec<String>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_told_what_kind_of_failure_it_is() {
        for (kind, expected) in [
            (io::ErrorKind::NotFound, ErrorKind::NotFound),
            (io::ErrorKind::PermissionDenied, ErrorKind::Denied),
            (io::ErrorKind::ReadOnlyFilesystem, ErrorKind::Denied),
            (io::ErrorKind::IsADirectory, ErrorKind::InvalidArguments),
            (io::ErrorKind::NotADirectory, ErrorKind::InvalidArguments),
            (io::ErrorKind::QuotaExceeded, ErrorKind::Failed),
            (io::ErrorKind::Other, ErrorKind::Failed),
        ] {
            assert_eq!(explain(io::Error::from(kind), "/data/笔记.txt").kind(), expected, "{kind}");
        }
        assert_eq!(explain(io::Error::from_raw_os_error(NOT_CAPABLE), "/data/../etc").kind(), ErrorKind::Denied);
    }

    #[test]
    fn only_absolute_paths_make_sense() {
        for (text, good) in [("/data/a", true), ("/", true), ("data/a", false), ("", false), ("/a\0b", false)] {
            assert_eq!(path(text).is_ok(), good, "{text:?}");
        }
    }
}
