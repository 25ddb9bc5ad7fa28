//! Finds known secrets in text, in the encodings in which servers and libraries repeat them.

mod decode;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::Value;

use self::decode::View;

/// What stands in the place of a secret.
pub const REDACTED: &str = "[secret]";

/// How often escapes are undone: JSON text inside a JSON string inside a log line is two.
const MAX_ROUNDS: usize = 3;

/// The most bytes that one byte of a secret takes in an escape: `\u0041`.
const MAX_ESCAPE: usize = 6;

/// Replaces all known secrets in a text by `[secret]`.
///
/// Finds each secret as it is, in hexadecimal, and in base64 (both alphabets, padded or not, at any alignment inside longer data);
/// each of these also percent-encoded or JSON-escaped, up to three times over. Does not find a secret that was compressed,
/// encrypted, reversed, split, or wrapped over lines.
#[derive(Clone, Default)]
pub struct Redactor {
    matcher: Option<AhoCorasick>,
    forms: Vec<Form>,
    longest: usize,
    with_space: bool,
}

/// How a form of a secret may touch the characters beside it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Form {
    /// The character before it holds some of its bits.
    shares_left: bool,
    /// The character after it holds some of its bits.
    shares_right: bool,
}

impl Redactor {
    /// Makes a redactor for these secrets. Empty ones are left out.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut patterns: Vec<Vec<u8>> = Vec::new();
        let mut forms = Vec::new();
        let mut with_space = false;
        for secret in secrets.into_iter().filter(|secret| !secret.is_empty()) {
            with_space |= secret.contains(' ');
            for (pattern, form) in forms_of(secret.as_bytes()) {
                if !patterns.contains(&pattern) {
                    patterns.push(pattern);
                    forms.push(form);
                }
            }
        }
        let longest = patterns.iter().map(Vec::len).max().unwrap_or(0);
        let matcher = (!patterns.is_empty())
            .then(|| AhoCorasick::new(&patterns).expect("some kilobytes of patterns are within the automaton's limits"));
        Self { matcher, forms, longest, with_space }
    }

    /// Whether it knows no secret.
    pub fn is_empty(&self) -> bool {
        self.matcher.is_none()
    }

    /// The most bytes that one form of a secret takes. Who scans a stream keeps this many back.
    pub fn window(&self) -> usize {
        self.longest * MAX_ESCAPE
    }

    /// Replaces every secret in `text`.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut found = Vec::new();
        self.each_view(text.as_bytes(), &mut |view| {
            self.find(view, &mut found);
            true
        });
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        found.sort_unstable_by_key(|range| range.start);
        let mut redacted = String::with_capacity(text.len());
        let mut done = 0;
        for range in found {
            if range.end <= done {
                continue;
            }
            if range.start >= done {
                redacted.push_str(&text[done..text.floor_char_boundary(range.start)]);
                redacted.push_str(REDACTED);
            }
            done = text.ceil_char_boundary(range.end);
        }
        redacted.push_str(&text[done..]);
        Cow::Owned(redacted)
    }

    /// Replaces every secret in the strings, keys and numbers of a JSON value.
    pub fn redact_json(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => {
                if self.contains(number.to_string().as_bytes()) {
                    *value = Value::String(REDACTED.to_owned());
                }
            }
            Value::String(text) => {
                if let Cow::Owned(redacted) = self.redact(text) {
                    *text = redacted;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_json(item)),
            Value::Object(map) => {
                if map.keys().any(|key| self.contains(key.as_bytes())) {
                    let entries = std::mem::take(map);
                    map.extend(entries.into_iter().map(|(key, value)| (self.redact(&key).into_owned(), value)));
                }
                map.values_mut().for_each(|item| self.redact_json(item));
            }
        }
    }

    /// Whether any secret is in these bytes, in any of the encodings.
    pub fn contains(&self, bytes: &[u8]) -> bool {
        let Some(matcher) = &self.matcher else { return false };
        let mut found = false;
        self.each_view(bytes, &mut |view| {
            found = matcher.is_match(view.bytes());
            !found
        });
        found
    }

    /// Shows the bytes as they are and with their escapes undone, until `visit` returns false.
    fn each_view(&self, bytes: &[u8], visit: &mut dyn FnMut(&View<'_>) -> bool) {
        if !self.is_empty() {
            self.each_view_within(&View::plain(bytes), MAX_ROUNDS, visit);
        }
    }

    fn each_view_within(&self, view: &View<'_>, rounds: usize, visit: &mut dyn FnMut(&View<'_>) -> bool) -> bool {
        if !visit(view) {
            return false;
        }
        let Some(rounds) = rounds.checked_sub(1) else { return true };
        // In a form, a space is a plus sign. Base64 has plus signs too, so this view comes on its own.
        let form = if self.with_space { view.form_decoded() } else { None };
        [view.percent_decoded(), form, view.json_unescaped()]
            .iter()
            .flatten()
            .all(|decoded| self.each_view_within(decoded, rounds, visit))
    }

    fn find(&self, view: &View<'_>, found: &mut Vec<Range<usize>>) {
        let Some(matcher) = &self.matcher else { return };
        let bytes = view.bytes();
        for hit in matcher.find_overlapping_iter(bytes) {
            let form = self.forms[hit.pattern().as_usize()];
            let mut start = hit.start();
            let mut end = hit.end();
            if form.shares_left && start > 0 && is_base64(bytes[start - 1]) {
                start -= 1;
            }
            if form.shares_right && bytes.get(end).copied().is_some_and(is_base64) {
                end += 1;
            }
            found.push(view.origin(start..end));
        }
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("forms", &self.forms.len()).finish_non_exhaustive()
    }
}

/// The forms in which a secret is looked for.
fn forms_of(secret: &[u8]) -> Vec<(Vec<u8>, Form)> {
    const LOWER: &[u8; 16] = b"0123456789abcdef";
    const UPPER: &[u8; 16] = b"0123456789ABCDEF";
    let hex = |digits: &[u8; 16]| {
        secret.iter().flat_map(|byte| [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]).collect::<Vec<u8>>()
    };
    let mut forms = vec![(secret.to_vec(), Form::default())];
    forms.extend([hex(LOWER), hex(UPPER)].map(|pattern| (pattern, Form::default())));
    for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
        for before in 0..3 {
            let mut data = vec![0; before];
            data.extend_from_slice(secret);
            let encoded = engine.encode(&data).into_bytes();
            // Six bits a character. Those at the edges also hold bits of the neighbouring bytes, so the pattern is without them.
            let first = (before * 8).div_ceil(6);
            let last = data.len() * 8 / 6;
            let form = Form { shares_left: before != 0, shares_right: !(data.len() * 8).is_multiple_of(6) };
            if first < last {
                forms.push((encoded[first..last].to_vec(), form));
            }
        }
    }
    forms
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

#[cfg(test)]
mod tests;
