//! `policy import`: a policy of Wassette (`microsoft/policy-mcp`, version 1) as one of ours.
//!
//! What is written grants no more than what was read. What cannot be said here as narrowly as there is left out, as a comment that
//! says why; tools, about which that format says nothing, are asked about.

mod yaml;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use self::yaml::Node;
use super::grant::{host_paths_overlap, resolve_dots};
use super::net::{Cidr, HostPattern, canonical_host};
use super::write::{comment, key, string};
use super::{Policy, PolicySource};
use crate::text::clean_line;

/// The largest file that is read, in bytes.
pub const MAX_IMPORT_BYTES: usize = 256 * 1024;
/// The most entries of one list.
const MAX_ENTRIES: usize = 256;

/// The ranges that no plugin reaches anyhow: a `deny` of them holds without being written.
const CLOSED: [&str; 11] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
];

/// Why a file cannot be imported.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ImportError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

/// Writes a policy for the plugin `id` from the text of a Wassette policy. `base_dir` is where the new policy will lie, absolute.
///
/// The result is a valid policy.
///
/// # Errors
///
/// Returns the first thing that is not understood: what it means could be a restriction.
pub fn import(id: &str, text: &str, base_dir: &Path) -> Result<String, ImportError> {
    if text.len() > MAX_IMPORT_BYTES {
        return Err(ImportError { line: 1, message: format!("the file is larger than {MAX_IMPORT_BYTES} bytes") });
    }
    let root = yaml::read(text)?;
    let source = Wassette::read(&root)?;
    let mut policy = Writer::new(id, base_dir);
    if let Some(description) = &source.description {
        policy.text.push_str(&comment(description));
    }
    let tools = format!("[[plugins.{}.tools]]\nname = \"*\"\ndecision = \"ask\"\n", key(id));
    policy.grant(
        "That format does not say which tools may be called, so each call is asked about. Name the tools that need not be.",
        &tools,
    );
    source.write_net(&mut policy);
    source.write_storage(&mut policy);
    for (name, _) in &source.environment {
        let name = clean_line(name, 100);
        policy.leave_out(&format!(
            "environment `{name}`: nothing is passed on from the host's environment. State the value under [plugins.{id}.env], or, \
             if it is a secret, let the host add it to requests: `secret = {{ header = \"authorization\", format = \"Bearer {{}}\", \
             source = \"env:{name}\" }}` in a net rule"
        ));
    }
    if let Some((memory, line)) = &source.memory {
        policy.grant(&format!("From line {line}."), &format!("[plugins.{}.limits]\nmemory = {}\n", key(id), string(memory)));
    }
    for (what, line) in &source.others {
        policy.leave_out(&format!("line {line}: `{what}` has no counterpart"));
    }
    Ok(policy.text)
}

/// The policy as it grows. Each piece is tried on the parser: what it refuses becomes a comment.
struct Writer<'a> {
    id: &'a str,
    base_dir: &'a Path,
    text: String,
}

impl<'a> Writer<'a> {
    fn new(id: &'a str, base_dir: &'a Path) -> Self {
        let text = "# Imported from a Wassette policy; it grants no more than that did. What could not be carried over is a comment.\n\nversion = 1\n";
        Self { id, base_dir, text: text.to_owned() }
    }

    fn grant(&mut self, why: &str, lines: &str) {
        let tried = format!("{}\n{}{lines}", self.text, comment(why));
        let source = PolicySource { name: Arc::from("imported.toml"), text: &tried, base_dir: self.base_dir.to_owned() };
        match Policy::parse(&[source]) {
            Ok(_) => self.text = tried,
            Err(errors) => {
                let first = errors.errors.first().map(|error| format!("{} ({})", error.message, error.hint)).unwrap_or_default();
                self.leave_out(&format!("{why} Not granted: {first}"));
                for line in lines.lines() {
                    let _ = writeln!(self.text, "#   {}", clean_line(line, 500));
                }
            }
        }
    }

    fn leave_out(&mut self, why: &str) {
        let _ = write!(self.text, "\n{}", comment(why));
    }
}

