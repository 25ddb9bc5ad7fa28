//! What a model costs and how much it holds, as data: `data/prices.toml`. An unknown model has no price.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::quirks::has_prefix;
use crate::message::TokenUsage;

/// What a million tokens cost, in millionths of a currency: 2 500 000 is 2.50.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// A million input tokens that were not cached.
    pub input: u64,
    /// A million input tokens read from the provider's cache.
    pub cached_input: u64,
    /// A million output tokens.
    pub output: u64,
}

impl Price {
    /// What some tokens cost, in millionths of the currency, rounded up.
    pub fn cost_micros(&self, tokens: &TokenUsage) -> u64 {
        let cached = tokens.cached_input_tokens.min(tokens.input_tokens);
        let total = u128::from(tokens.input_tokens - cached) * u128::from(self.input)
            + u128::from(cached) * u128::from(self.cached_input)
            + u128::from(tokens.output_tokens) * u128::from(self.output);
        u64::try_from(total.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// What is known of a model. An estimate: see the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ModelFacts {
    /// Its price, in US dollars.
    pub price: Price,
    /// The context window, in tokens.
    pub window: u64,
}

/// Looks a model up by the longest prefix of its name, also after a vendor as in `openai/gpt-4o`.
pub fn lookup(model: &str) -> Option<ModelFacts> {
    let row = TABLE.iter().filter(|row| has_prefix(model, &row.prefix)).max_by_key(|row| row.prefix.len())?;
    let price = Price { input: row.input, cached_input: row.cached_input, output: row.output };
    Some(ModelFacts { price, window: row.window })
}

static TABLE: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let file: File = toml::from_str(include_str!("../../data/prices.toml")).expect("a test parses the file");
    file.model
});

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    model: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    prefix: String,
    input: u64,
    cached_input: u64,
    output: u64,
    window: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins_and_the_unknown_has_no_price() {
        for (model, same_as) in [
            ("gpt-4.1-mini-2025-04-14", "gpt-4.1-mini"),
            ("openai/gpt-4o-mini", "gpt-4o-mini"),
            ("claude-sonnet-4-5-20250929", "claude-sonnet-4"),
        ] {
            assert!(lookup(model).is_some());
            assert_eq!(lookup(model), lookup(same_as), "{model}");
        }
        assert_ne!(lookup("gpt-4.1"), lookup("gpt-4.1-mini"));
        assert_eq!((lookup("qwen3"), lookup("")), (None, None));
    }

    #[test]
    fn cached_tokens_are_part_of_the_input_and_cost_less() {
        let price = Price { input: 2_500_000, cached_input: 250_000, output: 10_000_000 };
        let usage = TokenUsage { input_tokens: 1_000, output_tokens: 100, cached_input_tokens: 400, reasoning_tokens: 50 };
        assert_eq!(price.cost_micros(&usage), 600 * 5 / 2 + 100 + 1_000);
        assert_eq!(price.cost_micros(&TokenUsage { input_tokens: 1, ..TokenUsage::default() }), 3, "rounded up");
        let nonsense = TokenUsage { cached_input_tokens: u64::MAX, ..usage };
        assert_eq!(price.cost_micros(&nonsense), 250 + 1_000, "no more was cached than was sent");
        let absurd = TokenUsage { input_tokens: u64::MAX, output_tokens: u64::MAX, ..TokenUsage::default() };
        assert_eq!(price.cost_micros(&absurd), u64::MAX);
    }

    #[test]
    fn prefixes_are_unique_and_windows_plausible() {
        for (at, row) in TABLE.iter().enumerate() {
            assert!(TABLE[..at].iter().all(|other| other.prefix != row.prefix), "{}", row.prefix);
            assert!((1000..100_000_000).contains(&row.window), "{}", row.prefix);
        }
    }
}
