//! Test doubles: what a context holds outside a sandbox.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::{Call, Context, Level};
use crate::config::ConfigError;
use crate::http::{HttpError, Request, Response};
use crate::kv::KvError;

/// One message that a tool has logged.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogLine {
    /// How important it is.
    pub level: Level,
    /// The text.
    pub message: String,
}

/// One report of a tool's progress.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ProgressReport {
    /// How many steps are done.
    pub done: u64,
    /// Of how many.
    pub total: Option<u64>,
    /// What is happening.
    pub message: Option<String>,
}

/// Only on targets other than wasm: a context for unit tests. As in a sandbox, what is not given is denied.
impl Context {
    /// A context for a unit test that grants nothing.
    ///
    /// ```
    /// use honeycomb_sdk::prelude::*;
    /// use honeycomb_sdk::http::Response;
    ///
    /// let context = Context::test()
    ///     .with_http(|request| {
    ///         assert_eq!(request.url, "https://example.com/time");
    ///         Ok(Response::new(200).with_body("12:00"))
    ///     })
    ///     .with_kv([("count", "1")])
    ///     .with_config([("zone", "Asia/Shanghai")]);
    ///
    /// let response = context.http().get("https://example.com/time").send().expect("the double answers");
    /// assert_eq!(response.text().expect("is UTF-8"), "12:00");
    /// assert_eq!(context.config().get("zone").expect("is set").as_deref(), Some("Asia/Shanghai"));
    /// ```
    pub fn test() -> Self {
        let call = Call {
            id: "call-1".to_owned(),
            run_id: "run-1".to_owned(),
            idempotency_key: "key-1".to_owned(),
            attempt: 1,
            deadline: Duration::from_secs(30),
            traceparent: None,
        };
        Self { call, host: Host::default() }
    }

    /// Answers HTTP requests with `answer`. Without it they are denied.
    #[must_use]
    pub fn with_http(mut self, answer: impl Fn(&Request) -> Result<Response, HttpError> + 'static) -> Self {
        self.host.http = Some(Box::new(answer));
        self
    }

    /// Grants a key-value store with these entries. Without it the store is denied.
    #[must_use]
    pub fn with_kv<K: Into<String>, V: Into<Vec<u8>>>(mut self, entries: impl IntoIterator<Item = (K, V)>) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        self.host.kv = Some(RefCell::new(entries));
        self
    }

    /// Sets configuration values. Without it there are none.
    #[must_use]
    pub fn with_config<K: Into<String>, V: Into<String>>(mut self, entries: impl IntoIterator<Item = (K, V)>) -> Self {
        self.host.config = entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        self
    }

    /// Replaces what the tool is told about its call.
    #[must_use]
    pub fn with_call(mut self, change: impl FnOnce(&mut Call)) -> Self {
        change(&mut self.call);
        self
    }

    /// Makes every report of progress answer that the result is no longer wanted.
    #[must_use]
    pub fn cancelled(self) -> Self {
        self.host.cancelled.set(true);
        self
    }

    /// The messages that the tool has logged.
    pub fn logs(&self) -> Vec<LogLine> {
        self.host.logs.borrow().clone()
    }

    /// The progress that the tool has reported.
    pub fn progress_reports(&self) -> Vec<ProgressReport> {
        self.host.reports.borrow().clone()
    }
}

type Answer = dyn Fn(&Request) -> Result<Response, HttpError>;

#[derive(Default)]
pub(crate) struct Host {
    http: Option<Box<Answer>>,
    kv: Option<RefCell<BTreeMap<String, Vec<u8>>>>,
    config: BTreeMap<String, String>,
    cancelled: Cell<bool>,
    logs: RefCell<Vec<LogLine>>,
    reports: RefCell<Vec<ProgressReport>>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("kv", &self.kv).field("config", &self.config).finish_non_exhaustive()
    }
}

impl Host {
    pub(crate) fn log(&self, level: Level, message: &str) {
        self.logs.borrow_mut().push(LogLine { level, message: message.to_owned() });
    }

    pub(crate) fn progress(&self, done: u64, total: Option<u64>, message: Option<&str>) -> bool {
        self.reports.borrow_mut().push(ProgressReport { done, total, message: message.map(str::to_owned) });
        !self.cancelled.get()
    }

    pub(crate) fn send(&self, request: &Request) -> Result<Response, HttpError> {
        match &self.http {
            Some(answer) => answer(request),
            None => Err(HttpError::Denied { url: request.url.clone() }),
        }
    }

    pub(crate) fn kv_get(&self, key: &str) -> Result<Option<Vec<u8>>, KvError> {
        Ok(self.kv()?.borrow().get(key).cloned())
    }

    pub(crate) fn kv_set(&self, key: &str, value: &[u8]) -> Result<(), KvError> {
        self.kv()?.borrow_mut().insert(key.to_owned(), value.to_vec());
        Ok(())
    }

    pub(crate) fn kv_delete(&self, key: &str) -> Result<(), KvError> {
        self.kv()?.borrow_mut().remove(key);
        Ok(())
    }

    pub(crate) fn kv_exists(&self, key: &str) -> Result<bool, KvError> {
        Ok(self.kv()?.borrow().contains_key(key))
    }

    pub(crate) fn kv_keys(&self, cursor: Option<u64>) -> Result<(Vec<String>, Option<u64>), KvError> {
        // Small pages, so that a test sees what happens at their ends.
        const PAGE: usize = 2;
        let start = usize::try_from(cursor.unwrap_or(0)).unwrap_or(usize::MAX);
        let entries = self.kv()?.borrow();
        let keys: Vec<String> = entries.keys().skip(start).take(PAGE).cloned().collect();
        let end = start.saturating_add(PAGE);
        Ok((keys, (end < entries.len()).then_some(end as u64)))
    }

    pub(crate) fn config_get(&self, key: &str) -> Result<Option<String>, ConfigError> {
        Ok(self.config.get(key).cloned())
    }

    pub(crate) fn config_all(&self) -> Result<Vec<(String, String)>, ConfigError> {
        Ok(self.config.clone().into_iter().collect())
    }

    fn kv(&self) -> Result<&RefCell<BTreeMap<String, Vec<u8>>>, KvError> {
        self.kv.as_ref().ok_or(KvError::Denied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_nothing_by_default() {
        let context = Context::test();
        assert!(matches!(context.http().get("https://example.com/").send(), Err(HttpError::Denied { .. })));
        assert!(matches!(context.kv().get("a"), Err(KvError::Denied)));
        assert_eq!(context.config().get("a").expect("no values is no error"), None);
    }

    #[test]
    fn records_what_the_tool_says() {
        let context = Context::test().with_call(|call| call.attempt = 2);
        context.log(Level::Warn, "慢");
        assert!(context.progress(1, Some(2), Some("half")));
        assert_eq!(context.logs(), [LogLine { level: Level::Warn, message: "慢".to_owned() }]);
        assert_eq!(context.progress_reports().len(), 1);
        assert_eq!(context.call().attempt, 2);
    }

    #[test]
    fn a_cancelled_call_is_told_so() {
        assert!(!Context::test().cancelled().progress(1, None, None));
    }
}
