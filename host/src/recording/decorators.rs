//! What stands between a run and its model, tools and people while it is recorded.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::format::Entry;
use super::writer::Shared;
use crate::approval::Approver;
use crate::message::{ModelTurn, ToolCall, ToolStatus};
use crate::provider::{ModelEvent, ModelRequest, Provider, ProviderError, ProviderErrorClass};
use crate::tool::{
    Approval, BoxFuture, CallContext, Check, ErrorCode, Failure, ProgressSink, Question, ToolOutcome, ToolSpec, Tools,
};

pub(super) struct RecordingProvider {
    pub(super) inner: Arc<dyn Provider>,
    pub(super) shared: Arc<Shared>,
}

impl Provider for RecordingProvider {
    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        events: &'a mut (dyn FnMut(ModelEvent) + Send),
        cancel: CancellationToken,
    ) -> BoxFuture<'a, Result<ModelTurn, ProviderError>> {
        Box::pin(async move {
            let mut timed = |event| {
                self.shared.advance();
                events(event);
            };
            let answer = async { self.inner.complete(request, &mut timed, cancel).await };
            // A panic ends here and not in the run, so that what the run gets is what stands in the file.
            let answer =
                AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|_| Err(fault("the provider's adapter failed")));
            let recorded = self.shared.as_recorded(&super::format::Answer::from(answer));
            let answer = recorded.unwrap_or_else(|| Err(fault("the answer cannot be recorded")).into());
            self.shared.input(Entry::Model { answer: answer.clone() });
            answer.into()
        })
    }

    fn model(&self) -> &str {
        self.inner.model()
    }
}

fn fault(message: &str) -> ProviderError {
    ProviderError {
        class: ProviderErrorClass::BadResponse,
        message: message.to_owned(),
        hint: None,
        status: None,
        retry_after: None,
        response_started: false,
    }
}

pub(super) struct RecordingTools {
    pub(super) inner: Arc<dyn Tools>,
    pub(super) shared: Arc<Shared>,
}

impl Tools for RecordingTools {
    fn specs(&self) -> Arc<[ToolSpec]> {
        let specs = self.inner.specs();
        self.shared.offered(&specs);
        specs
    }

    fn check(&self, run_id: &str, call: &ToolCall) -> Check {
        let check = catch_unwind(AssertUnwindSafe(|| self.inner.check(run_id, call)))
            .unwrap_or_else(|_| Check::Refused(Box::new(host_fault("the check of this call failed", ToolStatus::NotExecuted))));
        let recorded = self.shared.as_recorded(&super::format::Found::from(check));
        let found = recorded.unwrap_or_else(|| {
            let outcome = host_fault("the check of this call cannot be recorded", ToolStatus::NotExecuted);
            super::format::Found::Refused(Box::new(outcome))
        });
        self.shared.input(Entry::Check { call: call.clone(), found: found.clone() });
        found.into()
    }

    fn call<'a>(&'a self, call: &'a ToolCall, mut context: CallContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let attempt = context.attempt;
            context.progress = context.progress.take().map(|sink| timed(sink, self.shared.clone()));
            let outcome = AssertUnwindSafe(async { self.inner.call(call, context).await }).catch_unwind().await;
            let outcome =
                outcome.unwrap_or_else(|_| host_fault("the host failed while running this call", ToolStatus::Interrupted));
            let outcome = self
                .shared
                .as_recorded(&outcome)
                .unwrap_or_else(|| host_fault("the result of this call cannot be recorded", ToolStatus::Error));
            self.shared.input(Entry::Outcome { call: call.clone(), attempt, outcome: Box::new(outcome.clone()) });
            outcome
        })
    }

    fn declined(&self, run_id: &str, call_id: &str, question: &Question) {
        self.inner.declined(run_id, call_id, question);
    }

    fn generation(&self) -> u64 {
        let generation = self.inner.generation();
        self.shared.generation(generation);
        generation
    }

    fn end_run(&self, run_id: &str) {
        self.inner.end_run(run_id);
    }
}

fn timed(sink: ProgressSink, shared: Arc<Shared>) -> ProgressSink {
    Arc::new(move |progress| {
        shared.advance();
        sink(progress);
    })
}

fn host_fault(message: &str, status: ToolStatus) -> ToolOutcome {
    ToolOutcome::refused(status, Failure::new(ErrorCode::HOST_INTERNAL, message))
}

pub(super) struct RecordingApprover {
    pub(super) inner: Arc<dyn Approver>,
    pub(super) shared: Arc<Shared>,
}

impl Approver for RecordingApprover {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Approval> {
        Box::pin(async move {
            let asked = AssertUnwindSafe(async { self.inner.ask(question).await }).catch_unwind().await;
            let approval = asked.unwrap_or(Approval::No);
            self.shared.input(Entry::Approval { question: Box::new(question.clone()), approval });
            approval
        })
    }
}
