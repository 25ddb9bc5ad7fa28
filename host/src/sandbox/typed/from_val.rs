//! Component values to JSON values, in the form that the schema describes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value, json};
use wasmtime::component::Val;

use super::error::ResultError;
use super::schema::{ERR, OK, SOME, TAG, VAL};
use super::ty::Ty;

/// Integers beyond this, either way, are printed as strings: a reader that keeps numbers as doubles would change them.
const MAX_EXACT: u64 = 1 << 53;

/// The JSON value of a component value.
///
/// # Errors
///
/// Fails with the place and the reason when there is none: NaN and the infinities are no JSON numbers, and a `null` or a string
/// in their place would not be what the schema says.
pub(crate) fn from_val(ty: &Ty, val: Val) -> Result<Value, ResultError> {
    Ok(match (ty, val) {
        (Ty::Bool, Val::Bool(value)) => Value::Bool(value),
        (Ty::Int(_), val) => integer(&val)?,
        (Ty::F32, Val::Float32(value)) => float(shortest(value))?,
        (Ty::F64, Val::Float64(value)) => float(value)?,
        (Ty::Char, Val::Char(value)) => Value::String(value.to_string()),
        (Ty::String, Val::String(text)) => Value::String(text),
        (Ty::List(_), Val::List(values)) if ty.is_bytes() => {
            let byte = |val| if let Val::U8(byte) = val { Ok(byte) } else { Err(foreign(&val)) };
            base64(&values.into_iter().map(byte).collect::<Result<Vec<u8>, _>>()?)
        }
        (Ty::List(item), Val::List(values)) | (Ty::FixedList(item, _), Val::FixedLengthList(values)) => {
            Value::Array(indexed(values.into_iter().map(|val| (&**item, val)))?)
        }
        (Ty::Map(key, item), Val::Map(pairs)) => map(key, item, pairs)?,
        (Ty::Record(fields), Val::Record(values)) if fields.len() == values.len() => {
            let mut object = Map::with_capacity(fields.len());
            for (field, (name, val)) in fields.iter().zip(values) {
                let value = from_val(&field.ty, val).map_err(|error| error.inside(&name))?;
                object.insert(name, value);
            }
            Value::Object(object)
        }
        (Ty::Tuple(types), Val::Tuple(values)) if types.len() == values.len() => Value::Array(indexed(types.iter().zip(values))?),
        (Ty::Variant(cases), Val::Variant(tag, inner)) => {
            let ty = cases.iter().find(|(name, _)| **name == *tag).and_then(|(_, ty)| ty.as_ref());
            match (ty, inner) {
                (Some(ty), Some(inner)) => json!({TAG: tag, VAL: from_val(ty, *inner).map_err(|error| error.inside(VAL))?}),
                _ => json!({TAG: tag}),
            }
        }
        (Ty::Enum(_), Val::Enum(name)) => Value::String(name),
        (Ty::Option(_), Val::Option(None)) => Value::Null,
        (Ty::Option(inner), Val::Option(Some(val))) if inner.is_nullable() => {
            json!({SOME: from_val(inner, *val).map_err(|error| error.inside(SOME))?})
        }
        (Ty::Option(inner), Val::Option(Some(val))) => from_val(inner, *val)?,
        (Ty::Result(ok, _), Val::Result(Ok(val))) => json!({OK: payload(ok.as_deref(), val).map_err(|error| error.inside(OK))?}),
        (Ty::Result(_, err), Val::Result(Err(val))) => {
            json!({ERR: payload(err.as_deref(), val).map_err(|error| error.inside(ERR))?})
        }
        (Ty::Flags(_), Val::Flags(names)) => Value::from(names),
        (_, val) => return Err(foreign(&val)),
    })
}

/// What a result's side carries; nothing is `null`.
pub(super) fn payload(ty: Option<&Ty>, val: Option<Box<Val>>) -> Result<Value, ResultError> {
    match (ty, val) {
        (Some(ty), Some(val)) => from_val(ty, *val),
        _ => Ok(Value::Null),
    }
}

/// Bytes as base64 text (RFC 4648 section 4).
pub(super) fn base64(bytes: &[u8]) -> Value {
    Value::String(STANDARD.encode(bytes))
}

/// An unsigned 64-bit integer: a number, or beyond 2^53 a string.
pub(super) fn unsigned(value: u64) -> Value {
    if value > MAX_EXACT { Value::String(value.to_string()) } else { Value::from(value) }
}

fn integer(val: &Val) -> Result<Value, ResultError> {
    Ok(match *val {
        Val::S8(value) => Value::from(value),
        Val::U8(value) => Value::from(value),
        Val::S16(value) => Value::from(value),
        Val::U16(value) => Value::from(value),
        Val::S32(value) => Value::from(value),
        Val::U32(value) => Value::from(value),
        Val::S64(value) if value.unsigned_abs() > MAX_EXACT => Value::String(value.to_string()),
        Val::S64(value) => Value::from(value),
        Val::U64(value) => unsigned(value),
        ref other => return Err(foreign(other)),
    })
}

fn float(value: f64) -> Result<Value, ResultError> {
    match Number::from_f64(value) {
        Some(number) => Ok(Value::Number(number)),
        None => Err(ResultError::new(format!("{value} is no JSON number"))),
    }
}

/// The double that prints as briefly as the single does: `0.1`, not `0.10000000149011612`.
fn shortest(value: f32) -> f64 {
    #[expect(clippy::cast_possible_truncation, reason = "asks whether the value survives")]
    let same = |candidate: &f64| *candidate as f32 == value;
    value.to_string().parse().ok().filter(same).unwrap_or(f64::from(value))
}

fn indexed<'a>(values: impl Iterator<Item = (&'a Ty, Val)>) -> Result<Vec<Value>, ResultError> {
    values.enumerate().map(|(at, (ty, val))| from_val(ty, val).map_err(|error| error.inside(at))).collect()
}

/// A map: an object where keys are strings, else an array of pairs. Of two equal keys the last one counts, as in the component
/// model.
fn map(key: &Ty, item: &Ty, pairs: Vec<(Val, Val)>) -> Result<Value, ResultError> {
    let mut entries: Map<String, Value> = Map::with_capacity(pairs.len());
    let mut keys = Vec::new();
    for (at, (name, val)) in pairs.into_iter().enumerate() {
        if let (Ty::String, Val::String(name)) = (key, &name) {
            let value = from_val(item, val).map_err(|error| error.inside(name))?;
            entries.insert(name.clone(), value);
            continue;
        }
        let name = from_val(key, name).map_err(|error| error.inside(0).inside(at))?;
        let value = from_val(item, val).map_err(|error| error.inside(1).inside(at))?;
        if entries.insert(name.to_string(), value).is_none() {
            keys.push(name);
        }
    }
    if *key == Ty::String {
        return Ok(Value::Object(entries));
    }
    // Insertion keeps the order of first appearance, and so do the keys.
    Ok(Value::Array(keys.into_iter().zip(entries).map(|(key, (_, value))| json!([key, value])).collect()))
}

/// A value of another type than the function's. wasmtime checks types, so this is a fault of the host.
fn foreign(val: &Val) -> ResultError {
    let text: String = format!("{val:?}").chars().take(60).collect();
    ResultError::new(format!("`{text}` is not of the function's type"))
}
