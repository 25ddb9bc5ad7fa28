//! What a plugin asks for beyond what the policy grants: what an operator looks at when an upgrade wants more.

use super::Requests;
use crate::policy::PluginPolicy;
use crate::policy::grant::{FsMode, guest_path_within};

/// One thing that a plugin asks for and does not have.
#[derive(Clone, Debug, Eq, PartialEq, serde::Serialize)]
pub struct Ungranted {
    /// The table of the policy that would grant it: `net`, `fs`, `kv`, `config`, `env`, `secret`, `limits`.
    pub table: &'static str,
    /// What it asks for.
    pub what: String,
    /// The author's reason; untrusted.
    pub reason: String,
}

impl Requests {
    /// Lists what the plugin asks for and the policy does not grant, or grants only in part.
    pub fn beyond(&self, plugin: &PluginPolicy) -> Vec<Ungranted> {
        let grants = &plugin.grants;
        let (effective, _) = grants.clone().within(self);
        let mut missing = Vec::new();
        let mut add = |table, what: String, reason: &str| missing.push(Ungranted { table, what, reason: reason.to_owned() });
        for wish in &self.net {
            let Ok(resolved) = wish.resolve(&effective.config) else {
                add(
                    "net",
                    format!("requests to the URL in config `{}`", wish.config.as_deref().unwrap_or_default()),
                    &wish.reason,
                );
                continue;
            };
            let granted =
                |method: &String| grants.net.iter().any(|grant| grant.methods.contains(method) && resolved.overlaps(grant));
            let methods: Vec<&str> = resolved.methods.iter().filter(|method| !granted(method)).map(String::as_str).collect();
            if !methods.is_empty() {
                let host = resolved.host.as_ref().map_or_else(|| "*".to_owned(), ToString::to_string);
                let scheme = resolved.scheme.map_or("*", super::Scheme::as_str);
                let port = resolved.port.map_or_else(|| "*".to_owned(), |port| port.to_string());
                add("net", format!("{} {scheme}://{host}:{port}{}", methods.join(","), resolved.path), &wish.reason);
            }
        }
        for wish in &self.fs {
            let mode =
                grants.fs.iter().filter(|mount| guest_path_within(&mount.guest, &wish.guest)).map(|mount| mount.mode).max();
            if mode.is_none_or(|mode| mode < wish.mode) {
                let wanted = if wish.mode == FsMode::ReadWrite { "rw" } else { "ro" };
                add("fs", format!("`{}` {wanted}", wish.guest), &wish.reason);
            }
        }
        if let Some(wish) = &self.kv
            && grants.kv.as_ref().is_none_or(|grant| grant.quota_bytes < wish.quota_bytes)
        {
            add("kv", format!("{} of key-value store", crate::policy::units::format_size(wish.quota_bytes)), &wish.reason);
        }
        for wish in self.config.iter().filter(|wish| wish.required && !effective.config.contains_key(&wish.key)) {
            add("config", format!("`{}`", wish.key), &wish.reason);
        }
        for wish in self.env.iter().filter(|wish| !grants.env.contains_key(&wish.name)) {
            add("env", format!("`{}`", wish.name), &wish.reason);
        }
        for wish in &self.secrets {
            let header =
                |grant: &&crate::policy::net::NetGrant| grant.secret.as_ref().is_some_and(|secret| secret.header == wish.header);
            if !grants.net.iter().filter(header).any(|grant| wish.covers_host(&grant.host, &effective.config)) {
                add("secret", format!("a secret in `{}`", wish.header), &wish.reason);
            }
        }
        for (field, value) in self.limit_values().filter(|(field, value)| *value > (field.get)(&plugin.limits)) {
            add("limits", format!("`{}` of {}", field.name, field.unit.show(value)), "");
        }
        missing
    }
}
