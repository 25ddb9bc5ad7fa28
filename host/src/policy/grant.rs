//! Grants: what a plugin may do, each with a pure `allows`. Only [`Policy`](super::Policy) makes [`Grants`].

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::file::http::METHODS;
use super::net::{NetGrant, NetRequest, Scheme, SecretRef, is_loopback, is_prohibited};
use super::write::{key, string};

/// Where a rule stands: the policy file and the line, counted from 1.
#[derive(Clone, Debug, Eq, PartialEq, Hash)]
pub struct RuleRef {
    /// The policy file, as it was given.
    pub file: Arc<str>,
    /// The line.
    pub line: usize,
}

impl fmt::Display for RuleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// All that one plugin may reach. Empty is the default: nothing.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    /// HTTP requests.
    pub net: Vec<NetGrant>,
    /// Directories.
    pub fs: Vec<FsGrant>,
    /// The key-value store.
    pub kv: Option<KvGrant>,
    /// Environment variables that the guest sees.
    pub env: BTreeMap<String, String>,
    /// Values of `wasi:config/store`.
    pub config: BTreeMap<String, String>,
}

/// The rules that allow one request.
#[derive(Clone, Debug)]
pub struct NetAllowance<'a> {
    /// All that match, in the order of the policy; at least one.
    pub rules: Vec<&'a NetGrant>,
}

impl<'a> NetAllowance<'a> {
    /// The secrets that the host adds. No two have the same header: a policy where that could happen does not parse.
    pub fn secrets(&self) -> impl Iterator<Item = &'a SecretRef> + '_ {
        self.rules.iter().filter_map(|rule| rule.secret.as_ref())
    }

    /// Whether the request may be dialled to this address: it is public, or a rule opens its range.
    pub fn allows_address(&self, address: IpAddr) -> bool {
        self.rules.iter().any(|rule| rule.allows_address(address))
    }

    /// What to add to the policy so that [`NetAllowance::allows_address`] is true.
    pub fn address_hint(&self, address: IpAddr) -> String {
        let width = if address.is_ipv4() { 32 } else { 128 };
        let rule = self.rules.first().map(|rule| format!(" at {}", rule.rule)).unwrap_or_default();
        format!("if the plugin is meant to reach it, add to the rule{rule}:\nprivate = [\"{address}/{width}\"]")
    }
}

/// Why a request is not allowed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NetDenial {
    /// Which request, which rule came nearest, and in what it differs.
    pub reason: String,
    /// What would allow it.
    pub hint: String,
}

impl Grants {
    /// Each grant as a line of text. Of environment and configuration the names alone: values may be private.
    pub fn lines(&self) -> Vec<String> {
        let net = self.net.iter().map(|net| format!("net {net}"));
        let fs = self.fs.iter().map(|fs| {
            let mode = if fs.mode == FsMode::ReadOnly { "ro" } else { "rw" };
            format!("fs {} as {} {mode}", fs.host.display(), fs.guest)
        });
        let kv = self.kv.iter().map(|kv| format!("kv {} bytes", kv.quota_bytes));
        let env = self.env.keys().map(|key| format!("env {key}"));
        let config = self.config.keys().map(|key| format!("config {key}"));
        net.chain(fs).chain(kv).chain(env).chain(config).collect()
    }

