//! Builds the components in `tests/typed`, which other people's compilers make: Python, JavaScript, and Rust without the SDK.
//!
//! The compilers come from PyPI and npm, in the versions that `requirements.txt` and `package.json` there say, into
//! `target/typed`. Where there is no Python or Node, or no network, a language is skipped, and the tests
//! say so.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use crate::guests::build_guest_packages;
use crate::process::say;

mod docs;

/// The world in `tests/typed/wit` that the components are of.
const WORLD: &str = "tools";

/// What became of one language.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The component is there.
    Built(PathBuf),
    /// This machine cannot make it; the reason.
    Skipped(String),
}

/// Why a language has no component.
pub(crate) enum Failure {
    /// The machine lacks something.
    Missing(String),
    /// The component cannot be built, though everything is there.
    Broken(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Broken(error.into())
    }
}

/// Builds `target/typed/{python,javascript,typed-rust}.wasm`; what has not changed since the last time is left alone.
///
/// A skipped language leaves its reason in `NAME.skipped` in place of `NAME.wasm`, where its tests find it.
pub(crate) fn build(root: &Path) -> Result<Vec<(&'static str, Outcome)>> {
    let out = root.join("target/typed");
    fs::create_dir_all(&out).with_context(|| format!("cannot create `{}`", out.display()))?;
    let mut outcomes = Vec::new();
    for (name, make) in [("python", python as Make), ("javascript", javascript)] {
        outcomes.push((name, language(root, &out, name, make)?));
    }
    build_guest_packages(root, &["typed-rust"], &out)?;
    outcomes.push(("typed-rust", Outcome::Built(with_docs(root, out.join("typed-rust.wasm"))?)));
    for (name, outcome) in &outcomes {
        match outcome {
            Outcome::Built(path) => say(&format!("languages: {name}: {}", path.strip_prefix(root).unwrap_or(path).display())),
            Outcome::Skipped(reason) => say(&format!("languages: {name}: SKIPPED: {reason}")),
        }
    }
    Ok(outcomes)
}

/// Makes a component: workspace, output directory, output file.
type Make = fn(&Path, &Path, &Path) -> Result<(), Failure>;

fn language(root: &Path, out: &Path, name: &str, make: Make) -> Result<Outcome> {
    let (wasm, stamp, skipped) =
        (out.join(format!("{name}.wasm")), out.join(format!("{name}.stamp")), out.join(format!("{name}.skipped")));
    let fingerprint = fingerprint(root, name)?;
    if wasm.is_file() && fs::read_to_string(&stamp).is_ok_and(|text| text == fingerprint) {
        return Ok(Outcome::Built(wasm));
    }
    // An old component must not pass for a new one.
    for stale in [&wasm, &stamp, &skipped] {
        let _ = fs::remove_file(stale);
    }
    say(&format!("languages: {name}: building; the first time downloads a compiler"));
    let started = Instant::now();
    match make(root, out, &wasm) {
        Ok(()) => {
            let wasm = with_docs(root, wasm)?;
            fs::write(&stamp, fingerprint)?;
            let megabytes = fs::metadata(&wasm)?.len() / 1_000_000;
            say(&format!("languages: {name}: {megabytes} MB in {:.0} s", started.elapsed().as_secs_f64()));
            Ok(Outcome::Built(wasm))
        }
        Err(Failure::Missing(reason)) => {
            fs::write(&skipped, &reason)?;
            Ok(Outcome::Skipped(reason))
        }
        Err(Failure::Broken(error)) => Err(error.context(format!("cannot build the {name} component"))),
    }
}

