//! JSON values to component values. Never more lenient than the schema.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};
use wasmtime::component::Val;

use super::error::ArgsError;
use super::schema::{ERR, OK, SOME, TAG, VAL};
use super::ty::{Field, Int, Ty};
use crate::json::kind;

/// Integers up to here are exact in a double, which is how a JSON number with a fraction or an exponent is read.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// How many known names a message lists.
const MAX_LISTED: usize = 20;

/// The component value of a JSON value.
///
/// # Errors
///
/// Fails with the place and the reason when the value is not one of the type's. Nothing is coerced but what the schema shows:
/// 64-bit integers as decimal strings, bytes as base64 or numbers.
pub(crate) fn to_val(ty: &Ty, value: &Value) -> Result<Val, ArgsError> {
    match (ty, value) {
        (Ty::Bool, Value::Bool(value)) => Ok(Val::Bool(*value)),
        (Ty::Int(int), value) => integer(*int, value),
        (Ty::F32, Value::Number(number)) => {
            let value = float(number)?;
            let limit = f64::from(f32::MAX);
            if value.abs() > limit {
                return Err(ArgsError::new(format!("{number} is beyond what an f32 holds (±{limit:e})")));
            }
            #[expect(clippy::cast_possible_truncation, reason = "in range; an f32 keeps the nearest value it has")]
            Ok(Val::Float32(value as f32))
        }
        (Ty::F64, Value::Number(number)) => float(number).map(Val::Float64),
        (Ty::Char, Value::String(text)) => {
            let mut chars = text.chars();
            match (chars.next(), chars.next()) {
                (Some(only), None) => Ok(Val::Char(only)),
                _ => Err(ArgsError::new(format!("expected one character, not {}", text.chars().count()))),
            }
        }
        (Ty::String, Value::String(text)) => Ok(Val::String(text.clone())),
        (Ty::List(_), Value::String(text)) if ty.is_bytes() => Ok(Val::List(decode(text)?.into_iter().map(Val::U8).collect())),
        (Ty::List(item), Value::Array(values)) => Ok(Val::List(items(item, values)?)),
        (Ty::FixedList(item, len), Value::Array(values)) => {
            exactly(values, usize::try_from(*len).unwrap_or(usize::MAX))?;
            Ok(Val::FixedLengthList(items(item, values)?))
        }
        (Ty::Map(key, item), Value::Object(object)) if **key == Ty::String => {
            let pairs = object.iter().map(|(name, value)| {
                let value = to_val(item, value).map_err(|error| error.inside(name))?;
                Ok((Val::String(name.clone()), value))
            });
            Ok(Val::Map(pairs.collect::<Result<_, _>>()?))
        }
        (Ty::Map(key, item), Value::Array(entries)) if **key != Ty::String => map(key, item, entries),
        (Ty::Record(record), Value::Object(object)) => {
            let values = fields(record, object)?;
            Ok(Val::Record(record.iter().map(|field| field.name.to_string()).zip(values).collect()))
        }
        (Ty::Tuple(types), Value::Array(values)) => {
            exactly(values, types.len())?;
            let pairs = types.iter().zip(values).enumerate();
            let values = pairs.map(|(at, (ty, value))| to_val(ty, value).map_err(|error| error.inside(at)));
            Ok(Val::Tuple(values.collect::<Result<_, _>>()?))
        }
        (Ty::Variant(cases), Value::Object(object)) => variant(cases, object),
        (Ty::Enum(names), Value::String(name)) => Ok(Val::Enum(known(names, name)?)),
        (Ty::Option(_), Value::Null) => Ok(Val::Option(None)),
        (Ty::Option(inner), Value::Object(object)) if inner.is_nullable() => {
            let value = only(object, SOME)?;
            Ok(Val::Option(Some(Box::new(to_val(inner, value).map_err(|error| error.inside(SOME))?))))
        }
        (Ty::Option(inner), value) if !inner.is_nullable() => Ok(Val::Option(Some(Box::new(to_val(inner, value)?)))),
        (Ty::Result(ok, err), Value::Object(object)) => {
            let (key, side) = if object.contains_key(OK) { (OK, ok) } else { (ERR, err) };
            let inner = payload(side.as_deref(), only(object, key)?).map_err(|error| error.inside(key))?;
            Ok(Val::Result(if key == OK { Ok(inner) } else { Err(inner) }))
        }
        (Ty::Flags(names), Value::Array(values)) => flags(names, values),
        (ty, value) => Err(mismatch(ty, value)),
    }
}

