//! Reads `[[plugins.ID.fs]]`, `[plugins.ID.kv]`, `[plugins.ID.env]` and `[plugins.ID.config]`.

use std::collections::BTreeMap;
use std::path::Path;

use super::Stated;
use super::http::{ENV_NAME_HINT, is_env_name, read_host_path};
use crate::policy::document::{Field, Table};
use crate::policy::grant::{FsGrant, FsMode, KvGrant, check_guest_path, sensitive_directory};
use crate::text::clean_line;

const MAX_MOUNTS: usize = 64;
const MAX_ENTRIES: usize = 1_024;
const MAX_VALUE: usize = 64 * 1024;
/// A TiB, as for limits.
const MAX_QUOTA: u64 = 1 << 40;

pub(super) fn read_mounts(plugin: &Table<'_>, id: &str, base_dir: &Path) -> Vec<FsGrant> {
    let tables = plugin.tables("fs", &format!("[[plugins.{id}.fs]]"), MAX_MOUNTS);
    tables.iter().filter_map(|table| read_mount(table, base_dir)).collect()
}

fn read_mount(table: &Table<'_>, base_dir: &Path) -> Option<FsGrant> {
    table.expect_only(&["host", "guest", "mode", "dangerous"]);
    let host_field = table.require("host", "host = \"./data\"");
    let host = host_field.as_ref().and_then(|field| read_host_path(field, field.text("\"./data\"")?, base_dir));
    let guest = table.require("guest", "guest = \"/data\"").and_then(|field| read_guest_path(&field));
    let mode = table.require("mode", "mode = \"ro\"").and_then(|field| read_mode(&field));
    let dangerous = match table.get("dangerous") {
        Some(field) => field.boolean()?,
        None => false,
    };
    let (host, guest, mode) = (host?, guest?, mode?);
    if let Some(what) = sensitive_directory(&host)
        && !dangerous
        && let Some(field) = host_field
    {
        let message = format!("`{}` is {what}", clean_line(&host.display().to_string(), 100));
        field.error(message, "mount a directory made for the plugin; `dangerous = true` mounts it nevertheless");
        return None;
    }
    Some(FsGrant { host, guest, mode, dangerous, rule: table.rule() })
}

/// `mode`: `ro` or `rw`.
pub(in crate::policy) fn read_mode(field: &Field<'_>) -> Option<FsMode> {
    field.word(&[("ro", FsMode::ReadOnly), ("rw", FsMode::ReadWrite)])
}

/// A path inside the guest.
pub(in crate::policy) fn read_guest_path(field: &Field<'_>) -> Option<String> {
    let text = field.text("\"/data\"")?;
    match check_guest_path(text) {
        Ok(()) => Some(text.to_owned()),
        Err(message) => {
            let hint = "an absolute path with `/`, without `.`, `..`, empty parts or a `/` at the end: `/data`";
            field.error(format!("guest path `{}` {message}", clean_line(text, 100)), hint);
            None
        }
    }
}

pub(super) fn read_kv(plugin: &Table<'_>, id: &str) -> Option<KvGrant> {
    let table = plugin.table("kv", &format!("[plugins.{id}.kv]"))?;
    table.expect_only(&["quota"]);
    let quota_bytes = read_quota(&table)?;
    Some(KvGrant { quota_bytes, rule: table.rule() })
}

/// `quota`: required.
pub(in crate::policy) fn read_quota(table: &Table<'_>) -> Option<u64> {
    table.require("quota", "quota = \"1MiB\"")?.size(1, MAX_QUOTA, "\"1MiB\"")
}

pub(super) fn read_env(plugin: &Table<'_>, id: &str) -> BTreeMap<String, Stated<String>> {
    read_entries(plugin, "env", &format!("[plugins.{id}.env]"), |name| {
        is_env_name(name).then_some(()).ok_or("cannot name an environment variable").map_err(|what| (what, ENV_NAME_HINT))
    })
}

pub(super) fn read_config(plugin: &Table<'_>, id: &str) -> BTreeMap<String, Stated<String>> {
    read_entries(plugin, "config", &format!("[plugins.{id}.config]"), |name| {
        is_config_key(name).then_some(()).ok_or(("cannot be a config key", CONFIG_KEY_HINT))
    })
}

pub(in crate::policy) const CONFIG_KEY_HINT: &str = "visible characters without spaces, at most 128 bytes";

pub(in crate::policy) fn is_config_key(name: &str) -> bool {
    !name.is_empty() && name.len() <= 128 && !name.chars().any(|c| c.is_whitespace() || crate::text::is_hidden(c))
}

fn read_entries(
    plugin: &Table<'_>,
    name: &str,
    title: &str,
    check_name: impl Fn(&str) -> Result<(), (&'static str, &'static str)>,
) -> BTreeMap<String, Stated<String>> {
    let mut entries = BTreeMap::new();
    let Some(table) = plugin.table(name, title) else { return entries };
    if table.len() > MAX_ENTRIES {
        table.source.error(table.span.clone(), format!("more than {MAX_ENTRIES} entries in `{title}`"), "remove some");
        return entries;
    }
    for field in table.fields() {
        if let Err((what, hint)) = check_name(field.name) {
            field.source.error(field.key_span.clone(), format!("`{}` {what}", clean_line(field.name, 60)), hint);
            continue;
        }
        let Some(text) = field.text("\"…\"") else { continue };
        if text.contains('\0') || text.len() > MAX_VALUE {
            let message = format!("`{}` has a NUL, or more than {MAX_VALUE} bytes", clean_line(field.name, 60));
            field.error(message, "put large data in a file, and mount its directory");
            continue;
        }
        entries.insert(field.name.to_owned(), Stated { value: text.to_owned(), rule: field.rule() });
    }
    entries
}
