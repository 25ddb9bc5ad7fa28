//! `wasi:keyvalue`: bytes by key that a plugin keeps between calls, in a namespace of its own.

mod atomics;
mod database;
mod store;

use std::sync::Arc;

use wasmtime::component::{HasData, Linker, Resource, ResourceTable, ResourceTableError};

use self::store::OperationError;
pub(crate) use self::store::{KeyValueStore, OpenError};
use crate::policy::KvGrant;
use crate::sandbox::meter::Meter;
use crate::tool::{ErrorCode, Failure};

mod generated {
    wasmtime::component::bindgen!({
        inline: "
            package honeycomb:keyvalue-imports;
            world imports {
                import wasi:keyvalue/store@0.2.0-draft2;
                import wasi:keyvalue/atomics@0.2.0-draft2;
            }
        ",
        path: "../wit/deps/keyvalue",
        imports: { default: async | trappable },
        require_store_data_send: true,
        with: {
            "wasi:keyvalue/store.bucket": super::Bucket,
            "wasi:keyvalue/atomics.cas": super::atomics::Cas,
        },
        trappable_error_type: {
            "wasi:keyvalue/store.error" => super::Error,
            "wasi:keyvalue/atomics.cas-error" => super::atomics::CasError,
        },
    });
}

use self::generated::wasi::keyvalue::store as wit;

/// The key-value store, as one call of one plugin has it.
#[derive(Clone, Debug)]
pub(crate) struct KeyValue {
    plugin: Arc<str>,
    grant: Option<KvGrant>,
    store: Option<KeyValueStore>,
    meter: Meter,
}

impl KeyValue {
    /// What a call may use: nothing without a grant.
    pub(crate) fn new(plugin: Arc<str>, grant: Option<KvGrant>, store: Option<KeyValueStore>, meter: Meter) -> Self {
        Self { plugin, grant, store, meter }
    }

    /// The check that every function begins with.
    fn granted(&self) -> Result<(&KeyValueStore, &KvGrant), Error> {
        match (&self.store, &self.grant) {
            (Some(store), Some(grant)) => Ok((store, grant)),
            (_, None) => {
                let message = format!("plugin `{}` may not use the key-value store: no rule grants it", self.plugin);
                let hint = format!("to allow it, add to the policy:\n[plugins.{}.kv]\nquota = \"1MiB\"", self.plugin);
                self.meter.denied(Failure::new(ErrorCode::CAP_DENIED, message).hint(hint));
                Err(Error::Denied)
            }
            (None, Some(grant)) => {
                let message =
                    format!("plugin `{}` may use the key-value store ({}), but the host has none", self.plugin, grant.rule);
                self.meter.denied(Failure::new(ErrorCode::HOST_INTERNAL, message));
                Err(Error::Denied)
            }
        }
    }

    /// What a guest is told about a failure, and the operator about a used-up quota.
    fn failed(&self, error: &OperationError) -> Error {
        if let (OperationError::Quota { .. }, Some(grant)) = (error, &self.grant) {
            let message = format!("plugin `{}`: {error} ({})", self.plugin, grant.rule);
            let hint = format!("raise it in the policy:\n[plugins.{}.kv]\nquota = …", self.plugin);
            self.meter.denied(Failure::new(ErrorCode::CAP_DENIED, message).hint(hint));
        }
        if let OperationError::Database(cause) = error {
            // The cause may name paths of the host, so it is for the operator alone.
            tracing::warn!(plugin = &*self.plugin, %cause, "the key-value store failed");
        }
        Error::Other(error.to_string())
    }
}

/// A [`KeyValue`] while a host function runs.
pub(crate) struct KeyValueView<'a> {
    /// The state of the call.
    pub(crate) ctx: &'a KeyValue,
    /// The handles of the guest.
    pub(crate) table: &'a mut ResourceTable,
}

/// An open bucket. There is one for each plugin, so there is nothing to remember.
#[derive(Debug)]
#[expect(unreachable_pub, reason = "`bindgen!` re-exports it")]
pub struct Bucket(());

