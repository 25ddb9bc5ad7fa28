//! Makes a provider from its settings.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use url::{Host, Url};

use super::decode::{ResponseLimits, random_ids};
use super::http::{HttpProvider, client, secret_header};
use super::quirks::Quirks;
use super::retry::{Clock, RetryPolicy, SystemClock};
use super::scripted::{ScriptError, ScriptedProvider};
use super::wire::WireFormat;
use super::{Provider, RequestOptions};
use crate::secret::Redactor;

/// The version of Anthropic's API that this crate speaks.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// Shorter keys are no secrets (`none`, `x`), and redacting them would blot out ordinary words. In bytes.
const SHORTEST_SECRET: usize = 5;

/// Which protocol a provider speaks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ProviderKind {
    /// OpenAI's chat completions, or a server that copies them.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
    /// A script file instead of a model; see [`scripted`](super::scripted).
    Scripted(PathBuf),
}

/// A secret key. It prints as a placeholder.
#[derive(Clone, Eq, PartialEq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Wraps a key; white space around it, as files and shells leave it, is dropped.
    pub fn new(key: &str) -> Self {
        Self(key.trim().to_owned())
    }

    /// The key itself, for what sends it or keeps it out of texts.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// How long a provider may take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timeouts {
    /// To accept a connection.
    pub connect: Duration,
    /// To send response headers, for a streamed answer.
    pub headers: Duration,
    /// Between two events of a stream; heartbeats do not count.
    pub idle: Duration,
    /// Between two events of a stream that bring the answer further; empty deltas do not count either.
    pub stall: Duration,
    /// For all of an answer that is not streamed.
    pub whole: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            headers: Duration::from_secs(60),
            idle: Duration::from_secs(90),
            stall: Duration::from_secs(300),
            whole: Duration::from_secs(600),
        }
    }
}

/// What a provider is made from.
#[derive(Clone, Debug)]
pub struct ProviderSettings {
    /// The protocol.
    pub kind: ProviderKind,
    /// Where it is, as the provider's own SDK reads it (`OPENAI_BASE_URL`, `ANTHROPIC_BASE_URL`); none is the provider itself.
    pub base_url: Option<String>,
    /// The key; a base URL on this machine needs none.
    pub api_key: Option<ApiKey>,
    /// The model's name.
    pub model: String,
    /// The sampling temperature; none leaves it to the provider.
    pub temperature: Option<f64>,
    /// The most tokens that an answer may have; a request may say otherwise.
    pub max_output_tokens: Option<u32>,
    /// Whether answers are streamed.
    pub stream: bool,
    /// How long the provider may take.
    pub timeouts: Timeouts,
    /// How large its answers may be.
    pub limits: ResponseLimits,
    /// How often failed requests are repeated.
    pub retries: RetryPolicy,
    /// Requests in flight at once. 0 counts as 1.
    pub concurrency: usize,
    /// Headers that are sent with every request. Their values are kept out of errors.
    pub extra_headers: Vec<(String, String)>,
    /// What is special about the provider; none looks it up by host and model.
    pub quirks: Option<Quirks>,
}

impl ProviderSettings {
    /// Settings with every default.
    pub fn new(kind: ProviderKind, model: impl Into<String>) -> Self {
        Self {
            kind,
            base_url: None,
            api_key: None,
            model: model.into(),
            temperature: None,
            max_output_tokens: None,
            stream: true,
            timeouts: Timeouts::default(),
            limits: ResponseLimits::default(),
            retries: RetryPolicy::default(),
            concurrency: 8,
            extra_headers: Vec::new(),
            quirks: None,
        }
    }
}

/// Why no provider can be made from its settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// There is no key.
    #[error("no API key for `{host}`\nhint: set `{variable}`, or a base URL on this machine for a local model")]
    MissingKey {
        /// The base URL's host.
        host: String,
        /// The environment variable that the provider's own SDK reads.
        variable: &'static str,
    },
    /// The key cannot stand in a header.
    #[error("the API key has characters that HTTP does not allow\nhint: copy it again; keys are plain ASCII on one line")]
    InvalidKey,
    /// There is no model.
    #[error("no model is chosen\nhint: name one with `--model` or in the configuration")]
    MissingModel,
    /// The base URL is unusable.
    #[error("base URL `{url}` is unusable: {reason}\nhint: it looks like `{example}`")]
    InvalidBaseUrl {
        /// The URL, without any password.
        url: String,
        /// What is wrong with it.
        reason: String,
        /// One that would do.
        example: &'static str,
    },
    /// An extra header is unusable.
    #[error("extra header `{name}` is not valid in HTTP, or is one that the provider sets itself")]
    InvalidHeader {
        /// Its name.
        name: String,
    },
    /// The temperature is out of range.
    #[error("temperature {0} is out of range\nhint: use a number from 0 to 2")]
    InvalidTemperature(f64),
    /// The script is unusable.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The HTTP client cannot be set up.
    #[error("cannot set up HTTPS\nhint: are the system's root certificates installed?")]
    Client(#[source] reqwest::Error),
}

