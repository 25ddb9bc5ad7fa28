//! Checks what a plugin says about its tools. All of it is text from a stranger that a model will read.

mod schema;

use std::collections::HashSet;

use serde_json::{Map, Value};
use thiserror::Error;

use super::load::LoadLimits;
use crate::json;
use crate::text;
use crate::tool::{ErrorCode, Failure, ToolHints};

/// The longest tool name, in bytes.
const MAX_NAME: usize = 64;

/// Bytes kept of a title.
const MAX_TITLE: usize = 256;

/// Bytes of a plugin's words in a message.
const MAX_QUOTE: usize = 200;

/// One tool as the plugin's `list-tools` returned it.
#[derive(Clone, Debug, Default)]
pub struct RawTool {
    /// The name.
    pub name: String,
    /// A short name for people.
    pub title: Option<String>,
    /// What the tool does.
    pub description: String,
    /// JSON Schema of the arguments, as text.
    pub input_schema: String,
    /// JSON Schema of the result, as text.
    pub output_schema: Option<String>,
    /// What the tool promises.
    pub hints: ToolHints,
}

/// One tool that was checked, with its schemas compiled.
#[derive(Debug)]
pub struct PluginTool {
    /// The name: 1 to 64 of `a-z A-Z 0-9 _ -`, unique within the plugin.
    pub name: String,
    /// A short name for people, on one line, bounded and cleaned.
    pub title: Option<String>,
    /// What the tool does, bounded and cleaned.
    pub description: String,
    /// JSON Schema of the arguments; the root is an object with `type` and `properties`.
    pub input_schema: Value,
    /// JSON Schema of the structured result; the root is an object.
    pub output_schema: Option<Value>,
    /// What the tool promises.
    pub hints: ToolHints,
    /// Checks arguments.
    pub validator: jsonschema::Validator,
    /// Checks the structured result, if there is a schema for it.
    pub output_validator: Option<jsonschema::Validator>,
}

/// What is wrong with a plugin's list of tools.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// An empty list.
    #[error("the plugin lists no tools")]
    None,
    /// Too long a list.
    #[error("the plugin lists {found} tools, more than the {limit} allowed")]
    TooMany {
        /// How many.
        found: usize,
        /// How many may be.
        limit: usize,
    },
    /// A name outside the grammar.
    #[error("tool {index} is named `{name}`, which is not 1 to 64 of `a-z A-Z 0-9 _ -`")]
    Name {
        /// Which tool, from 0.
        index: usize,
        /// The name, cleaned.
        name: String,
    },
    /// A name that is there twice.
    #[error("two tools are named `{0}`")]
    Duplicate(String),
    /// A schema is too long, too deep, or expands to too much.
    #[error("tool `{tool}`: the {which} schema has {what}")]
    SchemaLimit {
        /// The tool's name.
        tool: String,
        /// `input` or `output`.
        which: &'static str,
        /// What there is too much of.
        what: String,
    },
    /// A schema that is not one, or that this host does not take.
    #[error("tool `{tool}`: the {which} schema {what}")]
    Schema {
        /// The tool's name.
        tool: String,
        /// `input` or `output`.
        which: &'static str,
        /// What is wrong, as a sentence without its subject.
        what: String,
    },
}

impl MetadataError {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::TooMany { .. } | Self::SchemaLimit { .. } => ErrorCode::LOAD_LIMIT,
            _ => ErrorCode::LOAD_INVALID,
        }
    }
}

impl From<MetadataError> for Failure {
    fn from(error: MetadataError) -> Self {
        let failure = Self::new(error.code(), error.to_string());
        match error {
            MetadataError::TooMany { .. } => failure.hint("split the plugin, or raise `tools`"),
            MetadataError::SchemaLimit { .. } => failure.hint("describe the arguments more simply, or raise `schema_bytes`"),
            MetadataError::Name { .. } | MetadataError::Duplicate(_) => failure.hint("rename the tool in the plugin"),
            MetadataError::Schema { .. } => failure.hint("the root must be a JSON Schema object without remote references"),
            MetadataError::None => failure,
        }
    }
}