    /// Finds the rules that allow a request; `plugin` is named in the denial.
    ///
    /// # Errors
    ///
    /// Returns why no rule allows it, and the lines that would.
    pub fn allow_net(&self, plugin: &str, request: &NetRequest<'_>) -> Result<NetAllowance<'_>, NetDenial> {
        let rules: Vec<&NetGrant> = self.net.iter().filter(|grant| grant.allows(request)).collect();
        if rules.is_empty() { Err(self.deny_net(plugin, request)) } else { Ok(NetAllowance { rules }) }
    }

    fn deny_net(&self, plugin: &str, request: &NetRequest<'_>) -> NetDenial {
        // A rule that matches in itself differs in nothing, so it counts as the nearest.
        let nearest = self.net.iter().max_by_key(|grant| grant.first_difference(request).map_or(u8::MAX, |field| field as u8));
        let why = match nearest.and_then(|grant| Some((grant, grant.explain_mismatch(request)?))) {
            Some((grant, mismatch)) => format!("the nearest rule ({}) differs: {mismatch}", grant.rule),
            None => "no rule grants it any request".to_owned(),
        };
        let reason = format!("plugin `{plugin}` may not send `{request}`: {why}");
        let hint = if nearest.is_some_and(|grant| grant.first_difference(request).is_none()) {
            "the policy grants it, but the plugin does not declare that it needs it: its author must add it to the requests"
                .to_owned()
        } else if !METHODS.contains(&request.method) {
            "this method cannot be granted".to_owned()
        } else {
            format!("to allow it, add to the policy:\n{}", net_lines(plugin, request))
        };
        NetDenial { reason, hint }
    }
}

/// The rule that allows exactly this request.
fn net_lines(plugin: &str, request: &NetRequest<'_>) -> String {
    let mut lines = format!("[[plugins.{}.net]]\nhost = {}", key(plugin), string(request.host));
    if request.scheme == Scheme::Http {
        lines.push_str("\nscheme = \"http\"");
    }
    if request.port != request.scheme.default_port() {
        lines.push_str(&format!("\nport = {}", request.port));
    }
    if request.method != "GET" {
        lines.push_str(&format!("\nmethods = [{}]", string(request.method)));
    }
    if request.path != "/" {
        lines.push_str(&format!("\npath = {}", string(request.path)));
    }
    match request.host.parse::<IpAddr>() {
        Ok(address) if is_prohibited(address).is_some() => lines.push_str(&format!("\nprivate = [\"{address}\"]")),
        Err(_) if is_loopback(request.host) => lines.push_str("\nprivate = [\"127.0.0.1\", \"::1\"]"),
        _ => {}
    }
    lines
}

/// A directory that a guest sees.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FsGrant {
    /// The directory on the host; absolute.
    pub host: PathBuf,
    /// Its path inside the guest; absolute, `/`-separated.
    pub guest: String,
    /// What may be done in it.
    pub mode: FsMode,
    /// Skips the checks that keep `/`, `/proc`, a home directory and the like from being mounted.
    pub dangerous: bool,
    /// Where the policy says so.
    pub rule: RuleRef,
}

/// What may be done in a mount.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub enum FsMode {
    /// List and read.
    ReadOnly,
    /// Also create, change and remove.
    ReadWrite,
}

/// The use of the key-value store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KvGrant {
    /// The most that keys and values together may take, in bytes.
    pub quota_bytes: u64,
    /// Where the policy says so.
    pub rule: RuleRef,
}

/// The longest guest path, in bytes.
const MAX_GUEST_PATH: usize = 255;

/// Checks a guest path: absolute, in normal form, without what a shell or a log would misread.
pub(super) fn check_guest_path(path: &str) -> Result<(), &'static str> {
    let Some(inside) = path.strip_prefix('/') else { return Err("is not absolute") };
    if path.len() > MAX_GUEST_PATH {
        return Err("is too long");
    }
    if path.chars().any(|c| c.is_control() || c == '\\' || crate::text::is_hidden(c)) {
        return Err("has a character that is not allowed");
    }
    match inside {
        "" => Ok(()),
        _ if inside.split('/').any(|part| matches!(part, "" | "." | "..")) => Err("is not in its normal form"),
        _ => Ok(()),
    }
}

