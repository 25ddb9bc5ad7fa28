//! Comparing.

use std::time::Duration;

use honeycomb_sdk::prelude::*;
use similar::TextDiff;

/// Compares two texts line by line. Returns the differences as a unified diff: `-` lines are only in the first text, `+` lines only in
/// the second. Empty when the texts are the same.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiffTexts {
    /// The first text.
    old: String,
    /// The second text.
    new: String,
    /// How many equal lines to show around each difference. The default is 3.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    context_lines: Option<u8>,
}

impl Tool for DiffTexts {
    const NAME: &'static str = "diff_texts";
    const HINTS: Hints = Hints::READ_ONLY;
    type Output = String;

    fn call(self, _context: &Context) -> Result<String> {
        // After that time the differences are right, but perhaps not the fewest.
        let diff = TextDiff::configure().timeout(Duration::from_millis(300)).diff_lines(&self.old, &self.new);
        let mut unified = diff.unified_diff();
        unified.context_radius(usize::from(self.context_lines.unwrap_or(3))).header("old", "new");
        Ok(unified.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(old: &str, new: &str) -> String {
        let tool = DiffTexts { old: old.to_owned(), new: new.to_owned(), context_lines: Some(1) };
        tool.call(&Context::test()).expect("any texts can be compared")
    }

    #[test]
    fn shows_what_differs() {
        assert_eq!(diff("a\n北京\nc\n", "a\n上海\nc\n"), "--- old\n+++ new\n@@ -1,3 +1,3 @@\n a\n-北京\n+上海\n c\n");
        assert_eq!(
            diff("a", "b"),
            "--- old\n+++ new\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn equal_texts_have_no_difference() {
        assert_eq!(diff("a\nb\n", "a\nb\n"), "");
        assert_eq!(diff("", ""), "");
    }
}
