//! Who is asked when the policy says `ask`.
//!
//! An [`Approval`] is made here and nowhere else: nothing that a model or a guest can reach answers a question.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::tool::{Approval, BoxFuture, Question};

/// Answers the questions that a policy's `ask` rules raise.
pub trait Approver: Send + Sync {
    /// Asks whether a call may run. Whoever cannot answer, answers [`Approval::No`].
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Approval>;
}

/// Refuses every question: what `ask` means where nobody can be asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct DenyAll;

impl Approver for DenyAll {
    fn ask<'a>(&'a self, _question: &'a Question) -> BoxFuture<'a, Approval> {
        Box::pin(std::future::ready(Approval::No))
    }
}

/// Gives prepared answers in order, then refuses; for tests and demonstrations.
#[derive(Debug, Default)]
pub struct Scripted {
    state: Mutex<ScriptedState>,
}

#[derive(Debug, Default)]
struct ScriptedState {
    answers: VecDeque<Approval>,
    asked: Vec<Question>,
}

impl Scripted {
    /// Prepares the answers.
    pub fn new(answers: impl IntoIterator<Item = Approval>) -> Self {
        Self { state: Mutex::new(ScriptedState { answers: answers.into_iter().collect(), asked: Vec::new() }) }
    }

    /// The questions asked so far, in order.
    pub fn asked(&self) -> Vec<Question> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).asked.clone()
    }
}

impl Approver for Scripted {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Approval> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.asked.push(question.clone());
        let answer = state.answers.pop_front().unwrap_or(Approval::No);
        Box::pin(std::future::ready(answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::ToolHints;

    fn question() -> Question {
        Question {
            plugin: "files".into(),
            tool: "write".into(),
            arguments: serde_json::json!({"path": "/data/报告.txt"}),
            rule: "policy.toml:7".into(),
            rule_id: String::new(),
            sha256: String::new(),
            hints: ToolHints::default(),
        }
    }

    #[tokio::test]
    async fn nobody_to_ask_is_a_refusal() {
        assert_eq!(DenyAll.ask(&question()).await, Approval::No);
    }

    #[tokio::test]
    async fn a_script_that_ran_out_refuses() {
        let approver = Scripted::new([Approval::Once]);
        assert_eq!(approver.ask(&question()).await, Approval::Once);
        assert_eq!(approver.ask(&question()).await, Approval::No);
        assert_eq!(approver.asked().len(), 2);
    }
}
