//! The program is killed in the middle of tasks that change the world; another process goes on with them.

use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use honeycomb_tests::effects::Effects;
use honeycomb_tests::host::{Host, Ran, guests_dir, plugins_dir};
use honeycomb_tests::news::tell;
use serde_json::Value;

const ROUNDS: usize = 50;
const STEPS: usize = 10;
/// Rounds at a time: most of a round is waiting, and the processes share one store.
const SIDE_BY_SIDE: usize = 4;

fn host(effects: &Effects) -> Host {
    let host = Host::new();
    for (directory, name) in [(guests_dir(), "misbehave.wasm"), (plugins_dir(), "fetch.wasm")] {
        host.write(&format!("tools/{name}"), std::fs::read(directory.join(name)).expect("a built plugin"));
    }
    let tools = host.path().join("tools");
    host.plugins(tools).policy(&effects.policy()).variable("OPENAI_BASE_URL", &format!("http://127.0.0.1:{}/v1", effects.port()))
}

/// The session whose title is this.
fn session(host: &Host, title: &str) -> Option<String> {
    let ran = host.run(&["sessions", "list", "--limit", "1000", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let page: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let sessions = page["sessions"].as_array().expect("a list");
    sessions.iter().find(|session| session["title"] == title).and_then(|session| session["id"].as_str()).map(str::to_owned)
}

/// Starts the program and kills it: `after` its model is asked about the task, or, without that, after it started.
fn kill(host: &Host, arguments: &[&str], asked: Option<(&Effects, &str)>, after: Duration) -> bool {
    let mut victim =
        host.command().args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    if let Some((effects, task)) = asked {
        assert!(effects.wait_for(task), "the model is never asked about {task}");
    }
    std::thread::sleep(after);
    let running = victim.try_wait().expect("asked").is_none();
    victim.kill().expect("killed");
    victim.wait().expect("reaped");
    running
}

/// Fractions between 0 and 1, the same each time.
fn fractions() -> impl Iterator<Item = f64> {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 40) as f64 / f64::from(1 << 24)
    })
}

#[test]
fn a_task_that_is_killed_goes_on_and_nothing_happens_twice() {
    let effects = Effects::start(STEPS, Duration::from_millis(16));
    let host = host(&effects);

    // One after the other, so that the plugins are compiled and the time is known.
    assert_eq!(host.run(&["warm"]).code, 0);
    let begun = Instant::now();
    let whole = host.run(&["measure"]);
    let whole_time = begun.elapsed();
    assert_eq!(check(&effects, "measure", &whole), 0);

    let [killed, unknown, lost, again] = [const { AtomicUsize::new(0) }; 4];
    let moments: Vec<[f64; 2]> = fractions().zip(fractions().skip(ROUNDS)).take(ROUNDS).map(|(a, b)| [a, b]).collect();
    let next = AtomicUsize::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                while let Some(round) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|round| *round < ROUNDS) {
                    let task = format!("round{round}");
                    let [first, second] = moments[round].map(|fraction| whole_time.mul_f64(fraction));
                    // One in five at any moment since the start, the others while the task is under way.
                    let asked = (round % 5 != 0).then_some((&effects, task.as_str()));
                    killed.fetch_add(usize::from(kill(&host, &[&task], asked, first)), Ordering::Relaxed);
                    let Some(id) = session(&host, &task) else {
                        assert_eq!(effects.of(&task), (vec![0; STEPS / 2], vec![0; STEPS / 2]), "nothing was done unseen");
                        lost.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    if round % 3 == 0 {
                        // Also the process that goes on is killed.
                        again.fetch_add(usize::from(kill(&host, &["sessions", "resume", &id], None, second)), Ordering::Relaxed);
                    }
                    let ran = host.run(&["sessions", "resume", &id]);
                    unknown.fetch_add(check(&effects, &task, &ran), Ordering::Relaxed);
                }
            });
        }
    });
    let number = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    tell(&format!(
        "killed: {} of {ROUNDS} tasks of {whole_time:?} before their end, {} again while they went on; {} had not begun; \
         {} calls were cut off with an unknown outcome; {:?} in all",
        number(&killed),
        number(&again),
        number(&lost),
        number(&unknown),
        begun.elapsed(),
    ));
    assert!(number(&killed) >= ROUNDS / 4, "{} of {ROUNDS} were still running", number(&killed));
    assert!(number(&lost) <= ROUNDS / 5, "only a task that had not begun leaves no session");
}

/// The task came to its end, and each effect happened as often as it may. Returns how many calls have an unknown outcome.
fn check(effects: &Effects, task: &str, ran: &Ran) -> usize {
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "done\n"), "{task}: {ran:?}");
    let (once, repeatable) = effects.of(task);
    assert!(once.iter().all(|count| *count <= 1), "{task}: {once:?}: an effect happened twice");
    let results = effects.results(task);
    assert_eq!(results.len(), STEPS, "{task}: {results:?}");
    for (count, result) in repeatable.iter().zip(results.iter().skip(1).step_by(2)) {
        // On a machine that is busy enough, a call runs into its deadline; then the model was told.
        let told = result.contains("limit.time") || result.contains("timeout") || result.contains("timed out");
        assert!(*count >= 1 || told, "{task}: {repeatable:?} {result}: a call that may be repeated was not");
    }
    let unknown = results.iter().filter(|result| result.contains("outcome is unknown")).count();
    // Whatever the model was not told of happened, and it was told of everything else.
    let missing = once.iter().filter(|count| **count == 0).count();
    assert!(missing <= unknown, "{task}: {once:?} {results:?}");
    unknown
}
