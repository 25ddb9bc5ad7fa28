//! One file that holds all that went into a run and all that came out of it, and that replays without model and tools.
//!
//! A [`Run`](crate::agent::Run) decides without looking at anything but its inputs: the model's turns, what was found about calls, tool
//! results, people's answers, the time. A [`Recorder`] stands before the real ones as decorators and writes down each input when it
//! arrives, and each event that follows. [`replay`] puts the recorded inputs in their place and drives the same loop: the same events
//! must follow, byte for byte, and the first one that does not is reported.
//!
//! Time stands still between two inputs of a recorded run; that is what makes the times of its events repeatable.

mod decorators;
mod format;
mod live;
mod reader;
mod replay;
mod timeline;
mod writer;

use std::path::PathBuf;

pub use format::{FORMAT, Origin, PluginOrigin};
pub use live::{CallComparison, Difference, LiveReport, compare_live};
pub use reader::Recording;
pub use replay::{Replayed, Verdict, replay};
pub use timeline::Divergence;
pub use writer::Recorder;

/// The largest recording, in bytes. A recorder stops there, and the run goes on.
pub const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// Why a recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file is there already.
    #[error("`{}` exists; a recording never replaces a file\nhint: remove it, or name another", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be made or written.
    #[error("cannot write the recording `{}`", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The recorder reached its limit.
    #[error("the recording `{}` ends at its limit of {MAX_FILE_BYTES} bytes, before the run did", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The run to be recorded cannot be written as JSON and read back.
    #[error("the run cannot be recorded: {0}")]
    Run(String),
    /// The file cannot be read.
    #[error("cannot read the recording `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file is larger than any recording.
    #[error("the file is larger than {MAX_FILE_BYTES} bytes, and no recording is")]
    TooLarge,
    /// The file is something else.
    #[error("the file is not a recording: {0}\nhint: `honeycomb-host run --record FILE \"task\"` makes one")]
    NotARecording(String),
    /// A later version wrote it.
    #[error("the recording has format {found}, and this program reads up to {FORMAT}\nhint: use a newer honeycomb-host")]
    Newer {
        /// The format that was found.
        found: u64,
    },
    /// A line is not what was written.
    #[error("line {line} of the recording is damaged: {problem}")]
    Damaged {
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
}

#[cfg(test)]
mod tests;
