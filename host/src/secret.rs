//! Secrets: values that the host adds to requests, and that guests, models, logs and files never see.

mod redactor;

use std::fmt;
use std::io;
use std::path::Path;

pub use self::redactor::{REDACTED, Redactor};
use crate::policy::{Grants, RuleRef};
use crate::policy::{SecretRef, SecretSource};

/// The shortest secret, in bytes. A shorter one would be found in ordinary text by chance, and redacting it would hide that text.
const MIN_BYTES: usize = 4;

/// The longest secret, in bytes: it must fit into one header.
pub(crate) const MAX_BYTES: usize = 8 * 1024;

/// All secrets that this process uses, read once at the start.
///
/// There is one constructor, [`Secrets::resolve`]; it fails when one secret is missing, so no request can be sent without it.
#[derive(Default)]
pub struct Secrets {
    values: Vec<(SecretSource, Secret)>,
    redactor: Redactor,
}

/// A secret that a policy rule asks for.
#[derive(Clone, Copy, Debug)]
pub struct SecretRequest<'a> {
    /// The plugin whose requests carry it.
    pub plugin: &'a str,
    /// The rule that says so.
    pub rule: &'a RuleRef,
    /// Which secret, and how it is sent.
    pub secret: &'a SecretRef,
}

impl<'a> SecretRequest<'a> {
    /// All secrets that a plugin's grants ask for.
    pub fn all_of(plugin: &'a str, grants: &'a Grants) -> impl Iterator<Item = Self> {
        grants.net.iter().filter_map(move |grant| Some(Self { plugin, rule: &grant.rule, secret: grant.secret.as_ref()? }))
    }
}

/// Why a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The environment variable is not set, or not Unicode.
    #[error(
        "{rule}: plugin `{plugin}` needs the secret `env:{name}`, which is not set\n\
         hint: set the environment variable `{name}`, or remove `secret` from the rule"
    )]
    MissingVariable {
        /// The plugin.
        plugin: String,
        /// The rule.
        rule: RuleRef,
        /// The variable.
        name: String,
    },
    /// The file cannot be read.
    #[error(
        "{rule}: plugin `{plugin}` needs the secret `file:{path}`, which cannot be read\n\
         hint: create the file, or remove `secret` from the rule"
    )]
    UnreadableFile {
        /// The plugin.
        plugin: String,
        /// The rule.
        rule: RuleRef,
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The keyring does not give it out.
    #[error(
        "{rule}: plugin `{plugin}` needs the secret `keyring:{service}/{account}`, which the keyring does not give: {problem}\n\
         hint: store it with `secret-tool store --label={service} service {service} username {account}` (on macOS \
         `security add-generic-password -s {service} -a {account} -w`), or remove `secret` from the rule"
    )]
    Keyring {
        /// The plugin.
        plugin: String,
        /// The rule.
        rule: RuleRef,
        /// The entry's service.
        service: String,
        /// The entry's account.
        account: String,
        /// What is wrong.
        problem: String,
    },
    /// The value is empty, too short, too long, or holds a control character.
    #[error(
        "{rule}: plugin `{plugin}` cannot use the secret `{name}`: {problem}\n\
         hint: a secret is {MIN_BYTES} to {MAX_BYTES} bytes of text without control characters"
    )]
    Unusable {
        /// The plugin.
        plugin: String,
        /// The rule.
        rule: RuleRef,
        /// Where the secret is, as in the policy.
        name: String,
        /// What is wrong with it. Never the value.
        problem: &'static str,
    },
}

impl Secrets {
    /// Reads every secret that the policy names.
    ///
    /// `env` reads a variable of the host's environment; `read` reads a file, such as [`read_file`]; `keyring` looks up the entry of a
    /// service and an account.
    ///
    /// # Errors
    ///
    /// Returns the first secret that is missing or unusable, with its plugin and rule.
    pub fn resolve<'a>(
        requests: impl IntoIterator<Item = SecretRequest<'a>>,
        env: &dyn Fn(&str) -> Option<String>,
        read: &dyn Fn(&Path) -> io::Result<String>,
        keyring: &dyn Fn(&str, &str) -> io::Result<String>,
    ) -> Result<Self, SecretError> {
        let mut values: Vec<(SecretSource, Secret)> = Vec::new();
        for request in requests {
            let source = &request.secret.source;
            if values.iter().any(|(known, _)| known == source) {
                continue;
            }
            let text = fetch(request, env, read, keyring)?;
            if let Some(problem) = problem_of(&text) {
                return Err(SecretError::Unusable {
                    plugin: request.plugin.to_owned(),
                    rule: request.rule.clone(),
                    name: name_of(source),
                    problem,
                });
            }
            values.push((source.clone(), Secret(text.into())));
        }
        let redactor = Redactor::new(values.iter().map(|(_, secret)| secret.expose()));
        Ok(Self { values, redactor })
    }

    /// The value of a secret that was resolved.
    pub fn get(&self, source: &SecretSource) -> Option<&Secret> {
        self.values.iter().find(|(known, _)| known == source).map(|(_, secret)| secret)
    }

    /// A redactor that knows all of them.
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values.iter().map(|(source, _)| source)).finish()
    }
}

/// One secret value. It prints as `[secret]`.
pub struct Secret(Box<str>);

