//! Server-sent events: an incremental decoder over bytes, as the WHATWG HTML standard section 9.2.6 describes the format.
//!
//! It differs from the standard in three ways, all for the sake of model providers: an event whose data is empty is skipped (some
//! proxies send `data:` as a heartbeat); an event that the end of the body cuts off is offered by [`SseDecoder::finish`] instead of
//! being dropped (some servers omit the last blank line); `id` and `retry` are ignored, since a model's answer cannot be resumed.

use std::collections::VecDeque;

/// One event.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SseEvent {
    /// The `event` field; empty if there was none.
    pub event: String,
    /// The `data` lines, joined with newlines. Invalid UTF-8 stands as U+FFFD.
    pub data: String,
}

/// An event is larger than it may be. The decoder is of no further use.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a server-sent event is larger than {limit} bytes")]
pub struct EventTooLarge {
    /// The limit, in bytes.
    pub limit: usize,
}

/// Decodes server-sent events from chunks of bytes that may be cut anywhere.
#[derive(Debug)]
pub struct SseDecoder {
    line: Vec<u8>,
    event: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    ready: VecDeque<SseEvent>,
    limit: usize,
    start: Start,
    after_carriage_return: bool,
    in_comment: bool,
    failed: bool,
}

/// How much of a byte order mark has been seen. Only the very first three bytes can be one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Start {
    Bom(usize),
    Passed,
}

const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];

impl SseDecoder {
    /// A decoder whose events may have up to `limit` bytes each, field names included.
    pub fn new(limit: usize) -> Self {
        Self {
            line: Vec::new(),
            event: Vec::new(),
            data: Vec::new(),
            has_data: false,
            ready: VecDeque::new(),
            limit,
            start: Start::Bom(0),
            after_carriage_return: false,
            in_comment: false,
            failed: false,
        }
    }

