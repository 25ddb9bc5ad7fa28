//! JSON from strangers: strict parsing, and bytes as base64.

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Parses one JSON object and refuses repeated keys at any depth.
///
/// RFC 8259 section 4 leaves repeated keys undefined: readers differ on which value counts, and a policy must not judge another value
/// than the tool gets. Empty text and `null` are an empty object. Nesting is bounded by serde_json (128 levels).
///
/// # Errors
///
/// Returns a sentence that says what is wrong and where.
pub fn parse_object(text: &str) -> Result<Map<String, Value>, String> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match parse_value(text)? {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        other => Err(format!("arguments must be a JSON object, not {}", kind(&other))),
    }
}

/// Parses any JSON value and refuses repeated keys at any depth.
///
/// # Errors
///
/// Returns a sentence that says what is wrong and where.
pub fn parse_value(text: &str) -> Result<Value, String> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Strict.deserialize(&mut deserializer).map_err(|error| format!("not valid JSON: {error}"))?;
    deserializer.end().map_err(|error| format!("not valid JSON: {error}"))?;
    Ok(value)
}

/// Names a value's JSON type, with its article.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Strict)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value_seed(Strict)?;
            if object.contains_key(&key) {
                return Err(de::Error::custom(format!("key `{}` appears twice", key.escape_debug())));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// Serialises bytes as base64 text (RFC 4648 section 4).
pub(crate) mod base64_bytes {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_two_readers_could_read_differently() {
        for (text, expected) in [
            (r#"{"a":1,"a":2}"#, "key `a` appears twice"),
            (r#"{"a":1,"\u0061":2}"#, "key `a` appears twice"),
            (r#"{"a":{"b":1,"b":2}}"#, "key `b` appears twice"),
            (r#"{"a":[{"b":1,"b":2}]}"#, "key `b` appears twice"),
            (r#"{"a":1} {"a":2}"#, "trailing characters"),
            (r#"[1]"#, "not an array"),
            (r#""text""#, "not a string"),
            (r#"{"a":"\ud800"}"#, "not valid JSON"),
            (r#"{"a":1e400}"#, "out of range"),
            (&"[".repeat(100_000), "recursion limit"),
        ] {
            let error = parse_object(text).expect_err(text.get(..20).unwrap_or(text));
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn absent_arguments_are_an_empty_object() {
        for text in ["", "  ", "null", "{}"] {
            assert_eq!(parse_object(text), Ok(Map::new()), "{text:?}");
        }
    }

    #[test]
    fn keeps_values_and_key_order() {
        let text = r#"{"z":18446744073709551615,"a":-1,"城市":"北京","n":null,"l":[true,1.5]}"#;
        assert_eq!(Value::Object(parse_object(text).expect("valid")).to_string(), text);
    }
}
