//! Binding a loaded plugin to what a policy grants it: everything that a call needs and that can fail is prepared here, once.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;
use wasmtime_wasi::filesystem::WasiFilesystemCtx;

use super::capability::config::Config;
use super::capability::fs::{MountError, Protected, open_mounts};
use super::capability::http::{EgressError, EgressShared, Resolver, SystemResolver, client_config, trust_nobody};
use super::capability::keyvalue::{KeyValueStore, OpenError};
use super::plugin::Code;
use crate::file;
use crate::policy::Limits;
use crate::policy::{Grants, KvGrant};
use crate::secret::Secrets;

/// A plugin with its grants and limits, ready to be called. Cheap to clone.
#[derive(Clone)]
pub struct Bound(pub(super) Arc<BoundPlugin>);

/// What a [`Bound`] shares between calls.
pub(super) struct BoundPlugin {
    pub(super) id: Arc<str>,
    pub(super) code: Arc<Code>,
    pub(super) limits: Limits,
    pub(super) env: Vec<(String, String)>,
    pub(super) filesystem: WasiFilesystemCtx,
    pub(super) egress: Arc<EgressShared>,
    pub(super) config: Config,
    /// Known secrets, to be kept out of what the guest says.
    pub(super) secrets: Arc<Secrets>,
    pub(super) kv: Option<KvGrant>,
    pub(super) store: Option<KeyValueStore>,
    /// Calls of this plugin that may run at once.
    pub(super) slots: Semaphore,
}

/// Why a plugin cannot be given what the policy grants.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// A directory cannot be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// A secret cannot be sent as the policy says.
    #[error("{0}")]
    Secret(String),
    /// The trust store of the operating system cannot be used.
    #[error("cannot set up HTTPS for plugins")]
    Tls(#[source] rustls::Error),
    /// The directory of the key-value store cannot be used.
    #[error("cannot use the state directory `{}`", path.display())]
    StateDir {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// There is nowhere to keep key-value data.
    #[error("the policy grants the key-value store, and there is no directory to keep it in")]
    NoStateDir,
    /// The key-value store cannot be used.
    #[error("{0}")]
    Store(String),
    /// A name that no environment can hold.
    #[error("`{name}` is no name for an environment variable")]
    EnvName {
        /// The name.
        name: String,
    },
    /// A value that no environment can hold.
    #[error("the value of the environment variable `{name}` holds a NUL byte")]
    EnvValue {
        /// The name.
        name: String,
    },
}

/// What every plugin shares: the key-value store, the trust store, the resolver, the secrets. Each is made when it is first needed.
pub(super) struct Means {
    state_dir: Option<PathBuf>,
    protected: Vec<Protected>,
    secrets: Arc<Secrets>,
    resolver: Arc<dyn Resolver>,
    tls: Mutex<Option<Arc<rustls::ClientConfig>>>,
    store: Mutex<Option<KeyValueStore>>,
}

impl Means {
    pub(super) fn new(state_dir: Option<PathBuf>, protected: Vec<Protected>, secrets: Arc<Secrets>) -> Self {
        Self {
            state_dir,
            protected,
            secrets,
            resolver: Arc::new(SystemResolver::new()),
            tls: Mutex::default(),
            store: Mutex::default(),
        }
    }

    /// The same for another policy: with other secrets and other files to protect.
    pub(super) fn renewed(&self, protected: Vec<Protected>, secrets: Arc<Secrets>) -> Self {
        let tls = self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self {
            state_dir: self.state_dir.clone(),
            protected,
            secrets,
            resolver: Arc::clone(&self.resolver),
            tls: Mutex::new(tls),
            store: Mutex::new(store),
        }
    }

    pub(super) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// The trust store; reading it takes milliseconds, so only a plugin with a grant causes it.
    fn tls(&self) -> Result<Arc<rustls::ClientConfig>, BindError> {
        let mut tls = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        match &*tls {
            Some(tls) => Ok(Arc::clone(tls)),
            None => Ok(Arc::clone(tls.insert(client_config().map_err(BindError::Tls)?))),
        }
    }

    fn store(&self) -> Result<Option<KeyValueStore>, BindError> {
        let Some(directory) = &self.state_dir else { return Err(BindError::NoStateDir) };
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        if store.is_none() {
            let unusable = |source| BindError::StateDir { path: directory.clone(), source };
            file::create_private_dir(directory).map_err(unusable)?;
            *store = Some(KeyValueStore::open(Some(&directory.join("keyvalue.sqlite"))).map_err(BindError::from)?);
        }
        Ok(store.clone())
    }
}

impl BindError {
    /// What would put it right.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Mount(error) => error.hint(),
            Self::Tls(_) => "are the system's root certificates installed?",
            Self::StateDir { .. } | Self::NoStateDir => "name one with `--state-dir`",
            // These bring their own.
            Self::Secret(_) | Self::Store(_) => return None,
            Self::EnvName { .. } => "a name is not empty and has neither `=` nor NUL in it",
            Self::EnvValue { .. } => "correct the value in the policy",
        })
    }
}

impl From<EgressError> for BindError {
    fn from(error: EgressError) -> Self {
        Self::Secret(error.to_string())
    }
}

impl From<OpenError> for BindError {
    fn from(error: OpenError) -> Self {
        Self::Store(error.to_string())
    }
}

impl Bound {
    /// The plugin's id in the policy.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The limits of its calls.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bound").field("id", &self.0.id).finish_non_exhaustive()
    }
}

impl BoundPlugin {
    pub(super) fn new(code: Arc<Code>, id: &str, grants: Grants, limits: Limits, means: &Means) -> Result<Self, BindError> {
        let env: Vec<(String, String)> = grants.env.into_iter().collect();
        for (name, value) in &env {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(BindError::EnvName { name: name.clone() });
            }
            if value.contains('\0') {
                return Err(BindError::EnvValue { name: name.clone() });
            }
        }
        let slots = usize::try_from(limits.concurrency).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let tls = if grants.net.is_empty() { trust_nobody().map_err(BindError::Tls)? } else { means.tls()? };
        let (resolver, secrets) = (Arc::clone(&means.resolver), Arc::clone(&means.secrets));
        let egress = EgressShared::new(id, &grants.net, resolver, tls, Arc::clone(&secrets))?;
        Ok(Self {
            id: id.into(),
            code,
            env,
            filesystem: open_mounts(&grants.fs, &means.protected)?,
            egress: Arc::new(egress),
            config: Config::new(Arc::new(grants.config)),
            secrets,
            store: if grants.kv.is_some() { means.store()? } else { None },
            kv: grants.kv,
            slots: Semaphore::new(slots),
            limits,
        })
    }
}
