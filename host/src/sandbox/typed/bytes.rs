//! Calls whose byte lists do not pass through [`Val`](wasmtime::component::Val): as values of their own, with their tags, bytes
//! cost tens of bytes each, on the host and against the store's allowance for one host call.
//!
//! wasmtime's typed calls need the signature at compile time, so this covers the signatures that tools with byte lists mostly
//! have: one or two parameters of text or bytes, and a result of the few shapes of [`Shape`]. All others go through `Val`.

use serde_json::{Map, Value};
use wasmtime::Store;
use wasmtime::component::{ComponentNamedList, Func, Lift, Lower};

use super::call::{TypedError, tool_error};
use super::error::ArgsError;
use super::from_val::{base64, unsigned};
use super::to_val::{bytes, decode, fields};
use super::ty::{Field, Int, Ty};
use crate::json::kind;

/// A result's shape.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Shape {
    Nothing,
    Text,
    Bytes,
    OptionalBytes,
    Bool,
    U32,
    U64,
    FallibleNothing,
    FallibleText,
    FallibleBytes,
}

/// How to call a function without `Val`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan(Shape);

/// An argument.
#[derive(Debug)]
pub(crate) enum Plain {
    Text(String),
    Bytes(Vec<u8>),
}

impl Plan {
    /// The plan for a signature, if it has byte lists and is one of those covered.
    pub(super) fn of(parameters: &[Field], result: Option<&Ty>) -> Option<Self> {
        let plain = |field: &Field| field.ty == Ty::String || field.ty.is_bytes();
        if parameters.len() > 2 || !parameters.iter().all(plain) {
            return None;
        }
        let shape = Shape::of(result)?;
        let has_bytes = shape.has_bytes() || parameters.iter().any(|field| field.ty.is_bytes());
        has_bytes.then_some(Self(shape))
    }

    /// Converts arguments; see [`fields`].
    pub(super) fn arguments(&self, parameters: &[Field], arguments: &Map<String, Value>) -> Result<Vec<Plain>, ArgsError> {
        if arguments.len() != parameters.len() || parameters.iter().any(|field| !arguments.contains_key(&*field.name)) {
            // One of them is missing or unknown; this says which.
            fields(parameters, arguments)?;
        }
        let plain = |field: &Field| {
            let convert = match (arguments.get(&*field.name), field.ty.is_bytes()) {
                (Some(Value::String(text)), false) => Ok(Plain::Text(text.clone())),
                (Some(Value::String(text)), true) => decode(text).map(Plain::Bytes),
                (Some(Value::Array(values)), true) => bytes(values).map(Plain::Bytes),
                (other, is_bytes) => {
                    let expected = if is_bytes { "base64 text, or an array of numbers" } else { "a string" };
                    Err(ArgsError::new(format!("expected {expected}, not {}", other.map_or("nothing", kind))))
                }
            };
            convert.map_err(|error| error.inside(&field.name))
        };
        parameters.iter().map(plain).collect()
    }

    /// Calls the function; none is the result of one that returns nothing.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        store: &mut Store<T>,
        function: Func,
        arguments: &[Plain],
    ) -> Result<Option<Value>, TypedError> {
        // Bytes among the parameters go with every shape; without them, only with results that have bytes.
        match self.0 {
            Shape::Bytes => with::<T, (Vec<u8>,)>(store, function, arguments).await,
            Shape::OptionalBytes => with::<T, (Option<Vec<u8>>,)>(store, function, arguments).await,
            Shape::FallibleBytes => with::<T, (Result<Vec<u8>, String>,)>(store, function, arguments).await,
            Shape::Nothing => with_bytes::<T, ()>(store, function, arguments).await,
            Shape::Text => with_bytes::<T, (String,)>(store, function, arguments).await,
            Shape::Bool => with_bytes::<T, (bool,)>(store, function, arguments).await,
            Shape::U32 => with_bytes::<T, (u32,)>(store, function, arguments).await,
            Shape::U64 => with_bytes::<T, (u64,)>(store, function, arguments).await,
            Shape::FallibleNothing => with_bytes::<T, (Result<(), String>,)>(store, function, arguments).await,
            Shape::FallibleText => with_bytes::<T, (Result<String, String>,)>(store, function, arguments).await,
        }
    }
}

