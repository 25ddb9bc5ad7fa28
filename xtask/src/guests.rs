//! Builds guests (plugins, and guests for tests) to WebAssembly components.
//!
//! Guests have a target directory of their own, `target/guests`: they are built by a cargo within a cargo, which would otherwise wait
//! for the lock, and perhaps by another compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

mod inputs;
mod toolchain;

use toolchain::Toolchain;

use crate::process::say;

/// The target that makes components.
const TARGET: &str = "wasm32-wasip2";

/// Builds every plugin into `target/plugins/NAME.wasm`.
pub(crate) fn build_plugins(root: &Path) -> Result<()> {
    let packages = inputs::packages(root)?;
    let plugins = root.join("plugins");
    let names: Vec<&str> = packages.iter().filter(|package| package.dir.starts_with(&plugins)).map(|p| p.name.as_str()).collect();
    build_guest_packages(root, &names, &root.join("target/plugins"))
}

/// Where the guests that tests use are built.
pub(crate) const TEST_GUESTS: &str = "target/test-guests";

/// Builds every plugin, and the guests of the tests.
pub(crate) fn build_all(root: &Path) -> Result<()> {
    build_plugins(root)?;
    let packages = inputs::packages(root)?;
    let guests = root.join("tests/guests");
    let names: Vec<&str> = packages.iter().filter(|package| package.dir.starts_with(&guests)).map(|p| p.name.as_str()).collect();
    build_guest_packages(root, &names, &root.join(TEST_GUESTS))
}

/// Builds packages of the workspace into `OUT_DIR/NAME.wasm`. Does nothing when nothing has changed since the last time.
pub(crate) fn build_guest_packages(root: &Path, names: &[&str], out_dir: &Path) -> Result<()> {
    ensure!(!names.is_empty(), "there is no package to build");
    let guests = root.join("target/guests");
    fs::create_dir_all(&guests).with_context(|| format!("cannot create `{}`", guests.display()))?;
    fs::create_dir_all(out_dir).with_context(|| format!("cannot create `{}`", out_dir.display()))?;

    let outputs: Vec<PathBuf> = names.iter().map(|name| out_dir.join(format!("{name}.wasm"))).collect();
    let stamp = guests.join(format!("stamp-{:016x}", inputs::hash(&(names, out_dir))));
    let fingerprint = inputs::fingerprint(root, names)?;
    if outputs.iter().all(|path| path.is_file()) && fs::read_to_string(&stamp).is_ok_and(|text| text == fingerprint) {
        say(&format!("guests: {} components in {} are up to date", names.len(), shown(root, out_dir)));
        return Ok(());
    }

    let toolchain = Toolchain::find(root)?;
    say(&format!("guests: using {}", toolchain.description()));
    let started = Instant::now();
    build(root, &guests, &toolchain, names)?;
    for (name, output) in names.iter().zip(&outputs) {
        let built = guests.join(TARGET).join("plugin").join(format!("{}.wasm", name.replace('-', "_")));
        let size = install(&built, output)?;
        say(&format!("guests: {} ({} KiB)", shown(root, output), size.div_ceil(1024)));
    }
    // Only now: an interrupted build is done again.
    fs::write(&stamp, fingerprint).with_context(|| format!("cannot write `{}`", stamp.display()))?;
    say(&format!("guests: built {} components in {:.1} s", names.len(), started.elapsed().as_secs_f64()));
    Ok(())
}

fn build(root: &Path, guests: &Path, toolchain: &Toolchain, names: &[&str]) -> Result<()> {
    let mut command = toolchain.cargo();
    let has_std = guests.join("has-std");
    if toolchain.builds_std() && !has_std.exists() {
        say("guests: the first build compiles the standard library too; about 2 minutes on 2 cores");
    }
    command.current_dir(root).args(["build", "--profile", "plugin", "--target", TARGET, "--lib", "--target-dir"]).arg(guests);
    for name in names {
        command.args(["--package", name]);
    }
    let status = command.status().with_context(|| format!("cannot start `{}`", command.get_program().display()))?;
    if !status.success() {
        bail!("the build of {} for {TARGET} failed ({status}); the compiler's messages are above", names.join(", "));
    }
    if toolchain.builds_std() {
        fs::write(&has_std, "").with_context(|| format!("cannot write `{}`", has_std.display()))?;
    }
    Ok(())
}

/// Copies a component to where hosts look for it. A host that loads it meanwhile sees the old file or the new one, never a half.
fn install(built: &Path, output: &Path) -> Result<usize> {
    let bytes = fs::read(built).with_context(|| format!("cannot read `{}`; is the package a `cdylib`?", built.display()))?;
    // The binary format's layer field: 0 is a core module, 1 a component.
    ensure!(bytes.get(4..8) == Some(&[0x0d, 0, 1, 0]), "`{}` is not a component", built.display());
    if fs::read(output).is_ok_and(|old| old == bytes) {
        return Ok(bytes.len());
    }
    let temporary = output.with_extension(format!("wasm.{}.tmp", std::process::id()));
    fs::write(&temporary, &bytes).with_context(|| format!("cannot write `{}`", temporary.display()))?;
    fs::rename(&temporary, output).with_context(|| format!("cannot replace `{}`", output.display()))?;
    Ok(bytes.len())
}

fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

/// A command without what an outer cargo has set for the crate it is building or running.
fn clean_command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in
        ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET", "CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "RUSTC", "RUSTC_WRAPPER", "CARGO"]
    {
        command.env_remove(name);
    }
    command
}
