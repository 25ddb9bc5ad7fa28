//! Setting up a host: policy, sandbox, registry. Shared by the commands.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;

use super::output::{self, CliError};
use super::{Common, audit, grants, keyring, memory, paths, trusted};
use crate::policy::{Policy, PolicySource, SecretSource};
use crate::recording::{Origin, PluginOrigin};
use crate::registry::{Builtin, LoadReport, LoadSelection, RegistryError, ToolRegistry};
use crate::sandbox::{Protected, Sandbox, SandboxOptions};
use crate::secret::{SecretRequest, Secrets, read_file};
use crate::text::hex;
use crate::tool::ErrorCode;

/// The largest policy file that is read; the parser has the same bound.
const MAX_POLICY_BYTES: u64 = 1024 * 1024;

/// Reads the policy files. None given means: deny everything.
pub(super) fn load_policy(files: &[PathBuf]) -> Result<Arc<Policy>, CliError> {
    if files.is_empty() {
        return Ok(Arc::new(Policy::empty()));
    }
    let invalid = |error: anyhow::Error| CliError::config(error).code(ErrorCode::POLICY_INVALID);
    let mut texts = Vec::new();
    for file in files {
        let text = paths::read_trusted_text(file, MAX_POLICY_BYTES).map_err(invalid)?;
        let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let base_dir = std::path::absolute(directory)
            .with_context(|| format!("cannot find the directory of `{}`", file.display()))
            .map_err(invalid)?;
        texts.push((Arc::<str>::from(file.display().to_string()), text, base_dir));
    }
    let sources: Vec<PolicySource<'_>> = texts
        .iter()
        .map(|(name, text, base_dir)| PolicySource { name: Arc::clone(name), text, base_dir: base_dir.clone() })
        .collect();
    let policy = Policy::parse(&sources).map_err(|errors| invalid(anyhow::Error::new(errors)))?;
    Ok(Arc::new(policy))
}

/// Reads the secrets that the policy names. A missing one is an error now, not an empty header later.
pub(super) fn read_secrets(policy: &Policy) -> Result<Secrets, CliError> {
    let requests: Vec<SecretRequest<'_>> =
        policy.plugins().flat_map(|plugin| SecretRequest::all_of(&plugin.id, &plugin.grants)).collect();
    for request in &requests {
        if let SecretSource::File(path) = &request.secret.source {
            trusted::check_path(path).map_err(|error| untrusted(&format!("the secret of {}", request.rule), error))?;
        }
    }
    Secrets::resolve(requests, &|name| std::env::var(name).ok(), &read_file, &keyring::read)
        .map_err(|error| CliError::config(anyhow::Error::new(error)).code(ErrorCode::POLICY_INVALID))
}

/// Code that nothing pins is whatever others put there; a pinned plugin is what it is, wherever it lies.
fn check_plugins(directory: &Path, policy: &Policy) -> Result<(), CliError> {
    let unpinned = policy.plugins().filter(|plugin| plugin.sha256.is_none() && !plugin.rules.all().is_empty());
    for plugin in unpinned {
        let checked = trusted::check_path(directory).and_then(|()| trusted::check_path(&directory.join(&plugin.source)));
        let what = format!("plugin `{}` ({}), which no `sha256` pins", plugin.id, plugin.rule);
        checked.map_err(|error| untrusted(&what, error))?;
    }
    Ok(())
}

fn untrusted(what: &str, error: trusted::Untrusted) -> CliError {
    CliError::config(anyhow::Error::new(error).context(what.to_owned())).code(ErrorCode::POLICY_INVALID)
}

/// What decides on rights, and so must not be in any plugin's hands.
fn protected(common: &Common, policy: &Policy) -> Result<Vec<Protected>, CliError> {
    let mut protected = vec![Protected { path: common.plugins.clone(), what: "plugins", readable: true }];
    for file in &common.policy {
        protected.push(Protected { path: file.clone(), what: "the policy", readable: true });
    }
    if let Some(file) = &common.config {
        protected.push(Protected { path: file.clone(), what: "the host's configuration", readable: true });
    }
    if let Some(path) = grants::path(common) {
        protected.push(Protected { path, what: "the standing grants", readable: false });
    }
    // Sessions are what people said, and each plugin's data is its own.
    if let Some(path) = paths::state_dir(common.state_dir.as_deref()) {
        protected.push(Protected { path, what: "the host's sessions and plugins' data", readable: false });
    }
    let secrets = policy.plugins().flat_map(|plugin| plugin.grants.net.iter()).filter_map(|net| net.secret.as_ref());
    protected.extend(secrets.filter_map(|secret| match &secret.source {
        SecretSource::File(path) => Some(Protected { path: path.clone(), what: "a secret", readable: false }),
        SecretSource::Env(_) | SecretSource::Keyring { .. } => None,
    }));
    if let Some(audit) = audit::file(common)? {
        protected.push(Protected { path: audit.path, what: "the audit file", readable: false });
    }
    Ok(protected)
}

