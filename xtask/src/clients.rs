//! Installs the official Python clients of the model providers, from PyPI into `target/clients`: the tests' model server must please them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::languages::{Failure, obtain, present};
use crate::process::say;

/// Makes `target/clients/env`; what is there in the versions of `requirements.txt` is left alone.
///
/// Where there is no Python or no network, the reason is left in `target/clients/skipped`, where the tests find it.
pub(crate) fn install(root: &Path) -> Result<()> {
    let out = root.join("target/clients");
    fs::create_dir_all(&out).with_context(|| format!("cannot create `{}`", out.display()))?;
    let requirements = root.join("tests/clients/requirements.txt");
    let wanted = fs::read_to_string(&requirements).with_context(|| format!("cannot read `{}`", requirements.display()))?;
    let (environment, stamp, skipped) = (out.join("env"), out.join("stamp"), out.join("skipped"));
    if environment.join("bin/python").is_file() && fs::read_to_string(&stamp).is_ok_and(|text| text == wanted) {
        say("clients: up to date");
        return Ok(());
    }
    for stale in [&stamp, &skipped] {
        let _ = fs::remove_file(stale);
    }
    match make(&environment, &requirements) {
        Ok(()) => {
            say("clients: installed into target/clients/env");
            fs::write(stamp, wanted).context("cannot write the stamp of the clients")
        }
        Err(Failure::Missing(reason)) => {
            say(&format!("clients: SKIPPED: {reason}"));
            fs::write(skipped, reason).context("cannot write why there are no clients")
        }
        Err(Failure::Broken(error)) => Err(error),
    }
}

fn make(environment: &Path, requirements: &Path) -> Result<(), Failure> {
    present("python3")?;
    obtain(Command::new("python3").args(["-m", "venv"]).arg(environment), "Python's `venv`")?;
    let mut pip = Command::new(environment.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--timeout", "20", "--retries", "1", "--requirement"]);
    obtain(pip.arg(requirements), "the clients")
}
