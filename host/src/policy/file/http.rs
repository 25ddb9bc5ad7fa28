//! Reads `[[plugins.ID.net]]`, and the parts of it that a plugin's requests share.

use std::path::{Component, Path};

use crate::policy::document::{Field, Table};
use crate::policy::net::{
    Cidr, Host, HostPattern, NetGrant, Scheme, SecretRef, SecretSource, canonical_policy_host, is_loopback, is_prohibited,
    is_public_suffix, normalise_path,
};
use crate::text::clean_line;

const MAX_GRANTS: usize = 256;
const MAX_RANGES: usize = 64;
const MAX_FORMAT: usize = 256;

/// Methods that can be granted: RFC 9110 and WebDAV. CONNECT would open a tunnel past every check, TRACE reflects secrets.
pub(in crate::policy) const METHODS: [&str; 17] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "COPY",
    "LOCK",
    "MKCALENDAR",
    "MKCOL",
    "MOVE",
    "PROPFIND",
    "PROPPATCH",
    "REPORT",
    "SEARCH",
    "UNLOCK",
];

/// Headers that frame or route a request; whoever sets them can smuggle another one.
const FRAMING: [&str; 14] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "accept-encoding",
];

pub(super) fn read_grants(plugin: &Table<'_>, id: &str, base_dir: &Path) -> Vec<NetGrant> {
    let tables = plugin.tables("net", &format!("[[plugins.{id}.net]]"), MAX_GRANTS);
    tables.iter().filter_map(|table| read_grant(table, base_dir)).collect()
}

fn read_grant(table: &Table<'_>, base_dir: &Path) -> Option<NetGrant> {
    table.expect_only(&["host", "scheme", "port", "methods", "path", "private", "secret"]);
    let host = table.require("host", "host = \"api.example.com\"").and_then(|field| read_host(&field));
    let scheme = read_scheme(table);
    let methods = read_methods(table);
    let port = read_port(table);
    let path = read_path(table);
    let private = match table.get("private") {
        Some(field) => read_private(&field),
        None => Some(Vec::new()),
    };
    let secret = match table.get("secret") {
        Some(field) => Some(read_secret(&field, base_dir)?),
        None => None,
    };
    let scheme = scheme?;
    let port = port?.unwrap_or(scheme.default_port());
    let rule = table.rule();
    Some(NetGrant { host: host?, scheme, port, methods: methods?, path: path?, private: private?, secret, ceiling: None, rule })
}

/// `host`: a domain, `*.domain` or an address.
pub(in crate::policy) fn read_host(field: &Field<'_>) -> Option<HostPattern> {
    let text = field.text("\"api.example.com\"")?;
    let shown = clean_line(text, 100);
    if text.contains("://") || text.contains('/') {
        field.error(
            format!("`{shown}` is more than a host"),
            "write the host alone; `scheme`, `port` and `path` are fields of their own",
        );
        return None;
    }
    let (subdomains, name) = match text.strip_prefix("*.") {
        Some(domain) => (true, domain),
        None => (false, text),
    };
    if name.contains('*') {
        let hint = "name the host; `*.example.com` covers its subdomains; there is no way to grant every host";
        field.error(format!("`{shown}` would grant hosts that nobody has looked at"), hint);
        return None;
    }
    let host = match canonical_policy_host(name) {
        Ok(host) => host,
        Err(error) => {
            let with_port = name.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
            let hint =
                if with_port { "write the port in `port`" } else { "write a domain such as `api.example.com`, or an IP address" };
            field.error(format!("`{shown}`: {error}"), hint);
            return None;
        }
    };
    match host {
        Host::Domain(domain) if subdomains && is_public_suffix(&domain) => {
            let hint = format!("name the registered domain, such as `*.example.{domain}`");
            field.error(format!("`{shown}` would grant hosts that anybody can register"), hint);
            None
        }
        Host::Domain(domain) if subdomains => Some(HostPattern::Subdomains(domain)),
        Host::Ip(_) if subdomains => {
            field.error(
                format!("`{shown}` puts a `*` before an address"),
                "addresses have no subdomains; write one rule for each address",
            );
            None
        }
        host => Some(HostPattern::Exact(host.into_text())),
    }
}

/// `scheme`: `https` unless stated.
pub(in crate::policy) fn read_scheme(table: &Table<'_>) -> Option<Scheme> {
    match table.get("scheme") {
        Some(field) => field.word(&[("https", Scheme::Https), ("http", Scheme::Http)]),
        None => Some(Scheme::Https),
    }
}

