//! Setting up a host: policy, sandbox, registry. Shared by the commands.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;

use super::Common;
use super::output::{self, CliError};
use super::paths;
use crate::policy::{Policy, PolicySource, SecretSource};
use crate::recording::{Origin, PluginOrigin};
use crate::registry::{LoadReport, LoadSelection, RegistryError, ToolRegistry};
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
        let text = paths::read_text(file, MAX_POLICY_BYTES).map_err(invalid)?;
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
    let requests = policy.plugins().flat_map(|plugin| {
        plugin
            .grants
            .net
            .iter()
            .filter_map(|net| net.secret.as_ref().map(|secret| SecretRequest { plugin: &plugin.id, rule: &net.rule, secret }))
    });
    Secrets::resolve(requests, &|name| std::env::var(name).ok(), &read_file)
        .map_err(|error| CliError::config(anyhow::Error::new(error)).code(ErrorCode::POLICY_INVALID))
}

/// What decides on rights, and so must not be in any plugin's hands.
fn protected(common: &Common, policy: &Policy) -> Vec<Protected> {
    let mut protected = vec![Protected { path: common.plugins.clone(), what: "plugins", readable: true }];
    for file in &common.policy {
        protected.push(Protected { path: file.clone(), what: "the policy", readable: true });
    }
    if let Some(file) = &common.config {
        protected.push(Protected { path: file.clone(), what: "the host's configuration", readable: true });
    }
    let secrets = policy.plugins().flat_map(|plugin| plugin.grants.net.iter()).filter_map(|net| net.secret.as_ref());
    protected.extend(secrets.filter_map(|secret| match &secret.source {
        SecretSource::File(path) => Some(Protected { path: path.clone(), what: "a secret", readable: false }),
        SecretSource::Env(_) => None,
    }));
    protected
}

/// Makes the sandbox.
pub(super) fn open_sandbox(common: &Common, policy: &Policy) -> Result<Sandbox, CliError> {
    let secrets = read_secrets(policy)?;
    let compiler = std::env::current_exe()
        .map_err(|error| CliError::failed(anyhow::Error::new(error).context("cannot find this program's own file")))?;
    let options = SandboxOptions {
        cache_dir: paths::cache_dir(common.cache_dir.as_deref()),
        state_dir: paths::state_dir(common.state_dir.as_deref()),
        protected: protected(common, policy),
        secrets: Arc::new(secrets),
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
    let sandbox = open_sandbox(common, &policy)?;
    let progress = |id: &str| tracing::info!("loaded `{id}`");
    let loading = ToolRegistry::load(&sandbox, &common.plugins, policy, selection, &progress);
    let (registry, report) = tokio::select! {
        loaded = loading => loaded.map_err(registry_error)?,
        () = super::signals::stop_requested() => return Err(CliError::interrupted()),
    };
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
    let plugins = registry.plugins().map(|entry| PluginOrigin { id: entry.id.clone(), sha256: hex(&entry.plugin.sha256) });
    Origin { policy: registry.policy().digest().to_owned(), plugins: plugins.collect() }
}

fn registry_error(error: RegistryError) -> CliError {
    let hint = match &error {
        RegistryError::Bind { source, .. } => source.hint(),
        RegistryError::Directory { .. } => Some("name another with `--plugins`"),
        RegistryError::Collision { .. } => Some("rename one of the two plugins' files"),
    };
    let error = CliError::config(anyhow::Error::new(error));
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}
