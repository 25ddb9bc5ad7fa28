//! TOML read strictly: every value knows its line, and what is not understood is an error.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::error::Findings;
use super::grant::RuleRef;
use super::nearest::did_you_mean;
use super::units;
use crate::text::clean_line;

/// Syntax errors beyond this number are mostly echoes of the first.
const MAX_SYNTAX_ERRORS: usize = 5;

/// A text, and what was found wrong in it.
pub(super) struct Source<'a> {
    name: Arc<str>,
    text: &'a str,
    line_starts: Vec<usize>,
    pub(super) findings: RefCell<Findings>,
}

impl<'a> Source<'a> {
    pub(super) fn new(name: Arc<str>, text: &'a str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(index, _)| index + 1);
        let line_starts = std::iter::once(0).chain(breaks).collect();
        Self { name, text, line_starts, findings: RefCell::default() }
    }

    /// Parses the text. A syntax error is reported, and there is then nothing to read.
    pub(super) fn parse(&self, max_bytes: usize) -> Option<DeTable<'a>> {
        if self.text.len() > max_bytes {
            let message = format!("the text has {} bytes, more than the {max_bytes} allowed", self.text.len());
            self.error(0..0, message, "remove rules, or use `*` at the end of tool names");
            return None;
        }
        let (document, errors) = DeTable::parse_recoverable(self.text);
        if errors.is_empty() {
            return Some(document.into_inner());
        }
        for error in errors.iter().take(MAX_SYNTAX_ERRORS) {
            let message = clean_line(error.message(), 200);
            let hint = match message.as_str() {
                "duplicate key" => "name each key and each table once; several rules of one kind are written `[[…]]`",
                _ => "this is not TOML; see https://toml.io",
            };
            self.error(error.span().unwrap_or(0..0), message, hint);
        }
        None
    }

    pub(super) fn error(&self, span: Range<usize>, message: impl Into<String>, hint: impl Into<String>) {
        let (line, column) = self.position(span.start);
        let rule = RuleRef { file: Arc::clone(&self.name), line };
        self.findings.borrow_mut().error_at(&rule, column, message.into(), hint.into());
    }

    pub(super) fn rule(&self, span: &Range<usize>) -> RuleRef {
        RuleRef { file: Arc::clone(&self.name), line: self.position(span.start).0 }
    }

    /// Line and column, both from 1; the column counts characters.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let start = self.line_starts[line - 1];
        (line, self.text[start..offset].chars().count() + 1)
    }
}

/// A table whose fields are read by name.
#[derive(Clone)]
pub(super) struct Table<'a> {
    pub(super) source: &'a Source<'a>,
    /// How messages call it: `[[plugins.x.net]]`.
    pub(super) title: String,
    pub(super) span: Range<usize>,
    entries: &'a DeTable<'a>,
}

impl<'a> Table<'a> {
    pub(super) fn root(source: &'a Source<'a>, entries: &'a DeTable<'a>) -> Self {
        Self { source, title: "the top level".to_owned(), span: 0..0, entries }
    }

