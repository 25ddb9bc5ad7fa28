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

/// Writes bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The date (UTC) of a time, as `YYYY-MM-DD`.
pub(crate) fn utc_date(now_ms: u64) -> String {
    // Days to a civil date: Howard Hinnant, "chrono-compatible low-level date algorithms", for days on or after 1970-01-01.
    let days = now_ms / 86_400_000 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
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
    fn cuts_at_a_character_and_says_so() {
        assert_eq!(clean("北京", 4), "北… [cut: 6 bytes in all]");
        assert_eq!(clean("北京", 6), "北京");
        assert_eq!(clean_line("a\nb\tc", 10), "a b c");
    }

    #[test]
    fn knows_the_date() {
        for (ms, expected) in [
            (0, "1970-01-01"),
            (951_782_400_000, "2000-02-29"),
            (1_709_164_800_000, "2024-02-29"),
            (1_796_083_199_999, "2026-11-30"),
            (4_107_542_400_000, "2100-03-01"),
        ] {
            assert_eq!(utc_date(ms), expected);
        }
    }
}
