//! The plugin's key-value store.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ErrorKind;
use crate::context::Host;

/// The plugin's key-value store (`wasi:keyvalue/store`): bytes by key, kept between calls, shared with no other plugin.
#[derive(Clone, Copy, Debug)]
pub struct Kv<'a> {
    host: &'a Host,
}

/// A key-value operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// The policy does not grant a store.
    #[error("the policy does not grant this plugin a key-value store")]
    Denied,
    /// The host has no store for plugins.
    #[error("the host has no key-value store")]
    NoSuchStore,
    /// Anything else, such as a quota that is used up.
    #[error("the key-value store failed: {0}")]
    Other(String),
    /// A value is not the JSON that was expected, or cannot be written as JSON.
    #[error("the value of `{key}` is not the JSON that was expected")]
    Json {
        /// The key.
        key: String,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
}

impl<'a> Kv<'a> {
    pub(crate) fn new(host: &'a Host) -> Self {
        Self { host }
    }

    /// The value of `key`, or none.
    ///
    /// # Errors
    /// When the store is denied or fails.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, KvError> {
        self.host.kv_get(key)
    }

    /// The value of `key`, read as JSON, or none.
    ///
    /// # Errors
    /// When the store is denied or fails, or when the value is not such JSON.
    pub fn get_json<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, KvError> {
        let Some(bytes) = self.get(key)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|source| KvError::Json { key: key.to_owned(), source })
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// When the store is denied or fails, or when its quota is used up.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), KvError> {
        self.host.kv_set(key, value)
    }

    /// Sets `key` to `value`, written as JSON.
    ///
    /// # Errors
    /// Those of [`set`](Kv::set), and when `value` cannot be written as JSON.
    pub fn set_json(&self, key: &str, value: &impl Serialize) -> Result<(), KvError> {
        let bytes = serde_json::to_vec(value).map_err(|source| KvError::Json { key: key.to_owned(), source })?;
        self.set(key, &bytes)
    }

    /// Removes `key`; not an error when it is absent.
    ///
    /// # Errors
    /// When the store is denied or fails.
    pub fn delete(&self, key: &str) -> Result<(), KvError> {
        self.host.kv_delete(key)
    }

    /// Says whether `key` is set.
    ///
    /// # Errors
    /// When the store is denied or fails.
    pub fn exists(&self, key: &str) -> Result<bool, KvError> {
        self.host.kv_exists(key)
    }

    /// All keys, in no order.
    ///
    /// # Errors
    /// When the store is denied or fails.
    pub fn keys(&self) -> Result<Vec<String>, KvError> {
        let (mut keys, mut cursor) = self.host.kv_keys(None)?;
        while let Some(next) = cursor {
            let (page, after) = self.host.kv_keys(Some(next))?;
            // A page without keys that is not the last would have no end.
            if page.is_empty() {
                break;
            }
            keys.extend(page);
            cursor = after;
        }
        Ok(keys)
    }
}

impl KvError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Denied => ErrorKind::Denied,
            Self::NoSuchStore => ErrorKind::Unavailable,
            Self::Other(_) | Self::Json { .. } => ErrorKind::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;

    #[test]
    fn keeps_what_is_set() {
        let context = Context::test().with_kv([("笔记", "old")]);
        let kv = context.kv();
        assert!(kv.exists("笔记").expect("granted"));
        kv.set("笔记", "新".as_bytes()).expect("granted");
        assert_eq!(kv.get("笔记").expect("granted").as_deref(), Some("新".as_bytes()));
        kv.delete("笔记").expect("granted");
        kv.delete("笔记").expect("absent is no error");
        assert_eq!(kv.get("笔记").expect("granted"), None);
    }

    #[test]
    fn json_goes_in_and_out_and_anything_else_is_an_error() {
        let context = Context::test().with_kv([("bad", "{")]);
        let kv = context.kv();
        kv.set_json("list", &[1, 2]).expect("is JSON");
        assert_eq!(kv.get_json::<Vec<u8>>("list").expect("is a list"), Some(vec![1, 2]));
        assert_eq!(kv.get_json::<u8>("none").expect("granted"), None);
        for key in ["bad", "list"] {
            assert!(matches!(kv.get_json::<String>(key), Err(KvError::Json { .. })), "{key}");
        }
    }

    #[test]
    fn lists_every_page_of_keys() {
        for count in [0, 1, 2, 3, 4, 5] {
            let context = Context::test().with_kv((0..count).map(|number| (format!("k{number}"), "")));
            assert_eq!(context.kv().keys().expect("granted").len(), count);
        }
    }
}