impl Secret {
    /// The value itself, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

/// Reads a secret from a file: a regular file, at most 8 KiB and a newline.
///
/// # Errors
///
/// Returns the error of the file system, or one that says what is wrong with the file.
pub fn read_file(path: &Path) -> io::Result<String> {
    crate::file::read_text(path, MAX_BYTES as u64 + 2).map_err(crate::file::ReadError::into_io)
}

fn fetch(
    request: SecretRequest<'_>,
    env: &dyn Fn(&str) -> Option<String>,
    read: &dyn Fn(&Path) -> io::Result<String>,
    keyring: &dyn Fn(&str, &str) -> io::Result<String>,
) -> Result<String, SecretError> {
    match &request.secret.source {
        SecretSource::Env(name) => env(name).ok_or_else(|| SecretError::MissingVariable {
            plugin: request.plugin.to_owned(),
            rule: request.rule.clone(),
            name: name.clone(),
        }),
        SecretSource::File(path) => {
            let text = read(path).map_err(|source| SecretError::UnreadableFile {
                plugin: request.plugin.to_owned(),
                rule: request.rule.clone(),
                path: path.display().to_string(),
                source,
            })?;
            Ok(without_newline(text))
        }
        SecretSource::Keyring { service, account } => {
            let text = keyring(service, account).map_err(|error| SecretError::Keyring {
                plugin: request.plugin.to_owned(),
                rule: request.rule.clone(),
                service: service.clone(),
                account: account.clone(),
                problem: error.to_string(),
            })?;
            Ok(without_newline(text))
        }
    }
}

fn without_newline(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

fn name_of(source: &SecretSource) -> String {
    match source {
        SecretSource::Env(name) => format!("env:{name}"),
        SecretSource::File(path) => format!("file:{}", path.display()),
        SecretSource::Keyring { service, account } => format!("keyring:{service}/{account}"),
    }
}

fn problem_of(text: &str) -> Option<&'static str> {
    if text.trim().is_empty() {
        Some("it is empty")
    } else if text.len() < MIN_BYTES {
        Some("it is too short")
    } else if text.len() > MAX_BYTES {
        Some("it is too long")
    } else if text.chars().any(char::is_control) {
        // A line break would let the value add headers to the request.
        Some("it holds a control character")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn resolve(source: SecretSource, value: Option<&str>) -> Result<Secrets, SecretError> {
        let rule = RuleRef { file: Arc::from("policy.toml"), line: 7 };
        let secret = SecretRef { header: "authorization".into(), format: "Bearer {}".into(), source };
        let value = value.map(str::to_owned);
        Secrets::resolve(
            [SecretRequest { plugin: "github", rule: &rule, secret: &secret }],
            &|name| value.clone().filter(|_| name == "TOKEN"),
            &|_| value.clone().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)),
            &|service, account| {
                let found = value.clone().filter(|_| (service, account) == ("github", "ann"));
                found.ok_or_else(|| io::Error::other("there is no such entry"))
            },
        )
    }

    #[test]
    fn a_secret_that_is_missing_or_unusable_names_plugin_rule_and_source() {
        let env = || SecretSource::Env("TOKEN".into());
        let file = || SecretSource::File("/run/token".into());
        let keyring = |account: &str| SecretSource::Keyring { service: "github".into(), account: account.into() };
        for (source, value, expected) in [
            (
                keyring("bob"),
                Some("abcdef"),
                "the secret `keyring:github/bob`, which the keyring does not give: there is no such entry",
            ),
            (keyring("ann"), Some("a\nb"), "cannot use the secret `keyring:github/ann`: it is too short"),
            (env(), None, "needs the secret `env:TOKEN`, which is not set"),
            (SecretSource::Env("OTHER".into()), Some("abcdef"), "needs the secret `env:OTHER`"),
            (env(), Some(""), "it is empty"),
            (env(), Some("    "), "it is empty"),
            (env(), Some("abc"), "it is too short"),
            (env(), Some("abc\r\nx-evil: 1"), "control character"),
            (env(), Some("abc\0def"), "control character"),
            (file(), None, "needs the secret `file:/run/token`, which cannot be read"),
            (file(), Some("\n"), "it is empty"),
            (file(), Some("abcdef\n\n"), "control character"),
        ] {
            let error = resolve(source, value).expect_err(expected).to_string();
            assert!(error.starts_with("policy.toml:7: plugin `github`"), "{error}");
            assert!(error.contains(expected), "{error}");
            assert!(error.contains("\nhint: "), "{error}");
        }
        let long = "x".repeat(MAX_BYTES + 1);
        assert!(resolve(env(), Some(&long)).expect_err("too long").to_string().contains("too long"));
    }

    #[test]
    fn a_file_loses_its_last_newline_only() {
        for (text, expected) in [("令牌-42\n", "令牌-42"), ("a b c d\r\n", "a b c d"), ("plain", "plain")] {
            let source = SecretSource::File("/run/token".into());
            let secrets = resolve(source.clone(), Some(text)).expect("usable");
            assert_eq!(secrets.get(&source).map(Secret::expose), Some(expected));
        }
    }

    #[test]
    fn debug_text_does_not_show_the_value() {
        let secrets = resolve(SecretSource::Env("TOKEN".into()), Some("hunter2hunter2")).expect("usable");
        let secret = secrets.get(&SecretSource::Env("TOKEN".into())).expect("resolved");
        assert!(!format!("{secrets:?} {secret:?} {:?}", secrets.redactor()).contains("hunter2"));
    }

    #[test]
    fn a_secret_file_is_a_regular_file() {
        assert!(read_file(Path::new("/dev/zero")).is_err());
        assert!(read_file(Path::new("/")).is_err());
    }
}