/// Checks a plugin's list of tools. Keeps its order.
///
/// # Errors
///
/// Names the first tool that is wrong, and how. A plugin is taken whole or not at all.
pub fn check_tools(tools: Vec<RawTool>, limits: &LoadLimits) -> Result<Vec<PluginTool>, MetadataError> {
    if tools.is_empty() {
        return Err(MetadataError::None);
    }
    if tools.len() > limits.tools {
        return Err(MetadataError::TooMany { found: tools.len(), limit: limits.tools });
    }
    let mut names = HashSet::new();
    tools
        .into_iter()
        .enumerate()
        .map(|(index, tool)| {
            if !is_tool_name(&tool.name) {
                return Err(MetadataError::Name { index, name: text::clean_line(&tool.name, MAX_NAME) });
            }
            if !names.insert(tool.name.clone()) {
                return Err(MetadataError::Duplicate(tool.name));
            }
            check_tool(tool, limits)
        })
        .collect()
}

/// Whether a tool may have this name.
pub fn is_tool_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

fn check_tool(tool: RawTool, limits: &LoadLimits) -> Result<PluginTool, MetadataError> {
    let (input_schema, validator) = check_schema(&tool.name, "input", &tool.input_schema, limits)?;
    let output = tool.output_schema.map(|text| check_schema(&tool.name, "output", &text, limits)).transpose()?;
    let (output_schema, output_validator) = output.unzip();
    Ok(PluginTool {
        title: tool.title.map(|title| text::clean_line(&title, MAX_TITLE)).filter(|title| !title.trim().is_empty()),
        description: text::clean(&tool.description, limits.description_bytes).into_owned(),
        name: tool.name,
        input_schema,
        output_schema,
        hints: tool.hints,
        validator,
        output_validator,
    })
}

fn check_schema(
    tool: &str,
    which: &'static str,
    source: &str,
    limits: &LoadLimits,
) -> Result<(Value, jsonschema::Validator), MetadataError> {
    let wrong = |what: String| MetadataError::Schema { tool: tool.to_owned(), which, what };
    if source.len() > limits.schema_bytes {
        let what = format!("{} bytes, more than the {} allowed", source.len(), limits.schema_bytes);
        return Err(MetadataError::SchemaLimit { tool: tool.to_owned(), which, what });
    }
    let value = json::parse_value(source).map_err(|error| wrong(format!("is {}", text::clean_line(&error, MAX_QUOTE))))?;
    let Value::Object(mut root) = value else {
        return Err(wrong(format!("is {}, not an object", json::kind(&value))));
    };
    complete_root(&mut root).map_err(&wrong)?;
    let mut schema = Value::Object(root);
    schema::clean(&mut schema).map_err(&wrong)?;
    schema::check(&schema).map_err(|fault| match fault {
        schema::Fault::Limit(what) => MetadataError::SchemaLimit { tool: tool.to_owned(), which, what },
        schema::Fault::Wrong(what) => wrong(what),
    })?;
    let validator =
        schema::compile(&schema).map_err(|error| wrong(format!("is not valid: {}", text::clean_line(&error, MAX_QUOTE))))?;
    Ok((schema, validator))
}

/// Makes the root what every model's API wants: `"type": "object"` and `properties`, said outright.
fn complete_root(root: &mut Map<String, Value>) -> Result<(), String> {
    match root.get("type") {
        Some(Value::String(kind)) if kind == "object" => {}
        Some(other) => return Err(format!("has the type {}, not `object`", text::clean_line(&other.to_string(), MAX_QUOTE))),
        None => {
            root.insert("type".to_owned(), Value::from("object"));
        }
    }
    match root.get("properties") {
        Some(Value::Object(_)) => Ok(()),
        Some(other) => Err(format!("has `properties` that are {}, not an object", json::kind(other))),
        None => {
            root.insert("properties".to_owned(), Value::Object(Map::new()));
            Ok(())
        }
    }
}

/// For fuzzing: any text as every field of a tool gives a tool or an error, and a tool's validator ends.
#[doc(hidden)]
pub fn fuzz_tool_metadata(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let tool = RawTool {
        name: "tool".to_owned(),
        title: Some(text.clone()),
        description: text.clone(),
        input_schema: text.clone(),
        output_schema: Some(text.clone()),
        hints: ToolHints::default(),
    };
    let named = RawTool { name: text.clone(), input_schema: "{}".to_owned(), ..RawTool::default() };
    for tool in [tool, named] {
        if let Ok(tools) = check_tools(vec![tool], &LoadLimits::default()) {
            for tool in tools {
                assert!(is_tool_name(&tool.name) && !tool.description.chars().any(text::is_hidden));
                let _ = tool.validator.is_valid(&serde_json::from_str(&text).unwrap_or(Value::Null));
            }
        }
    }
}

#[cfg(test)]
mod tests;
