//! What a script file says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::file;
use crate::message::{FinishReason, TokenUsage, ToolStatus};
use crate::provider::ProviderErrorClass;

const MAX_FILE: u64 = 4 << 20;
/// The most turns, repeats included.
const MAX_TURNS: usize = 10_000;

/// A script: what is asked, and what is answered.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The format's version; 1.
    pub version: u32,
    /// The model's name, for logs.
    #[serde(default = "default_model")]
    pub model: String,
    /// The turns, in order.
    pub turns: Vec<Turn>,
}

/// One turn of the model.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// What the request must hold.
    #[serde(default)]
    pub expect: Expect,
    /// Other answers: the first one whose conditions all hold takes the place of `reply`.
    #[serde(default)]
    pub cases: Vec<Case>,
    /// The answer.
    #[serde(default)]
    pub reply: Reply,
    /// How many turns are like this one; 1 unless said otherwise.
    #[serde(default)]
    pub repeat: Option<usize>,
}

/// An answer that depends on what tools returned: so a script can obey an instruction that it finds there, as a gullible model does.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// When it is given.
    pub when: When,
    /// The answer.
    pub reply: Reply,
}

/// Conditions on a request. Each that is there must hold.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// Look only at results of this tool.
    pub tool: Option<String>,
    /// A result since the model's last turn holds this text.
    pub result_contains: Option<String>,
    /// A result since the model's last turn ended like this.
    pub status: Option<ToolStatus>,
    /// This tool is on offer, and its description holds `description_contains`.
    pub offered: Option<String>,
    /// A tool on offer, or the one that `offered` names, is described with this text.
    pub description_contains: Option<String>,
    /// The system prompt holds this text.
    pub system_contains: Option<String>,
    /// The last user message holds this text.
    pub user_contains: Option<String>,
}

/// What a request must hold. What is absent is not checked, except that `results` lists every new result.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    /// The last user message, exactly, but for white space around it.
    pub user: Option<String>,
    /// A part of the last user message.
    pub user_contains: Option<String>,
    /// A part of the system prompt.
    pub system_contains: Option<String>,
    /// Tools that are on offer, among others.
    pub tools: Vec<String>,
    /// No tool is on offer.
    pub no_tools: bool,
    /// The results since the model's last turn, in the order of its calls.
    pub results: Vec<ExpectResult>,
    /// The results are whatever they are; `results` is then not looked at.
    pub any_results: bool,
}

/// What a tool's result must be.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectResult {
    /// The tool's model-visible name.
    pub tool: String,
    /// How the call ended.
    pub status: Option<ToolStatus>,
    /// Parts of the text.
    #[serde(default)]
    pub contains: Vec<String>,
    /// JSON pointers into the result, and the values there.
    #[serde(default)]
    pub json: BTreeMap<String, Value>,
    /// JSON pointers that lead somewhere.
    #[serde(default)]
    pub present: Vec<String>,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reply {
    /// Readable reasoning.
    pub reasoning: Option<String>,
    /// The text.
    pub text: Text,
    /// Tool calls.
    pub calls: Vec<CallScript>,
    /// The finish reason; what fits the calls, if absent.
    pub finish: Option<FinishScript>,
    /// The tokens that the turn is said to cost.
    pub usage: TokenUsage,
    /// A failure, instead of an answer.
    pub error: Option<FailureScript>,
}

/// A text, or the pieces in which it streams.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Text {
    /// A text.
    Whole(String),
    /// Its pieces.
    Pieces(Vec<String>),
}

impl Default for Text {
    fn default() -> Self {
        Self::Whole(String::new())
    }
}

impl Text {
    pub(super) fn pieces(&self) -> &[String] {
        match self {
            Self::Whole(text) => std::slice::from_ref(text),
            Self::Pieces(pieces) => pieces,
        }
    }
}

/// A tool call in an answer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallScript {
    /// The tool's model-visible name.
    pub tool: String,
    /// The arguments; a text is sent as it is, even if it is not JSON.
    #[serde(default = "no_arguments")]
    pub arguments: Value,
}

/// A finish reason in a script.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishScript {
    /// [`FinishReason::Stop`].
    Stop,
    /// [`FinishReason::ToolCalls`].
    ToolCalls,
    /// [`FinishReason::Length`].
    Length,
    /// [`FinishReason::ContentFilter`].
    ContentFilter,
    /// [`FinishReason::Refusal`].
    Refusal,
    /// [`FinishReason::Missing`].
    Missing,
}

