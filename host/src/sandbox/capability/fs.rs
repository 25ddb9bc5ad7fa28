//! Directories of the host that a policy mounts into a guest.
//!
//! Guests touch files only through `wasmtime-wasi`, which resolves every path beneath the mount's own descriptor (`openat2` with
//! `RESOLVE_BENEATH` on Linux) and enforces read-only mounts. This file decides what may be mounted, and keeps special files shut.

use std::io;
use std::path::{Component, Path, PathBuf};

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemCtx, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    self, DescriptorFlags, DescriptorType, ErrorCode as FsCode, HostDescriptor, OpenFlags, PathFlags,
};
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

use crate::policy::{FsGrant, FsMode};
use crate::sandbox::state::HostState;
use crate::text;
use crate::tool::{ErrorCode, Failure};

/// Why a directory cannot be mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// It is not there, or cannot be opened.
    #[error("cannot open the directory `{}` for the mount `{guest}` ({rule})", host.display())]
    Open {
        /// The directory.
        host: PathBuf,
        /// The mount's path in the guest.
        guest: String,
        /// The policy's file and line.
        rule: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It is a file, or something else.
    #[error("`{}` is not a directory, so it cannot be the mount `{guest}` ({rule})", host.display())]
    NotADirectory {
        /// The path.
        host: PathBuf,
        /// The mount's path in the guest.
        guest: String,
        /// The policy's file and line.
        rule: String,
    },
    /// Mounting it hands over the machine or a person's files.
    #[error("`{}` is {what}, too much for the mount `{guest}` ({rule})", host.display())]
    Dangerous {
        /// The directory, links resolved.
        host: PathBuf,
        /// What it is.
        what: &'static str,
        /// The mount's path in the guest.
        guest: String,
        /// The policy's file and line.
        rule: String,
    },
    /// Mounting it would let a plugin change its own rights, or read what only the host may.
    #[error("`{}` holds {what}, or lies in it, so it cannot be the mount `{guest}` ({rule})", host.display())]
    Protected {
        /// The directory, links resolved.
        host: PathBuf,
        /// What it holds.
        what: &'static str,
        /// The mount's path in the guest.
        guest: String,
        /// The policy's file and line.
        rule: String,
    },
    /// A read-only mount could be written to through another one.
    #[error("the read-only mount `{read_only}` and the writable mount `{writable}` overlap on the host ({rule})")]
    Overlap {
        /// The read-only mount's path in the guest.
        read_only: String,
        /// The writable one's.
        writable: String,
        /// The policy's file and line.
        rule: String,
    },
}

impl MountError {
    /// What would put it right.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Open { .. } => "make the directory, or correct `host` in the policy",
            Self::NotADirectory { .. } => "mount the directory that holds it",
            Self::Dangerous { .. } => "mount a directory inside it, or say `dangerous = true` if you mean it",
            Self::Protected { .. } => "mount another directory; `dangerous = true` does not allow this one",
            Self::Overlap { .. } => "mount directories that do not contain each other, or give both the same `mode`",
        }
    }
}

/// A path of the host that no mount may hand to a guest.
#[derive(Clone, Debug)]
pub struct Protected {
    /// The file or directory. One that is not there yet is protected where it will be.
    pub path: PathBuf,
    /// What it is, for the message.
    pub what: &'static str,
    /// The most that a guest may do there: nothing, if it may not even be read.
    pub readable: bool,
}

impl Protected {
    /// What a mount of `host` would hand over, if it may not be.
    fn forbids(&self, host: &Path, mode: FsMode) -> Option<&'static str> {
        // Where it is, and, if it is a link, where the link is: replacing that would do as well.
        let place = match (self.path.parent(), self.path.file_name()) {
            (Some(parent), Some(name)) => resolve(if parent.as_os_str().is_empty() { Path::new(".") } else { parent }).join(name),
            _ => self.path.clone(),
        };
        let touches = [resolve(&self.path), place].iter().any(|path| host.starts_with(path) || path.starts_with(host));
        (touches && (mode == FsMode::ReadWrite || !self.readable)).then_some(self.what)
    }
}

