//! `cargo xtask bench`: what a call, and a step of the agent, cost beyond what they must.
//!
//! Everything is measured in one process and interleaved, so that the noise of the machine falls on all arms alike, and reported as a
//! ratio to a floor of the same round. Times are shown to give the ratios a scale; they say as much about the machine as about this
//! program.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use honeycomb_host::agent::bench::StepFixture;
use honeycomb_host::message::{ToolCall, ToolStatus};
use honeycomb_host::policy::{Limits, Policy, PolicySource};
use honeycomb_host::registry::{LoadSelection, ToolRegistry};
use honeycomb_host::sandbox::floor::Floor;
use honeycomb_host::sandbox::{Sandbox, SandboxOptions};
use honeycomb_host::tool::{CallContext, Conversation, Tools as _};
use honeycomb_tests::host::{guests_dir, host_program, workspace};
use tokio_util::sync::CancellationToken;

const POLICY: &str = "version = 1\n[[plugins.misbehave.tools]]\nname = \"*\"\ndecision = \"allow\"\n";
/// Calls in one block of one arm.
const BLOCK: u32 = 40;
const DEFAULT_ROUNDS: usize = 60;

fn main() -> anyhow::Result<()> {
    let rounds = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => DEFAULT_ROUNDS,
        [flag, rounds] if flag == "--rounds" => rounds.parse().context("`--rounds` takes a number")?,
        _ => anyhow::bail!("usage: bench [--rounds N]"),
    };
    ensure!(rounds >= 3, "`--rounds` must be at least 3");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async move { tokio::spawn(async move { measure(rounds).await }).await? })
}

async fn measure(rounds: usize) -> anyhow::Result<()> {
    let options =
        SandboxOptions { cache_dir: Some(workspace().join("target/bench-cache")), ..SandboxOptions::new(host_program()) };
    let sandbox = Sandbox::new(options)?;
    let source = PolicySource { name: Arc::from("bench"), text: POLICY, base_dir: workspace().to_owned() };
    let policy = Arc::new(Policy::parse(&[source])?);
    let (registry, report) = ToolRegistry::load(&sandbox, &guests_dir(), policy, &[], LoadSelection::Granted, &|_| ()).await?;
    ensure!(report.failures.is_empty(), "{:?}", report.failures);
    let plugin = sandbox.load(&guests_dir().join("misbehave.wasm"), None).await?;
    let floor = Floor::new(&sandbox, &plugin, Limits::default()).map_err(|error| anyhow::anyhow!("{error:#}"))?;
    say(&format!("{rounds} rounds of {BLOCK} calls an arm, interleaved; {:?} allocation\n", sandbox.allocation()));

    say(
        "a tool call through registry, policy and sandbox, against wasmtime's raw loop (same engine, component, limits, WASI context)",
    );
    let text = "北".repeat(4096 / 3);
    for (name, tool, arguments) in
        [("empty tool", "echo", "{\"text\":\"\"}".to_owned()), ("4 KiB echo", "echo", format!("{{\"text\":\"{text}\"}}"))]
    {
        calls(name, rounds, &registry, &floor, tool, &arguments).await?;
    }
    threads(rounds, &registry).await?;
    processes(rounds, &registry).await?;
    steps(rounds)?;
    Ok(())
}

