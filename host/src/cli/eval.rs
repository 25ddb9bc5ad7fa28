//! `eval DIR`: runs the scenarios of a directory, and says which did not come out as they should.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use futures_util::StreamExt as _;
use futures_util::stream;
use tokio_util::sync::CancellationToken;

use super::output::{self, CliError};
use super::{Common, model, paths, signals};
use crate::eval::{Attempt, EvalHost, Report, Scenario, ScenarioReport, junit, matches, run_attempt, table};

/// The most scenarios of one directory.
const MAX_SCENARIOS: usize = 10_000;

const EXAMPLES: &str = "\
Examples:
  honeycomb-host eval evals/ --plugins target/plugins
  honeycomb-host eval evals/ --plugins target/plugins --filter 'adversarial/*' --repeat 10
  honeycomb-host eval evals/ --plugins target/plugins --junit report.xml --json

Exit codes: 0 all came out as they should, 1 some did not, 2 a scenario is wrong or there is none.";

/// `eval DIR`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct EvalArgs {
    /// A scenario, or a directory of them (*.toml, also in directories below)
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Only scenarios whose name matches; `*` stands for anything
    #[arg(long, value_name = "GLOB")]
    filter: Option<String>,
    /// How many attempts are made at each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    repeat: u16,
    /// How many scenarios run at once [default: as many as there are processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// Also write the report as JUnit's XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

struct Loaded {
    name: String,
    path: PathBuf,
    scenario: Scenario,
    text: String,
}

pub(super) async fn eval(common: &Common, args: &EvalArgs) -> Result<ExitCode, CliError> {
    let scenarios = load(args)?;
    let host = open_host(common)?;
    let cancel = CancellationToken::new();
    signals::cancel_on_signal(cancel.clone());
    let jobs = args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(2, usize::from), usize::from);
    let (host, cancel, total) = (&host, &cancel, scenarios.len());
    let mut running = stream::iter(&scenarios).map(|loaded| run(host, loaded, args.repeat, cancel)).buffer_unordered(jobs);
    let mut reports = Vec::with_capacity(total);
    while let Some(report) = running.next().await {
        if cancel.is_cancelled() {
            return Err(CliError::interrupted());
        }
        reports.push(report);
        let report = reports.last();
        if let Some(report) = report {
            let word = if report.is_passed() { "ok" } else { "failed" };
            output::note(&format!("[{}/{total}] {} {word}", reports.len(), report.name));
        }
    }
    let report = Report::new(reports);
    if let Some(file) = &args.junit {
        std::fs::write(file, junit(&report))
            .with_context(|| format!("cannot write `{}`", file.display()))
            .map_err(CliError::failed)?;
    }
    if common.json {
        output::print_json(&report);
    } else {
        output::print(&table(&report));
    }
    Ok(if report.failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

async fn run(host: &EvalHost, loaded: &Loaded, repeat: u16, cancel: &CancellationToken) -> ScenarioReport {
    let Loaded { name, path, scenario, text } = loaded;
    let mut report = ScenarioReport::new(name, &scenario.description, scenario.adversarial);
    for _ in 0..repeat {
        if cancel.is_cancelled() {
            break;
        }
        let attempt = run_attempt(host, path, scenario, text, cancel).await.unwrap_or_else(|error| Attempt {
            problems: vec![format!("the attempt could not be made: {error:#}")],
            took: std::time::Duration::ZERO,
        });
        report.add(attempt);
    }
    report
}

fn open_host(common: &Common) -> Result<EvalHost, CliError> {
    let compiler = std::env::current_exe()
        .map_err(|error| CliError::failed(anyhow::Error::new(error).context("cannot find this program's own file")))?;
    let config = model::load_config(common)?;
    // Scenarios with a script need none; one that wants a real model says so when it has none.
    let model = model::open_provider(common, &config).ok();
    Ok(EvalHost { plugins: common.plugins.clone(), compiler, cache_dir: paths::cache_dir(common.cache_dir.as_deref()), model })
}

/// Reads all scenarios before any runs: a misspelt field in the last one should not cost the wait.
fn load(args: &EvalArgs) -> Result<Vec<Loaded>, CliError> {
    let mut files = Vec::new();
    if args.directory.is_file() {
        files.push(args.directory.clone());
    } else {
        find(&args.directory, &mut files).map_err(CliError::config)?;
    }
    files.sort();
    let mut loaded = Vec::new();
    for path in files {
        let name = path.strip_prefix(&args.directory).ok().filter(|name| !name.as_os_str().is_empty());
        let name = name.map_or_else(|| path.file_name().map(PathBuf::from).unwrap_or_default(), Path::to_path_buf);
        let name = name.with_extension("").to_string_lossy().replace('\\', "/");
        if args.filter.as_ref().is_some_and(|filter| !matches(filter, &name)) {
            continue;
        }
        let (scenario, text) = Scenario::open(&path).map_err(CliError::config)?;
        loaded.push(Loaded { name, path, scenario, text });
    }
    if loaded.is_empty() {
        return Err(CliError::usage(format!("there is no scenario in `{}`", args.directory.display()))
            .hint("scenarios are files that end in `.toml`; `--filter` may leave out all of them"));
    }
    Ok(loaded)
}

fn find(directory: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("cannot read `{}`", directory.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read `{}`", directory.display()))?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
        anyhow::ensure!(files.len() <= MAX_SCENARIOS, "there are more than {MAX_SCENARIOS} scenarios");
    }
    Ok(())
}
