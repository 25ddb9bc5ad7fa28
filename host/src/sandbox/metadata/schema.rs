//! JSON Schemas from strangers: cleaned, bounded in what they cost to evaluate, and closed in themselves.
//!
//! The host evaluates a schema without fuel or deadline, so a schema must not be able to make it slow: no backtracking patterns, no
//! references that multiply (ten definitions that each name the next one eight times are a billion evaluations), and none that go round.

use std::collections::HashMap;

use jsonschema::PatternOptions;
use serde_json::Value;

use crate::text;

/// How deep a schema may be nested.
const MAX_DEPTH: usize = 48;

/// How many subschemas there may be, with every reference written out.
const MAX_EXPANDED: u64 = 20_000;

/// Bytes that one compiled pattern may take.
const MAX_PATTERN: usize = 256 * 1024;

/// Keywords whose value is one schema, or a list of them.
const ONE: [&str; 20] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "extends",
    "disallow",
    "dependencies",
    "type",
];

/// Keywords whose value is an object of schemas.
const MANY: [&str; 6] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];

/// Bytes of a schema's words in a message.
const MAX_QUOTE: usize = 100;

/// Why a schema was refused.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Fault {
    /// Too much of something; completes "the schema has".
    Limit(String),
    /// Something that is not taken; completes "the schema".
    Wrong(String),
}

/// Removes invisible characters where a schema explains itself, and refuses them where they would mean something.
///
/// Dropping a character from a property's name or an `enum` would make the tool refuse what the model was told to send.
pub(super) fn clean(value: &mut Value) -> Result<(), String> {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                if key.chars().any(text::is_hidden) {
                    return Err(format!("has a key with invisible characters, `{}`", text::clean_line(key, MAX_QUOTE)));
                }
                match value {
                    Value::String(words) if matches!(key.as_str(), "title" | "description" | "$comment") => {
                        let cleaned = text::clean(words, usize::MAX).into_owned();
                        *words = cleaned;
                    }
                    value => clean(value)?,
                }
            }
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(clean),
        Value::String(words) if words.chars().any(text::is_hidden) => {
            Err(format!("has a value with invisible characters, `{}`", text::clean_line(words, MAX_QUOTE)))
        }
        _ => Ok(()),
    }
}

/// Bounds depth and size, and holds references to those within the schema that come to an end.
pub(super) fn check(root: &Value) -> Result<(), Fault> {
    let mut walk = Walk { root, targets: HashMap::new() };
    let expanded = walk.cost(root, 0)?;
    if expanded > MAX_EXPANDED {
        return Err(Fault::Limit(format!("more than {MAX_EXPANDED} parts when its references are written out")));
    }
    Ok(())
}

/// Compiles a schema that [`check`] has passed. Nothing is fetched: the crate is built without a way to.
pub(super) fn compile(schema: &Value) -> Result<jsonschema::Validator, String> {
    jsonschema::options()
        // The linear-time engine; the default one backtracks.
        .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN).dfa_size_limit(MAX_PATTERN))
        .build(schema)
        .map_err(|error| error.to_string())
}

/// Adds up what evaluating a schema may visit.
struct Walk<'a> {
    root: &'a Value,
    /// What each referenced part costs; nothing while it is being added up.
    targets: HashMap<&'a str, Option<u64>>,
}

impl<'a> Walk<'a> {
    fn cost(&mut self, schema: &'a Value, depth: usize) -> Result<u64, Fault> {
        if depth > MAX_DEPTH {
            return Err(Fault::Limit(format!("more than {MAX_DEPTH} levels")));
        }
        let map = match schema {
            Value::Object(map) => map,
            // Where a keyword takes a list, each item is one schema.
            Value::Array(items) => {
                return items.iter().try_fold(0_u64, |sum, item| Ok(sum.saturating_add(self.cost(item, depth + 1)?)));
            }
            _ => return Ok(1),
        };
        let mut sum = 1_u64;
        for (key, value) in map {
            let cost = match (key.as_str(), value) {
                ("$ref", Value::String(target)) => self.reference(target, depth)?,
                ("$dynamicRef" | "$recursiveRef", Value::String(_)) => {
                    return Err(Fault::Wrong(format!("uses `{key}`, which is not supported")));
                }
                // Another base would give every `#` below it another meaning.
                ("$id" | "id", Value::String(_)) if depth > 0 => {
                    return Err(Fault::Wrong("has an `$id` below its root, which is not supported".to_owned()));
                }
                (key, Value::Object(schemas)) if MANY.contains(&key) => {
                    let mut sum = 0_u64;
                    for schema in schemas.values() {
                        sum = sum.saturating_add(self.cost(schema, depth + 1)?);
                    }
                    // Definitions cost where they are referred to.
                    if matches!(key, "$defs" | "definitions") { 0 } else { sum }
                }
                (key, value) if ONE.contains(&key) => self.cost(value, depth + 1)?,
                _ => 0,
            };
            sum = sum.saturating_add(cost);
        }
        Ok(sum)
    }

    fn reference(&mut self, target: &'a str, depth: usize) -> Result<u64, Fault> {
        let quoted = || text::clean_line(target, MAX_QUOTE);
        match self.targets.get(target) {
            Some(Some(cost)) => return Ok(*cost),
            Some(None) => {
                return Err(Fault::Wrong(format!(
                    "refers to itself through `{}`; write out as many levels as are needed",
                    quoted()
                )));
            }
            None => {}
        }
        // `#/…` (RFC 6901, section 6); anchors and other documents are not taken.
        let pointer = target.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let Some(pointer) = pointer else {
            return Err(Fault::Wrong(format!("refers to `{}`; only `#/…` within the schema is allowed", quoted())));
        };
        if pointer.contains('%') {
            return Err(Fault::Wrong(format!("refers to `{}`, which is percent-encoded", quoted())));
        }
        let found =
            self.root.pointer(pointer).ok_or_else(|| Fault::Wrong(format!("refers to `{}`, which is not there", quoted())))?;
        self.targets.insert(target, None);
        let cost = self.cost(found, depth + 1)?;
        self.targets.insert(target, Some(cost));
        Ok(cost)
    }
}
