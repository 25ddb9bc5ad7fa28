//! How many tokens a request has: what the provider said of the last one, and a guess for what changed since.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::message::{Message, Part};
use crate::tool::ToolSpec;

/// The share of role, ids and punctuation in a part, in bytes; about a dozen tokens in all known wire formats.
const PART_OVERHEAD: u64 = 48;

/// A request whose size the provider told.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Anchor {
    bytes: u64,
    tokens: u64,
}

impl Anchor {
    /// None if the provider said nothing, or nothing that can be: a token is at least a byte.
    pub(crate) fn new(bytes: u64, tokens: u64) -> Option<Self> {
        (tokens > 0 && tokens <= bytes).then_some(Self { bytes, tokens })
    }

    /// Estimates a request of this size.
    ///
    /// What was added counts a token for every four bytes, or more if the last request had more; what was taken away counts a
    /// token for every four bytes, or less if it had less. So the estimate errs on the safe side.
    pub(crate) fn tokens(anchor: Option<Self>, bytes: u64) -> u64 {
        let Some(anchor) = anchor else { return bytes.div_ceil(4) };
        if bytes >= anchor.bytes {
            let added = bytes - anchor.bytes;
            let dense = (u128::from(added) * u128::from(anchor.tokens)).div_ceil(u128::from(anchor.bytes.max(1)));
            anchor.tokens + added.div_ceil(4).max(u64::try_from(dense).unwrap_or(u64::MAX))
        } else {
            let removed = anchor.bytes - bytes;
            let sparse = u128::from(removed) * u128::from(anchor.tokens) / u128::from(anchor.bytes.max(1));
            anchor.tokens.saturating_sub((removed / 4).min(u64::try_from(sparse).unwrap_or(u64::MAX)))
        }
    }
}

/// The size of a message as it is shown, with these stubs.
pub(crate) fn message_bytes(message: &Message, stubs: &BTreeMap<String, String>) -> u64 {
    message
        .parts
        .iter()
        .map(|part| {
            part_bytes(match part {
                Part::Text { text } => text.len(),
                Part::Reasoning(reasoning) => reasoning.raw.as_ref().map_or(reasoning.text.len(), json_bytes),
                Part::ToolCall(call) => call.name.len() + call.arguments.len(),
                Part::ToolResult(result) => stubs.get(&result.call_id).unwrap_or(&result.text).len(),
            })
        })
        .sum()
}

/// The size of a part with this much text.
pub(crate) fn part_bytes(text: usize) -> u64 {
    text as u64 + PART_OVERHEAD
}

/// The size of the tools in a request.
pub(crate) fn tools_bytes(tools: &[ToolSpec]) -> u64 {
    tools.iter().map(|tool| part_bytes(tool.name.len() + tool.description.len() + json_bytes(&tool.input_schema))).sum()
}

fn json_bytes(value: &serde_json::Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Writing to a counter cannot fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errs_on_the_safe_side() {
        assert_eq!(Anchor::tokens(None, 401), 101);
        let dense = Anchor::new(1000, 500);
        assert_eq!(Anchor::tokens(dense, 1000), 500);
        assert_eq!(Anchor::tokens(dense, 2000), 1000);
        assert_eq!(Anchor::tokens(dense, 600), 400);
        let sparse = Anchor::new(1000, 100);
        assert_eq!(Anchor::tokens(sparse, 1400), 200);
        assert_eq!(Anchor::tokens(sparse, 500), 50);
    }

    #[test]
    fn does_not_believe_impossible_counts() {
        assert_eq!(Anchor::new(100, 0), None);
        assert_eq!(Anchor::new(100, 101), None);
        assert_eq!(Anchor::tokens(Anchor::new(u64::MAX, u64::MAX), 0), u64::MAX - u64::MAX / 4);
    }
}
