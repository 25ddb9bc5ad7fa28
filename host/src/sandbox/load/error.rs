//! Why a plugin was not loaded.

use std::fmt;
use std::io;

use thiserror::Error;

use crate::tool::{ErrorCode, Failure};

/// A plugin that was not loaded: which, and why.
#[derive(Debug)]
pub struct LoadError {
    file: String,
    problem: Problem,
}

impl LoadError {
    /// A problem with a file. `file` is what the operator knows it by, and is free of control characters.
    pub fn new(file: impl Into<String>, problem: Problem) -> Self {
        Self { file: file.into(), problem }
    }

    /// What is wrong.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.file, self.problem)
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.problem)
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        let failure = Self::new(error.problem.code(), error.to_string());
        match error.problem.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// What is wrong with a plugin's file, as a sentence without its subject.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file cannot be opened or read.
    #[error("cannot be read: {0}")]
    Read(#[source] io::Error),
    /// A directory, link, device, pipe or socket. Opening one could block, never end, or be replaced unseen.
    #[error("is {0}, not a regular file")]
    NotAFile(&'static str),
    /// Nothing in it.
    #[error("is empty")]
    Empty,
    /// Larger than `file_bytes`.
    #[error("has more than the {limit} bytes that a plugin file may have")]
    FileTooLarge {
        /// `file_bytes`.
        limit: u64,
    },
    /// Another file than the policy means.
    #[error("has sha256 `{actual}`, but the policy pins `{pinned}`")]
    Pin {
        /// The policy's digest, in hexadecimal.
        pinned: String,
        /// The file's digest, in hexadecimal.
        actual: String,
    },
    /// The first bytes are not those of WebAssembly.
    #[error("is not WebAssembly: it starts with {0}")]
    NotWasm(String),
    /// The text format.
    #[error("is WebAssembly text, not a binary component")]
    Text,
    /// A core module.
    #[error("is a core WebAssembly module, not a component")]
    CoreModule,
    /// An artifact of wasmtime, or a native program. Loading one would run it.
    #[error("is a precompiled artifact or a native program, which is never loaded")]
    Native,
    /// A version of the binary format that nothing here knows.
    #[error("has version {0} of the WebAssembly binary format, which is neither a module nor a component")]
    Version(u32),
    /// The file ends too early.
    #[error("is cut short: {0}")]
    Truncated(String),
    /// Bytes that are not a valid component.
    #[error("is not a valid component: {0}")]
    Malformed(String),
    /// The requests section is repeated, too long or not text.
    #[error("has a bad `honeycomb:requests` section: {0}")]
    Requests(String),
    /// No function or interface is exported.
    #[error("exports no function, so there is no tool in it")]
    NoExports,
    /// It exports functions, and none of them can be a tool.
    #[error("exports no function that can be a tool: `{function}`, for one: {reason}")]
    NoTools {
        /// The first of them.
        function: String,
        /// Why that one cannot.
        reason: String,
    },
    /// A proposal that is switched off.
    #[error("needs the WebAssembly feature {feature}, which plugins may not use: {message}")]
    Feature {
        /// Names the feature.
        feature: String,
        /// The validator's words.
        message: String,
    },
    /// Another version of our own interface.
    #[error("exports `{found}`, but this host speaks `{wanted}`")]
    PluginVersion {
        /// What it exports.
        found: String,
        /// What this host wants.
        wanted: &'static str,
    },
    /// A component that takes or gives components.
    #[error("passes components around as values ({0}), which plugins may not")]
    ComponentValue(&'static str),
    /// An import that the host does not offer.
    #[error("imports `{wanted}`, but {}", match .have {
        Some(have) => format!("this host has `{have}`"),
        None => "this host has nothing of that name".to_owned(),
    })]
    MissingImport {
        /// What it imports.
        wanted: String,
        /// The host's interface of that name, in another version.
        have: Option<String>,
    },
    /// The linker refused it although every imported interface is there.
    #[error("does not fit this host: {0}")]
    Link(String),
    /// It was asked for its tools, and gave no usable answer.
    #[error("cannot be asked for its tools: {}", .0.message)]
    ListTools(Failure),
    /// More of something than a component may have.
    #[error("has {found} {what}, more than the {limit} that a plugin may have")]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// How many there are, or a lower bound.
        found: u64,
        /// How many there may be.
        limit: u64,
    },
    /// Compilation reached a limit.
    #[error("is too costly to compile: it needs more than {0}")]
    CompileLimit(String),
    /// Something stopped the compile child.
    #[error("could not be compiled: the compiler was killed by signal {0}")]
    CompilerKilled(i32),
    /// The compile child failed on its own account.
    #[error("could not be compiled: {0}")]
    Compiler(String),
    /// The host failed.
    #[error("could not be loaded: {what}")]
    Host {
        /// What failed.
        what: &'static str,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Problem {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::FileTooLarge { .. } | Self::TooMany { .. } | Self::CompileLimit(_) | Self::CompilerKilled(_) => {
                ErrorCode::LOAD_LIMIT
            }
            Self::Feature { .. } | Self::PluginVersion { .. } | Self::ComponentValue(_) | Self::NoTools { .. } => {
                ErrorCode::LOAD_UNSUPPORTED
            }
            Self::MissingImport { .. } | Self::Link(_) => ErrorCode::LINK_MISSING,
            Self::Compiler(_) | Self::Host { .. } => ErrorCode::HOST_INTERNAL,
            Self::ListTools(failure) => failure.code.clone(),
            _ => ErrorCode::LOAD_INVALID,
        }
    }

    /// What would put it right.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NotAFile("a symbolic link") => "copy the file itself into the plugins directory",
            Self::NotAFile(_) => "put a component's `.wasm` file there",
            Self::Empty | Self::NotWasm(_) | Self::Malformed(_) | Self::Version(_) => {
                "build a component for the target `wasm32-wasip2`, or with `honeycomb-host build`"
            }
            Self::Truncated(_) => "copy or download the file again",
            Self::Pin { actual, .. } => {
                return Some(format!(
                    "if you trust this file, set `sha256 = \"{actual}\"` in the plugin's policy; otherwise restore the old one"
                ));
            }
            Self::Text => "turn it into a binary with `wasm-tools parse FILE.wat -o FILE.wasm`",
            Self::CoreModule => {
                "build for `wasm32-wasip2`, or wrap it with `wasm-tools component new MODULE.wasm -o COMPONENT.wasm`"
            }
            Self::Native => "give the `.wasm` file that it was made from; the host compiles and caches it itself",
            Self::FileTooLarge { .. } => "strip debug information and build with optimisation, or raise `file_bytes`",
            Self::Requests(_) => "have exactly one section, of UTF-8 text",
            Self::NoTools { .. } => "give it a function whose parameters and result have a JSON form",
            Self::NoExports => "export `honeycomb:plugin/tools`, or at least one function",
            Self::Feature { .. } => {
                "build without that feature; for Rust, `wasm32-wasip2` with its default target features is right"
            }
            Self::PluginVersion { .. } => "build with the `plugin-sdk` or `wit/` of this host's version",
            Self::ComponentValue(_) => "compose the component fully (`wac plug`) before you give it to the host",
            Self::MissingImport { have: Some(_), .. } => "build against the version that this host has, or update the host",
            Self::MissingImport { have: None, .. } => {
                "leave out what uses it; `honeycomb-host inspect FILE` lists what a plugin imports"
            }
            Self::Link(_) => "build against the `wit/` directory of this host",
            Self::TooMany { .. } => "make the component smaller, or raise the limit",
            Self::CompileLimit(_) => "make the component smaller, or raise the `compile_*` limits if you trust it",
            Self::CompilerKilled(_) => "see whether the machine is out of memory",
            Self::ListTools(failure) => return failure.hint.clone(),
            Self::Read(_) | Self::Compiler(_) | Self::Host { .. } => return None,
        };
        Some(hint.to_owned())
    }
}
