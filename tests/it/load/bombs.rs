//! Small files that cost much to compile.

use std::time::{Duration, Instant};

use honeycomb_host::sandbox::load::{LoadLimits, LoadOptions};

use honeycomb_tests::alone::alone;

use super::{Files, component, load_bytes, loader, options};

/// A component with `n` exports.
pub(super) fn exports(n: usize) -> Vec<u8> {
    let mut text = r#"(func $f (canon lift (core func $i "run")))"#.to_owned();
    for i in 0..n {
        text.push_str(&format!(r#"(export "f{i}" (func $f))"#));
    }
    component(&text)
}

/// Components nested five deep, each of which instantiates the next one twenty times.
fn instances() -> Vec<u8> {
    let mut text = "(component $c (core module $m (memory 1)) (core instance (instantiate $m)))".to_owned();
    for _ in 0..5 {
        text = format!("(component $c {text} {})", "(instance (instantiate $c))".repeat(20));
    }
    component(&format!("{text} (instance (instantiate $c))"))
}

/// Takes more than ten seconds to compile.
pub(super) fn many_functions() -> Vec<u8> {
    component(&format!("(core module {})", "(func)".repeat(300_000)))
}

/// Peak resident memory of this process, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("read");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a peak");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

#[tokio::test]
async fn processor_time_is_bounded() {
    let limits = LoadLimits { compile_cpu: Duration::from_secs(1), ..LoadLimits::default() };
    let error = load_bytes(&loader(LoadOptions { limits, ..options() }), &many_functions()).await.err().expect("refused");
    assert_eq!(error, "load.limit is too costly to compile: it needs more than 1 s of processor time");
}

#[tokio::test]
async fn wall_clock_time_is_bounded() {
    let limits = LoadLimits { compile_time: Duration::from_secs(1), ..LoadLimits::default() };
    let (loader, bomb) = (loader(LoadOptions { limits, ..options() }), many_functions());
    let started = Instant::now();
    let error = load_bytes(&loader, &bomb).await.err().expect("refused");
    assert_eq!(error, "load.limit is too costly to compile: it needs more than 1 s");
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
}

#[tokio::test]
async fn memory_is_bounded() {
    let limits = LoadLimits { core_instances: u64::MAX, compile_memory: 128 << 20, ..LoadLimits::default() };
    let error = load_bytes(&loader(LoadOptions { limits, ..options() }), &instances()).await.err().expect("refused");
    assert_eq!(error, "load.limit is too costly to compile: it needs more than 134217728 bytes of memory");
}

#[tokio::test]
async fn the_artifact_is_bounded() {
    let limits = LoadLimits { artifact_bytes: 4 << 10, ..LoadLimits::default() };
    let error = load_bytes(&loader(LoadOptions { limits, ..options() }), &component("")).await.err().expect("refused");
    assert_eq!(error, "load.limit is too costly to compile: it needs more than 4096 bytes of compiled code");
}

#[tokio::test]
async fn compilers_at_once_are_bounded() {
    // Two at once is what the script notices when it is permitted, so it would notice it when it is not.
    for (compiles, at_once) in [(1, false), (2, true)] {
        let files = Files::new();
        let (busy, twice) = (files.path("busy"), files.path("twice"));
        let program = files.script(&format!(
            "mkdir {busy} 2>/dev/null || echo > {twice}; sleep 0.5; rmdir {busy} 2>/dev/null; exit 3",
            busy = busy.display(),
            twice = twice.display()
        ));
        let limits = LoadLimits { compiles, ..LoadLimits::default() };
        let loader = loader(LoadOptions { limits, ..LoadOptions::new(program) });
        let plugins = [1, 2, 3].map(|count| component(&format!("(core module {})", "(func)".repeat(count))));
        let [a, b, c] = &plugins;
        let ended = tokio::join!(load_bytes(&loader, a), load_bytes(&loader, b), load_bytes(&loader, c));
        assert!(ended.0.is_err() && ended.1.is_err() && ended.2.is_err());
        assert_eq!(twice.exists(), at_once, "{compiles} compilers");
    }
}

/// The component of a few hundred bytes, without the count that refuses it at once: the child's limits hold on their own.
#[tokio::test]
async fn the_instance_bomb_is_stopped_by_the_child_as_well_and_others_are_served_meanwhile() {
    if !alone("load::bombs::the_instance_bomb_is_stopped_by_the_child_as_well_and_others_are_served_meanwhile") {
        return;
    }
    let limits = LoadLimits {
        core_instances: u64::MAX,
        compile_memory: 512 << 20,
        compile_cpu: Duration::from_secs(5),
        ..LoadLimits::default()
    };
    let loader = loader(LoadOptions { limits, ..options() });
    let (bomb, good) = (instances(), component(""));
    let before = peak_kib();
    let started = Instant::now();
    let served = async {
        let mut served = 0;
        while started.elapsed() < Duration::from_secs(1) {
            load_bytes(&loader, &good).await.expect("a good plugin loads");
            served += 1;
        }
        served
    };
    let (refused, served) = tokio::join!(load_bytes(&loader, &bomb), served);
    let error = refused.err().expect("refused");
    assert!(error.starts_with("load.limit is too costly to compile"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert!(served > 0);
    let grown = peak_kib() - before;
    assert!(grown < 200 << 10, "the host grew by {grown} KiB");
}
