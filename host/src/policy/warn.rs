//! What is legal in a policy and deserves a second look.

use std::net::IpAddr;

use super::PluginPolicy;
use super::error::Findings;
use super::file::http::stays_here;
use super::grant::{FsGrant, FsMode, resolve_dots};
use super::net::{Cidr, HostPattern, NetGrant, Scheme, is_loopback, is_prohibited, is_shared_hosting};
use super::rules::{ToolPattern, ToolRules, Verdict};

/// Looks at all that one plugin is granted.
pub(super) fn inspect(plugin: &PluginPolicy, found: &mut Findings) {
    let id = &plugin.id;
    if plugin.sha256.is_none() {
        let hint = format!("add the `sha256` that `honeycomb-host inspect {}` prints", plugin.source);
        found.warning(&plugin.rule, format!("plugin `{id}` is not pinned: whatever the file holds runs with these grants"), hint);
    }
    if plugin.rules.all().is_empty() {
        let hint = format!("add `[[plugins.{id}.tools]]`");
        found.warning(&plugin.rule, format!("no tool of plugin `{id}` may be called"), hint);
    }
    inspect_tools(&plugin.rules, found);
    for rule in &plugin.grants.net {
        inspect_net(rule, found);
    }
    for mount in &plugin.grants.fs {
        inspect_mount(mount, found);
    }
    for name in plugin.grants.env.keys().chain(plugin.grants.config.keys()) {
        let upper = name.to_uppercase();
        if ["TOKEN", "SECRET", "PASSWORD", "API_KEY", "APIKEY"].iter().any(|word| upper.contains(word)) {
            let message = format!("plugin `{id}` can read `{}`, which looks like a secret", crate::text::clean_line(name, 60));
            found.warning(&plugin.rule, message, "use `secret` in a net rule: the host adds it, and the plugin never sees it");
        }
    }
}

fn inspect_tools(rules: &ToolRules, found: &mut Findings) {
    for rule in rules.all() {
        if rule.verdict == Verdict::Allow && rule.args.is_none() && rule.tools == ToolPattern::Prefix(String::new()) {
            found.warning(&rule.rule, "all tools of the plugin are allowed, also those that an update adds", "name the tools");
        }
        if rule.verdict != Verdict::Deny {
            for gap in rule.args.iter().flat_map(|args| args.gaps()) {
                found.warning(&rule.rule, gap, "close the gap in `args`, or check that the tool's own schema does");
            }
            if let ToolPattern::Exact(name) = &rule.tools
                && let Some(deny) = rules.covering(name).find(|other| other.verdict == Verdict::Deny && other.args.is_none())
            {
                let message = format!("never applies: the rule at {} denies `{name}`", deny.rule);
                found.warning(&rule.rule, message, "remove one of the two");
            }
        }
    }
}

fn inspect_net(rule: &NetGrant, found: &mut Findings) {
    let here = stays_here(&rule.host);
    if rule.scheme == Scheme::Http && !here {
        let what = if rule.secret.is_some() { "a secret goes over plain HTTP" } else { "plain HTTP" };
        let message = format!("{what} to `{}`: everybody on the way can read and change it", rule.host);
        found.warning(&rule.rule, message, "use `scheme = \"https\"`");
    }
    match &rule.host {
        HostPattern::Subdomains(domain) => {
            if is_shared_hosting(domain) {
                let message = format!("anybody can get a name below `{domain}`");
                found.warning(&rule.rule, message, "name the hosts that are needed");
            }
            if rule.secret.is_some() {
                let message = format!("the secret goes to every host that matches `{}`", rule.host);
                found.warning(&rule.rule, message, "name the one host that needs it");
            }
        }
        HostPattern::Exact(host) => {
            let opened = |address: IpAddr| rule.private.iter().any(|range| range.contains(address));
            let closed = match host.parse::<IpAddr>() {
                Ok(address) => is_prohibited(address).is_some() && !opened(address),
                Err(_) => is_loopback(host) && rule.private.is_empty(),
            };
            if closed {
                let message = format!("`{host}` is not public, so every request is refused");
                found.warning(&rule.rule, message, "add `private` with its address, such as `private = [\"127.0.0.1/32\"]`");
            }
        }
    }
    for range in &rule.private {
        inspect_range(rule, range, found);
    }
}

fn inspect_range(rule: &NetGrant, range: &Cidr, found: &mut Findings) {
    const METADATA: [&str; 6] =
        ["169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254"];
    if METADATA.iter().filter_map(|text| text.parse().ok()).any(|address| range.contains(address)) {
        let message = format!("`{range}` holds a cloud's metadata service, which hands out the machine's credentials");
        found.warning(&rule.rule, message, "use a range without it");
    }
    let wide = if range.address.is_ipv4() { range.prefix < 16 } else { range.prefix < 48 };
    if wide {
        found.warning(
            &rule.rule,
            format!("`{range}` opens a large part of a private network"),
            "name the addresses that are needed",
        );
    }
}

fn inspect_mount(mount: &FsGrant, found: &mut Findings) {
    if mount.dangerous {
        let message = format!("`dangerous` skips the checks of the mount at `{}`", mount.guest);
        found.warning(&mount.rule, message, "mount a directory made for the plugin, without `dangerous`");
    }
    // `/` and one name.
    if mount.mode == FsMode::ReadWrite && resolve_dots(&mount.host).components().count() <= 2 {
        let message = format!("the plugin can write a whole top-level directory, mounted at `{}`", mount.guest);
        found.warning(&mount.rule, message, "mount the directory that it needs");
    }
}
