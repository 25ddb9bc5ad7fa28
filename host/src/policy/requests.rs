//! What a plugin asks for: the custom section `honeycomb:requests`, read without running the plugin.
//!
//! A request grants nothing. It is a ceiling: the effective right is what the policy grants and the plugin asks for.

mod compare;
mod diff;
mod within;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use diff::Ungranted;
pub use within::{Note, NoteKind};

use super::document::{Field, Source, Table};
use super::error::PolicyErrors;
use super::file::capability::{CONFIG_KEY_HINT, is_config_key, read_guest_path, read_mode, read_quota};
use super::file::http::{ENV_NAME_HINT, is_env_name, read_header, read_host, read_methods, read_path, read_port, read_scheme};
use super::file::{StatedLimits, read_limits, read_version};
use super::grant::FsMode;
use super::limits::{FIELDS, LimitField, Limits};
use super::net::{HostPattern, NetRequest, NetTarget, Scheme, path_within};
use crate::text::clean_line;

/// The largest requests section, in bytes.
pub const MAX_REQUESTS_BYTES: usize = 64 * 1024;
/// The most entries of one kind.
const MAX_WISHES: usize = 64;
/// The longest reason that is shown, in bytes.
const MAX_REASON: usize = 300;
const MAX_DEFAULT: usize = 4 * 1024;
/// How errors name the section.
const SECTION: &str = "honeycomb:requests";

/// What a plugin asks for. Its texts are the author's: cleaned, bounded, and not to be believed.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// HTTP requests.
    pub net: Vec<NetWish>,
    /// Directories.
    pub fs: Vec<FsWish>,
    /// The key-value store.
    pub kv: Option<KvWish>,
    /// Config keys.
    pub config: Vec<ConfigWish>,
    /// Environment variables.
    pub env: Vec<EnvWish>,
    /// Secrets that the host should add to requests.
    pub secrets: Vec<SecretWish>,
    limits: StatedLimits,
}

/// HTTP requests that a plugin wants to send.
#[derive(Clone, Debug)]
pub struct NetWish {
    /// Which hosts; `None` is any that the operator grants (`host = "*"`).
    pub host: Option<HostPattern>,
    /// The scheme; `None` is either.
    pub scheme: Option<Scheme>,
    /// The port; `None` is any.
    pub port: Option<u16>,
    /// The methods.
    pub methods: Vec<String>,
    /// The path prefix, normalised.
    pub path: String,
    /// The config key whose URL says host, scheme and port, and the directory that `path` lies in. The wish covers nothing until
    /// [`Grants::within`](super::Grants::within) has put in the URL.
    pub config: Option<String>,
    /// The author's reason.
    pub reason: String,
}

impl NetWish {
    /// Whether the wish covers a request.
    pub fn covers(&self, request: &NetRequest<'_>) -> bool {
        self.config.is_none()
            && self.host.as_ref().is_none_or(|host| host.matches(request.host))
            && self.scheme.is_none_or(|scheme| scheme == request.scheme)
            && self.port.is_none_or(|port| port == request.port)
            && self.methods.iter().any(|method| method == request.method)
            && path_within(request.path, &self.path)
    }

    /// The wish with the URL of its config key put in.
    pub(super) fn resolve(&self, config: &BTreeMap<String, String>) -> Result<Self, String> {
        let Some(key) = &self.config else { return Ok(self.clone()) };
        let value = config.get(key).ok_or_else(|| format!("config `{key}` has no value"))?;
        let target = NetTarget::from_url(value).map_err(|error| format!("config `{key}` is not a URL: {error}"))?;
        Ok(Self {
            host: Some(HostPattern::Exact(target.host)),
            scheme: Some(target.scheme),
            port: Some(target.port),
            methods: self.methods.clone(),
            path: join_paths(&target.path, &self.path),
            config: None,
            reason: self.reason.clone(),
        })
    }
}

/// A directory that a plugin wants to see.
#[derive(Clone, Debug)]
pub struct FsWish {
    /// Its path inside the guest; covers mounts at it and below.
    pub guest: String,
    /// What it wants to do there.
    pub mode: FsMode,
    /// The author's reason.
    pub reason: String,
}

/// The use of the key-value store.
#[derive(Clone, Debug)]
pub struct KvWish {
    /// The most that it needs, in bytes.
    pub quota_bytes: u64,
    /// The author's reason.
    pub reason: String,
}

