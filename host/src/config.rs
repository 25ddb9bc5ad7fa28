//! `honeycomb.toml`: settings of the model and the agent. The policy is a separate file, and nothing here grants anything.

mod agent;
mod memory;
mod workers;

use std::path::PathBuf;

use serde::Deserialize;

pub use agent::{AgentConfig, ContextConfig, ResultConfig, ResultsConfig};
pub use memory::MemoryConfig;
pub use workers::WorkersConfig;

/// The largest configuration file, in bytes.
pub const MAX_CONFIG_BYTES: u64 = 256 * 1024;

/// The whole file. Unknown keys are refused.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `[model]`.
    pub model: ModelConfig,
    /// `[agent]`.
    pub agent: AgentConfig,
    /// `[audit]`.
    pub audit: AuditConfig,
    /// `[memory]`.
    pub memory: MemoryConfig,
}

/// What is written down.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// The audit file, or `none`. A relative path starts at the working directory, as that of `--audit` does.
    pub file: Option<PathBuf>,
    /// Whether every record is on the disk before a call goes on.
    pub sync: bool,
}

/// Which model, and how to reach it. Keys come from the environment, never from a file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// Who serves the model.
    pub provider: Option<ProviderKind>,
    /// The model's name.
    pub name: Option<String>,
    /// The API's base URL; otherwise `OPENAI_BASE_URL` or `ANTHROPIC_BASE_URL`.
    pub base_url: Option<String>,
    /// The most tokens of one answer.
    pub max_output_tokens: Option<u32>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// What a million tokens cost; it wins over the program's own list.
    pub price: Option<PriceConfig>,
    /// Requests in flight at once.
    pub concurrency: Option<usize>,
    /// The most seconds without an event in a stream.
    pub idle_timeout_seconds: Option<u64>,
    /// The most seconds of a stream in which the answer does not go on, whatever else comes.
    pub stall_timeout_seconds: Option<u64>,
    /// How often a request is sent, the first time included.
    pub max_attempts: Option<u32>,
    /// Whether answers are streamed.
    pub stream: Option<bool>,
}

/// What a million tokens cost, in any currency, as price lists say it: `2.5` is two and a half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceConfig {
    /// A million input tokens.
    pub input: f64,
    /// A million input tokens that the provider had cached; as much as `input` if it is left out.
    pub cached_input: Option<f64>,
    /// A million output tokens.
    pub output: f64,
}

/// Who serves the model.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderKind {
    /// OpenAI's chat completions, and the many servers that speak it.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
}

impl Config {
    /// Parses the file's text.
    ///
    /// # Errors
    ///
    /// Says which line is wrong and why.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|source| ConfigError::Syntax {
            line: source.span().map_or(1, |span| line_of(text, span.start)),
            message: source.message().to_owned(),
        })?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let ModelConfig {
            max_output_tokens, price, concurrency, idle_timeout_seconds, stall_timeout_seconds, max_attempts, ..
        } = &self.model;
        let zero = [
            ("model.max_output_tokens", *max_output_tokens == Some(0)),
            ("model.concurrency", *concurrency == Some(0)),
            ("model.idle_timeout_seconds", *idle_timeout_seconds == Some(0)),
            ("model.stall_timeout_seconds", *stall_timeout_seconds == Some(0)),
            ("model.max_attempts", *max_attempts == Some(0)),
        ];
        refuse_zero(&zero)?;
        if let Some(PriceConfig { input, cached_input, output }) = *price {
            for amount in [input, cached_input.unwrap_or(0.0), output] {
                check_amount("model.price", amount)?;
            }
        }
        self.memory.check()?;
        self.agent.check()
    }
}

