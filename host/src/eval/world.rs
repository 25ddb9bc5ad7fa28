//! The world of one attempt: files, a server, plugins, a policy. Made anew each time, and gone afterwards.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use super::EvalHost;
use super::scenario::{FileText, Scenario};
use super::server::Server;
use super::template::Names;
use crate::memory::{MemoryLimits, MemoryTools, SqliteMemory};
use crate::policy::{Policy, PolicySource};
use crate::registry::{LoadReport, LoadSelection, RegistryError, ToolRegistry};
use crate::sandbox::{Protected, Sandbox, SandboxOptions};
use crate::secret::{SecretRequest, Secrets, read_file};
use crate::text::hex;

/// Files by their paths.
type Files = BTreeMap<String, Vec<u8>>;

/// The largest plugin that is copied, and the largest policy, in bytes.
const MAX_PLUGIN: u64 = 64 << 20;
const MAX_POLICY: u64 = 1 << 20;
/// Files of a scenario's directory that are looked at, and how much of each.
const MAX_FILES: usize = 10_000;
const MAX_FILE: u64 = 16 << 20;
/// Calls that run at once.
const MAX_CALLS: usize = 16;

pub(super) struct World {
    root: tempfile::TempDir,
    pub(super) server: Server,
    pub(super) scenario: Scenario,
    /// The files as they were at first.
    before: BTreeMap<String, Vec<u8>>,
}

/// Why there are no tools.
pub(super) enum NoTools {
    /// The host refuses: this may be what the scenario is about.
    Refused(String),
    /// The attempt itself failed.
    Failed(anyhow::Error),
}

impl World {
    /// Makes the world that a scenario's file describes.
    pub(super) async fn make(host: &EvalHost, path: &Path, raw: &Scenario, text: &str) -> anyhow::Result<Self> {
        let root = tempfile::tempdir().context("cannot make a directory for the scenario")?;
        for directory in ["files", "plugins", "state"] {
            std::fs::create_dir(root.path().join(directory)).context("cannot make a directory for the scenario")?;
        }
        let server = Server::start().await.context("cannot listen on loopback")?;
        let mut names = Names::default();
        names.set("http", format!("http://127.0.0.1:{}", server.port()));
        names.set("http_host", "127.0.0.1");
        names.set("http_port", server.port().to_string());
        names.set("dir", root.path().join("files").display().to_string());
        let beside = path.parent().unwrap_or(Path::new("."));
        let plugins = raw.plugins_dir.as_ref().map_or_else(|| host.plugins.clone(), |directory| beside.join(directory));
        for id in &raw.plugins {
            let source = plugins.join(format!("{id}.wasm"));
            let mut bytes = read(&source, MAX_PLUGIN)?;
            names.set(format!("sha256:{id}"), hex(&Sha256::digest(&bytes)));
            for tampered in raw.fixtures.tampered.iter().filter(|tampered| tampered.plugin == *id) {
                replace(&mut bytes, tampered.find.as_bytes(), tampered.with.as_bytes())
                    .with_context(|| format!("`{}` is not in `{}`", tampered.find, source.display()))?;
            }
            std::fs::write(root.path().join("plugins").join(format!("{id}.wasm")), bytes).context("cannot copy a plugin")?;
        }
        let scenario = Scenario::parse(&names.fill(text), path)?;
        server.set_routes(scenario.fixtures.http.clone());
        for (name, file) in &scenario.fixtures.files {
            let path = root.path().join("files").join(name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent).with_context(|| format!("cannot make `{name}`"))?;
            }
            let text = match file {
                FileText::Whole(text) => text.clone(),
                FileText::Repeated { text, times } => text.repeat(*times),
            };
            anyhow::ensure!(text.len() as u64 <= MAX_FILE, "`{name}` is larger than {MAX_FILE} bytes");
            std::fs::write(&path, text).with_context(|| format!("cannot write `{name}`"))?;
        }
        let policy = match (&scenario.policy, &scenario.policy_file) {
            (Some(policy), _) => Some(policy.clone()),
            (None, Some(file)) => Some(names.fill(&String::from_utf8(read(&beside.join(file), MAX_POLICY)?)?)),
            (None, None) => None,
        };
        if let Some(policy) = policy {
            std::fs::write(root.path().join("policy.toml"), policy).context("cannot write the policy")?;
        }
        let before = files(&root.path().join("files"))?;
        Ok(Self { root, server, scenario, before })
    }

    /// Loads the plugins under the policy, as the host does at its start.
    pub(super) async fn open_tools(&self, host: &EvalHost) -> Result<(Arc<ToolRegistry>, LoadReport), NoTools> {
        let failed = |error: anyhow::Error| NoTools::Failed(error);
        let refused = |error: &dyn std::error::Error| NoTools::Refused(chain(error));
        let policy_file = self.root.path().join("policy.toml");
        let mut policy = Policy::empty();
        if policy_file.exists() {
            let text = std::fs::read_to_string(&policy_file).map_err(|error| failed(error.into()))?;
            let source = PolicySource { name: Arc::from("policy.toml"), text: &text, base_dir: self.files_dir() };
            policy = Policy::parse(&[source]).map_err(|error| refused(&error))?;
        }
        let requests = policy.plugins().flat_map(|plugin| SecretRequest::all_of(&plugin.id, &plugin.grants));
        let variables = &self.scenario.fixtures.secrets;
        let secrets = Secrets::resolve(requests, &|name| variables.get(name).cloned(), &read_file, &no_keyring)
            .map_err(|error| refused(&error))?;
        let protect = |path: PathBuf, what| Protected { path, what, readable: true };
        let options = SandboxOptions {
            cache_dir: host.cache_dir.clone(),
            state_dir: Some(self.root.path().join("state")),
            max_calls: MAX_CALLS,
            protected: vec![protect(policy_file, "the policy"), protect(self.plugins_dir(), "plugins")],
            secrets: Arc::new(secrets),
            ..SandboxOptions::new(host.compiler.clone())
        };
        let memory = SqliteMemory::new(self.root.path().join("state").join("memory.db"), MemoryLimits::default());
        let memory = MemoryTools::new(Arc::new(memory), "eval");
        let sandbox = Sandbox::new(options).map_err(|error| failed(error.into()))?;
        let loaded = ToolRegistry::load(
            &sandbox,
            &self.plugins_dir(),
            Arc::new(policy),
            &[Arc::new(memory)],
            LoadSelection::Granted,
            &|_| {},
        )
        .await;
        match loaded {
            Ok((registry, report)) => Ok((Arc::new(registry), report)),
            Err(error @ RegistryError::Directory { .. }) => Err(failed(error.into())),
            Err(error) => Err(refused(&error)),
        }
    }

    /// The files as they are, and the paths of those that are not as they were.
    pub(super) fn changed_files(&self) -> anyhow::Result<(Files, Vec<String>)> {
        let after = files(&self.files_dir())?;
        let names = self.before.keys().chain(after.keys());
        let mut changed: Vec<String> = names.filter(|name| self.before.get(*name) != after.get(*name)).cloned().collect();
        changed.sort();
        changed.dedup();
        Ok((after, changed))
    }

    fn files_dir(&self) -> PathBuf {
        self.root.path().join("files")
    }

    fn plugins_dir(&self) -> PathBuf {
        self.root.path().join("plugins")
    }
}