/// What the format says, as far as it matters here.
#[derive(Default)]
struct Wassette {
    description: Option<String>,
    hosts: Vec<(String, usize)>,
    denied_hosts: Vec<(String, usize)>,
    /// Denials of networks, and of the list of domains that the format calls `defaults`.
    denied_networks: Vec<(String, usize)>,
    storage: Vec<Storage>,
    denied_storage: Vec<Storage>,
    environment: Vec<(String, usize)>,
    memory: Option<(String, usize)>,
    others: Vec<(String, usize)>,
}

struct Storage {
    uri: String,
    guest: Option<String>,
    read: bool,
    write: bool,
    line: usize,
}

impl Wassette {
    fn read(root: &Node) -> Result<Self, ImportError> {
        let mut found = Self::default();
        let mut version = false;
        for (name, node) in root.map("the file")? {
            match name.as_str() {
                "version" => {
                    version = true;
                    if node.text(name)? != "1" && !node.text(name)?.starts_with("1.") {
                        return Err(node.error("only version 1 is known"));
                    }
                }
                "$schema" => {}
                "description" => found.description = Some(node.text(name)?.to_owned()),
                "permissions" => found.read_permissions(node)?,
                _ => return Err(unknown(node, name)),
            }
        }
        if version { Ok(found) } else { Err(root.error("there is no `version`; is this a Wassette policy?")) }
    }

    fn read_permissions(&mut self, node: &Node) -> Result<(), ImportError> {
        for (name, node) in node.map("permissions")? {
            match name.as_str() {
                "network" => {
                    for (list, item) in entries(node, name)? {
                        self.read_network(list == "deny", item)?;
                    }
                }
                "storage" => {
                    for (list, item) in entries(node, name)? {
                        let storage = read_storage(item, "uri", None)?;
                        if list == "deny" { &mut self.denied_storage } else { &mut self.storage }.push(storage);
                    }
                }
                "environment" => {
                    for (list, item) in entries(node, name)? {
                        let (field, value) = only(item, &["key"])?;
                        let value = value.text(field)?.to_owned();
                        if list == "deny" {
                            self.others.push((format!("deny {value}"), item.line))
                        } else {
                            self.environment.push((value, item.line))
                        }
                    }
                }
                "resources" => self.read_resources(node)?,
                "runtime" => self.read_runtime(node)?,
                "ipc" => self.others.push((name.clone(), node.line)),
                _ => return Err(unknown(node, name)),
            }
        }
        Ok(())
    }

    fn read_network(&mut self, deny: bool, item: &Node) -> Result<(), ImportError> {
        let (field, value) = only(item, &["host", "cidr", "defaults"])?;
        let entry = (value.text(field)?.to_owned(), item.line);
        match (field, deny) {
            ("host", false) => self.hosts.push(entry),
            ("host", true) => self.denied_hosts.push(entry),
            (_, true) => self.denied_networks.push(if field == "cidr" { entry } else { (field.to_owned(), item.line) }),
            ("cidr", false) => self.others.push((format!("cidr {}", clean_line(&entry.0, 60)), item.line)),
            (_, false) => self
                .others
                .push(("defaults: true, a list of dozens of domains; name those that are needed".to_owned(), item.line)),
        }
        Ok(())
    }

    fn read_resources(&mut self, node: &Node) -> Result<(), ImportError> {
        for (name, value) in node.map("resources")? {
            match name.as_str() {
                // A number of megabytes in the format itself, a quantity of Kubernetes under `limits`.
                "memory" => self.memory = Some((format!("{}MB", value.text(name)?), value.line)),
                "limits" => {
                    for (name, value) in value.map(name)? {
                        match name.as_str() {
                            "memory" => self.memory = Some((quantity(value.text(name)?), value.line)),
                            "cpu" => self.others.push(("limits.cpu".to_owned(), value.line)),
                            _ => return Err(unknown(value, name)),
                        }
                    }
                }
                "cpu" | "io" => self.others.push((format!("resources.{name}"), value.line)),
                _ => return Err(unknown(value, name)),
            }
        }
        Ok(())
    }

