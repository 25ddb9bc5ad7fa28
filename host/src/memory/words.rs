//! Words, for the index and for queries.
//!
//! SQLite's own tokenizers do not do: `unicode61` takes a Chinese sentence for one word, and `trigram` finds nothing shorter than three
//! characters, while most Chinese words have two. So text is cut here, the same way in both places, and SQLite only splits at spaces.

/// The longest word that is kept, in characters. Longer ones, such as base64, are still found by their parts.
const MAX_WORD: usize = 64;
/// The most words of a query.
const MAX_TERMS: usize = 24;

/// The words of a text for the index: in scripts that put spaces between words, those; in the others each character, and each pair.
pub(super) fn index(text: &str) -> String {
    let mut tokens = Vec::new();
    each_run(text, &mut |run, unspaced| {
        if unspaced {
            let characters: Vec<char> = run.chars().collect();
            tokens.extend(characters.iter().map(char::to_string));
            tokens.extend(characters.windows(2).map(|pair| pair.iter().collect::<String>()));
        } else {
            tokens.push(stem(run));
        }
    });
    tokens.join(" ")
}

/// The words of a query, each once. Of a run without spaces only the pairs: single characters are too common to say anything.
pub(super) fn terms(query: &str) -> Vec<String> {
    let mut terms: Vec<String> = Vec::new();
    let mut add = |term: String| {
        if terms.len() < MAX_TERMS && !terms.contains(&term) {
            terms.push(term);
        }
    };
    each_run(query, &mut |run, unspaced| {
        let characters: Vec<char> = run.chars().collect();
        if !unspaced {
            add(stem(run));
        } else if characters.len() == 1 {
            add(run.to_owned());
        } else {
            characters.windows(2).for_each(|pair| add(pair.iter().collect()));
        }
    });
    terms
}

/// The pieces of a query between spaces, without the punctuation of sentences around them.
pub(super) fn pieces(query: &str) -> Vec<&str> {
    let punctuation = |c: char| "?!.,;:'\"()[]{}<>。，！？；：、“”‘’（）《》".contains(c);
    let mut pieces: Vec<&str> = Vec::new();
    for piece in query.split_whitespace() {
        let trimmed = piece.trim_matches(punctuation);
        let piece = if trimmed.is_empty() { piece } else { trimmed };
        if pieces.len() < MAX_TERMS && !pieces.contains(&piece) {
            pieces.push(piece);
        }
    }
    pieces
}

/// Writes a string of FTS5's query language. Inside it, only the quote has a meaning (SQLite FTS5, section 3.1).
pub(super) fn quote(term: &str) -> String {
    format!("\"{}\"", term.replace('\0', " ").replace('"', "\"\""))
}

/// Calls `take` for each run of letters and digits of one kind.
fn each_run(text: &str, take: &mut dyn FnMut(&str, bool)) {
    let mut start = 0;
    let mut kind = None;
    for (position, c) in text.char_indices().chain([(text.len(), ' ')]) {
        let found = match c {
            _ if is_unspaced(c) => Some(true),
            // A combining mark belongs to the letter before it.
            _ if c.is_alphanumeric() || ('\u{300}'..='\u{36f}').contains(&c) => Some(false),
            _ => None,
        };
        if found != kind {
            if let Some(kind) = kind {
                take(&text[start..position], kind);
            }
            (start, kind) = (position, found);
        }
    }
}

/// Scripts that put no spaces between words (Unicode Standard Annex 14, classes ID, CJ and SA).
fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{e01}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3005}'..='\u{3007}' | '\u{3041}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Lower case, and English plurals as singulars (the "S stemmer", D. Harman, "How effective is suffixing?", 1991).
fn stem(word: &str) -> String {
    let word: String = word.chars().take(MAX_WORD).flat_map(char::to_lowercase).collect();
    let ends = |suffix: &str, exceptions: &[&str]| {
        word.len() > suffix.len() + 1 && word.ends_with(suffix) && !exceptions.iter().any(|exception| word.ends_with(exception))
    };
    if ends("ies", &["eies", "aies"]) {
        format!("{}y", &word[..word.len() - 3])
    } else if ends("es", &["aes", "ees", "oes"]) || ends("s", &["us", "ss"]) {
        word[..word.len() - 1].to_owned()
    } else {
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_text_where_words_are() {
        for (text, index_words, query_words) in [
            ("Likes tea.", "like tea", "like tea"),
            ("cities, classes; bus glass", "city classe bus glass", "city classe bus glass"),
            ("我住在北京", "我 住 在 北 京 我住 住在 在北 北京", "我住 住在 在北 北京"),
            ("京", "京", "京"),
            ("用Rust写v2", "用 rust 写 v2", "用 rust 写 v2"),
            ("東京タワー", "東 京 タ ワ ー 東京 京タ タワ ワー", "東京 京タ タワ ワー"),
            ("cafe\u{301} ÉTÉ", "cafe\u{301} été", "cafe\u{301} été"),
            ("🍜 -- \"", "", ""),
        ] {
            assert_eq!(index(text), index_words, "{text}");
            assert_eq!(terms(text).join(" "), query_words, "{text}");
        }
        assert_eq!(terms(&"a1 b2 c3 ".repeat(99)).len(), 3);
        assert_eq!(terms(&(0..99).map(|n| format!("w{n}x ")).collect::<String>()).len(), MAX_TERMS);
    }

    #[test]
    fn pieces_keep_what_words_lose() {
        assert_eq!(pieces("What about C++, foo-bar.rs? “北京” ??"), ["What", "about", "C++", "foo-bar.rs", "北京", "??"]);
        assert_eq!(quote("a\" OR \"b\0"), "\"a\"\" OR \"\"b \"");
    }
}
