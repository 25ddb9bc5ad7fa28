//! Workers: parts of a task that run side by side, each in a run of its own, with a share of what its parent has left.
//!
//! A worker never has more rights than its parent. It calls the same [`Tools`](crate::tool::Tools) through a [`Subset`](subset::Subset), so policy and
//! sandbox are the same; its calls count against limits such as `max_calls` as if its parent had made them; the same hooks and the same
//! person are asked; and a person's "for this run" holds for the run it was given in, not for its parent, its workers or their
//! siblings. What a worker uses is used by its parent.
//!
//! Workers run in tasks of their own, which live no longer than the call that started them.
//!
//! [`Runner::with_workers`](super::Runner::with_workers) offers them to the model as the tool `delegate`;
//! [`Runner::delegate`](super::Runner::delegate) starts them from code.

mod aggregate;
pub(super) mod delegate;
mod pool;
pub(super) mod subset;
pub(super) mod supervise;

use serde::{Deserialize, Serialize};

use super::stop::{RunUsage, StopReason};
use crate::text;
use crate::tool::{ErrorCode, Failure};

pub(super) use pool::Ledger;

/// A name in an error is not shown longer than this, in bytes.
const MAX_NAME: usize = 100;
/// The tools that an error lists are not shown longer than this, in bytes.
const MAX_NAMES: usize = 2 * 1024;

/// How workers are run. How many a run may start in all is part of its [`Budget`](super::Budget).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WorkerSettings {
    /// Levels of workers below the first run; 1 means that workers cannot delegate.
    pub max_depth: u32,
    /// The most subtasks of one call.
    pub max_per_call: usize,
    /// Workers of one call that run at once; others wait.
    pub max_parallel: usize,
    /// The longest time of one worker, in milliseconds. It never gets more than its parent has left.
    pub max_wall_ms: Option<u64>,
    /// The percentage of what is left that the parent keeps to act on the reports, and of its share that each worker keeps to write
    /// its own. From 1 to 90.
    pub reserve_percent: u32,
    /// The longest report that the parent is shown, in bytes.
    pub max_report_bytes: usize,
}

impl Default for WorkerSettings {
    /// Eight subtasks a call, four at once, ten minutes each, a fifth kept to report, 4 KiB a report.
    fn default() -> Self {
        Self {
            max_depth: 1,
            max_per_call: 8,
            max_parallel: 4,
            max_wall_ms: Some(600_000),
            reserve_percent: 20,
            max_report_bytes: 4 * 1024,
        }
    }
}

/// What workers are to do.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delegation {
    /// One for each worker.
    pub subtasks: Vec<Subtask>,
    /// What is made of their reports.
    #[serde(default)]
    pub aggregation: Aggregation,
}

/// What one worker is to do.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subtask {
    /// The task, as the worker reads it. It knows nothing else of the conversation.
    pub task: String,
    /// Model-visible names of the tools that it gets, out of its parent's; none means all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
}

/// What is made of the workers' reports.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// All of them.
    #[default]
    Collect,
    /// The first that is complete; the other workers are stopped.
    FirstSuccess,
    /// The answer that more workers gave than any other; differences in case, spaces and closing punctuation do not count.
    Vote,
    /// One text, written by the model from all reports.
    Merge,
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerStatus {
    /// It did its task.
    Done,
    /// A limit ended it; it reported how far it came.
    Incomplete,
    /// It failed, or refused.
    Failed,
    /// It was stopped, or its time was up, before it could report.
    Interrupted,
    /// It was not started any more.
    NotStarted,
}

/// What became of one worker. Each ends exactly once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerOutcome {
    /// Counts from 1, in the order of the subtasks.
    pub worker: usize,
    /// Its run, which is a session of its own; none if it was not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// How it ended.
    pub status: WorkerStatus,
    /// Why its run ended; none if there was none, or if it had to be dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// Its answer, or else the last text it wrote: bounded and cleaned. As untrusted as what any tool returns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// What it used, its own workers included.
    pub usage: RunUsage,
}

/// What came of a [`Delegation`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TeamReport {
    /// What was made of the reports.
    pub aggregation: Aggregation,
    /// The first complete report, the answer that won the vote, or the merged text. None for `collect`, and where there is no such thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// How many workers gave `answer`, for a vote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub votes: Option<usize>,
    /// One for each subtask, in their order.
    pub workers: Vec<WorkerOutcome>,
}

/// Why no worker was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DelegateError {
    /// There is nothing to do.
    #[error("there are no subtasks")]
    NoSubtasks,
    /// More subtasks than one call may have.
    #[error("{count} subtasks are too many for one call: {max} may be given")]
    TooMany {
        /// The number of subtasks.
        count: usize,
        /// The most that may be given.
        max: usize,
    },
    /// A subtask without a text.
    #[error("subtask {worker} has no `task`")]
    EmptyTask {
        /// Which one, counted from 1.
        worker: usize,
    },
    /// A subtask names a tool that its parent does not have.
    #[error("subtask {worker} names `{tool}`, which is not one of your tools")]
    UnknownTool {
        /// Which one, counted from 1.
        worker: usize,
        /// The name.
        tool: String,
        /// The names that there are.
        known: String,
    },
    /// The run may not start that many.
    #[error("{wanted} workers are too many: the run's budget `workers` has {left} left")]
    WorkersUsedUp {
        /// How many were to be started.
        wanted: u32,
        /// How many may be.
        left: u32,
    },
    /// A share of what is left would be too small to work with.
    #[error("the run's budget `{name}` has {left} left, too little to share among {workers} workers")]
    Budget {
        /// The limit.
        name: &'static str,
        /// What is left of it.
        left: u64,
        /// Among how many it was to be shared.
        workers: u32,
    },
}

impl DelegateError {
    /// The failure as the model reads it.
    pub fn failure(&self) -> Failure {
        let (code, hint) = match self {
            Self::NoSubtasks | Self::EmptyTask { .. } => {
                (ErrorCode::ARGS_INVALID, "give each subtask a `task` that says all its worker needs to know".to_owned())
            }
            Self::TooMany { .. } => (ErrorCode::ARGS_INVALID, "give fewer, larger subtasks".to_owned()),
            Self::UnknownTool { known, .. } => (ErrorCode::ARGS_INVALID, format!("your tools are: {known}")),
            Self::WorkersUsedUp { .. } | Self::Budget { .. } => {
                (ErrorCode::LIMIT_RUN, "use fewer workers, or do the rest yourself".to_owned())
            }
        };
        Failure::new(code, self.to_string()).hint(hint)
    }
}

impl Delegation {
    /// Says what is wrong with it, whatever is left of the run's budget. `tools` are the names of those that the parent has.
    pub(crate) fn check<'t>(
        &self,
        tools: impl Iterator<Item = &'t str> + Clone,
        settings: &WorkerSettings,
    ) -> Result<(), DelegateError> {
        if self.subtasks.is_empty() {
            return Err(DelegateError::NoSubtasks);
        }
        let (count, max) = (self.subtasks.len(), settings.max_per_call);
        if count > max {
            return Err(DelegateError::TooMany { count, max });
        }
        for (worker, subtask) in (1..).zip(&self.subtasks) {
            if subtask.task.trim().is_empty() {
                return Err(DelegateError::EmptyTask { worker });
            }
            let unknown = subtask.tools.iter().flatten().find(|name| !tools.clone().any(|tool| tool == name.as_str()));
            if let Some(name) = unknown {
                let known = text::clean_line(&tools.collect::<Vec<_>>().join(", "), MAX_NAMES);
                return Err(DelegateError::UnknownTool { worker, tool: text::clean_line(name, MAX_NAME), known });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
