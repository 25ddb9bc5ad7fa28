//! JSON Schemas of arguments and results, small and self-contained.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The description and the schema of a tool's arguments.
pub(crate) fn input_schema<T: JsonSchema>() -> (String, String) {
    let mut schema = root::<T>(SchemaSettings::draft2020_12().for_deserialize());
    let description = match schema.remove("description") {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    (description, Value::Object(schema).to_string())
}

/// The schema of a structured result, if the type says anything about it. Its root is an object.
pub(crate) fn output_schema<T: JsonSchema + 'static>() -> Option<String> {
    let mut schema = root::<T>(SchemaSettings::draft2020_12().for_serialize());
    if schema.is_empty() || std::any::TypeId::of::<T>() == std::any::TypeId::of::<String>() {
        return None;
    }
    schema.remove("description");
    let definitions = schema.remove("$defs");
    let mut schema = match shape(&schema, definitions.as_ref()) {
        Shape::Object => {
            let mut object = Map::from_iter([("type".to_owned(), json!("object"))]);
            object.extend(schema);
            object
        }
        Shape::Other => wrapped(&schema),
        // An object is passed on and anything else is wrapped, so either form may come.
        Shape::Mixed => Map::from_iter([
            ("type".to_owned(), json!("object")),
            ("anyOf".to_owned(), Value::Array(vec![Value::Object(wrapped(&schema)), Value::Object(schema)])),
        ]),
    };
    if let Some(definitions) = definitions {
        schema.insert("$defs".to_owned(), definitions);
    }
    Some(Value::Object(schema).to_string())
}

/// Whether values that fit a schema are JSON objects.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Shape {
    Object,
    Other,
    Mixed,
}

fn shape(schema: &Map<String, Value>, definitions: Option<&Value>) -> Shape {
    match schema.get("type") {
        Some(Value::String(kind)) if kind == "object" => return Shape::Object,
        Some(Value::String(_)) => return Shape::Other,
        Some(Value::Array(kinds)) if !kinds.iter().any(|kind| kind == "object") => return Shape::Other,
        _ => {}
    }
    let branches = ["oneOf", "anyOf"].into_iter().find_map(|word| schema.get(word)?.as_array());
    let Some(branches) = branches else { return Shape::Mixed };
    let mut shapes = branches.iter().map(|branch| {
        let target = branch.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix("#/$defs/"));
        let branch = target.and_then(|name| definitions?.get(name)).unwrap_or(branch);
        // A reference within a reference is left as `Mixed`, which is never wrong.
        branch.as_object().map_or(Shape::Mixed, |branch| shape(branch, None))
    });
    let first = shapes.next().unwrap_or(Shape::Mixed);
    if shapes.all(|shape| shape == first) { first } else { Shape::Mixed }
}

fn wrapped(schema: &Map<String, Value>) -> Map<String, Value> {
    match json!({"type": "object", "properties": {"result": schema}, "required": ["result"]}) {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

fn root<T: JsonSchema>(settings: SchemaSettings) -> Map<String, Value> {
    let mut settings = settings;
    // The contract fixes the dialect; naming it again in every tool would cost the model tokens.
    settings.meta_schema = None;
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut schema = schema.to_value();
    unwrap_descriptions(&mut schema);
    match schema {
        Value::Object(mut object) => {
            object.remove("title");
            object
        }
        _ => Map::new(),
    }
}

/// Joins the lines of descriptions: a doc comment is broken where its source file is, and that means nothing to a model.
fn unwrap_descriptions(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            for (key, value) in object {
                match value {
                    Value::String(text) if key == "description" => *text = unwrap(text),
                    // These hold values and not schemas.
                    _ if matches!(key.as_str(), "default" | "examples" | "const" | "enum") => {}
                    _ => unwrap_descriptions(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(unwrap_descriptions),
        _ => {}
    }
}

/// Joins the lines of each paragraph. Lines of lists, tables, quotes and code stay.
fn unwrap(text: &str) -> String {
    let stays = |line: &str| {
        line.is_empty()
            || line.starts_with([' ', '\t', '-', '*', '|', '>', '#', '`'])
            || line.starts_with(|c: char| c.is_ascii_digit())
    };
    let mut joined = String::with_capacity(text.len());
    let mut in_paragraph = false;
    let mut in_code = false;
    for line in text.lines() {
        if !joined.is_empty() {
            joined.push(if in_paragraph && !in_code && !stays(line) { ' ' } else { '\n' });
        }
        joined.push_str(line.trim_end());
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        in_paragraph = !fence && !line.trim().is_empty();
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};

    /// Where to look.
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema is wanted")]
    struct Find {
        /// What to look for.
        pattern: String,
        /// How many to return.
        #[schemars(range(min = 1, max = 100))]
        #[serde(default)]
        limit: Option<u32>,
        /// Which way.
        order: Order,
    }

    #[derive(Deserialize, Serialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Order {
        Up,
        Down,
    }

    #[test]
    fn arguments_become_parameters() {
        let (description, schema) = input_schema::<Find>();
        assert_eq!(description, "Where to look.");
        let schema: Value = serde_json::from_str(&schema).expect("is JSON");
        let expected = json!({
            "type": "object",
            "properties": {
                "pattern": {"description": "What to look for.", "type": "string"},
                "limit": {
                    "description": "How many to return.", "type": ["integer", "null"],
                    "format": "uint32", "minimum": 1, "maximum": 100, "default": null
                },
                "order": {"description": "Which way.", "$ref": "#/$defs/Order"},
            },
            "additionalProperties": false,
            "required": ["pattern", "order"],
            "$defs": {"Order": {"type": "string", "enum": ["up", "down"]}},
        });
        assert_eq!(schema, expected);
    }

    #[derive(Serialize, JsonSchema)]
    struct Point {
        x: i32,
    }

    #[derive(Serialize, JsonSchema)]
    #[serde(tag = "kind")]
    #[expect(dead_code, reason = "only its schema is wanted")]
    enum Place {
        At(Point),
        Nowhere {},
    }

    #[test]
    fn the_root_of_a_result_is_an_object() {
        let point = r#"{"type":"object","properties":{"x":{"type":"integer","format":"int32"}},"required":["x"]}"#;
        assert_eq!(output_schema::<Point>().as_deref(), Some(point));
        for schema in [
            output_schema::<Vec<Point>>(),
            output_schema::<Option<Point>>(),
            output_schema::<Place>(),
            output_schema::<Order>(),
            output_schema::<()>(),
        ] {
            let schema: Value = serde_json::from_str(&schema.expect("has a schema")).expect("is JSON");
            assert_eq!(schema["type"], "object", "{schema}");
        }
    }

    #[test]
    fn a_result_that_may_be_an_object_allows_both_forms() {
        let schema: Value = serde_json::from_str(&output_schema::<Option<Point>>().expect("has a schema")).expect("is JSON");
        assert_eq!(schema["anyOf"][0]["required"], json!(["result"]), "{schema}");
    }

    #[test]
    fn paragraphs_are_one_line() {
        for (text, expected) in [
            ("a\nb\n\nc\nd", "a b\n\nc d"),
            ("a:\n- x\n- y\n\nb", "a:\n- x\n- y\n\nb"),
            ("a\n```\nx\ny\n```\nb", "a\n```\nx\ny\n```\nb"),
            ("一\n二", "一 二"),
            ("", ""),
        ] {
            assert_eq!(unwrap(text), expected);
        }
    }

    #[test]
    fn text_and_pieces_promise_no_structure() {
        assert_eq!(output_schema::<String>(), None);
        assert_eq!(output_schema::<crate::Contents>(), None);
    }
}