impl Shape {
    fn of(result: Option<&Ty>) -> Option<Self> {
        Some(match result {
            None => Self::Nothing,
            Some(Ty::String) => Self::Text,
            Some(Ty::Bool) => Self::Bool,
            Some(Ty::Int(Int::U32)) => Self::U32,
            Some(Ty::Int(Int::U64)) => Self::U64,
            Some(Ty::Option(inner)) if inner.is_bytes() => Self::OptionalBytes,
            Some(Ty::Result(ok, Some(err))) if **err == Ty::String => match ok.as_deref() {
                None => Self::FallibleNothing,
                Some(Ty::String) => Self::FallibleText,
                Some(ok) if ok.is_bytes() => Self::FallibleBytes,
                Some(_) => return None,
            },
            Some(ty) if ty.is_bytes() => Self::Bytes,
            Some(_) => return None,
        })
    }

    fn has_bytes(self) -> bool {
        matches!(self, Self::Bytes | Self::OptionalBytes | Self::FallibleBytes)
    }
}

async fn with<T: Send + 'static, R: Returned>(
    store: &mut Store<T>,
    function: Func,
    arguments: &[Plain],
) -> Result<Option<Value>, TypedError> {
    match arguments {
        [] => run::<T, _, R>(store, function, ()).await,
        [Plain::Text(a)] => run::<T, _, R>(store, function, (a.as_str(),)).await,
        [Plain::Text(a), Plain::Text(b)] => run::<T, _, R>(store, function, (a.as_str(), b.as_str())).await,
        _ => with_bytes::<T, R>(store, function, arguments).await,
    }
}

async fn with_bytes<T: Send + 'static, R: Returned>(
    store: &mut Store<T>,
    function: Func,
    arguments: &[Plain],
) -> Result<Option<Value>, TypedError> {
    match arguments {
        [Plain::Bytes(a)] => run::<T, _, R>(store, function, (a.as_slice(),)).await,
        [Plain::Text(a), Plain::Bytes(b)] => run::<T, _, R>(store, function, (a.as_str(), b.as_slice())).await,
        [Plain::Bytes(a), Plain::Text(b)] => run::<T, _, R>(store, function, (a.as_slice(), b.as_str())).await,
        [Plain::Bytes(a), Plain::Bytes(b)] => run::<T, _, R>(store, function, (a.as_slice(), b.as_slice())).await,
        _ => Err(TypedError::Guest(wasmtime::Error::msg("the arguments are another function's"))),
    }
}

async fn run<T, P, R>(store: &mut Store<T>, function: Func, parameters: P) -> Result<Option<Value>, TypedError>
where
    T: Send + 'static,
    P: ComponentNamedList + Lower,
    R: Returned,
{
    let typed = function.typed::<P, R>(&*store).map_err(TypedError::Guest)?;
    typed.call_async(store, parameters).await.map_err(TypedError::Guest)?.into_json()
}

/// A result that is known at compile time.
trait Returned: ComponentNamedList + Lift + 'static {
    fn into_json(self) -> Result<Option<Value>, TypedError>;
}

impl Returned for () {
    fn into_json(self) -> Result<Option<Value>, TypedError> {
        Ok(None)
    }
}

macro_rules! returned {
    ($($ty:ty: $value:ident => $json:expr;)*) => {
        $(impl Returned for ($ty,) {
            fn into_json(self) -> Result<Option<Value>, TypedError> {
                let ($value,) = self;
                $json
            }
        })*
    };
}

returned! {
    String: text => Ok(Some(Value::String(text)));
    Vec<u8>: bytes => Ok(Some(base64(&bytes)));
    Option<Vec<u8>>: bytes => Ok(Some(bytes.map_or(Value::Null, |bytes| base64(&bytes))));
    bool: value => Ok(Some(Value::Bool(value)));
    u32: value => Ok(Some(Value::from(value)));
    u64: value => Ok(Some(unsigned(value)));
    Result<(), String>: result => result.map(|()| None).map_err(|error| tool_error(Value::String(error)));
    Result<String, String>: result => match result {
        Ok(text) => Ok(Some(Value::String(text))),
        Err(error) => Err(tool_error(Value::String(error))),
    };
    Result<Vec<u8>, String>: result => result.map(|bytes| Some(base64(&bytes))).map_err(|error| tool_error(Value::String(error)));
}