fn refuse_zero(fields: &[(&'static str, bool)]) -> Result<(), ConfigError> {
    match fields.iter().find(|(_, is_zero)| *is_zero) {
        Some((field, _)) => Err(ConfigError::Zero { field }),
        None => Ok(()),
    }
}

/// Checks an amount of money.
fn check_amount(field: &'static str, amount: f64) -> Result<(), ConfigError> {
    // Millionths of a larger amount than this do not fit what they are counted in; nobody pays it either.
    if (0.0..=1e9).contains(&amount) {
        Ok(())
    } else {
        Err(ConfigError::Value { field: field.to_owned(), problem: format!("{amount} is not an amount of money") })
    }
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It is not TOML, or has a key or value that is not known.
    #[error("line {line}: {message}")]
    Syntax {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong. Not the parser's whole report: that quotes the line, and a key may stand in it by mistake.
        message: String,
    },
    /// A limit of zero would stop everything.
    #[error("`{field}` must not be zero; leave it out for the default")]
    Zero {
        /// The key.
        field: &'static str,
    },
    /// A value makes no sense.
    #[error("`{field}`: {problem}")]
    Value {
        /// The key.
        field: String,
        /// What is wrong.
        problem: String,
    },
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_it_does_not_know_and_names_the_line() {
        for (text, expected) in [
            ("[model]\nnaem = \"x\"\n", "line 2: unknown field `naem`"),
            ("[model]\nprovider = \"other\"\n", "line 2: unknown variant `other`"),
            ("[agent]\nmax_steps = -1\n", "line 2:"),
            ("[agent]\nmax_steps = 0\n", "`agent.max_steps` must not be zero"),
            ("[memory]\nmax_entries = 0\n", "`memory.max_entries` must not be zero"),
            ("[memory]\nembedding = \"m\"\n", "line 2: unknown field `embedding`"),
            ("[agent.workers]\nmax_depth = 0\n", "`agent.workers.max_depth` must not be zero"),
            ("[agent.workers]\nmax_per_call = 0\n", "`agent.workers.max_per_call` must not be zero"),
            ("[agent.workers]\nmax_per_run = 0\n", "`agent.workers.max_per_run` must not be zero"),
            ("[agent.workers]\nmax_parallel = 0\n", "`agent.workers.max_parallel` must not be zero"),
            ("[agent.workers]\nmax_seconds = 0\n", "`agent.workers.max_seconds` must not be zero"),
            ("[agent.workers]\nmax_report_bytes = 0\n", "`agent.workers.max_report_bytes` must not be zero"),
            ("[agent.workers]\nreserve_percent = 91\n", "`agent.workers.reserve_percent`: 91 is not from 1 to 90"),
            ("[policy]\n", "line 1: unknown field `policy`"),
            ("[model]\nprice = { input = 1, output = -1 }\n", "`model.price`: -1 is not an amount of money"),
            ("[model]\nprice = { input = nan, output = 1 }\n", "`model.price`: NaN is not an amount of money"),
            ("[agent]\nmax_cost = inf\n", "`agent.max_cost`: inf is not an amount of money"),
            ("[model]\nconcurrency = 0\n", "`model.concurrency` must not be zero"),
            ("[agent.context]\nmax_history = 1\n", "`agent.context.max_history`: 1 is less than 2"),
            ("[agent.context]\nreserve_percent = 91\n", "`agent.context.reserve_percent`: 91 is more than 90"),
            ("[agent.results]\nmax_bytes = 10\ntail_bytes = 11\n", "`agent.results`: `tail_bytes` is 11 and `max_bytes` 10"),
            ("[agent.results.tools.\"a/b\"]\npointer = \"x\"\n", "`agent.results.tools.\"a/b\"`: `x` is not a JSON pointer"),
            ("[agent.results.tools.a]\nmax_bytes = 1\n", "`agent.results.tools.\"a\"`: it is not `plugin/tool`"),
            ("[agent.results.tools.\"a/b*c\"]\nmax_bytes = 1\n", "`agent.results.tools.\"a/b*c\"`: a `*` stands at the end"),
            ("[agent]\nsystem_prompt = \"a\"\nsystem_prompt_file = \"b\"\n", "`agent.system_prompt_file`: there is also"),
            ("not toml", "line 1:"),
        ] {
            let error = Config::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_documented_file_names_every_key() {
        let documented = include_str!("../../examples/honeycomb.toml");
        Config::parse(documented).expect("valid as it is");
        let is_example =
            |line: &&str| line.starts_with('#') && line[1..].starts_with(|c: char| c.is_ascii_lowercase() || c == '[');
        let all: Vec<&str> = documented.lines().map(|line| if is_example(&line) { &line[1..] } else { line }).collect();
        let config: Config = toml::from_str(&all.join("\n")).expect("valid with its examples");
        let mut shown = config.clone();
        let tools = std::mem::take(&mut shown.agent.results.tools);
        assert!(!format!("{shown:?}").contains("None"), "a key is missing: {shown:?}");
        assert!(tools.values().any(|tool| tool.pointer.is_some()) && tools.values().any(|tool| tool.summarise.is_some()));
    }
}
