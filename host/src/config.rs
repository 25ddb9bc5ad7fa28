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
    /// `[agent.workers]`.
    pub workers: WorkersConfig,
}

/// Whether and how the model may give parts of its task to workers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkersConfig {
    /// Offers the tool `delegate`.
    pub enabled: bool,
    /// Levels of workers below the task's own run.
    pub max_depth: Option<u32>,
    /// The most subtasks of one call.
    pub max_per_call: Option<usize>,
    /// The most workers of a task, those of workers included.
    pub max_per_run: Option<u32>,
    /// Workers of one call that run at once.
    pub max_parallel: Option<usize>,
    /// The most seconds of one worker.
    pub max_seconds: Option<u64>,
    /// The percentage of what is left that is kept to act on the reports; also what a worker keeps to write its own.
    pub reserve_percent: Option<u32>,
    /// The longest report that is shown, in bytes.
    pub max_report_bytes: Option<usize>,
}

/// What is remembered beyond a conversation. The policy says whether the model may save and recall at all.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryConfig {
    /// Whether there is the built-in plugin `memory`; it is there unless this says `false`.
    pub enabled: Option<bool>,
    /// The name of the project; otherwise the nearest directory upwards that holds `.git` or `honeycomb.toml`.
    pub project: Option<String>,
    /// The model that turns texts into vectors, at an OpenAI-compatible server; without it, texts are found by their words.
    pub embeddings: Option<String>,
    /// That server's base URL; otherwise the chat model's, where that is OpenAI's protocol.
    pub embeddings_base_url: Option<String>,
    /// The longest text, in bytes.
    pub max_entry_bytes: Option<u64>,
    /// The most entries of the user, of one project, or of one session.
    pub max_entries: Option<u64>,
    /// The most bytes of all texts together.
    pub max_bytes: Option<u64>,
    /// The most entries of one recall.
    pub max_results: Option<u64>,
    /// The most bytes of the texts of one recall.
    pub max_result_bytes: Option<u64>,
    /// How long a text is kept when the model does not say; for ever otherwise.
    pub expires_after_days: Option<u64>,
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
            ("agent.workers.max_depth", config.agent.workers.max_depth == Some(0)),
            ("agent.workers.max_per_call", config.agent.workers.max_per_call == Some(0)),
            ("agent.workers.max_per_run", config.agent.workers.max_per_run == Some(0)),
            ("agent.workers.max_parallel", config.agent.workers.max_parallel == Some(0)),
            ("agent.workers.max_seconds", config.agent.workers.max_seconds == Some(0)),
            ("agent.workers.max_report_bytes", config.agent.workers.max_report_bytes == Some(0)),
            ("agent.context_window", config.agent.context_window == Some(0)),
            ("model.max_output_tokens", config.model.max_output_tokens == Some(0)),
            ("model.max_attempts", config.model.max_attempts == Some(0)),
            ("model.idle_timeout_seconds", config.model.idle_timeout_seconds == Some(0)),
            ("memory.max_entry_bytes", config.memory.max_entry_bytes == Some(0)),
            ("memory.max_entries", config.memory.max_entries == Some(0)),
            ("memory.max_bytes", config.memory.max_bytes == Some(0)),
            ("memory.max_results", config.memory.max_results == Some(0)),
            ("memory.max_result_bytes", config.memory.max_result_bytes == Some(0)),
            ("memory.expires_after_days", config.memory.expires_after_days == Some(0)),
        ];
        if config.agent.workers.reserve_percent.is_some_and(|percent| !(1..=90).contains(&percent)) {
            return Err(ConfigError::Range { field: "agent.workers.reserve_percent", from: 1, to: 90 });
        }
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
    /// A number is outside its range.
    #[error("`{field}` must be from {from} to {to}")]
    Range {
        /// The key.
        field: &'static str,
        /// The least.
        from: u32,
        /// The most.
        to: u32,
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
            ("[agent.workers]\nreserve_percent = 91\n", "`agent.workers.reserve_percent` must be from 1 to 90"),
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
                    max_tool_calls = 4\nmax_seconds = 5\ncontext_window = 6\nsystem_prompt = \"你好\"\n[audit]\nfile = \"a.jsonl\"\nsync = true\n\
                    [agent.workers]\nenabled = true\nmax_depth = 2\nmax_per_call = 3\nmax_per_run = 4\nmax_parallel = 5\n\
                    max_seconds = 6\nreserve_percent = 7\nmax_report_bytes = 8\n";
        let config = Config::parse(text).expect("valid");
        assert_eq!(config.model.provider, Some(ProviderKind::OpenAi));
        assert_eq!(config.max_time(), Some(Duration::from_secs(5)));
        assert_eq!(config.agent.system_prompt.as_deref(), Some("你好"));
        assert!(config.agent.workers.enabled && !Config::default().agent.workers.enabled);
        assert_eq!((config.agent.workers.max_depth, config.agent.workers.max_report_bytes), (Some(2), Some(8)));
        assert_eq!((config.audit.file, config.audit.sync), (Some("a.jsonl".into()), true));
    }
}