/// The values of parameters or fields, in their order. Options may be left out; nothing may be added.
pub(crate) fn fields(fields: &[Field], object: &Map<String, Value>) -> Result<Vec<Val>, ArgsError> {
    for name in object.keys() {
        if !fields.iter().any(|field| *field.name == **name) {
            let names = fields.iter().map(|field| &*field.name);
            return Err(ArgsError::new(format!("there is no such field; {}", listed(names))).inside(name));
        }
    }
    let value = |field: &Field| match object.get(&*field.name) {
        Some(value) => to_val(&field.ty, value).map_err(|error| error.inside(&field.name)),
        None if field.ty.is_nullable() => Ok(Val::Option(None)),
        None => Err(ArgsError::new(format!("the field `{}` is missing", field.name))),
    };
    fields.iter().map(value).collect()
}

/// The bytes that base64 text stands for.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>, ArgsError> {
    STANDARD.decode(text).map_err(|error| {
        ArgsError::new(format!("not base64 (RFC 4648 section 4, with padding): {error}; an array of numbers is fine, too"))
    })
}

/// The bytes that an array of numbers stands for.
pub(crate) fn bytes(values: &[Value]) -> Result<Vec<u8>, ArgsError> {
    let byte = |(at, value)| {
        match exact_integer(Int::U8, value) {
            Ok(byte) => u8::try_from(byte).map_err(|_| out_of_range(Int::U8, value)),
            Err(error) => Err(error),
        }
        .map_err(|error: ArgsError| error.inside(at))
    };
    values.iter().enumerate().map(byte).collect()
}

fn integer(int: Int, value: &Value) -> Result<Val, ArgsError> {
    let exact = exact_integer(int, value)?;
    // Each conversion holds what `exact_integer` checked; there is no way to get here with another value.
    let converted = match int {
        Int::S8 => i8::try_from(exact).map(Val::S8),
        Int::U8 => u8::try_from(exact).map(Val::U8),
        Int::S16 => i16::try_from(exact).map(Val::S16),
        Int::U16 => u16::try_from(exact).map(Val::U16),
        Int::S32 => i32::try_from(exact).map(Val::S32),
        Int::U32 => u32::try_from(exact).map(Val::U32),
        Int::S64 => i64::try_from(exact).map(Val::S64),
        Int::U64 => u64::try_from(exact).map(Val::U64),
    };
    converted.map_err(|_| out_of_range(int, value))
}

fn exact_integer(int: Int, value: &Value) -> Result<i128, ArgsError> {
    let exact = match value {
        Value::Number(number) => whole(number)?,
        Value::String(text) if int.is_wide() => {
            decimal(text).ok_or_else(|| ArgsError::new(format!("`{}` is not a decimal integer", shown(text))))?
        }
        other => return Err(mismatch(&Ty::Int(int), other)),
    };
    let (minimum, maximum) = int.range();
    if exact < i128::from(minimum) || exact > i128::from(maximum) {
        return Err(out_of_range(int, value));
    }
    Ok(exact)
}

