//! `honeycomb.toml`: settings of the model and the agent. The policy is a separate file, and nothing here grants anything.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

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
    /// The most seconds without an event in a stream.
    pub idle_timeout_seconds: Option<u64>,
    /// How often a request is sent, the first time included.
    pub max_attempts: Option<u32>,
    /// Whether answers are streamed.
    pub stream: Option<bool>,
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

/// How the agent works.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentConfig {
    /// The most model calls of a task.
    pub max_steps: Option<u32>,
    /// The most tool calls of a task.
    pub max_tool_calls: Option<u32>,
    /// The most seconds of a task.
    pub max_seconds: Option<u64>,
    /// The tokens that the model's window holds.
    pub context_window: Option<u64>,
    /// Text that replaces the default system prompt; a minijinja template.
    pub system_prompt: Option<String>,
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
        let zero = [
            ("agent.max_steps", config.agent.max_steps == Some(0)),
            ("agent.max_tool_calls", config.agent.max_tool_calls == Some(0)),
            ("agent.max_seconds", config.agent.max_seconds == Some(0)),
            ("agent.context_window", config.agent.context_window == Some(0)),
            ("model.max_output_tokens", config.model.max_output_tokens == Some(0)),
            ("model.max_attempts", config.model.max_attempts == Some(0)),
            ("model.idle_timeout_seconds", config.model.idle_timeout_seconds == Some(0)),
        ];
        match zero.into_iter().find(|(_, is_zero)| *is_zero) {
            Some((field, _)) => Err(ConfigError::Zero { field }),
            None => Ok(config),
        }
    }

    /// The longest time of a task.
    pub fn max_time(&self) -> Option<Duration> {
        self.agent.max_seconds.map(Duration::from_secs)
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
            ("[policy]\n", "line 1: unknown field `policy`"),
            ("not toml", "line 1:"),
        ] {
            let error = Config::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn reads_every_setting() {
        let text = "[model]\nprovider = \"openai\"\nname = \"m\"\nbase_url = \"http://127.0.0.1:1/v1\"\nmax_output_tokens = 10\n\
                    temperature = 0.5\nidle_timeout_seconds = 9\nmax_attempts = 2\nstream = false\n[agent]\nmax_steps = 3\n\
                    max_tool_calls = 4\nmax_seconds = 5\ncontext_window = 6\nsystem_prompt = \"你好\"\n[audit]\nfile = \"a.jsonl\"\nsync = true\n";
        let config = Config::parse(text).expect("valid");
        assert_eq!(config.model.provider, Some(ProviderKind::OpenAi));
        assert_eq!(config.max_time(), Some(Duration::from_secs(5)));
        assert_eq!(config.agent.system_prompt.as_deref(), Some("你好"));
        assert_eq!((config.audit.file, config.audit.sync), (Some("a.jsonl".into()), true));
    }
}