/// `port`: the outer `None` is an error, the inner one is no statement.
pub(in crate::policy) fn read_port(table: &Table<'_>) -> Option<Option<u16>> {
    match table.get("port") {
        Some(field) => Some(u16::try_from(field.count(1, u64::from(u16::MAX), "8443")?).ok()),
        None => Some(None),
    }
}

/// `methods`: `["GET"]` unless stated.
pub(in crate::policy) fn read_methods(table: &Table<'_>) -> Option<Vec<String>> {
    let Some(field) = table.get("methods") else { return Some(vec!["GET".to_owned()]) };
    let mut methods: Vec<String> = Vec::new();
    let texts = field.texts("[\"GET\", \"POST\"]")?;
    if texts.is_empty() {
        field.error("`methods` is empty, so the rule allows nothing", "name the methods, or remove the rule");
        return None;
    }
    let mut valid = true;
    for item in texts {
        let text = item.text("\"GET\"")?;
        let shown = clean_line(text, 40);
        let upper = text.to_ascii_uppercase();
        let problem = match upper.as_str() {
            "CONNECT" | "TRACE" | "TRACK" => Some((format!("method `{shown}` cannot be granted"), "remove it".to_owned())),
            known if !METHODS.contains(&known) => {
                Some((format!("method `{shown}` is not known"), crate::policy::nearest::did_you_mean(&upper, &METHODS)))
            }
            known if known != text => {
                Some((format!("method `{shown}` is not in upper case"), format!("did you mean `{known}`?")))
            }
            known if methods.iter().any(|method| method == known) => {
                Some((format!("method `{shown}` is named twice"), "remove one".to_owned()))
            }
            _ => None,
        };
        match problem {
            Some((message, hint)) => {
                item.error(message, hint);
                valid = false;
            }
            None => methods.push(upper),
        }
    }
    valid.then_some(methods)
}

/// `path`: `/` unless stated.
pub(in crate::policy) fn read_path(table: &Table<'_>) -> Option<String> {
    let Some(field) = table.get("path") else { return Some("/".to_owned()) };
    let text = field.text("\"/v1/\"")?;
    let shown = clean_line(text, 100);
    if text.contains('*') {
        field.error(format!("path `{shown}` has a `*`"), "a path covers everything below it; leave the `*` out");
        return None;
    }
    match normalise_path(text) {
        Ok(normal) if normal == text => Some(normal),
        Ok(normal) => {
            field.error(format!("path `{shown}` is not in its normal form"), format!("write `{}`", clean_line(&normal, 100)));
            None
        }
        Err(error) => {
            let hint =
                "a path begins with `/`, has no query, and covers whole segments: `/repos/`; other characters are written `%E5`";
            field.error(format!("path `{shown}`: {error}"), hint);
            None
        }
    }
}

fn read_private(field: &Field<'_>) -> Option<Vec<Cidr>> {
    let texts = field.texts("[\"127.0.0.1/32\"]")?;
    if texts.is_empty() || texts.len() > MAX_RANGES {
        field.error(format!("`private` must name 1 to {MAX_RANGES} ranges"), "name the ranges, or remove `private`");
        return None;
    }
    let mut ranges: Vec<Cidr> = Vec::new();
    let mut valid = true;
    for item in texts {
        let problem = match Cidr::parse(item.text("\"127.0.0.1/32\"")?) {
            Err(message) => Some((message, "write an address and the number of fixed bits, such as `10.20.0.0/16`")),
            Ok(range) if range.prefix == 0 => Some((format!("`{range}` is every address"), "name the ranges that are needed")),
            Ok(range) if is_prohibited(range.address).is_none() && is_prohibited(range.last()).is_none() => {
                Some((format!("`{range}` is public, which needs no `private`"), "remove it"))
            }
            Ok(range) if ranges.contains(&range) => Some((format!("`{range}` is named twice"), "remove one")),
            Ok(range) => {
                ranges.push(range);
                None
            }
        };
        if let Some((message, hint)) = problem {
            item.error(message, hint);
            valid = false;
        }
    }
    valid.then_some(ranges)
}

fn read_secret(field: &Field<'_>, base_dir: &Path) -> Option<SecretRef> {
    let table = field.table("secret")?;
    table.expect_only(&["header", "format", "source"]);
    let header = table.require("header", "header = \"authorization\"").and_then(|field| read_header(&field));
    let format = match table.get("format") {
        Some(field) => read_format(&field),
        None => Some("{}".to_owned()),
    };
    let source = table.require("source", "source = \"env:API_TOKEN\"").and_then(|field| read_secret_source(&field, base_dir));
    Some(SecretRef { header: header?, format: format?, source: source? })
}

