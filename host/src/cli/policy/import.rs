//! `policy import FILE.yaml`: a Wassette policy as one of ours.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::json;

use crate::cli::output::{self, CliError};
use crate::cli::{Common, paths};
use crate::policy::{MAX_IMPORT_BYTES, import as import_policy, is_plugin_id};
use crate::tool::ErrorCode;

pub(super) fn import(common: &Common, file: &Path, id: Option<&str>) -> Result<ExitCode, CliError> {
    let invalid = |error: anyhow::Error| CliError::config(error).code(ErrorCode::POLICY_INVALID);
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    // Wassette files its policies as `ID.policy.yaml`.
    let id = id.unwrap_or_else(|| stem.strip_suffix(".policy").unwrap_or(stem));
    if !is_plugin_id(id) {
        return Err(CliError::usage(format!("`{}` cannot be a plugin's id", crate::text::clean_line(id, 60)))
            .hint("name one with `--id`: `[a-z0-9][a-z0-9_-]*`, at most 48 characters"));
    }
    let text = paths::read_text(file, MAX_IMPORT_BYTES as u64).map_err(CliError::config)?;
    // Paths in it are absolute, so it matters little where the policy will lie; here is the best guess.
    let here = std::env::current_dir().context("cannot find the current directory").map_err(invalid)?;
    let policy = import_policy(id, &text, &here).map_err(|error| invalid(anyhow::anyhow!("`{}`: {error}", file.display())))?;
    if common.json {
        output::print_json(&json!({ "policy": policy }));
    } else {
        output::print(&policy);
    }
    Ok(ExitCode::SUCCESS)
}
