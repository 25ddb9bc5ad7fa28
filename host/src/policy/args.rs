//! `args`: the JSON Schema that a call's arguments must satisfy for a rule to apply.
//!
//! JSON Schema ignores keywords it does not know, so a typo would silently allow everything. Here each keyword is known and bites, or
//! the policy is refused.

use std::collections::{BTreeMap, BTreeSet};

use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value};

use super::nearest::did_you_mean;
use crate::text::clean_line;

const MAX_DEPTH: usize = 32;
const MAX_NODES: usize = 5_000;
/// Bounds what one mismatch adds to a message that a model reads.
const MAX_REASON: usize = 240;

/// A compiled `args` schema.
#[derive(Clone, Debug)]
pub struct ArgsRule {
    schema: Value,
    validator: std::sync::Arc<Validator>,
}

/// What is wrong with a schema, and how to put it right.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct SchemaError {
    pub(super) message: String,
    pub(super) hint: String,
}

impl ArgsRule {
    /// Compiles a schema: JSON Schema 2020-12, formats asserted, patterns that match in linear time, references only to its own `$defs`.
    pub(super) fn compile(schema: Value) -> Result<Self, SchemaError> {
        let mut check = SchemaCheck::default();
        check.root(&schema)?;
        check.references()?;
        let validator = jsonschema::draft202012::options()
            .offline()
            .should_validate_formats(true)
            .should_ignore_unknown_formats(false)
            .with_pattern_options(PatternOptions::regex())
            .build(&schema)
            .map_err(|error| SchemaError {
                message: format!("`args` is not a valid JSON Schema: {}", clean_line(&error.to_string(), 200)),
                hint: "see https://json-schema.org/draft/2020-12; patterns have no look-around and no back-references".to_owned(),
            })?;
        Ok(Self { schema, validator: std::sync::Arc::new(validator) })
    }

    /// The schema as the policy states it.
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// Whether the arguments satisfy the schema.
    pub fn matches(&self, arguments: &Value) -> bool {
        self.validator.is_valid(arguments)
    }

    /// Where the arguments do not satisfy the schema: the JSON Pointer (RFC 6901), and why in a bounded sentence.
    pub(super) fn mismatch(&self, arguments: &Value) -> Option<(String, String)> {
        let error = self.validator.validate(arguments).err()?;
        let pointer = clean_line(error.instance_path().as_str(), 100);
        Some((pointer, clean_line(&error.to_string(), MAX_REASON)))
    }

    /// What the schema leaves open although it looks closed. Each is a sentence.
    pub(super) fn gaps(&self) -> Vec<String> {
        let mut gaps = Vec::new();
        let Value::Object(schema) = &self.schema else { return gaps };
        let required: BTreeSet<&str> =
            schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let shown = clean_line(name, 60);
            if *property != Value::Bool(false) && !required.contains(name.as_str()) {
                gaps.push(format!("`{shown}` is constrained but not `required`: arguments without it match"));
            }
            for (keyword, kind) in [("pattern", "string"), ("format", "string"), ("maxLength", "string"), ("maximum", "number")] {
                if property.get(keyword).is_some() && property.get("type").is_none() {
                    gaps.push(format!("`{keyword}` of `{shown}` says nothing about a value that is no {kind}: add `type`"));
                }
            }
        }
        gaps
    }
}

/// How a keyword's value is built.
#[derive(Clone, Copy)]
enum Shape {
    /// Not a schema.
    Plain,
    One,
    List,
    Named,
}

const KEYWORDS: [(&str, Shape); 46] = [
    ("$comment", Shape::Plain),
    ("$defs", Shape::Named),
    ("$ref", Shape::Plain),
    ("additionalProperties", Shape::One),
    ("allOf", Shape::List),
    ("anyOf", Shape::List),
    ("const", Shape::Plain),
    ("contains", Shape::One),
    ("dependentRequired", Shape::Plain),
    ("dependentSchemas", Shape::Named),
    ("description", Shape::Plain),
    ("else", Shape::One),
    ("enum", Shape::Plain),
    ("exclusiveMaximum", Shape::Plain),
    ("exclusiveMinimum", Shape::Plain),
    ("format", Shape::Plain),
    ("if", Shape::One),
    ("items", Shape::One),
    ("maxContains", Shape::Plain),
    ("maxItems", Shape::Plain),
    ("maxLength", Shape::Plain),
    ("maxProperties", Shape::Plain),
    ("maximum", Shape::Plain),
    ("minContains", Shape::Plain),
    ("minItems", Shape::Plain),
    ("minLength", Shape::Plain),
    ("minProperties", Shape::Plain),
    ("minimum", Shape::Plain),
    ("multipleOf", Shape::Plain),
    ("not", Shape::One),
    ("oneOf", Shape::List),
    ("pattern", Shape::Plain),
    ("patternProperties", Shape::Named),
    ("prefixItems", Shape::List),
    ("properties", Shape::Named),
    ("propertyNames", Shape::One),
    ("required", Shape::Plain),
    ("then", Shape::One),
    ("title", Shape::Plain),
    ("type", Shape::Plain),
    ("unevaluatedItems", Shape::One),
    ("unevaluatedProperties", Shape::One),
    ("uniqueItems", Shape::Plain),
    // Kept last: words of older drafts, which are refused with the word to use instead.
    ("additionalItems", Shape::Plain),
    ("definitions", Shape::Plain),
    ("dependencies", Shape::Plain),
];
const OLD_WORDS: usize = 3;

