//! `doctor`: what is installed, and what is slow or unsafe here.

use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

use super::output::{self, CliError};
use super::{Common, audit, host, paths};
use crate::policy::Policy;
use crate::sandbox::{self, Allocation};

/// One thing that was looked at.
#[derive(Serialize)]
struct Finding {
    level: Level,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Clone, Copy, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Warning,
    Error,
}

pub(super) async fn doctor(common: &Common) -> Result<ExitCode, CliError> {
    let mut findings = vec![ok(format!("honeycomb-host {}", env!("CARGO_PKG_VERSION")))];
    findings.extend(engine_version());
    findings.push(allocation(common));
    findings.push(directory("compiled plugins", paths::cache_dir(common.cache_dir.as_deref()), "--cache-dir"));
    findings.push(directory("plugin data", paths::state_dir(common.state_dir.as_deref()), "--state-dir"));
    findings.push(match std::fs::read_dir(&common.plugins) {
        Ok(_) => ok(format!("plugins in `{}`", common.plugins.display())),
        Err(error) => warning(format!("no plugins: `{}`: {error}", common.plugins.display()), "name another with `--plugins`"),
    });
    let policy = policy(common);
    let invalid = policy.iter().any(|finding| finding.level == Level::Error);
    findings.extend(policy);
    findings.push(audit_file(common));
    findings.push(model());

    let failed = findings.iter().any(|finding| finding.level == Level::Error);
    if common.json {
        output::print_json(&json!({"status": if failed { "error" } else { "ok" }, "findings": findings}));
    } else {
        for finding in &findings {
            let mark = match finding.level {
                Level::Ok => "ok     ",
                Level::Warning => "warning",
                Level::Error => "error  ",
            };
            output::print(&format!("{mark}  {}\n", finding.what));
            if let Some(hint) = &finding.hint {
                output::print(&format!("         hint: {hint}\n"));
            }
        }
    }
    // As every command that reads the policy.
    Ok(if invalid { ExitCode::from(2) } else { ExitCode::from(u8::from(failed)) })
}

/// The engine's version, and the advisories that are published against it.
fn engine_version() -> Vec<Finding> {
    let advisories = sandbox::advisories();
    let mut findings = vec![ok(format!("wasmtime {}", sandbox::ENGINE_VERSION))];
    findings.extend(advisories.iter().map(|advisory| {
        warning(format!("wasmtime {} has {}: {}", sandbox::ENGINE_VERSION, advisory.id, advisory.what), advisory.mitigation)
    }));
    findings
}

fn allocation(common: &Common) -> Finding {
    match host::open_sandbox(common, &Policy::empty()) {
        Ok(sandbox) if sandbox.allocation() == Allocation::Pooling => ok("instances come from a pool".to_owned()),
        Ok(_) => warning(
            "there is no room for a pool of instances, so each call is slower".to_owned(),
            "raise `ulimit -v`, or allow overcommit (`vm.overcommit_memory`)",
        ),
        Err(error) => Finding { level: Level::Error, what: error.to_string(), hint: None },
    }
}

fn directory(what: &str, path: Option<std::path::PathBuf>, option: &str) -> Finding {
    let Some(path) = path else {
        return warning(
            format!("nowhere to keep {what}: neither `$HOME` nor an XDG directory is set"),
            &format!("name one with `{option}`"),
        );
    };
    match std::fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() && !metadata.permissions().readonly() => ok(format!("{what} in `{}`", path.display())),
        Ok(_) => {
            warning(format!("`{}` is no directory that can be written", path.display()), &format!("name another with `{option}`"))
        }
        Err(_) => ok(format!("{what} will be kept in `{}`", path.display())),
    }
}

fn policy(common: &Common) -> Vec<Finding> {
    if common.policy.is_empty() {
        return vec![ok("no policy: every tool is denied".to_owned())];
    }
    match host::load_policy(&common.policy) {
        Ok(policy) => {
            let mut findings = vec![ok(format!("the policy is valid; it names {} plugins", policy.plugins().len()))];
            findings.extend(policy.warnings().iter().map(|found| Finding {
                level: Level::Warning,
                what: format!("{}: {}", found.rule, found.message),
                hint: Some(found.hint.clone()),
            }));
            findings
        }
        Err(error) => vec![Finding { level: Level::Error, what: error.to_string(), hint: None }],
    }
}

/// Whoever else can write the audit file can write it anew.
fn audit_file(common: &Common) -> Finding {
    let path = match audit::file(common) {
        Ok(Some(choice)) => choice.path,
        Ok(None) => return warning("no audit is written".to_owned(), "name a file with `--audit`"),
        Err(error) => return Finding { level: Level::Error, what: error.to_string(), hint: None },
    };
    let Ok(metadata) = std::fs::metadata(&path) else { return ok(format!("the audit file will be `{}`", path.display())) };
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o022 != 0 {
        let what = format!("the audit file `{}` can be written by others than its owner", path.display());
        return warning(what, "`chmod 600` it");
    }
    if metadata.is_file() {
        ok(format!("the audit file is `{}`", path.display()))
    } else {
        let what = format!("the audit file `{}` is not a regular file", path.display());
        Finding { level: Level::Error, what, hint: Some("name another with `--audit`".to_owned()) }
    }
}

/// Which model could be asked. Names of variables only, never their values.
fn model() -> Finding {
    let set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let variables: Vec<&str> =
        ["OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"].into_iter().filter(set).collect();
    if variables.is_empty() {
        return warning(
            "no model is configured".to_owned(),
            "set OPENAI_API_KEY or ANTHROPIC_API_KEY; `call` and `tools` need none",
        );
    }
    ok(format!("the model's settings come from {}", variables.join(", ")))
}

fn ok(what: String) -> Finding {
    Finding { level: Level::Ok, what, hint: None }
}

fn warning(what: String, hint: &str) -> Finding {
    Finding { level: Level::Warning, what, hint: Some(hint.to_owned()) }
}