    fn read_runtime(&mut self, node: &Node) -> Result<(), ImportError> {
        for (name, value) in node.map("runtime")? {
            if name != "wasm" {
                self.others.push((format!("runtime.{}", clean_line(name, 60)), value.line));
                continue;
            }
            for (name, value) in value.map(name)? {
                if name != "wasi" {
                    self.others.push((format!("runtime.wasm.{}", clean_line(name, 60)), value.line));
                    continue;
                }
                for (name, value) in value.map(name)? {
                    if name != "preopens" {
                        self.others.push((format!("runtime.wasm.wasi.{}", clean_line(name, 60)), value.line));
                        continue;
                    }
                    for item in value.list(name)? {
                        self.storage.push(read_storage(item, "host_path", Some("guest_path"))?);
                    }
                }
            }
        }
        Ok(())
    }

    fn write_net(&self, policy: &mut Writer<'_>) {
        let open = self.denied_networks.iter().find(|(network, _)| !is_closed(network));
        for (host, line) in &self.hosts {
            let shown = clean_line(host, 100);
            if let Some((network, denied)) = open {
                policy.leave_out(&format!(
                    "line {line}: host `{shown}`, since line {denied} denies `{}`: which names have addresses in there is not known here",
                    clean_line(network, 60)
                ));
            } else if let Some((other, denied)) = self.denied_hosts.iter().find(|(other, _)| may_overlap(host, other)) {
                policy
                    .leave_out(&format!("line {line}: host `{shown}`, since line {denied} denies `{}`", clean_line(other, 100)));
            } else {
                let why = format!(
                    "From line {line}, which allowed every scheme, port, method and path. Here: GET over HTTPS. Add `methods`, `port` or \
                     `scheme` as they are needed, and narrow `path`."
                );
                policy.grant(&why, &format!("[[plugins.{}.net]]\nhost = {}\n", key(policy.id), string(host)));
            }
        }
    }

    fn write_storage(&self, policy: &mut Writer<'_>) {
        for Storage { uri, guest, read, write, line } in &self.storage {
            let shown = clean_line(uri, 200);
            let refused =
                |policy: &mut Writer<'_>, why: &str| policy.leave_out(&format!("line {line}: storage `{shown}`: {why}"));
            let path = match directory(uri) {
                Ok(path) => path,
                Err(why) => {
                    refused(policy, why);
                    continue;
                }
            };
            if !read {
                refused(policy, "it may be written and not read, and a writable mount can be read");
                continue;
            }
            if let Some(denied) = self.denied_storage.iter().find(|denied| paths_may_overlap(&path, &denied.uri)) {
                refused(policy, &format!("line {} denies part of it, which a mount cannot leave out", denied.line));
                continue;
            }
            let mode = if *write { "rw" } else { "ro" };
            let guest = guest.as_deref().unwrap_or(&path);
            let lines = format!(
                "[[plugins.{}.fs]]\nhost = {}\nguest = {}\nmode = \"{mode}\"\n",
                key(policy.id),
                string(&path),
                string(guest)
            );
            policy.grant(&format!("From line {line}."), &lines);
        }
    }
}

fn unknown(node: &Node, name: &str) -> ImportError {
    node.error(format!("`{}` is not known, and could be a restriction", clean_line(name, 60)))
}

/// The items of `allow` and `deny`.
fn entries<'a>(node: &'a Node, section: &str) -> Result<Vec<(&'a str, &'a Node)>, ImportError> {
    let mut all = Vec::new();
    for (list, node) in node.map(section)? {
        if list != "allow" && list != "deny" {
            return Err(unknown(node, list));
        }
        all.extend(node.list(list)?.iter().map(|item| (list.as_str(), item)));
    }
    if all.len() > MAX_ENTRIES {
        return Err(node.error(format!("`{section}` has more than {MAX_ENTRIES} entries")));
    }
    Ok(all)
}