/// Whether a guest path is the directory, or lies below it.
pub(super) fn guest_path_within(path: &str, directory: &str) -> bool {
    match path.strip_prefix(directory) {
        Some(rest) => directory == "/" || rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

/// Whether one host path lies within the other or is the same, judged by the text alone.
///
/// Symbolic links can make paths overlap that do not look so: who opens the mounts compares what they resolve to.
pub(super) fn host_paths_overlap(a: &Path, b: &Path) -> bool {
    let (a, b) = (resolve_dots(a), resolve_dots(b));
    a.starts_with(&b) || b.starts_with(&a)
}

/// Resolves `.` and `..` in the text of a path.
pub(super) fn resolve_dots(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                resolved.pop();
            }
            other => resolved.push(other),
        }
    }
    resolved
}

/// What makes a directory one that no plugin should see, judged by the path alone; the caller's home is not known here.
pub(super) fn sensitive_directory(path: &Path) -> Option<&'static str> {
    let path = resolve_dots(path);
    let parts: Vec<&str> = path.components().filter_map(|part| part.as_os_str().to_str()).filter(|part| *part != "/").collect();
    match parts[..] {
        [] => Some("the root directory"),
        ["proc" | "sys" | "dev", ..] => Some("a directory of the kernel, with ways to every process and device"),
        ["run"] | ["var"] | ["var", "run", ..] => Some("a directory with sockets of other services"),
        ["etc", ..] => Some("the configuration of this machine"),
        ["boot", ..] | ["bin" | "sbin" | "lib" | "lib64" | "usr"] => Some("part of the operating system"),
        ["root"] | ["home" | "Users"] | ["home" | "Users", _] => Some("a home directory"),
        [.., ".ssh" | ".gnupg" | ".aws" | ".kube" | ".docker"] => Some("a directory of credentials"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_path_has_one_form() {
        for path in ["/", "/data", "/data/in", "/数据", "/a b", "/..."] {
            assert_eq!(check_guest_path(path), Ok(()), "{path}");
        }
        let long = format!("/{}", "a".repeat(MAX_GUEST_PATH));
        for path in
            ["", "data", "./data", "/data/", "//", "/a//b", "/a/./b", "/a/../b", "/..", "/a\\b", "/a\0", "/a\u{202e}b", &long]
        {
            assert!(check_guest_path(path).is_err(), "{path}");
        }
    }

    #[test]
    fn below_is_whole_parts() {
        for (path, directory, expected) in [
            ("/data", "/data", true),
            ("/data/in", "/data", true),
            ("/database", "/data", false),
            ("/data", "/data/in", false),
            ("/data", "/", true),
            ("/", "/", true),
            ("/", "/data", false),
        ] {
            assert_eq!(guest_path_within(path, directory), expected, "{path} in {directory}");
        }
    }

    #[test]
    fn overlap_looks_through_dots() {
        for (a, b, expected) in [
            ("/srv/a", "/srv/a", true),
            ("/srv/a", "/srv/a/b", true),
            ("/srv/a/../b", "/srv/b/c", true),
            ("/srv/a/./b", "/srv/a", true),
            ("/srv/a", "/srv/ab", false),
            ("/srv/a", "/srv/b", false),
        ] {
            assert_eq!(host_paths_overlap(Path::new(a), Path::new(b)), expected, "{a} {b}");
            assert_eq!(host_paths_overlap(Path::new(b), Path::new(a)), expected, "{b} {a}");
        }
    }

    #[test]
    fn sensitive_directories_are_known_by_path() {
        for path in [
            "/",
            "/.",
            "/srv/..",
            "/proc",
            "/proc/self/root",
            "/sys/kernel",
            "/dev",
            "/etc",
            "/etc/ssh",
            "/root",
            "/home",
            "/home/ann",
            "/Users/ann",
            "/home/ann/.ssh",
            "/var/run/docker",
            "/run",
            "/usr",
        ] {
            assert!(sensitive_directory(Path::new(path)).is_some(), "{path}");
        }
        for path in ["/srv/data", "/home/ann/data", "/tmp/x", "/var/lib/honeycomb", "/usr/share/dict", "/procedures"] {
            assert!(sensitive_directory(Path::new(path)).is_none(), "{path}");
        }
    }
}
