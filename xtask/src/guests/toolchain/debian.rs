//! Debian's Rust, for machines where rustup cannot reach its server.
//!
//! Debian has no `wasm32-wasip2` standard library, but it has the source of one and a C library for it. The linker that makes
//! components comes from rustup's toolchain.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::super::{TARGET, clean_command};
use crate::process::say;

/// The oldest Rust that builds the workspace: `rust-version` in Cargo.toml.
const OLDEST: (u32, u32) = (1, 95);

/// Sets of packages to try, newest first: compiler, cargo, source of the standard library.
///
/// `-web` packages follow upstream for browsers in a stable release; the plain ones are as old as the release.
const PACKAGES: [[&str; 3]; 2] = [["rustc-web", "cargo-web", "rust-web-src"], ["rustc", "cargo", "rust-src"]];

/// Where the C library may be, by release.
const LIBC: [&str; 3] = ["/usr/lib/wasm32-wasip2", "/usr/lib/wasm32-wasi", "/usr/lib/wasm32-wasip1"];

/// What a build needs, all of it found.
pub(in super::super) struct Debian {
    rustc: PathBuf,
    cargo: PathBuf,
    version: String,
    libc: PathBuf,
    component_linker: PathBuf,
    linker: PathBuf,
}

impl Debian {
    /// Looks for all that a build needs; the error names what is missing.
    pub(super) fn find(rustup_sysroot: &Path) -> Result<Self> {
        let (rustc, cargo) = (PathBuf::from("/usr/bin/rustc"), PathBuf::from("/usr/bin/cargo"));
        ensure!(rustc.is_file() && cargo.is_file(), "`{}` or `{}` is missing", rustc.display(), cargo.display());
        let version = first_line(clean_command(&rustc).arg("-V"))?;
        let number = version.split_whitespace().nth(1).and_then(parse_version);
        ensure!(
            number.is_some_and(|n| n >= OLDEST),
            "`{}` is too old: {version}; {}.{} is needed",
            rustc.display(),
            OLDEST.0,
            OLDEST.1
        );
        let sysroot = PathBuf::from(first_line(clean_command(&rustc).args(["--print", "sysroot"]))?);
        let source = sysroot.join("lib/rustlib/src/rust/library/std/Cargo.toml");
        ensure!(source.is_file(), "the source of the standard library is missing: `{}`", source.display());
        let libc = LIBC.iter().map(PathBuf::from).find(|dir| dir.join("libc.a").is_file());
        let libc = libc.with_context(|| format!("the C library for wasm is missing: `libc.a` in one of {}", LIBC.join(", ")))?;

        let host = first_line(clean_command("rustc").args(["--print", "host-tuple"]))?;
        let bin = rustup_sysroot.join("lib/rustlib").join(host).join("bin");
        let (component_linker, linker) = (bin.join("wasm-component-ld"), bin.join("gcc-ld/wasm-ld"));
        for file in [&component_linker, &linker] {
            ensure!(file.is_file(), "the default toolchain has no `{}`", file.display());
        }
        Ok(Self { rustc, cargo, version, libc, component_linker, linker })
    }

    pub(super) fn description(&self) -> String {
        format!("Debian's {}, which builds the standard library for {TARGET} from source", self.version)
    }

    pub(super) fn cargo(&self) -> Command {
        let mut command = clean_command(&self.cargo);
        command
            .env("RUSTC", &self.rustc)
            // `-Z build-std` is not stable.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_TARGET_WASM32_WASIP2_LINKER", &self.component_linker)
            .env(
                "CARGO_TARGET_WASM32_WASIP2_RUSTFLAGS",
                format!(
                    "-L native={} -C link-self-contained=no -C link-arg=--wasm-ld-path={}",
                    self.libc.display(),
                    self.linker.display()
                ),
            )
            .arg("-Zbuild-std=std,panic_abort");
        command
    }
}

/// Installs the packages, as root on a Debian that has them in a new enough version.
pub(super) fn install() -> Result<()> {
    ensure!(Path::new("/etc/debian_version").exists(), "this is not a Debian");
    ensure!(first_line(Command::new("id").arg("-u"))? == "0", "installing packages takes root");
    say("guests: installing Debian's Rust: apt-get update");
    apt(&["update"])?;
    for set in PACKAGES {
        let Some(version) = candidate(set[0])? else { continue };
        if parse_version(&version).is_none_or(|number| number < OLDEST) {
            say(&format!("guests: Debian's {} {version} is older than {}.{}", set[0], OLDEST.0, OLDEST.1));
            continue;
        }
        say(&format!("guests: apt-get install {} wasi-libc", set.join(" ")));
        return apt(&["install", "-y", "--no-install-recommends", set[0], set[1], set[2], "wasi-libc"]);
    }
    bail!("no package has Rust {}.{} or newer", OLDEST.0, OLDEST.1)
}

fn apt(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.args(["-q", "-o", "DPkg::Lock::Timeout=120"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    // What it says is progress, and stdout is for results.
    let output = command.output().context("`apt-get` cannot be started")?;
    if !output.status.success() {
        bail!("`apt-get {}` failed ({}): {}", arguments[0], output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// The version of a package that would be installed, if there is one.
fn candidate(package: &str) -> Result<Option<String>> {
    let output = Command::new("apt-cache")
        .args(["policy", package])
        .env("LC_ALL", "C")
        .output()
        .context("`apt-cache` cannot be started")?;
    Ok(parse_candidate(&String::from_utf8_lossy(&output.stdout)).map(str::to_owned))
}

fn parse_candidate(policy: &str) -> Option<&str> {
    let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    (version != "(none)").then_some(version)
}

/// Major and minor of `1.96.0`, `1.96.0+dfsg1-1~deb12u2` or `2:1.96.0-1`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let text = text.split_once(':').map_or(text, |(_epoch, rest)| rest);
    let mut numbers = text.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn first_line(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start `{}`", command.get_program().display()))?;
    ensure!(output.status.success(), "`{}` failed ({})", command.get_program().display(), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions_as_debian_writes_them() {
        for (text, expected) in [
            ("1.96.0", Some((1, 96))),
            ("1.96.0+dfsg1-1~deb12u2", Some((1, 96))),
            ("2:1.101.3-1", Some((1, 101))),
            ("1.63.0+dfsg1-2", Some((1, 63))),
            ("(none)", None),
            ("", None),
        ] {
            assert_eq!(parse_version(text), expected, "{text}");
        }
    }

    #[test]
    fn reads_what_apt_would_install() {
        let policy = "rustc-web:\n  Installed: (none)\n  Candidate: 1.96.0+dfsg1-1~deb12u2\n  Version table:\n";
        assert_eq!(parse_candidate(policy), Some("1.96.0+dfsg1-1~deb12u2"));
        assert_eq!(parse_candidate("x:\n  Installed: (none)\n  Candidate: (none)\n"), None);
        assert_eq!(parse_candidate(""), None);
    }
}
