//! The compile child: limits itself, reads one component, writes its artifact, ends.
//!
//! Compilation is the one thing wasmtime does with hostile bytes whose cost it does not bound, and by its policy that is no
//! vulnerability: a component of 631 bytes took 700 MB and seven seconds. So it happens in a process of its own, under limits that the
//! kernel keeps.
//!
//! The protocol: the parent writes the length (8 bytes, little-endian) and the component to stdin, and keeps stdin open. The child
//! writes the artifact to stdout and ends with 0, or a message to stderr and ends with one of `Outcome`'s codes.

use std::io::{self, Read, Write};
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use wasmparser::{Parser, Validator, WasmFeatures};
use wasmtime::Engine;

use super::config::{AddressSpace, ENABLED, EngineRole, engine_config, feature_names};

/// The hidden subcommand that is the compile child.
pub const COMPILE_COMMAND: &str = "__compile";

/// Descriptors that the child may have: its three pipes, and room for what the C library opens.
const MAX_DESCRIPTORS: u64 = 16;

/// Lowers the priority, so that plugins which are being called come first.
const NICENESS: i32 = 10;

/// What the child's exit code says, besides 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Outcome {
    /// The bytes are not a valid component.
    Invalid = 10,
    /// They need a proposal that is off; the first line of stderr names it.
    Unsupported = 11,
    /// Memory ran out.
    Memory = 12,
    /// The child itself failed.
    Internal = 13,
}

impl Outcome {
    /// The outcome of an exit code.
    pub(crate) fn from_code(code: i32) -> Option<Self> {
        [Self::Invalid, Self::Unsupported, Self::Memory, Self::Internal].into_iter().find(|outcome| *outcome as i32 == code)
    }
}

/// What the child is told on its command line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ChildLimits {
    /// Bytes of address space.
    pub(crate) memory: u64,
    /// Seconds of processor time.
    pub(crate) cpu_seconds: u64,
    /// Bytes of the component.
    pub(crate) input: u64,
    /// How linear memories are laid out.
    pub(crate) space: AddressSpace,
}

impl ChildLimits {
    /// As arguments, after [`COMPILE_COMMAND`].
    pub(crate) fn to_arguments(self) -> [String; 4] {
        [self.memory.to_string(), self.cpu_seconds.to_string(), self.input.to_string(), self.space.as_str().to_owned()]
    }

    fn from_arguments(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut number = || arguments.next()?.parse().ok();
        let (memory, cpu_seconds, input) = (number()?, number()?, number()?);
        let space = arguments.next()?;
        let space = [AddressSpace::Large, AddressSpace::Small].into_iter().find(|known| known.as_str() == space)?;
        Some(Self { memory, cpu_seconds, input, space })
    }
}

/// Runs the compile child; `arguments` are those after [`COMPILE_COMMAND`].
///
/// Call it first thing in `main`, before anything reads configuration or starts a thread.
pub fn compile_child_main(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let Some(limits) = ChildLimits::from_arguments(arguments.into_iter()) else {
        return end(Outcome::Internal, "this command is for the host's own use");
    };
    if let Err(error) = confine(&limits) {
        return end(Outcome::Internal, &format!("cannot limit the compiler: {error}"));
    }
    let wasm = match read_component(limits.input) {
        Ok(wasm) => wasm,
        Err(error) => return end(Outcome::Internal, &format!("cannot read the component: {error}")),
    };
    end_with_parent();
    match compile(&wasm, limits.space) {
        Ok(artifact) => match io::stdout().write_all(&artifact) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => end(Outcome::Internal, &format!("cannot write the artifact: {error}")),
        },
        Err((outcome, message)) => end(outcome, &message),
    }
}

/// Sets limits that only a privileged process could raise again.
fn confine(limits: &ChildLimits) -> io::Result<()> {
    let lower = |resource, soft: u64, hard: u64| {
        // A lower limit may be in force already; raising it is neither wanted nor possible.
        let hard = getrlimit(resource).maximum.map_or(hard, |now| now.min(hard));
        setrlimit(resource, Rlimit { current: Some(soft.min(hard)), maximum: Some(hard) })
    };
    lower(Resource::Core, 0, 0)?;
    lower(Resource::Fsize, 0, 0)?;
    lower(Resource::Nofile, MAX_DESCRIPTORS, MAX_DESCRIPTORS)?;
    // SIGXCPU at the soft limit says what happened; SIGKILL a second later, if it was survived.
    lower(Resource::Cpu, limits.cpu_seconds, limits.cpu_seconds.saturating_add(1))?;
    lower(Resource::As, limits.memory, limits.memory)?;
    // Only a courtesy: a system that refuses it loses nothing.
    let _ = rustix::process::nice(NICENESS);
    Ok(())
}

