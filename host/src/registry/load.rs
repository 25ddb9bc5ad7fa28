//! Loading a directory of plugins into a registry.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use futures_util::StreamExt as _;
use futures_util::stream;

use super::builtin::{self, Builtin};
use super::{ToolRef, ToolRegistry, model_name, spec};
use crate::policy::Grants;
use crate::policy::Limits;
use crate::policy::{Note, Requests};
use crate::policy::{Policy, Verdict, is_plugin_id};
use crate::sandbox::metadata::MetadataError;
use crate::sandbox::{BindError, Bound, Plugin, PluginTool, Sandbox};
use crate::text;
use crate::tool::{ErrorCode, Failure};

/// How many plugins load at once. Compiling is bounded by the loader; this covers reading and `list-tools`.
const LOADS_AT_ONCE: usize = 4;

/// A plugin that is loaded and bound to its grants.
pub struct PluginEntry {
    /// The plugin's id.
    pub id: String,
    /// The component; none for a built-in plugin.
    pub component: Option<Component>,
    /// Its tools, in the order in which it lists them.
    pub tools: Arc<[PluginTool]>,
    /// What the plugin asks for.
    pub requests: Option<Requests>,
    /// What it may use.
    pub limits: Limits,
    /// What it may reach: policy within request.
    pub grants: Grants,
    /// Grants of the policy that the plugin did not ask for and so does not get.
    pub dropped: Vec<Note>,
    pub(super) body: Body,
}

/// The component of a plugin.
pub struct Component {
    /// The file it came from.
    pub path: PathBuf,
    /// What loading found.
    pub plugin: Plugin,
}

/// What runs a plugin's tools.
pub(super) enum Body {
    /// The sandbox.
    Guest(Bound),
    /// The host itself.
    Builtin(Arc<dyn Builtin>),
}

impl PluginEntry {
    /// What names the code that runs: the component's SHA-256 in hexadecimal, or this host's version for a built-in plugin.
    pub fn digest(&self) -> String {
        self.sha256().map_or_else(|| concat!("builtin-", env!("CARGO_PKG_VERSION")).to_owned(), |sha256| text::hex(sha256))
    }

    /// SHA-256 of the component; none for a built-in plugin.
    pub fn sha256(&self) -> Option<&[u8; 32]> {
        self.component.as_ref().map(|component| &component.plugin.sha256)
    }
}

/// Which plugins of a directory to load.
#[derive(Clone, Copy, Debug)]
pub enum LoadSelection<'a> {
    /// All of them.
    All,
    /// Those that the policy has a block for.
    Granted,
    /// One.
    One(&'a str),
}

impl LoadSelection<'_> {
    fn takes(self, id: &str, policy: &Policy) -> bool {
        match self {
            Self::All => true,
            Self::Granted => policy.plugin(id).is_some(),
            Self::One(one) => one == id,
        }
    }
}

/// What loading did, beside the registry.
#[derive(Debug, Default)]
pub struct LoadReport {
    /// Plugins that could not be loaded. The others work.
    pub failures: Vec<LoadFailure>,
    /// Plugins in the directory that the policy grants nothing, and that were not loaded.
    pub skipped: Vec<String>,
}

/// A plugin that could not be loaded.
#[derive(Clone, Debug)]
pub struct LoadFailure {
    /// The plugin's id.
    pub id: String,
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub failure: Failure,
}

/// Why there is no registry.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The directory cannot be read.
    #[error("cannot read the plugins directory `{}`", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A name leads to two tools.
    #[error("tool name `{name}` is claimed by `{first}` and by `{second}`")]
    Collision {
        /// The model-visible name.
        name: String,
        /// The first `plugin/tool`.
        first: String,
        /// The second.
        second: String,
    },
    /// A file, or a pin of the policy, claims the id of a built-in plugin.
    #[error("`{id}` is a built-in plugin, and {claim} claims its id")]
    BuiltinClaimed {
        /// The id.
        id: String,
        /// The file, or the line of the policy.
        claim: String,
    },
    /// A built-in plugin describes its tools wrongly.
    #[error("the built-in plugin `{id}` is wrong")]
    Builtin {
        /// The id.
        id: String,
        /// The cause.
        #[source]
        source: MetadataError,
    },
    /// The policy grants something that cannot be given.
    #[error("plugin `{id}` cannot be given what the policy grants")]
    Bind {
        /// The plugin.
        id: String,
        /// The cause.
        #[source]
        source: BindError,
    },
}

