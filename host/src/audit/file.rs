//! The file itself: its lock, its end, and appending to it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use uuid::Uuid;

use super::AuditError;
use super::line::{self, FIRST, NO_HASH};
use super::record::{Kind, Record};
use super::verify::{Step, Walk};
use crate::time;

/// How much of the end is read at the start, in bytes: more than the longest record and a torn one behind it.
const WINDOW: u64 = 512 * 1024;
/// How often the lock is tried. It is held for one write, so microseconds, unless its holder was stopped.
const LOCK_TRIES: u32 = 1_000;
/// The pause between tries.
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// An audit file, and where its chain is.
#[derive(Debug)]
pub(super) struct AuditFile {
    path: PathBuf,
    file: File,
    sync: bool,
    end: End,
}

/// The end of the file as this process last saw it.
#[derive(Clone, Debug)]
struct End {
    length: u64,
    seq: u64,
    last: String,
}

impl AuditFile {
    pub(super) fn open(path: &Path, sync: bool) -> Result<Self, AuditError> {
        let failed = |source| AuditError::Open { path: path.to_owned(), source };
        // Looked at first: opening a pipe would wait for its other end.
        if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(AuditError::NotAFile { path: path.to_owned() });
        }
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(failed)?;
        Self::over(file, path, sync)
    }

    pub(super) fn over(file: File, path: &Path, sync: bool) -> Result<Self, AuditError> {
        let end = End { length: 0, seq: 0, last: NO_HASH.to_owned() };
        let mut this = Self { path: path.to_owned(), file, sync, end };
        this.locked(|this| {
            let mut repair = Vec::new();
            let end = this.find_end()?;
            let end = this.close(end, &mut repair);
            this.write(end, &repair)
        })?;
        Ok(this)
    }

    /// Appends one record.
    pub(super) fn append(&mut self, record: &Record) -> Result<(), AuditError> {
        self.locked(|this| {
            let mut bytes = Vec::with_capacity(1024);
            let end = this.catch_up()?;
            let mut end = this.close(end, &mut bytes);
            add(&mut end, &mut bytes, record);
            this.write(end, &bytes)
        })
    }

    /// Runs with the lock of the file, which other processes take as well.
    fn locked(&mut self, work: impl FnOnce(&mut Self) -> Result<(), AuditError>) -> Result<(), AuditError> {
        let mut tries = 0;
        loop {
            match self.file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(source)) => return Err(self.failed(source)),
                Err(TryLockError::WouldBlock) if tries >= LOCK_TRIES => {
                    return Err(AuditError::Locked { path: self.path.clone() });
                }
                Err(TryLockError::WouldBlock) => {
                    tries += 1;
                    thread::sleep(LOCK_PAUSE);
                }
            }
        }
        let result = work(self);
        let unlocked = self.file.unlock();
        result?;
        unlocked.map_err(|source| self.failed(source))
    }

    /// Finds the end of a file that this process has not seen before.
    fn find_end(&mut self) -> Result<Found, AuditError> {
        let length = self.length()?;
        let from = length.saturating_sub(WINDOW);
        let bytes = self.read_from(from)?;
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
        if from == 0 {
            let has_record = bytes.split(|byte| *byte == b'\n').any(|line| line::read(line).is_some());
            if !has_record && !begins_a_chain(&bytes) {
                return Err(self.damaged("it holds something else"));
            }
            return self.follow(Walk::new(0, NO_HASH), lines, length);
        }
        // The chain is taken up at the first whole record in the window.
        let Some(whole) = lines.find_map(|line| line::read(line.strip_suffix(b"\n")?)) else {
            return Err(self.damaged("there is no record in its last part"));
        };
        self.follow(Walk::new(whole.content.seq + 1, &whole.hash), lines, length)
    }

    /// Reads what other processes, or a write of this one that failed, have added.
    fn catch_up(&mut self) -> Result<Found, AuditError> {
        let length = self.length()?;
        if length == self.end.length {
            return Ok(Found { end: self.end.clone(), torn: None, unterminated: false });
        }
        if length < self.end.length {
            return Err(AuditError::Shortened { path: self.path.clone() });
        }
        let bytes = self.read_from(self.end.length)?;
        let walk = Walk::new(self.end.seq, &self.end.last);
        self.follow(walk, bytes.split_inclusive(|byte| *byte == b'\n'), length)
    }

    fn follow<'a>(&self, mut walk: Walk, lines: impl Iterator<Item = &'a [u8]>, length: u64) -> Result<Found, AuditError> {
        let (mut terminated, mut torn) = (true, None);
        for line in lines {
            let bytes = line.strip_suffix(b"\n").unwrap_or(line);
            terminated = bytes.len() < line.len();
            match walk.step(bytes, terminated).map_err(|fault| self.damaged(&fault.problem))? {
                Step::Record(_) => {}
                Step::Torn => torn = Some((bytes.len() as u64, line::digest(bytes))),
            }
        }
        Ok(Found { end: End { length, seq: walk.seq, last: walk.last }, unterminated: torn.is_none() && !terminated, torn })
    }

    /// Begins an empty file, and closes a torn line.
    fn close(&self, found: Found, bytes: &mut Vec<u8>) -> End {
        let mut end = found.end;
        let chain = (end.seq == 0).then(|| Uuid::now_v7().simple().to_string());
        if let Some((torn_bytes, torn_sha256)) = found.torn {
            let torn = Record {
                kind: Kind::Recovered,
                chain,
                torn_bytes: Some(torn_bytes),
                torn_sha256: Some(torn_sha256),
                ..Record::default()
            };
            add(&mut end, bytes, &torn);
        } else if found.unterminated {
            // Only the newline is missing: the record is whole.
            bytes.push(b'\n');
        } else if chain.is_some() {
            add(&mut end, bytes, &Record { kind: Kind::Began, chain, ..Record::default() });
        }
        end
    }

    fn write(&mut self, end: End, bytes: &[u8]) -> Result<(), AuditError> {
        // One write for all, so that a kill leaves nothing half done but in the middle of a write.
        self.file.write_all(bytes).map_err(|source| self.failed(source))?;
        if self.sync {
            self.file.sync_data().map_err(|source| self.failed(source))?;
        }
        self.end = End { length: end.length + bytes.len() as u64, ..end };
        Ok(())
    }

    fn length(&self) -> Result<u64, AuditError> {
        let metadata = self.file.metadata().map_err(|source| self.failed(source))?;
        #[cfg(unix)]
        if std::os::unix::fs::MetadataExt::nlink(&metadata) == 0 {
            return Err(AuditError::Shortened { path: self.path.clone() });
        }
        Ok(metadata.len())
    }

    fn read_from(&mut self, offset: u64) -> Result<Vec<u8>, AuditError> {
        let mut bytes = Vec::new();
        let read = self.file.seek(SeekFrom::Start(offset)).and_then(|_| self.file.read_to_end(&mut bytes));
        read.map_err(|source| self.failed(source))?;
        Ok(bytes)
    }

    fn failed(&self, source: io::Error) -> AuditError {
        AuditError::Write { path: self.path.clone(), source }
    }

    fn damaged(&self, problem: &str) -> AuditError {
        AuditError::Damaged { path: self.path.clone(), problem: problem.to_owned() }
    }
}

/// Whether a file without a whole record is what killed processes left of a first one: its beginning, perhaps several times over.
fn begins_a_chain(mut bytes: &[u8]) -> bool {
    loop {
        let common = bytes.iter().zip(FIRST).take_while(|(byte, first)| byte == first).count();
        if common == bytes.len() || common == FIRST.len() {
            return true;
        }
        if common == 0 {
            return false;
        }
        bytes = &bytes[common..];
    }
}

/// What stands at the end of the file.
struct Found {
    end: End,
    /// Bytes that are no record, and their digest.
    torn: Option<(u64, String)>,
    /// The last record lacks its newline.
    unterminated: bool,
}

fn add(end: &mut End, bytes: &mut Vec<u8>, record: &Record) {
    let (line, hash) = line::write(end.seq, &end.last, time::timestamp(time::now_ms()), record);
    bytes.extend(line.as_bytes());
    bytes.push(b'\n');
    end.seq += 1;
    end.last = hash;
}