/// A header name in lower case, which does not frame or route the request.
pub(in crate::policy) fn read_header(field: &Field<'_>) -> Option<String> {
    let text = field.text("\"authorization\"")?;
    let name = text.to_ascii_lowercase();
    // token: RFC 9110 section 5.6.2.
    let token = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    let shown = clean_line(text, 60);
    if name.is_empty() || name.len() > 128 || !token {
        field.error(format!("`{shown}` is not the name of a header"), "write a name such as `authorization` or `x-api-key`");
        return None;
    }
    if FRAMING.contains(&name.as_str()) || name.starts_with("proxy-") {
        field.error(
            format!("header `{shown}` frames or routes the request"),
            "use `authorization`, or the header that the API names",
        );
        return None;
    }
    Some(name)
}

fn read_format(field: &Field<'_>) -> Option<String> {
    let text = field.text("\"Bearer {}\"")?;
    let visible = text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if text.matches("{}").count() != 1 || !visible || text.len() > MAX_FORMAT || text.trim() != text {
        field.error("`format` must hold `{}` once, and visible ASCII besides", "write `format = \"Bearer {}\"`");
        return None;
    }
    Some(text.to_owned())
}

fn read_secret_source(field: &Field<'_>, base_dir: &Path) -> Option<SecretSource> {
    let text = field.text("\"env:API_TOKEN\"")?;
    if let Some(name) = text.strip_prefix("env:") {
        if is_env_name(name) {
            return Some(SecretSource::Env(name.to_owned()));
        }
        field.error(format!("`{}` is not the name of an environment variable", clean_line(name, 60)), ENV_NAME_HINT);
    } else if let Some(path) = text.strip_prefix("file:") {
        if let Some(path) = read_host_path(field, path, base_dir) {
            return Some(SecretSource::File(path));
        }
    } else if let Some(entry) = text.strip_prefix("keyring:") {
        // A leading hyphen would be an option of the program that is asked.
        let fit = |part: &&str| {
            !part.is_empty()
                && part.len() <= 128
                && !part.starts_with('-')
                && !part.chars().any(|c| c.is_whitespace() || crate::text::is_hidden(c))
        };
        match entry.split_once('/').filter(|(service, account)| fit(service) && fit(account)) {
            Some((service, account)) => {
                return Some(SecretSource::Keyring { service: service.to_owned(), account: account.to_owned() });
            }
            None => field.error(
                format!("`{}` is not an entry of a keyring", clean_line(entry, 100)),
                "write `keyring:SERVICE/ACCOUNT`, both without spaces and not beginning with `-`",
            ),
        }
    } else {
        let hint = "write `env:NAME`, `file:PATH` or `keyring:SERVICE/ACCOUNT`; the secret itself never stands in a policy";
        // The text may be the secret itself, so it is not repeated.
        field.error("`source` names neither a variable nor a file nor an entry of the keyring", hint);
    }
    None
}

pub(in crate::policy) const ENV_NAME_HINT: &str = "letters, digits and `_`, not beginning with a digit, at most 128";

pub(in crate::policy) fn is_env_name(name: &str) -> bool {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    plain && !name.is_empty() && name.len() <= 128 && !name.as_bytes()[0].is_ascii_digit()
}

/// A path on the host, made absolute. `..` stays: only the system knows what it means behind a symbolic link.
pub(super) fn read_host_path(field: &Field<'_>, text: &str, base_dir: &Path) -> Option<std::path::PathBuf> {
    let shown = clean_line(text, 100);
    if text.is_empty() || text.len() > 4_096 || text.chars().any(|c| c.is_control()) {
        field.error(format!("`{shown}` is not a path"), "write a path, relative to the policy file or absolute");
        return None;
    }
    if text.starts_with('~') || text.contains("${") || text.starts_with('$') {
        field.error(
            format!("`{shown}`: nothing is expanded in paths"),
            "write the path out, relative to the policy file or absolute",
        );
        return None;
    }
    let joined = base_dir.join(text);
    Some(joined.components().filter(|part| *part != Component::CurDir).collect())
}

/// Whether a rule's requests stay on this machine.
pub(in crate::policy) fn stays_here(host: &HostPattern) -> bool {
    matches!(host, HostPattern::Exact(host) if is_loopback(host))
}