    /// Reports every field that is not in `known`.
    pub(super) fn expect_only(&self, known: &[&str]) {
        for field in self.fields() {
            if !known.contains(&field.name) {
                let message = format!("unknown field `{}` in {}", clean_line(field.name, 60), self.title);
                self.source.error(field.key_span.clone(), message, did_you_mean(field.name, known));
            }
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<Field<'a>> {
        let (key, value) = self.entries.get_key_value(name)?;
        Some(Field { source: self.source, name: key.get_ref(), key_span: key.span(), span: value.span(), value: value.get_ref() })
    }

    /// The field, or an error that says how to write it.
    pub(super) fn require(&self, name: &str, example: &str) -> Option<Field<'a>> {
        let field = self.get(name);
        if field.is_none() {
            let message = format!("{} has no `{name}`", self.title);
            self.source.error(self.span.clone(), message, format!("add `{example}`"));
        }
        field
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = Field<'a>> + use<'a> {
        let source = self.source;
        self.entries.iter().map(move |(key, value)| Field {
            source,
            name: key.get_ref(),
            key_span: key.span(),
            span: value.span(),
            value: value.get_ref(),
        })
    }

    pub(super) fn rule(&self) -> RuleRef {
        self.source.rule(&self.span)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Reads an array of tables, `[[TITLE.name]]`, of at most `max`.
    pub(super) fn tables(&self, name: &str, title: &str, max: usize) -> Vec<Table<'a>> {
        let Some(field) = self.get(name) else { return Vec::new() };
        let DeValue::Array(items) = field.value else {
            field.error(
                format!("`{name}` must be a list of tables"),
                format!("write `{title}` with two brackets, once for each rule"),
            );
            return Vec::new();
        };
        if items.len() > max {
            let message = format!("{} entries of `{title}`, more than the {max} allowed", items.len());
            field.error(message, "merge rules, or use `*` where names allow it");
            return Vec::new();
        }
        let each = items.iter().filter_map(|item| match item.get_ref() {
            DeValue::Table(entries) => {
                Some(Table { source: self.source, title: format!("`{title}`"), span: item.span(), entries })
            }
            other => {
                let message = format!("`{name}` holds {}, where each entry must be a table", describe(other));
                self.source.error(item.span(), message, format!("write `{title}` with two brackets, once for each rule"));
                None
            }
        });
        each.collect()
    }

    /// Reads a table `[TITLE.name]`.
    pub(super) fn table(&self, name: &str, title: &str) -> Option<Table<'a>> {
        self.get(name)?.table(title)
    }
}

/// One value, its name and its place.
#[derive(Clone)]
pub(super) struct Field<'a> {
    pub(super) source: &'a Source<'a>,
    pub(super) name: &'a str,
    pub(super) key_span: Range<usize>,
    pub(super) span: Range<usize>,
    value: &'a DeValue<'a>,
}

impl<'a> Field<'a> {
    pub(super) fn error(&self, message: impl Into<String>, hint: impl Into<String>) {
        self.source.error(self.span.clone(), message, hint);
    }

    pub(super) fn rule(&self) -> RuleRef {
        self.source.rule(&self.key_span)
    }

    fn wrong_type(&self, wanted: &str, example: &str) {
        let name = clean_line(self.name, 60);
        self.error(format!("`{name}` must be {wanted}, not {}", describe(self.value)), format!("write `{name} = {example}`"));
    }