    /// Takes the next bytes. Complete events are then available from [`SseDecoder::next_event`].
    ///
    /// # Errors
    ///
    /// Returns [`EventTooLarge`] when an event passes the limit, and for every later call. Events before it are still available.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), EventTooLarge> {
        let mut rest = chunk;
        while let (Start::Bom(seen), Some((&first, tail))) = (self.start, rest.split_first()) {
            if first == BOM[seen] {
                rest = tail;
                self.start = if seen == 2 { Start::Passed } else { Start::Bom(seen + 1) };
            } else {
                self.start = Start::Passed;
                self.text(&BOM[..seen])?;
            }
        }
        while !rest.is_empty() {
            if self.after_carriage_return {
                self.after_carriage_return = false;
                if rest[0] == b'\n' {
                    rest = &rest[1..];
                    continue;
                }
            }
            let Some(end) = rest.iter().position(|&byte| byte == b'\n' || byte == b'\r') else {
                return self.text(rest);
            };
            self.text(&rest[..end])?;
            self.after_carriage_return = rest[end] == b'\r';
            self.end_line();
            rest = &rest[end + 1..];
        }
        self.check()
    }

    /// The next complete event, if there is one.
    pub fn next_event(&mut self) -> Option<SseEvent> {
        self.ready.pop_front()
    }

    /// Ends the input and returns the event that the end cut off, if there is one.
    ///
    /// Its last line may be incomplete, so its data may be anything.
    pub fn finish(&mut self) -> Option<SseEvent> {
        if self.failed {
            return None;
        }
        if let Start::Bom(seen) = std::mem::replace(&mut self.start, Start::Passed) {
            let _ = self.text(&BOM[..seen]);
        }
        if !self.line.is_empty() {
            self.end_line();
        }
        let before = self.ready.len();
        self.dispatch();
        if self.ready.len() > before { self.ready.pop_back() } else { None }
    }

    fn text(&mut self, bytes: &[u8]) -> Result<(), EventTooLarge> {
        self.check()?;
        if bytes.is_empty() || self.in_comment {
            return Ok(());
        }
        if self.line.is_empty() && bytes[0] == b':' {
            // A heartbeat of any length costs no memory.
            self.in_comment = true;
            return Ok(());
        }
        if self.line.len() + self.event.len() + self.data.len() + bytes.len() > self.limit {
            self.failed = true;
            self.line = Vec::new();
            self.data = Vec::new();
            return self.check();
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn check(&self) -> Result<(), EventTooLarge> {
        if self.failed { Err(EventTooLarge { limit: self.limit }) } else { Ok(()) }
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.in_comment) {
            return;
        }
        if self.line.is_empty() {
            self.dispatch();
            return;
        }
        let (name, value) = match self.line.iter().position(|&byte| byte == b':') {
            Some(colon) => (&self.line[..colon], &self.line[colon + 1..]),
            None => (self.line.as_slice(), &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.event.clear();
                self.event.extend_from_slice(value);
            }
            _ => {}
        }
        self.line.clear();
    }

    fn dispatch(&mut self) {
        let event = std::mem::take(&mut self.event);
        let data = std::mem::take(&mut self.data);
        self.has_data = false;
        if !data.is_empty() {
            self.ready.push_back(SseEvent { event: lossy(event), data: lossy(data) });
        }
    }
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Fuzz entry point: decodes `input` whole and in pieces, and panics if the events differ.
#[doc(hidden)]
pub fn fuzz_any_chunking(input: &[u8]) {
    let whole = decode_in_pieces(input, usize::MAX, 1 << 10);
    let size = usize::from(input.first().copied().unwrap_or(1) % 7) + 1;
    assert_eq!(whole, decode_in_pieces(input, size, 1 << 10), "pieces of {size} bytes");
}

fn decode_in_pieces(input: &[u8], size: usize, limit: usize) -> (Vec<SseEvent>, Result<(), EventTooLarge>) {
    let mut decoder = SseDecoder::new(limit);
    let result = input.chunks(size.max(1)).try_for_each(|chunk| decoder.push(chunk));
    let tail = if result.is_ok() { decoder.finish() } else { None };
    let events = std::iter::from_fn(|| decoder.next_event()).chain(tail).collect();
    (events, result)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop_oneof, proptest};

    use super::*;

    fn data(input: &[u8]) -> Vec<String> {
        let (events, result) = decode_in_pieces(input, usize::MAX, 1 << 20);
        result.expect("within the limit");
        events.into_iter().map(|event| event.data).collect()
    }

    #[test]
    fn decodes_every_form_of_line_end_comment_and_field() {
        for (input, expected) in [
            (&b"data: a\n\ndata: b\n\n"[..], &["a", "b"][..]),
            (b"data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]),
            (b"data: a\r\rdata: b\r\r", &["a", "b"]),
            (b"\xef\xbb\xbfdata: a\n\n", &["a"]),
            (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", &["b"]),
            (b": OPENROUTER PROCESSING\n\n:\n\ndata: a\n\n", &["a"]),
            (b"retry: 100\n\nid: 1\n\nevent: ping\n\ndata: a\n\n", &["a"]),
            (b"data:\n\ndata\n\ndata: a\n\n", &["a"]),
            (b"data: a\ndata: b\n\n", &["a\nb"]),
            (b"data:  a:b \n\n", &[" a:b "]),
            (b"data: \xff\xe5\x8c\n\ndata: \xe5\x8c\x97\n\n", &["\u{fffd}\u{fffd}", "北"]),
            (b"datum: x\n\ndata: cut off", &["cut off"]),
            (b"", &[]),
            (b"\xef\xbb", &[]),
        ] {
            assert_eq!(data(input), expected, "{}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn keeps_the_event_name_with_its_data_only() {
        let (events, _) = decode_in_pieces(b"event: a\n\nevent: b\ndata: x\n\ndata: y\n\n", 1, 100);
        let names: Vec<(&str, &str)> = events.iter().map(|event| (event.event.as_str(), event.data.as_str())).collect();
        assert_eq!(names, [("b", "x"), ("", "y")]);
    }

    #[test]
    fn refuses_a_giant_event_and_keeps_those_before_it() {
        let mut input = b"data: a\n\ndata: ".to_vec();
        input.resize(200, b'x');
        for size in [1, 7, 1000] {
            let (events, result) = decode_in_pieces(&input, size, 100);
            assert_eq!(result, Err(EventTooLarge { limit: 100 }));
            assert_eq!(events.len(), 1);
        }
    }

    #[test]
    fn a_giant_comment_costs_nothing() {
        let mut input = vec![b':'];
        input.resize(5000, b'x');
        input.extend_from_slice(b"\n\ndata: a\n\n");
        let (events, result) = decode_in_pieces(&input, 64, 100);
        assert_eq!((events.len(), result), (1, Ok(())));
    }

    fn piece() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            any::<Vec<u8>>(),
            proptest::sample::select(vec![
                "data: ", "data:", "event: x", "\n", "\r", "\r\n", "\n\n", ":", "\u{feff}", "北京", "{}", "id: 1", "data",
                "\r\n\r\n",
            ])
            .prop_map(|text| text.as_bytes().to_vec()),
        ]
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(
            pieces in proptest::collection::vec(piece(), 0..40),
            size in 1_usize..9,
            limit in 8_usize..200,
        ) {
            let input = pieces.concat();
            assert_eq!(decode_in_pieces(&input, usize::MAX, limit), decode_in_pieces(&input, size, limit));
            fuzz_any_chunking(&input);
        }
    }
}
