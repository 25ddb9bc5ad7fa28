//! Reading.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use honeycomb_sdk::prelude::*;

use crate::place::{explain, path};

/// The most bytes of one answer.
const MAX_BYTES: u64 = 256 * 1024;

/// How many bytes are read when nothing is said.
const DEFAULT_BYTES: u64 = 64 * 1024;

/// Reads a text file, or a part of it. When `truncated` is true, read on from `next_offset`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadFile {
    /// The file, as an absolute path.
    path: String,
    /// The byte to begin at. The default is 0.
    #[serde(default)]
    offset: u64,
    /// The most bytes to read. The default is 65536.
    #[serde(default)]
    #[schemars(range(min = 1, max = 262144))]
    limit: Option<u64>,
}

/// What was read.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Text {
    /// The text. Bytes that are not UTF-8 are shown as `\u{FFFD}`.
    text: String,
    /// The size of the file in bytes.
    size: u64,
    /// The byte after the last one that was read.
    next_offset: u64,
    /// Whether there is more.
    truncated: bool,
}

impl Tool for ReadFile {
    const NAME: &'static str = "read_file";
    const HINTS: Hints = Hints::READ_ONLY;
    type Output = Text;

    fn call(self, _context: &Context) -> Result<Text> {
        let explain = |error| explain(error, &self.path);
        let mut file = File::open(path(&self.path)?).map_err(explain)?;
        let metadata = file.metadata().map_err(explain)?;
        if metadata.is_dir() {
            return Err(Error::invalid_arguments(format!("`{}` is a directory; use `list_files`", self.path)));
        }
        let limit = self.limit.unwrap_or(DEFAULT_BYTES).clamp(1, MAX_BYTES);
        file.seek(SeekFrom::Start(self.offset)).map_err(explain)?;
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes).map_err(explain)?;
        if bytes.contains(&0) {
            return Err(Error::failed(format!("`{}` is not a text file ({} bytes)", self.path, metadata.len())));
        }
        let more = self.offset + (bytes.len() as u64) < metadata.len();
        if more {
            bytes.truncate(whole_characters(&bytes));
        }
        let next_offset = self.offset + bytes.len() as u64;
        Ok(Text { text: String::from_utf8_lossy(&bytes).into_owned(), size: metadata.len(), next_offset, truncated: more })
    }
}

/// How many bytes to keep so that a character is not cut in two.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        // Incomplete at the end, rather than wrong somewhere.
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(bytes: &[u8], offset: u64, limit: Option<u64>) -> Result<Text> {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        fs::write(&file, bytes).expect("writes");
        ReadFile { path: file.display().to_string(), offset, limit }.call(&Context::test())
    }

    #[test]
    fn reads_all_or_a_part() {
        for (offset, limit, text, next_offset, truncated) in [
            (0, None, "北京ok", 8, false),
            (0, Some(6), "北京", 6, true),
            (0, Some(4), "北", 3, true),
            (3, Some(3), "京", 6, true),
            (6, Some(100), "ok", 8, false),
            (100, None, "", 100, false),
            // Not even one whole character: better a replacement than no progress.
            (0, Some(1), "\u{fffd}", 1, true),
        ] {
            let expected = Text { text: text.to_owned(), size: 8, next_offset, truncated };
            assert_eq!(read("北京ok".as_bytes(), offset, limit).expect("is text"), expected, "{offset} {limit:?}");
        }
    }

    #[test]
    fn bounds_what_it_returns() {
        let large = vec![b'x'; 300 * 1024];
        assert_eq!(read(&large, 0, None).expect("is text").next_offset, DEFAULT_BYTES);
        assert_eq!(read(&large, 0, Some(u64::MAX)).expect("is text").next_offset, MAX_BYTES);
    }

    #[test]
    fn what_is_not_a_text_file_is_an_error() {
        assert_eq!(read(b"\x7fELF\0\0", 0, None).expect_err("has NUL").kind(), ErrorKind::Failed);
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().display().to_string();
        let error = ReadFile { path, offset: 0, limit: None }.call(&Context::test()).expect_err("is a directory");
        assert_eq!(error.kind(), ErrorKind::InvalidArguments);
    }
}
