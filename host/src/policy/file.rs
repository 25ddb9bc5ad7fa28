//! Reads one policy file: everything it states, with the line of each statement.

pub(super) mod capability;
pub(super) mod http;
pub(super) mod tools;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::document::{Field, Source, Table};
use super::error::Findings;
use super::grant::{FsGrant, KvGrant, RuleRef};
use super::limits::{FIELDS, Unit};
use super::net::NetGrant;
use super::rules::ToolRule;
use crate::text::clean_line;

/// The largest policy file, in bytes.
pub const MAX_FILE_BYTES: usize = 1024 * 1024;
const MAX_PLUGINS: usize = 1_000;
/// The longest plugin id. Model-visible names, `plugin__tool`, have room for 64 characters in all.
const MAX_ID: usize = 48;

/// What one file states. `None` and empty mean that it says nothing.
#[derive(Debug, Default)]
pub(super) struct FilePolicy {
    pub(super) limits: StatedLimits,
    pub(super) plugins: BTreeMap<String, FilePlugin>,
}

/// What one file states about one plugin.
#[derive(Debug)]
pub(super) struct FilePlugin {
    pub(super) rule: RuleRef,
    pub(super) source: Option<Stated<String>>,
    pub(super) sha256: Option<Stated<String>>,
    pub(super) limits: StatedLimits,
    pub(super) tools: Vec<ToolRule>,
    pub(super) net: Vec<NetGrant>,
    pub(super) fs: Vec<FsGrant>,
    pub(super) kv: Option<KvGrant>,
    pub(super) env: BTreeMap<String, Stated<String>>,
    pub(super) config: BTreeMap<String, Stated<String>>,
}

/// A value and where it is stated.
#[derive(Clone, Debug)]
pub(super) struct Stated<T> {
    pub(super) value: T,
    pub(super) rule: RuleRef,
}

/// One entry for each of [`FIELDS`].
pub(super) type StatedLimits = [Option<Stated<u64>>; FIELDS.len()];

/// Reads one file. What it finds wrong is in the findings; the policy is what could be read.
pub(super) fn read(name: &Arc<str>, text: &str, base_dir: &Path) -> (FilePolicy, Findings) {
    let source = Source::new(Arc::clone(name), text);
    let mut policy = FilePolicy::default();
    if let Some(document) = source.parse(MAX_FILE_BYTES) {
        let root = Table::root(&source, &document);
        root.expect_only(&["version", "limits", "plugins"]);
        read_version(&root);
        if let Some(limits) = root.table("limits", "[limits]") {
            policy.limits = read_limits(&limits, &[]);
        }
        if let Some(plugins) = root.table("plugins", "[plugins]") {
            if plugins.len() > MAX_PLUGINS {
                source.error(plugins.span.clone(), format!("more than {MAX_PLUGINS} plugins"), "use several hosts");
            }
            for field in plugins.fields().take(MAX_PLUGINS) {
                if let Some(plugin) = read_plugin(&field, base_dir) {
                    policy.plugins.insert(field.name.to_owned(), plugin);
                }
            }
        }
    }
    (policy, source.findings.into_inner())
}

/// Checks `version = 1`, which every file of ours begins with.
pub(super) fn read_version(root: &Table<'_>) {
    if let Some(version) = root.require("version", "version = 1")
        && version.count(0, u64::MAX, "1").is_some_and(|number| number != 1)
    {
        version.error("this version is not known", "write `version = 1`");
    }
}

/// Reads a table of limits; `others` names fields that are read elsewhere.
pub(super) fn read_limits(table: &Table<'_>, others: &[&str]) -> StatedLimits {
    let known: Vec<&str> = FIELDS.iter().map(|field| field.name).chain(others.iter().copied()).collect();
    table.expect_only(&known);
    std::array::from_fn(|index| {
        let limit = &FIELDS[index];
        let field = table.get(limit.name)?;
        let value = match limit.unit {
            Unit::Count => field.count(1, limit.max, "1_000"),
            Unit::Bytes => field.size(1, limit.max, "\"1MiB\""),
            Unit::Millis => field.duration(1, limit.max, "\"30s\""),
        };
        value.map(|value| Stated { value, rule: field.rule() })
    })
}

fn read_plugin(field: &Field<'_>, base_dir: &Path) -> Option<FilePlugin> {
    let id = field.name;
    if !is_plugin_id(id) {
        let message = format!("`{}` cannot be a plugin's id", clean_line(id, 60));
        let hint = format!("an id matches `[a-z0-9][a-z0-9_-]*`, at most {MAX_ID} characters; state the file with `source`");
        field.source.error(field.key_span.clone(), message, hint);
        return None;
    }
    let title = format!("[plugins.{id}]");
    let table = field.table(&title)?;
    table.expect_only(&["source", "sha256", "limits", "tools", "net", "fs", "kv", "env", "config"]);
    Some(FilePlugin {
        rule: field.rule(),
        source: table.get("source").and_then(|field| read_source(&field, id)),
        sha256: table.get("sha256").and_then(|field| read_sha256(&field)),
        limits: table
            .table("limits", &format!("[plugins.{id}.limits]"))
            .map(|table| read_limits(&table, &[]))
            .unwrap_or_default(),
        tools: tools::read(&table, id, base_dir),
        net: http::read_grants(&table, id, base_dir),
        fs: capability::read_mounts(&table, id, base_dir),
        kv: capability::read_kv(&table, id),
        env: capability::read_env(&table, id),
        config: capability::read_config(&table, id),
    })
}

/// Whether a text can be a plugin's id: `[a-z0-9][a-z0-9_-]*`, at most 48 characters.
pub fn is_plugin_id(text: &str) -> bool {
    let plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-'));
    plain && text.len() <= MAX_ID && text.starts_with(|first: char| first.is_ascii_alphanumeric())
}

fn read_source(field: &Field<'_>, id: &str) -> Option<Stated<String>> {
    let text = field.text(&format!("\"{id}.wasm\""))?;
    let plain = !text.contains(['/', '\\', ':']) && !text.starts_with('.') && !text.chars().any(|c| c.is_control());
    if !plain || text.len() > 255 || !text.ends_with(".wasm") || text == ".wasm" {
        let message = format!("`source` is `{}`, which is not the name of a component", clean_line(text, 100));
        field.error(message, format!("name a file in the plugins directory, without the directory: `source = \"{id}.wasm\"`"));
        return None;
    }
    Some(Stated { value: text.to_owned(), rule: field.rule() })
}

pub(super) fn read_sha256(field: &Field<'_>) -> Option<Stated<String>> {
    let text = field.text("\"…64 hexadecimal digits…\"")?;
    let valid = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if !valid {
        field.error(
            format!("`{}` is not a SHA-256 digest", field.name),
            "64 hexadecimal digits in lower case, without a prefix, as `sha256sum` prints them",
        );
    }
    valid.then(|| Stated { value: text.to_owned(), rule: field.rule() })
}
