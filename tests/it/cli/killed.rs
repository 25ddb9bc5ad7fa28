//! The whole program is killed at random points of loading, compiling and calling; the next one finds nothing amiss.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use honeycomb_tests::host::{host_program, plugins_dir, workspace};
use honeycomb_tests::news::tell;

const ROUNDS: u32 = 30;

fn call(program: &Path, cache: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .arg("--plugins")
        .arg(plugins_dir())
        .arg("--policy")
        .arg(workspace().join("examples/policy.toml"))
        .arg("--cache-dir")
        .arg(cache)
        .arg("--state-dir")
        .arg(cache.join("state"))
        .args(["call", "calculator/calculate", "--args", "{\"expression\":\"6*7\"}", "--json", "--verbose"])
        .stdin(Stdio::null());
    command
}

/// Processes that run the program at this path.
fn running(program: &Path) -> usize {
    let processes = std::fs::read_dir("/proc").expect("listed").flatten();
    processes.filter(|process| std::fs::read_link(process.path().join("exe")).is_ok_and(|exe| exe == program)).count()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_program_that_is_killed_leaves_a_whole_cache_and_no_child() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().canonicalize().expect("a path");
    // A program of its own name, so that its processes can be told from those of other tests.
    let program = root.join("victim");
    std::fs::copy(host_program(), &program).expect("copied");

    let begun = Instant::now();
    assert!(call(&program, &root.join("first")).output().expect("run").status.success());
    let whole = begun.elapsed();

    let mut seed = 0x9e37_79b9_u64;
    let (mut killed, mut filed) = (0, 0);
    for round in 0..ROUNDS {
        let cache = root.join(format!("cache{round}"));
        let mut victim = call(&program, &cache).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Anywhere in the first run's time, which a later one may undercut: some rounds end by themselves.
        std::thread::sleep(whole.mul_f64((seed >> 40) as f64 / f64::from(1 << 24) * 0.8));
        killed += u32::from(victim.try_wait().expect("asked").is_none());
        victim.kill().expect("killed");
        victim.wait().expect("reaped");
        filed += u32::from(names(&cache.join("honeycomb")).iter().any(|name| name.ends_with(".cwasm")));

        let output = call(&program, &cache).output().expect("run");
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && stdout.contains("42"), "round {round}: {stdout}{stderr}");
        assert!(!stderr.contains("cannot use the cache") && !stderr.contains("cannot write"), "round {round}: {stderr}");
        let left = names(&cache.join("honeycomb"));
        assert!(left.len() == 2 && left[0].ends_with(".cwasm") && left[1] == "key", "round {round}: {left:?}");
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while running(&program) > 0 {
        assert!(Instant::now() < deadline, "{} processes outlive the program", running(&program));
        std::thread::sleep(Duration::from_millis(20));
    }
    tell(&format!("killed: {killed} of {ROUNDS} runs of {whole:?} before their end; {filed} had filed the compiled plugin"));
    assert!(killed >= ROUNDS / 4, "{killed} of {ROUNDS} were still running");
}
