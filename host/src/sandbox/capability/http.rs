//! Outgoing HTTP: the one place from which a guest's request can leave this machine.
//!
//! Canonical request → policy → secrets → resolve once → refuse prohibited addresses → dial a vetted address → TLS with the
//! canonical name → HTTP/1.1. Nothing here follows redirects, reads proxy variables, keeps a connection for another request, or
//! speaks HTTP/2.

mod body;
mod connect;
mod head;
mod refusal;
mod resolve;
mod timeouts;
mod tls;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use http_body_util::BodyExt;
use rustls::ClientConfig;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use wasmtime_wasi_http::{Error, ForbiddenHeaderFilter, RequestOptions, WasiBody, WasiHttpHooks};

use self::body::{RequestBody, ResponseBody};
use self::head::Prepared;
use self::refusal::{Refusal, Report};
pub(crate) use self::resolve::{Resolver, SystemResolver};
use self::timeouts::Timeouts;
pub(crate) use self::tls::{client_config, trust_nobody};
use crate::policy::Limits;
use crate::policy::{HostPattern, NetGrant, NetRequest};
use crate::sandbox::meter::Meter;
use crate::secret::Secrets;

/// What drives a connection until its response has been read. Dropping it closes the connection.
pub(crate) type Worker = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// The rules of one plugin, ready to be matched; made once when the plugin is bound to a policy.
pub(crate) struct EgressShared {
    plugin: Arc<str>,
    rules: Vec<Rule>,
    resolver: Arc<dyn Resolver>,
    tls: TlsConnector,
    secrets: Arc<Secrets>,
}

/// One rule, with the header that it adds.
struct Rule {
    grant: NetGrant,
    secret: Option<(HeaderName, HeaderValue)>,
}

/// Why a plugin's HTTP rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EgressError {
    /// The rule's secret was not among those resolved at start.
    #[error("{rule}: plugin `{plugin}` has a secret that was not read\nhint: this is a fault of the host")]
    SecretMissing {
        /// The plugin.
        plugin: Arc<str>,
        /// The rule.
        rule: crate::policy::RuleRef,
    },
    /// The header's name, or its value with the secret in it, cannot be sent.
    #[error("{rule}: plugin `{plugin}` cannot send its secret in the header `{header}`\nhint: {hint}")]
    SecretHeader {
        /// The plugin.
        plugin: Arc<str>,
        /// The rule.
        rule: crate::policy::RuleRef,
        /// The header.
        header: String,
        /// How to put it right.
        hint: &'static str,
    },
}

impl EgressShared {
    /// Prepares the rules of one plugin.
    ///
    /// # Errors
    ///
    /// Returns the first rule whose secret is missing, or cannot be sent as a header.
    pub(crate) fn new(
        plugin: &str,
        grants: &[NetGrant],
        resolver: Arc<dyn Resolver>,
        tls: Arc<ClientConfig>,
        secrets: Arc<Secrets>,
    ) -> Result<Self, EgressError> {
        let plugin: Arc<str> = plugin.into();
        let mut rules = grants.iter().map(|grant| Rule::new(&plugin, grant, &secrets)).collect::<Result<Vec<_>, _>>()?;
        // Where rules overlap, the narrowest decides on secret and private addresses, whatever the order of the files.
        rules.sort_by_key(|rule| (usize::MAX - rule.grant.path.len(), matches!(rule.grant.host, HostPattern::Subdomains(_))));
        Ok(Self { plugin, rules, resolver, tls: tls.into(), secrets })
    }

    fn matching(&self, request: &NetRequest<'_>) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.grant.allows(request))
    }
}

impl fmt::Debug for EgressShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressShared").field("plugin", &self.plugin).field("rules", &self.rules.len()).finish_non_exhaustive()
    }
}

impl Rule {
    fn new(plugin: &Arc<str>, grant: &NetGrant, secrets: &Secrets) -> Result<Self, EgressError> {
        let secret = match &grant.secret {
            None => None,
            Some(secret) => {
                let bad = |hint| EgressError::SecretHeader {
                    plugin: Arc::clone(plugin),
                    rule: grant.rule.clone(),
                    header: secret.header.clone(),
                    hint,
                };
                let value = secrets
                    .get(&secret.source)
                    .ok_or_else(|| EgressError::SecretMissing { plugin: Arc::clone(plugin), rule: grant.rule.clone() })?;
                let name = HeaderName::from_bytes(secret.header.as_bytes()).map_err(|_| bad("name a valid HTTP header"))?;
                if head::is_host_owned(&name) || name == CONTENT_LENGTH {
                    return Err(bad("the host sets this header itself; name another"));
                }
                let text = secret.format.replace("{}", value.expose());
                let mut value = HeaderValue::from_bytes(text.as_bytes()).map_err(|_| bad("correct `format`"))?;
                value.set_sensitive(true);
                Some((name, value))
            }
        };
        Ok(Self { grant: grant.clone(), secret })
    }
}

/// The HTTP of one call: hooks for `wasi:http`, and what the call has used so far.
#[derive(Clone)]
pub(crate) struct Egress(Arc<Call>);

