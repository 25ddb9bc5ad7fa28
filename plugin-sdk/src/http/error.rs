//! Why a request failed.

use std::time::Duration;

use crate::ErrorKind;

/// Why a request failed, or why its answer is of no use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The request itself is wrong.
    #[error("the request is wrong: {0}")]
    InvalidRequest(String),
    /// The policy does not grant it.
    #[error("the policy does not allow this plugin to request `{url}`")]
    Denied {
        /// The URL.
        url: String,
    },
    /// The host's name leads to an address that plugins may not reach, such as one of a private network.
    #[error("`{url}` is at an address that plugins may not reach")]
    ProhibitedAddress {
        /// The URL.
        url: String,
    },
    /// There was no answer in time.
    #[error("no answer in time")]
    Timeout,
    /// The host's name cannot be looked up.
    #[error("the host's name cannot be found: {0}")]
    Dns(String),
    /// The connection, or TLS on it, failed.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// The answer has more bytes than are wanted, or than the host allows.
    #[error("the answer is too large{}", limit.map(|limit| format!(": {limit} bytes is the most")).unwrap_or_default())]
    TooLarge {
        /// The most bytes that were wanted; none if the limit is the host's.
        limit: Option<usize>,
    },
    /// The answer's status is not one of success: see [`Response::success`](super::Response::success).
    #[error("the server answered with status {status}: {excerpt}")]
    Status {
        /// The status.
        status: u16,
        /// The beginning of the body.
        excerpt: String,
        /// What the header `retry-after` says, if it is in seconds (RFC 9110, section 10.2.3).
        retry_after: Option<Duration>,
    },
    /// The body is not what was expected.
    #[error("the answer cannot be read: {0}")]
    Body(String),
    /// Anything else, such as an answer that is not HTTP or a limit of the host.
    #[error("the request failed: {0}")]
    Failed(String),
}

impl HttpError {
    /// What the error means to the model.
    pub(crate) fn kind(&self) -> (ErrorKind, Option<Duration>) {
        let kind = match self {
            Self::Denied { .. } | Self::ProhibitedAddress { .. } | Self::Status { status: 401 | 403, .. } => ErrorKind::Denied,
            Self::Status { status: 404 | 410, .. } => ErrorKind::NotFound,
            Self::Status { status: 429, retry_after, .. } => return (ErrorKind::RateLimited, *retry_after),
            Self::Timeout | Self::Dns(_) | Self::Connection(_) | Self::Status { status: 500.., .. } => ErrorKind::Unavailable,
            Self::InvalidRequest(_) | Self::TooLarge { .. } | Self::Status { .. } | Self::Body(_) | Self::Failed(_) => {
                ErrorKind::Failed
            }
        };
        (kind, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn the_model_is_told_what_kind_of_failure_it_is() {
        let url = || "https://a.example/".to_owned();
        let status = |status| HttpError::Status { status, excerpt: String::new(), retry_after: Some(Duration::from_secs(9)) };
        for (error, expected) in [
            (HttpError::Denied { url: url() }, ErrorKind::Denied),
            (HttpError::ProhibitedAddress { url: url() }, ErrorKind::Denied),
            (HttpError::Timeout, ErrorKind::Unavailable),
            (HttpError::Dns("x".to_owned()), ErrorKind::Unavailable),
            (HttpError::Connection("x".to_owned()), ErrorKind::Unavailable),
            (HttpError::TooLarge { limit: Some(1) }, ErrorKind::Failed),
            (HttpError::Body("x".to_owned()), ErrorKind::Failed),
            (status(401), ErrorKind::Denied),
            (status(404), ErrorKind::NotFound),
            (status(418), ErrorKind::Failed),
            (status(503), ErrorKind::Unavailable),
        ] {
            let text = error.to_string();
            let error = Error::from(error);
            assert_eq!((error.kind(), error.delay()), (expected, None), "{text}");
        }
        let limited = Error::from(status(429));
        assert_eq!((limited.kind(), limited.delay()), (ErrorKind::RateLimited, Some(Duration::from_secs(9))));
    }
}
