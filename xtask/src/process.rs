//! Running commands, and saying so.

use std::io::Write as _;
use std::process::Command;

use anyhow::{Context as _, bail};

/// Writes a line to stderr.
pub(crate) fn say(line: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = writeln!(stderr, "{line}");
}

/// Runs a command, shown first; fails when it fails.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    say(&format!("$ {}", display(command)));
    let status = command.status().with_context(|| format!("cannot start `{}`", command.get_program().to_string_lossy()))?;
    if !status.success() {
        bail!("`{}` ended with {status}", display(command));
    }
    Ok(())
}

fn display(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// The cargo that runs this task, without what it told this task about itself: a build script that looks at such variables would
/// run again each time that cargo is called from a shell and from here in turn, and rebuild half of the tree.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command
}
