//! Plugins that are part of the host. They pass the same gate as a component, and nothing but their own code runs.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use serde_json::{Map, Value};

use super::load::Body;
use super::{Admitted, PluginEntry, RegistryError};
use crate::message::ToolStatus;
use crate::policy::{Grants, Policy, Requests};
use crate::sandbox::LoadLimits;
use crate::sandbox::metadata::{RawTool, check_tools};
use crate::tool::{BoxFuture, CallContext, CallUsage, Content, ErrorCode, Failure, ToolOutcome};

/// A plugin that is part of the host.
///
/// The registry finds its tools, validates arguments, asks the policy and a person, and counts calls as for any plugin. Of the policy's
/// limits, `timeout` and `max_output` hold; the others are about guests. It may be granted nothing else: what it does is its own code.
/// What it returns must be cleaned, bounded and free of secrets already.
pub trait Builtin: Send + Sync {
    /// Its id in the policy; no component may have it as well.
    fn id(&self) -> &str;

    /// Its tools, described as a component would; they are checked the same way.
    fn tools(&self) -> Vec<RawTool>;

    /// Runs a tool of its own. `arguments` satisfy the tool's schema.
    fn call<'a>(&'a self, tool: &'a str, arguments: Map<String, Value>, context: &'a CallContext) -> BoxFuture<'a, ToolOutcome>;
}

/// The registry's entry for a built-in plugin.
pub(super) fn entry(builtin: &Arc<dyn Builtin>, policy: &Policy) -> Result<PluginEntry, RegistryError> {
    let id = builtin.id().to_owned();
    let tools = check_tools(builtin.tools(), &LoadLimits::default())
        .map_err(|source| RegistryError::Builtin { id: id.clone(), source })?
        .into();
    let (limits, granted) = match policy.plugin(&id) {
        Some(granted) => (granted.limits.clone(), granted.grants.clone()),
        None => (policy.limits().clone(), Grants::default()),
    };
    // It asks for nothing, so whatever the policy grants is listed as not given.
    let requests = Requests::default();
    let (grants, dropped) = granted.within(&requests);
    let body = Body::Builtin(Arc::clone(builtin));
    Ok(PluginEntry { id, component: None, tools, requests: Some(requests), limits, grants, dropped, body })
}

/// Runs an admitted call: within its time, until it is cancelled, and whatever it does.
pub(super) async fn call(builtin: &dyn Builtin, admitted: &Admitted<'_>, context: &CallContext) -> ToolOutcome {
    let started = Instant::now();
    let limits = &admitted.entry.limits;
    let subject = format!("{}/{}", admitted.entry.id, admitted.tool.name);
    let failed = |status, code, message: String, hint: &str| {
        ToolOutcome::refused(status, Failure::new(code, message).hint(hint.to_owned()))
    };
    let arguments = admitted.arguments.as_object().cloned().unwrap_or_default();
    let running = AssertUnwindSafe(builtin.call(&admitted.tool.name, arguments, context)).catch_unwind();
    let mut outcome = tokio::select! {
        biased;
        () = context.cancel.cancelled() => failed(
            ToolStatus::Interrupted,
            ErrorCode::CALL_CANCELLED,
            format!("`{subject}` was stopped before it ended"),
            "it may or may not have had effects",
        ),
        ended = tokio::time::timeout(limits.timeout, running) => match ended {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => failed(
                ToolStatus::Interrupted,
                ErrorCode::HOST_INTERNAL,
                format!("the host failed while running `{subject}`"),
                "this is a fault of the host; the run can go on",
            ),
            Err(_) => failed(
                ToolStatus::Error,
                ErrorCode::LIMIT_TIME,
                format!("`{subject}` did not end within `timeout` = {:?}", limits.timeout),
                "ask for less work, or raise `timeout` in the policy's limits",
            ),
        },
    };
    let output_bytes = outcome.content.iter().map(size).sum::<u64>();
    if output_bytes > limits.max_output {
        outcome = failed(
            ToolStatus::Error,
            ErrorCode::LIMIT_OUTPUT,
            format!("`{subject}` returned {output_bytes} bytes, over `max_output` = {}", limits.max_output),
            "ask for less, or raise `max_output` in the policy's limits",
        );
    }
    let wall_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    outcome.usage = CallUsage { wall_us, host_us: wall_us, output_bytes, ..CallUsage::default() };
    outcome
}

fn size(content: &Content) -> u64 {
    let bytes = match content {
        Content::Text { text } => text.len(),
        Content::Json { value } => value.to_string().len(),
        Content::Blob { mime_type, bytes } => mime_type.len() + bytes.len(),
        Content::Resource { uri, mime_type, bytes } => uri.len() + mime_type.len() + bytes.len(),
    };
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