impl From<FinishScript> for FinishReason {
    fn from(finish: FinishScript) -> Self {
        match finish {
            FinishScript::Stop => Self::Stop,
            FinishScript::ToolCalls => Self::ToolCalls,
            FinishScript::Length => Self::Length,
            FinishScript::ContentFilter => Self::ContentFilter,
            FinishScript::Refusal => Self::Refusal,
            FinishScript::Missing => Self::Missing,
        }
    }
}

/// A failure instead of an answer.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureScript {
    /// Its class.
    pub class: ProviderErrorClass,
    /// Its message.
    pub message: String,
    /// Its HTTP status.
    pub status: Option<u16>,
}

fn default_model() -> String {
    "scripted".to_owned()
}

fn no_arguments() -> Value {
    Value::Object(serde_json::Map::new())
}

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("cannot read script `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The text is not a script.
    #[error("{}not a valid script: {message}", path.as_ref().map(|path| format!("`{}` is ", path.display())).unwrap_or_default())]
    Invalid {
        /// The file, if the text came from one.
        path: Option<PathBuf>,
        /// What is wrong, with the line.
        message: String,
    },
}

impl Script {
    pub(super) fn parse(text: &str) -> Result<Self, ScriptError> {
        let invalid = |message: String| ScriptError::Invalid { path: None, message };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let script: Self = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?
        } else {
            toml::from_str(text).map_err(|error| invalid(error.to_string().trim_end().to_owned()))?
        };
        script.checked()
    }

    /// Checks what the types do not say, and writes out the turns that are repeated.
    ///
    /// # Errors
    ///
    /// Says which turn makes no sense, and why.
    pub fn checked(mut self) -> Result<Self, ScriptError> {
        self.check().map_err(|message| ScriptError::Invalid { path: None, message })?;
        self.turns = self
            .turns
            .into_iter()
            .flat_map(|turn| {
                let times = turn.repeat.unwrap_or(1);
                std::iter::repeat_n(Turn { repeat: None, ..turn }, times)
            })
            .collect();
        Ok(self)
    }

    pub(super) fn from_file(path: &Path) -> Result<Self, ScriptError> {
        let text = file::read_text(path, MAX_FILE)
            .map_err(|error| ScriptError::Read { path: path.to_owned(), source: error.into_io() })?;
        Self::parse(&text).map_err(|error| match error {
            ScriptError::Invalid { message, .. } => ScriptError::Invalid { path: Some(path.to_owned()), message },
            other => other,
        })
    }

    /// Checks what the types do not say.
    fn check(&self) -> Result<(), String> {
        if self.version != 1 {
            return Err(format!("version {} is not known; this program reads version 1", self.version));
        }
        let turns = self.turns.iter().fold(0, |sum: usize, turn| sum.saturating_add(turn.repeat.unwrap_or(1)));
        if turns > MAX_TURNS {
            return Err(format!("{turns} turns are more than {MAX_TURNS}"));
        }
        for (number, turn) in self.turns.iter().enumerate().map(|(at, turn)| (at + 1, turn)) {
            let expect = &turn.expect;
            if expect.no_tools && !expect.tools.is_empty() {
                return Err(format!("turn {number} expects both `tools` and `no_tools`"));
            }
            let pointers = expect.results.iter().flat_map(|result| result.json.keys().chain(&result.present));
            if let Some(pointer) = pointers.into_iter().find(|pointer| !pointer.is_empty() && !pointer.starts_with('/')) {
                return Err(format!("turn {number}: `{pointer}` is not a JSON pointer; it begins with `/`"));
            }
            for reply in turn.cases.iter().map(|case| &case.reply).chain([&turn.reply]) {
                let answers = !reply.text.pieces().concat().is_empty() || !reply.calls.is_empty() || reply.reasoning.is_some();
                if reply.error.is_some() && answers {
                    return Err(format!("turn {number} has both an answer and an `error`"));
                }
            }
            if turn.repeat == Some(0) {
                return Err(format!("turn {number}: `repeat` must not be zero"));
            }
        }
        Ok(())
    }
}