/// Keywords that do nothing without another one.
const NEEDS: [(&str, &str); 4] = [("then", "if"), ("else", "if"), ("minContains", "contains"), ("maxContains", "contains")];

/// One walk over a schema.
#[derive(Default)]
struct SchemaCheck {
    nodes: usize,
    /// Which definition refers to which; the root is "".
    edges: BTreeMap<String, BTreeSet<String>>,
}

impl SchemaCheck {
    fn root(&mut self, schema: &Value) -> Result<(), SchemaError> {
        let Value::Object(root) = schema else {
            return Err(wrong("`args` must be a table", "write `args = { required = [\"repo\"], … }`"));
        };
        if root.is_empty() {
            return Err(wrong(
                "`args` is empty, so it allows all arguments",
                "state what the arguments must be, or leave `args` out",
            ));
        }
        let allows_objects = match root.get("type") {
            Some(Value::String(name)) => name == "object",
            Some(Value::Array(names)) => names.iter().any(|name| name == "object"),
            _ => true,
        };
        if !allows_objects {
            return Err(wrong("`args` never matches: arguments are always an object", "write `type = \"object\"`"));
        }
        for (name, definition) in root.get("$defs").and_then(Value::as_object).into_iter().flatten() {
            self.schema(definition, &format!("/$defs/{name}"), name, 1)?;
        }
        self.object(root, "", "", 0)
    }

    fn schema(&mut self, schema: &Value, at: &str, owner: &str, depth: usize) -> Result<(), SchemaError> {
        match schema {
            Value::Bool(_) => Ok(()),
            Value::Object(object) => self.object(object, at, owner, depth),
            other => Err(wrong(
                format!("`args{}` must be a table, not {}", clean_line(at, 100), crate::json::kind(other)),
                "a schema is a table, or true or false",
            )),
        }
    }

    fn object(&mut self, schema: &Map<String, Value>, at: &str, owner: &str, depth: usize) -> Result<(), SchemaError> {
        self.nodes += 1;
        if depth > MAX_DEPTH || self.nodes > MAX_NODES {
            return Err(wrong("`args` is too large or too deep", format!("at most {MAX_NODES} schemas, {MAX_DEPTH} deep")));
        }
        for (keyword, value) in schema {
            let at = format!("{at}/{keyword}");
            match shape(keyword, &at)? {
                Shape::Plain if keyword == "$ref" => self.reference(value, owner)?,
                Shape::Plain => {}
                Shape::One => self.schema(value, &at, owner, depth + 1)?,
                Shape::List => {
                    for item in value.as_array().into_iter().flatten() {
                        self.schema(item, &at, owner, depth + 1)?;
                    }
                }
                Shape::Named if keyword == "$defs" && depth == 0 && owner.is_empty() => {}
                Shape::Named if keyword == "$defs" => {
                    return Err(wrong("`$defs` may stand only at the top of `args`", "move it up"));
                }
                Shape::Named => {
                    for (name, item) in value.as_object().into_iter().flatten() {
                        self.schema(item, &format!("{at}/{name}"), owner, depth + 1)?;
                    }
                }
            }
        }
        for (keyword, needed) in NEEDS {
            if schema.contains_key(keyword) && !schema.contains_key(needed) {
                return Err(wrong(format!("`{keyword}` in `args` does nothing without `{needed}`"), format!("add `{needed}`")));
            }
        }
        Ok(())
    }

    fn reference(&mut self, value: &Value, owner: &str) -> Result<(), SchemaError> {
        let name = value.as_str().and_then(|text| text.strip_prefix("#/$defs/"));
        match name.filter(|name| !name.is_empty() && !name.contains(['/', '~', '%'])) {
            Some(name) => {
                self.edges.entry(owner.to_owned()).or_default().insert(name.to_owned());
                Ok(())
            }
            None => Err(wrong(
                format!("`$ref` in `args` refers to {}", clean_line(&value.to_string(), 100)),
                "only `#/$defs/NAME` of the same `args` can be referred to; nothing is fetched",
            )),
        }
    }

