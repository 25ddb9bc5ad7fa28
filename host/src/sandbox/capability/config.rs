//! `wasi:config/store`: values that the policy sets for a plugin.

use std::collections::BTreeMap;
use std::sync::Arc;

use wasmtime::component::{HasData, Linker};

mod generated {
    wasmtime::component::bindgen!({
        inline: "
            package honeycomb:config-imports;
            world imports {
                import wasi:config/store@0.2.0-rc.1;
            }
        ",
        path: "../wit/deps/config",
    });
}

use self::generated::wasi::config::store;

/// The values of one plugin; empty without a grant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    values: Arc<BTreeMap<String, String>>,
}

impl Config {
    /// Offers these values, which are the grant.
    pub(crate) fn new(values: Arc<BTreeMap<String, String>>) -> Self {
        Self { values }
    }
}

/// A [`Config`] while a host function runs.
pub(crate) struct ConfigView<'a> {
    /// The state of the call.
    pub(crate) ctx: &'a Config,
}

impl store::Host for ConfigView<'_> {
    fn get(&mut self, key: String) -> Result<Option<String>, store::Error> {
        Ok(self.ctx.values.get(&key).cloned())
    }

    fn get_all(&mut self) -> Result<Vec<(String, String)>, store::Error> {
        Ok(self.ctx.values.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}

/// Adds `wasi:config/store` to a linker.
pub(crate) fn add_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    view: fn(&mut T) -> ConfigView<'_>,
) -> wasmtime::Result<()> {
    store::add_to_linker::<T, HasConfig>(linker, view)
}

struct HasConfig;

impl HasData for HasConfig {
    type Data<'a> = ConfigView<'a>;
}

#[cfg(test)]
mod tests {
    use super::store::Host as _;
    use super::*;

    #[test]
    fn a_plugin_sees_its_own_values_and_nothing_without_a_grant() {
        let values =
            BTreeMap::from([("base-url".to_owned(), "http://天气.example".to_owned()), ("unit".to_owned(), "C".to_owned())]);
        let granted = Config::new(Arc::new(values));
        let mut view = ConfigView { ctx: &granted };
        assert_eq!(view.get("unit".into()).expect("granted"), Some("C".to_owned()));
        assert_eq!(view.get("UNIT".into()).expect("granted"), None);
        let all = view.get_all().expect("granted");
        assert_eq!(all.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["base-url", "unit"]);

        let nothing = Config::default();
        let mut view = ConfigView { ctx: &nothing };
        assert_eq!(view.get("unit".into()).expect("empty"), None);
        assert!(view.get_all().expect("empty").is_empty());
    }
}
