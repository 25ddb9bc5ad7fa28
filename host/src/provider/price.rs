//! What a model costs and how much it holds, as data: `data/prices.toml`. An unknown model has no price.

use std::sync::LazyLock;

use serde::Deserialize;

use super::quirks::has_prefix;
use crate::message::TokenUsage;

/// A model's price and size.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    prefix: String,
    /// Millionths of a US dollar for a million input tokens.
    pub input: u64,
    /// Millionths of a US dollar for a million input tokens that the provider had cached.
    pub cached: u64,
    /// Millionths of a US dollar for a million output tokens.
    pub output: u64,
    /// The context window, in tokens.
    pub window: u64,
}

impl Price {
    /// What some tokens cost, in millionths of a US dollar, rounded up.
    pub fn cost_micros(&self, usage: &TokenUsage) -> u64 {
        let cached = usage.cached_input_tokens.min(usage.input_tokens);
        let sum = u128::from(usage.input_tokens - cached) * u128::from(self.input)
            + u128::from(cached) * u128::from(self.cached)
            + u128::from(usage.output_tokens) * u128::from(self.output);
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// Looks a model up by the longest prefix of its name, also after a vendor as in `openai/gpt-4o`.
pub fn lookup(model: &str) -> Option<&'static Price> {
    TABLE.iter().filter(|price| has_prefix(model, &price.prefix)).max_by_key(|price| price.prefix.len())
}

static TABLE: LazyLock<Vec<Price>> = LazyLock::new(|| {
    let file: File = toml::from_str(include_str!("../../data/prices.toml")).expect("a test parses the file");
    file.model
});

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    model: Vec<Price>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins_and_the_unknown_has_no_price() {
        for (model, expected) in [
            ("gpt-4.1-mini-2025-04-14", Some("gpt-4.1-mini")),
            ("gpt-4.1", Some("gpt-4.1")),
            ("openai/gpt-4o-mini", Some("gpt-4o-mini")),
            ("claude-sonnet-4-5-20250929", Some("claude-sonnet-4")),
            ("qwen3", None),
            ("", None),
        ] {
            assert_eq!(lookup(model).map(|price| price.prefix.as_str()), expected, "{model}");
        }
    }

    #[test]
    fn cached_tokens_are_part_of_the_input_and_cost_less() {
        let price = lookup("gpt-4.1").expect("known");
        let usage = TokenUsage { input_tokens: 1000, cached_input_tokens: 400, output_tokens: 10, reasoning_tokens: 5 };
        assert_eq!(price.cost_micros(&usage), 600 * 2 + 200 + 80);
        let absurd = TokenUsage { input_tokens: u64::MAX, output_tokens: u64::MAX, ..TokenUsage::default() };
        assert_eq!(price.cost_micros(&absurd), u64::MAX);
    }

    #[test]
    fn prefixes_are_unique_and_windows_plausible() {
        for (at, price) in TABLE.iter().enumerate() {
            assert!(TABLE[..at].iter().all(|other| other.prefix != price.prefix), "{}", price.prefix);
            assert!((1000..100_000_000).contains(&price.window), "{}", price.prefix);
        }
    }
}