/// Makes the sandbox.
pub(super) fn open_sandbox(common: &Common, policy: &Policy) -> Result<Sandbox, CliError> {
    sandbox_with(common, policy, Arc::new(read_secrets(policy)?))
}

fn sandbox_with(common: &Common, policy: &Policy, secrets: Arc<Secrets>) -> Result<Sandbox, CliError> {
    let compiler = std::env::current_exe()
        .map_err(|error| CliError::failed(anyhow::Error::new(error).context("cannot find this program's own file")))?;
    let options = SandboxOptions {
        cache_dir: paths::cache_dir(common.cache_dir.as_deref()),
        state_dir: paths::state_dir(common.state_dir.as_deref()),
        protected: protected(common, policy)?,
        secrets,
        ..SandboxOptions::new(compiler)
    };
    Sandbox::new(options).map_err(|error| CliError::failed(anyhow::Error::new(error)))
}

/// Loads the plugins under the policy, and says on stderr what could not be loaded.
pub(super) async fn open_registry(
    common: &Common,
    policy: Arc<Policy>,
    selection: LoadSelection<'_>,
) -> Result<(ToolRegistry, LoadReport), CliError> {
    let standing = grants::read(common)?;
    let secrets = Arc::new(read_secrets(&policy)?);
    let sandbox = sandbox_with(common, &policy, Arc::clone(&secrets))?;
    let builtins = memory::builtins(common, &secrets)?;
    let (registry, report) = tokio::select! {
        loaded = load(common, &sandbox, policy, &builtins, selection) => loaded?,
        () = super::signals::stop_requested() => return Err(CliError::interrupted()),
    };
    Ok((registry.with_standing(standing), report))
}

/// Like [`open_registry`], for commands that make calls: what they do is written to the audit file.
pub(super) async fn open_audited_registry(
    common: &Common,
    policy: Arc<Policy>,
    selection: LoadSelection<'_>,
) -> Result<(ToolRegistry, LoadReport), CliError> {
    // Before the plugins are bound: a mount is checked against a file that is there.
    let audit = audit::open(common)?;
    let (registry, report) = open_registry(common, policy, selection).await?;
    let registry = match audit {
        Some(audit) => registry.with_audit(audit),
        None => registry,
    };
    Ok((registry, report))
}

/// Loads the plugins once more, under another policy, for a registry that takes the place of `current`.
pub(super) async fn reopen_registry(
    common: &Common,
    policy: Arc<Policy>,
    selection: LoadSelection<'_>,
    current: &ToolRegistry,
) -> Result<(ToolRegistry, LoadReport), CliError> {
    let secrets = Arc::new(read_secrets(&policy)?);
    let builtins = memory::builtins(common, &secrets)?;
    let sandbox = current.sandbox().renewed(protected(common, &policy)?, secrets);
    load(common, &sandbox, policy, &builtins, selection).await
}

async fn load(
    common: &Common,
    sandbox: &Sandbox,
    policy: Arc<Policy>,
    builtins: &[Arc<dyn Builtin>],
    selection: LoadSelection<'_>,
) -> Result<(ToolRegistry, LoadReport), CliError> {
    check_plugins(&common.plugins, &policy)?;
    let progress = |id: &str| tracing::info!("loaded `{id}`");
    let loading = ToolRegistry::load(sandbox, &common.plugins, policy, builtins, selection, &progress);
    let (registry, report) = loading.await.map_err(registry_error)?;
    for failed in &report.failures {
        output::note(&format!(
            "warning: plugin `{}` is not loaded: {}: {}",
            failed.id, failed.failure.code, failed.failure.message
        ));
        if let Some(hint) = &failed.failure.hint {
            output::note(&format!("   hint: {}", hint.replace('\n', "\n         ")));
        }
    }
    Ok((registry, report))
}

/// What a recording says about the tools.
pub(super) fn origin(registry: &ToolRegistry) -> Origin {
    let plugins = registry.plugins().filter_map(|entry| {
        // A built-in plugin is this program's version, which the recording has anyway.
        entry.component.as_ref().map(|component| PluginOrigin { id: entry.id.clone(), sha256: hex(&component.plugin.sha256) })
    });
    Origin { policy: registry.policy().digest().to_owned(), plugins: plugins.collect() }
}

fn registry_error(error: RegistryError) -> CliError {
    let hint = match &error {
        RegistryError::Bind { source, .. } => source.hint(),
        RegistryError::Directory { .. } => Some("name another with `--plugins`"),
        RegistryError::Collision { .. } => Some("rename one of the two plugins' files"),
        RegistryError::BuiltinClaimed { .. } => Some(
            "rename the file, remove `sha256` and `source` from the block, or switch the built-in plugin off: \
             `[memory] enabled = false` in the file that `--config` names",
        ),
        RegistryError::Builtin { .. } => None,
    };
    let error = CliError::config(anyhow::Error::new(error));
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}
