//! `[memory]`: what is remembered beyond a conversation.

use serde::Deserialize;

use super::{ConfigError, refuse_zero};

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

impl MemoryConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        refuse_zero(&[
            ("memory.max_entry_bytes", self.max_entry_bytes == Some(0)),
            ("memory.max_entries", self.max_entries == Some(0)),
            ("memory.max_bytes", self.max_bytes == Some(0)),
            ("memory.max_results", self.max_results == Some(0)),
            ("memory.max_result_bytes", self.max_result_bytes == Some(0)),
            ("memory.expires_after_days", self.expires_after_days == Some(0)),
        ])
    }
}
