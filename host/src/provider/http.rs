//! A provider over HTTP: sends the request, decodes the answer as it arrives, and repeats what is worth repeating.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Client;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::decode::{IdSource, Progress, ResponseDecoder, ResponseLimits};
use super::retry::{Clock, RetryPolicy};
use super::settings::Timeouts;
use super::wire::WireFormat;
use super::{ModelEvent, ModelRequest, Provider, ProviderError, ProviderErrorClass, RequestOptions, classify, wire};
use crate::message::ModelTurn;
use crate::secret::Redactor;
use crate::tool::BoxFuture;

/// The most that is read of the body of an error, in bytes.
const MAX_ERROR_BODY: usize = 64 << 10;

/// How long a complete answer waits for its usage and end mark. Some servers never send them.
const AFTER_COMPLETE: Duration = Duration::from_secs(3);

/// Thirty years: more than a process lives, and within what clocks count.
const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// How long the end of a body may take after the end mark.
const DRAIN: Duration = Duration::from_millis(20);

/// A provider over HTTP.
pub(super) struct HttpProvider {
    pub(super) client: Client,
    pub(super) endpoint: Url,
    pub(super) headers: HeaderMap,
    /// Knows what never appears in an error: the key and the values of extra headers.
    pub(super) redactor: Redactor,
    pub(super) format: WireFormat,
    pub(super) options: RequestOptions,
    pub(super) timeouts: Timeouts,
    pub(super) limits: ResponseLimits,
    pub(super) retries: RetryPolicy,
    pub(super) permits: Semaphore,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) ids: IdSource,
}

impl Provider for HttpProvider {
    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        events: &'a mut (dyn FnMut(ModelEvent) + Send),
        cancel: CancellationToken,
    ) -> BoxFuture<'a, Result<ModelTurn, ProviderError>> {
        Box::pin(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => Err(ProviderError::cancelled()),
                result = self.with_retries(request, events) => result,
            }
        })
    }

    fn model(&self) -> &str {
        &self.options.model
    }
}

impl HttpProvider {
    async fn with_retries(
        &self,
        request: &ModelRequest,
        events: &mut (dyn FnMut(ModelEvent) + Send),
    ) -> Result<ModelTurn, ProviderError> {
        let body = bytes::Bytes::from(wire::body(self.format, request, &self.options).to_string());
        let mut attempt = 1;
        loop {
            let mut shown = false;
            let outcome = {
                let mut watch = |event: ModelEvent| {
                    shown = true;
                    events(event);
                };
                // Held for one attempt only: a provider that makes one request wait must not stop the others.
                let _permit = self.permits.acquire().await;
                self.attempt(body.clone(), &mut watch).await
            };
            let mut error = match outcome {
                Ok(turn) => return Ok(turn),
                Err(error) => error,
            };
            error.response_started = shown;
            error.message = self.redactor.redact(&error.message).into_owned();
            let Some(wait) = self.retries.wait(attempt, &error, self.clock.jitter()) else { return Err(error) };
            attempt += 1;
            events(ModelEvent::Retry {
                attempt,
                delay_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                reason: error.message,
                discard: shown,
            });
            if !wait.is_zero() {
                self.clock.sleep(wait).await;
            }
        }
    }

