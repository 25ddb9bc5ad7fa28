//! When a failed request is sent again, and how long to wait before: pure, so that it can be tested without waiting.

use std::time::{Duration, SystemTime};

use super::{ProviderError, ProviderErrorClass};
use crate::tool::BoxFuture;

/// How often, and how patiently, a failed request is repeated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Attempts in all, the first included. 0 counts as 1.
    pub max_attempts: u32,
    /// The ceiling of the first wait; it doubles with every attempt.
    pub base: Duration,
    /// The ceiling of every wait that the provider did not ask for.
    pub cap: Duration,
    /// A provider that asks for a longer wait than this is not asked again.
    pub longest_wait: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            base: Duration::from_millis(500),
            cap: Duration::from_secs(30),
            longest_wait: Duration::from_secs(3600),
        }
    }
}

impl RetryPolicy {
    /// Returns how long to wait before the attempt after `attempt` (which counts from 1), or `None` to give up.
    ///
    /// The wait is drawn from the whole range below the exponential ceiling ("full jitter"), so that clients that failed together do
    /// not come back together; `jitter` is in `0.0..1.0`. What the provider asks for is a floor, never a ceiling; 0 means now.
    pub fn wait(&self, attempt: u32, error: &ProviderError, jitter: f64) -> Option<Duration> {
        if attempt >= self.max_attempts || !is_retryable(error) {
            return None;
        }
        let doublings = attempt.saturating_sub(1).min(16);
        let ceiling = self.base.saturating_mul(1 << doublings).min(self.cap);
        let drawn = ceiling.mul_f64(jitter.clamp(0.0, 1.0));
        match error.retry_after {
            Some(asked) if asked > self.longest_wait => None,
            Some(asked) => Some(asked.saturating_add(drawn.min(self.base))),
            None => Some(drawn),
        }
    }
}

/// Whether a repeat of the request may succeed.
fn is_retryable(error: &ProviderError) -> bool {
    use ProviderErrorClass as Class;
    // Whatever words came with them, these statuses mean that the same request fails again.
    if matches!(error.status, Some(400 | 401 | 403 | 404 | 422)) {
        return false;
    }
    match error.class {
        Class::RateLimited
        | Class::Overloaded
        | Class::Timeout
        | Class::Network
        | Class::StreamIncomplete
        | Class::StreamError => true,
        Class::BadResponse
        | Class::ContextOverflow
        | Class::InvalidRequest
        | Class::Auth
        | Class::ContentFilter
        | Class::Cancelled
        | Class::ScriptMismatch => false,
    }
}

/// Time and chance, as a provider needs them; tests bring their own.
pub trait Clock: Send + Sync {
    /// Waits.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    /// The time, for `Retry-After` dates.
    fn now(&self) -> SystemTime;

    /// A random number in `0.0..1.0`.
    fn jitter(&self) -> f64;
}

/// The real clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn jitter(&self) -> f64 {
        // The low 32 bits of a version 7 UUID are random (RFC 9562 section 5.7).
        let random = (uuid::Uuid::now_v7().as_u128() & u128::from(u32::MAX)) as u32;
        f64::from(random) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::ProviderErrorClass as Class;
    use super::*;

    fn error(class: Class, status: Option<u16>, retry_after_ms: Option<u64>) -> ProviderError {
        ProviderError { status, retry_after: retry_after_ms.map(Duration::from_millis), ..ProviderError::new(class, "x") }
    }

    fn wait_ms(attempt: u32, error: &ProviderError, jitter: f64) -> Option<u64> {
        let wait = RetryPolicy::default().wait(attempt, error, jitter);
        wait.map(|wait| u64::try_from(wait.as_millis()).expect("short"))
    }

    #[test]
    fn doubles_up_to_the_cap_with_full_jitter() {
        let overloaded = error(Class::Overloaded, Some(503), None);
        let ceilings: Vec<_> = (1..6).map(|attempt| wait_ms(attempt, &overloaded, 1.0)).collect();
        assert_eq!(ceilings, [Some(500), Some(1000), Some(2000), Some(4000), None]);
        assert_eq!(wait_ms(1, &overloaded, 0.0), Some(0));
        let patient = RetryPolicy { max_attempts: 100, ..RetryPolicy::default() };
        assert_eq!(patient.wait(90, &overloaded, 1.0), Some(Duration::from_secs(30)));
    }

    #[test]
    fn the_providers_wait_is_a_floor_and_zero_means_now() {
        let class = Class::RateLimited;
        assert_eq!(wait_ms(1, &error(class, Some(429), Some(60_000)), 0.0), Some(60_000));
        assert_eq!(wait_ms(1, &error(class, Some(429), Some(60_000)), 1.0), Some(60_500));
        assert_eq!(wait_ms(4, &error(class, Some(429), Some(0)), 0.5), Some(500));
        assert_eq!(wait_ms(1, &error(class, Some(429), Some(0)), 0.0), Some(0));
        assert_eq!(wait_ms(1, &error(class, Some(429), Some(3_600_001)), 0.0), None);
    }

    #[test]
    fn what_would_fail_again_is_not_repeated() {
        for status in [400, 401, 403, 404, 422] {
            assert_eq!(wait_ms(1, &error(Class::Overloaded, Some(status), Some(0)), 0.0), None, "{status}");
        }
        for class in [Class::Auth, Class::InvalidRequest, Class::ContextOverflow, Class::ContentFilter, Class::Cancelled] {
            assert_eq!(wait_ms(1, &error(class, None, None), 0.0), None, "{class:?}");
        }
        for class in [Class::Timeout, Class::Network, Class::StreamIncomplete, Class::StreamError] {
            assert!(wait_ms(1, &error(class, None, None), 0.0).is_some(), "{class:?}");
        }
    }

    #[test]
    fn the_system_clocks_jitter_is_in_range_and_varies() {
        let drawn: Vec<f64> = (0..50).map(|_| SystemClock.jitter()).collect();
        assert!(drawn.iter().all(|number| (0.0..1.0).contains(number)));
        assert!(drawn.iter().any(|number| *number != drawn[0]));
    }
}
