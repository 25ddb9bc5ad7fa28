//! Turns a provider's refusals into [`ProviderError`]s: by status and error code first, by wording only where codes do not say.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::{ProviderError, ProviderErrorClass};
use crate::text::clean_line;

/// The most of a provider's own words that an error carries, in bytes.
const MAX_MESSAGE: usize = 1000;

/// Longer waits than this are taken as this long.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

impl ProviderError {
    /// An error of a class, without status, hint or wait.
    pub fn new(class: ProviderErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), hint: None, status: None, retry_after: None, response_started: false }
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The error that stands for a cancelled run.
    pub fn cancelled() -> Self {
        Self::new(ProviderErrorClass::Cancelled, "the run was cancelled")
    }
}

/// Classifies a response whose status is not a success.
pub(crate) fn from_response(status: u16, body: &[u8], retry_after: Option<Duration>) -> ProviderError {
    let report = Report::read(body);
    let class = report.class(Some(status));
    let message = if report.message.is_empty() {
        format!("the provider answered with status {status} and an empty body")
    } else {
        format!("the provider answered with status {status}: {}", report.message)
    };
    let mut error = ProviderError::new(class, message);
    error.status = Some(status);
    error.retry_after = retry_after;
    error.hint = hint_for(class, status, &report).map(str::to_owned);
    error
}

/// Classifies an error object that came in a successful response or inside a stream.
pub(crate) fn in_band(value: &Value) -> ProviderError {
    let report = Report::from_value(value);
    let class = report.class(report.numeric_code);
    let words = if report.message.is_empty() { "no message" } else { &report.message };
    let mut error = ProviderError::new(class, format!("the provider reported an error in its answer: {words}"));
    error.hint = hint_for(class, report.numeric_code.unwrap_or(0), &report).map(str::to_owned);
    error
}

/// What a provider says about an error.
#[derive(Debug, Default)]
struct Report {
    kind: String,
    code: String,
    numeric_code: Option<u16>,
    message: String,
}

impl Report {
    fn read(body: &[u8]) -> Self {
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => Self::from_value(&value),
            Err(_) => Self { message: clean_line(String::from_utf8_lossy(body).trim(), MAX_MESSAGE), ..Self::default() },
        }
    }

    /// Understands `{"error": {…}}`, `{"error": "…"}`, `{"message": "…"}`, `{"detail": …}` and a list around any of them.
    fn from_value(value: &Value) -> Self {
        let value = value.as_array().and_then(|list| list.first()).unwrap_or(value);
        let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
        let field = |name: &str| error.get(name).or_else(|| value.get(name));
        let text = |name: &str| field(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let message = match error {
            Value::String(text) => text.clone(),
            _ => ["message", "detail", "msg"]
                .iter()
                .find_map(|name| match field(name) {
                    Some(Value::String(text)) => Some(text.clone()),
                    None | Some(Value::Null) => None,
                    Some(other) => Some(other.to_string()),
                })
                .unwrap_or_else(|| error.to_string()),
        };
        let code = error.get("code").or_else(|| error.get("status"));
        Self {
            kind: error.get("type").and_then(Value::as_str).unwrap_or_default().to_owned(),
            numeric_code: code.and_then(|code| match code {
                Value::String(text) => text.parse().ok(),
                other => other.as_u64().and_then(|code| u16::try_from(code).ok()),
            }),
            code: text("code"),
            message: clean_line(&message, MAX_MESSAGE),
        }
    }

    fn class(&self, status: Option<u16>) -> ProviderErrorClass {
        use ProviderErrorClass as Class;
        for word in [self.code.as_str(), self.kind.as_str()] {
            match word {
                "context_length_exceeded" | "model_context_window_exceeded" | "request_too_large" => {
                    return Class::ContextOverflow;
                }
                "content_filter" | "content_policy_violation" | "data_inspection_failed" | "sensitive_content" => {
                    return Class::ContentFilter;
                }
                // Waiting does not fill an account.
                "insufficient_quota" | "billing_error" | "billing_hard_limit_reached" | "insufficient_balance" => {
                    return Class::Auth;
                }
                "overloaded_error" | "overloaded" | "server_overloaded" | "engine_overloaded_error" => return Class::Overloaded,
                "rate_limit_error" | "rate_limit_exceeded" | "rate_limited" | "too_many_requests" => return Class::RateLimited,
                "authentication_error" | "permission_error" | "invalid_api_key" => return Class::Auth,
                "timeout_error" => return Class::Timeout,
                _ => {}
            }
        }
        match status {
            Some(429) => Class::RateLimited,
            Some(401..=403) => Class::Auth,
            Some(408 | 504) => Class::Timeout,
            Some(413) => Class::ContextOverflow,
            Some(409 | 425) => Class::Overloaded,
            Some(501 | 505) => Class::InvalidRequest,
            // llama.cpp and a few proxies report an overflow as a server error.
            Some(400..=499) | Some(500) if is_overflow(&self.message) => Class::ContextOverflow,
            Some(300..=499) => Class::InvalidRequest,
            Some(500..) => Class::Overloaded,
            _ if is_overflow(&self.message) => Class::ContextOverflow,
            _ if matches!(self.kind.as_str(), "invalid_request_error" | "not_found_error") => Class::InvalidRequest,
            _ => Class::StreamError,
        }
    }
}

