//! Text with its escapes undone, and where each byte of it came from.

use std::borrow::Cow;
use std::ops::Range;

/// Bytes, and for each where in the original text it begins.
pub(super) struct View<'t> {
    bytes: Cow<'t, [u8]>,
    /// None: each byte stands for itself.
    starts: Option<Vec<usize>>,
    /// The length of the original text.
    end: usize,
}

/// Undoes one escape at the start of a slice: what it stands for, and how many bytes it took.
type Escape = fn(&[u8]) -> Option<(Decoded, usize)>;

impl<'t> View<'t> {
    /// The text as it is.
    pub(super) fn plain(bytes: &'t [u8]) -> Self {
        Self { bytes: Cow::Borrowed(bytes), starts: None, end: bytes.len() }
    }

    /// The bytes of this view.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The range of the original text that a range of this view stands for. The range must not be empty.
    pub(super) fn origin(&self, range: Range<usize>) -> Range<usize> {
        let Some(starts) = &self.starts else { return range };
        // The bytes of one character that was escaped as a whole share one start, so the next start may be some bytes on.
        let last = starts[range.end - 1];
        let next = starts[range.end..].iter().find(|&&start| start != last);
        starts[range.start]..next.copied().unwrap_or(self.end)
    }

    /// With `%41` undone (RFC 3986 section 2.1); none if there is nothing to undo.
    pub(super) fn percent_decoded(&self) -> Option<View<'static>> {
        self.decoded(b"%", percent)
    }

    /// With `%41` and `+` undone, as in the body of a form; none if there is no `+`.
    pub(super) fn form_decoded(&self) -> Option<View<'static>> {
        self.decoded(b"+", |bytes| match bytes {
            [b'+', ..] => Some((Decoded::byte(b' '), 1)),
            _ => percent(bytes),
        })
    }

    /// With the escapes of a JSON string undone (RFC 8259 section 7); none if there is nothing to undo.
    pub(super) fn json_unescaped(&self) -> Option<View<'static>> {
        self.decoded(b"\\", |bytes| {
            let [b'\\', escape, rest @ ..] = bytes else { return None };
            let byte = match escape {
                b'"' | b'\\' | b'/' => *escape,
                b'b' => 8,
                b'f' => 12,
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'u' => return unicode_escape(rest).map(|(char, used)| (Decoded::char(char), 2 + used)),
                _ => return None,
            };
            Some((Decoded::byte(byte), 2))
        })
    }

    fn decoded(&self, mark: &[u8; 1], escape: Escape) -> Option<View<'static>> {
        if !self.bytes.contains(&mark[0]) {
            return None;
        }
        let mut bytes = Vec::with_capacity(self.bytes.len());
        let mut starts = Vec::with_capacity(self.bytes.len());
        let mut changed = false;
        let mut at = 0;
        while at < self.bytes.len() {
            let found = escape(&self.bytes[at..]);
            changed |= found.is_some();
            let (decoded, used) = found.unwrap_or_else(|| (Decoded::byte(self.bytes[at]), 1));
            let start = self.starts.as_ref().map_or(at, |starts| starts[at]);
            bytes.extend_from_slice(decoded.as_bytes());
            starts.extend(std::iter::repeat_n(start, decoded.len));
            at += used;
        }
        changed.then_some(View { bytes: Cow::Owned(bytes), starts: Some(starts), end: self.end })
    }
}

/// What one escape stands for: one to four bytes.
struct Decoded {
    bytes: [u8; 4],
    len: usize,
}

impl Decoded {
    fn byte(byte: u8) -> Self {
        Self { bytes: [byte, 0, 0, 0], len: 1 }
    }

    fn char(char: char) -> Self {
        let mut bytes = [0; 4];
        let len = char.encode_utf8(&mut bytes).len();
        Self { bytes, len }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn percent(bytes: &[u8]) -> Option<(Decoded, usize)> {
    let [b'%', high, low, ..] = bytes else { return None };
    Some((Decoded::byte(hex(*high)? << 4 | hex(*low)?), 3))
}

/// The character of `0041`, or of `d83d\ude00`, and how many bytes it took.
fn unicode_escape(bytes: &[u8]) -> Option<(char, usize)> {
    let first = hex4(bytes)?;
    if !(0xd800..0xdc00).contains(&first) {
        return Some((char::from_u32(first)?, 4));
    }
    let [b'\\', b'u', rest @ ..] = bytes.get(4..)? else { return None };
    let second = hex4(rest).filter(|second| (0xdc00..0xe000).contains(second))?;
    Some((char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))?, 10))
}

fn hex4(bytes: &[u8]) -> Option<u32> {
    bytes.get(..4)?.iter().try_fold(0, |value, digit| Some(value << 4 | u32::from(hex(*digit)?)))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}
