//! Many guests at once, and many after one another.

use std::time::{Duration, Instant};

use honeycomb_host::policy::Limits;
use honeycomb_host::sandbox::Allocation;
use honeycomb_tests::alone::alone;
use honeycomb_tests::guest::Guest;
use honeycomb_tests::news::tell;

use super::fixture::{Fixture, call, code};

fn spinner() -> Guest {
    Guest { body: "(loop $again (br $again)) unreachable".to_owned(), ..Guest::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_spinners_end_by_their_deadline_and_starve_nobody() {
    if !alone("sandbox::crowd::sixty_four_spinners_end_by_their_deadline_and_starve_nobody") {
        return;
    }
    let fixture = Fixture::with(|options| options.max_calls = 80);
    let timeout = Duration::from_millis(1500);
    let limits = Limits { fuel: u64::MAX, timeout, concurrency: 64, ..Limits::default() };
    let spinning = fixture.bind(&spinner(), limits).await;
    let good = fixture.bind(&Guest::default(), Limits::default()).await;
    let calls: Vec<_> = (0..64)
        .map(|_| {
            let (sandbox, bound) = (fixture.sandbox.clone(), spinning.clone());
            tokio::spawn(async move {
                let started = Instant::now();
                let outcome = sandbox.call(&bound, call()).await;
                (code(&outcome).to_owned(), started.elapsed())
            })
        })
        .collect();
    let mut slowest = Duration::ZERO;
    for _ in 0..10 {
        let started = Instant::now();
        assert_eq!(code(&fixture.call(&good).await), "ok");
        slowest = slowest.max(started.elapsed());
    }
    let mut overshoot = Duration::ZERO;
    for call in calls {
        let (code, took) = call.await.expect("a call");
        assert_eq!(code, "limit.time");
        overshoot = overshoot.max(took.saturating_sub(timeout));
    }
    tell(&format!("64 spinners: a healthy call among them took at most {slowest:?}; deadline overshoot at most {overshoot:?}"));
    // Generous: the machine may be busy with other things. What it guards against is a wait for a spinner's end.
    assert!(slowest < timeout, "{slowest:?}");
    assert!(overshoot < Duration::from_millis(750), "{overshoot:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_traps_leave_nothing_behind() {
    if !alone("sandbox::crowd::ten_thousand_traps_leave_nothing_behind") {
        return;
    }
    let fixture = Fixture::new();
    let guest = Guest { body: "unreachable".to_owned(), ..Guest::default() };
    let bound = fixture.bind(&guest, Limits::default()).await;
    let trap = async |count: u32| {
        for _ in 0..count {
            assert_eq!(code(&fixture.call(&bound).await), "trap.unreachable_code_reached");
        }
    };
    trap(500).await;
    let before = Resources::now();
    trap(10_000).await;
    let after = Resources::now();
    tell(&format!("10,000 traps: before {before:?}, after {after:?}"));
    assert!(after.resident_kib < before.resident_kib + 8 * 1024, "{before:?} {after:?}");
    assert!(after.descriptors <= before.descriptors + 4, "{before:?} {after:?}");
    assert!(after.threads <= before.threads + 4, "{before:?} {after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_beyond_the_concurrency_wait_and_then_give_up() {
    let fixture = Fixture::new();
    let limits = Limits { fuel: u64::MAX, timeout: Duration::from_millis(300), concurrency: 1, ..Limits::default() };
    let bound = fixture.bind(&spinner(), limits).await;
    let calls: Vec<_> = (0..3)
        .map(|_| {
            let (sandbox, bound) = (fixture.sandbox.clone(), bound.clone());
            tokio::spawn(async move { sandbox.call(&bound, call()).await })
        })
        .collect();
    let mut codes = Vec::new();
    for call in calls {
        codes.push(code(&call.await.expect("a call")).to_owned());
    }
    codes.sort();
    assert_eq!(codes[0], "limit.busy", "{codes:?}");
    assert_eq!(codes[2], "limit.time", "{codes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_host_is_busy_and_serves_again() {
    let fixture = Fixture::with(|options| options.max_calls = 1);
    let limits = Limits { fuel: u64::MAX, timeout: Duration::from_millis(400), ..Limits::default() };
    let spinning = fixture.bind(&spinner(), limits).await;
    let good = fixture.bind(&Guest::default(), Limits { timeout: Duration::from_millis(50), ..Limits::default() }).await;
    let patient = fixture.bind(&Guest::default(), Limits::default()).await;
    let (sandbox, bound) = (fixture.sandbox.clone(), spinning.clone());
    let spin = tokio::spawn(async move { sandbox.call(&bound, call()).await });
    while fixture.sandbox.free_slots() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(code(&fixture.call(&good).await), "limit.busy");
    assert_eq!(code(&fixture.call(&patient).await), "ok");
    assert_eq!(code(&spin.await.expect("a call")), "limit.time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_cancelled_or_dropped_stops() {
    let fixture = Fixture::with(|options| options.max_calls = 1);
    let bound = fixture.bind(&spinner(), Limits { fuel: u64::MAX, ..Limits::default() }).await;
    let good = fixture.bind(&Guest::default(), Limits::default()).await;
    let request = call();
    let cancel = request.cancel.clone();
    let (outcome, ()) = tokio::join!(fixture.sandbox.call(&bound, request), async { cancel.cancel() });
    assert_eq!(code(&outcome), "call.cancelled");
    tokio::select! {
        outcome = fixture.sandbox.call(&bound, call()) => panic!("{outcome:?}"),
        () = tokio::time::sleep(Duration::from_millis(20)) => {}
    }
    // The only slot is free again: the dropped call is gone.
    assert_eq!(code(&fixture.call(&good).await), "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_a_host_function_ends_one_call() {
    let fixture = Fixture::new();
    let guest = Guest {
        imports: r#"(import "honeycomb:plugin/progress@0.1.0" (instance $progress
          (export "report" (func (param "done" u64) (param "total" (option u64)) (param "message" (option string)) (result bool)))))"#
            .to_owned(),
        host: vec![(
            "f".to_owned(),
            r#"(canon lower (func $progress "report")
              (memory (core memory $libc "memory")) (realloc (core func $libc "realloc")))"#
                .to_owned(),
        )],
        core_imports: r#"(import "host" "f" (func $report (param i64 i32 i64 i32 i32 i32) (result i32)))"#.to_owned(),
        body: "(drop (call $report (i64.const 1) (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0))) (call $ok)"
            .to_owned(),
        ..Guest::default()
    };
    let bound = fixture.bind(&guest, Limits::default()).await;
    let mut request = call();
    request.progress = Some(std::sync::Arc::new(|_| std::panic::resume_unwind(Box::new("a bug in the host"))));
    assert_eq!(code(&fixture.sandbox.call(&bound, request).await), "host.internal");
    assert_eq!(code(&fixture.call(&bound).await), "ok");
}

/// Set in a process that was started with little address space.
const SMALL: &str = "HONEYCOMB_TEST_SMALL_ADDRESS_SPACE";

#[test]
fn a_host_without_room_for_the_pool_still_serves() {
    let test = std::env::current_exe().expect("a path");
    let status = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 8000000 && exec \"$0\" --exact sandbox::crowd::serves_from_a_small_address_space"])
        .arg(test)
        .env(SMALL, "1")
        .status()
        .expect("a shell");
    assert!(status.success());
}

/// Only of use in the process that the test above starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_from_a_small_address_space() {
    if std::env::var_os(SMALL).is_none() {
        return;
    }
    let fixture = Fixture::new();
    assert_eq!(fixture.sandbox.allocation(), Allocation::OnDemand);
    let good = fixture.bind(&Guest::default(), Limits::default()).await;
    assert_eq!(code(&fixture.call(&good).await), "ok");
    let spinning = fixture.bind(&spinner(), Limits { fuel: 1_000_000, ..Limits::default() }).await;
    assert_eq!(code(&fixture.call(&spinning).await), "limit.fuel");
    assert_eq!(code(&fixture.call(&good).await), "ok");
}

/// What the process holds.
#[derive(Debug)]
struct Resources {
    resident_kib: u64,
    threads: u64,
    descriptors: usize,
}

impl Resources {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).expect("a field");
            line.split_whitespace().nth(1).and_then(|value| value.parse().ok()).expect("a number")
        };
        let descriptors = std::fs::read_dir("/proc/self/fd").expect("procfs").count();
        Self { resident_kib: field("VmRSS:"), threads: field("Threads:"), descriptors }
    }
}