/// An error and its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn read(path: &Path, max: u64) -> anyhow::Result<Vec<u8>> {
    let file = std::fs::File::open(path).with_context(|| format!("cannot open `{}`", path.display()))?;
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read `{}`", path.display()))?;
    anyhow::ensure!(bytes.len() as u64 <= max, "`{}` is larger than {max} bytes", path.display());
    Ok(bytes)
}

fn replace(bytes: &mut [u8], find: &[u8], with: &[u8]) -> Option<()> {
    let at = bytes.windows(find.len()).position(|window| window == find)?;
    bytes[at..at + find.len()].copy_from_slice(with);
    Some(())
}

/// All files below a directory, by their paths from there.
fn files(directory: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(next) = directories.pop() {
        for entry in std::fs::read_dir(&next).context("cannot list the scenario's files")? {
            let entry = entry?;
            let path = entry.path();
            // Not through links: what they lead to is not the scenario's.
            if entry.file_type()?.is_dir() {
                directories.push(path);
            } else if entry.file_type()?.is_file() {
                let name = path.strip_prefix(directory)?.to_string_lossy().replace('\\', "/");
                found.insert(name, read(&path, MAX_FILE)?);
                anyhow::ensure!(found.len() <= MAX_FILES, "there are more than {MAX_FILES} files");
            }
        }
    }
    Ok(found)
}

/// A scenario is the same for everybody, so it reads nobody's keyring.
fn no_keyring(_service: &str, _account: &str) -> std::io::Result<String> {
    Err(std::io::Error::new(std::io::ErrorKind::Unsupported, "a scenario has no keyring"))
}
