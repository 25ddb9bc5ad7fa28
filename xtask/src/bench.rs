//! `cargo xtask bench`.

use std::path::Path;
use std::process::Command;

use crate::guests;
use crate::process::{cargo, run};

/// Measures in one process, arms interleaved. `rest` goes to the benchmark, such as `--rounds 50`.
pub(crate) fn bench(root: &Path, rest: &[&str]) -> anyhow::Result<()> {
    guests::build_all(root)?;
    run(cargo().current_dir(root).args(["build", "--workspace", "--bin", "bench", "--bin", "honeycomb-host"]))?;
    run(Command::new(root.join("target/debug/bench")).current_dir(root).args(rest))
}
