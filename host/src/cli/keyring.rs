//! Secrets from the keyring of the person who runs the host.
//!
//! The keyring is asked through the program that comes with it: `secret-tool` of libsecret, `security` on macOS. A library would bring a
//! D-Bus stack and a second async runtime into a process that needs one value at its start.

use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::trusted;
use crate::secret::MAX_BYTES;

/// Long enough for a person to unlock the keyring.
const DEADLINE: Duration = Duration::from_secs(60);
/// How often a program that has closed its output is asked whether it has ended.
const TICK: Duration = Duration::from_millis(10);

#[cfg(target_os = "macos")]
const PROGRAM: &str = "security";
#[cfg(not(target_os = "macos"))]
const PROGRAM: &str = "secret-tool";

/// Reads the entry of a service and an account.
pub(super) fn read(service: &str, account: &str) -> io::Result<String> {
    let mut command = Command::new(find(PROGRAM)?);
    // No shell; the policy's parser refuses names that could be options.
    if cfg!(target_os = "macos") {
        command.args(["find-generic-password", "-s", service, "-a", account, "-w"]);
    } else {
        // The names that the keyring libraries of other languages give the two.
        command.args(["lookup", "service", service, "username", account]);
    }
    run(command, DEADLINE)
}

/// The program, in a directory of `PATH` that is absolute, and in nobody else's hands.
fn find(name: &str) -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).filter(|directory| directory.is_absolute()).map(|directory| directory.join(name));
    let program = found
        .into_iter()
        .find(|program| program.is_file())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("the program `{name}` is not installed")))?;
    trusted::check_path(&program).map_err(|error| io::Error::other(error.to_string().replace("\nhint: ", "; ")))?;
    Ok(program)
}

/// Runs a program, and returns what it printed: at most as much as a secret may have, and not after the deadline.
fn run(mut command: Command, deadline: Duration) -> io::Result<String> {
    let end = Instant::now() + deadline;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let Some(output) = child.stdout.take() else { return Err(io::Error::other("it has no output")) };
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        // One byte more than a secret and its line end, so that a longer one is seen to be too long.
        let read = output.take(MAX_BYTES as u64 + 3).read_to_string(&mut text);
        // Nobody listens after the deadline.
        let _ = sender.send(read.map(|_| text));
    });
    let read = receiver.recv_timeout(deadline).map_err(|error| match error {
        RecvTimeoutError::Timeout => io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {deadline:?}")),
        RecvTimeoutError::Disconnected => io::Error::other("its output cannot be read"),
    });
    let ended = match &read {
        Ok(Ok(text)) if text.len() <= MAX_BYTES + 2 => wait(&mut child, end),
        _ => None,
    };
    if ended.is_none() {
        // It may have ended in the meantime; either way nothing is left of it.
        let _ = child.kill();
        let _ = child.wait();
    }
    let text = read??;
    match ended {
        Some(true) => Ok(text),
        Some(false) => Err(io::Error::new(io::ErrorKind::NotFound, "there is no such entry")),
        None if text.len() > MAX_BYTES => Err(io::Error::other("the entry is too long")),
        None => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {deadline:?}"))),
    }
}

/// Whether the program ended well; none if it has not ended.
fn wait(child: &mut Child, end: Instant) -> Option<bool> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if Instant::now() < end => thread::sleep(TICK),
            Ok(None) | Err(_) => return None,
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_programs_answer_is_bounded_in_time_and_size_and_its_failure_is_one() {
        let long = Duration::from_secs(30);
        assert_eq!(run(shell("printf '%s' hunter2hunter2"), long).expect("an answer"), "hunter2hunter2");
        for (script, expected) in [
            ("exit 1", "no such entry"),
            ("printf x; exit 1", "no such entry"),
            ("yes", "too long"),
            ("printf '\\377\\377'", "UTF-8"),
        ] {
            let error = run(shell(script), long).expect_err(script).to_string();
            assert!(error.contains(expected), "{script}: {error}");
        }
        for script in ["exec sleep 3600", "exec >&-; exec sleep 3600"] {
            let error = run(shell(script), Duration::from_millis(100)).expect_err(script);
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{script}: {error}");
        }
        assert!(run(Command::new("/nowhere/secret-tool"), long).is_err());
    }
}
