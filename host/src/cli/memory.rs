//! `memory list | forget`, and the built-in plugin `memory` as the command line sets it up.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::model::load_config;
use super::output::{self, CliError};
use super::{Common, approve, paths, terminal};
use crate::config::{Config, ProviderKind};
use crate::memory::{Entry, Filter, MemoryError, MemoryLimits, MemoryTools, Place, Scope, SqliteMemory};
use crate::provider::embeddings::HttpEmbedder;
use crate::provider::settings::ApiKey;
use crate::registry::Builtin;
use crate::secret::{Redactor, Secrets};
use crate::text;
use crate::time;

/// The file in the state directory.
const FILE: &str = "memory.db";
/// How much of a text is shown in a list.
const SHOWN_BYTES: usize = 200;
/// Keys of models, which no memory may hold.
const KEYS: [&str; 2] = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"];
/// A shorter key is none, and would blot out ordinary words.
const MIN_KEY: usize = 8;

const EXAMPLES: &str = "\
Examples:
  honeycomb-host memory list --query 北京
  honeycomb-host memory forget --id 019ad5d4-…
  honeycomb-host memory forget --session 019ad5d4-… --yes";

/// What to do with the memory.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum MemoryCommand {
    /// List what is remembered, the newest first, and where it came from
    List {
        #[command(flatten)]
        which: Which,
        /// The most entries
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
    },
    /// Forget entries; asks first, unless one is named by its id
    Forget {
        #[command(flatten)]
        which: Which,
        /// The entry with this id
        #[arg(long, value_name = "ID")]
        id: Option<String>,
        /// Everything, whoever's
        #[arg(long, conflicts_with_all = ["scope", "session", "query", "id"])]
        all: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// Which entries.
#[derive(Args, Debug)]
pub(super) struct Which {
    /// Those of this scope: `user`; `project` for the project at hand; `session` for all sessions
    #[arg(long, value_name = "SCOPE", value_parser = parse_scope)]
    scope: Option<Scope>,
    /// Those of this session
    #[arg(long, value_name = "ID", conflicts_with = "scope")]
    session: Option<String>,
    /// Those whose text holds this
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
}

fn parse_scope(word: &str) -> Result<Scope, String> {
    Scope::parse(word).ok_or_else(|| "the scopes are `user`, `project` and `session`".to_owned())
}

pub(super) async fn memory(common: &Common, command: MemoryCommand) -> Result<ExitCode, CliError> {
    let config = load_config(common)?;
    match command {
        MemoryCommand::List { which, limit } => list(common, &config, &which, limit).await,
        MemoryCommand::Forget { which, id, all, yes } => forget(common, &config, &which, id, all, yes).await,
    }
}

/// The built-in plugins, which the policy decides on like on any other.
pub(super) fn builtins(common: &Common, secrets: &Secrets) -> Result<Vec<Arc<dyn Builtin>>, CliError> {
    let config = load_config(common)?;
    if config.memory.enabled == Some(false) {
        return Ok(Vec::new());
    }
    let tools = match store(common, &config) {
        None => MemoryTools::without_memory(),
        Some(memory) => {
            let keys: Vec<String> = KEYS.iter().filter_map(|name| variable(name)).filter(|key| key.len() >= MIN_KEY).collect();
            let keys = Redactor::new(keys.iter().map(|key| key.trim()));
            let memory = memory.with_redactors(vec![secrets.redactor().clone(), keys]);
            let memory = match &config.memory.embeddings {
                None => memory,
                Some(model) => memory.with_embedder(Arc::new(embedder(&config, model)?)),
            };
            MemoryTools::new(Arc::new(memory), project(&config)?)
        }
    };
    Ok(vec![Arc::new(tools)])
}

/// The memory, which is in the state directory and so out of reach of every mount. None where there is no such directory.
fn store(common: &Common, config: &Config) -> Option<SqliteMemory> {
    let directory = paths::state_dir(common.state_dir.as_deref())?;
    Some(SqliteMemory::new(directory.join(FILE), limits(config)))
}

fn limits(config: &Config) -> MemoryLimits {
    let (config, default) = (&config.memory, MemoryLimits::default());
    MemoryLimits {
        max_entry_bytes: config.max_entry_bytes.unwrap_or(default.max_entry_bytes),
        max_entries: config.max_entries.unwrap_or(default.max_entries),
        max_bytes: config.max_bytes.unwrap_or(default.max_bytes),
        max_results: config.max_results.map_or(default.max_results, |results| usize::try_from(results).unwrap_or(usize::MAX)),
        max_result_bytes: config.max_result_bytes.unwrap_or(default.max_result_bytes),
        keep: config.expires_after_days.map(|days| Duration::from_secs(days.saturating_mul(24 * 3600))),
    }
}

fn embedder(config: &Config, model: &str) -> Result<HttpEmbedder, CliError> {
    let speaks_openai = config.model.provider != Some(ProviderKind::Anthropic);
    let chat = config.model.base_url.clone().filter(|_| speaks_openai).or_else(|| variable("OPENAI_BASE_URL"));
    let base_url = config.memory.embeddings_base_url.clone().or(chat);
    let key = variable("OPENAI_API_KEY").map(|key| ApiKey::new(&key));
    HttpEmbedder::new(base_url.as_deref(), key.as_ref(), model)
        .map_err(|error| CliError::config(anyhow::Error::new(error).context("`memory.embeddings`")))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

fn project(config: &Config) -> Result<String, CliError> {
    match &config.memory.project {
        Some(name) => Ok(name.clone()),
        None => paths::project_dir().map(|path| path.to_string_lossy().into_owned()).map_err(CliError::failed),
    }
}

impl Which {
    fn filter(&self, config: &Config) -> Result<Filter, CliError> {
        let place = match (self.scope, &self.session) {
            (_, Some(id)) => Some(Place::session(id)),
            (Some(Scope::Project), None) => Some(Place::project(project(config)?)),
            _ => None,
        };
        Ok(Filter { id: None, place, scope: self.scope, containing: self.query.clone() })
    }

    fn is_empty(&self) -> bool {
        self.scope.is_none() && self.session.is_none() && self.query.is_none()
    }
}

async fn list(common: &Common, config: &Config, which: &Which, limit: usize) -> Result<ExitCode, CliError> {
    let filter = which.filter(config)?;
    let entries = match existing(common, config)? {
        Some(memory) => memory.list(filter, limit).await.map_err(failed)?,
        None => Vec::new(),
    };
    if common.json {
        let entries: Vec<Value> = entries.iter().map(|entry| json!(entry)).collect();
        output::print_json(&json!({"entries": entries}));
        return Ok(ExitCode::SUCCESS);
    }
    let mut shown = String::new();
    for entry in &entries {
        write_entry(&mut shown, entry);
    }
    output::print(&shown);
    if entries.is_empty() {
        output::note("nothing is remembered that fits");
    } else if entries.len() == limit {
        output::note(&format!("the newest {limit} are shown; `--limit` shows more"));
    }
    Ok(ExitCode::SUCCESS)
}

fn write_entry(shown: &mut String, entry: &Entry) {
    let owner =
        if entry.place.owner().is_empty() { String::new() } else { format!(" {}", text::clean_line(entry.place.owner(), 200)) };
    let expires = entry.expires_at.map(|at| format!(", expires {}", time::date(at))).unwrap_or_default();
    // A string cannot refuse to be written to.
    let _ = writeln!(shown, "{}  {}{owner}, saved {}{expires}", entry.id, entry.place.scope(), time::date(entry.updated_at));
    let _ = writeln!(shown, "  {}", text::clean_line(&entry.text, SHOWN_BYTES));
    let origin = &entry.origin;
    let run = origin.run_id.as_deref().map(|id| format!("run {}", text::clean_line(id, 64)));
    let session = origin.session_id.as_deref().map(|id| format!("session {}", text::clean_line(id, 64)));
    let tools = if origin.tools_read.is_empty() {
        "before any tool's output".to_owned()
    } else {
        format!("after output of {}", text::clean_line(&origin.tools_read.join(", "), 300))
    };
    let parts: Vec<String> = run.into_iter().chain(session).chain([tools]).collect();
    let _ = writeln!(shown, "  from {}", parts.join(", "));
}

async fn forget(
    common: &Common,
    config: &Config,
    which: &Which,
    id: Option<String>,
    all: bool,
    yes: bool,
) -> Result<ExitCode, CliError> {
    if which.is_empty() && id.is_none() && !all {
        return Err(CliError::usage("nothing says what to forget")
            .hint("name it with `--id`, `--session`, `--scope` or `--query`, or use `--all`"));
    }
    let one = id.is_some();
    let filter = Filter { id, ..which.filter(config)? };
    let forgotten = match existing(common, config)? {
        None => 0,
        Some(memory) => {
            let found = memory.list(filter.clone(), usize::MAX).await.map_err(failed)?;
            if !one && !yes && !found.is_empty() {
                confirm(&found).await?;
            }
            memory.forget(filter).await.map_err(failed)?
        }
    };
    if common.json {
        output::print_json(&json!({"status": "ok", "forgotten": forgotten}));
    } else {
        output::print(&format!("forgot {forgotten}\n"));
    }
    // A script that names one entry wants to know when it was not there.
    Ok(if one && forgotten == 0 { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// What cannot be undone is asked, and not done where nobody can be asked.
async fn confirm(found: &[Entry]) -> Result<(), CliError> {
    let count = found.len();
    if !approve::can_ask() {
        return Err(
            CliError::usage(format!("{count} entries would be forgotten, and nobody is there to ask")).hint("add `--yes`")
        );
    }
    let mut shown = String::new();
    found.iter().take(5).for_each(|entry| write_entry(&mut shown, entry));
    output::note_text(&shown);
    terminal::discard_typed();
    output::note_text(&format!("Forget {count} entries? [y/N] "));
    let answer = terminal::read_line().await.unwrap_or_default();
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(CliError::usage("nothing was forgotten")),
    }
}

/// The memory, if anything was ever saved: looking makes no file.
fn existing(common: &Common, config: &Config) -> Result<Option<SqliteMemory>, CliError> {
    let memory = store(common, config)
        .ok_or_else(|| CliError::usage("there is no directory that could hold the memory").hint("name one with `--state-dir`"))?;
    Ok(memory.path().exists().then_some(memory))
}

fn failed(error: MemoryError) -> CliError {
    let hint = error.hint();
    CliError::failed(anyhow::Error::new(error)).hint(hint)
}