impl ToolRegistry {
    /// Loads plugins and binds each to what `policy` grants it. `progress` is told of each plugin when it is done.
    ///
    /// `builtins` are offered beside them, under the same policy.
    ///
    /// A plugin that cannot be loaded is in the report, and the others work.
    ///
    /// # Errors
    ///
    /// Fails when the directory cannot be read, two tools share a name, or a grant cannot be given (a missing mount or secret).
    pub async fn load(
        sandbox: &Sandbox,
        directory: &Path,
        policy: Arc<Policy>,
        builtins: &[Arc<dyn Builtin>],
        selection: LoadSelection<'_>,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(Self, LoadReport), RegistryError> {
        let mut report = LoadReport::default();
        let mut wanted = Vec::new();
        let found = find_plugins(directory, &policy, builtins)?;
        for (id, path) in found.plugins {
            if selection.takes(&id, &policy) {
                wanted.push((id, path));
            } else if !matches!(selection, LoadSelection::One(_)) {
                report.skipped.push(id);
            }
        }

        let loaded = Mutex::new(BTreeMap::new());
        let failures = Mutex::new(Vec::new());
        stream::iter(wanted)
            .for_each_concurrent(LOADS_AT_ONCE, |(id, path)| {
                let (policy, loaded, failures) = (&policy, &loaded, &failures);
                async move {
                    let pin = policy.plugin(&id).and_then(|plugin| plugin.sha256.as_deref()).and_then(digest_bytes);
                    match load_one(sandbox, &path, pin).await {
                        Ok(plugin) => {
                            progress(&id);
                            lock(loaded).insert(id, (path, plugin));
                        }
                        Err(failure) => lock(failures).push(LoadFailure { id, path, failure }),
                    }
                }
            })
            .await;
        report.failures = failures.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        report.failures.extend(found.misnamed);
        report.failures.sort_by(|a, b| a.id.cmp(&b.id));
        report.skipped.sort();

        let mut plugins = BTreeMap::new();
        for (id, (path, (plugin, requests))) in loaded.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            let entry = bind_one(sandbox, &policy, id.clone(), path, plugin, requests)?;
            plugins.insert(id, entry);
        }
        for builtin in builtins.iter().filter(|builtin| selection.takes(builtin.id(), &policy)) {
            plugins.insert(builtin.id().to_owned(), builtin::entry(builtin, &policy)?);
        }
        let (tools, specs) = name_tools(&plugins, &policy)?;
        let registry = Self {
            sandbox: sandbox.clone(),
            policy,
            plugins,
            tools,
            specs: specs.into(),
            counters: Arc::default(),
            standing: Arc::default(),
            audit: None,
        };
        Ok((registry, report))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The bytes of a digest that the policy's parser has checked.
fn digest_bytes(hex: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(index * 2..index * 2 + 2)?, 16).ok()?;
    }
    (hex.len() == 64).then_some(bytes)
}

async fn load_one(sandbox: &Sandbox, path: &Path, pin: Option<[u8; 32]>) -> Result<(Plugin, Option<Requests>), Failure> {
    let plugin = sandbox.load(path, pin).await.map_err(Failure::from)?;
    let requests = match &plugin.requests_text {
        None => None,
        Some(text) => Some(Requests::parse(text).map_err(|error| {
            Failure::new(ErrorCode::LOAD_INVALID, format!("its section `honeycomb:requests` is malformed: {error}"))
                .hint("the section holds TOML as the plugin SDK documents; rebuild the plugin")
        })?),
    };
    Ok((plugin, requests))
}

fn bind_one(
    sandbox: &Sandbox,
    policy: &Policy,
    id: String,
    path: PathBuf,
    plugin: Plugin,
    requests: Option<Requests>,
) -> Result<PluginEntry, RegistryError> {
    let (limits, granted) = match policy.plugin(&id) {
        Some(granted) => (granted.limits.clone(), granted.grants.clone()),
        None => (policy.limits().clone(), Grants::default()),
    };
    let (grants, dropped) = match &requests {
        Some(requests) => granted.within(requests),
        None => (granted, Vec::new()),
    };
    // A plugin may ask for less than it could have.
    let limits = requests.as_ref().map_or(limits.clone(), |requests| requests.limits(&limits));
    match sandbox.bind(&plugin, &id, grants.clone(), limits.clone()) {
        Ok(bound) => {
            let (tools, body) = (Arc::clone(&plugin.tools), Body::Guest(bound));
            Ok(PluginEntry { id, component: Some(Component { path, plugin }), tools, requests, limits, grants, dropped, body })
        }
        Err(source) => Err(RegistryError::Bind { id, source }),
    }
}

