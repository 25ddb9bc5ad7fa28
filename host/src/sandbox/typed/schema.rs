//! Types as JSON Schema, draft 2020-12. What is advertised here is what arguments are validated against.
//!
//! Keywords such as `minimum` or `pattern` bind only values of their own type, so one schema with two types in `type` often does
//! the work of an `anyOf`, in half the tokens.

use serde_json::{Map, Value, json};

use super::ty::{Field, Int, Ty};

/// The key under which a result that is no object is put: clients and providers want an object at the root.
pub(crate) const RESULT: &str = "result";

/// The key of the inner value of an option whose inner type has a `null` of its own.
pub(crate) const SOME: &str = "some";

/// The keys of a variant's case and of what it carries.
pub(crate) const TAG: &str = "tag";
pub(crate) const VAL: &str = "val";

/// The keys of a result that is part of another value.
pub(crate) const OK: &str = "ok";
pub(crate) const ERR: &str = "err";

/// The schema of a function's arguments: an object with the parameters as its properties.
pub(crate) fn arguments(parameters: &[Field]) -> Value {
    fields(parameters)
}

/// The schema of a function's structured result; its root is an object.
pub(crate) fn result(ty: &Ty) -> Value {
    if is_object(ty) { schema(ty) } else { object([(RESULT, schema(ty))]) }
}

/// Whether every value of the type is a JSON object, plainly enough to stand at the root. A tagged one-of is not: some providers
/// drop a `oneOf` at the root.
pub(crate) fn is_object(ty: &Ty) -> bool {
    match ty {
        Ty::Record(_) => true,
        Ty::Map(key, _) => **key == Ty::String,
        _ => false,
    }
}

/// The schema of a type's values.
pub(crate) fn schema(ty: &Ty) -> Value {
    match ty {
        Ty::Bool => json!({"type": "boolean"}),
        Ty::Int(int) => integer(*int),
        Ty::F32 => json!({"type": "number", "minimum": f64::from(f32::MIN), "maximum": f64::from(f32::MAX)}),
        Ty::F64 => json!({"type": "number"}),
        // Lengths count Unicode code points (JSON Schema Validation, section 6.3.1), and JSON text has no lone surrogates.
        Ty::Char => json!({"type": "string", "minLength": 1, "maxLength": 1}),
        Ty::String => json!({"type": "string"}),
        Ty::List(item) if ty.is_bytes() => {
            json!({"type": ["string", "array"], "contentEncoding": "base64", "items": schema(item)})
        }
        Ty::List(item) => json!({"type": "array", "items": schema(item)}),
        Ty::FixedList(item, len) => json!({"type": "array", "items": schema(item), "minItems": len, "maxItems": len}),
        Ty::Map(key, value) if **key == Ty::String => json!({"type": "object", "additionalProperties": schema(value)}),
        Ty::Map(key, value) => json!({"type": "array", "items": tuple(&[schema(key), schema(value)])}),
        Ty::Record(record) => fields(record),
        Ty::Tuple(types) => tuple(&types.iter().map(schema).collect::<Vec<_>>()),
        Ty::Variant(cases) => {
            let case = |(name, ty): &(Box<str>, Option<Ty>)| {
                let tag = (TAG, json!({"const": name}));
                match ty {
                    Some(ty) => object([tag, (VAL, schema(ty))]),
                    None => object([tag]),
                }
            };
            json!({"oneOf": cases.iter().map(case).collect::<Vec<_>>()})
        }
        Ty::Enum(names) => json!({"type": "string", "enum": names}),
        Ty::Option(inner) if inner.is_nullable() => nullable(object([(SOME, schema(inner))])),
        Ty::Option(inner) => nullable(schema(inner)),
        Ty::Result(ok, err) => {
            let side = |ty: &Option<Box<Ty>>| ty.as_ref().map_or_else(|| json!({"type": "null"}), |ty| schema(ty));
            json!({"oneOf": [object([(OK, side(ok))]), object([(ERR, side(err))])]})
        }
        Ty::Flags(names) => json!({"type": "array", "items": {"type": "string", "enum": names}, "uniqueItems": true}),
    }
}

fn integer(int: Int) -> Value {
    let (minimum, maximum) = int.range();
    if !int.is_wide() {
        return json!({"type": "integer", "minimum": minimum, "maximum": maximum});
    }
    let pattern = if minimum < 0 { "^(0|-?[1-9][0-9]{0,18})$" } else { "^(0|[1-9][0-9]{0,19})$" };
    json!({"type": ["integer", "string"], "minimum": minimum, "maximum": maximum, "pattern": pattern})
}

/// An object with exactly these properties, of which options may be left out.
fn fields(fields: &[Field]) -> Value {
    let properties: Map<String, Value> = fields.iter().map(|field| (field.name.to_string(), schema(&field.ty))).collect();
    let required: Vec<&str> = fields.iter().filter(|field| !field.ty.is_nullable()).map(|field| &*field.name).collect();
    closed(properties, &required)
}

/// An object with exactly these properties, all of them required.
fn object<const N: usize>(properties: [(&str, Value); N]) -> Value {
    let required: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
    closed(properties.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect(), &required)
}

fn closed(properties: Map<String, Value>, required: &[&str]) -> Value {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    schema.insert("additionalProperties".to_owned(), json!(false));
    Value::Object(schema)
}

fn tuple(items: &[Value]) -> Value {
    json!({"type": "array", "prefixItems": items, "items": false, "minItems": items.len()})
}

/// The schema, or `null`.
fn nullable(mut schema: Value) -> Value {
    if schema.get("enum").is_none() {
        match schema.get_mut("type") {
            Some(Value::Array(types)) => {
                types.push(json!("null"));
                return schema;
            }
            Some(ty @ Value::String(_)) => {
                *ty = json!([ty.take(), "null"]);
                return schema;
            }
            _ => {}
        }
    }
    json!({"anyOf": [schema, {"type": "null"}]})
}
