//! The agent: a loop of think, act and observe that always ends, and says why.
//!
//! [`Run`] decides and does no I/O; [`Runner`] does what it asks for. The agent sees tools through [`Tools`](crate::tool::Tools), a model
//! through [`Provider`](crate::provider::Provider), and a person through [`Approver`](crate::approval::Approver), and knows nothing of
//! policy, sandbox, or any provider's wire format.

pub mod bench;
mod budget;
mod clock;
mod context;
mod event;
mod history;
mod hook;
mod loop_guard;
mod prompt;
mod run;
mod runner;
mod stop;
mod workers;

pub use crate::provider::price::Price;
pub use budget::Budget;
pub use clock::{Clock, FixedClock, SystemClock};
pub use context::ContextSettings;
pub use context::display::{DisplaySettings, ResultDisplay};
pub use event::{Event, EventKind, EventReceiver, Interruption, Observer, ToolCompleted, Verdict, channel};
pub use history::{ReasoningReplay, WireRules, is_wire_name, normalise, normalise_tools, validate_history};
#[doc(hidden)]
pub use history::{fuzz_arguments, fuzz_normalise};
pub use hook::{AfterModel, AfterTool, BeforeModel, BeforeTool, Hook, OnCompaction, OnStop, RunInfo};
pub use loop_guard::LoopSettings;
pub use prompt::{DEFAULT_PROMPT, PromptError, PromptVariables, SystemPrompt};
pub use run::{
    CheckedCall, PendingApproval, PendingCall, Phase, Run, RunError, RunParts, RunSettings, SCHEMA_VERSION, Scrub, Step,
    StoredParts,
};
pub use runner::{RunHandle, Runner, RunnerSettings};
pub use stop::{RunResult, RunUsage, StopReason};
pub use workers::delegate::DELEGATE;
pub use workers::subset::Subset;
pub use workers::{Aggregation, DelegateError, Delegation, Subtask, TeamReport, WorkerOutcome, WorkerSettings, WorkerStatus};

#[cfg(test)]
mod testing;