/// Names every tool, and lists those that some rule might let run.
fn name_tools(
    plugins: &BTreeMap<String, PluginEntry>,
    policy: &Policy,
) -> Result<(BTreeMap<String, ToolRef>, Vec<crate::tool::ToolSpec>), RegistryError> {
    let mut tools: BTreeMap<String, ToolRef> = BTreeMap::new();
    let mut specs = Vec::new();
    for (id, entry) in plugins {
        for (index, tool) in entry.tools.iter().enumerate() {
            let name = model_name(id, &tool.name);
            if let Some(other) = tools.get(&name) {
                let first = plugins.get(&other.plugin).and_then(|plugin| plugin.tools.get(other.index));
                return Err(RegistryError::Collision {
                    name,
                    first: format!("{}/{}", other.plugin, first.map_or("?", |tool| tool.name.as_str())),
                    second: format!("{id}/{}", tool.name),
                });
            }
            if policy.plugin(id).is_some_and(|granted| granted.rules.outlook(&tool.name) != Some(Verdict::Deny)) {
                specs.push(spec(&name, tool));
            }
            tools.insert(name, ToolRef { plugin: id.clone(), index });
        }
    }
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((tools, specs))
}

/// What a plugins directory holds.
struct Found {
    plugins: Vec<(String, PathBuf)>,
    misnamed: Vec<LoadFailure>,
}

/// The plugins of a directory: each `*.wasm`, under the file's stem, or under the id whose `source` names it.
fn find_plugins(directory: &Path, policy: &Policy, builtins: &[Arc<dyn Builtin>]) -> Result<Found, RegistryError> {
    let unreadable = |source| RegistryError::Directory { path: directory.to_owned(), source };
    let opened = Dir::open_ambient_dir(directory, ambient_authority()).map_err(unreadable)?;
    let mut files = BTreeSet::new();
    for entry in opened.entries().map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        if Path::new(&name).extension().is_some_and(|extension| extension == "wasm") {
            files.insert(name);
        }
    }
    let mut found = Found { plugins: Vec::new(), misnamed: Vec::new() };
    let mut claimed = BTreeSet::new();
    let is_builtin = |id: &str| builtins.iter().any(|builtin| builtin.id() == id);
    let claimed_by = |id: &str, claim: String| RegistryError::BuiltinClaimed { id: id.to_owned(), claim };
    for plugin in policy.plugins() {
        if is_builtin(&plugin.id) {
            // A pin that nothing checks would be a promise that nobody keeps.
            if plugin.sha256.is_some() || plugin.source != format!("{}.wasm", plugin.id) {
                return Err(claimed_by(&plugin.id, format!("the `sha256` or `source` of its block at {}", plugin.rule)));
            }
            continue;
        }
        // A block for a file that is not there is reported when the plugin is loaded: it cannot be opened.
        let file = OsString::from(&plugin.source);
        found.plugins.push((plugin.id.clone(), directory.join(&file)));
        claimed.insert(file);
    }
    for file in files.difference(&claimed) {
        let path = directory.join(file);
        match path.file_stem().and_then(|stem| stem.to_str()) {
            Some(id) if is_builtin(id) => return Err(claimed_by(id, format!("`{}`", path.display()))),
            Some(id) if is_plugin_id(id) => found.plugins.push((id.to_owned(), path)),
            _ => {
                let id = text::clean_line(&file.to_string_lossy(), 80);
                let failure = Failure::new(ErrorCode::LOAD_INVALID, format!("`{id}` is no name for a plugin"))
                    .hint("name the file `[a-z0-9][a-z0-9_-]*.wasm`, or give the plugin an id with `source` in the policy");
                found.misnamed.push(LoadFailure { id, path, failure });
            }
        }
    }
    Ok(found)
}
