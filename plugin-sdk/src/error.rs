//! Why a call failed, for two readers: the model and the operator.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use crate::config::ConfigError;
use crate::http::HttpError;
use crate::kv::KvError;

/// What a tool returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
///
/// The message goes to the model: say what was wrong and what would be right. A cause, set with [`because`](Error::because) or by `?`,
/// goes to the operator's log only.
///
/// Like `anyhow::Error` it does not implement `std::error::Error`, so that `?` can turn any error into it. The kind is then
/// [`Failed`](ErrorKind::Failed), except for the SDK's own errors, which know better: a request that the policy refuses is
/// [`Denied`](ErrorKind::Denied).
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    retry_after: Option<Duration>,
    cause: Option<String>,
}

/// What went wrong, in a word that a program can act on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The arguments do not make sense to the tool.
    InvalidArguments,
    /// The tool, or a service behind it, refuses.
    Denied,
    /// What was asked for does not exist.
    NotFound,
    /// Too many calls for now.
    RateLimited,
    /// A service behind the tool cannot be reached now.
    Unavailable,
    /// Anything else.
    Failed,
}

impl Error {
    /// The arguments do not make sense to the tool; the model should call again with better ones.
    pub fn invalid_arguments(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArguments, message)
    }

    /// The tool, or a service behind it, refuses.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Denied, message)
    }

    /// What was asked for does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// Too many calls for now; see also [`retry_after`](Error::retry_after).
    pub fn rate_limited(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::RateLimited, message)
    }

    /// A service behind the tool cannot be reached now; the same call may work later.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// Anything else.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None, cause: None }
    }

    /// Says when to try again. Only a [`RateLimited`](ErrorKind::RateLimited) error carries it to the host.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Adds the cause, for the operator's log.
    #[must_use]
    pub fn because(mut self, cause: impl std::error::Error) -> Self {
        self.cause = Some(chain(&cause));
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The text for the model.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// When to try again, if known.
    pub fn delay(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The text for the operator, if there is more to say than the message.
    pub fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: std::error::Error + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        // A blanket implementation leaves no room for a second one for the SDK's own errors, so they are recognised by type.
        let any: &dyn Any = &error;
        let (kind, retry_after) = if let Some(http) = any.downcast_ref::<HttpError>() {
            http.kind()
        } else if let Some(kv) = any.downcast_ref::<KvError>() {
            (kv.kind(), None)
        } else if let Some(config) = any.downcast_ref::<ConfigError>() {
            (config.kind(), None)
        } else {
            (ErrorKind::Failed, None)
        };
        let cause = error.source().is_some().then(|| chain(&error));
        Self { kind, message: error.to_string(), retry_after, cause }
    }
}

/// An error and its sources, outermost first.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_becomes_failed_with_its_message() {
        fn parse(text: &str) -> Result<u32> {
            Ok(text.parse::<u32>()?)
        }
        let error = parse("七").expect_err("not a digit of ASCII");
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert_eq!(error.message(), "invalid digit found in string");
        assert_eq!(error.cause(), None);
    }

    #[test]
    fn the_sdk_errors_keep_their_kind() {
        let denied = Error::from(HttpError::Denied { url: "https://example.com/".to_owned() });
        assert_eq!(denied.kind(), ErrorKind::Denied);
        assert_eq!(Error::from(KvError::Denied).kind(), ErrorKind::Denied);
        assert_eq!(Error::from(ConfigError("down".to_owned())).kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn causes_are_for_the_operator_only() {
        let cause = "x".parse::<u32>().expect_err("not a number");
        let error = Error::unavailable("the service is down").because(cause);
        assert_eq!(error.to_string(), "the service is down");
        assert_eq!(error.cause(), Some("invalid digit found in string"));
    }

    #[test]
    fn a_rate_limit_says_when_to_come_back() {
        let error = Error::rate_limited("slow down").retry_after(Duration::from_secs(2));
        assert_eq!((error.kind(), error.delay()), (ErrorKind::RateLimited, Some(Duration::from_secs(2))));
    }
}
