//! `cargo xtask demo`: one real task through the real binary.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::guests;
use crate::process::{cargo, run, say};
use crate::weather::WeatherServer;

const TASK: &str = "北京天气怎么样？适合跑步吗？另外 123 + 456 等于多少？";
/// The port in `examples/demo/policy.toml`.
const PORT: u16 = 8717;

/// Builds what is missing, starts a weather server on loopback, and runs the task.
pub(crate) fn demo(root: &Path) -> anyhow::Result<()> {
    let start = Instant::now();
    say("building the host (a first build takes about ten minutes on two cores)");
    run(cargo().current_dir(root).args(["build", "--workspace", "--bin", "honeycomb-host"]))?;
    guests::build_all(root)?;

    let directory = root.join("target/demo");
    let plugins = directory.join("plugins");
    fs::create_dir_all(&plugins).with_context(|| format!("cannot create `{}`", plugins.display()))?;
    for (from, plugin) in [("target/plugins", "calculator"), ("target/plugins", "weather"), (guests::TEST_GUESTS, "misbehave")] {
        let file = format!("{plugin}.wasm");
        let source = root.join(from).join(&file);
        fs::copy(&source, plugins.join(&file)).with_context(|| format!("cannot copy `{}`", source.display()))?;
    }
    let server = WeatherServer::start(PORT).context("cannot start the weather server on loopback")?;
    let policy = directory.join("policy.toml");
    let text = fs::read_to_string(root.join("examples/demo/policy.toml")).context("cannot read the demo's policy")?;
    fs::write(&policy, text.replace(&PORT.to_string(), &server.port.to_string())).context("cannot write the demo's policy")?;

    say("");
    say(&format!("a weather server listens on 127.0.0.1:{}; the model is a script, examples/demo/script.toml", server.port));
    say("the script quotes what the tools return, and the run fails if a tool returns something else than it expects");
    say("");
    let mut command = Command::new(root.join("target/debug/honeycomb-host"));
    command
        .current_dir(root)
        .args(["--plugins", "target/demo/plugins", "--policy", "target/demo/policy.toml"])
        .args(["--cache-dir", "target/demo/cache", "--state-dir", "target/demo/state"])
        .args(["--model", "scripted:examples/demo/script.toml", TASK]);
    run(&mut command)?;

    let requests = server.requests();
    ensure!(requests.iter().any(|line| line.starts_with("GET /v1/forecast?")), "no forecast was asked for: {requests:?}");
    say("");
    say("what the weather server saw, through the sandbox:");
    for request in requests {
        say(&format!("  {request}"));
    }
    say("");
    say(&format!("the demo took {} s. With a real model, and the public weather service:", start.elapsed().as_secs()));
    say("  OPENAI_API_KEY=… target/debug/honeycomb-host --plugins target/plugins --policy examples/policy.toml \\");
    say("    --model gpt-5-mini \"北京天气怎么样？适合跑步吗？\"");
    Ok(())
}
