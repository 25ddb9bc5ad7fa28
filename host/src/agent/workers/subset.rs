//! Some of the tools of another set: what a worker gets.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::message::{ToolCall, ToolStatus};
use crate::text;
use crate::tool::{BoxFuture, CallContext, Check, ErrorCode, Failure, ToolOutcome, ToolSpec, Tools};

/// Part of a set of tools, whose calls count as calls of one run.
///
/// It can only take away: what it lets through is still checked and decided by the tools behind it. Calls are counted under the name of
/// the run that it was made for, so that several workers share a limit such as `max_calls` with their parent, and splitting a task does
/// not multiply it.
///
/// ```
/// use std::sync::Arc;
/// use honeycomb_host::agent::Subset;
/// use honeycomb_host::tool::Tools;
///
/// fn reading_only(tools: Arc<dyn Tools>, run_id: &str) -> Subset {
///     Subset::new(tools, run_id).only(["files__read_file", "files__list_files"])
/// }
/// ```
pub struct Subset {
    inner: Arc<dyn Tools>,
    counts_as: String,
    names: Option<BTreeSet<String>>,
}

impl Subset {
    /// All tools of a set, counted as calls of `run_id`.
    pub fn new(inner: Arc<dyn Tools>, run_id: impl Into<String>) -> Self {
        Self { inner, counts_as: run_id.into(), names: None }
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

    fn refuse(&self, call: &ToolCall) -> Option<Box<ToolOutcome>> {
        if self.has(&call.name) {
            return None;
        }
        // An unknown tool, or one that the policy denies, is called that.
        if let Check::Refused(outcome) = self.inner.check(call) {
            return Some(outcome);
        }
        if !self.inner.specs().iter().any(|spec| spec.name == call.name) {
            let failure =
                Failure::new(ErrorCode::TOOL_UNKNOWN, format!("there is no tool `{}`", text::clean_line(&call.name, 100)));
            return Some(Box::new(ToolOutcome::refused(ToolStatus::Error, failure)));
        }
        let message = format!("this worker was not given the tool `{}`", text::clean_line(&call.name, 100));
        let failure =
            Failure::new(ErrorCode::POLICY_DENIED, message).hint("do without it, and say in the report what is missing");
        Some(Box::new(ToolOutcome::refused(ToolStatus::Denied, failure)))
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

    fn check(&self, call: &ToolCall) -> Check {
        self.refuse(call).map_or_else(|| self.inner.check(call), Check::Refused)
    }

    fn call<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolOutcome> {
        if let Some(outcome) = self.refuse(call) {
            return Box::pin(std::future::ready(*outcome));
        }
        self.inner.call(call, CallContext { run_id: self.counts_as.clone(), ..context })
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

    fn call(name: &str) -> ToolCall {
        ToolCall { id: "1".into(), provider_id: None, name: name.into(), arguments: "{}".into() }
    }

    fn context() -> CallContext {
        CallContext {
            run_id: "worker".into(),
            idempotency_key: "k".into(),
            attempt: 1,
            approval: None,
            cancel: CancellationToken::new(),
            progress: None,
        }
    }

    #[tokio::test]
    async fn offers_checks_and_runs_only_its_tools() {
        let tools = FakeTools::echo();
        let subset = Subset::new(tools.clone(), "parent").only(["a__read", "a__ask", "a__deny", "no_such"]);
        let names: Vec<String> = subset.specs().iter().map(|spec| spec.name.clone()).collect();
        assert_eq!(names, ["a__read", "a__ask", "a__deny"]);
        assert!(matches!(subset.check(&call("a__read")), Check::Ready));
        assert!(matches!(subset.check(&call("a__ask")), Check::Ask(_)), "asking is not skipped");
        assert!(matches!(subset.check(&call("a__deny")), Check::Refused(_)), "a denial holds");
        assert!(matches!(subset.check(&call("a__write")), Check::Refused(_)));
        let refused = subset.call(&call("a__write"), context()).await;
        assert_eq!(refused.status, ToolStatus::Denied);
        assert_eq!(tools.log(), Vec::<String>::new(), "nothing ran");
        assert_eq!(subset.call(&call("a__read"), context()).await.status, ToolStatus::Ok);
    }

    #[tokio::test]
    async fn a_subset_of_a_subset_only_shrinks() {
        let subset = Subset::new(FakeTools::echo(), "parent").only(["a__read"]).only(["a__read", "a__write"]);
        assert_eq!(subset.specs().len(), 1);
        let nested = Subset::new(Arc::new(subset), "worker").only(["a__write"]);
        assert_eq!(nested.specs().len(), 0);
        assert_eq!(nested.call(&call("a__write"), context()).await.status, ToolStatus::Denied);
    }

    #[tokio::test]
    async fn calls_count_as_those_of_the_run_it_was_made_for_and_stay_counted() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let tools = FakeTools::new({
            let seen = seen.clone();
            move |_, context| {
                seen.lock().expect("lock").push(context.run_id.clone());
                Act::Give(outcome("x"))
            }
        });
        let outer = Arc::new(Subset::new(tools, "parent"));
        let inner = Subset::new(outer.clone(), "worker");
        outer.call(&call("a__read"), context()).await;
        inner.call(&call("a__read"), context()).await;
        inner.end_run("worker");
        assert_eq!(*seen.lock().expect("lock"), ["parent", "parent"]);
    }
}
