//! The host is killed at random points of reading, compiling and filing; what is left is whole.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use honeycomb_host::sandbox::load::LoadOptions;

use super::{Files, component, host_program, loader};

/// Names the directory that a victim works in; its presence makes [`victim`] one.
const VICTIM: &str = "HONEYCOMB_TEST_VICTIM";

const PLUGINS: usize = 4;

fn plugin(number: usize) -> Vec<u8> {
    component(&format!("(core module {})", "(func (result i32) i32.const 1 i32.const 2 i32.add)".repeat(1 + number * 300)))
}

async fn load_all(dir: &Path) {
    let options = LoadOptions { cache_dir: Some(dir.join("cache")), ..LoadOptions::new(dir.join("compiler")) };
    let loader = loader(options);
    for number in 0..PLUGINS {
        let path = dir.join(format!("{number}.wasm"));
        loader.load(&path, None).await.unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Not a test by itself: loads plugins, again and again from an empty cache, until it is killed.
#[tokio::test]
async fn victim() {
    let Ok(dir) = std::env::var(VICTIM) else { return };
    loop {
        load_all(Path::new(&dir)).await;
        for entry in std::fs::read_dir(Path::new(&dir).join("cache")).expect("listed").flatten() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Processes that run the program at this path.
fn running(program: &Path) -> usize {
    let processes = std::fs::read_dir("/proc").expect("listed").flatten();
    processes.filter(|process| std::fs::read_link(process.path().join("exe")).is_ok_and(|exe| exe == program)).count()
}

#[tokio::test]
async fn a_host_that_is_killed_leaves_a_whole_cache_and_no_compiler() {
    let files = Files::new();
    let dir = files.0.path().canonicalize().expect("a path");
    for number in 0..PLUGINS {
        files.write(&format!("{number}.wasm"), &plugin(number));
    }
    // A program of its own name, so that its processes can be told from those of other tests.
    let compiler = dir.join("compiler");
    std::fs::copy(host_program(), &compiler).expect("copied");

    let mut seed = 0x9e37_79b9_u64;
    for round in 0..40 {
        let mut victim = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", "load::crash::victim", "--nocapture"])
            .env(VICTIM, &dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        tokio::time::sleep(Duration::from_millis(5 + (seed >> 33) % 200)).await;
        assert_eq!(victim.try_wait().expect("asked"), None, "round {round}: the victim failed by itself");
        victim.kill().expect("killed");
        victim.wait().expect("reaped");
    }

    let deadline = Instant::now() + Duration::from_secs(10);
    while running(&compiler) > 0 {
        assert!(Instant::now() < deadline, "{} compilers outlive their hosts", running(&compiler));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    load_all(&dir).await;
    let names: Vec<String> = std::fs::read_dir(dir.join("cache"))
        .expect("listed")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    assert!(names.iter().all(|name| name == "key" || name.ends_with(".cwasm")), "{names:?}");
    assert_eq!(names.len(), PLUGINS + 1, "{names:?}");
}
