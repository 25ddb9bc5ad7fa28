//! YAML read strictly: no aliases, no tags, no repeated keys, one document, bounded depth; every value knows its line.

use yaml_rust2::Event;
use yaml_rust2::parser::Parser;

use super::ImportError;
use crate::text::clean_line;

/// Deeper than any policy.
const MAX_DEPTH: usize = 16;

/// A value.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    /// Any scalar, as it is written, without its quotes.
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Node {
    pub(super) fn error(&self, message: impl Into<String>) -> ImportError {
        ImportError { line: self.line, message: message.into() }
    }

    /// The fields of a map; an empty value is an empty map.
    pub(super) fn map(&self, name: &str) -> Result<&[(String, Self)], ImportError> {
        match &self.value {
            Value::Map(fields) => Ok(fields),
            Value::Scalar(text) if is_null(text) => Ok(&[]),
            _ => Err(self.error(format!("`{name}` must be a map"))),
        }
    }

    /// The items of a list; an empty value is an empty list.
    pub(super) fn list(&self, name: &str) -> Result<&[Self], ImportError> {
        match &self.value {
            Value::List(items) => Ok(items),
            Value::Scalar(text) if is_null(text) => Ok(&[]),
            _ => Err(self.error(format!("`{name}` must be a list"))),
        }
    }

    pub(super) fn text(&self, name: &str) -> Result<&str, ImportError> {
        match &self.value {
            Value::Scalar(text) => Ok(text),
            _ => Err(self.error(format!("`{name}` must be a single value"))),
        }
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null")
}

/// What is begun and not ended.
enum Open {
    List(usize, Vec<Node>),
    Map(usize, Vec<(String, Node)>, Option<String>),
}

/// Reads one document. The parser is asked for one event after the other, so that no nesting can exhaust the stack.
pub(super) fn read(text: &str) -> Result<Node, ImportError> {
    let mut parser = Parser::new_from_str(text);
    let mut open: Vec<Open> = Vec::new();
    let mut document = None;
    loop {
        let (event, mark) = parser.next_token().map_err(|error| ImportError {
            line: error.marker().line(),
            message: format!("this is not YAML: {}", clean_line(error.info(), 200)),
        })?;
        let line = mark.line();
        let fail = |message: &str| Err(ImportError { line, message: message.to_owned() });
        let node = match event {
            Event::StreamEnd => break,
            Event::Alias(_) => return fail("aliases (`*name`) are not read: write the value out"),
            Event::Scalar(_, _, _, Some(_)) | Event::SequenceStart(_, Some(_)) | Event::MappingStart(_, Some(_)) => {
                return fail("tags (`!name`) are not read");
            }
            Event::SequenceStart(..) | Event::MappingStart(..) if open.len() >= MAX_DEPTH => {
                return fail("it is nested too deeply");
            }
            Event::SequenceStart(..) => {
                open.push(Open::List(line, Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                open.push(Open::Map(line, Vec::new(), None));
                continue;
            }
            Event::Scalar(text, ..) => Node { line, value: Value::Scalar(text) },
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::List(line, items)) => Node { line, value: Value::List(items) },
                Some(Open::Map(line, fields, _)) => Node { line, value: Value::Map(fields) },
                None => return fail("it ends what was not begun"),
            },
            Event::DocumentStart if document.is_some() => return fail("there is more than one document"),
            _ => continue,
        };
        match open.last_mut() {
            None => document = Some(node),
            Some(Open::List(_, items)) => items.push(node),
            Some(Open::Map(_, fields, key @ None)) => {
                let Value::Scalar(name) = node.value else { return fail("a key must be a single value") };
                if fields.iter().any(|(known, _)| *known == name) {
                    return fail(&format!("`{}` appears twice", clean_line(&name, 60)));
                }
                *key = Some(name);
            }
            Some(Open::Map(_, fields, key)) => fields.extend(key.take().map(|key| (key, node))),
        }
    }
    document.ok_or_else(|| ImportError { line: 1, message: "the file is empty".to_owned() })
}
