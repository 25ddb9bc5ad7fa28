//! The host, through the plugin's imports.

use std::cell::OnceCell;

use super::Level;
use crate::bindings::honeycomb::plugin::progress;
use crate::bindings::wasi::config::store as config;
use crate::bindings::wasi::keyvalue::store::{self as keyvalue, Bucket};
use crate::bindings::wasi::logging::logging;
use crate::config::ConfigError;
use crate::http::{HttpError, Request, Response};
use crate::kv::KvError;

#[derive(Debug, Default)]
pub(crate) struct Host {
    /// Opened when first used: a host may refuse it. Leaked, as the instance ends with the call: dropping it here would make every
    /// plugin import the store, and what a plugin imports should be what it uses.
    bucket: OnceCell<&'static Bucket>,
}

impl Host {
    pub(crate) fn log(&self, level: Level, message: &str) {
        log(level, message);
    }

    pub(crate) fn progress(&self, done: u64, total: Option<u64>, message: Option<&str>) -> bool {
        progress::report(done, total, message)
    }

    pub(crate) fn send(&self, request: &Request) -> Result<Response, HttpError> {
        crate::http::guest::send(request)
    }

    pub(crate) fn kv_get(&self, key: &str) -> Result<Option<Vec<u8>>, KvError> {
        Ok(self.bucket()?.get(key)?)
    }

    pub(crate) fn kv_set(&self, key: &str, value: &[u8]) -> Result<(), KvError> {
        Ok(self.bucket()?.set(key, value)?)
    }

    pub(crate) fn kv_delete(&self, key: &str) -> Result<(), KvError> {
        Ok(self.bucket()?.delete(key)?)
    }

    pub(crate) fn kv_exists(&self, key: &str) -> Result<bool, KvError> {
        Ok(self.bucket()?.exists(key)?)
    }

    pub(crate) fn kv_keys(&self, cursor: Option<u64>) -> Result<(Vec<String>, Option<u64>), KvError> {
        let page = self.bucket()?.list_keys(cursor)?;
        Ok((page.keys, page.cursor))
    }

    pub(crate) fn config_get(&self, key: &str) -> Result<Option<String>, ConfigError> {
        Ok(config::get(key)?)
    }

    pub(crate) fn config_all(&self) -> Result<Vec<(String, String)>, ConfigError> {
        Ok(config::get_all()?)
    }

    fn bucket(&self) -> Result<&'static Bucket, KvError> {
        if let Some(bucket) = self.bucket.get() {
            return Ok(bucket);
        }
        // The empty name is the plugin's own namespace, the only one that Honeycomb knows.
        let opened = Box::leak(Box::new(keyvalue::open("")?));
        Ok(self.bucket.get_or_init(|| opened))
    }
}

/// Writes a message to the operator's log.
pub(crate) fn log(level: Level, message: &str) {
    let level = match level {
        Level::Trace => logging::Level::Trace,
        Level::Debug => logging::Level::Debug,
        Level::Info => logging::Level::Info,
        Level::Warn => logging::Level::Warn,
        Level::Error => logging::Level::Error,
        Level::Critical => logging::Level::Critical,
    };
    logging::log(level, "", message);
}

impl From<keyvalue::Error> for KvError {
    fn from(error: keyvalue::Error) -> Self {
        match error {
            keyvalue::Error::NoSuchStore => Self::NoSuchStore,
            keyvalue::Error::AccessDenied => Self::Denied,
            keyvalue::Error::Other(message) => Self::Other(message),
        }
    }
}

impl From<config::Error> for ConfigError {
    fn from(error: config::Error) -> Self {
        match error {
            config::Error::Upstream(message) | config::Error::Io(message) => Self(message),
        }
    }
}