/// Whether an error's wording says that the request does not fit the model's window.
///
/// The wordings are those of OpenAI, Anthropic, Google, vLLM, llama.cpp, Ollama, Mistral, xAI, Groq, OpenRouter and Bedrock. The guard
/// comes first: "too many tokens, please wait" is a rate limit, and compaction would not help.
fn is_overflow(message: &str) -> bool {
    const RATE: [&str; 8] =
        ["per minute", "per day", "per second", "rate limit", "please wait", "try again in", "quota", "too many requests"];
    const OVERFLOW: [&str; 17] = [
        "maximum context length",
        "context length exceeded",
        "context window",
        "context size",
        "context_length_exceeded",
        "exceeds the model's context",
        "exceeds the available context",
        "prompt is too long",
        "input is too long",
        "input length and `max_tokens` exceed context limit",
        "input token count",
        "maximum prompt length",
        "reduce the length of the messages",
        "too many tokens",
        "too large for model with",
        "exceeded model token limit",
        "longer than the model's context",
    ];
    let message = message.to_lowercase();
    !RATE.iter().any(|word| message.contains(word)) && OVERFLOW.iter().any(|words| message.contains(words))
}

fn hint_for(class: ProviderErrorClass, status: u16, report: &Report) -> Option<&'static str> {
    use ProviderErrorClass as Class;
    match class {
        Class::Auth if status == 402 || report.code.contains("quota") || report.kind.contains("billing") => {
            Some("the account has no credit left; see its billing page")
        }
        Class::Auth => Some("check the API key, and that it may use this model at this base URL"),
        Class::ContextOverflow => {
            Some("the conversation is larger than the model's window; start a new one or use a larger model")
        }
        Class::InvalidRequest if (300..400).contains(&status) => {
            Some("redirects are not followed, since they would carry the key along; set the base URL to the final address")
        }
        Class::InvalidRequest if status == 404 => Some("check the model's name and the base URL"),
        Class::RateLimited => Some("wait, or ask the provider for a higher limit"),
        _ => None,
    }
}