/// Makes a provider.
///
/// # Errors
///
/// Returns a [`SettingsError`] that says which setting is wrong and how to put it right.
pub fn build(settings: ProviderSettings) -> Result<Arc<dyn Provider>, SettingsError> {
    build_with_clock(settings, Arc::new(SystemClock))
}

/// Makes a provider that waits by another clock; for tests of retries.
///
/// # Errors
///
/// Like [`build`].
pub fn build_with_clock(settings: ProviderSettings, clock: Arc<dyn Clock>) -> Result<Arc<dyn Provider>, SettingsError> {
    let (format, defaults) = match &settings.kind {
        ProviderKind::Scripted(path) => return Ok(Arc::new(ScriptedProvider::from_file(path)?)),
        ProviderKind::OpenAi => (WireFormat::OpenAiChat, &OPENAI),
        ProviderKind::Anthropic => (WireFormat::AnthropicMessages, &ANTHROPIC),
    };
    if settings.model.trim().is_empty() {
        return Err(SettingsError::MissingModel);
    }
    if let Some(temperature) = settings.temperature
        && !(0.0..=2.0).contains(&temperature)
    {
        return Err(SettingsError::InvalidTemperature(temperature));
    }
    let base = settings.base_url.as_deref().map(str::trim).filter(|url| !url.is_empty()).unwrap_or(defaults.base_url);
    let endpoint = defaults.endpoint(base)?;
    let host = endpoint.host_str().unwrap_or_default().to_owned();
    let is_loopback = is_loopback(&endpoint);
    let mut headers = HeaderMap::new();
    let mut secrets = Vec::new();
    match settings.api_key.filter(|key| !key.0.is_empty()) {
        Some(ApiKey(key)) => {
            let (name, value) = match format {
                WireFormat::OpenAiChat => (AUTHORIZATION, format!("Bearer {key}")),
                WireFormat::AnthropicMessages => (HeaderName::from_static("x-api-key"), key.clone()),
            };
            headers.insert(name, secret_header(&value).ok_or(SettingsError::InvalidKey)?);
            if key.len() >= SHORTEST_SECRET {
                secrets.push(key);
            }
        }
        None if is_loopback => {}
        None => return Err(SettingsError::MissingKey { host, variable: defaults.variable }),
    }
    if format == WireFormat::AnthropicMessages {
        headers.insert("anthropic-version", HeaderValue::from_static(ANTHROPIC_VERSION));
    }
    for (name, value) in &settings.extra_headers {
        let invalid = || SettingsError::InvalidHeader { name: name.clone() };
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        if matches!(parsed.as_str(), "content-type" | "content-length" | "transfer-encoding" | "host" | "accept") {
            return Err(invalid());
        }
        headers.insert(parsed, secret_header(value).ok_or_else(invalid)?);
        if value.len() >= 2 * SHORTEST_SECRET {
            secrets.push(value.clone());
        }
    }
    let quirks = settings.quirks.unwrap_or_else(|| Quirks::of(&host, &settings.model));
    Ok(Arc::new(HttpProvider {
        client: client(&settings.timeouts, &endpoint, is_loopback).map_err(SettingsError::Client)?,
        endpoint,
        headers,
        redactor: Redactor::new(secrets.iter().map(String::as_str)),
        format,
        options: RequestOptions {
            model: settings.model,
            temperature: settings.temperature,
            max_output_tokens: settings.max_output_tokens,
            stream: settings.stream,
            quirks,
        },
        timeouts: settings.timeouts,
        limits: settings.limits,
        retries: settings.retries,
        permits: tokio::sync::Semaphore::new(settings.concurrency.clamp(1, tokio::sync::Semaphore::MAX_PERMITS)),
        clock,
        ids: random_ids(),
    }))
}

/// Where a protocol's requests go by default, and how a base URL becomes an endpoint.
pub(super) struct Defaults {
    pub(super) base_url: &'static str,
    pub(super) variable: &'static str,
    /// What a base URL may already end with, the longest first.
    suffixes: &'static [&'static str],
    path: &'static str,
}

const OPENAI: Defaults = Defaults {
    base_url: "https://api.openai.com/v1",
    variable: "OPENAI_API_KEY",
    suffixes: &["/chat/completions"],
    path: "/chat/completions",
};

/// OpenAI's embeddings.
pub(super) const EMBEDDINGS: Defaults =
    Defaults { suffixes: &["/chat/completions", "/embeddings"], path: "/embeddings", ..OPENAI };

const ANTHROPIC: Defaults = Defaults {
    base_url: "https://api.anthropic.com",
    variable: "ANTHROPIC_API_KEY",
    suffixes: &["/v1/messages", "/v1"],
    path: "/v1/messages",
};

