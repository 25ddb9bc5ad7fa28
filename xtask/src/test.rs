//! `cargo xtask test` and `cargo xtask ci`.

use std::path::Path;
use std::time::Instant;

use crate::process::{cargo, run, say};
use crate::{clients, guests, languages, mcp};

/// Builds the plugins and runs every test. `filters` go to the test binaries.
pub(crate) fn test(root: &Path, filters: &[&str]) -> anyhow::Result<()> {
    let start = Instant::now();
    guests::build_all(root)?;
    // The tests run the program, and `cargo test` does not build it.
    run(cargo().current_dir(root).args(["build", "--workspace", "--bin", "honeycomb-host"]))?;
    languages::build(root)?;
    clients::install(root)?;
    mcp::install(root)?;
    let mut command = cargo();
    command.current_dir(root).args(["test", "--workspace"]);
    if !filters.is_empty() {
        command.arg("--").args(filters);
    }
    run(&mut command)?;
    say(&format!("all tests passed in {} s", start.elapsed().as_secs()));
    Ok(())
}

/// Everything that a change must pass.
pub(crate) fn ci(root: &Path) -> anyhow::Result<()> {
    let start = Instant::now();
    run(cargo().current_dir(root).args(["fmt", "--all", "--check"]))?;
    test(root, &[])?;
    run(cargo().current_dir(root).args(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    // The whole workspace each time: another selection has other features, and would build wasmtime once more.
    let mut doc = cargo();
    doc.current_dir(root).env("RUSTDOCFLAGS", "--deny warnings").args(["doc", "--workspace", "--no-deps"]);
    run(&mut doc)?;
    say(&format!("all checks passed in {} s", start.elapsed().as_secs()));
    Ok(())
}
