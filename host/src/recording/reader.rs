//! Reads a recording, and trusts none of it: each line must be the one that was written, in its place.

use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use super::format::{Entry, FORMAT, Header, Line, Origin, Seal};
use super::{MAX_FILE_BYTES, RecordingError};
use crate::agent::{Run, RunResult};

/// A recording that was read.
#[derive(Clone, Debug)]
pub struct Recording {
    pub(super) header: Header,
    pub(super) run: Run,
    /// All lines but the first.
    pub(super) lines: Vec<Line>,
    cut: bool,
}

impl Recording {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the file, and in which line.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let read = |source| RecordingError::Read { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(read)?;
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(read)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(RecordingError::TooLarge);
        }
        Self::parse(&bytes)
    }

    /// Reads a file's bytes.
    ///
    /// A last line without its end is what a kill leaves behind: it is left out, and [`Recording::is_cut`] says so.
    ///
    /// # Errors
    ///
    /// Says what is wrong, and in which line.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordingError> {
        let mut seal = Seal::default();
        let mut header = None;
        let mut lines = Vec::new();
        let mut cut = false;
        for (index, text) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let number = index + 1;
            let damaged = |problem: &str| RecordingError::Damaged { line: number, problem: problem.to_owned() };
            let text = std::str::from_utf8(text).map_err(|_| damaged("it is not UTF-8"))?;
            let Some(text) = text.strip_suffix('\n') else {
                cut = true;
                break;
            };
            if index == 0 {
                recognise(text)?;
            }
            let json = seal.open(text).ok_or_else(|| damaged("it is not what was written"))?;
            let line: Line = serde_json::from_str(&json).map_err(|error| damaged(&error.to_string()))?;
            match line.entry {
                Entry::Header(found) if index == 0 => header = Some(*found),
                Entry::Header(_) => return Err(damaged("it is a second header")),
                _ if index == 0 => return Err(RecordingError::NotARecording("its first line is not a header".to_owned())),
                _ => lines.push(line),
            }
        }
        let header = header.ok_or_else(|| RecordingError::NotARecording("it has no complete line".to_owned()))?;
        let run = Run::from_json(&header.run.to_string())
            .map_err(|error| RecordingError::Damaged { line: 1, problem: error.to_string() })?;
        Ok(Self { header, run, lines, cut })
    }

    /// Whether the file ends within a line.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// The run's id.
    pub fn run_id(&self) -> &str {
        self.run.id()
    }

    /// The version of the program that wrote it.
    pub fn host_version(&self) -> &str {
        &self.header.host
    }

    /// The policy and plugins of the recorded run.
    pub fn origin(&self) -> &Origin {
        &self.header.origin
    }

    /// How the recorded run ended; none if the recording ends before.
    pub fn result(&self) -> Option<&RunResult> {
        self.lines
            .iter()
            .rev()
            .find_map(|line| if let Entry::End { result } = &line.entry { Some(result.as_ref()) } else { None })
    }

    /// The events, as they were written.
    pub fn events(&self) -> impl Iterator<Item = &Value> {
        self.lines.iter().filter_map(|line| if let Entry::Event { event } = &line.entry { Some(event) } else { None })
    }

    /// The number of a line in the file, from its place in `lines`.
    pub(super) fn number(index: usize) -> usize {
        index + 2
    }
}

/// Tells a recording of a later version from a damaged one, and both from any other file.
fn recognise(first: &str) -> Result<(), RecordingError> {
    let other = |problem: &str| RecordingError::NotARecording(problem.to_owned());
    let value: Value = serde_json::from_str(first).map_err(|_| other("its first line is not JSON"))?;
    if value["kind"] != "header" {
        return Err(other("its first line is not a header"));
    }
    match value["format"].as_u64() {
        Some(FORMAT) => Ok(()),
        Some(found) if found > FORMAT => Err(RecordingError::Newer { found }),
        _ => Err(other("its header names no format")),
    }
}
