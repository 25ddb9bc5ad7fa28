//! What a guest is made from, to tell whether it has to be built again.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A package that can be a guest.
pub(super) struct Package {
    pub(super) name: String,
    pub(super) dir: PathBuf,
}

/// The guests of the workspace, sorted: plugins, and guests of the tests.
pub(super) fn packages(root: &Path) -> Result<Vec<Package>> {
    let mut packages = Vec::new();
    for parent in ["plugins", "tests/guests", "tests/typed"] {
        let Ok(entries) = fs::read_dir(root.join(parent)) else { continue };
        for entry in entries {
            let dir = entry?.path();
            let Ok(manifest) = fs::read_to_string(dir.join("Cargo.toml")) else { continue };
            let name = package_name(&manifest).with_context(|| format!("`{}` has no `name = \"…\"`", dir.display()))?;
            packages.push(Package { name: name.to_owned(), dir });
        }
    }
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(packages)
}

/// The first `name = "…"` of a manifest: that of `[package]`, which comes first in this workspace.
fn package_name(manifest: &str) -> Option<&str> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("name = \""))?;
    line.split('"').next()
}

/// A text that changes when anything that the packages are made from changes: sources, manifests, contract, SDK, compiler.
pub(super) fn fingerprint(root: &Path, names: &[&str]) -> Result<String> {
    let mut files = Vec::new();
    for shared in ["Cargo.toml", "Cargo.lock"] {
        files.push(root.join(shared));
    }
    for shared in ["wit", "plugin-sdk", "tests/typed/wit", "xtask/src/guests"] {
        collect(&root.join(shared), &mut files)?;
    }
    for package in packages(root)?.iter().filter(|package| names.contains(&package.name.as_str())) {
        collect(&package.dir, &mut files)?;
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in &files {
        file.strip_prefix(root).unwrap_or(file).hash(&mut hasher);
        fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?.hash(&mut hasher);
    }
    let rustc = super::clean_command("rustc").arg("-V").output().context("cannot start `rustc`")?;
    rustc.stdout.hash(&mut hasher);
    std::env::var(super::toolchain::CHOICE).ok().hash(&mut hasher);
    Ok(format!("{:016x} of {} files\n", hasher.finish(), files.len()))
}

/// A short name for a value.
pub(super) fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read `{}`", dir.display()))? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if entry.file_name() != "target" {
                collect(&path, files)?;
            }
        } else {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_name_of_a_package() {
        assert_eq!(package_name("[package]\nname = \"text\"\n\n[lib]\nname = \"other\"\n"), Some("text"));
        assert_eq!(package_name("[package]\n"), None);
    }

    #[test]
    fn finds_the_plugins() -> Result<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let names: Vec<String> = packages(&root)?.into_iter().map(|package| package.name).collect();
        assert!(names.contains(&"calculator".to_owned()), "{names:?}");
        assert_eq!(fingerprint(&root, &["calculator"])?, fingerprint(&root, &["calculator"])?);
        assert_ne!(fingerprint(&root, &["calculator"])?, fingerprint(&root, &["notes"])?);
        Ok(())
    }
}
