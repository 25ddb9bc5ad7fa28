//! Calling a function: JSON arguments in, structured result out.

use serde_json::{Map, Value, json};
use wasmtime::Store;
use wasmtime::component::{ComponentExportIndex, Instance, Val};

use super::bytes::{Plain, Plan};
use super::error::{ArgsError, ResultError};
use super::from_val::{from_val, payload};
use super::schema::{self, RESULT};
use super::to_val;
use super::ty::{Field, Ty};
use crate::text;
use crate::tool::{Content, ErrorCode, Failure};

/// The most bytes kept of a tool's own error.
const MAX_ERROR: usize = 8 * 1024;

/// What a function that returns nothing answers: an empty answer leaves a model guessing.
const DONE: &str = "done";

/// A function of a component, and how to call it.
#[derive(Clone)]
pub(crate) struct TypedFunction {
    index: ComponentExportIndex,
    parameters: Vec<Field>,
    result: Option<Ty>,
    /// The way round [`Val`] for byte lists, where the signature allows it.
    plan: Option<Plan>,
}

/// Arguments that are ready to be passed.
#[derive(Debug)]
pub(crate) enum Arguments {
    /// As component values.
    Values(Vec<Val>),
    /// As text and bytes.
    Plain(Vec<Plain>),
}

/// What a function returned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TypedOutput {
    /// What the model reads: plain text where the function returns text, else the structured result.
    pub(crate) content: Vec<Content>,
    /// What satisfies the output schema; none if the function returns nothing.
    pub(crate) structured: Option<Value>,
}

impl TypedOutput {
    /// About how many bytes the result has as JSON, as `max_output` counts them.
    pub(crate) fn bytes(&self) -> u64 {
        self.content.iter().fold(0, |sum, content| match content {
            Content::Text { text } => sum + text.len() as u64,
            Content::Json { value } => sum + value_bytes(value),
            Content::Blob { bytes, .. } | Content::Resource { bytes, .. } => sum + bytes.len() as u64,
        })
    }
}

/// Counts without printing: quotes and commas, and a number's digits at their most usual.
fn value_bytes(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        Value::String(text) => text.len() as u64 + 2,
        Value::Array(items) => items.iter().fold(2, |sum, item| sum + value_bytes(item) + 1),
        Value::Object(object) => object.iter().fold(2, |sum, (key, item)| sum + key.len() as u64 + value_bytes(item) + 4),
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TypedError {
    /// The function returned its error.
    #[error("{0}")]
    Tool(String),
    /// What it returned has no JSON form.
    #[error(transparent)]
    Result(#[from] ResultError),
    /// The guest trapped, ran into a limit, or returned what is not of its type.
    #[error("the guest failed")]
    Guest(#[source] wasmtime::Error),
}

impl TypedError {
    /// The failure that the model reads, or the guest's error, which the caller can tell apart.
    pub(crate) fn into_failure(self) -> Result<Failure, wasmtime::Error> {
        match self {
            Self::Tool(message) => Ok(Failure::new(ErrorCode::tool("failed"), message)),
            Self::Result(error) => Ok(Failure::new(ErrorCode::RESULT_INVALID, error.to_string())),
            Self::Guest(error) => Err(error),
        }
    }
}

impl TypedFunction {
    pub(super) fn new(index: ComponentExportIndex, parameters: Vec<Field>, result: Option<Ty>) -> Self {
        let plan = Plan::of(&parameters, result.as_ref());
        Self { index, parameters, result, plan }
    }

    pub(super) fn parameters(&self) -> &[Field] {
        &self.parameters
    }

    /// The type that the function returns.
    pub(super) fn result(&self) -> Option<&Ty> {
        self.result.as_ref()
    }

    /// The type of the structured result: of a `result`, its ok side.
    pub(super) fn returned(&self) -> Option<&Ty> {
        match self.result.as_ref()? {
            Ty::Result(ok, _) => ok.as_deref(),
            other => Some(other),
        }
    }

    /// Converts arguments. No guest is needed for it, so a call with wrong arguments costs none.
    ///
    /// # Errors
    ///
    /// Fails with the place and the reason when an argument is not of its parameter's type.
    pub(crate) fn arguments(&self, arguments: &Map<String, Value>) -> Result<Arguments, ArgsError> {
        match &self.plan {
            Some(plan) => plan.arguments(&self.parameters, arguments).map(Arguments::Plain),
            None => to_val::fields(&self.parameters, arguments).map(Arguments::Values),
        }
    }

    /// Calls the function in an instance of its component. Fuel, memory and time are the store's to bound.
    ///
    /// # Errors
    ///
    /// Fails when the guest does, when the function returns an error, and when its result has no JSON form.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        store: &mut Store<T>,
        instance: &Instance,
        arguments: Arguments,
    ) -> Result<TypedOutput, TypedError> {
        let Some(function) = instance.get_func(&mut *store, self.index) else {
            return Err(TypedError::Guest(wasmtime::Error::msg("the function is not in this instance")));
        };
        let value = match (arguments, &self.plan) {
            (Arguments::Plain(arguments), Some(plan)) => plan.call(store, function, &arguments).await?,
            (Arguments::Values(arguments), None) => {
                let mut results = vec![Val::Bool(false); usize::from(self.result.is_some())];
                function.call_async(store, &arguments, &mut results).await.map_err(TypedError::Guest)?;
                self.convert(results.pop())?
            }
            _ => return Err(TypedError::Guest(wasmtime::Error::msg("the arguments are another function's"))),
        };
        Ok(self.output(value))
    }

    /// The JSON value of a result, or the error that the function returned.
    fn convert(&self, val: Option<Val>) -> Result<Option<Value>, TypedError> {
        match (&self.result, val) {
            (Some(Ty::Result(ok, _)), Some(Val::Result(Ok(val)))) => {
                Ok(ok.as_deref().map(|ok| payload(Some(ok), val)).transpose()?)
            }
            (Some(Ty::Result(_, err)), Some(Val::Result(Err(val)))) => {
                let error = payload(err.as_deref(), val)?;
                Err(tool_error(error))
            }
            (Some(ty), Some(val)) => Ok(Some(from_val(ty, val)?)),
            _ => Ok(None),
        }
    }

    fn output(&self, value: Option<Value>) -> TypedOutput {
        let (Some(value), Some(ty)) = (value, self.returned()) else {
            return TypedOutput { content: vec![Content::Text { text: DONE.to_owned() }], structured: None };
        };
        let text = if let (Ty::String, Value::String(text)) = (ty, &value) { Some(text.clone()) } else { None };
        let structured = if schema::is_object(ty) { value } else { json!({RESULT: value}) };
        let content = match text {
            Some(text) => Content::Text { text },
            None => Content::Json { value: structured.clone() },
        };
        TypedOutput { content: vec![content], structured: Some(structured) }
    }
}

/// A tool's error from the JSON value of what it returned.
pub(super) fn tool_error(error: Value) -> TypedError {
    let message = match error {
        Value::Null => "the tool failed and does not say why".to_owned(),
        Value::String(message) => message,
        other => other.to_string(),
    };
    TypedError::Tool(text::clean(&message, MAX_ERROR).into_owned())
}
