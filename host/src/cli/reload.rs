//! Reloading policy and plugins while calls run: on SIGHUP, and when a file has changed.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio_util::task::AbortOnDropHandle;

use super::output::{self, CliError};
use super::{Common, host, signals};
use crate::registry::{LiveRegistry, LoadSelection};

/// How often the files are looked at. A change is taken up when it has stood for one such time: half a file may be a valid policy, with
/// the denials at its end missing.
const POLL: Duration = Duration::from_millis(500);

/// Reloads until it is dropped.
pub(super) struct Watch {
    _task: AbortOnDropHandle<()>,
}

/// Watches the policy files and the plugins directory, and listens for SIGHUP. What is wrong with a new policy is said on stderr, and the
/// earlier one stays in force.
pub(super) fn watch(common: &Common, live: Arc<LiveRegistry>) -> Watch {
    let (common, hangup) = (common.clone(), signals::Hangup::listen());
    Watch { _task: AbortOnDropHandle::new(tokio::spawn(follow(common, live, hangup))) }
}

async fn follow(common: Common, live: Arc<LiveRegistry>, mut hangup: signals::Hangup) {
    let on_terminal = io::stdin().is_terminal();
    let mut tick = tokio::time::interval(POLL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // A policy that was written after it was read for the start differs from the one in force.
    let mut taken = Files::look(&common).await;
    let mut stale = read_digest(&common).is_some_and(|digest| digest != live.current().policy().digest());
    let mut before = taken.clone();
    loop {
        let asked = tokio::select! {
            _ = tick.tick() => false,
            () = hangup.next() => true,
        };
        if asked && on_terminal && !io::stdin().is_terminal() {
            // The terminal is gone, and with it whoever was to see what happens here.
            #[expect(clippy::exit, reason = "what SIGHUP does where nobody listens for it")]
            std::process::exit(129);
        }
        let now = Files::look(&common).await;
        let settled = now == before;
        before = now.clone();
        if asked || (settled && (stale || now != taken)) {
            taken = now;
            stale = false;
            match reload(&common, &live).await {
                Ok(plugins) => {
                    output::note(&format!("reloaded: {plugins} plugins; policy {}", short(live.current().policy().digest())))
                }
                Err(error) => output::note(&format!("warning: not reloaded, the earlier policy stays in force: {error}")),
            }
        }
    }
}

/// Reads and checks everything, and only then puts it in force. Returns how many plugins there are.
async fn reload(common: &Common, live: &LiveRegistry) -> Result<usize, CliError> {
    let policy = host::load_policy(&common.policy)?;
    let current = live.current();
    let (registry, _) = host::reopen_registry(common, policy, LoadSelection::Granted, &current).await?;
    let plugins = registry.plugins().count();
    live.swap(registry);
    Ok(plugins)
}

/// The digest of the policy as it now stands in its files; none where it cannot be read.
fn read_digest(common: &Common) -> Option<String> {
    host::load_policy(&common.policy).ok().map(|policy| policy.digest().to_owned())
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or("none")
}

/// What the file system says of every file that a reload would read.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Files(Vec<(PathBuf, Option<(u64, SystemTime)>)>);

impl Files {
    async fn look(common: &Common) -> Self {
        let (policies, plugins) = (common.policy.clone(), common.plugins.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let mut paths = policies;
            for entry in std::fs::read_dir(plugins).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.extension().is_some_and(|extension| extension == "wasm") {
                    paths.push(path);
                }
            }
            paths.sort();
            let stamp = |path: &PathBuf| {
                let metadata = std::fs::metadata(path).ok()?;
                Some((metadata.len(), metadata.modified().ok()?))
            };
            paths.into_iter().map(|path| (path.clone(), stamp(&path))).collect()
        });
        Self(looked.await.unwrap_or_default())
    }
}
