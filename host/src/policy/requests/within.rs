//! The effective right: what the policy grants and the plugin asks for. Computed once, when a plugin is loaded.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{NetWish, Requests, SecretWish};
use crate::policy::grant::{FsGrant, Grants, KvGrant, RuleRef, guest_path_within};
use crate::policy::net::{HostPattern, NetGrant, path_within};

/// One way in which the effective right is not what the policy, or the plugin, says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Note {
    /// What happened.
    pub kind: NoteKind,
    /// What it is about, in one sentence.
    pub message: String,
    /// The policy rule, if one is meant.
    pub rule: Option<RuleRef>,
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        match &self.rule {
            Some(rule) => write!(f, " ({rule})"),
            None => Ok(()),
        }
    }
}

/// What a [`Note`] is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NoteKind {
    /// The policy grants it, the plugin does not ask for it: it is dropped.
    NotRequested,
    /// The plugin asks for less than the policy grants.
    Narrowed,
    /// The plugin needs it and the policy does not state it.
    Missing,
}

impl Grants {
    /// Limits the grants to what the plugin asks for.
    ///
    /// Of HTTP rules the rest is a ceiling that each request must also pass; mounts, key-value quota, config and environment are cut
    /// here. Config keys that the policy does not state get the plugin's default.
    #[must_use]
    pub fn within(self, requests: &Requests) -> (Self, Vec<Note>) {
        let mut notes = Vec::new();
        // Names all fields on purpose: a new kind of grant does not compile here until it is limited.
        let Self { net, fs, kv, env, config } = self;
        let config = limit_config(config, requests, &mut notes);
        let env = limit_names(env, "env", |name| requests.env.iter().any(|wish| wish.name == name), &mut notes);
        let net = limit_net(net, requests, &config, &mut notes);
        let fs = fs.into_iter().filter_map(|mount| limit_mount(mount, requests, &mut notes)).collect();
        let kv = kv.and_then(|grant| limit_kv(grant, requests, &mut notes));
        (Self { net, fs, kv, env, config }, notes)
    }
}

fn note(kind: NoteKind, rule: Option<&RuleRef>, message: String) -> Note {
    Note { kind, message, rule: rule.cloned() }
}

fn limit_names(
    entries: BTreeMap<String, String>,
    what: &str,
    wanted: impl Fn(&str) -> bool,
    notes: &mut Vec<Note>,
) -> BTreeMap<String, String> {
    let keep = entries.into_iter().filter(|(name, _)| {
        let keep = wanted(name);
        if !keep {
            notes.push(note(NoteKind::NotRequested, None, format!("the plugin does not ask for {what} `{name}`")));
        }
        keep
    });
    keep.collect()
}

fn limit_config(config: BTreeMap<String, String>, requests: &Requests, notes: &mut Vec<Note>) -> BTreeMap<String, String> {
    let mut config = limit_names(config, "config", |key| requests.config.iter().any(|wish| wish.key == key), notes);
    for wish in &requests.config {
        if config.contains_key(&wish.key) {
            continue;
        }
        match &wish.default {
            Some(default) => drop(config.insert(wish.key.clone(), default.clone())),
            None if wish.required => {
                notes.push(note(NoteKind::Missing, None, format!("the plugin needs config `{}`", wish.key)));
            }
            None => {}
        }
    }
    config
}

fn limit_net(
    grants: Vec<NetGrant>,
    requests: &Requests,
    config: &BTreeMap<String, String>,
    notes: &mut Vec<Note>,
) -> Vec<NetGrant> {
    let mut wishes: Vec<NetWish> = Vec::new();
    for wish in &requests.net {
        match wish.resolve(config) {
            Ok(wish) => wishes.push(wish),
            Err(message) => notes.push(note(NoteKind::Missing, None, message)),
        }
    }
    let wishes: Arc<[NetWish]> = wishes.into();
    let limited = grants.into_iter().filter_map(|mut grant| {
        if !wishes.iter().any(|wish| wish.overlaps(&grant)) {
            let message = format!("the plugin does not ask for requests to `{}`", grant.host);
            notes.push(note(NoteKind::NotRequested, Some(&grant.rule), message));
            return None;
        }
        if let Some(secret) = grant.secret.take() {
            let wanted = |wish: &SecretWish| wish.header == secret.header && wish.covers_host(&grant.host, config);
            if requests.secrets.iter().any(wanted) {
                grant.secret = Some(secret);
            } else {
                let message =
                    format!("the plugin does not ask for a secret in `{}` of requests to `{}`", secret.header, grant.host);
                notes.push(note(NoteKind::NotRequested, Some(&grant.rule), message));
            }
        }
        grant.ceiling = Some(Arc::clone(&wishes));
        Some(grant)
    });
    limited.collect()
}

fn limit_mount(mut mount: FsGrant, requests: &Requests, notes: &mut Vec<Note>) -> Option<FsGrant> {
    let wished = requests.fs.iter().filter(|wish| guest_path_within(&mount.guest, &wish.guest)).map(|wish| wish.mode).max();
    let Some(wished) = wished else {
        let message = format!("the plugin does not ask for a mount at `{}`", mount.guest);
        notes.push(note(NoteKind::NotRequested, Some(&mount.rule), message));
        return None;
    };
    if wished < mount.mode {
        let message = format!("the plugin asks for `{}` read-only", mount.guest);
        notes.push(note(NoteKind::Narrowed, Some(&mount.rule), message));
        mount.mode = wished;
    }
    Some(mount)
}

fn limit_kv(mut grant: KvGrant, requests: &Requests, notes: &mut Vec<Note>) -> Option<KvGrant> {
    let Some(wish) = &requests.kv else {
        let message = "the plugin does not ask for the key-value store".to_owned();
        notes.push(note(NoteKind::NotRequested, Some(&grant.rule), message));
        return None;
    };
    if wish.quota_bytes < grant.quota_bytes {
        notes.push(note(NoteKind::Narrowed, Some(&grant.rule), "the plugin asks for a smaller quota".to_owned()));
        grant.quota_bytes = wish.quota_bytes;
    }
    Some(grant)
}

impl NetWish {
    /// Whether some request could match both the wish and the rule.
    pub(super) fn overlaps(&self, grant: &NetGrant) -> bool {
        self.config.is_none()
            && self.host.as_ref().is_none_or(|host| host.overlaps(&grant.host))
            && self.scheme.is_none_or(|scheme| scheme == grant.scheme)
            && self.port.is_none_or(|port| port == grant.port)
            && self.methods.iter().any(|method| grant.methods.contains(method))
            && (path_within(&self.path, &grant.path) || path_within(&grant.path, &self.path))
    }
}

impl SecretWish {
    /// Whether the wish covers every host that a pattern covers.
    pub(in crate::policy) fn covers_host(&self, pattern: &HostPattern, config: &BTreeMap<String, String>) -> bool {
        let wished = match (&self.host, &self.config) {
            (Some(host), _) => host.clone(),
            (None, Some(key)) => {
                let url = config.get(key).and_then(|url| crate::policy::net::NetTarget::from_url(url).ok());
                let Some(target) = url else { return false };
                HostPattern::Exact(target.host)
            }
            (None, None) => return false,
        };
        match (&wished, pattern) {
            (_, HostPattern::Exact(host)) => wished.matches(host),
            (HostPattern::Subdomains(wide), HostPattern::Subdomains(domain)) => wide == domain || wished.matches(domain),
            (HostPattern::Exact(_), HostPattern::Subdomains(_)) => false,
        }
    }
}
