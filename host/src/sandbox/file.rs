//! Reads a plugin's file: once, bounded, and only if it is a regular file.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::load::Problem;

/// A plugin's bytes, as they were read once. Nothing reads the file again, so it cannot change between check and use.
pub(crate) struct PluginFile {
    /// The bytes.
    pub(crate) bytes: Vec<u8>,
    /// Their digest.
    pub(crate) sha256: [u8; 32],
}

impl PluginFile {
    /// Reads a file of at most `limit` bytes, and compares its digest with `pin`.
    ///
    /// The last component of the path is not followed if it is a symbolic link, and a pipe is not waited for (`O_NONBLOCK`).
    pub(crate) fn read(path: &Path, limit: u64, pin: Option<[u8; 32]>) -> Result<Self, Problem> {
        let mut file = open(path)?;
        let metadata = file.metadata().map_err(Problem::Read)?;
        if let Some(kind) = special_kind(metadata.file_type()) {
            return Err(Problem::NotAFile(kind));
        }
        if metadata.len() > limit {
            return Err(Problem::FileTooLarge { limit });
        }
        // The file may grow while it is read: the bound is on what is read, not on what `fstat` said.
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0).saturating_add(1));
        file.by_ref().take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(Problem::Read)?;
        if u64::try_from(bytes.len()).is_ok_and(|read| read > limit) {
            return Err(Problem::FileTooLarge { limit });
        }
        let sha256: [u8; 32] = Sha256::digest(&bytes).into();
        if let Some(pin) = pin.filter(|pin| *pin != sha256) {
            return Err(Problem::Pin { pinned: crate::text::hex(&pin), actual: crate::text::hex(&sha256) });
        }
        Ok(Self { bytes, sha256 })
    }
}

fn open(path: &Path) -> Result<File, Problem> {
    let name: &OsStr = path.file_name().ok_or(Problem::NotAFile("a directory"))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = Dir::open_ambient_dir(parent, ambient_authority()).map_err(Problem::Read)?;
    // Opening a device can have effects, so look first; what counts is what `fstat` says of the file that was opened.
    let kind =
        rustix::fs::statat(&dir, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| Problem::Read(errno.into()))?;
    match rustix::fs::FileType::from_raw_mode(kind.st_mode) {
        rustix::fs::FileType::RegularFile => {}
        rustix::fs::FileType::Symlink => return Err(Problem::NotAFile("a symbolic link")),
        rustix::fs::FileType::Directory => return Err(Problem::NotAFile("a directory")),
        rustix::fs::FileType::Fifo => return Err(Problem::NotAFile("a pipe")),
        rustix::fs::FileType::Socket => return Err(Problem::NotAFile("a socket")),
        _ => return Err(Problem::NotAFile("a device")),
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    match rustix::fs::openat(&dir, name, flags, Mode::empty()) {
        Ok(file) => Ok(File::from(file)),
        Err(Errno::LOOP) => Err(Problem::NotAFile("a symbolic link")),
        Err(errno) => Err(Problem::Read(io::Error::from(errno))),
    }
}

fn special_kind(kind: std::fs::FileType) -> Option<&'static str> {
    match kind {
        _ if kind.is_file() => None,
        _ if kind.is_dir() => Some("a directory"),
        _ if kind.is_symlink() => Some("a symbolic link"),
        _ if kind.is_fifo() => Some("a pipe"),
        _ if kind.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn problem(path: &Path) -> String {
        match PluginFile::read(path, 8, None) {
            Ok(_) => panic!("{} was read", path.display()),
            Err(problem) => format!("{} {problem}", problem.code()),
        }
    }

    #[test]
    fn reads_regular_files_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("good"), b"12345678").expect("written");
        std::fs::write(at("large"), b"123456789").expect("written");
        symlink(at("good"), at("link")).expect("linked");
        symlink(at("nothing"), at("dangling")).expect("linked");
        let fifo = rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0);
        fifo.expect("made");
        let _socket = UnixListener::bind(at("socket")).expect("bound");

        assert_eq!(PluginFile::read(&at("good"), 8, None).expect("read").bytes, b"12345678");
        for (path, expected) in [
            (at("link"), "load.invalid is a symbolic link, not a regular file"),
            (at("dangling"), "load.invalid is a symbolic link, not a regular file"),
            (at("pipe"), "load.invalid is a pipe, not a regular file"),
            (at("socket"), "load.invalid is a socket, not a regular file"),
            (at(""), "load.invalid is a directory, not a regular file"),
            (at("good/../.."), "load.invalid is a directory, not a regular file"),
            ("/dev/zero".into(), "load.invalid is a device, not a regular file"),
            (at("large"), "load.limit has more than the 8 bytes that a plugin file may have"),
            (at("absent"), "load.invalid cannot be read: No such file or directory (os error 2)"),
        ] {
            assert_eq!(problem(&path), expected, "{}", path.display());
        }
    }

    #[test]
    fn follows_a_link_to_the_directory_that_holds_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("v1")).expect("made");
        std::fs::write(dir.path().join("v1/a.wasm"), b"a").expect("written");
        symlink("v1", dir.path().join("current")).expect("linked");
        assert!(PluginFile::read(&dir.path().join("current/a.wasm"), 8, None).is_ok());
    }

    #[test]
    fn refuses_another_file_than_the_pinned_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("北京.wasm");
        std::fs::write(&path, b"abc").expect("written");
        // FIPS 180-2, appendix B.1.
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let good = PluginFile::read(&path, 8, None).expect("read").sha256;
        assert_eq!(crate::text::hex(&good), digest);
        assert!(PluginFile::read(&path, 8, Some(good)).is_ok());
        let error = PluginFile::read(&path, 8, Some([0; 32])).err().expect("refused");
        assert!(error.to_string().contains(digest) && error.hint().is_some_and(|hint| hint.contains(digest)), "{error}");
    }
}