/// Compares the two ways of one call.
async fn calls(
    name: &str,
    rounds: usize,
    registry: &ToolRegistry,
    floor: &Floor,
    tool: &str,
    arguments: &str,
) -> anyhow::Result<()> {
    let (mut raw_all, mut host_all, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds + 1 {
        let (mut raw, mut host) = (Vec::new(), Vec::new());
        // Raw, ours, ours, raw: a drift of the machine within a round falls on both.
        for arm in [true, false, false, true] {
            for _ in 0..BLOCK / 2 {
                let started = Instant::now();
                if arm {
                    floor.call(tool, arguments).await.map_err(|error| anyhow::anyhow!("{error:#}"))?;
                    raw.push(started.elapsed());
                } else {
                    call(registry, tool, arguments).await?;
                    host.push(started.elapsed());
                }
            }
        }
        // The first round warms caches and pools.
        if round > 0 {
            ratios.push(quantile(&mut host, 0.5).as_secs_f64() / quantile(&mut raw, 0.5).as_secs_f64());
            raw_all.append(&mut raw);
            host_all.append(&mut host);
        }
    }
    ratios.sort_by(f64::total_cmp);
    let at = |fraction: f64| ratios[((ratios.len() - 1) as f64 * fraction) as usize];
    let p99 = quantile(&mut host_all, 0.99).as_secs_f64() / quantile(&mut raw_all, 0.99).as_secs_f64();
    let (host, raw) = (quantile(&mut host_all, 0.5), quantile(&mut raw_all, 0.5));
    say(&format!(
        "  {name}: {:.3}x in the median of rounds ({:.3} to {:.3} for the middle half); budget 1.15x. p99 {p99:.2}x; budget 1.30x",
        at(0.5),
        at(0.25),
        at(0.75)
    ));
    say(&format!("    p50 {host:.1?} against {raw:.1?}: {:.1} us beyond the floor", micros(host) - micros(raw)));
    let outcome = call(registry, tool, arguments).await?;
    say(&format!("    of one call's {} us, {} us are outside the guest; it took {} fuel", outcome.0, outcome.1, outcome.2));
    rest(rounds, registry, tool, arguments)
}

/// What of the rest is checks before the sandbox is entered.
fn rest(rounds: usize, registry: &ToolRegistry, tool: &str, arguments: &str) -> anyhow::Result<()> {
    let call = tool_call(tool, arguments);
    let mut times = Vec::new();
    for _ in 0..rounds * BLOCK as usize {
        let started = Instant::now();
        ensure!(matches!(registry.check("bench", &call), honeycomb_host::tool::Check::Ready), "the call is not allowed");
        times.push(started.elapsed());
    }
    say(&format!("    finding the tool, parsing and validating arguments, and policy: {:.1?}", quantile(&mut times, 0.5)));
    Ok(())
}

/// Calls a second on two threads against one.
async fn threads(rounds: usize, registry: &ToolRegistry) -> anyhow::Result<()> {
    let mut ratios = Vec::new();
    for _ in 0..rounds.min(20) {
        let started = Instant::now();
        many(registry).await?;
        let one = started.elapsed();
        let started = Instant::now();
        let (left, right) = std::thread::scope(|scope| {
            let run =
                || scope.spawn(|| tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(many(registry)));
            let (left, right) = (run(), run());
            (left.join(), right.join())
        });
        for joined in [left, right] {
            joined.map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        ratios.push(2.0 * one.as_secs_f64() / started.elapsed().as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    say(&format!("\ncalls a second on two threads against one: {:.2}x; budget 1.7x on two idle cores", ratios[ratios.len() / 2]));
    Ok(())
}

async fn many(registry: &ToolRegistry) -> anyhow::Result<()> {
    for _ in 0..BLOCK * 5 {
        call(registry, "echo", "{\"text\":\"\"}").await?;
    }
    Ok(())
}

/// A call against starting a process that does nothing.
async fn processes(rounds: usize, registry: &ToolRegistry) -> anyhow::Result<()> {
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let started = Instant::now();
        call(registry, "echo", "{\"text\":\"\"}").await?;
        let ours = started.elapsed();
        let started = Instant::now();
        ensure!(Command::new("/bin/true").status()?.success(), "`/bin/true` failed");
        ratios.push(started.elapsed().as_secs_f64() / ours.as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    say(&format!("starting `/bin/true` takes {:.1}x as long as a call; budget 10x", ratios[ratios.len() / 2]));
    Ok(())
}

/// What a step of the agent costs without the model and the tool.
fn steps(rounds: usize) -> anyhow::Result<()> {
    say("\na step of the agent without the model's and the tool's time (build the request, take the turn, check, write down)");
    let mut floor = None;
    for messages in [10, 100, 1_000] {
        let mut fixture = StepFixture::new(messages);
        let mut times = Vec::new();
        for _ in 0..rounds.max(10) * 2 {
            let started = Instant::now();
            ensure!(fixture.step() > 0, "no step at {messages} messages");
            times.push(started.elapsed());
        }
        let time = quantile(&mut times, 0.5);
        let base = *floor.get_or_insert(time);
        say(&format!("  {messages} messages: {time:.1?}, {:.1}x of 10 messages", time.as_secs_f64() / base.as_secs_f64()));
    }
    say("  budget: 1 ms at 100 messages, and linear");
    Ok(())
}

async fn call(registry: &ToolRegistry, tool: &str, arguments: &str) -> anyhow::Result<(u64, u64, u64)> {
    let context = CallContext {
        run_id: "run".to_owned(),
        idempotency_key: "key".to_owned(),
        attempt: 1,
        conversation: Conversation::default(),
        approval: None,
        cancel: CancellationToken::new(),
        progress: None,
    };
    let outcome = registry.call(&tool_call(tool, arguments), context).await;
    ensure!(outcome.status == ToolStatus::Ok, "{:?}", outcome.error);
    Ok((outcome.usage.wall_us, outcome.usage.host_us, outcome.usage.fuel))
}

fn tool_call(tool: &str, arguments: &str) -> ToolCall {
    ToolCall { id: "call".to_owned(), provider_id: None, name: format!("misbehave__{tool}"), arguments: arguments.to_owned() }
}

fn quantile(times: &mut [Duration], fraction: f64) -> Duration {
    times.sort_unstable();
    times.get(((times.len().saturating_sub(1)) as f64 * fraction) as usize).copied().unwrap_or_default()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[expect(clippy::print_stdout, reason = "it is what a benchmark is for")]
fn say(line: &str) {
    println!("{line}");
}
