//! What providers and models do differently, as data: `data/quirks.toml`.

use std::sync::LazyLock;

use serde::Deserialize;

/// How to talk to one model at one provider.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Quirks {
    /// Whether a chat model gets its reasoning back.
    pub reasoning_replay: ReasoningReplay,
    /// What the limit on output tokens is called.
    pub max_tokens_field: MaxTokensField,
    /// Whether the model accepts a temperature.
    pub temperature: bool,
    /// Whether the server accepts `stream_options`.
    pub stream_usage: bool,
    /// Sent as `parallel_tool_calls`, where present.
    pub parallel_tool_calls: Option<bool>,
    /// Whether cache breakpoints are marked.
    pub prompt_cache: bool,
    /// The limit on output tokens where the protocol requires one and nobody chose.
    pub max_tokens: u32,
}

/// When `reasoning_content` is sent back.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningReplay {
    /// Never.
    Never,
    /// With messages that call tools.
    ToolTurns,
    /// With every message.
    Always,
}

/// What the limit on output tokens is called.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokensField {
    /// The older name, which nearly every server knows.
    MaxTokens,
    /// OpenAI's newer name, which its reasoning models insist on.
    MaxCompletionTokens,
}

impl MaxTokensField {
    /// The name as it stands in a request.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

impl Default for Quirks {
    fn default() -> Self {
        Self {
            reasoning_replay: ReasoningReplay::Never,
            max_tokens_field: MaxTokensField::MaxTokens,
            temperature: true,
            stream_usage: true,
            parallel_tool_calls: None,
            prompt_cache: false,
            max_tokens: 8192,
        }
    }
}

impl Quirks {
    /// The quirks of a model at a host.
    pub fn of(host: &str, model: &str) -> Self {
        let mut quirks = Self::default();
        for entry in TABLE.iter().filter(|entry| entry.matches(host, model)) {
            entry.apply(&mut quirks);
        }
        quirks
    }
}

/// Whether a model's name begins with `prefix`, also after a vendor as in `deepseek/deepseek-chat`.
pub(crate) fn has_prefix(model: &str, prefix: &str) -> bool {
    let model = model.to_ascii_lowercase();
    model.starts_with(prefix) || model.rsplit('/').next().is_some_and(|name| name.starts_with(prefix))
}

static TABLE: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let file: File = toml::from_str(include_str!("../../data/quirks.toml")).expect("a test parses the file");
    file.quirk
});

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    quirk: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    host: Option<String>,
    model: Option<String>,
    reasoning_replay: Option<ReasoningReplay>,
    max_tokens_field: Option<MaxTokensField>,
    temperature: Option<bool>,
    stream_usage: Option<bool>,
    parallel_tool_calls: Option<bool>,
    prompt_cache: Option<bool>,
    max_tokens: Option<u32>,
}

impl Entry {
    fn matches(&self, host: &str, model: &str) -> bool {
        self.host.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(host))
            && self.model.as_ref().is_none_or(|prefix| has_prefix(model, prefix))
    }

    fn apply(&self, quirks: &mut Quirks) {
        fn set<T: Copy>(field: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *field = value;
            }
        }
        set(&mut quirks.reasoning_replay, self.reasoning_replay);
        set(&mut quirks.max_tokens_field, self.max_tokens_field);
        set(&mut quirks.temperature, self.temperature);
        set(&mut quirks.stream_usage, self.stream_usage);
        set(&mut quirks.prompt_cache, self.prompt_cache);
        set(&mut quirks.max_tokens, self.max_tokens);
        if self.parallel_tool_calls.is_some() {
            quirks.parallel_tool_calls = self.parallel_tool_calls;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_parses_and_every_entry_has_a_condition() {
        assert!(TABLE.iter().all(|entry| entry.host.is_some() || entry.model.is_some()));
    }

    #[test]
    fn hosts_and_model_prefixes_decide_and_later_entries_win() {
        let openai = Quirks::of("api.openai.com", "gpt-4.1-mini");
        assert_eq!((openai.max_tokens_field, openai.temperature), (MaxTokensField::MaxCompletionTokens, true));
        assert!(!Quirks::of("openrouter.ai", "openai/o3-mini").temperature);
        let replay = |host, model| Quirks::of(host, model).reasoning_replay;
        assert_eq!(replay("api.deepseek.com", "anything"), ReasoningReplay::ToolTurns);
        assert_eq!(replay("127.0.0.1", "deepseek/deepseek-r1"), ReasoningReplay::Never);
        assert_eq!(Quirks::of("127.0.0.1", "qwen3"), Quirks::default());
        assert_eq!(Quirks::of("api.anthropic.com", "claude-3-haiku-20240307").max_tokens, 4096);
    }
}