impl Defaults {
    /// Appends the protocol's path to a base URL, as the providers' SDKs do; what is already there is not doubled, and a query stays.
    pub(super) fn endpoint(&self, base: &str) -> Result<Url, SettingsError> {
        let invalid = |url: &str, reason: &str| SettingsError::InvalidBaseUrl {
            url: crate::text::clean_line(url, 200),
            reason: reason.to_owned(),
            example: self.base_url,
        };
        let mut url = Url::parse(base).map_err(|error| {
            // What cannot be parsed may hold a password anywhere.
            let shown = if base.contains('@') { "…" } else { base };
            invalid(shown, &error.to_string())
        })?;
        if !url.username().is_empty() || url.password().is_some() {
            let _ = url.set_username("");
            let _ = url.set_password(None);
            return Err(invalid(url.as_str(), "it holds a user name or password; use the API key or an extra header instead"));
        }
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(invalid(url.as_str(), "it is not an `http` or `https` address"));
        }
        url.set_fragment(None);
        let path = url.path().trim_end_matches('/');
        let path = self.suffixes.iter().find_map(|suffix| path.strip_suffix(suffix)).unwrap_or(path);
        let path = format!("{}{}", path.trim_end_matches('/'), self.path);
        url.set_path(&path);
        Ok(url)
    }
}

pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(kind: ProviderKind, base_url: &str, key: Option<&str>) -> ProviderSettings {
        ProviderSettings {
            base_url: Some(base_url.to_owned()),
            api_key: key.map(ApiKey::new),
            ..ProviderSettings::new(kind, "model")
        }
    }

    #[test]
    fn base_urls_become_endpoints_as_the_sdks_do() {
        for (defaults, base, expected) in [
            (&OPENAI, "https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"),
            (&OPENAI, "https://api.openai.com/v1/", "https://api.openai.com/v1/chat/completions"),
            (&OPENAI, "http://127.0.0.1:8080", "http://127.0.0.1:8080/chat/completions"),
            (&OPENAI, "http://h/v1/chat/completions", "http://h/v1/chat/completions"),
            (
                &OPENAI,
                "https://h/openai/deployments/x?api-version=1",
                "https://h/openai/deployments/x/chat/completions?api-version=1",
            ),
            (&ANTHROPIC, "https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
            (&ANTHROPIC, "https://api.anthropic.com/v1/", "https://api.anthropic.com/v1/messages"),
            (&ANTHROPIC, "https://api.deepseek.com/anthropic", "https://api.deepseek.com/anthropic/v1/messages"),
            (&ANTHROPIC, "http://h/v1/messages#x", "http://h/v1/messages"),
        ] {
            assert_eq!(defaults.endpoint(base).expect(base).as_str(), expected);
        }
        for base in ["", "api.openai.com/v1", "ftp://h/", "file:///etc/passwd", "https://user:hunter2@h/v1", "http//u:hunter2@h"]
        {
            let error = OPENAI.endpoint(base).expect_err(base).to_string();
            assert!(error.contains("hint: ") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_missing_key_is_an_error_except_on_this_machine() {
        for base in ["http://127.0.0.1:1/v1", "http://[::1]:1", "http://localhost:1"] {
            assert!(build(settings(ProviderKind::OpenAi, base, None)).is_ok(), "{base}");
        }
        for base in ["https://api.openai.com/v1", "http://localhost.evil.example", "http://10.0.0.1/v1"] {
            let error = build(settings(ProviderKind::OpenAi, base, Some(" "))).map(|_| ()).expect_err(base).to_string();
            assert!(error.contains("no API key") && error.contains("OPENAI_API_KEY"), "{error}");
        }
        assert!(build(settings(ProviderKind::OpenAi, "http://10.0.0.1/v1", Some("sk-1\n"))).is_ok());
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let base = settings(ProviderKind::Anthropic, "http://127.0.0.1:1", Some("k"));
        let with = |change: &dyn Fn(&mut ProviderSettings)| {
            let mut settings = base.clone();
            change(&mut settings);
            build(settings).map(|_| ()).expect_err("refused").to_string()
        };
        assert!(with(&|settings| settings.model.clear()).contains("no model"));
        assert!(with(&|settings| settings.temperature = Some(f64::NAN)).contains("out of range"));
        assert!(with(&|settings| settings.api_key = Some(ApiKey::new("a\nb"))).contains("API key"));
        assert!(with(&|settings| settings.extra_headers = vec![("Host".into(), "x".into())]).contains("`Host`"));
        assert!(with(&|settings| settings.kind = ProviderKind::Scripted("/nonexistent".into())).contains("/nonexistent"));
    }

    #[test]
    fn a_key_does_not_print() {
        let settings = settings(ProviderKind::OpenAi, "http://127.0.0.1", Some("sk-secret"));
        assert!(!format!("{settings:?}").contains("sk-secret"));
    }
}