    pub(super) fn table(&self, title: &str) -> Option<Table<'a>> {
        match self.value {
            DeValue::Table(entries) => {
                Some(Table { source: self.source, title: format!("`{title}`"), span: self.span.clone(), entries })
            }
            other => {
                let message = format!("`{}` must be a table, not {}", clean_line(self.name, 60), describe(other));
                self.error(message, format!("write `{title}` and its fields below it"));
                None
            }
        }
    }

    /// Whether the value is a string; then [`Field::text`] cannot fail.
    pub(super) fn is_text(&self) -> bool {
        self.value.is_str()
    }

    pub(super) fn text(&self, example: &str) -> Option<&'a str> {
        let text = self.value.as_str();
        if text.is_none() {
            self.wrong_type("a string", example);
        }
        text
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        let value = self.value.as_bool();
        if value.is_none() {
            self.wrong_type("true or false", "true");
        }
        value
    }

    /// A whole number from `min` to `max`.
    pub(super) fn count(&self, min: u64, max: u64, example: &str) -> Option<u64> {
        let DeValue::Integer(integer) = self.value else {
            self.wrong_type("a whole number", example);
            return None;
        };
        self.in_range(u64::from_str_radix(integer.as_str(), integer.radix()).ok(), min, max, example, |bound| bound.to_string())
    }

    /// A size: `"128MiB"`, or a number of bytes.
    pub(super) fn size(&self, min: u64, max: u64, example: &str) -> Option<u64> {
        let bytes = match self.value {
            DeValue::Integer(integer) => u64::from_str_radix(integer.as_str(), integer.radix()).ok(),
            DeValue::String(text) => match units::parse_size(text) {
                Ok(bytes) => Some(bytes),
                Err((message, hint)) => {
                    self.error(message, hint);
                    return None;
                }
            },
            _ => {
                self.wrong_type("a size", example);
                return None;
            }
        };
        self.in_range(bytes, min, max, example, units::format_size)
    }

    /// A duration, in milliseconds.
    pub(super) fn duration(&self, min: u64, max: u64, example: &str) -> Option<u64> {
        let Some(text) = self.value.as_str() else {
            self.wrong_type("a duration in quotes", example);
            return None;
        };
        match units::parse_duration(text) {
            Ok(duration) => {
                let millis = u64::try_from(duration.as_millis()).ok();
                self.in_range(millis, min, max, example, |millis| {
                    units::format_duration(std::time::Duration::from_millis(millis))
                })
            }
            Err((message, hint)) => {
                self.error(message, hint);
                None
            }
        }
    }

    fn in_range(&self, value: Option<u64>, min: u64, max: u64, example: &str, show: impl Fn(u64) -> String) -> Option<u64> {
        let name = clean_line(self.name, 60);
        let hint = format!("from {} to {}; for example `{name} = {example}`", show(min), show(max));
        match value {
            Some(0) if min > 0 => self.error(format!("`{name}` is zero, which would stop every call"), hint),
            Some(value) if value < min => self.error(format!("`{name}` is too small"), hint),
            Some(value) if value <= max => return Some(value),
            Some(_) => self.error(format!("`{name}` is too large"), hint),
            None => self.error(format!("`{name}` is negative or too large"), hint),
        }
        None
    }

    /// One of a closed list of words.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        let text = self.text(&format!("\"{}\"", names[0]))?;
        let found = words.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        if found.is_none() {
            self.error(format!("`{}` has no value `{}`", self.name, clean_line(text, 60)), did_you_mean(text, &names));
        }
        found
    }

    /// A list of strings, each with its place.
    pub(super) fn texts(&self, example: &str) -> Option<Vec<Field<'a>>> {
        let DeValue::Array(items) = self.value else {
            self.wrong_type("a list of strings", example);
            return None;
        };
        let fields: Vec<Field<'a>> = items
            .iter()
            .map(|item| Field {
                source: self.source,
                name: self.name,
                key_span: self.key_span.clone(),
                span: item.span(),
                value: item.get_ref(),
            })
            .collect();
        for field in &fields {
            if !field.is_text() {
                field.wrong_type("a list of strings", example);
                return None;
            }
        }
        Some(fields)
    }

    /// The value as JSON. TOML's dates, and numbers that JSON does not have, are errors.
    pub(super) fn json(&self) -> Option<Value> {
        let found = to_json(self.value);
        if let Err(message) = &found {
            self.error(format!("`{}`: {message}", self.name), "write it as a string, or as a number that JSON has");
        }
        found.ok()
    }
}

/// Converts TOML to JSON. The parser bounds the depth, so the recursion ends.
fn to_json(value: &DeValue<'_>) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(text) => Value::String(text.clone().into_owned()),
        DeValue::Boolean(boolean) => Value::Bool(*boolean),
        DeValue::Integer(integer) => {
            let signed = i64::from_str_radix(integer.as_str(), integer.radix()).map(Value::from);
            let number = signed.or_else(|_| u64::from_str_radix(integer.as_str(), integer.radix()).map(Value::from));
            number.map_err(|_| format!("the number `{}` is too large", clean_line(integer.as_str(), 40)))?
        }
        DeValue::Float(float) => {
            let number = float.as_str().parse::<f64>().ok().and_then(serde_json::Number::from_f64);
            Value::Number(number.ok_or_else(|| format!("`{}` is not a JSON number", clean_line(float.as_str(), 40)))?)
        }
        DeValue::Datetime(date) => return Err(format!("`{date}` is a date, which JSON does not have")),
        DeValue::Array(items) => Value::Array(items.iter().map(|item| to_json(item.get_ref())).collect::<Result<_, _>>()?),
        DeValue::Table(table) => {
            let entries = table.iter().map(|(key, value)| Ok((key.get_ref().clone().into_owned(), to_json(value.get_ref())?)));
            Value::Object(entries.collect::<Result<_, String>>()?)
        }
    })
}

fn describe(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
