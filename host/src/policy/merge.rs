//! Several files as one policy: grants add up, any deny wins, of limits the smallest counts; what contradicts is an error.

use std::collections::{BTreeMap, HashMap};

use super::error::Findings;
use super::file::{FilePlugin, FilePolicy, Stated, StatedLimits};
use super::grant::{FsGrant, FsMode, Grants, KvGrant, RuleRef, host_paths_overlap, resolve_dots};
use super::limits::FIELDS;
use super::net::{NetGrant, SecretSource};
use super::rules::{ToolRule, ToolRules};
use super::{Limits, PluginPolicy, PolicySource};
use crate::text::clean_line;

/// Merges the files in their order, and checks what can only be seen over all of them.
pub(super) fn merge(
    files: Vec<FilePolicy>,
    sources: &[PolicySource<'_>],
    found: &mut Findings,
) -> (Limits, BTreeMap<String, PluginPolicy>) {
    let ceilings = smallest(files.iter().map(|file| &file.limits));
    let mut limits = Limits::default();
    apply(&mut limits, &ceilings);
    let mut parts: BTreeMap<String, Vec<(StatedLimits, FilePlugin)>> = BTreeMap::new();
    for file in files {
        for (id, plugin) in file.plugins {
            parts.entry(id).or_default().push((file.limits.clone(), plugin));
        }
    }
    let plugins = parts.into_iter().map(|(id, parts)| {
        let plugin = merge_plugin(&id, parts, &limits, &ceilings, sources, found);
        (id, plugin)
    });
    let plugins: BTreeMap<String, PluginPolicy> = plugins.collect();
    check_secret_files(&plugins, found);
    (limits, plugins)
}

fn smallest<'a>(stated: impl Iterator<Item = &'a StatedLimits>) -> StatedLimits {
    let mut result: StatedLimits = Default::default();
    for limits in stated {
        for (best, limit) in result.iter_mut().zip(limits) {
            if let Some(limit) = limit
                && best.as_ref().is_none_or(|best| limit.value < best.value)
            {
                *best = Some(limit.clone());
            }
        }
    }
    result
}

fn apply(limits: &mut Limits, stated: &StatedLimits) {
    for (field, limit) in FIELDS.iter().zip(stated) {
        if let Some(limit) = limit {
            (field.set)(limits, limit.value);
        }
    }
}

