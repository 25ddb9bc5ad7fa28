//! `[agent]`: how a task is worked on.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::{ConfigError, WorkersConfig, check_amount, refuse_zero};

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
    /// The most input tokens of a task, all model calls together.
    pub max_input_tokens: Option<u64>,
    /// The most output tokens of a task, all model calls together.
    pub max_output_tokens: Option<u64>,
    /// The most money for a task, in the price's currency; needs a price.
    pub max_cost: Option<f64>,
    /// The most fuel of a task, all tool calls together.
    pub max_fuel: Option<u64>,
    /// Tool calls that run side by side.
    pub max_parallel: Option<usize>,
    /// Of these, calls of one plugin.
    pub max_parallel_per_plugin: Option<usize>,
    /// The tokens that the model's window holds.
    pub context_window: Option<u64>,
    /// Text that replaces the default system prompt; a minijinja template.
    pub system_prompt: Option<String>,
    /// A file with that text; relative to the configuration file.
    pub system_prompt_file: Option<PathBuf>,
    /// How a conversation is made to fit the window.
    pub context: ContextConfig,
    /// How the model is shown tools' results.
    pub results: ResultsConfig,
    /// `[agent.workers]`.
    pub workers: WorkersConfig,
}

/// `[agent.context]`: how a conversation is made to fit the model's window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ContextConfig {
    /// The most messages that are sent; older ones are left out.
    pub max_history: Option<usize>,
    /// Part of the window that stays free, in percent.
    pub reserve_percent: Option<u8>,
    /// Replace old large results with stubs that the model can read back.
    pub stub: Option<bool>,
    /// Results up to this size, in bytes, are left whole.
    pub stub_min_bytes: Option<usize>,
    /// The newest messages, up to this many tokens, are left alone as long as possible.
    pub protect_tokens: Option<u64>,
    /// Ask the model for a summary of old messages.
    pub summarise: Option<bool>,
    /// The longest summary, in bytes.
    pub summary_max_bytes: Option<usize>,
    /// How long the model may take for it, in seconds.
    pub summary_timeout_seconds: Option<u64>,
}

/// `[agent.results]`: how the model is shown tools' results.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResultsConfig {
    /// The most bytes of a result that are shown.
    pub max_bytes: Option<usize>,
    /// Of these, how many are from the end.
    pub tail_bytes: Option<usize>,
    /// Show larger results as a summary by the model.
    pub summarise: Option<bool>,
    /// For some tools: `plugin/tool`, exact or with a trailing `*`. What is left out here is as above.
    pub tools: BTreeMap<String, ResultConfig>,
}

/// `[agent.results.tools."plugin/tool"]`: how the model is shown one tool's results.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResultConfig {
    /// The most bytes that are shown.
    pub max_bytes: Option<usize>,
    /// Of these, how many are from the end.
    pub tail_bytes: Option<usize>,
    /// Show only this part of a JSON result (RFC 6901).
    pub pointer: Option<String>,
    /// Show larger results as a summary by the model.
    pub summarise: Option<bool>,
}

impl AgentConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let context = &self.context;
        refuse_zero(&[
            ("agent.max_steps", self.max_steps == Some(0)),
            ("agent.max_tool_calls", self.max_tool_calls == Some(0)),
            ("agent.max_seconds", self.max_seconds == Some(0)),
            ("agent.max_input_tokens", self.max_input_tokens == Some(0)),
            ("agent.max_output_tokens", self.max_output_tokens == Some(0)),
            ("agent.max_cost", self.max_cost == Some(0.0)),
            ("agent.max_fuel", self.max_fuel == Some(0)),
            ("agent.max_parallel", self.max_parallel == Some(0)),
            ("agent.max_parallel_per_plugin", self.max_parallel_per_plugin == Some(0)),
            ("agent.context_window", self.context_window == Some(0)),
            ("agent.context.summary_max_bytes", context.summary_max_bytes == Some(0)),
            ("agent.context.summary_timeout_seconds", context.summary_timeout_seconds == Some(0)),
            ("agent.results.max_bytes", self.results.max_bytes == Some(0)),
        ])?;
        check_amount("agent.max_cost", self.max_cost.unwrap_or(0.0))?;
        let refuse = |field: &str, problem: String| Err(ConfigError::Value { field: field.to_owned(), problem });
        if self.system_prompt.is_some() && self.system_prompt_file.is_some() {
            return refuse("agent.system_prompt_file", "there is also `agent.system_prompt`; keep one of them".to_owned());
        }
        if let Some(messages @ 0..2) = context.max_history {
            return refuse("agent.context.max_history", format!("{messages} is less than 2, a call and its result"));
        }
        if let Some(percent @ 91..) = context.reserve_percent {
            return refuse("agent.context.reserve_percent", format!("{percent} is more than 90"));
        }
        self.workers.check()?;
        self.results.check()
    }
}

impl ResultsConfig {
    fn check(&self) -> Result<(), ConfigError> {
        check_sizes("agent.results", self.max_bytes, self.tail_bytes)?;
        for (tool, result) in &self.tools {
            let field = format!("agent.results.tools.\"{tool}\"");
            let refuse = |problem: String| Err(ConfigError::Value { field: field.clone(), problem });
            let name = tool.strip_suffix('*').unwrap_or(tool);
            if name.contains('*') {
                return refuse("a `*` stands at the end or nowhere".to_owned());
            }
            if !name.contains('/') && !tool.ends_with('*') {
                return refuse("it is not `plugin/tool`, such as `weather/get_weather`".to_owned());
            }
            if result.max_bytes == Some(0) {
                return refuse("`max_bytes` must not be zero".to_owned());
            }
            if let Some(pointer) = result.pointer.as_deref().filter(|pointer| !pointer.is_empty() && !pointer.starts_with('/')) {
                return refuse(format!("`{pointer}` is not a JSON pointer; it begins with `/`"));
            }
            check_sizes(&field, result.max_bytes.or(self.max_bytes), result.tail_bytes)?;
        }
        Ok(())
    }
}

fn check_sizes(field: &str, max_bytes: Option<usize>, tail_bytes: Option<usize>) -> Result<(), ConfigError> {
    match (max_bytes, tail_bytes) {
        (Some(max), Some(tail)) if tail > max => Err(ConfigError::Value {
            field: field.to_owned(),
            problem: format!("`tail_bytes` is {tail} and `max_bytes` {max}, of which the tail is a part"),
        }),
        _ => Ok(()),
    }
}
