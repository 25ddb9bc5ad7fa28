//! Takes one step of a stored run in this process: reads the run from stdin (nothing starts a new one), writes what happened to stdout.

use std::io::{Read as _, Write as _};

use honeycomb_host::agent::Run;
use honeycomb_tests::steps::{TASK, runner};
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut stored = String::new();
    std::io::stdin().read_to_string(&mut stored)?;
    let run = if stored.is_empty() { None } else { Some(Run::from_json(&stored)?) };
    let (runner, mut events) = runner(run.as_ref());
    let mut run = match run {
        Some(run) => run,
        None => runner.start(TASK)?,
    };
    let done = runner.step(&mut run, &tokio_util::sync::CancellationToken::new()).await.is_some();
    let events: Vec<_> = std::iter::from_fn(|| events.try_next()).collect();
    writeln!(std::io::stdout(), "{}", json!({"events": events, "run": run.to_json()?, "done": done}))?;
    Ok(())
}
