//! Searching and replacing.

use honeycomb_sdk::prelude::*;
use regex::{Regex, RegexBuilder};

/// The most bytes that a compiled expression may take; the `regex` crate's own default is ten times as much.
const MAX_COMPILED: usize = 1024 * 1024;

/// The most matches that are returned when nothing is said.
const DEFAULT_LIMIT: usize = 100;

/// Finds all matches of a regular expression in a text. Returns each match with its line, its column in characters, and its groups.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FindText {
    /// The text to search.
    text: String,
    /// The regular expression, in the syntax of Rust's `regex` (like RE2: no look-around, no back-references). `\p{Han}` is a Chinese character.
    #[schemars(length(min = 1, max = 1000))]
    pattern: String,
    /// Whether upper and lower case are the same.
    #[serde(default)]
    ignore_case: bool,
    /// The most matches to return. The default is 100.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<usize>,
}

/// What was found.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Found {
    /// How many matches there are in all.
    total: usize,
    /// The first matches, up to the limit.
    matches: Vec<Match>,
}

/// One match.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Match {
    /// The line, counted from 1.
    line: usize,
    /// The column in characters, counted from 1.
    column: usize,
    /// The text that matches.
    text: String,
    /// The text of each group, in order; null for a group that took no part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<Option<String>>,
}

/// Replaces all matches of a regular expression, or of a literal text, and returns the whole new text.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplaceText {
    /// The text to change.
    text: String,
    /// What to replace: a regular expression in the syntax of Rust's `regex`, or a literal text if `literal` is true.
    #[schemars(length(min = 1, max = 1000))]
    pattern: String,
    /// What to put there. In a regular expression `$1` or `${name}` stands for a group and `$$` for a dollar sign.
    replacement: String,
    /// Whether pattern and replacement are taken as they are.
    #[serde(default)]
    literal: bool,
    /// Whether upper and lower case are the same.
    #[serde(default)]
    ignore_case: bool,
}

/// The new text.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Replaced {
    /// How many matches were replaced.
    replacements: usize,
    /// The new text.
    text: String,
}

impl Tool for FindText {
    const NAME: &'static str = "find_text";
    const HINTS: Hints = Hints::READ_ONLY;
    type Output = Found;

    fn call(self, _context: &Context) -> Result<Found> {
        let pattern = compile(&self.pattern, self.ignore_case)?;
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT);
        let mut found = Found { total: 0, matches: Vec::new() };
        let (mut line, mut line_start, mut counted) = (1, 0, 0);
        for whole in pattern.find_iter(&self.text) {
            found.total += 1;
            if found.matches.len() >= limit {
                continue;
            }
            // Matches come in order, so each stretch of text is looked at once.
            for (offset, _) in self.text[counted..whole.start()].match_indices('\n') {
                line += 1;
                line_start = counted + offset + 1;
            }
            counted = whole.start();
            // Finding groups costs many times what finding the match does, so it is done only for what is returned.
            let captures = if pattern.captures_len() > 1 { pattern.captures_at(&self.text, whole.start()) } else { None };
            let groups = captures.iter().flat_map(|captures| captures.iter().skip(1));
            found.matches.push(Match {
                line,
                column: self.text[line_start..whole.start()].chars().count() + 1,
                text: whole.as_str().to_owned(),
                groups: groups.map(|group| group.map(|m| m.as_str().to_owned())).collect(),
            });
        }
        Ok(found)
    }
}

impl Tool for ReplaceText {
    const NAME: &'static str = "replace_text";
    const HINTS: Hints = Hints::READ_ONLY;
    type Output = Replaced;

    fn call(self, _context: &Context) -> Result<Replaced> {
        let escaped;
        let pattern = if self.literal {
            escaped = regex::escape(&self.pattern);
            &escaped
        } else {
            &self.pattern
        };
        let pattern = compile(pattern, self.ignore_case)?;
        let replacements = pattern.find_iter(&self.text).count();
        let text = if self.literal {
            pattern.replace_all(&self.text, regex::NoExpand(&self.replacement))
        } else {
            pattern.replace_all(&self.text, self.replacement.as_str())
        };
        Ok(Replaced { replacements, text: text.into_owned() })
    }
}

fn compile(pattern: &str, ignore_case: bool) -> Result<Regex> {
    if pattern.is_empty() {
        return Err(Error::invalid_arguments("`pattern` is empty"));
    }
    let regex = RegexBuilder::new(pattern).case_insensitive(ignore_case).multi_line(true).size_limit(MAX_COMPILED).build();
    regex.map_err(|error| Error::invalid_arguments(format!("`pattern` is not a regular expression: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str, pattern: &str) -> Result<Found> {
        let tool = FindText { text: text.to_owned(), pattern: pattern.to_owned(), ignore_case: false, limit: Some(2) };
        tool.call(&Context::test())
    }

    fn replace(text: &str, pattern: &str, replacement: &str, literal: bool) -> Result<Replaced> {
        let (text, pattern, replacement) = (text.to_owned(), pattern.to_owned(), replacement.to_owned());
        ReplaceText { text, pattern, replacement, literal, ignore_case: true }.call(&Context::test())
    }

    #[test]
    fn finds_with_line_column_and_groups() {
        let found = find("a1\n北京b22\nc3", r"([a-z])(\d+)").expect("is a pattern");
        assert_eq!(found.total, 3);
        let at = |index: usize| (found.matches[index].line, found.matches[index].column, found.matches[index].text.as_str());
        assert_eq!((at(0), at(1)), ((1, 1, "a1"), (2, 3, "b22")));
        assert_eq!(found.matches[1].groups, [Some("b".to_owned()), Some("22".to_owned())]);
        assert_eq!(find("我 love 北京", r"\p{Han}+").expect("is a pattern").total, 2);
        assert_eq!(find("x", "y").expect("is a pattern").matches, []);
    }

    #[test]
    fn replaces_by_pattern_or_literally() {
        let changed = replace("2026-05-01", r"(\d+)-(\d+)-(\d+)", "$3.$2.$1", false).expect("is a pattern");
        assert_eq!((changed.replacements, changed.text.as_str()), (1, "01.05.2026"));
        let changed = replace("a.b A.B", "a.b", "$1", true).expect("any text is a literal");
        assert_eq!((changed.replacements, changed.text.as_str()), (2, "$1 $1"));
    }

    #[test]
    fn a_bad_pattern_is_explained() {
        for (pattern, expected) in
            [("(", "unclosed group"), ("", "empty"), (r"(a{1000}){1000}", "size limit"), (r"(?=a)", "look-around")]
        {
            let error = find("x", pattern).expect_err(pattern);
            assert_eq!(error.kind(), ErrorKind::InvalidArguments);
            assert!(error.message().contains(expected), "{pattern}: {error}");
        }
    }
}
