//! HTTP requests, as far as the operator's policy grants them.
//!
//! The host sends them, and checks each one before a name is looked up. It follows no redirects: a tool that wants to sends the next
//! request itself, and the policy checks that too.

use std::time::Duration;

use serde::Serialize;

use crate::context::Host;

mod error;
#[cfg(target_family = "wasm")]
pub(crate) mod guest;
mod response;
mod target;

pub use error::HttpError;
pub use response::Response;
use target::Target;

/// Sends HTTP requests.
///
/// ```no_run
/// # use honeycomb_sdk::prelude::*;
/// # fn example(context: &Context) -> Result<String> {
/// let response = context.http().get("https://example.com/search").query("q", "北京").send()?.success()?;
/// # Ok(response.text()?)
/// # }
/// # let _ = example;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Http<'a> {
    host: &'a Host,
}

/// A request that is ready to be sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// The method, upper case.
    pub method: String,
    /// The URL: `http` or `https`.
    pub url: String,
    /// The headers, as they were added.
    pub headers: Vec<(String, String)>,
    /// The body; empty is none.
    pub body: Vec<u8>,
    /// How long the answer may take, its body included.
    pub timeout: Duration,
    /// The most bytes that the body of the answer may have.
    pub max_bytes: usize,
}

/// Builds a request.
#[derive(Debug)]
#[must_use = "a request does nothing until `send`"]
pub struct RequestBuilder<'a> {
    host: &'a Host,
    request: Request,
    failure: Option<HttpError>,
}

impl<'a> Http<'a> {
    pub(crate) fn new(host: &'a Host) -> Self {
        Self { host }
    }

    /// Starts a GET request.
    pub fn get(&self, url: impl Into<String>) -> RequestBuilder<'a> {
        self.request("GET", url)
    }

    /// Starts a POST request.
    pub fn post(&self, url: impl Into<String>) -> RequestBuilder<'a> {
        self.request("POST", url)
    }

    /// Starts a request with any method.
    pub fn request(&self, method: &str, url: impl Into<String>) -> RequestBuilder<'a> {
        RequestBuilder {
            host: self.host,
            request: Request {
                method: method.to_ascii_uppercase(),
                url: url.into(),
                headers: Vec::new(),
                body: Vec::new(),
                // Shorter than the host's usual deadline of 30 seconds, so that the tool can still say what happened.
                timeout: Duration::from_secs(20),
                max_bytes: 4 * 1024 * 1024,
            },
            failure: None,
        }
    }
}

impl RequestBuilder<'_> {
    /// Adds a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.request.headers.push((name.into(), value.into()));
        self
    }

    /// Adds a parameter to the query, percent-encoded.
    pub fn query(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        let url = &mut self.request.url;
        let fragment = url.find('#').map(|at| url.split_off(at));
        match url.find('?') {
            None => url.push('?'),
            Some(at) if at + 1 == url.len() => {}
            Some(_) => url.push('&'),
        }
        target::encode(url, name);
        url.push('=');
        target::encode(url, &value.to_string());
        url.push_str(fragment.as_deref().unwrap_or_default());
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.request.body = body.into();
        self
    }

    /// Sets the body to JSON, and its content type.
    pub fn json(mut self, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => self.header("content-type", "application/json").body(body),
            Err(error) => {
                self.failure = Some(HttpError::InvalidRequest(format!("the body cannot be written as JSON: {error}")));
                self
            }
        }
    }

    /// Sets how long the answer may take, its body included; 20 seconds by default. The deadline of the call still holds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.timeout = timeout;
        self
    }

    /// Sets the most bytes that the body of the answer may have; 4 MiB by default. The host has a limit of its own.
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.request.max_bytes = max_bytes;
        self
    }

    /// Sends the request and reads the whole answer. A status such as 404 is an answer: see [`Response::success`].
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn send(self) -> Result<Response, HttpError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        // Read here as well, so that a unit test finds a URL that the host would refuse.
        Target::parse(&self.request.url)?;
        let response = self.host.send(&self.request)?;
        if response.body.len() > self.request.max_bytes {
            return Err(HttpError::TooLarge { limit: Some(self.request.max_bytes) });
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;

    fn echo() -> Context {
        Context::test().with_http(|request| Ok(Response::new(200).with_body(request.url.clone())))
    }

    #[test]
    fn a_query_is_percent_encoded() {
        for (url, expected) in [
            ("https://a.example/s", "https://a.example/s?name=%E5%8C%97%E4%BA%AC%20%26%20co"),
            ("https://a.example/s?x=1", "https://a.example/s?x=1&name=%E5%8C%97%E4%BA%AC%20%26%20co"),
            ("https://a.example/s?", "https://a.example/s?name=%E5%8C%97%E4%BA%AC%20%26%20co"),
            ("https://a.example/s#top", "https://a.example/s?name=%E5%8C%97%E4%BA%AC%20%26%20co#top"),
        ] {
            let response = echo().http().get(url).query("name", "北京 & co").send().expect("the double answers");
            assert_eq!(response.text().expect("is UTF-8"), expected);
        }
    }

    #[test]
    fn a_request_arrives_as_it_was_built() {
        let context = Context::test().with_http(|request| {
            assert_eq!(request.method, "PATCH");
            assert_eq!(request.headers[0], ("x-a".to_owned(), "1".to_owned()));
            assert_eq!(request.headers[1], ("content-type".to_owned(), "application/json".to_owned()));
            assert_eq!(request.body, b"[1]");
            assert_eq!(request.timeout, Duration::from_secs(1));
            Ok(Response::new(204))
        });
        let request = context.http().request("patch", "http://a.example").header("x-a", "1").json(&[1]);
        assert_eq!(request.timeout(Duration::from_secs(1)).send().expect("the double answers").status, 204);
    }

    #[test]
    fn refuses_what_cannot_be_sent() {
        let bad_json = std::collections::HashMap::from([(vec![1], 1)]);
        let context = echo();
        assert!(matches!(context.http().get("example.com").send(), Err(HttpError::InvalidRequest(_))));
        let request = context.http().post("https://a.example/").json(&bad_json);
        assert!(matches!(request.send(), Err(HttpError::InvalidRequest(_))));
    }

    #[test]
    fn an_answer_has_a_largest_size() {
        let context = Context::test().with_http(|_| Ok(Response::new(200).with_body("12345")));
        assert!(context.http().get("https://a.example/").max_bytes(5).send().is_ok());
        let result = context.http().get("https://a.example/").max_bytes(4).send();
        assert!(matches!(result, Err(HttpError::TooLarge { limit: Some(4) })));
    }
}