fn read_component(limit: u64) -> io::Result<Vec<u8>> {
    let mut input = io::stdin().lock();
    let mut length = [0; 8];
    input.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > limit {
        return Err(io::Error::other(format!("{length} bytes are more than the {limit} allowed")));
    }
    let mut wasm = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    input.read_exact(&mut wasm)?;
    Ok(wasm)
}

/// Ends this process when its parent does: the parent holds the other end of stdin and never writes to it again.
///
/// `PR_SET_PDEATHSIG` would fire when the *thread* that started the child ends, which a runtime may do at any time.
fn end_with_parent() {
    let watch = || {
        let _ = io::stdin().lock().read(&mut [0; 1]);
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    };
    // Without the thread the CPU limit still ends the child.
    let _ = std::thread::Builder::new().stack_size(64 * 1024).spawn(watch);
}

fn compile(wasm: &[u8], space: AddressSpace) -> Result<Vec<u8>, (Outcome, String)> {
    // `precompile_component` would take text, if another crate switched that feature on.
    if !Parser::is_component(wasm) {
        return Err((Outcome::Invalid, "not a binary component".to_owned()));
    }
    let engine = Engine::new(&engine_config(EngineRole::Compile, space))
        .map_err(|error| (Outcome::Internal, format!("cannot make an engine: {error:#}")))?;
    engine.precompile_component(wasm).map_err(|error| explain(wasm, &error))
}

/// Says why a component was not compiled. The compiler's error does not tell a disabled proposal from nonsense; the validator's does.
fn explain(wasm: &[u8], error: &wasmtime::Error) -> (Outcome, String) {
    let text = format!("{error:#}");
    if text.contains("annot allocate memory") || text.contains("out of memory") {
        return (Outcome::Memory, text);
    }
    let Err(invalid) = validate(wasm, ENABLED) else { return (Outcome::Invalid, text) };
    match invalid.missing_wasm_feature().map(|feature| feature - ENABLED).or_else(|| missing_feature(wasm, &invalid)) {
        Some(feature) => (Outcome::Unsupported, format!("{}\n{invalid}", feature_names(feature))),
        None => (Outcome::Invalid, invalid.to_string()),
    }
}

/// Finds the proposal without which the validator stops at this error. Not all of its errors say so themselves.
fn missing_feature(wasm: &[u8], error: &wasmparser::Error) -> Option<WasmFeatures> {
    (WasmFeatures::all() - ENABLED).iter().find(|&feature| match validate(wasm, ENABLED | feature) {
        Ok(()) => true,
        Err(other) => other.offset() > error.offset(),
    })
}

fn validate(wasm: &[u8], features: WasmFeatures) -> Result<(), wasmparser::Error> {
    Validator::new_with_features(features).validate_all(wasm).map(drop)
}

fn end(outcome: Outcome, message: &str) -> ExitCode {
    let _ = io::stderr().write_all(message.as_bytes());
    ExitCode::from(outcome as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_say_all_limits() {
        let limits = ChildLimits { memory: 1, cpu_seconds: 2, input: 3, space: AddressSpace::Small };
        assert_eq!(ChildLimits::from_arguments(limits.to_arguments().into_iter()), Some(limits));
        for bad in [vec![], vec!["1", "2", "3"], vec!["1", "2", "x", "large"], vec!["1", "2", "3", "medium"]] {
            assert_eq!(ChildLimits::from_arguments(bad.iter().map(|&word| word.to_owned())), None, "{bad:?}");
        }
    }

    #[test]
    fn names_the_feature_that_is_off() {
        let hostile = |body: &str| wat::parse_str(format!("(component (core module {body}))")).expect("valid text");
        for (body, feature) in [
            ("(memory i64 1)", "memory64"),
            ("(memory 1 10 shared)", "threads"),
            ("(memory 1 (pagesize 1))", "custom-page-sizes"),
            ("(type (struct))", "gc"),
            ("(tag)", "exceptions"),
            ("(func $f return_call $f)", "tail-call"),
            ("(func (param externref))", "gc-types"),
        ] {
            let wasm = hostile(body);
            let (outcome, message) = compile(&wasm, AddressSpace::Large).expect_err(body);
            assert_eq!(outcome, Outcome::Unsupported, "{body}: {message}");
            assert!(message.starts_with(&format!("{feature}\n")), "{body}: {message}");
        }
    }

    #[test]
    fn tells_invalid_from_unsupported() {
        let mut wasm = wat::parse_str("(component (core module (func (result i32) i32.const 1)))").expect("valid text");
        let last = wasm.iter().rposition(|&byte| byte == 0x41).expect("an i32.const");
        wasm[last] = 0x42;
        let (outcome, message) = compile(&wasm, AddressSpace::Large).expect_err("invalid");
        assert_eq!(outcome, Outcome::Invalid, "{message}");
        assert_eq!(compile(b"(component)", AddressSpace::Large).expect_err("text").0, Outcome::Invalid);
    }
}
