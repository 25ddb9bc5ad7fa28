//! The format of a scenario.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::de::{self, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::agent::{Budget, StopReason};
use crate::message::ToolStatus;
use crate::provider::scripted::{Script, Turn};
use crate::tool::Approval;

/// The largest scenario file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// One scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it shows, in a sentence.
    pub description: String,
    /// Somebody tries to make the agent do harm.
    #[serde(default)]
    pub adversarial: bool,
    /// What the agent is asked.
    pub task: String,
    /// The model: `"real"`, or the turns of a script.
    pub(super) model: Model,
    /// The ids of the plugins that are there.
    #[serde(default)]
    pub(super) plugins: Vec<String>,
    /// Where the plugins are taken from, instead of the directory that all scenarios use.
    pub(super) plugins_dir: Option<PathBuf>,
    /// The policy's text.
    pub(super) policy: Option<String>,
    /// Or its file, relative to the scenario's.
    pub(super) policy_file: Option<PathBuf>,
    /// What the person answers when the policy asks, in order; then no.
    #[serde(default)]
    pub(super) approvals: Vec<Approval>,
    #[serde(default)]
    pub(super) budget: Budget,
    /// The most bytes of a result that the model is shown.
    pub(super) max_result_bytes: Option<usize>,
    #[serde(default)]
    pub(super) fixtures: Fixtures,
    /// Calls that are made before the task, in a run of their own.
    #[serde(default)]
    pub(super) setup: Vec<Setup>,
    #[serde(default)]
    pub(super) expect: Expect,
    #[serde(default)]
    pub(super) never: Never,
}

/// Who answers.
#[derive(Clone, Debug)]
pub(super) enum Model {
    Real,
    Script(Vec<Turn>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Turns {
    turns: Vec<Turn>,
}

impl<'de> Deserialize<'de> for Model {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Model;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("`\"real\"`, or `[[model.turns]]`")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Model, E> {
                if text == "real" { Ok(Model::Real) } else { Err(E::invalid_value(de::Unexpected::Str(text), &self)) }
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Model, A::Error> {
                Ok(Model::Script(Turns::deserialize(MapAccessDeserializer::new(map))?.turns))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// What is there before the run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Fixtures {
    /// Files below the scenario's directory, by path.
    pub(super) files: BTreeMap<String, FileText>,
    /// What the server on loopback answers.
    pub(super) http: Vec<Route>,
    /// The environment that the policy's secrets are read from.
    pub(super) secrets: BTreeMap<String, String>,
    /// Plugins that are not what they were when the policy was written.
    pub(super) tampered: Vec<Tampered>,
}

/// A file's text, or one that is repeated.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum FileText {
    Whole(String),
    Repeated { text: String, times: usize },
}

/// An answer of the server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Route {
    /// Without the query.
    pub(super) path: String,
    #[serde(default = "ok")]
    pub(super) status: u16,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) body: String,
    /// How long it takes.
    #[serde(default)]
    pub(super) delay_ms: u64,
}

fn ok() -> u16 {
    200
}

/// Other bytes of the same length, in a plugin's file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tampered {
    pub(super) plugin: String,
    pub(super) find: String,
    pub(super) with: String,
}

/// A call before the task.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setup {
    /// The model-visible name.
    pub(super) tool: String,
    #[serde(default)]
    pub(super) arguments: Value,
}

/// What must be so.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Expect {
    pub(super) stop_reason: Option<StopReason>,
    pub(super) answer: Option<AnswerText>,
    /// The calls of the run; each entry is the next call that fits, in order.
    pub(super) calls: Vec<CallMade>,
    /// And there are no others.
    pub(super) only_these_calls: bool,
    /// The code of the run's error.
    pub(super) error: Option<String>,
    /// Requests that the server got.
    pub(super) http: Vec<RequestMade>,
    /// Files that are there, and what they hold.
    pub(super) files: BTreeMap<String, String>,
    /// Plugins that are not loaded, and the code that says why.
    pub(super) not_loaded: BTreeMap<String, String>,
    /// The host refuses to start, and says this.
    pub(super) refused_start: Option<String>,
    /// Kinds of events that happen.
    pub(super) events: Vec<String>,
    /// How often the person is asked.
    pub(super) questions: Option<usize>,
    /// The most that is used.
    pub(super) at_most: AtMost,
    /// Text that the model is sent at some time.
    pub(super) model_sees: Vec<String>,
    /// The script need not be played to its end.
    pub(super) unused_turns: bool,
}

/// What an answer must be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AnswerText {
    pub(super) equals: Option<String>,
    pub(super) contains: Vec<String>,
    pub(super) matches: Option<String>,
}

/// What a call must be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CallMade {
    /// The model-visible name; may hold `*`.
    pub(super) tool: String,
    /// Arguments that it has, among others.
    pub(super) arguments: Option<Value>,
    pub(super) status: Option<ToolStatus>,
    pub(super) code: Option<String>,
    /// Parts of what the model is shown.
    pub(super) contains: Vec<String>,
    /// And what is not in it.
    pub(super) lacks: Vec<String>,
    /// JSON pointers into the result, and the values there.
    pub(super) json: BTreeMap<String, Value>,
    pub(super) truncated: Option<bool>,
}