/// The one field of an entry.
fn only<'a>(item: &'a Node, names: &[&str]) -> Result<(&'a str, &'a Node), ImportError> {
    match item.map("an entry")? {
        [(name, value)] if names.contains(&name.as_str()) => Ok((name, value)),
        _ => Err(item.error(format!("an entry here is one of `{}`", names.join("`, `")))),
    }
}

fn read_storage(item: &Node, uri_field: &str, guest_field: Option<&str>) -> Result<Storage, ImportError> {
    let mut storage = Storage { uri: String::new(), guest: None, read: false, write: false, line: item.line };
    for (name, value) in item.map("an entry")? {
        if name == uri_field {
            storage.uri = value.text(name)?.to_owned();
        } else if Some(name.as_str()) == guest_field {
            storage.guest = Some(value.text(name)?.to_owned());
        } else if name == "access" {
            for access in value.list(name)? {
                match access.text(name)? {
                    "read" => storage.read = true,
                    "write" => storage.write = true,
                    other => return Err(unknown(access, other)),
                }
            }
        } else {
            return Err(unknown(value, name));
        }
    }
    if storage.uri.is_empty() { Err(item.error(format!("an entry here has a `{uri_field}`"))) } else { Ok(storage) }
}

/// The directory that a URI means, if a mount can mean the same: an absolute path, with all or nothing below it as a pattern.
fn directory(uri: &str) -> Result<String, &'static str> {
    let path = uri.strip_prefix("fs://").unwrap_or(uri);
    if path.contains("://") {
        return Err("only `fs://` is known");
    }
    if !path.starts_with('/') {
        return Err("what a relative path starts from is not known here; write it out");
    }
    let path = path.strip_suffix("/**").unwrap_or(path);
    if path.contains(['*', '?', '[', '{', '%', '\\']) {
        return Err("a mount is a whole directory, and cannot follow a pattern");
    }
    let path = path.trim_end_matches('/');
    Ok(if path.is_empty() { "/".to_owned() } else { resolve_dots(Path::new(path)).display().to_string() })
}

/// Whether a denied URI could mean something in, or above, a directory: judged by what stands before its first wildcard.
fn paths_may_overlap(path: &str, denied: &str) -> bool {
    let denied = denied.strip_prefix("fs://").unwrap_or(denied);
    if !denied.starts_with('/') {
        return true;
    }
    match denied.find(['*', '?', '[', '{', '%', '\\']) {
        None => host_paths_overlap(Path::new(path), Path::new(denied)),
        Some(wild) => {
            let fixed = &denied[..denied[..wild].rfind('/').unwrap_or(0)];
            host_paths_overlap(Path::new(path), Path::new(if fixed.is_empty() { "/" } else { fixed }))
        }
    }
}

/// Whether a denied host could be one that is allowed. What is not a plain host may be any.
fn may_overlap(allowed: &str, denied: &str) -> bool {
    let pattern = |text: &str| match text.strip_prefix("*.") {
        Some(domain) => canonical_host(domain).ok().map(|host| HostPattern::Subdomains(host.into_text())),
        None => canonical_host(text).ok().map(|host| HostPattern::Exact(host.into_text())),
    };
    match (pattern(allowed), pattern(denied)) {
        (Some(allowed), Some(denied)) => allowed.overlaps(&denied),
        _ => true,
    }
}

/// Whether no plugin reaches any address of a range anyhow.
fn is_closed(network: &str) -> bool {
    let Ok(range) = Cidr::parse(network) else { return false };
    let holds = |closed: &Cidr| closed.prefix <= range.prefix && closed.contains(range.address);
    CLOSED.iter().filter_map(|text| Cidr::parse(text).ok()).any(|closed| holds(&closed))
}

/// A quantity of Kubernetes as a size: `512Mi` is `512MiB`.
fn quantity(text: &str) -> String {
    match text.strip_suffix('i') {
        Some(_) => format!("{text}B"),
        None if text.ends_with(['K', 'M', 'G', 'k']) => format!("{}B", text.to_ascii_uppercase()),
        None => format!("{text}B"),
    }
}

#[cfg(test)]
mod tests;