/// Why a function failed.
#[derive(Debug)]
#[expect(unreachable_pub, reason = "`bindgen!` re-exports it")]
pub enum Error {
    /// There is no such bucket.
    NoSuchStore,
    /// There is no grant.
    Denied,
    /// The guest is told why.
    Other(String),
    /// The guest has misused a handle; it ends there.
    Trap(wasmtime::Error),
}

impl From<ResourceTableError> for Error {
    fn from(error: ResourceTableError) -> Self {
        Self::Trap(error.into())
    }
}

impl Error {
    fn into_wit(self) -> wasmtime::Result<wit::Error> {
        match self {
            Self::NoSuchStore => Ok(wit::Error::NoSuchStore),
            Self::Denied => Ok(wit::Error::AccessDenied),
            Self::Other(text) => Ok(wit::Error::Other(text)),
            Self::Trap(error) => Err(error),
        }
    }
}

impl wit::Host for KeyValueView<'_> {
    async fn open(&mut self, identifier: String) -> Result<Resource<Bucket>, Error> {
        self.ctx.granted()?;
        if identifier.is_empty() { Ok(self.table.push(Bucket(()))?) } else { Err(Error::NoSuchStore) }
    }

    fn convert_error(&mut self, error: Error) -> wasmtime::Result<wit::Error> {
        error.into_wit()
    }
}

impl wit::HostBucket for KeyValueView<'_> {
    async fn get(&mut self, bucket: Resource<Bucket>, key: String) -> Result<Option<Vec<u8>>, Error> {
        let (store, _) = self.ctx.granted()?;
        self.table.get(&bucket)?;
        store.get(&self.ctx.plugin, key).await.map_err(|error| self.ctx.failed(&error))
    }

    async fn set(&mut self, bucket: Resource<Bucket>, key: String, value: Vec<u8>) -> Result<(), Error> {
        let (store, grant) = self.ctx.granted()?;
        self.table.get(&bucket)?;
        store.set(&self.ctx.plugin, key, value, grant.quota_bytes).await.map_err(|error| self.ctx.failed(&error))
    }

    async fn delete(&mut self, bucket: Resource<Bucket>, key: String) -> Result<(), Error> {
        let (store, _) = self.ctx.granted()?;
        self.table.get(&bucket)?;
        store.delete(&self.ctx.plugin, key).await.map_err(|error| self.ctx.failed(&error))
    }

    async fn exists(&mut self, bucket: Resource<Bucket>, key: String) -> Result<bool, Error> {
        let (store, _) = self.ctx.granted()?;
        self.table.get(&bucket)?;
        store.exists(&self.ctx.plugin, key).await.map_err(|error| self.ctx.failed(&error))
    }

    async fn list_keys(&mut self, bucket: Resource<Bucket>, cursor: Option<u64>) -> Result<wit::KeyResponse, Error> {
        let (store, _) = self.ctx.granted()?;
        self.table.get(&bucket)?;
        let page = store.list(&self.ctx.plugin, cursor).await.map_err(|error| self.ctx.failed(&error))?;
        Ok(wit::KeyResponse { keys: page.keys, cursor: page.next })
    }

    async fn drop(&mut self, bucket: Resource<Bucket>) -> wasmtime::Result<()> {
        self.table.delete(bucket)?;
        Ok(())
    }
}

/// Adds `wasi:keyvalue/store` and `wasi:keyvalue/atomics` to a linker.
pub(crate) fn add_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    view: fn(&mut T) -> KeyValueView<'_>,
) -> wasmtime::Result<()> {
    wit::add_to_linker::<T, HasKeyValue>(linker, view)?;
    generated::wasi::keyvalue::atomics::add_to_linker::<T, HasKeyValue>(linker, view)
}

struct HasKeyValue;

impl HasData for HasKeyValue {
    type Data<'a> = KeyValueView<'a>;
}

#[cfg(test)]
mod tests;