/// A request that the server got.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RequestMade {
    /// Method, path and query, such as `GET /a?b=c`; may hold `*`.
    pub(super) request: String,
    pub(super) headers: BTreeMap<String, String>,
}

/// Bounds on what is used.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AtMost {
    pub(super) steps: Option<u64>,
    pub(super) tool_calls: Option<u64>,
    pub(super) fuel: Option<u64>,
    pub(super) tokens: Option<u64>,
    pub(super) wall_ms: Option<u64>,
}

/// What must not be so.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Never {
    /// Tools whose code runs.
    pub(super) calls: Vec<String>,
    /// Tools that are offered.
    pub(super) offered: Vec<String>,
    /// Requests that the server gets: method, path and query.
    pub(super) http: Vec<String>,
    /// Hosts that requests to the server name.
    pub(super) http_hosts: Vec<String>,
    /// Files that are made, changed or removed.
    pub(super) files_written: Vec<String>,
    pub(super) answer_contains: Vec<String>,
    /// Text in the system prompt.
    pub(super) system_contains: Vec<String>,
    /// Text in anything that the model is sent.
    pub(super) model_sees: Vec<String>,
    pub(super) stop_reasons: Vec<StopReason>,
}

/// Why a file is not a usable scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// It says something that makes no sense.
    #[error("{}:{line}: {message}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
}

impl Scenario {
    /// Reads a file; returns its text too, which is read again once the world stands.
    ///
    /// # Errors
    ///
    /// Names file and line of what is wrong.
    pub fn open(path: &Path) -> Result<(Self, String), ScenarioError> {
        let read = |source| ScenarioError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        std::fs::File::open(path).map_err(read)?.take(MAX_FILE + 1).read_to_string(&mut text).map_err(read)?;
        if text.len() as u64 > MAX_FILE {
            let message = format!("a scenario is at most {MAX_FILE} bytes");
            return Err(ScenarioError::Invalid { path: path.to_owned(), line: 1, message });
        }
        Ok((Self::parse(&text, path)?, text))
    }

    /// Parses a file's text.
    ///
    /// # Errors
    ///
    /// Names file and line of what is wrong.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ScenarioError> {
        let invalid = |line, message| ScenarioError::Invalid { path: path.to_owned(), line, message };
        let scenario: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().map_or(0, |span| span.start);
            let line = text.bytes().take(before).filter(|&byte| byte == b'\n').count() + 1;
            invalid(line, error.message().to_owned())
        })?;
        match scenario.check() {
            Ok(()) => Ok(scenario),
            Err((word, message)) => {
                let line = text.lines().position(|line| line.contains(word)).map_or(1, |at| at + 1);
                Err(invalid(line, message))
            }
        }
    }

    /// Checks what the types do not say. The error begins with a word that stands in the line that is wrong.
    fn check(&self) -> Result<(), (&'static str, String)> {
        if self.task.trim().is_empty() {
            return Err(("task", "the task is empty".to_owned()));
        }
        if self.policy.is_some() && self.policy_file.is_some() {
            return Err(("policy_file", "a scenario has a `policy` or a `policy_file`, not both".to_owned()));
        }
        let outside =
            |path: &&String| Path::new(path.as_str()).components().any(|part| !matches!(part, std::path::Component::Normal(_)));
        if let Some(path) = self.fixtures.files.keys().chain(self.expect.files.keys()).find(outside) {
            return Err(("files", format!("`{path}` is not a relative path below the scenario's directory")));
        }
        if let Some(tampered) = self.fixtures.tampered.iter().find(|it| it.find.len() != it.with.len() || it.find.is_empty()) {
            return Err(("tampered", format!("`{}` and `{}` must be of one length", tampered.find, tampered.with)));
        }
        if let Some(pattern) = self.expect.answer.as_ref().and_then(|answer| answer.matches.as_ref())
            && let Err(error) = regex::Regex::new(pattern)
        {
            return Err(("matches", format!("not a regular expression: {error}")));
        }
        let pointers = self.expect.calls.iter().flat_map(|call| call.json.keys());
        if let Some(pointer) = pointers.into_iter().find(|pointer| !pointer.is_empty() && !pointer.starts_with('/')) {
            return Err(("json", format!("`{pointer}` is not a JSON pointer; it begins with `/`")));
        }
        if let Model::Script(_) = &self.model {
            self.script().map_err(|message| ("turns", message))?;
        }
        Ok(())
    }

    /// The script; an empty one for a real model.
    pub(super) fn script(&self) -> Result<Script, String> {
        let mut turns = match &self.model {
            Model::Script(turns) => turns.clone(),
            Model::Real => Vec::new(),
        };
        for turn in &mut turns {
            // A scenario says under `expect` what results must be; a turn may say so as well.
            turn.expect.any_results |= turn.expect.results.is_empty();
        }
        Script { version: 1, model: "scripted".to_owned(), turns }.checked().map_err(|error| error.to_string())
    }
}
