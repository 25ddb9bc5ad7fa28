//! Some of the tools of another set: what a worker gets.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::message::{ToolCall, ToolStatus};
use crate::text;
use crate::tool::{BoxFuture, CallContext, Check, ErrorCode, Failure, Question, ToolOutcome, ToolSpec, Tools};

/// Part of a set of tools, whose calls count as calls of one run.
///
/// It can only take away: what it lets through is still checked and decided by the tools behind it. Those know its calls as calls of
/// the run that it was made for, with ids such as `WORKER-RUN/call_1`: several workers share a limit such as `max_calls` with their
/// parent, so that splitting a task does not multiply it, and an audit tells their calls apart.
///
/// ```
/// use std::sync::Arc;
/// use honeycomb_host::agent::Subset;
/// use honeycomb_host::tool::Tools;
///
/// fn reading_only(tools: Arc<dyn Tools>, run_id: &str, worker_run_id: &str) -> Subset {
///     Subset::new(tools, run_id, worker_run_id).only(["files__read_file", "files__list_files"])
/// }
/// ```
pub struct Subset {
    inner: Arc<dyn Tools>,
    counts_as: String,
    worker_run_id: String,
    names: Option<BTreeSet<String>>,
}

impl Subset {
    /// All tools of a set, for the run `worker_run_id`, counted as calls of `counts_as`.
    pub fn new(inner: Arc<dyn Tools>, counts_as: impl Into<String>, worker_run_id: impl Into<String>) -> Self {
        Self { inner, counts_as: counts_as.into(), worker_run_id: worker_run_id.into(), names: None }
    }

    /// Keeps only tools with these model-visible names.
    #[must_use]
    pub fn only<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        let names: BTreeSet<String> = names.into_iter().map(Into::into).collect();
        self.names = Some(match self.names {
            Some(kept) => kept.intersection(&names).cloned().collect(),
            None => names,
        });
        self
    }

    fn has(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(name))
    }

    fn id(&self, call_id: &str) -> String {
        format!("{}/{call_id}", self.worker_run_id)
    }

    fn known_as(&self, call: &ToolCall) -> ToolCall {
        ToolCall { id: self.id(&call.id), ..call.clone() }
    }

    fn refuse(&self, call: &ToolCall) -> Option<Box<ToolOutcome>> {
        if self.has(&call.name) {
            return None;
        }
        let name = text::clean_line(&call.name, 100);
        if self.inner.specs().iter().any(|spec| spec.name == call.name) {
            let failure = Failure::new(ErrorCode::POLICY_DENIED, format!("this worker was not given the tool `{name}`"))
                .hint("do without it, and say in the report what is missing");
            return Some(Box::new(ToolOutcome::refused(ToolStatus::Denied, failure)));
        }
        // A tool that is unknown, or that the policy denies, is called that.
        if let Check::Refused(outcome) = self.inner.check(&self.counts_as, &self.known_as(call)) {
            return Some(outcome);
        }
        let failure = Failure::new(ErrorCode::TOOL_UNKNOWN, format!("there is no tool `{name}`"));
        Some(Box::new(ToolOutcome::refused(ToolStatus::Error, failure)))
    }
}

impl Tools for Subset {
    fn specs(&self) -> Arc<[ToolSpec]> {
        let specs = self.inner.specs();
        if specs.iter().all(|spec| self.has(&spec.name)) {
            return specs;
        }
        specs.iter().filter(|spec| self.has(&spec.name)).cloned().collect()
    }

    fn check(&self, _run_id: &str, call: &ToolCall) -> Check {
        self.refuse(call).map_or_else(|| self.inner.check(&self.counts_as, &self.known_as(call)), Check::Refused)
    }

    fn call<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolOutcome> {
        if let Some(outcome) = self.refuse(call) {
            return Box::pin(std::future::ready(*outcome));
        }
        Box::pin(async move {
            let call = self.known_as(call);
            self.inner.call(&call, CallContext { run_id: self.counts_as.clone(), ..context }).await
        })
    }

    fn declined(&self, _run_id: &str, call_id: &str, question: &Question) {
        self.inner.declined(&self.counts_as, &self.id(call_id), question);
    }

    fn generation(&self) -> u64 {
        self.inner.generation()
    }

    /// Does nothing: the counts belong to the run that the calls count as, and it goes on.
    fn end_run(&self, _run_id: &str) {}
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::agent::testing::{Act, FakeTools, outcome};
    use crate::tool::Conversation;

    fn call(name: &str) -> ToolCall {
        ToolCall { id: "1".into(), provider_id: None, name: name.into(), arguments: "{}".into() }
    }

    fn context() -> CallContext {
        CallContext {
            run_id: "worker".into(),
            idempotency_key: "k".into(),
            attempt: 1,
            conversation: Conversation::default(),
            approval: None,
            cancel: CancellationToken::new(),
            progress: None,
            log: None,
        }
    }

    #[tokio::test]
    async fn offers_checks_and_runs_only_its_tools() {
        let tools = FakeTools::echo();
        let subset = Subset::new(tools.clone(), "parent", "w").only(["a__read", "a__ask", "a__deny", "no_such"]);
        let names: Vec<String> = subset.specs().iter().map(|spec| spec.name.clone()).collect();
        assert_eq!(names, ["a__read", "a__ask", "a__deny"]);
        assert!(matches!(subset.check("w", &call("a__read")), Check::Ready));
        assert!(matches!(subset.check("w", &call("a__ask")), Check::Ask(_)), "asking is not skipped");
        assert!(matches!(subset.check("w", &call("a__deny")), Check::Refused(_)), "a denial holds");
        assert!(matches!(subset.check("w", &call("a__write")), Check::Refused(_)));
        let refused = subset.call(&call("a__write"), context()).await;
        assert_eq!(refused.status, ToolStatus::Denied);
        assert_eq!(tools.log(), Vec::<String>::new(), "nothing ran");
        assert_eq!(subset.call(&call("a__read"), context()).await.status, ToolStatus::Ok);
    }

    #[tokio::test]
    async fn a_subset_of_a_subset_only_shrinks() {
        let subset = Subset::new(FakeTools::echo(), "parent", "w").only(["a__read"]).only(["a__read", "a__write"]);
        assert_eq!(subset.specs().len(), 1);
        let nested = Subset::new(Arc::new(subset), "worker", "v").only(["a__write"]);
        assert_eq!(nested.specs().len(), 0);
        assert_eq!(nested.call(&call("a__write"), context()).await.status, ToolStatus::Denied);
    }

    #[tokio::test]
    async fn calls_count_as_those_of_the_run_it_was_made_for_and_stay_counted() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let tools = FakeTools::new({
            let seen = seen.clone();
            move |call, context| {
                seen.lock().expect("lock").push(format!("{} {}", context.run_id, call.id));
                Act::Give(outcome("x"))
            }
        });
        let outer = Arc::new(Subset::new(tools, "parent", "w"));
        let inner = Subset::new(outer.clone(), "worker", "v");
        outer.call(&call("a__read"), context()).await;
        inner.call(&call("a__read"), context()).await;
        inner.end_run("worker");
        assert_eq!(*seen.lock().expect("lock"), ["parent w/1", "parent w/v/1"]);
    }
}
