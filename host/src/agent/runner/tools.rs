//! Checking, asking about and running calls, with the hooks around them.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::delegate::Delegating;
use super::{Drive, Halt, guarded, info};
use crate::agent::hook::{AfterTool, BeforeTool, RunInfo, stop_failure};
use crate::agent::run::{CheckedCall, PendingApproval, PendingCall, Run};
use crate::agent::stop::StopReason;
use crate::agent::workers::supervise::GRACE;
use crate::message::{ToolCall, ToolStatus};
use crate::tool::{Approval, CallContext, Check, Conversation, ErrorCode, Failure, ToolOutcome};

/// How a call ended.
struct Ended {
    call_id: String,
    outcome: ToolOutcome,
    /// A hook ends the run.
    stop: Option<Failure>,
}

/// What the calls of a group share.
struct Group<'a> {
    info: RunInfo,
    /// Stops them.
    cancel: CancellationToken,
    /// Set if one of them may delegate.
    delegating: Option<Delegating>,
    /// How many calls may run now.
    run: Semaphore,
    plugins: HashMap<&'a str, Semaphore>,
}

impl Drive<'_> {
    pub(super) async fn check_calls(&self, run: &mut Run, calls: Vec<ToolCall>) {
        let info = info(run);
        let mut checks = Vec::with_capacity(calls.len());
        for call in calls {
            match self.wait(run.remaining_ms(), self.check_call(&info, call)).await {
                Ok(Ok(check)) => checks.push(check),
                Ok(Err(failure)) => return self.hook_stop(run, failure),
                Err(halt) => return self.halt(run, &halt),
            }
        }
        run.on_checks(checks, self.now());
    }

    async fn check_call(&self, info: &RunInfo, mut call: ToolCall) -> Result<CheckedCall, Failure> {
        let mut arguments = None;
        for hook in &self.runner.hooks {
            let check = match guarded(async { hook.before_tool(info, &call).await }).await {
                Some(BeforeTool::Continue) => continue,
                Some(BeforeTool::Patch(patched)) => {
                    call.arguments.clone_from(&patched);
                    arguments = Some(patched);
                    continue;
                }
                Some(BeforeTool::Skip(outcome)) => Check::Refused(outcome),
                Some(BeforeTool::Stop(reason)) => return Err(stop_failure(hook.name(), &reason)),
                // The hook may be there to refuse this call.
                None => {
                    self.hook_failed(hook.as_ref(), "before_tool");
                    Check::Refused(Box::new(host_fault("not executed: a hook failed", ToolStatus::NotExecuted)))
                }
            };
            return Ok(CheckedCall { call_id: call.id, arguments, check });
        }
        let check = self.check(&info.run_id, &call);
        Ok(CheckedCall { call_id: call.id, arguments, check })
    }

    fn check(&self, run_id: &str, call: &ToolCall) -> Check {
        if let Some(settings) = self.workers.filter(|_| self.is_delegate(call)) {
            return self.check_delegate(call, settings);
        }
        catch_unwind(AssertUnwindSafe(|| self.runner.tools.check(run_id, call)))
            .unwrap_or_else(|_| Check::Refused(Box::new(host_fault("the check of this call failed", ToolStatus::NotExecuted))))
    }

    pub(super) async fn ask_approval(&self, run: &mut Run, questions: Vec<PendingApproval>) {
        for PendingApproval { call_id, question } in questions {
            // Under another policy, the same line may be another rule.
            let key = format!("{}\n{}\n{}", self.runner.tools.generation(), question.plugin, question.rule);
            let remembered = self.runner.approved().get(run.id()).is_some_and(|rules| rules.contains(&key));
            let approval = if remembered {
                Approval::ForRun
            } else {
                let asked = guarded(async { self.runner.approver.ask(&question).await });
                match self.wait(run.remaining_ms(), asked).await {
                    Ok(answer) => answer.unwrap_or(Approval::No),
                    Err(halt) => return self.halt(run, &halt),
                }
            };
            if approval == Approval::ForRun {
                self.runner.approved().entry(run.id().to_owned()).or_default().insert(key);
            }
            if approval == Approval::No {
                self.runner.tools.declined(run.id(), &call_id, &question);
            }
            run.on_approval(&call_id, approval, remembered, self.now());
            self.tell(run);
        }
    }

    /// Runs calls side by side. Their outcomes are taken as they come; the run puts them in order.
    pub(super) async fn call_tools(&self, run: &mut Run, group: Vec<PendingCall>) {
        let ids: Vec<String> = group.iter().map(|pending| pending.call.id.clone()).collect();
        run.on_started(&ids, self.now());
        self.tell(run);
        if let Err(failure) = self.emitter.checkpoint(run).await {
            run.on_not_started(&ids, &failure, self.now());
            return run.stop(StopReason::StorageFailed, failure);
        }
        let conversation = run.conversation();
        let settings = &self.runner.settings;
        let delegates = group.iter().any(|pending| self.is_delegate(&pending.call));
        let shared = Group {
            info: info(run),
            cancel: self.cancel.child_token(),
            delegating: delegates.then(|| Delegating::new(run)),
            run: Semaphore::new(settings.max_parallel.clamp(1, Semaphore::MAX_PERMITS)),
            plugins: group
                .iter()
                .map(|pending| (plugin(&pending.call), settings.max_parallel_per_plugin.clamp(1, Semaphore::MAX_PERMITS)))
                .map(|(plugin, permits)| (plugin, Semaphore::new(permits)))
                .collect(),
        };
        let mut running: FuturesUnordered<_> = group.iter().map(|pending| self.call(&shared, pending, &conversation)).collect();
        let deadline = self.sleep(run.remaining_ms());
        tokio::pin!(deadline);
        loop {
            let ended = tokio::select! {
                biased;
                // First, so that a call that has ended keeps its outcome when the run is cancelled in the same moment.
                ended = running.next() => ended,
                () = self.cancel.cancelled() => {
                    self.wind_up(run, &shared, running).await;
                    return self.halt(run, &Halt::Cancelled);
                }
                () = &mut deadline => {
                    self.wind_up(run, &shared, running).await;
                    return self.halt(run, &Halt::Expired);
                }
            };
            run.count_workers(&self.ledger.take());
            let Some(Ended { call_id, outcome, stop }) = ended else { return };
            run.on_tool(&call_id, &outcome, self.now());
            self.tell(run);
            if let Some(failure) = stop {
                drop(running);
                return self.hook_stop(run, failure);
            }
            // The outcome of the last one is stored with the step.
            if !running.is_empty()
                && let Err(failure) = self.emitter.checkpoint(run).await
            {
                drop(running);
                return run.stop(StopReason::StorageFailed, failure);
            }
        }
    }

    /// Stops calls that are under way. Workers have a moment to hand over what they have; everything else is dropped.
    async fn wind_up(&self, run: &mut Run, group: &Group<'_>, mut running: FuturesUnordered<impl Future<Output = Ended>>) {
        group.cancel.cancel();
        if group.delegating.is_some()
            && let Ok(Some(Ended { call_id, outcome, .. })) = tokio::time::timeout(GRACE * 2, running.next()).await
        {
            run.on_tool(&call_id, &outcome, self.now());
            self.tell(run);
        }
        drop(running);
        run.count_workers(&self.ledger.take());
    }

    async fn call(&self, group: &Group<'_>, pending: &PendingCall, conversation: &Conversation) -> Ended {
        let info = &group.info;
        // Semaphores that are never closed always give a permit.
        let _plugin_permit = match group.plugins.get(plugin(&pending.call)) {
            Some(plugin) => plugin.acquire().await.ok(),
            None => None,
        };
        let _run_permit = group.run.acquire().await.ok();
        let mut call = pending.call.clone();
        let mut attempt = pending.attempt;
        let mut approval = pending.approval;
        let mut idempotency_key = pending.idempotency_key.clone();
        loop {
            let context = CallContext {
                run_id: info.run_id.clone(),
                idempotency_key: idempotency_key.clone(),
                attempt,
                conversation: conversation.clone(),
                approval,
                cancel: group.cancel.child_token(),
                progress: Some(self.progress_sink(&call)),
                log: None,
            };
            let _stop_on_drop = context.cancel.clone().drop_guard();
            let outcome = match (self.workers, &group.delegating) {
                (Some(settings), Some(delegating)) if self.is_delegate(&call) => {
                    guarded(self.delegate(delegating, settings, &call, &context.cancel)).await
                }
                _ => guarded(async { self.runner.tools.call(&call, context).await }).await,
            };
            let mut outcome =
                outcome.unwrap_or_else(|| host_fault("the host failed while running this call", ToolStatus::Interrupted));
            let mut retry = None;
            for hook in &self.runner.hooks {
                match guarded(async { hook.after_tool(info, &call, &outcome).await }).await {
                    Some(AfterTool::Continue) => {}
                    Some(AfterTool::Patch(patched)) => {
                        outcome = ToolOutcome { usage: outcome.usage, denials: outcome.denials, ..*patched };
                    }
                    Some(AfterTool::Retry(arguments)) => {
                        retry = Some(arguments);
                        break;
                    }
                    Some(AfterTool::Stop(reason)) => {
                        let stop = Some(stop_failure(hook.name(), &reason));
                        return Ended { call_id: call.id, outcome, stop };
                    }
                    None => self.hook_failed(hook.as_ref(), "after_tool"),
                }
            }
            let Some(arguments) = retry.filter(|_| attempt < self.runner.settings.max_tool_attempts) else {
                return Ended { call_id: call.id, outcome, stop: None };
            };
            let repeat = ToolCall { arguments, ..call.clone() };
            if !matches!(self.check(&info.run_id, &repeat), Check::Ready) {
                return Ended { call_id: call.id, outcome, stop: None };
            }
            attempt += 1;
            // Other arguments are another request; the same key would make a service answer the old one.
            if repeat.arguments != call.arguments {
                idempotency_key = format!("{}:{attempt}", pending.idempotency_key);
            }
            approval = None;
            call = repeat;
        }
    }

    fn progress_sink(&self, call: &ToolCall) -> crate::tool::ProgressSink {
        let (emitter, call) = (self.emitter.clone(), call.clone());
        std::sync::Arc::new(move |progress| emitter.progress(&call, progress))
    }
}

/// The plugin of a call: what stands before `__` in the name.
fn plugin(call: &ToolCall) -> &str {
    call.name.split_once("__").map_or(call.name.as_str(), |(plugin, _)| plugin)
}

fn host_fault(message: &str, status: ToolStatus) -> ToolOutcome {
    ToolOutcome::refused(status, Failure::new(ErrorCode::HOST_INTERNAL, message))
}
