//! `wasi:keyvalue/atomics`.

use wasmtime::component::{Resource, ResourceTableError};

use super::generated::wasi::keyvalue::atomics as wit;
use super::{Bucket, Error, KeyValueView};

/// A value that was looked at.
#[derive(Debug)]
#[expect(unreachable_pub, reason = "`bindgen!` re-exports it")]
pub struct Cas {
    key: String,
    seen: Option<Vec<u8>>,
}

/// Why a swap failed.
#[derive(Debug)]
#[expect(unreachable_pub, reason = "`bindgen!` re-exports it")]
pub enum CasError {
    /// The value has changed; here is the present one.
    Changed(Resource<Cas>),
    /// Anything else.
    Store(Error),
}

impl From<Error> for CasError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<ResourceTableError> for CasError {
    fn from(error: ResourceTableError) -> Self {
        Self::Store(error.into())
    }
}

impl wit::Host for KeyValueView<'_> {
    async fn increment(&mut self, bucket: Resource<Bucket>, key: String, delta: i64) -> Result<i64, Error> {
        let (store, grant) = self.ctx.granted()?;
        self.table.get(&bucket)?;
        store.increment(&self.ctx.plugin, key, delta, grant.quota_bytes).await.map_err(|error| self.ctx.failed(&error))
    }

    async fn swap(&mut self, cas: Resource<Cas>, value: Vec<u8>) -> Result<(), CasError> {
        let (store, grant) = self.ctx.granted()?;
        let Cas { key, seen } = self.table.delete(cas)?;
        let swapped = store.swap(&self.ctx.plugin, key.clone(), seen, value, grant.quota_bytes).await;
        match swapped.map_err(|error| self.ctx.failed(&error))? {
            Ok(()) => Ok(()),
            Err(present) => Err(CasError::Changed(self.table.push(Cas { key, seen: present })?)),
        }
    }

    fn convert_cas_error(&mut self, error: CasError) -> wasmtime::Result<wit::CasError> {
        match error {
            CasError::Changed(cas) => Ok(wit::CasError::CasFailed(cas)),
            CasError::Store(error) => error.into_wit().map(wit::CasError::StoreError),
        }
    }
}

impl wit::HostCas for KeyValueView<'_> {
    async fn new(&mut self, bucket: Resource<Bucket>, key: String) -> Result<Resource<Cas>, Error> {
        let (store, _) = self.ctx.granted()?;
        self.table.get(&bucket)?;
        let seen = store.get(&self.ctx.plugin, key.clone()).await.map_err(|error| self.ctx.failed(&error))?;
        Ok(self.table.push(Cas { key, seen })?)
    }

    async fn current(&mut self, cas: Resource<Cas>) -> Result<Option<Vec<u8>>, Error> {
        self.ctx.granted()?;
        Ok(self.table.get(&cas)?.seen.clone())
    }

    async fn drop(&mut self, cas: Resource<Cas>) -> wasmtime::Result<()> {
        self.table.delete(cas)?;
        Ok(())
    }
}
