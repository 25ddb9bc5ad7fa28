//! Reading an audit file: following its chain, and naming the line where it breaks.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::line::{self, NO_HASH, Whole};
use super::record::{Kind, Record};
use serde::Serialize;

/// The longest line that is read, in bytes; records are bounded far below.
const MAX_LINE: u64 = 1024 * 1024;

const TORN: &str = "it is torn: a process was killed while it wrote, or the end was cut off; the next start closes it";

/// One whole line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Counted from 1.
    pub number: u64,
    /// When it was written, RFC 3339, UTC.
    pub time: String,
    /// What it says.
    pub record: Record,
    /// The record as it stands in the file.
    pub text: String,
}

/// What [`verify`] found in a file whose chain holds.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Report {
    /// Records, torn ones not among them.
    pub records: u64,
    /// The chain's name.
    pub chain: Option<String>,
    /// The hash of the last record. Noted elsewhere, it shows later that nothing before it was changed or cut off.
    pub last_hash: String,
    /// Lines where a torn record was closed.
    pub recovered: Vec<u64>,
}

/// Where a chain breaks.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct Fault {
    /// The line, counted from 1.
    pub line: u64,
    /// What is wrong with it.
    pub problem: String,
}

/// Follows the chain of a whole file. `each` is told the hash of every record.
///
/// Finds any line that was changed, dropped, repeated or moved. It cannot find that the end was cut off at the end of a line: compare
/// [`Report::last_hash`] with one that was noted earlier.
///
/// # Errors
///
/// Fails when the file cannot be read. A broken chain is the inner error.
pub fn verify(path: &Path, each: &mut dyn FnMut(&str)) -> io::Result<Result<Report, Fault>> {
    let mut walk = Walk::new(0, NO_HASH);
    let mut report = Report { last_hash: NO_HASH.to_owned(), ..Report::default() };
    let outcome = each_line(path, &mut |bytes, terminated| {
        match walk.step(bytes, terminated)? {
            Step::Torn => return Err(walk.fault(TORN.to_owned())),
            Step::Record(whole) => {
                report.records += 1;
                each(&whole.hash);
                report.last_hash = whole.hash;
                if whole.content.record.kind == Kind::Recovered {
                    report.recovered.push(walk.line);
                }
                if report.chain.is_none() {
                    report.chain = whole.content.record.chain;
                }
            }
        }
        Ok(())
    })?;
    Ok(outcome.map(|()| report))
}

/// Hands out each whole line of a file, whether or not the chain holds; others are left out and counted.
///
/// # Errors
///
/// Fails when the file cannot be read.
pub fn read(path: &Path, take: &mut dyn FnMut(Line)) -> io::Result<u64> {
    let (mut number, mut unreadable) = (0, 0);
    let outcome = each_line(path, &mut |bytes, _| {
        number += 1;
        match line::read(bytes) {
            Some(Whole { content, torn, .. }) => {
                let text = String::from_utf8_lossy(&bytes[torn..]).into_owned();
                take(Line { number, time: content.time, record: content.record, text });
            }
            None => unreadable += 1,
        }
        Ok(())
    })?;
    Ok(unreadable + u64::from(outcome.is_err()))
}

/// Takes a line, and whether it ends with a newline.
type Take<'a> = dyn FnMut(&[u8], bool) -> Result<(), Fault> + 'a;

fn each_line(path: &Path, take: &mut Take<'_>) -> io::Result<Result<(), Fault>> {
    let file = std::fs::File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    // What a process is writing just now is not half a line: its length is taken between two records.
    file.lock_shared()?;
    let length = file.metadata()?.len();
    file.unlock()?;
    let mut reader = BufReader::with_capacity(256 * 1024, file.take(length));
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        if reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        let terminated = bytes.pop_if(|byte| *byte == b'\n').is_some();
        if bytes.len() as u64 >= MAX_LINE {
            return Ok(Err(Fault { line: number, problem: "it is longer than any record".to_owned() }));
        }
        if let Err(fault) = take(&bytes, terminated) {
            return Ok(Err(fault));
        }
    }
    Ok(Ok(()))
}

/// Follows a chain line by line.
pub(super) struct Walk {
    line: u64,
    /// The sequence number of the next record.
    pub(super) seq: u64,
    /// The hash of the last record.
    pub(super) last: String,
}

/// What a line is.
pub(super) enum Step {
    /// The next record.
    Record(Box<Whole>),
    /// The last line, and not whole: a process was killed while it wrote it.
    Torn,
}

impl Walk {
    /// Begins at the start of a file, or behind a record.
    pub(super) fn new(seq: u64, last: &str) -> Self {
        Self { line: 0, seq, last: last.to_owned() }
    }

    /// Takes the next line. `terminated`: it ends in a newline.
    pub(super) fn step(&mut self, bytes: &[u8], terminated: bool) -> Result<Step, Fault> {
        self.line += 1;
        let whole = if terminated { line::read(bytes) } else { line::read_plain(bytes) };
        match whole {
            Some(whole) => self.follow(whole),
            None if terminated => Err(self.fault("its hash is not that of its content: it was changed".to_owned())),
            None => Ok(Step::Torn),
        }
    }

    fn follow(&mut self, whole: Whole) -> Result<Step, Fault> {
        let found = whole.content.seq;
        let problem = if found < self.seq {
            format!("record {found} stands here again, where record {} is due", self.seq)
        } else if found > self.seq {
            format!("record {found} stands here, where record {} is due: lines are missing or were moved", self.seq)
        } else if whole.content.prev != self.last {
            "it does not carry the hash of the record before it: that one was changed, or is of another file".to_owned()
        } else {
            self.seq += 1;
            self.last.clone_from(&whole.hash);
            return Ok(Step::Record(Box::new(whole)));
        };
        Err(self.fault(problem))
    }

    fn fault(&self, problem: String) -> Fault {
        Fault { line: self.line, problem }
    }
}
