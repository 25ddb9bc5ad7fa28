//! `[agent.workers]`: parts of a task that run side by side.

use serde::Deserialize;

use super::{ConfigError, refuse_zero};

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

impl WorkersConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        refuse_zero(&[
            ("agent.workers.max_depth", self.max_depth == Some(0)),
            ("agent.workers.max_per_call", self.max_per_call == Some(0)),
            ("agent.workers.max_per_run", self.max_per_run == Some(0)),
            ("agent.workers.max_parallel", self.max_parallel == Some(0)),
            ("agent.workers.max_seconds", self.max_seconds == Some(0)),
            ("agent.workers.max_report_bytes", self.max_report_bytes == Some(0)),
        ])?;
        match self.reserve_percent.filter(|percent| !(1..=90).contains(percent)) {
            None => Ok(()),
            Some(percent) => Err(ConfigError::Value {
                field: "agent.workers.reserve_percent".to_owned(),
                problem: format!("{percent} is not from 1 to 90"),
            }),
        }
    }
}
