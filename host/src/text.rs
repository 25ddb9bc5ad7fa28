//! Text from strangers: bounded, and free of what a terminal or a reader would not see for what it is.

use std::borrow::Cow;

/// Cleans text that a guest, a server or a file provided.
///
/// Keeps newline and tab; drops other control characters, bidirectional controls, zero-width and other invisible format characters,
/// tag characters (U+E0000 to U+E007F), private-use and noncharacters. Cuts at `max_bytes`, at a character boundary, and then ends
/// with a mark that says how many bytes there were.
pub fn clean(text: &str, max_bytes: usize) -> Cow<'_, str> {
    let total = text.len();
    let cut = total > max_bytes;
    let kept = if cut { &text[..text.floor_char_boundary(max_bytes)] } else { text };
    if !cut && !kept.chars().any(is_hidden) {
        return Cow::Borrowed(kept);
    }
    let mut cleaned: String = kept.chars().filter(|&c| !is_hidden(c)).collect();
    if cut {
        cleaned.push_str(&format!("… [cut: {total} bytes in all]"));
    }
    Cow::Owned(cleaned)
}

/// Like [`clean`], on one line: newlines and tabs become spaces.
pub fn clean_line(text: &str, max_bytes: usize) -> String {
    clean(text, max_bytes).replace(['\n', '\t'], " ")
}

/// Escapes what a reader would not see or a terminal would act on, and keeps everything else: a person who is asked about arguments
/// must see what the tool will get.
pub(crate) fn escape_hidden(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if is_hidden(c) || matches!(c, '\n' | '\t' | '\u{200c}' | '\u{200d}') {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
        shown
    })
}

/// Writes bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Whether a reader would not see this character, or a terminal would act on it.
///
/// The bidirectional controls are those of Unicode Standard Annex 9 ("Trojan Source", CVE-2021-42574); tag characters carry hidden
/// instructions to models.
pub fn is_hidden(c: char) -> bool {
    match c {
        // Nearly all text there is, decided first: results are scanned on the path of every call.
        ' '..='~' | '\n' | '\t' | '\u{3000}'..='\u{3163}' | '\u{3165}'..='\u{d7ff}' => false,
        // Joiners are part of ordinary emoji and of Indic and Persian text.
        '\u{200c}' | '\u{200d}' => false,
        _ if c.is_control() => true,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' => true,
        '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{200e}' | '\u{200f}' => true,
        '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' => true,
        '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' => true,
        '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}' => true,
        '\u{fdd0}'..='\u{fdef}' => true,
        _ => (c as u32) & 0xfffe == 0xfffe,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_what_a_reader_would_not_see() {
        for (text, expected) in [
            ("plain, 北京, é, 👩\u{200d}👧\n\tok", "plain, 北京, é, 👩\u{200d}👧\n\tok"),
            ("\u{1b}[2Jgone", "[2Jgone"),
            ("a\0b\r\u{7f}\u{9b}c", "abc"),
            ("user\u{202e}txt.exe", "usertxt.exe"),
            ("hi\u{e0041}\u{e0042}", "hi"),
            ("a\u{200b}b\u{feff}c\u{2066}d", "abcd"),
            ("\u{fffe}\u{10ffff}\u{e123}", ""),
        ] {
            assert_eq!(clean(text, 1000), expected, "{text:?}");
        }
    }

    #[test]
    fn shows_what_a_terminal_would_hide() {
        let shown = escape_hidden("{\"a\":\"北京\u{202e}\u{1b}[2J\u{200b}\"}");
        assert_eq!(shown, "{\"a\":\"北京\\u{202e}\\u{1b}[2J\\u{200b}\"}");
    }

    #[test]
    fn cuts_at_a_character_and_says_so() {
        assert_eq!(clean("北京", 4), "北… [cut: 6 bytes in all]");
        assert_eq!(clean("北京", 6), "北京");
        assert_eq!(clean_line("a\nb\tc", 10), "a b c");
    }
}
