//! Counting.

use honeycomb_sdk::prelude::*;

/// Counts the characters, words, lines and bytes of a text. Each Chinese or Japanese character counts as a word, as word processors
/// count; in other scripts a word is a run of letters, digits, apostrophes and hyphens.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CountText {
    /// The text.
    text: String,
}

/// How much there is.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Counts {
    /// Unicode characters, white space included.
    characters: usize,
    /// Unicode characters without white space.
    characters_without_spaces: usize,
    /// Words; each Chinese or Japanese character is one.
    words: usize,
    /// Chinese and Japanese characters.
    cjk_characters: usize,
    /// Lines; a last line without a newline counts.
    lines: usize,
    /// Bytes in UTF-8.
    bytes: usize,
}

impl Tool for CountText {
    const NAME: &'static str = "count_text";
    const HINTS: Hints = Hints::READ_ONLY;
    type Output = Counts;

    fn call(self, _context: &Context) -> Result<Counts> {
        let mut counts = Counts {
            characters: 0,
            characters_without_spaces: 0,
            words: 0,
            cjk_characters: 0,
            lines: self.text.lines().count(),
            bytes: self.text.len(),
        };
        let mut in_word = false;
        for c in self.text.chars() {
            counts.characters += 1;
            counts.characters_without_spaces += usize::from(!c.is_whitespace());
            if is_cjk(c) {
                counts.cjk_characters += 1;
                counts.words += 1;
                in_word = false;
            } else if c.is_alphanumeric() {
                counts.words += usize::from(!in_word);
                in_word = true;
            } else if !(in_word && matches!(c, '\'' | '’' | '-' | '_')) {
                in_word = false;
            }
        }
        Ok(counts)
    }
}

/// Han, Hiragana and Katakana: scripts without spaces between words. (Korean has them.)
fn is_cjk(c: char) -> bool {
    matches!(c,
        '\u{3041}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}' | '々' | '〇')
        && c.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_words_in_any_script() {
        for (text, words, cjk, lines) in [
            ("", 0, 0, 0),
            ("hello, world", 2, 0, 1),
            ("it's well-known\nyes -- no\n", 4, 0, 2),
            ("我在用 Rust 写代码。", 7, 6, 1),
            ("東京タワー is 333m", 7, 5, 1),
            ("안녕하세요 세계", 2, 0, 1),
            ("a\n\nb", 2, 0, 3),
        ] {
            let counts = CountText { text: text.to_owned() }.call(&Context::test()).expect("always counts");
            assert_eq!((counts.words, counts.cjk_characters, counts.lines), (words, cjk, lines), "{text}");
        }
    }

    #[test]
    fn counts_characters_and_bytes() {
        let counts = CountText { text: "北京 ok".to_owned() }.call(&Context::test()).expect("always counts");
        assert_eq!((counts.characters, counts.characters_without_spaces, counts.bytes), (5, 4, 9));
    }
}
