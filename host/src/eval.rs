//! Evals: scenarios that say what an agent is asked, what it meets, what must come of it and what must not.
//!
//! A [`Scenario`] is a TOML file. Its world is made anew for each attempt: a directory of files, a web server on loopback, the plugins, a
//! policy. Its model is a script, which may obey what it reads in a tool's result as a gullible model would: then what is tested is
//! that the host stops the harm. The tools, the sandbox and the policy are real. `evals/README.md` describes the format.

mod attempt;
mod glob;
mod judge;
mod observe;
mod report;
mod scenario;
mod server;
mod template;
mod world;

use std::path::PathBuf;
use std::sync::Arc;

pub use attempt::{Attempt, run_attempt};
pub use glob::matches;
pub use report::{Report, ScenarioReport, junit, table};
pub use scenario::{Scenario, ScenarioError};

use crate::provider::Provider;

/// What scenarios run with.
pub struct EvalHost {
    /// The plugins that scenarios name.
    pub plugins: PathBuf,
    /// The program that compiles plugins in a child process.
    pub compiler: PathBuf,
    /// Where compiled plugins are kept.
    pub cache_dir: Option<PathBuf>,
    /// The model of scenarios that ask for a real one.
    pub model: Option<Arc<dyn Provider>>,
}
