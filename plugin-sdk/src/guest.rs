//! The component's exports, on top of the plugin's tools.

use std::panic::{self, PanicHookInfo};
use std::time::Duration;

use crate::bindings::exports::honeycomb::plugin::tools::{CallContext, Guest};
use crate::bindings::honeycomb::plugin::types;
use crate::context::{Call, Context, Level, log};
use crate::tool::Definition;
use crate::{Content, Contents, Error, ErrorKind, Result};

/// What `export!` makes of a list of tools.
pub trait Plugin {
    /// Describes the tools.
    fn definitions() -> Vec<Definition>;

    /// Runs one tool.
    fn call(name: &str, arguments: &str, context: &Context) -> Result<Contents>;
}

impl<P: Plugin> Guest for P {
    fn list_tools() -> Vec<types::Tool> {
        panic::set_hook(Box::new(report_panic));
        P::definitions().into_iter().map(types::Tool::from).collect()
    }

    fn call_tool(name: String, arguments: String, context: CallContext) -> Result<Vec<types::Content>, types::ToolError> {
        panic::set_hook(Box::new(report_panic));
        let context = Context::guest(context.into());
        match P::call(&name, &arguments, &context) {
            Ok(contents) => Ok(contents.0.into_iter().map(types::Content::from).collect()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Sends a panic to the operator's log; the trap that follows says only `unreachable`.
fn report_panic(info: &PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("no message");
    let text = match info.location() {
        Some(location) => format!("panicked at {location}: {message}"),
        None => format!("panicked: {message}"),
    };
    log(Level::Critical, &text);
}

impl From<CallContext> for Call {
    fn from(context: CallContext) -> Self {
        Self {
            id: context.call_id,
            run_id: context.run_id,
            idempotency_key: context.idempotency_key,
            attempt: context.attempt,
            deadline: Duration::from_millis(context.deadline_ms),
            traceparent: context.traceparent,
        }
    }
}

impl From<Definition> for types::Tool {
    fn from(definition: Definition) -> Self {
        let hints = definition.hints;
        Self {
            name: definition.name.to_owned(),
            title: definition.title.map(str::to_owned),
            description: definition.description,
            input_schema: definition.input_schema,
            output_schema: definition.output_schema,
            hints: types::ToolHints {
                read_only: hints.read_only,
                destructive: hints.destructive,
                idempotent: hints.idempotent,
                open_world: hints.open_world,
            },
        }
    }
}

impl From<Content> for types::Content {
    fn from(content: Content) -> Self {
        match content {
            Content::Text(text) => Self::Text(text),
            Content::Json(json) => Self::Json(json),
            Content::Blob { mime_type, bytes } => Self::Blob(types::Blob { mime_type, bytes }),
            Content::Resource { uri, mime_type, bytes } => Self::Resource(types::ResourceContents { uri, mime_type, bytes }),
        }
    }
}

impl From<Error> for types::ToolError {
    fn from(error: Error) -> Self {
        let message = error.message().to_owned();
        match error.kind() {
            ErrorKind::InvalidArguments => Self::InvalidArguments(message),
            ErrorKind::Denied => Self::Denied(message),
            ErrorKind::NotFound => Self::NotFound(message),
            ErrorKind::RateLimited => {
                let retry_after_ms = error.delay().map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
                Self::RateLimited(types::RateLimit { message, retry_after_ms })
            }
            ErrorKind::Unavailable => Self::Unavailable(message),
            ErrorKind::Failed => Self::Failed(message),
        }
    }
}