    /// Refuses circles: a schema that refers to itself at the same place never ends.
    fn references(&self) -> Result<(), SchemaError> {
        let mut done = BTreeSet::new();
        for start in self.edges.keys() {
            self.visit(start, &mut Vec::new(), &mut done)?;
        }
        Ok(())
    }

    fn visit<'a>(&'a self, name: &'a str, path: &mut Vec<&'a str>, done: &mut BTreeSet<&'a str>) -> Result<(), SchemaError> {
        // The longest path without a circle is the number of definitions; a bound on it bounds the recursion too.
        if path.contains(&name) || path.len() > MAX_DEPTH {
            let shown = clean_line(name, 60);
            return Err(wrong(format!("`$ref` to `{shown}` in `args` goes in a circle, or too deep"), "write the schema out"));
        }
        if done.contains(name) {
            return Ok(());
        }
        path.push(name);
        for next in self.edges.get(name).into_iter().flatten() {
            self.visit(next, path, done)?;
        }
        path.pop();
        done.insert(name);
        Ok(())
    }
}

fn shape(keyword: &str, at: &str) -> Result<Shape, SchemaError> {
    let current = &KEYWORDS[..KEYWORDS.len() - OLD_WORDS];
    if let Some((_, shape)) = current.iter().find(|(name, _)| *name == keyword) {
        return Ok(*shape);
    }
    let hint = match keyword {
        "definitions" => "did you mean `$defs`?".to_owned(),
        "additionalItems" => "did you mean `items`?".to_owned(),
        "dependencies" => "did you mean `dependentRequired` or `dependentSchemas`?".to_owned(),
        "default" | "examples" => "it would change nothing; leave it out".to_owned(),
        _ => {
            let names: Vec<&str> = current.iter().map(|(name, _)| *name).collect();
            match super::nearest::nearest(keyword, &names) {
                Some(_) => did_you_mean(keyword, &names),
                None => "names of arguments stand under `properties`; see https://json-schema.org/draft/2020-12".to_owned(),
            }
        }
    };
    Err(wrong(format!("unknown keyword `{}` in the JSON Schema at `args{}`", clean_line(keyword, 60), clean_line(at, 100)), hint))
}