/// The integer that a number is. JSON Schema counts `5.0` and `5e0` as integers, too.
fn whole(number: &Number) -> Result<i128, ArgsError> {
    if let Some(whole) = number.as_i128() {
        return Ok(whole);
    }
    let value = float(number)?;
    if value.fract() != 0.0 {
        return Err(ArgsError::new(format!("{number} is not an integer")));
    }
    if value.abs() > MAX_EXACT {
        return Err(ArgsError::new(format!("{number} is not exact, or too large; write large integers in digits, as a string")));
    }
    #[expect(clippy::cast_possible_truncation, reason = "an integer within 2^53")]
    Ok(value as i128)
}

/// A decimal integer in its one canonical spelling, as the schema's pattern has it.
fn decimal(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = !digits.is_empty()
        && digits.len() <= 20
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (!digits.starts_with('0') || text == "0");
    if canonical { text.parse().ok() } else { None }
}

fn float(number: &Number) -> Result<f64, ArgsError> {
    // Integers that a double does not hold exactly become the nearest one, as in any JSON reader.
    number.as_f64().filter(|value| value.is_finite()).ok_or_else(|| ArgsError::new(format!("{number} is no finite number")))
}

fn items(item: &Ty, values: &[Value]) -> Result<Vec<Val>, ArgsError> {
    values.iter().enumerate().map(|(at, value)| to_val(item, value).map_err(|error| error.inside(at))).collect()
}

/// A map whose keys are not strings: an array of pairs. A key that comes twice is refused, as it is in JSON objects.
fn map(key: &Ty, item: &Ty, entries: &[Value]) -> Result<Val, ArgsError> {
    let mut seen = HashSet::new();
    let mut pairs = Vec::with_capacity(entries.len());
    for (at, entry) in entries.iter().enumerate() {
        let Value::Array(pair) = entry else {
            return Err(ArgsError::new(format!("expected a pair of key and value, not {}", kind(entry))).inside(at));
        };
        exactly(pair, 2).map_err(|error| error.inside(at))?;
        let name = to_val(key, &pair[0]).map_err(|error| error.inside(0).inside(at))?;
        // Keys are booleans, integers or characters: their debug text tells them apart.
        if !seen.insert(format!("{name:?}")) {
            return Err(ArgsError::new("this key comes twice").inside(0).inside(at));
        }
        pairs.push((name, to_val(item, &pair[1]).map_err(|error| error.inside(1).inside(at))?));
    }
    Ok(Val::Map(pairs))
}

fn variant(cases: &[(Box<str>, Option<Ty>)], object: &Map<String, Value>) -> Result<Val, ArgsError> {
    let tag = match object.get(TAG) {
        Some(Value::String(tag)) => tag,
        Some(other) => return Err(ArgsError::new(format!("expected a case's name, not {}", kind(other))).inside(TAG)),
        None => return Err(ArgsError::new(format!("the field `{TAG}` is missing"))),
    };
    let Some((name, ty)) = cases.iter().find(|(name, _)| **name == **tag) else {
        let names = cases.iter().map(|(name, _)| &**name);
        return Err(ArgsError::new(format!("`{}` is no case; {}", shown(tag), listed(names))).inside(TAG));
    };
    let allowed: &[&str] = if ty.is_some() { &[TAG, VAL] } else { &[TAG] };
    if let Some(extra) = object.keys().find(|key| !allowed.contains(&key.as_str())) {
        return Err(ArgsError::new(format!("the case `{name}` has no such field")).inside(extra));
    }
    let inner = match ty {
        Some(ty) => {
            let value =
                object.get(VAL).ok_or_else(|| ArgsError::new(format!("the field `{VAL}` of case `{name}` is missing")))?;
            Some(Box::new(to_val(ty, value).map_err(|error| error.inside(VAL))?))
        }
        None => None,
    };
    Ok(Val::Variant(name.to_string(), inner))
}

