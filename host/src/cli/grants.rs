//! The file of standing grants: what a person answered with "always".
//!
//! Only [`GrantsFile::add`] writes it, and only the person's own answer at the terminal calls that.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLockWriteGuard};

use anyhow::Context as _;

use super::output::CliError;
use super::{Common, paths};
use crate::file;
use crate::policy::{MAX_GRANTS_BYTES, StandingCall, StandingGrants};
use crate::registry::SharedGrants;
use crate::tool::{ErrorCode, Question};

/// Where the grants are: given, or in the state directory.
pub(super) fn path(common: &Common) -> Option<PathBuf> {
    let in_state = || Some(paths::state_dir(common.state_dir.as_deref())?.join("grants.toml"));
    common.grants.clone().or_else(in_state)
}

/// Reads the grants. A file that is not there holds none; one that is wrong, or that others can write, stops the start.
pub(super) fn read(common: &Common) -> Result<StandingGrants, CliError> {
    match path(common) {
        None => Ok(StandingGrants::default()),
        Some(path) => read_file(&path).map_err(|error| CliError::config(error).code(ErrorCode::POLICY_INVALID)),
    }
}

fn read_file(path: &Path) -> anyhow::Result<StandingGrants> {
    // A link that leads nowhere is a mistake; nothing at all is the beginning.
    if fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(StandingGrants::default());
    }
    let text = paths::read_trusted_text(path, MAX_GRANTS_BYTES as u64)?;
    Ok(StandingGrants::parse(&path.display().to_string(), &text)?)
}

/// Writes down what a person approved for good.
pub(super) struct GrantsFile {
    path: PathBuf,
    shared: SharedGrants,
}

impl GrantsFile {
    /// The file that goes with the grants that a registry holds; none where there is no state directory.
    pub(super) fn open(common: &Common, shared: SharedGrants) -> Option<Self> {
        Some(Self { path: path(common)?, shared })
    }

    /// Whether the question was answered with "always" before.
    pub(super) fn covers(&self, question: &Question) -> bool {
        call(question).is_some_and(|call| self.shared().covers(&call))
    }

    /// Adds the call of a question, in the file and in the registry that shares the grants.
    pub(super) fn add(&self, question: &Question) -> anyhow::Result<&Path> {
        let call = call(question).context("its arguments are no object")?;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        file::create_private_dir(directory).with_context(|| format!("cannot make `{}`", directory.display()))?;
        // Two hosts may be asked at once: neither must lose what the other wrote.
        let lock_path = self.path.with_extension("lock");
        let lock = private(OpenOptions::new().create(true).truncate(false).write(true))
            .open(&lock_path)
            .with_context(|| format!("cannot open `{}`", lock_path.display()))?;
        lock.lock().with_context(|| format!("cannot lock `{}`", lock_path.display()))?;
        let mut grants = read_file(&self.path)?;
        grants.add(&call, &question.rule)?;
        replace(&self.path, directory, &grants.to_toml()).with_context(|| format!("cannot write `{}`", self.path.display()))?;
        self.shared().add(&call, &question.rule)?;
        Ok(&self.path)
    }

    fn shared(&self) -> RwLockWriteGuard<'_, StandingGrants> {
        self.shared.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn call(question: &Question) -> Option<StandingCall<'_>> {
    let Question { plugin, tool, arguments, rule: _, rule_id, sha256, hints: _ } = question;
    Some(StandingCall { plugin, sha256, tool, rule_id, arguments: arguments.as_object()? })
}

/// Replaces the file as a whole: whoever reads sees the old text or the new one, also after a crash.
fn replace(path: &Path, directory: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    // Left by a process of the same number that was killed.
    let _ = fs::remove_file(&temporary);
    let written = (|| {
        let mut file = private(OpenOptions::new().create_new(true).write(true)).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written?;
    // The new name must be on the disk as well.
    File::open(directory).and_then(|directory| directory.sync_all()).or_else(|error| if cfg!(unix) { Err(error) } else { Ok(()) })
}

/// Others may neither write nor read it: arguments can be private.
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::tool::ToolHints;

    fn question(title: &str) -> Question {
        Question {
            plugin: "notes".into(),
            tool: "delete_note".into(),
            arguments: json!({ "title": title }),
            rule: "policy.toml:7".into(),
            rule_id: "a".repeat(64),
            sha256: "b".repeat(64),
            hints: ToolHints::default(),
        }
    }

    #[test]
    fn an_answer_is_written_whole_private_and_beside_those_of_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("state/honeycomb/grants.toml");
        // Two hosts with one file, each with what it read at its start.
        let [first, second] = [(); 2].map(|()| GrantsFile { path: path.clone(), shared: Arc::default() });
        first.add(&question("天气")).expect("written");
        second.add(&question("北京")).expect("written");
        assert!(first.covers(&question("天气")) && !first.covers(&question("北京")));
        let read = read_file(&path).expect("valid");
        let covers = |title: &str| read.covers(&call(&question(title)).expect("an object"));
        assert!(covers("天气") && covers("北京"));
        assert!(!covers("上海"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
            assert_eq!((mode(&path), mode(path.parent().expect("a parent"))), (0o600, 0o700));
        }
        let left: Vec<_> =
            fs::read_dir(path.parent().expect("a parent")).expect("listed").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left.len(), 2, "no temporary file: {left:?}");
    }

    #[test]
    fn a_file_that_is_broken_is_not_written_over() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("grants.toml");
        fs::write(&path, "version = 1\nall = true\n").expect("a file");
        let file = GrantsFile { path: path.clone(), shared: Arc::default() };
        assert!(file.add(&question("天气")).is_err() && !file.covers(&question("天气")));
        assert_eq!(fs::read_to_string(&path).expect("there"), "version = 1\nall = true\n");
    }
}
