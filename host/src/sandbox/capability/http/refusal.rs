//! What a guest and an operator are told when a request is refused.

use std::sync::Arc;

use wasmtime_wasi_http::Error;

use super::EgressShared;
use crate::policy::{NetGrant, NetRequest};
use crate::sandbox::meter::Meter;
use crate::text::clean_line;
use crate::tool::{ErrorCode, Failure};

/// The most bytes of a guest's text in a message.
const MAX_TEXT: usize = 300;

/// A request that goes no further.
#[derive(Debug)]
pub(super) struct Refusal {
    /// For the guest.
    pub(super) error: Error,
    /// For the operator and the model; none where nothing was denied and the network just failed.
    pub(super) failure: Option<Failure>,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { error, failure: None }
    }
}

/// Names one request in messages, and knows where they go.
pub(super) struct Report {
    plugin: Arc<str>,
    request: String,
    shared: Arc<EgressShared>,
    meter: Meter,
}

impl Report {
    /// A report about a request that the policy allows.
    pub(super) fn new(shared: &Arc<EgressShared>, meter: Meter, request: NetRequest<'_>) -> Self {
        let request = shared.secrets.redactor().redact(&request.to_string()).into_owned();
        Self { plugin: Arc::clone(&shared.plugin), request, shared: Arc::clone(shared), meter }
    }

    /// The plugins' secrets, to be looked for.
    pub(super) fn redactor(&self) -> &crate::secret::Redactor {
        self.shared.secrets.redactor()
    }

    /// Where the call's use is counted.
    pub(super) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Notes a refusal that comes after [`super::Egress::send`] has returned, and gives what the guest is told.
    pub(super) fn late(&self, refusal: Refusal) -> Error {
        if let Some(failure) = refusal.failure {
            self.meter.denied(failure);
        }
        refusal.error
    }

    /// A limit of the policy is reached.
    pub(super) fn limit(&self, error: Error, name: &str, limit: u64, of_what: &str) -> Refusal {
        let message =
            format!("plugin `{}` needs more than {limit} {of_what} (limit `{name}`) for `{}`", self.plugin, self.request);
        let hint = format!("raise it in the policy:\n[plugins.{}.limits]\n{name} = …", self.plugin);
        Refusal { error, failure: Some(Failure::new(ErrorCode::LIMIT_HTTP, message).hint(hint)) }
    }

    /// The server's answer has more headers than are read.
    pub(super) fn response_head_too_large(&self, error: Error) -> Refusal {
        let message = format!("the answer to `{}` of plugin `{}` has too many or too large headers", self.request, self.plugin);
        Refusal { error, failure: Some(Failure::new(ErrorCode::LIMIT_HTTP, message)) }
    }

    /// A known secret is in what the guest sends.
    pub(super) fn holds_secret(&self, place: &str) -> Refusal {
        holds_secret(&self.plugin, &self.request, place)
    }

    /// The request itself is not one that is sent.
    pub(super) fn malformed(&self, error: Error, problem: &str) -> Refusal {
        malformed(&self.plugin, &self.request, error, problem)
    }

    /// The host has an address that the rule does not open.
    pub(super) fn prohibited(&self, grant: &NetGrant, host: &str, address: std::net::IpAddr, kind: &str) -> Refusal {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let message = format!(
            "plugin `{}` may not send `{}`: `{}` is {address}, {kind}",
            self.plugin,
            self.request,
            clean_line(host, MAX_TEXT)
        );
        let hint = format!("if that is intended, add to the rule at {}:\nprivate = [\"{address}/{bits}\"]", grant.rule);
        Refusal {
            error: Error::DestinationIpProhibited,
            failure: Some(Failure::new(ErrorCode::HTTP_IP_PROHIBITED, message).hint(hint)),
        }
    }
}

/// No rule allows the request.
pub(super) fn denied(shared: &EgressShared, request: &NetRequest<'_>) -> Refusal {
    let redact = |text: String| shared.secrets.redactor().redact(&text).into_owned();
    let plugin = &shared.plugin;
    let beyond_wishes = shared.rules.iter().any(|rule| NetGrant { ceiling: None, ..rule.grant.clone() }.allows(request));
    let nearest = shared.rules.iter().map(|rule| &rule.grant).find(|grant| grant.host.matches(request.host));
    let reason = match nearest.and_then(|grant| Some((grant, grant.explain_mismatch(request)?))) {
        Some((grant, difference)) => format!("{difference} ({})", grant.rule),
        None => "no rule names this host".to_owned(),
    };
    let hint = if beyond_wishes {
        "the plugin's own requests are the most it may do: ask its author to request this".to_owned()
    } else {
        format!("to allow it, add to the policy:\n{}", rule_for(plugin, request))
    };
    let message = format!("plugin `{plugin}` may not send `{request}`: {reason}");
    Refusal {
        error: Error::HttpRequestDenied,
        failure: Some(Failure::new(ErrorCode::HTTP_DENIED, redact(message)).hint(redact(hint))),
    }
}

/// A request that is no request, whatever the policy.
pub(super) fn malformed(plugin: &str, request: &str, error: Error, problem: &str) -> Refusal {
    let message = format!("plugin `{plugin}` may not send `{}`: {problem}", clean_line(request, MAX_TEXT));
    Refusal { error, failure: Some(Failure::new(ErrorCode::HTTP_DENIED, message)) }
}

/// A known secret is in what the guest sends.
pub(super) fn holds_secret(plugin: &str, request: &str, place: &str) -> Refusal {
    let message = format!("plugin `{plugin}` may not send `{request}`: its {place} holds a secret of this host");
    Refusal {
        error: Error::HttpRequestDenied,
        failure: Some(
            Failure::new(ErrorCode::HTTP_DENIED, message).hint("the host adds secrets itself, where the policy says so"),
        ),
    }
}

/// The lines of a policy that allow this request and little else.
fn rule_for(plugin: &str, request: &NetRequest<'_>) -> String {
    // A JSON string without control characters is a TOML basic string.
    let quoted = |text: &str| serde_json::Value::from(clean_line(text, MAX_TEXT)).to_string();
    let mut lines =
        format!("[[plugins.{plugin}.net]]\nhost = {}\nscheme = \"{}\"\n", quoted(request.host), request.scheme.as_str());
    if request.port != request.scheme.default_port() {
        lines.push_str(&format!("port = {}\n", request.port));
    }
    lines.push_str(&format!("methods = [{}]\npath = {}", quoted(request.method), quoted(request.path)));
    lines
}