/// A path with its links resolved, as far as it is there.
fn resolve(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    let mut known = path;
    loop {
        if let Ok(found) = known.canonicalize() {
            return missing.iter().rev().fold(found, |path, name| path.join(name));
        }
        match (known.parent(), known.file_name()) {
            (Some(parent), Some(name)) => {
                missing.push(name);
                known = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            }
            _ => return path.to_owned(),
        }
    }
}

/// Opens every mount of a plugin, once: each call shares the descriptors, so that a path which is swapped later changes nothing.
///
/// Paths are compared as they really are, links resolved: what the policy's own checks saw was their spelling.
pub(in crate::sandbox) fn open_mounts(grants: &[FsGrant], protected: &[Protected]) -> Result<WasiFilesystemCtx, MountError> {
    let mut builder = WasiCtxBuilder::new();
    let mut opened: Vec<(PathBuf, &FsGrant)> = Vec::new();
    for grant in grants {
        let (guest, rule) = (grant.guest.clone(), grant.rule.to_string());
        let open = |source| MountError::Open { host: grant.host.clone(), guest: guest.clone(), rule: rule.clone(), source };
        let host = grant.host.canonicalize().map_err(open)?;
        if !host.metadata().map_err(open)?.is_dir() {
            return Err(MountError::NotADirectory { host, guest, rule });
        }
        if let Some(what) = protected.iter().find_map(|protected| protected.forbids(&host, grant.mode)) {
            return Err(MountError::Protected { host, what, guest, rule });
        }
        if let Some(what) = danger(&host)
            && !grant.dangerous
        {
            return Err(MountError::Dangerous { host, what, guest, rule });
        }
        for (other, other_grant) in &opened {
            let nested = host.starts_with(other) || other.starts_with(&host);
            if nested && other_grant.mode != grant.mode && !grant.dangerous {
                let (read_only, writable) =
                    if grant.mode == FsMode::ReadOnly { (grant, *other_grant) } else { (*other_grant, grant) };
                return Err(MountError::Overlap { read_only: read_only.guest.clone(), writable: writable.guest.clone(), rule });
            }
        }
        let perms = match grant.mode {
            FsMode::ReadOnly => FsPerms::ReadOnly,
            FsMode::ReadWrite => FsPerms::ReadWrite,
        };
        builder.preopened_dir(&host, &grant.guest, perms).map_err(|error| open(io::Error::other(error.to_string())))?;
        opened.push((host, grant));
    }
    Ok(builder.build().filesystem().clone())
}

/// What makes a directory dangerous to mount, if anything.
fn danger(host: &Path) -> Option<&'static str> {
    let names: Vec<&str> = host
        .components()
        .filter_map(|part| if let Component::Normal(name) = part { Some(name.to_str().unwrap_or("?")) } else { None })
        .collect();
    match names.as_slice() {
        [] => Some("the whole file system"),
        ["proc" | "sys" | "dev", ..] => Some("part of the kernel's interface"),
        ["home" | "Users"] => Some("everybody's files"),
        ["root"] | ["home" | "Users", _] => Some("a home directory"),
        _ => None,
    }
}

