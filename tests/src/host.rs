//! The real program, the real plugins, and a directory for one test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::Value;

/// The host's program, which cargo builds beside this one, or beside the directory of this test.
///
/// # Panics
///
/// Panics with a remedy when it is not there.
pub fn host_program() -> PathBuf {
    let this = std::env::current_exe().expect("a program has a path");
    let program = this.ancestors().skip(1).take(2).map(|directory| directory.join("honeycomb-host")).find(|path| path.exists());
    program.unwrap_or_else(|| panic!("`honeycomb-host` is not built: run `cargo xtask test`"))
}

/// The built plugins.
///
/// # Panics
///
/// Panics with a remedy when they are not there.
pub fn plugins_dir() -> PathBuf {
    built("plugins", "calculator")
}

/// The built guests of `tests/guests`.
///
/// # Panics
///
/// Panics with a remedy when they are not there.
pub fn guests_dir() -> PathBuf {
    built("test-guests", "misbehave")
}

fn built(directory: &str, example: &str) -> PathBuf {
    let path = workspace().join("target").join(directory);
    let file = path.join(format!("{example}.wasm"));
    assert!(file.exists(), "{} is missing: run `cargo xtask test`, which builds it", file.display());
    path
}

/// The top of the workspace.
///
/// # Panics
///
/// Panics when this crate is not in one.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace")
}

/// A temporary directory with a policy, and the program to run in it.
pub struct Host {
    directory: Arc<tempfile::TempDir>,
    plugins: PathBuf,
    policies: Vec<PathBuf>,
    variables: Vec<(String, String)>,
}

/// What the program did.
#[derive(Debug)]
pub struct Ran {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Host {
    /// A host over the example plugins, without a policy.
    ///
    /// # Panics
    ///
    /// Panics when there is no temporary directory.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self { directory: Arc::new(directory), plugins: plugins_dir(), policies: Vec::new(), variables: Vec::new() }
    }

    /// Uses other plugins.
    #[must_use]
    pub fn plugins(mut self, plugins: impl Into<PathBuf>) -> Self {
        self.plugins = plugins.into();
        self
    }

    /// Adds a policy file with this text.
    #[must_use]
    pub fn policy(mut self, text: &str) -> Self {
        let path = self.write(&format!("policy{}.toml", self.policies.len()), text);
        self.policies.push(path);
        self
    }

    /// Adds a policy file that is there already.
    #[must_use]
    pub fn policy_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.policies.push(path.into());
        self
    }

    /// Sets an environment variable. The program inherits no other but PATH.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The temporary directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The temporary directory, which stays as long as anyone has it: for a program that outlives this host.
    pub fn directory(&self) -> Arc<tempfile::TempDir> {
        Arc::clone(&self.directory)
    }

    /// Writes a file into the temporary directory.
    ///
    /// # Panics
    ///
    /// Panics when it cannot.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).expect("a directory");
        }
        std::fs::write(&path, contents).expect("a file");
        path
    }

    /// The program, with this host's options, to which arguments may be added.
    pub fn command(&self) -> Command {
        let mut command = Command::new(host_program());
        command.current_dir(self.path()).env_clear().stdin(Stdio::null());
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.arg("--plugins").arg(&self.plugins);
        // One cache for all tests: each plugin is compiled once.
        command.arg("--cache-dir").arg(workspace().join("target/test-cache"));
        command.arg("--state-dir").arg(self.path().join("state"));
        for policy in &self.policies {
            command.arg("--policy").arg(policy);
        }
        command
    }

    /// Runs the program with further arguments.
    ///
    /// # Panics
    ///
    /// Panics when it cannot be started, is killed, or writes something else than UTF-8.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        let output = self.command().args(arguments).output().expect("the program starts");
        Ran {
            code: output.status.code().expect("the program ends by itself"),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    /// `call TOOL --args ARGUMENTS --json`: the exit code and the document.
    ///
    /// # Panics
    ///
    /// Panics when the program prints something else than one JSON document.
    pub fn call(&self, tool: &str, arguments: &Value) -> (i32, Value) {
        let ran = self.run(&["call", tool, "--args", &arguments.to_string(), "--json"]);
        let document = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        (ran.code, document)
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}
