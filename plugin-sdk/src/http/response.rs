//! The answer to a request.

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::HttpError;

/// The answer to a request.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Response {
    /// The status, such as 200.
    pub status: u16,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// An answer without headers or body, for test doubles.
    pub fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_ascii_lowercase(), value.into()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// The first value of a header; the case of its name does not matter.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The answer itself if its status is 200 to 299.
    ///
    /// # Errors
    /// [`HttpError::Status`] for any other.
    pub fn success(self) -> Result<Self, HttpError> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let excerpt: String = String::from_utf8_lossy(&self.body).chars().take(200).collect();
        let retry_after = self.header("retry-after").and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
        Err(HttpError::Status { status: self.status, excerpt, retry_after })
    }

    /// The body as text.
    ///
    /// # Errors
    /// [`HttpError::Body`] when it is not UTF-8.
    pub fn text(&self) -> Result<String, HttpError> {
        match std::str::from_utf8(&self.body) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(HttpError::Body(error.to_string())),
        }
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// [`HttpError::Body`] when it is not such JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        serde_json::from_slice(&self.body)
            .map_err(|error| HttpError::Body(format!("it is not the JSON that was expected: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_is_200_to_299() {
        for (status, good) in [(199, false), (200, true), (204, true), (299, true), (302, false), (404, false), (500, false)] {
            assert_eq!(Response::new(status).success().is_ok(), good, "{status}");
        }
    }

    #[test]
    fn a_failure_tells_what_the_server_said() {
        for (value, expected) in [("120", Some(Duration::from_secs(120))), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None)]
        {
            let response = Response::new(429).with_header("Retry-After", value).with_body("太多".repeat(300));
            match response.success() {
                Err(HttpError::Status { status: 429, excerpt, retry_after }) => {
                    assert_eq!((excerpt.chars().count(), retry_after), (200, expected));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_body_is_what_it_should_be_or_an_error() {
        let response = Response::new(200).with_header("Content-Type", "text/plain").with_body([0xff]);
        assert_eq!(response.header("content-TYPE"), Some("text/plain"));
        assert!(matches!(response.text(), Err(HttpError::Body(_))));
        assert!(matches!(response.json::<u8>(), Err(HttpError::Body(_))));
        assert_eq!(Response::new(200).with_body("7").json::<u8>().expect("is a number"), 7);
    }
}