fn flags(names: &[Box<str>], values: &[Value]) -> Result<Val, ArgsError> {
    let mut set = vec![false; names.len()];
    for (at, value) in values.iter().enumerate() {
        let Value::String(name) = value else {
            return Err(ArgsError::new(format!("expected a flag's name, not {}", kind(value))).inside(at));
        };
        let Some(index) = names.iter().position(|known| **known == **name) else {
            return Err(known(names, name).err().unwrap_or_else(|| ArgsError::new("unknown flag")).inside(at));
        };
        if std::mem::replace(&mut set[index], true) {
            return Err(ArgsError::new(format!("the flag `{name}` comes twice")).inside(at));
        }
    }
    Ok(Val::Flags(names.iter().zip(set).filter(|(_, set)| *set).map(|(name, _)| name.to_string()).collect()))
}

/// What a result's side carries; nothing is `null`.
fn payload(ty: Option<&Ty>, value: &Value) -> Result<Option<Box<Val>>, ArgsError> {
    match (ty, value) {
        (Some(ty), value) => Ok(Some(Box::new(to_val(ty, value)?))),
        (None, Value::Null) => Ok(None),
        (None, other) => Err(ArgsError::new(format!("expected null, not {}", kind(other)))),
    }
}

/// The one member of an object that must have just that one.
fn only<'a>(object: &'a Map<String, Value>, key: &str) -> Result<&'a Value, ArgsError> {
    match object.get(key) {
        Some(value) if object.len() == 1 => Ok(value),
        _ => Err(ArgsError::new(format!("expected an object with the one key `{key}`"))),
    }
}

fn exactly(values: &[Value], wanted: usize) -> Result<(), ArgsError> {
    if values.len() == wanted {
        return Ok(());
    }
    Err(ArgsError::new(format!("expected {wanted} items, not {}", values.len())))
}

fn known(names: &[Box<str>], name: &str) -> Result<String, ArgsError> {
    match names.iter().find(|known| ***known == *name) {
        Some(known) => Ok(known.to_string()),
        None => {
            Err(ArgsError::new(format!("`{}` is not one of them; {}", shown(name), listed(names.iter().map(|name| &**name)))))
        }
    }
}

fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let total = names.len();
    if total == 0 {
        return "there are none".to_owned();
    }
    let mut names: Vec<String> = names.take(MAX_LISTED).map(|name| format!("`{name}`")).collect();
    if total > MAX_LISTED {
        names.push(format!("and {} more", total - MAX_LISTED));
    }
    format!("there are {}", names.join(", "))
}

fn shown(text: &str) -> String {
    crate::text::clean_line(text, 60)
}

fn out_of_range(int: Int, value: &Value) -> ArgsError {
    let (minimum, maximum) = int.range();
    ArgsError::new(format!("{value} is not between {minimum} and {maximum}, the range of {}", int.name()))
}

fn mismatch(ty: &Ty, value: &Value) -> ArgsError {
    let expected = match ty {
        Ty::Bool => "a boolean".to_owned(),
        Ty::Int(int) if int.is_wide() => "an integer, or its digits as a string".to_owned(),
        Ty::Int(_) => "an integer".to_owned(),
        Ty::F32 | Ty::F64 => "a number".to_owned(),
        Ty::Char => "one character".to_owned(),
        Ty::String => "a string".to_owned(),
        Ty::List(_) if ty.is_bytes() => "base64 text, or an array of numbers".to_owned(),
        Ty::Map(key, _) if **key == Ty::String => "an object".to_owned(),
        Ty::Map(..) => "an array of pairs".to_owned(),
        Ty::List(_) | Ty::FixedList(..) | Ty::Tuple(_) => "an array".to_owned(),
        Ty::Record(_) => "an object".to_owned(),
        Ty::Variant(_) => format!("an object with `{TAG}`"),
        Ty::Enum(_) => "one of its names".to_owned(),
        Ty::Option(_) => format!("null, or an object with `{SOME}`"),
        Ty::Result(..) => format!("an object with `{OK}` or `{ERR}`"),
        Ty::Flags(_) => "an array of flags".to_owned(),
    };
    ArgsError::new(format!("expected {expected}, not {}", kind(value)))
}