struct Call {
    shared: Arc<EgressShared>,
    meter: Meter,
    limits: Limits,
    deadline: Instant,
    connections: Arc<Semaphore>,
    attempts: AtomicU64,
}

impl Egress {
    /// Starts counting for one call that ends at `deadline`.
    pub(crate) fn new(shared: Arc<EgressShared>, meter: Meter, limits: &Limits, deadline: std::time::Instant) -> Self {
        let connections = usize::try_from(limits.http_connections).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let connections = Arc::new(Semaphore::new(connections));
        let deadline = Instant::from_std(deadline);
        Self(Arc::new(Call { shared, meter, limits: limits.clone(), deadline, connections, attempts: AtomicU64::new(0) }))
    }

    /// Sends one request, if the policy allows it.
    ///
    /// The response's body must be read while the [`Worker`] is polled, in a task of its own; dropping either closes the
    /// connection.
    ///
    /// # Errors
    ///
    /// Returns what the guest is told. What the operator is told is in the [`Meter`].
    pub(crate) async fn send(
        &self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
    ) -> Result<(http::Response<WasiBody>, Worker), Error> {
        self.0.send(request, options).await.map_err(|refusal| {
            if let Some(failure) = refusal.failure {
                self.0.meter.denied(failure);
            }
            refusal.error
        })
    }
}

impl Call {
    async fn send(
        &self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
    ) -> Result<(http::Response<WasiBody>, Worker), Refusal> {
        let (parts, body) = request.into_parts();
        let Prepared { target, rule, head, content_length } = head::prepare(&self.shared, &parts)?;
        let report = Arc::new(Report::new(&self.shared, self.meter.clone(), target.request(parts.method.as_str())));
        // Counted before the lookup: those who run the name server see each one.
        if self.attempts.fetch_add(1, Ordering::Relaxed) >= self.limits.http_requests {
            let error = Error::ConnectionLimitReached;
            return Err(report.limit(error, "http_requests", self.limits.http_requests, "requests in one call"));
        }
        let permit = Arc::clone(&self.connections).try_acquire_owned().map_err(|_| {
            let error = Error::ConnectionLimitReached;
            report.limit(error, "http_connections", self.limits.http_connections, "connections at once")
        })?;
        let timeouts = Timeouts::new(options, self.deadline);
        let prepared = RequestBody::prepare(body, content_length, self.limits.http_request_bytes, Arc::clone(&report));
        let body = timeout_at(self.deadline, prepared).await.map_err(|_| Error::ConnectionWriteTimeout)??;

        let connect_by = timeouts.connect_by();
        let addresses = resolve::vetted(&*self.shared.resolver, &target.host, &rule.grant, connect_by, &report).await?;
        self.meter.add_http_request();
        self.meter.add_used("net", &rule.grant.rule);
        let dialled = |address| self.meter.add_dialled(&target.host, address);
        let stream = connect::connect(&target, &addresses, &self.shared.tls, connect_by, dialled).await?;

        let problem = body.problem();
        let (response, connection) = match connect::exchange(stream, head.map(|()| body), timeouts.first_byte_by()).await {
            Ok(exchanged) => exchanged,
            // A fault of the request's body, such as a limit, is more to the point than what hyper makes of it.
            Err(error) => return Err(problem.take().map_or_else(|| blame(error, &report), Refusal::from)),
        };
        let closed = CancellationToken::new();
        let limit = self.limits.http_response_bytes;
        let (parts, incoming) = response.into_parts();
        let body = ResponseBody::new(incoming, limit, timeouts, (closed.clone().drop_guard(), permit), report)?;
        let worker = drive(connection, closed, self.deadline);
        Ok((http::Response::from_parts(parts, body.boxed_unsync()), Box::pin(worker)))
    }
}

/// Whether a failed exchange is for the operator to know, too.
fn blame(error: Error, report: &Report) -> Refusal {
    match error {
        Error::HttpResponseHeaderSectionSize(_) => report.response_head_too_large(error),
        other => other.into(),
    }
}

/// Drives a connection until it ends, its response is dropped or the call is over.
async fn drive(connection: connect::Connection, closed: CancellationToken, deadline: Instant) -> Result<(), Error> {
    tokio::select! {
        biased;
        () = closed.cancelled() => Ok(()),
        result = connection => result,
        () = tokio::time::sleep_until(deadline) => Err(Error::ConnectionReadTimeout),
    }
}

impl WasiHttpHooks for Egress {
    fn forbidden_header_filter(&mut self) -> ForbiddenHeaderFilter {
        Arc::new(head::is_host_owned)
    }

    fn set_host_header(&mut self) -> bool {
        // It would be the guest's own spelling of the authority, user info included.
        false
    }

    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<
        dyn Future<Output = Result<(http::Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>> + Send,
    > {
        let egress = self.clone();
        Box::new(async move {
            let (response, worker) = egress.send(request, options).await?;
            Ok((response, Box::new(worker) as Box<dyn Future<Output = Result<(), Error>> + Send>))
        })
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        // The default, 1 MiB, is what a guest may have the host hold for each request beside the limits.
        64 * 1024
    }
}

#[cfg(test)]
mod tests;
