//! Text files that a person names, read bounded and only if they are regular files; files and directories that are their owner's alone.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The system says no.
    #[error("cannot open it")]
    Open(#[source] io::Error),
    /// It is something else.
    #[error("it is {0}, not a regular file")]
    NotAFile(&'static str),
    /// It is too large.
    #[error("it is larger than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// It breaks off, or is not UTF-8.
    #[error("cannot read it as UTF-8 text")]
    Read(#[source] io::Error),
}

impl ReadError {
    /// The error as the standard library's, for callers that know no other.
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            Self::Open(error) | Self::Read(error) => error,
            other => io::Error::other(other),
        }
    }
}

/// Reads a text file of at most `limit` bytes. Symbolic links are followed.
pub(crate) fn read_text(path: &Path, limit: u64) -> Result<String, ReadError> {
    read_open(open(path)?, limit)
}

/// Opens a regular file.
///
/// A pipe whose other end nobody opens would hold the program for ever, and a device would never end, so neither is opened.
pub(crate) fn open(path: &Path) -> Result<File, ReadError> {
    // Opening a device can have effects, so look first; what counts is what `fstat` says of the file that was opened.
    check(&std::fs::metadata(path).map_err(ReadError::Open)?)?;
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let flags = i32::try_from(flags).expect("both flags are small");
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(ReadError::Open)?;
    check(&file.metadata().map_err(ReadError::Open)?)?;
    Ok(file)
}

/// Reads what [`open`] has opened, up to `limit` bytes.
pub(crate) fn read_open(file: File, limit: u64) -> Result<String, ReadError> {
    let mut text = String::new();
    // The file may grow while it is read: the bound is on what is read.
    file.take(limit.saturating_add(1)).read_to_string(&mut text).map_err(ReadError::Read)?;
    if u64::try_from(text.len()).is_ok_and(|read| read > limit) {
        return Err(ReadError::TooLarge { limit });
    }
    Ok(text)
}

/// Makes a directory that only its owner can enter, and those above it. One that is there stays as it is.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a file for its owner only, if there is none. SQLite gives its log the same permissions.
pub(crate) fn create_private(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn check(metadata: &std::fs::Metadata) -> Result<(), ReadError> {
    let kind = metadata.file_type();
    match () {
        () if kind.is_file() => Ok(()),
        () if kind.is_dir() => Err(ReadError::NotAFile("a directory")),
        () if kind.is_fifo() => Err(ReadError::NotAFile("a pipe")),
        () if kind.is_socket() => Err(ReadError::NotAFile("a socket")),
        () => Err(ReadError::NotAFile("a device")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_regular_files_only_and_waits_for_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("配置.toml"), "北京").expect("written");
        std::fs::write(at("large"), "1234567").expect("written");
        std::fs::write(at("binary"), [0xff]).expect("written");
        std::os::unix::fs::symlink(at("配置.toml"), at("link")).expect("linked");
        std::os::unix::fs::symlink(at("pipe"), at("link to a pipe")).expect("linked");
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).expect("made");
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("bound");
        for good in ["配置.toml", "link"] {
            assert_eq!(read_text(&at(good), 6).expect("read"), "北京");
        }
        for (path, expected) in [
            (at("pipe"), "it is a pipe, not a regular file"),
            (at("link to a pipe"), "it is a pipe, not a regular file"),
            (at("socket"), "it is a socket, not a regular file"),
            (at(""), "it is a directory, not a regular file"),
            ("/dev/zero".into(), "it is a device, not a regular file"),
            (at("large"), "it is larger than 6 bytes"),
            (at("binary"), "cannot read it as UTF-8 text"),
            (at("absent"), "cannot open it"),
        ] {
            assert_eq!(read_text(&path, 6).expect_err("refused").to_string(), expected, "{}", path.display());
        }
    }
}
