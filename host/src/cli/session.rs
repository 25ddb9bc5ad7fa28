//! The session of a task: begun, continued or none, as the options say.

use std::path::PathBuf;
use std::sync::Arc;

use super::Common;
use super::output::{self, CliError};
use super::paths;
use crate::agent::Run;
use crate::secret::{Redactor, Secrets};
use crate::store::{Session, Store, StoreError, StoreOptions};

/// A key of a model server shorter than this would be found in ordinary text.
const MIN_KEY: usize = 8;

/// A session, and the run that it goes on from.
pub(super) struct Opened {
    pub(super) session: Arc<Session>,
    pub(super) earlier: Option<Run>,
}

/// Begins a session, or takes up the one of `--session`. None with `--no-session`.
pub(super) fn open(common: &Common, secrets: &Secrets) -> Result<Option<Opened>, CliError> {
    if common.no_session {
        return Ok(None);
    }
    if common.session.is_none() && path(common).is_none() {
        output::note("warning: this task is not kept as a session: there is no state directory; name one with `--state-dir`");
        return Ok(None);
    }
    let store = open_store(common, secrets);
    let store = if common.session.is_none() { store.map_err(or_without) } else { store }?;
    match &common.session {
        Some(id) => take_up(&store, id).map(Some),
        None => {
            let session = store.create().map_err(failed).map_err(or_without)?;
            Ok(Some(Opened { session: Arc::new(session), earlier: None }))
        }
    }
}

/// Takes up a session, with its last run.
pub(super) fn take_up(store: &Store, id: &str) -> Result<Opened, CliError> {
    let session = store.open_session(id).map_err(failed)?;
    let earlier = session.load().map_err(failed)?;
    Ok(Opened { session: Arc::new(session), earlier })
}

/// Opens the store. What it is given is stored without these secrets, and without the keys of model servers.
pub(super) fn open_store(common: &Common, secrets: &Secrets) -> Result<Store, CliError> {
    let path = path(common).ok_or_else(|| CliError::usage("there is no state directory").hint("name one with `--state-dir`"))?;
    let keys = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"].map(|name| std::env::var(name).unwrap_or_default());
    let keys = Redactor::new(keys.iter().map(|key| key.trim()).filter(|key| key.len() >= MIN_KEY));
    let options = StoreOptions { redactors: vec![secrets.redactor().clone(), keys], ..StoreOptions::default() };
    Store::open(&path, options).map_err(failed)
}

/// Where sessions are kept.
pub(super) fn path(common: &Common) -> Option<PathBuf> {
    paths::state_dir(common.state_dir.as_deref()).map(|directory| directory.join("sessions.db"))
}

/// Says how to go on, or that something is not stored.
pub(super) fn tell_end(session: &Session) {
    if let Some(failure) = session.failure() {
        output::note(&format!("warning: the end of this session is not stored: {}", failure.message));
    }
    output::note(&format!("session {id} (`--session {id}` continues it)", id = session.id()));
}

/// The exit code is that of a wrong option where one is to blame.
pub(super) fn failed(error: StoreError) -> CliError {
    let hint = error.hint();
    let error = match error {
        StoreError::File { .. }
        | StoreError::Foreign { .. }
        | StoreError::Newer { .. }
        | StoreError::Unknown { .. }
        | StoreError::Ambiguous { .. } => CliError::config(anyhow::Error::new(error)),
        error => CliError::failed(anyhow::Error::new(error)),
    };
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

fn or_without(error: CliError) -> CliError {
    error.hint_also("`--no-session` runs the task and keeps nothing")
}