fn wrong(message: impl Into<String>, hint: impl Into<String>) -> SchemaError {
    SchemaError { message: message.into(), hint: hint.into() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn refuses_a_schema_that_would_not_bite() {
        for (schema, message, hint) in [
            (json!({}), "`args` is empty", "leave `args` out"),
            (json!({"type": "string"}), "never matches", "type = \"object\""),
            (json!({"propertys": {}}), "unknown keyword `propertys`", "did you mean `properties`?"),
            (json!({"properties": {"a": {"patern": "x"}}}), "`args/properties/a/patern`", "did you mean `pattern`?"),
            (json!({"repo": "acme"}), "unknown keyword `repo`", "under `properties`"),
            (json!({"properties": {"a": {"default": 1}}}), "unknown keyword `default`", "change nothing"),
            (json!({"properties": {"a": "string"}}), "must be a table, not a string", "a table, or true or false"),
            (json!({"definitions": {}}), "unknown keyword `definitions`", "`$defs`"),
            (json!({"$schema": "http://json-schema.org/draft-07/schema"}), "unknown keyword `$schema`", ""),
            (json!({"then": {"required": ["a"]}}), "`then` in `args` does nothing without `if`", "add `if`"),
            (json!({"$ref": "https://example.com/schema.json"}), "refers to", "nothing is fetched"),
            (json!({"$ref": "file:///etc/passwd"}), "refers to", "nothing is fetched"),
            (json!({"$ref": "#"}), "refers to", "#/$defs/NAME"),
            (json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}), "goes in a circle", "write the schema out"),
            (
                json!({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}}}),
                "goes in a circle",
                "write",
            ),
            (json!({"$ref": "#/$defs/none"}), "not a valid JSON Schema", "json-schema.org"),
            (json!({"properties": {"a": {"pattern": "("}}}), "not a valid JSON Schema", "look-around"),
            (json!({"properties": {"a": {"pattern": "(?=x)"}}}), "not a valid JSON Schema", "look-around"),
            (json!({"properties": {"a": {"pattern": "(a)\\1"}}}), "not a valid JSON Schema", "look-around"),
            (json!({"properties": {"a": {"format": "emial"}}}), "not a valid JSON Schema", ""),
            (json!({"properties": {"a": {"type": "text"}}}), "not a valid JSON Schema", ""),
            (json!({"required": "a"}), "not a valid JSON Schema", ""),
        ] {
            let error = ArgsRule::compile(schema.clone()).expect_err(&schema.to_string());
            assert!(error.message.contains(message), "{schema}: {}", error.message);
            assert!(error.hint.contains(hint), "{schema}: {}", error.hint);
        }
    }

    #[test]
    fn refuses_a_schema_that_is_too_large() {
        let mut deep = json!({"type": "object"});
        for _ in 0..100 {
            deep = json!({"not": deep});
        }
        let wide = json!({"allOf": (0..10_000).map(|_| json!({"minProperties": 1})).collect::<Vec<_>>()});
        for schema in [deep, wide] {
            assert!(ArgsRule::compile(schema).expect_err("too large").message.contains("too large or too deep"));
        }
    }

    #[test]
    fn says_where_the_arguments_differ() {
        let rule = ArgsRule::compile(json!({
            "required": ["repo"],
            "properties": {"repo": {"type": "string", "pattern": "^acme/"}, "n": {"$ref": "#/$defs/small"}},
            "$defs": {"small": {"type": "integer", "maximum": 9}}
        }))
        .expect("valid");
        assert!(rule.matches(&json!({"repo": "acme/x", "n": 9, "extra": [1]})));
        for (arguments, pointer, reason) in [
            (json!({}), "", "\"repo\" is a required property"),
            (json!({"repo": "evil/x"}), "/repo", "does not match \"^acme/\""),
            (json!({"repo": 5}), "/repo", "is not of type \"string\""),
            (json!({"repo": "acme/x", "n": 10}), "/n", "10 is greater than the maximum of 9"),
            (json!({"repo": "acme/x", "n": 18446744073709551615u64}), "/n", "greater than the maximum"),
            (json!({"repo": "acme/x", "n": 1.5}), "/n", "is not of type \"integer\""),
        ] {
            assert!(!rule.matches(&arguments));
            let (at, why) = rule.mismatch(&arguments).expect("a mismatch");
            assert_eq!(at, pointer);
            assert!(why.contains(reason), "{why}");
        }
        let (_, why) = rule.mismatch(&json!({"repo": "x".repeat(100_000)})).expect("a mismatch");
        assert!(why.len() < 400, "{}", why.len());
    }

    #[test]
    fn a_pattern_takes_linear_time() {
        let rule = ArgsRule::compile(json!({"properties": {"a": {"pattern": "^(a+)+$"}}})).expect("valid");
        assert!(!rule.matches(&json!({"a": format!("{}!", "a".repeat(200_000))})));
    }

    #[test]
    fn names_what_a_schema_leaves_open() {
        let open = ArgsRule::compile(json!({"properties": {"repo": {"pattern": "^acme/"}}})).expect("valid");
        assert_eq!(open.gaps().len(), 2, "{:?}", open.gaps());
        let closed = json!({"required": ["repo"], "properties": {"repo": {"type": "string", "pattern": "^acme/"}, "x": false}});
        assert!(ArgsRule::compile(closed).expect("valid").gaps().is_empty());
    }

    fn small_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3i64..12).prop_map(Value::from),
            "[ab/]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 8, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[abc]", inner, 0..3).prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn property_schema() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(json!({"type": "string", "pattern": "^a"})),
            Just(json!({"type": "integer", "minimum": 0, "maximum": 5})),
            Just(json!({"enum": ["a", 1, null]})),
            Just(json!({"const": "b"})),
            Just(json!({"items": {"type": "boolean"}})),
            Just(json!({"not": {"type": "null"}})),
            Just(json!(true)),
        ]
    }

    proptest! {
        /// The oracle is `jsonschema` with its defaults, on the schema as it stands.
        #[test]
        fn agrees_with_jsonschema(
            a in property_schema(), b in property_schema(), closed: bool, required in prop::collection::vec("[abc]", 0..2),
            arguments in prop::collection::btree_map("[abc]", small_json(), 0..4)
        ) {
            let schema = json!({"properties": {"a": a, "b": b}, "required": required, "additionalProperties": !closed});
            let arguments = Value::Object(arguments.into_iter().collect());
            if let Ok(rule) = ArgsRule::compile(schema.clone()) {
                let expected = jsonschema::is_valid(&schema, &arguments);
                prop_assert_eq!(rule.matches(&arguments), expected);
                prop_assert_eq!(rule.mismatch(&arguments).is_none(), expected);
            }
        }
    }
}
