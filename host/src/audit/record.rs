//! What one line says.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::message::ToolStatus;
use crate::policy::Verdict;
use crate::secret::Redactor;
use crate::text;
use crate::tool::{Approval, CallUsage, Failure};

/// Arguments up to this size stand in the record, in bytes; of longer ones their digest, their size and their beginning.
const MAX_ARGUMENTS: usize = 4096;
/// How much of long arguments is kept, in bytes.
const ARGUMENTS_HEAD: usize = 512;
/// The longest name, in bytes.
const MAX_NAME: usize = 256;
/// The longest message, in bytes.
const MAX_MESSAGE: usize = 1024;
/// The most entries of a list.
const MAX_ENTRIES: usize = 64;

/// What a record tells of.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub enum Kind {
    /// The first line of a file; names the chain.
    #[default]
    #[serde(rename = "audit.began")]
    Began,
    /// What stands before it, after the last whole record, was torn when a process was killed.
    #[serde(rename = "audit.recovered")]
    Recovered,
    /// Another policy is in force.
    #[serde(rename = "policy.reloaded")]
    Reloaded,
    /// The policy wants a person to be asked.
    #[serde(rename = "call.asked")]
    Asked,
    /// A call that does not run.
    #[serde(rename = "call.refused")]
    Refused,
    /// A call begins. One without a `call.finished` was under way when the process ended.
    #[serde(rename = "call.started")]
    Started,
    /// A call that began has ended.
    #[serde(rename = "call.finished")]
    Finished,
}

impl Kind {
    /// The name in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Began => "audit.began",
            Self::Recovered => "audit.recovered",
            Self::Reloaded => "policy.reloaded",
            Self::Asked => "call.asked",
            Self::Refused => "call.refused",
            Self::Started => "call.started",
            Self::Finished => "call.finished",
        }
    }
}

/// One record. Which fields are there depends on the kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// What it tells of.
    pub kind: Kind,
    /// A random name of the file's chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// How many bytes were torn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torn_bytes: Option<u64>,
    /// Their SHA-256.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torn_sha256: Option<String>,
    /// The run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// 1 for the first attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The plugin's id; absent where the model named a tool that is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    /// SHA-256 of the plugin's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The plugin's own name of the tool, or what the model asked for where there is no such tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The arguments without known secrets; long ones as `{"sha256", "bytes", "head"}`, the digest being that of the redacted text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// SHA-256 of the policy that decided; see [`Policy::digest`](crate::policy::Policy::digest).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// What the policy says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The rule that says so, as `file:line`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What a person answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// What the plugin holds, a grant each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
    /// Of these, what the call used: the HTTP rules that let requests pass, as `net file:line`, and `kv file:line`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub used: Vec<String>,
    /// The hosts and addresses that were dialled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dialled: Vec<Dialled>,
    /// How the call ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ToolStatus>,
    /// Why it failed or was refused: code, message, hint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// What the guest tried and was not granted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denials: Vec<Failure>,
    /// What the call used up; absent where its end was not seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<CallUsage>,
}

/// A connection that was attempted.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Dialled {
    /// The host, as the policy names it.
    pub host: String,
    /// The address, after the lookup and its checks.
    pub address: SocketAddr,
}

impl Record {
    /// Sets the arguments from the model's text, which need not be JSON.
    pub fn set_arguments_text(&mut self, arguments: &str, redactor: &Redactor) {
        let value = serde_json::from_str(arguments).unwrap_or_else(|_| Value::String(arguments.to_owned()));
        self.set_arguments(value, redactor);
    }

    /// Sets the arguments.
    pub fn set_arguments(&mut self, mut arguments: Value, redactor: &Redactor) {
        // Before anything is cut: half a secret would not be found.
        redactor.redact_json(&mut arguments);
        self.arguments = Some(bounded(arguments));
    }

    /// Removes known secrets from all that a model, a guest or a server may have written, and bounds it.
    pub(crate) fn seal(&mut self, redactor: &Redactor) {
        let line = |text: &mut String, max| *text = text::clean_line(&redactor.redact(text), max);
        for name in [&mut self.run, &mut self.call, &mut self.plugin, &mut self.tool].into_iter().flatten() {
            line(name, MAX_NAME);
        }
        for list in [&mut self.grants, &mut self.used] {
            list.truncate(MAX_ENTRIES);
            list.iter_mut().for_each(|entry| line(entry, MAX_MESSAGE));
        }
        self.dialled.truncate(MAX_ENTRIES);
        self.dialled.iter_mut().for_each(|dialled| line(&mut dialled.host, MAX_NAME));
        self.denials.truncate(MAX_ENTRIES);
        for failure in self.error.iter_mut().chain(&mut self.denials) {
            line(&mut failure.message, MAX_MESSAGE);
            // Lines of policy that would allow it: for who reads the error, and long.
            failure.hint = None;
        }
    }
}

/// Arguments as they stand in the record.
fn bounded(value: Value) -> Value {
    let text = value.to_string();
    if text.len() <= MAX_ARGUMENTS {
        return value;
    }
    let head = &text[..text.floor_char_boundary(ARGUMENTS_HEAD)];
    json!({"sha256": super::line::digest(text.as_bytes()), "bytes": text.len(), "head": head})
}