/// A config key that a plugin reads.
#[derive(Clone, Debug)]
pub struct ConfigWish {
    /// The key.
    pub key: String,
    /// Whether it cannot do without.
    pub required: bool,
    /// What it uses when the policy states nothing.
    pub default: Option<String>,
    /// The author's reason.
    pub reason: String,
}

/// An environment variable that a plugin reads.
#[derive(Clone, Debug)]
pub struct EnvWish {
    /// Its name.
    pub name: String,
    /// The author's reason.
    pub reason: String,
}

/// A secret that the host should add to requests.
#[derive(Clone, Debug)]
pub struct SecretWish {
    /// The header, lower case.
    pub header: String,
    /// The hosts that need it; `None` when `config` says so.
    pub host: Option<HostPattern>,
    /// The config key whose URL names the host.
    pub config: Option<String>,
    /// The author's reason.
    pub reason: String,
}

/// The path of a base URL and a path below it: `/api` and `/v1/` are `/api/v1/`.
fn join_paths(base: &str, path: &str) -> String {
    match path {
        "/" => base.to_owned(),
        _ => format!("{}{path}", base.strip_suffix('/').unwrap_or(base)),
    }
}

impl Requests {
    /// Reads the text of the section.
    ///
    /// # Errors
    ///
    /// Returns all that is wrong. Unknown fields are refused: a host must not load a plugin whose needs it does not understand.
    pub fn parse(text: &str) -> Result<Self, PolicyErrors> {
        let source = Source::new(Arc::from(SECTION), text);
        let mut requests = Self::default();
        if let Some(document) = source.parse(MAX_REQUESTS_BYTES) {
            let root = Table::root(&source, &document);
            root.expect_only(&["version", "net", "fs", "kv", "config", "env", "secrets", "limits"]);
            read_version(&root);
            requests = Self::read(&root);
        }
        source.findings.into_inner().finish(&[SECTION])?;
        Ok(requests)
    }

    fn read(root: &Table<'_>) -> Self {
        let each = |name: &str| root.tables(name, &format!("[[{name}]]"), MAX_WISHES);
        let config: Vec<ConfigWish> = each("config").iter().filter_map(read_config).collect();
        let keys: BTreeSet<&str> = config.iter().map(|wish| wish.key.as_str()).collect();
        Self {
            net: each("net").iter().filter_map(|table| read_net(table, &keys)).collect(),
            fs: each("fs").iter().filter_map(read_fs).collect(),
            kv: root.table("kv", "[kv]").as_ref().and_then(read_kv),
            env: each("env").iter().filter_map(read_env).collect(),
            secrets: each("secrets").iter().filter_map(|table| read_secret(table, &keys)).collect(),
            limits: root.table("limits", "[limits]").map(|table| read_limits(&table, &[])).unwrap_or_default(),
            config,
        }
    }

    /// The limits of the plugin's calls: the policy's, lowered to what the plugin says it needs. Nothing is ever raised.
    pub fn limits(&self, policy: &Limits) -> Limits {
        let mut wanted = policy.clone();
        for (field, value) in self.limit_values() {
            (field.set)(&mut wanted, value);
        }
        wanted.smallest(policy)
    }

    /// The limits that the plugin names, as a policy writes them.
    pub fn limit_wishes(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        self.limit_values().map(|(field, value)| (field.name, field.unit.show(value)))
    }

