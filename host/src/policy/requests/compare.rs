//! What a version of a plugin asks for beyond what an older one asked for.

use super::diff::Ungranted;
use super::{NetWish, Requests};
use crate::policy::grant::{FsMode, guest_path_within};
use crate::policy::limits::FIELDS;
use crate::policy::net::{HostPattern, path_within};
use crate::policy::units::format_size;

impl Requests {
    /// Lists what this version asks for and the older one did not.
    pub fn beyond_older(&self, older: &Self) -> Vec<Ungranted> {
        // Names all fields on purpose: a new kind of request does not compile here until it is compared.
        let Self { net, fs, kv, config, env, secrets, limits } = self;
        let mut more = Vec::new();
        let mut add = |table, what: String, reason: &str| more.push(Ungranted { table, what, reason: reason.to_owned() });
        for wish in net {
            let asked = |method: &String| older.net.iter().any(|old| old.methods.contains(method) && net_within(wish, old));
            let methods: Vec<&str> = wish.methods.iter().filter(|method| !asked(method)).map(String::as_str).collect();
            if !methods.is_empty() {
                add("net", format!("{} {}", methods.join(","), place(wish)), &wish.reason);
            }
        }
        for wish in fs {
            if !older.fs.iter().any(|old| guest_path_within(&wish.guest, &old.guest) && wish.mode <= old.mode) {
                let mode = if wish.mode == FsMode::ReadWrite { "rw" } else { "ro" };
                add("fs", format!("`{}` {mode}", wish.guest), &wish.reason);
            }
        }
        if let Some(wish) = kv
            && older.kv.as_ref().is_none_or(|old| old.quota_bytes < wish.quota_bytes)
        {
            add("kv", format!("{} of key-value store", format_size(wish.quota_bytes)), &wish.reason);
        }
        for wish in config {
            let old = older.config.iter().find(|old| old.key == wish.key);
            if old.is_none_or(|old| wish.required && !old.required) {
                add("config", format!("`{}`", wish.key), &wish.reason);
            } else if let Some(default) = &wish.default
                && old.is_some_and(|old| old.default.as_ref() != Some(default))
            {
                // A default can be the URL that requests go to.
                add("config", format!("`{}` is `{}` by default", wish.key, crate::text::clean_line(default, 200)), &wish.reason);
            }
        }
        for wish in env.iter().filter(|wish| !older.env.iter().any(|old| old.name == wish.name)) {
            add("env", format!("`{}`", wish.name), &wish.reason);
        }
        for wish in secrets {
            let same = |old: &&super::SecretWish| {
                old.header == wish.header && old.config == wish.config && host_within(wish.host.as_ref(), old.host.as_ref())
            };
            if older.secrets.iter().find(same).is_none() {
                let place = wish.host.as_ref().map(ToString::to_string).or_else(|| wish.config.clone()).unwrap_or_default();
                add("secret", format!("a secret in `{}` for `{place}`", wish.header), &wish.reason);
            }
        }
        for ((field, new), old) in FIELDS.iter().zip(limits).zip(&older.limits) {
            match (new, old) {
                (Some(new), Some(old)) if new.value > old.value => {
                    add("limits", format!("`{}` of {}", field.name, field.unit.show(new.value)), "");
                }
                (None, Some(old)) => {
                    let before = field.unit.show(old.value);
                    add("limits", format!("`{}` as far as the policy goes, where {before} were enough", field.name), "");
                }
                _ => {}
            }
        }
        more
    }
}

fn net_within(new: &NetWish, old: &NetWish) -> bool {
    new.config == old.config
        && host_within(new.host.as_ref(), old.host.as_ref())
        && (old.scheme.is_none() || old.scheme == new.scheme)
        && (old.port.is_none() || old.port == new.port)
        && path_within(&new.path, &old.path)
}

/// Whether every host of the first is one of the second; none is any.
fn host_within(new: Option<&HostPattern>, old: Option<&HostPattern>) -> bool {
    match (new, old) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(HostPattern::Exact(host)), Some(old)) => old.matches(host),
        (Some(HostPattern::Subdomains(domain)), Some(old)) => match old {
            HostPattern::Exact(_) => false,
            HostPattern::Subdomains(wide) => wide == domain || old.matches(domain),
        },
    }
}

fn place(wish: &NetWish) -> String {
    if let Some(key) = &wish.config {
        return format!("the URL in config `{key}`, path {}", wish.path);
    }
    let scheme = wish.scheme.map_or("*", super::Scheme::as_str);
    let host = wish.host.as_ref().map_or_else(|| "*".to_owned(), ToString::to_string);
    let port = wish.port.map_or_else(|| "*".to_owned(), |port| port.to_string());
    format!("{scheme}://{host}:{port}{}", wish.path)
}