fn merge_plugin(
    id: &str,
    parts: Vec<(StatedLimits, FilePlugin)>,
    limits: &Limits,
    ceilings: &StatedLimits,
    sources: &[PolicySource<'_>],
    found: &mut Findings,
) -> PluginPolicy {
    for (own, plugin) in &parts {
        check_ceilings(&plugin.limits, own, ceilings, limits, found);
    }
    let stated = smallest(parts.iter().map(|(_, plugin)| &plugin.limits));
    let mut own_limits = limits.clone();
    apply(&mut own_limits, &stated);
    let own_limits = own_limits.smallest(limits);

    let rule = parts[0].1.rule.clone();
    let mut source: Option<Stated<String>> = None;
    let mut sha256: Option<Stated<String>> = None;
    let mut tools: Vec<ToolRule> = Vec::new();
    let mut env = BTreeMap::new();
    let mut config = BTreeMap::new();
    let mut grants = Grants::default();
    for (_, plugin) in parts {
        agree(&mut source, plugin.source, "source", found);
        agree(&mut sha256, plugin.sha256, "sha256", found);
        tools.extend(plugin.tools);
        grants.net.extend(plugin.net);
        add_mounts(&mut grants.fs, plugin.fs, found);
        add_entries(&mut env, plugin.env, "env", found);
        add_entries(&mut config, plugin.config, "config", found);
        grants.kv = smaller_quota(grants.kv.take(), plugin.kv);
    }
    check_tools(&tools, found);
    check_net(&grants.net, found);
    check_mounts(&grants.fs, sources, found);
    grants.env = env.into_iter().map(|(name, stated)| (name, stated.value)).collect();
    grants.config = config.into_iter().map(|(name, stated)| (name, stated.value)).collect();
    PluginPolicy {
        id: id.to_owned(),
        source: source.map_or_else(|| format!("{id}.wasm"), |source| source.value),
        sha256: sha256.map(|digest| digest.value),
        limits: own_limits,
        grants,
        rules: ToolRules::new(tools),
        rule,
    }
}

/// A plugin's limit may not be above the ceiling of its own file, nor, where that states none, above that of all files.
fn check_ceilings(stated: &StatedLimits, own: &StatedLimits, all: &StatedLimits, limits: &Limits, found: &mut Findings) {
    for (index, field) in FIELDS.iter().enumerate() {
        let Some(limit) = &stated[index] else { continue };
        let (ceiling, place) = match own[index].as_ref().or(all[index].as_ref()) {
            Some(ceiling) => (ceiling.value, format!("stated at {}", ceiling.rule)),
            None => ((field.get)(limits), "the default".to_owned()),
        };
        if limit.value > ceiling {
            let message = format!(
                "`{}` of the plugin is {}, above the ceiling of {} ({place})",
                field.name,
                field.unit.show(limit.value),
                field.unit.show(ceiling)
            );
            found.error(&limit.rule, message, "lower it, or raise the ceiling in `[limits]`");
        }
    }
}

/// Takes over what one more file states; a second, different statement is an error.
fn agree(kept: &mut Option<Stated<String>>, next: Option<Stated<String>>, name: &str, found: &mut Findings) {
    let Some(next) = next else { return };
    match kept {
        Some(first) if first.value != next.value => {
            let message = format!("`{name}` is not the one that {} states", first.rule);
            found.error(&next.rule, message, "let both say the same, or state it in one file only");
        }
        Some(_) => {}
        None => *kept = Some(next),
    }
}

fn add_entries(
    kept: &mut BTreeMap<String, Stated<String>>,
    next: BTreeMap<String, Stated<String>>,
    what: &str,
    found: &mut Findings,
) {
    for (name, stated) in next {
        let mut slot = kept.remove(&name);
        agree(&mut slot, Some(stated), &format!("{what}.{}", clean_line(&name, 60)), found);
        if let Some(stated) = slot {
            kept.insert(name, stated);
        }
    }
}

fn smaller_quota(first: Option<KvGrant>, second: Option<KvGrant>) -> Option<KvGrant> {
    match (first, second) {
        (Some(first), Some(second)) => Some(if second.quota_bytes < first.quota_bytes { second } else { first }),
        (first, second) => first.or(second),
    }
}

/// Adds the mounts of one more file. The same mount in two files is one mount; in one file it is an error.
fn add_mounts(kept: &mut Vec<FsGrant>, next: Vec<FsGrant>, found: &mut Findings) {
    for mount in next {
        match kept.iter().find(|first| first.guest == mount.guest) {
            None => kept.push(mount),
            Some(first) => {
                let same = first.host == mount.host && first.mode == mount.mode && first.dangerous == mount.dangerous;
                if !same || first.rule.file == mount.rule.file {
                    let message = format!("guest path `{}` is mounted twice, first at {}", mount.guest, first.rule);
                    found.error(&mount.rule, message, "give each mount its own `guest`");
                }
            }
        }
    }
}

fn check_mounts(mounts: &[FsGrant], sources: &[PolicySource<'_>], found: &mut Findings) {
    for (index, mount) in mounts.iter().enumerate() {
        if !mount.host.is_absolute() {
            found.error(&mount.rule, "the directory of the policy file is not known", "write an absolute path in `host`");
        }
        for other in &mounts[..index] {
            let excused = mount.dangerous || other.dangerous;
            if mount.mode != other.mode && !excused && host_paths_overlap(&mount.host, &other.host) {
                let message = format!("a read-only and a writable mount overlap: this one and that at {}", other.rule);
                found.error(&mount.rule, message, "mount separate directories; `dangerous = true` mounts them nevertheless");
            }
        }
        // Not even `dangerous` excuses this: a plugin that can write the policy can grant itself anything.
        let holds_policy = |source: &PolicySource<'_>| resolve_dots(&source.base_dir).starts_with(resolve_dots(&mount.host));
        if mount.mode == FsMode::ReadWrite && sources.iter().any(holds_policy) {
            let message = "a writable mount holds the directory of the policy: the plugin could grant itself anything";
            found.error(&mount.rule, message, "mount a directory beside the policy, such as `./data`, or make it `ro`");
        }
    }
}

/// A secret that is read from a file must not lie in a mount: a plugin would read it there.
fn check_secret_files(plugins: &BTreeMap<String, PluginPolicy>, found: &mut Findings) {
    let secrets = plugins.values().flat_map(|plugin| &plugin.grants.net).filter_map(|rule| match rule.secret.as_ref()?.source {
        SecretSource::File(ref path) => Some((rule, resolve_dots(path))),
        SecretSource::Env(_) | SecretSource::Keyring { .. } => None,
    });
    let secrets: Vec<_> = secrets.collect();
    for plugin in plugins.values() {
        for mount in &plugin.grants.fs {
            let host = resolve_dots(&mount.host);
            if let Some((rule, _)) = secrets.iter().find(|(_, path)| path.starts_with(&host)) {
                let message = format!("plugin `{}` could read the secret of {} in this mount", plugin.id, rule.rule);
                found.error(&mount.rule, message, "keep the secret's file outside every mount");
            }
        }
    }
}

fn check_tools(tools: &[ToolRule], found: &mut Findings) {
    let mut seen: HashMap<(String, String), &RuleRef> = HashMap::new();
    for rule in tools {
        let args = rule.args.as_ref().map(|args| args.schema().to_string()).unwrap_or_default();
        // Across files a rule may repeat: that is how a second file adds a deny.
        let name = format!("{} {}", rule.rule.file, rule.tools);
        if let Some(first) = seen.insert((name, args), &rule.rule) {
            let message = format!("a second rule for `{}` with the same `args`; the first is at {first}", rule.tools);
            found.error(&rule.rule, message, "remove one");
        }
    }
}

fn check_net(net: &[NetGrant], found: &mut Findings) {
    for (index, rule) in net.iter().enumerate() {
        for other in &net[..index] {
            let same = (&rule.host, rule.scheme, rule.port, &rule.path, &rule.methods)
                == (&other.host, other.scheme, other.port, &other.path, &other.methods);
            if same && rule.rule.file == other.rule.file {
                found.error(&rule.rule, format!("repeats the rule at {}", other.rule), "merge the two");
            } else if let (Some(secret), Some(first)) = (&rule.secret, &other.secret)
                && secret.header == first.header
                && secret != first
                && rule.overlaps(other)
            {
                let message =
                    format!("a request can match this rule and that at {}: two secrets for `{}`", other.rule, secret.header);
                found.error(&rule.rule, message, "make `host`, `path` or `methods` of one narrower, so that they do not overlap");
            }
        }
    }
}
