//! A compiler for `wasm32-wasip2`: found, fetched, or made of what the system has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{TARGET, clean_command};
use crate::process::say;

mod debian;

use debian::Debian;

/// How long `rustup target add` may take. It downloads about 25 MB; where its server cannot be reached it may hang.
const RUSTUP_TIMEOUT: Duration = Duration::from_secs(60);

/// Names the compiler to take: `auto`, `installed` or `debian`.
pub(super) const CHOICE: &str = "HONEYCOMB_GUEST_TOOLCHAIN";

/// A compiler for the target.
pub(super) enum Toolchain {
    /// The target is part of the default toolchain.
    Installed,
    /// The compiler and the standard library's source of Debian, with the linker of the default toolchain.
    Debian(Debian),
}

impl Toolchain {
    /// Takes the first that works: the installed target, `rustup target add`, Debian's packages. The environment variable
    /// [`CHOICE`] skips the others.
    pub(super) fn find(root: &Path) -> Result<Self> {
        let sysroot = sysroot()?;
        match std::env::var(CHOICE).as_deref() {
            Ok("debian") => return Self::find_debian(&sysroot),
            Ok("installed") if has_target(&sysroot) => return Ok(Self::Installed),
            Ok("installed") => bail!("`{CHOICE}` asks for the installed target {TARGET}, and it is not installed"),
            Ok("" | "auto") | Err(_) => {}
            Ok(other) => bail!("`{CHOICE}` is `{other}`; it can be `auto`, `installed` or `debian`"),
        }
        if has_target(&sysroot) {
            return Ok(Self::Installed);
        }
        let mut tried = vec![format!("the target {TARGET} is not installed in {}", sysroot.display())];

        // Where rustup has failed before and Debian's compiler is at hand, a minute of waiting would bring nothing.
        let failed_before = root.join("target/guests/rustup-failed");
        if failed_before.exists() && Debian::find(&sysroot).is_ok() {
            say(&format!(
                "guests: `rustup target add {TARGET}` failed before; delete `{}` to try again",
                failed_before.display()
            ));
        } else {
            match add_target() {
                Ok(()) if has_target(&sysroot) => return Ok(Self::Installed),
                Ok(()) => tried.push(format!("`rustup target add {TARGET}` succeeded, but not for {}", sysroot.display())),
                Err(error) => tried.push(format!("{error:#}")),
            }
            fs::write(&failed_before, tried.join("\n")).with_context(|| format!("cannot write `{}`", failed_before.display()))?;
        }

        Self::find_debian(&sysroot).or_else(|error| {
            tried.push(format!("{error:#}"));
            bail!(
                "there is no compiler for {TARGET}; tried:\n  - {}\nhint: run `rustup target add {TARGET}`, or on Debian, as root, \
                 `apt-get update && apt-get install --no-install-recommends rustc-web cargo-web rust-web-src wasi-libc`",
                tried.join("\n  - ")
            )
        })
    }

    fn find_debian(sysroot: &Path) -> Result<Self> {
        let debian = Debian::find(sysroot).or_else(|missing| {
            debian::install().with_context(|| format!("Debian's packages: {missing}"))?;
            Debian::find(sysroot)
        })?;
        Ok(Self::Debian(debian))
    }

    /// What was found, for people.
    pub(super) fn description(&self) -> String {
        match self {
            Self::Installed => format!("the installed target {TARGET}"),
            Self::Debian(debian) => debian.description(),
        }
    }

    /// Whether the standard library is compiled with the guest.
    pub(super) fn builds_std(&self) -> bool {
        matches!(self, Self::Debian(_))
    }

    /// A cargo that can build for the target; subcommand and package are up to the caller.
    pub(super) fn cargo(&self) -> Command {
        match self {
            Self::Installed => clean_command("cargo"),
            Self::Debian(debian) => debian.cargo(),
        }
    }
}

/// Where the default toolchain is.
fn sysroot() -> Result<PathBuf> {
    let output = clean_command("rustc").args(["--print", "sysroot"]).output().context("cannot start `rustc`")?;
    let text = String::from_utf8(output.stdout).context("`rustc --print sysroot` is not UTF-8")?;
    Ok(PathBuf::from(text.trim()))
}

fn has_target(sysroot: &Path) -> bool {
    fs::read_dir(sysroot.join("lib/rustlib").join(TARGET).join("lib")).is_ok_and(|mut entries| entries.next().is_some())
}

/// Runs `rustup target add`, and ends it when it takes too long.
fn add_target() -> Result<()> {
    say(&format!("guests: trying `rustup target add {TARGET}`, for at most {} s", RUSTUP_TIMEOUT.as_secs()));
    let mut child = clean_command("rustup")
        .args(["target", "add", TARGET])
        .stdin(Stdio::null())
        // rustup is no reader of progress bars here; its errors go through.
        .stdout(Stdio::null())
        .spawn()
        .context("`rustup` cannot be started")?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            if status.success() {
                return Ok(());
            }
            bail!("`rustup target add {TARGET}` failed ({status})");
        }
        if started.elapsed() > RUSTUP_TIMEOUT {
            child.kill()?;
            child.wait()?;
            bail!("`rustup target add {TARGET}` had not ended after {} s", RUSTUP_TIMEOUT.as_secs());
        }
        thread::sleep(Duration::from_millis(100));
    }
}
