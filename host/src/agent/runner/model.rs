//! Asking the model, with the hooks around it.

use std::time::Duration;

use super::{Drive, guarded, info};
use crate::agent::event::{EventKind, Interruption};
use crate::agent::hook::{AfterModel, BeforeModel, OnCompaction, RunInfo, stop_failure};
use crate::agent::run::Run;
use crate::message::{FinishReason, ModelTurn, Part, TokenUsage};
use crate::provider::{ModelRequest, ProviderError, ProviderErrorClass};
use crate::tool::Failure;

/// What came of asking.
enum Asked {
    Answer(Result<ModelTurn, ProviderError>),
    /// A hook ends the run.
    Stop(Failure),
}

impl Drive<'_> {
    pub(super) async fn call_model(&self, run: &mut Run, request: ModelRequest) {
        let info = info(run);
        match self.wait(run.remaining_ms(), self.ask(&info, request)).await {
            Ok(Asked::Answer(answer)) => run.on_model(answer, self.now()),
            Ok(Asked::Stop(failure)) => self.hook_stop(run, failure),
            Err(halt) => self.halt(run, &halt),
        }
    }

    async fn ask(&self, info: &RunInfo, mut request: ModelRequest) -> Asked {
        let mut skipped = None;
        for hook in &self.runner.hooks {
            match guarded(async { hook.before_model(info, &request).await }).await {
                Some(BeforeModel::Continue) => {}
                Some(BeforeModel::Patch(patched)) => request = *patched,
                Some(BeforeModel::Skip(turn)) => {
                    skipped = Some(*turn);
                    break;
                }
                Some(BeforeModel::Stop(reason)) => return Asked::Stop(stop_failure(hook.name(), &reason)),
                None => self.hook_failed(hook.as_ref(), "before_model"),
            }
        }
        let mut turn = match skipped {
            Some(turn) => turn,
            None => match self.stream(&request).await {
                Ok(turn) => turn,
                Err(error) => return Asked::Answer(Err(error)),
            },
        };
        for hook in &self.runner.hooks {
            match guarded(async { hook.after_model(info, &turn).await }).await {
                Some(AfterModel::Continue) => {}
                Some(AfterModel::Patch(patched)) => turn = ModelTurn { usage: turn.usage, ..*patched },
                Some(AfterModel::Stop(reason)) => return Asked::Stop(stop_failure(hook.name(), &reason)),
                None => self.hook_failed(hook.as_ref(), "after_model"),
            }
        }
        Asked::Answer(Ok(turn))
    }

    /// Asks, and tells of the answer while it comes.
    async fn stream(&self, request: &ModelRequest) -> Result<ModelTurn, ProviderError> {
        let mut events = |event| self.emitter.model_event(event);
        let cancel = self.cancel.child_token();
        let _stop_on_drop = cancel.clone().drop_guard();
        let turn = guarded(async { self.runner.provider.complete(request, &mut events, cancel).await });
        tokio::pin!(turn);
        let pause = Duration::from_millis(self.runner.settings.join_deltas_ms.max(1));
        let turn = loop {
            tokio::select! {
                biased;
                turn = &mut turn => break turn,
                // What the model wrote last must be seen even if it then pauses.
                () = tokio::time::sleep(pause) => self.emitter.flush(),
            }
        };
        turn.unwrap_or_else(|| Err(panicked()))
    }

    /// Asks for a summary. Whatever goes wrong, the run goes on without one.
    pub(super) async fn summarise(&self, run: &mut Run, mut request: ModelRequest) {
        let info = info(run);
        let timeout = run.settings().context.summary_timeout_ms;
        let asked = async {
            for hook in &self.runner.hooks {
                match guarded(async { hook.on_compaction(&info, &request).await }).await {
                    Some(OnCompaction::Continue) => {}
                    Some(OnCompaction::Patch(patched)) => request = *patched,
                    Some(OnCompaction::Skip(summary)) => return Asked::Answer(Ok(text_turn(summary))),
                    Some(OnCompaction::Stop(reason)) => return Asked::Stop(stop_failure(hook.name(), &reason)),
                    None => self.hook_failed(hook.as_ref(), "on_compaction"),
                }
            }
            let cancel = self.cancel.child_token();
            let _stop_on_drop = cancel.clone().drop_guard();
            // Nobody reads along with a summary.
            let mut events = |_| {};
            let answer = guarded(async { self.runner.provider.complete(&request, &mut events, cancel).await });
            // A provider that asks to wait must not hold up the run.
            let answer = tokio::select! {
                biased;
                answer = answer => answer.unwrap_or_else(|| Err(panicked())),
                () = self.runner.clock.sleep(timeout) => {
                    self.emitter.interrupted(Interruption::SummaryTimedOut);
                    Err(too_slow(timeout))
                }
            };
            Asked::Answer(answer)
        };
        match self.wait(run.remaining_ms(), asked).await {
            Ok(Asked::Answer(answer)) => {
                if let Err(error) = &answer {
                    let error = Failure::new(crate::tool::ErrorCode::provider(error.class.as_str()), error.message.clone());
                    self.emitter.emit(EventKind::ModelFailed { error });
                }
                run.on_summary(answer, self.now());
            }
            Ok(Asked::Stop(failure)) => self.hook_stop(run, failure),
            Err(halt) => self.halt(run, &halt),
        }
    }
}

fn text_turn(text: String) -> ModelTurn {
    ModelTurn { parts: vec![Part::text(text)], finish_reason: FinishReason::Stop, usage: TokenUsage::default() }
}

fn panicked() -> ProviderError {
    ProviderError::new(ProviderErrorClass::BadResponse, "the provider's adapter failed")
        .hint("this is a fault of the host; please report it")
}

fn too_slow(timeout_ms: u64) -> ProviderError {
    let message = format!("there was no summary within {} s; a list of what was done stands for it", timeout_ms as f64 / 1000.0);
    ProviderError::new(ProviderErrorClass::Timeout, message)
}
