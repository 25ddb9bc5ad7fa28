//! Runs the compile child: feeds it, bounds what it returns, and says how it ended.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};

use super::artifact::Artifact;
use super::child::{COMPILE_COMMAND, ChildLimits, Outcome};
use super::config::AddressSpace;
use super::load::{LoadLimits, Problem};
use crate::text;

/// Bytes kept of what the child says on stderr.
const MAX_MESSAGE: usize = 4 * 1024;

/// Bytes of it in an error message.
const MAX_QUOTE: usize = 500;

/// How to start compile children.
#[derive(Clone, Debug)]
pub(crate) struct Compiler {
    program: PathBuf,
    limits: LoadLimits,
    space: AddressSpace,
}

impl Compiler {
    /// A compiler that starts `program __compile …`.
    pub(crate) fn new(program: &Path, limits: LoadLimits, space: AddressSpace) -> Self {
        // The child starts in another directory.
        let program = std::path::absolute(program).unwrap_or_else(|_| program.to_owned());
        Self { program, limits, space }
    }

    /// Compiles a component in a child process. Dropping the future kills the child.
    pub(crate) async fn compile(&self, wasm: &[u8]) -> Result<Artifact, Problem> {
        let mut child = self.spawn().map_err(|error| host("starting the compiler", error))?;
        let finished = tokio::time::timeout(self.limits.compile_time, self.converse(&mut child, wasm)).await;
        let end = match finished {
            Ok(end) => end,
            Err(_) => Ok(End::OutOfTime),
        };
        // No child is left running, and none stays a zombie.
        if !matches!(end, Ok(End::Exited { .. }))
            && let Err(error) = child.kill().await
        {
            tracing::warn!(%error, "a compile child could not be stopped");
        }
        match end.map_err(|error| host("reading from the compiler", error))? {
            End::OutOfTime => Err(Problem::CompileLimit(format!("{} s", self.limits.compile_time.as_secs()))),
            End::TooLarge => Err(Problem::CompileLimit(format!("{} bytes of compiled code", self.limits.artifact_bytes))),
            End::Exited { status, artifact, message } => self.judge(status, artifact, &message),
        }
    }

    fn spawn(&self) -> std::io::Result<Child> {
        let limits = ChildLimits {
            memory: self.limits.compile_memory,
            cpu_seconds: self.limits.compile_cpu.as_secs().max(1),
            input: self.limits.file_bytes,
            space: self.space,
        };
        Command::new(&self.program)
            .arg(COMPILE_COMMAND)
            .args(limits.to_arguments())
            // Secrets live in the environment, and wasmtime reads some of it.
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A Ctrl-C on the terminal is the host's to handle.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }

    async fn converse(&self, child: &mut Child, wasm: &[u8]) -> std::io::Result<End> {
        let missing = || std::io::Error::other("a pipe is missing");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let stderr = child.stderr.take().ok_or_else(missing)?;
        let limit = usize::try_from(self.limits.artifact_bytes).unwrap_or(usize::MAX);
        // All three at once: the child may end, or block, before any one of them is done. `_open` keeps stdin open until then; closing
        // it would tell the child that its parent is gone.
        let (_open, artifact, message) = tokio::join!(feed(stdin, wasm), read_bounded(stdout, limit), read_start(stderr));
        let Some(artifact) = artifact? else { return Ok(End::TooLarge) };
        let message = message?;
        let status = child.wait().await?;
        Ok(End::Exited { status, artifact, message })
    }

    fn judge(&self, status: ExitStatus, artifact: Vec<u8>, message: &[u8]) -> Result<Artifact, Problem> {
        let message = String::from_utf8_lossy(message);
        let (first, rest) = message.split_once('\n').unwrap_or((&message, ""));
        let memory = || Problem::CompileLimit(format!("{} bytes of memory", self.limits.compile_memory));
        if status.success() {
            return if artifact.is_empty() {
                Err(Problem::Compiler("it wrote nothing".to_owned()))
            } else {
                Ok(Artifact::from_compiler(artifact))
            };
        }
        if let Some(outcome) = status.code().and_then(Outcome::from_code) {
            return Err(match outcome {
                Outcome::Invalid => Problem::Malformed(text::clean_line(&message, MAX_QUOTE)),
                Outcome::Unsupported => {
                    Problem::Feature { feature: text::clean_line(first, MAX_QUOTE), message: text::clean_line(rest, MAX_QUOTE) }
                }
                Outcome::Memory => memory(),
                Outcome::Internal => Problem::Compiler(text::clean_line(&message, MAX_QUOTE)),
            });
        }
        match status.signal().and_then(Signal::from_named_raw) {
            Some(Signal::XCPU) => {
                Err(Problem::CompileLimit(format!("{} s of processor time", self.limits.compile_cpu.as_secs())))
            }
            // The message of Rust's handler for a failed allocation, which then aborts.
            Some(Signal::ABORT) if message.contains("memory allocation of") => Err(memory()),
            // Not by this process: by the system for want of memory, or by a person.
            Some(signal @ Signal::KILL) => Err(Problem::CompilerKilled(signal.as_raw())),
            _ => {
                let words = text::clean_line(&message, MAX_QUOTE);
                Err(Problem::Compiler(format!("the compiler crashed ({status}): {words}")))
            }
        }
    }
}

enum End {
    OutOfTime,
    TooLarge,
    Exited { status: ExitStatus, artifact: Vec<u8>, message: Vec<u8> },
}

/// Writes a component. A child that ends early closes the pipe; its exit status says why, so the error here says nothing.
async fn feed(mut stdin: ChildStdin, wasm: &[u8]) -> ChildStdin {
    let length = u64::try_from(wasm.len()).unwrap_or(u64::MAX).to_le_bytes();
    if stdin.write_all(&length).await.is_ok() && stdin.write_all(wasm).await.is_ok() {
        let _ = stdin.flush().await;
    }
    stdin
}

/// Reads to the end; nothing if that is more than `limit` bytes. The pipe is closed then, which stops the child.
async fn read_bounded(input: impl AsyncRead + Unpin, limit: usize) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    input.take(most).read_to_end(&mut bytes).await?;
    Ok((bytes.len() <= limit).then_some(bytes))
}

/// Reads to the end, and keeps the start.
async fn read_start(mut input: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let read = input.read(&mut buffer).await?;
        if read == 0 {
            return Ok(kept);
        }
        let room = MAX_MESSAGE - kept.len();
        kept.extend_from_slice(&buffer[..read.min(room)]);
    }
}

fn host(what: &'static str, error: std::io::Error) -> Problem {
    Problem::Host { what, source: error.into() }
}