    pub(super) fn limit_values(&self) -> impl Iterator<Item = (&'static LimitField, u64)> + '_ {
        FIELDS.iter().zip(&self.limits).filter_map(|(field, wish)| Some((field, wish.as_ref()?.value)))
    }
}

fn read_reason(table: &Table<'_>) -> String {
    let text = table.get("reason").and_then(|field| field.text("\"…\"")).unwrap_or_default();
    clean_line(text, MAX_REASON)
}

fn read_net(table: &Table<'_>, keys: &BTreeSet<&str>) -> Option<NetWish> {
    if let Some(field) = table.get("config") {
        table.expect_only(&["config", "methods", "path", "reason"]);
        return Some(NetWish {
            host: None,
            scheme: None,
            port: None,
            methods: read_methods(table)?,
            path: read_path(table)?,
            config: Some(read_key_reference(&field, keys)?),
            reason: read_reason(table),
        });
    }
    table.expect_only(&["host", "scheme", "port", "methods", "path", "config", "reason"]);
    let host_field = table.require("host", "host = \"api.example.com\"")?;
    let any_host = host_field.is_text() && host_field.text("\"*\"") == Some("*");
    let host = if any_host { None } else { Some(read_host(&host_field)?) };
    let scheme = read_scheme(table)?;
    let port = read_port(table)?;
    let stated_scheme = table.get("scheme").map(|_| scheme);
    Some(NetWish {
        scheme: if any_host { stated_scheme } else { Some(scheme) },
        port: if any_host { port } else { Some(port.unwrap_or(scheme.default_port())) },
        host,
        methods: read_methods(table)?,
        path: read_path(table)?,
        config: None,
        reason: read_reason(table),
    })
}

/// A config key that the section itself declares.
fn read_key_reference(field: &Field<'_>, keys: &BTreeSet<&str>) -> Option<String> {
    let key = field.text("\"base_url\"")?;
    if !keys.contains(key) {
        let shown = clean_line(key, 60);
        field.error(format!("config key `{shown}` is not declared"), format!("add `[[config]]` with `key = \"{shown}\"`"));
        return None;
    }
    Some(key.to_owned())
}

fn read_fs(table: &Table<'_>) -> Option<FsWish> {
    table.expect_only(&["guest", "mode", "reason"]);
    let guest = table.require("guest", "guest = \"/data\"").and_then(|field| read_guest_path(&field));
    let mode = table.require("mode", "mode = \"ro\"").and_then(|field| read_mode(&field));
    Some(FsWish { guest: guest?, mode: mode?, reason: read_reason(table) })
}

fn read_kv(table: &Table<'_>) -> Option<KvWish> {
    table.expect_only(&["quota", "reason"]);
    Some(KvWish { quota_bytes: read_quota(table)?, reason: read_reason(table) })
}

fn read_config(table: &Table<'_>) -> Option<ConfigWish> {
    table.expect_only(&["key", "required", "default", "reason"]);
    let field = table.require("key", "key = \"base_url\"")?;
    let key = field.text("\"base_url\"")?;
    if !is_config_key(key) {
        field.error(format!("`{}` cannot be a config key", clean_line(key, 60)), CONFIG_KEY_HINT);
        return None;
    }
    let default = match table.get("default") {
        Some(field) => Some(read_default(&field)?),
        None => None,
    };
    let required = match table.get("required") {
        Some(field) => field.boolean()?,
        None => false,
    };
    Some(ConfigWish { key: key.to_owned(), required, default, reason: read_reason(table) })
}

fn read_default(field: &Field<'_>) -> Option<String> {
    let text = field.text("\"…\"")?;
    if text.len() > MAX_DEFAULT || text.contains('\0') {
        field.error("`default` is too long, or has a NUL", format!("at most {MAX_DEFAULT} bytes"));
        return None;
    }
    Some(text.to_owned())
}

fn read_env(table: &Table<'_>) -> Option<EnvWish> {
    table.expect_only(&["name", "reason"]);
    let field = table.require("name", "name = \"LANG\"")?;
    let name = field.text("\"LANG\"")?;
    if !is_env_name(name) {
        field.error(format!("`{}` cannot name an environment variable", clean_line(name, 60)), ENV_NAME_HINT);
        return None;
    }
    Some(EnvWish { name: name.to_owned(), reason: read_reason(table) })
}

fn read_secret(table: &Table<'_>, keys: &BTreeSet<&str>) -> Option<SecretWish> {
    table.expect_only(&["header", "host", "config", "reason"]);
    let header = table.require("header", "header = \"authorization\"").and_then(|field| read_header(&field));
    let (host, config) = match (table.get("host"), table.get("config")) {
        (None, Some(field)) => (None, Some(read_key_reference(&field, keys)?)),
        (Some(field), None) => (Some(read_host(&field)?), None),
        (Some(field), Some(_)) => {
            field.error("both `host` and `config` say which host gets the secret", "keep one");
            return None;
        }
        (None, None) => {
            table.require("host", "host = \"api.example.com\"");
            return None;
        }
    };
    Some(SecretWish { header: header?, host, config, reason: read_reason(table) })
}

#[cfg(test)]
mod tests;
