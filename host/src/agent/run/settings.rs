//! What a run is started with; it travels with the run.

use serde::{Deserialize, Serialize};

use crate::agent::budget::Budget;
use crate::agent::context::ContextSettings;
use crate::agent::context::display::DisplaySettings;
use crate::agent::history::WireRules;
use crate::agent::loop_guard::LoopSettings;
use crate::provider::price::Price;

/// How a run behaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSettings {
    /// The system prompt, as it is sent.
    pub system: String,
    /// Names the session that the run belongs to, if there is one.
    pub session: Option<String>,
    /// What the run may use.
    pub budget: Budget,
    /// What tokens cost; none counts no money.
    pub price: Option<Price>,
    /// How the conversation is made to fit the model's window.
    pub context: ContextSettings,
    /// How tool results are shown to the model.
    pub display: DisplaySettings,
    /// When equal calls count as a loop.
    pub loop_guard: LoopSettings,
    /// What the provider demands of a history.
    pub wire: WireRules,
    /// How often in a row a model that says nothing is asked again.
    pub max_nudges: u32,
    /// Turns in a row without a single usable call, after which the run ends.
    pub max_invalid_turns: u32,
    /// The most calls of one turn; others of that turn are not executed.
    pub max_calls_per_turn: usize,
    /// The tools whose results had been read by whoever wrote the task: a worker's parent. What they say may stand in the task.
    pub tools_read: Vec<String>,
    /// How many levels of workers may be below this run; 0 may start none. A runner with workers sets it.
    pub worker_depth: u32,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            system: String::new(),
            session: None,
            budget: Budget::default(),
            price: None,
            context: ContextSettings::default(),
            display: DisplaySettings::default(),
            loop_guard: LoopSettings::default(),
            wire: WireRules::default(),
            max_nudges: 2,
            max_invalid_turns: 3,
            max_calls_per_turn: 32,
            tools_read: Vec::new(),
            worker_depth: 0,
        }
    }
}