/// Reads how long a provider asks to wait: `retry-after-ms`, or `Retry-After` in seconds or as an HTTP date (RFC 9110 section 10.2.3).
///
/// Zero means now. What cannot be read is no answer.
pub(crate) fn retry_after(headers: &http::HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let wait = if let Some(milliseconds) = text("retry-after-ms").and_then(|text| text.parse::<f64>().ok()) {
        seconds(milliseconds / 1000.0)?
    } else {
        let value = text("retry-after")?;
        match value.parse::<f64>() {
            Ok(number) => seconds(number)?,
            Err(_) => httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or(Duration::ZERO),
        }
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

fn seconds(number: f64) -> Option<Duration> {
    if number.is_nan() {
        return None;
    }
    Some(Duration::from_secs_f64(number.clamp(0.0, MAX_RETRY_AFTER.as_secs_f64())))
}

#[cfg(test)]
mod tests {
    use super::ProviderErrorClass as Class;
    use super::*;

    #[test]
    fn classifies_by_status_code_and_wording() {
        for (status, body, expected) in [
            (429, r#"{"error":{"message":"Too many tokens, please wait before trying again."}}"#, Class::RateLimited),
            (400, r#"{"error":{"message":"Too many tokens, please wait before trying again."}}"#, Class::InvalidRequest),
            (400, r#"{"error":{"message":"request has too many tokens"}}"#, Class::ContextOverflow),
            (400, r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#, Class::ContextOverflow),
            (400, r#"{"error":{"message":"This model's maximum context length is 8192 tokens."}}"#, Class::ContextOverflow),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 3 tokens > 2 maximum"}}"#,
                Class::ContextOverflow,
            ),
            (500, r#"{"error":{"message":"the request exceeds the available context size"}}"#, Class::ContextOverflow),
            (413, "", Class::ContextOverflow),
            (400, r#"{"error":{"code":"content_filter","message":"x"}}"#, Class::ContentFilter),
            (429, r#"{"error":{"code":"insufficient_quota","message":"x"}}"#, Class::Auth),
            (402, r#"{"error":{"message":"Insufficient Balance"}}"#, Class::Auth),
            (401, "", Class::Auth),
            (403, "<html>no</html>", Class::Auth),
            (404, r#"{"detail":"Not Found"}"#, Class::InvalidRequest),
            (422, r#"{"detail":[{"msg":"field required"}]}"#, Class::InvalidRequest),
            (307, "", Class::InvalidRequest),
            (500, "", Class::Overloaded),
            (503, "upstream connect error", Class::Overloaded),
            (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, Class::Overloaded),
            (504, "", Class::Timeout),
        ] {
            let error = from_response(status, body.as_bytes(), None);
            assert_eq!((error.class, error.status), (expected, Some(status)), "{status} {body}");
        }
    }

    #[test]
    fn classifies_errors_inside_a_successful_response() {
        for (body, expected) in [
            (r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, Class::Overloaded),
            (r#"{"error":{"type":"api_error","message":"Internal server error"}}"#, Class::StreamError),
            (r#"{"error":{"code":502,"message":"Provider returned error"}}"#, Class::Overloaded),
            (r#"{"error":{"code":"429","message":"slow down"}}"#, Class::RateLimited),
            (r#"{"error":"model not loaded"}"#, Class::StreamError),
            (r#"{"error":{"type":"invalid_request_error","message":"bad"}}"#, Class::InvalidRequest),
            (r#"[{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}]"#, Class::InvalidRequest),
        ] {
            let value = serde_json::from_str(body).expect("valid");
            assert_eq!(in_band(&value).class, expected, "{body}");
        }
    }

    #[test]
    fn an_empty_body_is_still_an_error_that_says_so() {
        assert!(from_response(500, b"", None).message.contains("status 500 and an empty body"));
    }

    #[test]
    fn the_providers_words_are_cleaned_and_bounded() {
        let body = format!("\u{1b}[31m{}", "x".repeat(5000));
        let message = from_response(500, body.as_bytes(), None).message;
        assert!(message.len() < 1200 && !message.contains('\u{1b}'));
    }

    #[test]
    fn reads_every_form_of_retry_after() {
        let now = httpdate::parse_http_date("Wed, 21 Oct 2026 07:28:00 GMT").expect("valid");
        for (name, value, expected) in [
            ("retry-after", "2", Some(2000)),
            ("retry-after", "0", Some(0)),
            ("retry-after", "1.5", Some(1500)),
            ("retry-after-ms", "250", Some(250)),
            ("retry-after", "Wed, 21 Oct 2026 07:28:10 GMT", Some(10_000)),
            ("retry-after", "Wed, 21 Oct 2026 07:27:00 GMT", Some(0)),
            ("retry-after", "-5", Some(0)),
            ("retry-after", "1e300", Some(24 * 3_600_000)),
            ("retry-after", "NaN", None),
            ("retry-after", "soon", None),
        ] {
            let mut headers = http::HeaderMap::new();
            headers.insert(name, http::HeaderValue::from_static(value));
            assert_eq!(retry_after(&headers, now), expected.map(Duration::from_millis), "{name}: {value}");
        }
    }
}