fn python(root: &Path, out: &Path, wasm: &Path) -> Result<(), Failure> {
    let source = root.join("tests/typed/python");
    let environment = out.join("python-env");
    let program = environment.join("bin/componentize-py");
    if !program.is_file() {
        present("python3")?;
        obtain(Command::new("python3").args(["-m", "venv"]).arg(&environment), "Python's `venv`")?;
        let mut pip = Command::new(environment.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "--timeout", "20", "--retries", "1", "--requirement"]);
        obtain(pip.arg(source.join("requirements.txt")), "componentize-py")?;
    }
    // A copy, for Python leaves its caches beside the source.
    fs::copy(source.join("app.py"), environment.join("app.py"))?;
    let mut command = Command::new(program);
    command.args(["--quiet", "--world", WORLD, "--wit-path"]).arg(root.join("tests/typed/wit"));
    command.arg("componentize").arg("--python-path").arg(&environment).arg("app").arg("--output").arg(wasm);
    Ok(compile(&mut command)?)
}

fn javascript(root: &Path, out: &Path, wasm: &Path) -> Result<(), Failure> {
    let source = root.join("tests/typed/javascript");
    let environment = out.join("javascript-env");
    if !environment.join("node_modules/@bytecodealliance/componentize-js").is_dir() {
        present("node")?;
        present("npm")?;
        fs::create_dir_all(&environment)?;
        fs::copy(source.join("package.json"), environment.join("package.json"))?;
        let mut npm = Command::new("npm");
        npm.current_dir(&environment).args(["install", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=60000"]);
        obtain(&mut npm, "componentize-js")?;
    }
    // Imports are looked up from where the script is.
    fs::copy(source.join("build.js"), environment.join("build.js"))?;
    let mut command = Command::new("node");
    command.current_dir(&environment).arg("build.js").arg(source.join("app.js")).arg(root.join("tests/typed/wit")).arg(wasm);
    Ok(compile(&mut command)?)
}

/// Whether a program is there.
pub(crate) fn present(program: &str) -> Result<(), Failure> {
    match Command::new(program).arg("--version").output() {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err(Failure::Missing(format!("there is no `{program}`"))),
    }
}

/// Runs a command that fetches a compiler. When it fails, the language is skipped: it needs a network.
pub(crate) fn obtain(command: &mut Command, what: &str) -> Result<(), Failure> {
    let output = command.output().map_err(|error| Failure::Missing(format!("{what}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let last = words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message").to_owned();
    Err(Failure::Missing(format!("{what} could not be installed: {last}")))
}

/// Runs a compiler on our own source. When it fails, its words are in the error.
fn compile(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot start `{}`", command.get_program().display()))?;
    if !output.status.success() {
        let words = [output.stdout, output.stderr].concat();
        bail!("`{}` ended with {}:\n{}", command.get_program().display(), output.status, String::from_utf8_lossy(&words));
    }
    Ok(())
}

/// Adds the doc comments of the WIT to a component, as `wit-docs-inject` does: none of the compilers keeps them.
fn with_docs(root: &Path, wasm: PathBuf) -> Result<PathBuf> {
    let wit = fs::read_to_string(root.join("tests/typed/wit/typed.wit"))?;
    let mut bytes = fs::read(&wasm).with_context(|| format!("cannot read `{}`", wasm.display()))?;
    ensure!(bytes.get(4..8) == Some(&[0x0d, 0, 1, 0]), "`{}` is not a component", wasm.display());
    let section = docs::section(&wit);
    if !bytes.ends_with(&section) {
        bytes.extend_from_slice(&section);
        fs::write(&wasm, bytes)?;
    }
    Ok(wasm)
}

/// A text that changes when anything that a component is made from changes.
fn fingerprint(root: &Path, name: &str) -> Result<String> {
    let mut files = vec![root.join("xtask/src/languages.rs"), root.join("xtask/src/languages/docs.rs")];
    for directory in ["tests/typed/wit", "tests/typed/wit/deps", &format!("tests/typed/{name}")] {
        for entry in fs::read_dir(root.join(directory)).with_context(|| format!("cannot read `{directory}`"))? {
            let path = entry?.path();
            if path.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.strip_prefix(root).unwrap_or(&file).hash(&mut hasher);
        fs::read(&file).with_context(|| format!("cannot read `{}`", file.display()))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}\n", hasher.finish()))
}
