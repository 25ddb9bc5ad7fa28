//! What can be asked about a run.

use std::collections::BTreeSet;

use super::calls;
use super::{Phase, Run, RunSettings, State};
use crate::agent::stop::{RunResult, RunUsage};
use crate::message::{Message, Part, ToolStatus};
use crate::tool::Conversation;

impl Run {
    /// The run's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The run that started this one.
    pub fn parent_id(&self) -> Option<&str> {
        self.parent_id.as_deref()
    }

    /// The message that holds the task.
    pub fn task(&self) -> Option<&Message> {
        self.messages.get(self.task)
    }

    /// The model that was last asked.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The settings.
    pub fn settings(&self) -> &RunSettings {
        &self.settings
    }

    /// The whole conversation, as it happened.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Where the run's calls come from: its session, and the tools whose results the model has read.
    pub fn conversation(&self) -> Conversation {
        let mut read: BTreeSet<String> = self.settings.tools_read.iter().cloned().collect();
        for part in self.messages.iter().flat_map(|message| &message.parts) {
            if let Part::ToolResult(result) = part
                && matches!(result.status, ToolStatus::Ok | ToolStatus::Error)
            {
                read.insert(result.name.clone());
            }
        }
        Conversation { session_id: self.settings.session.clone(), tools_read: read.into_iter().collect() }
    }

    /// What was used so far.
    pub fn usage(&self) -> RunUsage {
        self.usage
    }

    /// The result, once the run is over.
    pub fn result(&self) -> Option<&RunResult> {
        if let State::Finished { result } = &self.state { Some(result) } else { None }
    }

    /// What the run is doing.
    pub fn phase(&self) -> Phase {
        match &self.state {
            State::Think => Phase::Think,
            State::Act { slots } if calls::all_done(slots) => Phase::Observe,
            State::Act { .. } => Phase::Action,
            State::Finished { .. } => Phase::Finish,
        }
    }

    /// How much longer the run may take, in milliseconds.
    pub fn remaining_ms(&self) -> Option<u64> {
        self.settings.budget.max_wall_ms.map(|limit| limit.saturating_sub(self.usage.wall_ms))
    }
}
