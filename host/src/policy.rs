//! The policy: what an operator grants. Everything else is denied.
//!
//! [`Policy::parse`] reads policy files strictly: a field that is not known, a value that means nothing, a rule that could not bite is an
//! error with its file, line and remedy. [`Policy::decide`] answers for one call; [`Grants`] answer for what a running plugin reaches
//! for. All of it is pure: no I/O, no clock, nothing that a model can call.

mod args;
mod document;
mod error;
mod explain;
mod file;
mod fuzz;
mod grant;
mod import;
mod limits;
mod merge;
mod nearest;
mod net;
mod rate;
mod requests;
mod rules;
mod standing;
mod suggest;
mod testing;
mod units;
mod warn;
mod write;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

pub use args::ArgsRule;
pub use error::{PolicyError, PolicyErrors, Warning};
pub use explain::{Explanation, explain};
pub use file::{MAX_FILE_BYTES, is_plugin_id};
pub use fuzz::{fuzz_policy, fuzz_requests, fuzz_url};
pub use grant::{FsGrant, FsMode, Grants, KvGrant, NetAllowance, NetDenial, RuleRef};
pub use import::{ImportError, MAX_IMPORT_BYTES, import};
pub use limits::Limits;
pub use net::{
    Cidr, Host, HostError, HostPattern, NetGrant, NetRequest, NetTarget, PathError, Scheme, SecretRef, SecretSource, TargetError,
    canonical_host, is_prohibited, normalise_path, path_within,
};
pub use rate::Rate;
pub use requests::{
    ConfigWish, EnvWish, FsWish, KvWish, MAX_REQUESTS_BYTES, NetWish, Note, NoteKind, Requests, SecretWish, Ungranted,
};
pub use rules::{CallLimit, Decision, ToolPattern, ToolRule, ToolRules, Verdict};
pub use standing::{MAX_GRANTS_BYTES, StandingCall, StandingError, StandingGrants};
pub use suggest::{PluginFacts, ToolFacts, suggest};
pub use testing::{CaseFailure, TestReport, run_cases};

use crate::text::{clean_line, hex};
use rules::Arguments;

/// One policy file, as it was read.
#[derive(Clone, Debug)]
pub struct PolicySource<'a> {
    /// How the file was named; messages and rule references repeat it.
    pub name: Arc<str>,
    /// Its text.
    pub text: &'a str,
    /// Its directory, absolute: relative paths in the file start here, and no plugin may get it writable.
    pub base_dir: PathBuf,
}

/// A policy: immutable, and checked as a whole. A reload makes a new one.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    limits: Limits,
    plugins: BTreeMap<String, PluginPolicy>,
    warnings: Vec<Warning>,
    digest: String,
}

/// What the policy says about one plugin.
#[derive(Clone, Debug)]
pub struct PluginPolicy {
    /// The plugin's id.
    pub id: String,
    /// The file in the plugins directory.
    pub source: String,
    /// The digest that the file must have: 64 hexadecimal digits in lower case.
    pub sha256: Option<String>,
    /// What its calls may use; never more than the policy's ceilings.
    pub limits: Limits,
    /// What it may reach.
    pub grants: Grants,
    /// Which tools may be called.
    pub rules: ToolRules,
    /// Where the policy first names the plugin.
    pub rule: RuleRef,
}

impl Policy {
    /// The policy of an operator who has stated none: nothing may be called.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Reads policy files. Grants add up, any deny wins, and of limits the smallest counts.
    ///
    /// No file at all is [`Policy::empty`].
    ///
    /// # Errors
    ///
    /// Returns all that is wrong in all files, each with file, line and how to put it right.
    pub fn parse(sources: &[PolicySource<'_>]) -> Result<Self, PolicyErrors> {
        let mut found = error::Findings::default();
        let mut files = Vec::with_capacity(sources.len());
        for source in sources {
            let (file, findings) = file::read(&source.name, source.text, &source.base_dir);
            found.absorb(findings);
            files.push(file);
        }
        let (limits, plugins) = merge::merge(files, sources, &mut found);
        for plugin in plugins.values() {
            warn::inspect(plugin, &mut found);
        }
        let names: Vec<&str> = sources.iter().map(|source| &*source.name).collect();
        let warnings = found.finish(&names)?;
        Ok(Self { limits, plugins, warnings, digest: digest(sources) })
    }

    /// Decides on a call. `tool` is the plugin's own name for the tool, never the name that the model sees.
    ///
    /// Deny beats ask beats allow; where nothing matches, the call is denied.
    pub fn decide(&self, plugin: &str, tool: &str, arguments: &Map<String, Value>) -> Decision {
        self.decide_on(plugin, tool, &Arguments::of_map(arguments))
    }

    /// Like [`Policy::decide`], for arguments that already are a JSON value; then nothing is copied.
    pub fn decide_value(&self, plugin: &str, tool: &str, arguments: &Value) -> Decision {
        self.decide_on(plugin, tool, &Arguments::of_value(arguments))
    }

    fn decide_on(&self, plugin: &str, tool: &str, arguments: &Arguments<'_>) -> Decision {
        match self.plugins.get(plugin) {
            Some(found) => found.rules.decide(plugin, tool, arguments),
            None => {
                let plugin = clean_line(plugin, 64);
                let tool_shown = clean_line(tool, 128);
                let reason = format!("tool `{tool_shown}` is denied: the policy does not name plugin `{plugin}`");
                rules::unmatched(&plugin, tool, &reason)
            }
        }
    }

    /// What the policy says about a plugin.
    pub fn plugin(&self, id: &str) -> Option<&PluginPolicy> {
        self.plugins.get(id)
    }

    /// All plugins that the policy names, by id.
    pub fn plugins(&self) -> impl ExactSizeIterator<Item = &PluginPolicy> {
        self.plugins.values()
    }

    /// The ceilings.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What is legal and deserves a look, in the order of files and lines.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Identifies the policy: of one file its SHA-256, of several the SHA-256 of theirs in order; empty for [`Policy::empty`].
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

fn digest(sources: &[PolicySource<'_>]) -> String {
    let digests: Vec<_> = sources.iter().map(|source| Sha256::digest(source.text.as_bytes())).collect();
    let whole = match digests.as_slice() {
        [] => return String::new(),
        [one] => *one,
        several => Sha256::digest(several.concat()),
    };
    hex(&whole)
}

#[cfg(test)]
mod tests;
