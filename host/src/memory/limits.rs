//! How much is remembered, and for how long.

use std::time::Duration;

/// Bounds of a memory. Each has a name under `[memory]` in `honeycomb.toml`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemoryLimits {
    /// `max_entry_bytes`: the longest text.
    pub max_entry_bytes: u64,
    /// `max_entries`: the most entries of the user, of one project, or of one session.
    pub max_entries: u64,
    /// `max_bytes`: the most bytes of all texts together. The file is larger: for facts of
    /// some thirty bytes fifteen times as large, most of it ids, origins and indexes (`examples/memory_recall.rs`).
    pub max_bytes: u64,
    /// `max_results`: the most entries of one recall.
    pub max_results: usize,
    /// `max_result_bytes`: the most bytes of the texts of one recall.
    pub max_result_bytes: u64,
    /// `expires_after_days`: how long a text is kept when nobody says; none is for ever.
    pub keep: Option<Duration>,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self {
            max_entry_bytes: 4 << 10,
            max_entries: 10_000,
            max_bytes: 64 << 20,
            max_results: 20,
            max_result_bytes: 16 << 10,
            keep: None,
        }
    }
}