    async fn attempt(&self, body: bytes::Bytes, events: &mut (dyn FnMut(ModelEvent) + Send)) -> Result<ModelTurn, ProviderError> {
        let accept = if self.options.stream { "text/event-stream, application/json" } else { "application/json" };
        let sending = self
            .client
            .post(self.endpoint.clone())
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, accept)
            .body(body)
            .send();
        // An answer that is not streamed sends its headers once it is complete.
        let limit = if self.options.stream { self.timeouts.headers } else { self.timeouts.whole };
        let mut response = match timeout(limit, sending).await {
            Ok(result) => result.map_err(|error| self.network(&error))?,
            Err(_) => return Err(timed_out("sent no response headers", limit)),
        };
        let status = response.status().as_u16();
        if !response.status().is_success() {
            let retry_after = classify::retry_after(response.headers(), self.clock.now());
            let body = self.error_body(&mut response).await;
            // Some providers quote the key that they refuse. Now, and not only once the text is cut: half a key is a secret too.
            let body = self.redactor.redact(&String::from_utf8_lossy(&body)).into_owned();
            return Err(classify::from_response(status, body.as_bytes(), retry_after));
        }
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let decoder = ResponseDecoder::new(self.format, content_type, Arc::clone(&self.ids), self.limits);
        self.receive(&mut response, decoder, events).await.map_err(|mut error| {
            error.status.get_or_insert(status);
            error
        })
    }

    /// Reads the body. The deadlines move with events, not with bytes: heartbeats keep a dead stream's bytes flowing. Of the two, one
    /// moves with every event, and one only with those that bring the answer further: a proxy may send empty deltas for ever.
    async fn receive(
        &self,
        response: &mut reqwest::Response,
        mut decoder: ResponseDecoder,
        events: &mut (dyn FnMut(ModelEvent) + Send),
    ) -> Result<ModelTurn, ProviderError> {
        let Timeouts { idle, stall, whole, .. } = self.timeouts;
        let stream = self.options.stream;
        // An answer that is not streamed has one deadline, however it trickles in.
        let mut next_event = after(if stream { idle } else { whole });
        let mut next_content = after(if stream { stall } else { whole });
        let mut complete = false;
        loop {
            let chunk = match timeout_at(next_event.min(next_content), response.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => break,
                // What breaks after a complete answer no longer matters.
                Ok(Err(_)) | Err(_) if complete => break,
                Ok(Err(error)) => return Err(self.network(&error)),
                Err(_) if !stream => return Err(timed_out("sent no whole answer", whole)),
                Err(_) if next_event <= next_content => return Err(timed_out("sent no event", idle)),
                Err(_) => return Err(timed_out("sent only empty events", stall)),
            };
            match decoder.push(&chunk, events)? {
                Progress::Empty if stream => next_event = after(idle),
                Progress::Started if stream => (next_event, next_content) = (after(idle), after(stall)),
                Progress::Idle | Progress::Empty | Progress::Started => {}
                Progress::Complete if complete => {}
                Progress::Complete => {
                    complete = true;
                    next_event = after(AFTER_COMPLETE.min(idle));
                }
                Progress::Ended => {
                    // A body that is read to its end leaves the connection fit for the next request.
                    let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
                    let _ = timeout(DRAIN, rest).await;
                    break;
                }
            }
        }
        decoder.finish(events)
    }

    async fn error_body(&self, response: &mut reqwest::Response) -> Vec<u8> {
        let mut body = Vec::new();
        let deadline = after(self.timeouts.idle.min(Duration::from_secs(10)));
        while let Ok(Ok(Some(chunk))) = timeout_at(deadline, response.chunk()).await {
            let room = MAX_ERROR_BODY - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if body.len() >= MAX_ERROR_BODY {
                break;
            }
        }
        body
    }

    fn network(&self, error: &reqwest::Error) -> ProviderError {
        let origin = self.endpoint.origin().ascii_serialization();
        if error.is_timeout() {
            let limit = self.timeouts.connect.as_secs_f32();
            let message = format!("no connection to `{origin}` within {limit} s");
            return ProviderError::new(ProviderErrorClass::Timeout, message)
                .hint("check the base URL, the network and any proxy");
        }
        // The innermost cause says what happened; the outer ones repeat the URL.
        let mut cause: &dyn std::error::Error = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        let cause = crate::text::clean_line(&cause.to_string(), 300);
        if error.is_connect() {
            let message = format!("cannot connect to `{origin}`: {cause}");
            return ProviderError::new(ProviderErrorClass::Network, message)
                .hint("check the base URL, the network and any proxy");
        }
        if error.is_builder() {
            return ProviderError::new(
                ProviderErrorClass::InvalidRequest,
                format!("cannot make a request to `{origin}`: {cause}"),
            );
        }
        ProviderError::new(ProviderErrorClass::Network, format!("the connection to `{origin}` broke: {cause}"))
    }
}

/// The moment after a time; one that the clock cannot count to is as good as never.
fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).or_else(|| now.checked_add(NEVER)).unwrap_or(now)
}

fn timed_out(what: &str, limit: Duration) -> ProviderError {
    ProviderError::new(ProviderErrorClass::Timeout, format!("the provider {what} within {} s", limit.as_secs_f32()))
}

/// Builds the HTTP client: no redirects, which would carry the key to another host, and no proxy in front of this very machine.
pub(super) fn client(timeouts: &Timeouts, endpoint: &Url, is_loopback: bool) -> Result<Client, reqwest::Error> {
    install_crypto();
    let builder = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(timeouts.connect)
        .tcp_nodelay(true)
        .user_agent(concat!("honeycomb/", env!("CARGO_PKG_VERSION")));
    let builder = if is_loopback { builder.no_proxy() } else { builder };
    // Without TLS there is no need for root certificates, which take time to load and may be missing.
    let builder = if endpoint.scheme() == "http" && is_loopback { builder.tls_certs_only([]) } else { builder };
    builder.build()
}

/// Chooses `ring` for TLS, unless the program has chosen already.
fn install_crypto() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Fails only when another thread was faster, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
    });
}

/// A header's value that HTTP libraries keep out of their logs.
pub(super) fn secret_header(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}
