//! The form of a line: a JSON object whose last member is the SHA-256 of all that stands before that member.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::record::{Kind, Record};
use crate::text::hex;

/// What stands between a line's content and its hash.
const SEAM: &str = ",\"hash\":\"";
/// What ends a line after its hash.
const END: &str = "\"}";
/// The length of a digest in hexadecimal.
const DIGEST: usize = 64;

/// What the first line of a file carries as the hash of the line before it.
pub(super) const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// How every line begins.
const BEGIN: &[u8] = b"{\"seq\":";
/// How the first line of a file begins.
pub(super) const FIRST: &[u8] = b"{\"seq\":0,";

/// What a line holds beside its hash.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Content<R> {
    /// Counts from 0, without gaps.
    pub(super) seq: u64,
    /// The hash of the line before it.
    pub(super) prev: String,
    /// When it was written, RFC 3339, UTC.
    pub(super) time: String,
    #[serde(flatten)]
    pub(super) record: R,
}

/// A line that is whole: its hash is that of its content.
pub(super) struct Whole {
    pub(super) content: Content<Record>,
    pub(super) hash: String,
    /// How many torn bytes stand before it in its line.
    pub(super) torn: usize,
}

/// Writes a line, without the newline. Returns it with its hash.
pub(super) fn write(seq: u64, prev: &str, time: String, record: &Record) -> (String, String) {
    let content = Content { seq, prev: prev.to_owned(), time, record };
    let mut line = serde_json::to_string(&content).expect("a record has string keys and plain values");
    // The closing brace goes behind the hash.
    line.pop();
    let hash = digest(line.as_bytes());
    line.push_str(SEAM);
    line.push_str(&hash);
    line.push_str(END);
    (line, hash)
}

/// Reads a line; none if it is neither a record nor a torn one with the record behind it that closes it.
pub(super) fn read(line: &[u8]) -> Option<Whole> {
    read_plain(line).or_else(|| read_closed(line))
}

/// Reads a line that is one record.
pub(super) fn read_plain(line: &[u8]) -> Option<Whole> {
    let line = std::str::from_utf8(line).ok()?;
    let (head, hash) = line.strip_suffix(END)?.split_at_checked(line.len().checked_sub(END.len() + DIGEST)?)?;
    let signed = head.strip_suffix(SEAM)?;
    if digest(signed.as_bytes()) != hash {
        return None;
    }
    let content = serde_json::from_str(line).ok()?;
    Some(Whole { content, hash: hash.to_owned(), torn: 0 })
}

/// Reads a line that begins with torn bytes. The record that closes them stands in the same line: a newline between them could be torn
/// off in its turn, and would leave a line that looks as if somebody had changed it.
fn read_closed(line: &[u8]) -> Option<Whole> {
    let at = line.windows(BEGIN.len()).rposition(|window| window == BEGIN)?;
    let (torn, record) = line.split_at_checked(at)?;
    let whole = Whole { torn: at, ..read_plain(record)? };
    let accounted = &whole.content.record;
    let closes = accounted.kind == Kind::Recovered
        && accounted.torn_bytes == Some(torn.len() as u64)
        && accounted.torn_sha256.as_deref() == Some(digest(torn).as_str());
    closes.then_some(whole)
}

pub(super) fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
