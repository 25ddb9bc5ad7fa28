//! Files that decide on rights must be in nobody else's hands: whoever can write the policy, or swap it for another, has the rights.

use std::fs::Metadata;
use std::path::{Path, PathBuf};

/// A file that others can change, or put another one in the place of.
#[derive(Debug, thiserror::Error)]
#[error("`{}` {problem}\nhint: {hint}", path.display())]
pub(super) struct Untrusted {
    path: PathBuf,
    problem: String,
    hint: String,
}

/// Checks an open file, and each directory and link on the way to it: owned by this user or root, and written by nobody else.
///
/// A directory with the sticky bit, such as `/tmp`, may be written by all: what is in it belongs to its owner. A group may write only
/// if it is the user's own (its number is the user's, as where each user has a private group); others never.
#[cfg(unix)]
pub(super) fn check(path: &Path, opened: &Metadata) -> Result<(), Untrusted> {
    unix::check(path, opened, unix::Identity::of_this_process())
}

/// Checks what is at a path: see [`check`]. What is not there is no fault; whoever opens it says so better.
pub(super) fn check_path(path: &Path) -> Result<(), Untrusted> {
    std::fs::metadata(path).map_or(Ok(()), |metadata| check(path, &metadata))
}

#[cfg(not(unix))]
pub(super) fn check(_: &Path, _: &Metadata) -> Result<(), Untrusted> {
    Ok(())
}

#[cfg(unix)]
mod unix {
    use std::fs::{Metadata, symlink_metadata};
    use std::os::unix::fs::MetadataExt as _;
    use std::path::{Component, Path, PathBuf};

    use super::Untrusted;

    /// What Linux itself follows.
    const MAX_LINKS: usize = 40;
    const GROUP_WRITE: u32 = 0o020;
    const OTHER_WRITE: u32 = 0o002;
    const STICKY: u32 = 0o1000;

    #[derive(Clone, Copy)]
    pub(super) struct Identity {
        pub(super) user: u32,
        pub(super) group: u32,
    }

    impl Identity {
        pub(super) fn of_this_process() -> Self {
            Self { user: rustix::process::geteuid().as_raw(), group: rustix::process::getegid().as_raw() }
        }
    }

    pub(super) fn check(path: &Path, opened: &Metadata, who: Identity) -> Result<(), Untrusted> {
        // A pipe, say of a shell's `<(…)`, has no place where another could be put, and no mode that means anything.
        if !opened.is_file() && !opened.is_dir() {
            return owner(path, opened, who);
        }
        one(path, opened, who)?;
        let absolute = std::path::absolute(path).map_err(|error| unreadable(path, &error))?;
        way(&absolute, who, &mut 0)
    }

    /// Walks from the root to `path`, through every link.
    fn way(path: &Path, who: Identity, links: &mut usize) -> Result<(), Untrusted> {
        let mut place = PathBuf::new();
        for part in path.components() {
            match part {
                // Behind a link, `..` is the parent of where the link leads, which is what `place` holds by then.
                Component::ParentDir => {
                    place.pop();
                }
                Component::CurDir => {}
                part => place.push(part),
            }
            let metadata = symlink_metadata(&place).map_err(|error| unreadable(&place, &error))?;
            if !metadata.is_symlink() {
                one(&place, &metadata, who)?;
                continue;
            }
            // Links have no mode of their own: whoever may write the directory may change them.
            owner(&place, &metadata, who)?;
            *links += 1;
            if *links > MAX_LINKS {
                return Err(unreadable(path, &"too many links"));
            }
            let target = std::fs::read_link(&place).map_err(|error| unreadable(&place, &error))?;
            let parent = place.parent().unwrap_or(Path::new("/")).to_owned();
            way(&parent.join(target), who, links)?;
            place = place.canonicalize().map_err(|error| unreadable(&place, &error))?;
        }
        Ok(())
    }

    fn one(path: &Path, metadata: &Metadata, who: Identity) -> Result<(), Untrusted> {
        owner(path, metadata, who)?;
        let mode = metadata.mode();
        if metadata.is_dir() && mode & STICKY != 0 {
            return Ok(());
        }
        let private_group = metadata.gid() == who.group && who.group == who.user;
        let writers = match (mode & OTHER_WRITE != 0, mode & GROUP_WRITE != 0 && !private_group) {
            (true, _) => "everybody",
            (false, true) => "its group",
            (false, false) => return Ok(()),
        };
        Err(Untrusted {
            path: path.to_owned(),
            problem: format!(
                "can be written by {writers} (mode {:04o}), so it cannot be trusted to say who may do what",
                mode & 0o7777
            ),
            hint: format!("chmod go-w {}", quoted(path)),
        })
    }

    fn owner(path: &Path, metadata: &Metadata, who: Identity) -> Result<(), Untrusted> {
        let owner = metadata.uid();
        if owner == who.user || owner == 0 {
            return Ok(());
        }
        Err(Untrusted {
            path: path.to_owned(),
            problem: format!(
                "belongs to user {owner}, not to user {} or root, so it cannot be trusted to say who may do what",
                who.user
            ),
            hint: format!("chown {} {}, or run as its owner; then see to its mode, as with chmod go-w", who.user, quoted(path)),
        })
    }

    fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Untrusted {
        Untrusted {
            path: path.to_owned(),
            problem: format!("cannot be looked at to see who may write it: {error}"),
            hint: "check the path and the rights on its directories".to_owned(),
        }
    }

    fn quoted(path: &Path) -> String {
        format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
    }

    #[cfg(test)]
    mod tests {
        use std::fs::{self, Permissions};
        use std::os::unix::fs::{PermissionsExt as _, symlink};

        use super::*;

        fn check_as(path: &Path, who: Identity) -> Result<(), String> {
            let metadata = fs::metadata(path).expect("it is there");
            check(path, &metadata, who).map_err(|error| error.to_string())
        }

        fn chmod(path: &Path, mode: u32) {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
        }

        /// `dir/sub/policy.toml`, and who owns it.
        fn tree() -> (tempfile::TempDir, PathBuf, Identity) {
            let directory = tempfile::tempdir().expect("a directory");
            let sub = directory.path().join("sub");
            fs::create_dir(&sub).expect("a directory");
            let file = sub.join("policy.toml");
            fs::write(&file, "version = 1").expect("a file");
            chmod(&sub, 0o755);
            chmod(&file, 0o644);
            let user = fs::metadata(&file).expect("there").uid();
            (directory, file, Identity { user, group: fs::metadata(sub).expect("there").gid() })
        }

        #[test]
        fn a_file_that_others_can_write_is_refused() {
            let (_directory, file, who) = tree();
            let private = Identity { group: who.user, ..who };
            let shared = Identity { group: who.user + 1, ..who };
            for (mode, who, expected) in [
                (0o600, who, Ok(())),
                (0o644, who, Ok(())),
                (0o664, shared, Err("its group (mode 0664)")),
                (0o666, private, Err("everybody (mode 0666)")),
                (0o602, private, Err("everybody (mode 0602)")),
            ] {
                chmod(&file, mode);
                let found = check_as(&file, who);
                match expected {
                    Ok(()) => assert_eq!(found, Ok(()), "{mode:o}"),
                    Err(expected) => {
                        let error = found.expect_err(expected);
                        assert!(
                            error.contains(expected) && error.contains(&format!("hint: chmod go-w '{}'", file.display())),
                            "{error}"
                        );
                    }
                }
            }
            // A user's private group, as umask 002 leaves it: the group of the file is the user's, and bears the user's number.
            chmod(&file, 0o664);
            if fs::metadata(&file).expect("there").gid() == who.user {
                assert_eq!(check_as(&file, private), Ok(()));
            }
        }

        #[test]
        fn a_directory_on_the_way_that_others_can_write_is_refused() {
            let (directory, file, who) = tree();
            let shared = Identity { group: who.user + 1, ..who };
            for parent in [directory.path().to_owned(), directory.path().join("sub")] {
                for (mode, good) in [(0o777, false), (0o775, false), (0o757, false), (0o1777, true), (0o700, true), (0o755, true)]
                {
                    chmod(&parent, mode);
                    let found = check_as(&file, shared);
                    assert_eq!(found.is_ok(), good, "{mode:o} {}: {found:?}", parent.display());
                    if let Err(error) = found {
                        assert!(error.contains(&format!("chmod go-w '{}'", parent.display())), "{error}");
                    }
                }
            }
        }

        #[test]
        fn a_file_or_directory_of_somebody_else_is_refused() {
            let (_directory, file, who) = tree();
            let metadata = fs::metadata(&file).expect("there");
            let other = Identity { user: who.user + 1, group: who.group };
            let found = one(&file, &metadata, other);
            // Root's own files are everybody's to trust.
            assert_eq!(found.is_ok(), who.user == 0);
            if let Err(error) = found {
                assert!(error.to_string().contains("belongs to user"), "{error}");
            }
        }

        #[test]
        fn links_are_followed_and_every_directory_on_their_way_is_looked_at() {
            let (directory, file, who) = tree();
            let open = directory.path().join("open");
            fs::create_dir(&open).expect("a directory");
            chmod(&open, 0o777);
            // A link in a safe place to a file in an unsafe one, and the other way round; by a directory's link, too.
            fs::copy(&file, open.join("policy.toml")).expect("a copy");
            symlink("open/policy.toml", directory.path().join("to-unsafe")).expect("a link");
            symlink(&file, open.join("to-safe")).expect("a link");
            symlink("open", directory.path().join("directory-link")).expect("a link");
            symlink("sub/policy.toml", directory.path().join("good")).expect("a link");
            symlink("loop", directory.path().join("loop")).expect("a link");
            for name in ["to-unsafe", "open/to-safe", "directory-link/policy.toml", "sub/../open/policy.toml"] {
                let error = check_as(&directory.path().join(name), who).expect_err(name);
                assert!(error.contains("everybody (mode 0777)"), "{name}: {error}");
            }
            assert_eq!(check_as(&directory.path().join("good"), who), Ok(()));
            assert!(way(&directory.path().join("loop"), who, &mut 0).is_err());
        }
    }
}