/// Replaces `open-at`, so that special files stay shut and denials are noted.
///
/// Opening a named pipe blocks a thread until the other end comes, and no deadline frees that thread; a device does as it likes. The
/// check is a look before the open: a process of the host that swaps a file for a pipe in between still costs one thread.
pub(in crate::sandbox) fn add_to_linker(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    type Arguments = (Resource<Descriptor>, PathFlags, String, OpenFlags, DescriptorFlags);
    linker.allow_shadowing(true);
    linker.instance("wasi:filesystem/types@0.2.12")?.func_wrap_async(
        "[method]descriptor.open-at",
        |mut store: StoreContextMut<'_, HostState>, (directory, path_flags, path, open_flags, flags): Arguments| {
            Box::new(async move { Ok((open_at(store.data_mut(), directory, path_flags, path, open_flags, flags).await?,)) })
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

async fn open_at(
    state: &mut HostState,
    directory: Resource<Descriptor>,
    path_flags: PathFlags,
    path: String,
    open_flags: OpenFlags,
    flags: DescriptorFlags,
) -> wasmtime::Result<Result<Resource<Descriptor>, FsCode>> {
    if state.pace.due(path.len()) {
        tokio::task::yield_now().await;
    }
    let mut view = state.filesystem();
    let borrowed = Resource::new_borrow(directory.rep());
    if let Ok(stat) = view.stat_at(borrowed, path_flags, path.clone()).await
        && !matches!(stat.type_, DescriptorType::RegularFile | DescriptorType::Directory | DescriptorType::SymbolicLink)
    {
        deny(state, &format!("`{}` is a device, a pipe or a socket", text::clean_line(&path, 200)), "mount plain files only");
        return Ok(Err(FsCode::NotPermitted));
    }
    let shown = text::clean_line(&path, 200);
    let mut view = state.filesystem();
    match view.open_at(directory, path_flags, path, open_flags, flags).await {
        Ok(descriptor) => Ok(Ok(descriptor)),
        Err(error) => {
            let code = types::Host::convert_error_code(&mut view, error)?;
            if code == FsCode::NotPermitted {
                let hint = "stay inside the mount; to write, the mount needs `mode = \"rw\"` in the policy";
                deny(state, &format!("the plugin may not open `{shown}` that way"), hint);
            }
            Ok(Err(code))
        }
    }
}

fn deny(state: &HostState, message: &str, hint: &str) {
    let message = format!("`{}`: {message}", state.bound.id);
    state.meter.denied(Failure::new(ErrorCode::CAP_DENIED, message).hint(hint));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::RuleRef;

    fn grant(host: &Path, guest: &str, mode: FsMode) -> FsGrant {
        let rule = RuleRef { file: "policy.toml".into(), line: 7 };
        FsGrant { host: host.to_owned(), guest: guest.to_owned(), mode, dangerous: false, rule }
    }

    #[test]
    fn knows_what_is_too_much() {
        for (path, dangerous) in [
            ("/", true),
            ("/proc", true),
            ("/proc/1/root", true),
            ("/sys/kernel", true),
            ("/dev/shm", true),
            ("/home", true),
            ("/home/ann", true),
            ("/root", true),
            ("/Users/ann", true),
            ("/home/ann/notes", false),
            ("/srv/data", false),
            ("/root/data", false),
            ("/devices", false),
        ] {
            assert_eq!(danger(Path::new(path)).is_some(), dangerous, "{path}");
        }
    }

    #[test]
    fn refuses_what_is_missing_a_file_or_dangerous_and_says_where() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/proc", &link).unwrap();
        for (host, expected) in [
            (directory.path().join("missing"), "cannot open the directory"),
            (file, "is not a directory"),
            (PathBuf::from("/"), "is the whole file system"),
            (link, "`/proc` is part of the kernel's interface"),
        ] {
            let Err(error) = open_mounts(&[grant(&host, "/data", FsMode::ReadOnly)], &[]) else { panic!("{}", host.display()) };
            let message = error.to_string();
            assert!(message.contains(expected) && message.contains("policy.toml:7"), "{message}");
        }
        let dangerous = FsGrant { dangerous: true, ..grant(Path::new("/proc"), "/data", FsMode::ReadOnly) };
        assert!(open_mounts(&[dangerous], &[]).is_ok());
    }

    #[test]
    fn refuses_mounts_that_overlap_through_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let grants = [grant(&real, "/ro", FsMode::ReadOnly), grant(&link, "/rw", FsMode::ReadWrite)];
        assert!(matches!(open_mounts(&grants, &[]), Err(MountError::Overlap { .. })));
        let grants = [grant(&real, "/a", FsMode::ReadOnly), grant(&link, "/b", FsMode::ReadOnly)];
        assert!(open_mounts(&grants, &[]).is_ok());
    }
}
