//! Searching.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use honeycomb_sdk::prelude::*;
use regex::{Regex, RegexBuilder};

use crate::place::{explain, path, roots};

/// The most bytes that a compiled expression may take.
const MAX_COMPILED: usize = 1024 * 1024;

/// What one search reads at most: files, bytes of one file, and bytes in all. Looking for a literal text takes about 30 units of fuel a
/// byte and matching a regular expression 80, of the thousand million that a call usually has.
const MAX_FILES: usize = 2_000;
const MAX_FILE_BYTES: u64 = 2 * 1024 * 1024;
const MAX_LITERAL_BYTES: u64 = 16 * 1024 * 1024;
const MAX_REGEX_BYTES: u64 = 4 * 1024 * 1024;

/// The most characters of a line that is returned.
const MAX_LINE: usize = 300;

/// Searches the text files of a directory, and of all below it, for lines that contain a text or match a regular expression.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchFiles {
    /// The directory or file to search, as an absolute path; `/` is everything that is granted.
    path: String,
    /// The text to look for, or a regular expression (Rust's `regex` syntax) if `regex` is true.
    #[schemars(length(min = 1, max = 1000))]
    pattern: String,
    /// Whether `pattern` is a regular expression.
    #[serde(default)]
    regex: bool,
    /// Whether upper and lower case are the same.
    #[serde(default)]
    ignore_case: bool,
    /// Only files whose name ends like this, such as `.md`.
    #[serde(default)]
    name_ends_with: Option<String>,
    /// The most lines to return. The default is 50.
    #[serde(default)]
    #[schemars(range(min = 1, max = 500))]
    limit: Option<usize>,
}

/// What was found.
#[derive(Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Findings {
    /// The lines that match.
    lines: Vec<Line>,
    /// How many text files were searched.
    files_searched: usize,
    /// Whether the search ended early, at a limit; there may be more.
    truncated: bool,
}

/// One line that matches.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Line {
    path: String,
    /// Counted from 1.
    line: usize,
    text: String,
}

impl Tool for SearchFiles {
    const NAME: &'static str = "search_files";
    const HINTS: Hints = Hints::READ_ONLY;
    type Output = Findings;

    fn call(self, context: &Context) -> Result<Findings> {
        let pattern = self.compile()?;
        let limit = self.limit.unwrap_or(50).clamp(1, 500);
        let start = path(&self.path)?;
        let mut waiting = match roots().filter(|_| self.path == "/") {
            Some(roots) => roots.into_iter().map(PathBuf::from).collect(),
            None => {
                // Only here is a failure worth an error: deeper down, what cannot be read is passed over.
                fs::metadata(start).map_err(|error| explain(error, &self.path))?;
                vec![start.to_path_buf()]
            }
        };
        let mut findings = Findings::default();
        let mut bytes_left = if matches!(pattern, Pattern::Literal(_)) { MAX_LITERAL_BYTES } else { MAX_REGEX_BYTES };
        while let Some(next) = waiting.pop() {
            if findings.files_searched >= MAX_FILES || bytes_left == 0 || findings.lines.len() >= limit {
                findings.truncated = true;
                break;
            }
            if next.is_dir() {
                let (paths, is_complete) = children(&next);
                waiting.extend(paths);
                findings.truncated |= !is_complete;
            } else if self.wants(&next)
                && let Some(text) = read_text(&next, &mut bytes_left)
            {
                findings.files_searched += 1;
                search(&pattern, &next, &text, limit, &mut findings);
                if findings.files_searched.is_multiple_of(100) && !context.progress(findings.files_searched as u64, None, None) {
                    findings.truncated = true;
                    break;
                }
            }
        }
        Ok(findings)
    }
}

impl SearchFiles {
    fn compile(&self) -> Result<Pattern> {
        if self.pattern.is_empty() {
            return Err(Error::invalid_arguments("`pattern` is empty"));
        }
        if !self.regex && !self.ignore_case {
            return Ok(Pattern::Literal(self.pattern.clone()));
        }
        let pattern = if self.regex { self.pattern.clone() } else { regex::escape(&self.pattern) };
        let regex = RegexBuilder::new(&pattern).case_insensitive(self.ignore_case).size_limit(MAX_COMPILED).build();
        regex
            .map(Pattern::Regex)
            .map_err(|error| Error::invalid_arguments(format!("`pattern` is not a regular expression: {error}")))
    }

    fn wants(&self, file: &Path) -> bool {
        let Some(end) = &self.name_ends_with else { return true };
        file.file_name().is_some_and(|name| name.to_string_lossy().ends_with(end.as_str()))
    }
}

/// What to look for.
enum Pattern {
    Literal(String),
    Regex(Regex),
}

/// What is in a directory, last name first, since the caller takes from the end; and whether that is all: a name that is not UTF-8 ends
/// a listing. Symbolic links are left out, as they could form a circle.
fn children(directory: &Path) -> (Vec<PathBuf>, bool) {
    let Ok(entries) = fs::read_dir(directory) else { return (Vec::new(), true) };
    let (mut paths, mut is_complete) = (Vec::new(), true);
    for entry in entries {
        match entry {
            Ok(entry) if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) => paths.push(entry.path()),
            Ok(_) => {}
            Err(_) => is_complete = false,
        }
    }
    paths.sort_by(|a, b| b.cmp(a));
    (paths, is_complete)
}

/// The text of a file, unless it is not text, too large, or cannot be read.
fn read_text(file: &Path, bytes_left: &mut u64) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(file).ok()?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).ok()?;
    *bytes_left = bytes_left.saturating_sub(bytes.len() as u64);
    if bytes.len() as u64 > MAX_FILE_BYTES || bytes.contains(&0) {
        return None;
    }
    String::from_utf8(bytes).ok()
}

fn search(pattern: &Pattern, file: &Path, text: &str, limit: usize, findings: &mut Findings) {
    let mut add = |line: usize, text: &str| {
        if findings.lines.len() >= limit {
            findings.truncated = true;
            return false;
        }
        let text = text.trim_end().chars().take(MAX_LINE).collect();
        findings.lines.push(Line { path: file.display().to_string(), line, text });
        true
    };
    match pattern {
        Pattern::Regex(regex) => {
            let lines = text.lines().enumerate().filter(|(_, line)| regex.is_match(line));
            let _ = lines.map(|(index, line)| add(index + 1, line)).find(|added| !added);
        }
        // Looking at the whole text is many times faster than at each line.
        Pattern::Literal(literal) => {
            let (mut line, mut start) = (1, 0);
            while let Some(at) = text.get(start..).and_then(|rest| rest.find(literal.as_str())) {
                let at = start + at;
                line += text[start..at].matches('\n').count();
                let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
                let line_end = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
                if !add(line, &text[line_start..line_end]) {
                    break;
                }
                line += 1;
                start = line_end + 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
