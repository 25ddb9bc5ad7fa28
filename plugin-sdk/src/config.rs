//! Configuration: values that the operator's policy sets for the plugin.

use crate::ErrorKind;
use crate::context::Host;

/// The values that the operator's policy sets for the plugin (`wasi:config/store`).
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    host: &'a Host,
}

/// A value could not be read.
#[derive(Debug, thiserror::Error)]
#[error("the configuration cannot be read: {0}")]
pub struct ConfigError(pub String);

impl<'a> Config<'a> {
    pub(crate) fn new(host: &'a Host) -> Self {
        Self { host }
    }

    /// The value of `key`, or none if it is not set.
    ///
    /// # Errors
    /// When the host cannot read its configuration.
    pub fn get(&self, key: &str) -> Result<Option<String>, ConfigError> {
        self.host.config_get(key)
    }

    /// All values, in no order.
    ///
    /// # Errors
    /// When the host cannot read its configuration.
    pub fn get_all(&self) -> Result<Vec<(String, String)>, ConfigError> {
        self.host.config_all()
    }
}

impl ConfigError {
    pub(crate) fn kind(&self) -> ErrorKind {
        ErrorKind::Unavailable
    }
}

#[cfg(test)]
mod tests {
    use crate::Context;

    #[test]
    fn reads_one_value_or_all() {
        let context = Context::test().with_config([("city", "北京"), ("unit", "C")]);
        let config = context.config();
        assert_eq!(config.get("city").expect("readable").as_deref(), Some("北京"));
        assert_eq!(config.get("nope").expect("readable"), None);
        assert_eq!(config.get_all().expect("readable").len(), 2);
    }
}
