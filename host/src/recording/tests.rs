use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::agent::{Budget, Clock, Event, Observer, RunResult, RunSettings, Runner, RunnerSettings, StopReason};
use crate::approval::Scripted;
use crate::message::{FinishReason, ModelTurn, Part, TokenUsage, ToolCall, ToolStatus};
use crate::provider::{ModelEvent, ModelRequest, Provider, ProviderError, ProviderErrorClass};
use crate::secret::Redactor;
use crate::tool::{
    Approval, BoxFuture, CallContext, CallUsage, Check, Content, ErrorCode, Failure, Progress, Question, ToolHints, ToolOutcome,
    ToolSpec, Tools,
};

/// One turn of the model in a plan.
#[derive(Clone, Debug, Default)]
struct Turn {
    pieces: Vec<String>,
    /// The tool's place in `TOOLS`, and the arguments.
    calls: Vec<(usize, String)>,
    fails: bool,
    /// Never answers.
    hangs: bool,
}

const TOOLS: [&str; 6] = ["a__read", "b__read", "a__write", "a__ask", "a__deny", "nobody__knows"];

/// Time that moves on with every look at it.
struct JumpyClock(AtomicU64, u64);

impl Clock for JumpyClock {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(self.1, Ordering::SeqCst)
    }
}

struct Model {
    turns: Vec<Turn>,
    next: AtomicUsize,
    /// Cancels the run while this turn is asked.
    cancel_at: Option<usize>,
    cancel: CancellationToken,
}

impl Provider for Model {
    fn complete<'a>(
        &'a self,
        _request: &'a ModelRequest,
        events: &'a mut (dyn FnMut(ModelEvent) + Send),
        _cancel: CancellationToken,
    ) -> BoxFuture<'a, Result<ModelTurn, ProviderError>> {
        Box::pin(async move {
            let at = self.next.fetch_add(1, Ordering::SeqCst);
            let turn = self.turns.get(at).cloned().unwrap_or_default();
            for piece in &turn.pieces {
                events(ModelEvent::TextDelta { text: piece.clone() });
                tokio::task::yield_now().await;
            }
            if self.cancel_at == Some(at) {
                self.cancel.cancel();
                tokio::task::yield_now().await;
            }
            if turn.hangs {
                std::future::pending::<()>().await;
            }
            if turn.fails {
                events(ModelEvent::Retry { attempt: 2, delay_ms: 1, reason: "busy".into(), discard: true });
                return Err(ProviderError {
                    class: ProviderErrorClass::Overloaded,
                    message: "忙".into(),
                    hint: None,
                    status: Some(529),
                    retry_after: Some(Duration::from_secs(1)),
                    response_started: true,
                });
            }
            let mut parts = vec![Part::text(turn.pieces.concat())];
            for (index, (tool, arguments)) in turn.calls.iter().enumerate() {
                let (id, name) = (format!("c{at}-{index}"), TOOLS[*tool].to_owned());
                events(ModelEvent::ToolCallStarted { id: id.clone(), name: name.clone() });
                parts.push(Part::ToolCall(ToolCall { id, provider_id: None, name, arguments: arguments.clone() }));
            }
            let finish_reason = if turn.calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
            Ok(ModelTurn {
                parts,
                finish_reason,
                usage: TokenUsage { input_tokens: 7, output_tokens: 3, ..TokenUsage::default() },
            })
        })
    }

    fn model(&self) -> &str {
        "planned"
    }
}

/// Tools whose calls end in another order than they start.
struct Planned;

impl Tools for Planned {
    fn specs(&self) -> Arc<[ToolSpec]> {
        let spec = |name: &str| ToolSpec {
            name: name.to_owned(),
            title: None,
            description: "Does something.".to_owned(),
            input_schema: json!({"type": "object", "properties": {}}),
            output_schema: None,
            hints: ToolHints { read_only: name.ends_with("read"), ..ToolHints::default() },
        };
        TOOLS[..5].iter().map(|name| spec(name)).collect()
    }

    fn check(&self, _run_id: &str, call: &ToolCall) -> Check {
        match call.name.as_str() {
            "a__ask" => Check::Ask(Box::new(Question {
                plugin: "a".into(),
                tool: "ask".into(),
                arguments: json!({"x": call.arguments}),
                rule: "policy.toml:3".into(),
                rule_id: String::new(),
                sha256: String::new(),
                hints: ToolHints::default(),
            })),
            "a__deny" => {
                let failure = Failure::new(ErrorCode::POLICY_DENIED, "not allowed");
                Check::Refused(Box::new(ToolOutcome::refused(ToolStatus::Denied, failure)))
            }
            _ => Check::Ready,
        }
    }

    fn call<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let weight = call.arguments.len() % 5 + call.id.len() % 3;
            for step in 0..weight {
                if let Some(progress) = &context.progress {
                    progress(Progress { done: step as u64, total: None, message: Some(call.id.clone()) });
                }
                for _ in 0..(weight * 7) % 4 {
                    tokio::task::yield_now().await;
                }
            }
            if call.arguments.contains("panic") {
                panic!("the host is broken");
            }
            ToolOutcome {
                status: ToolStatus::Ok,
                // A number that a careless reader of JSON gets wrong in its last digit.
                content: vec![Content::Json { value: json!({"sum": 0.1 + 0.2 + weight as f64 / 3.0, "城市": call.arguments}) }],
                structured: None,
                error: None,
                denials: Vec::new(),
                usage: CallUsage { fuel: 10, memory_bytes: 64, wall_us: 5, ..CallUsage::default() },
            }
        })
    }
}

#[derive(Default)]
struct Events(Mutex<Vec<Event>>);

impl Observer for Events {
    fn event(&self, event: &Event) {
        self.0.lock().expect("lock").push(event.clone());
    }
}

impl Events {
    fn json(&self) -> String {
        self.0.lock().expect("lock").iter().map(|event| serde_json::to_string(event).expect("serialises") + "\n").collect()
    }
}

struct Plan {
    turns: Vec<Turn>,
    answers: Vec<Approval>,
    clock_step: u64,
    cancel_at: Option<usize>,
    secrets: Vec<&'static str>,
    max_wall_ms: Option<u64>,
    max_bytes: u64,
}

impl Plan {
    fn of(turns: Vec<Turn>) -> Self {
        let (answers, secrets) = (Vec::new(), Vec::new());
        Self { turns, answers, clock_step: 20, cancel_at: None, secrets, max_wall_ms: None, max_bytes: MAX_FILE_BYTES }
    }

    /// Records the run: the file, the events as JSON lines, and the result.
    async fn record(self) -> (Vec<u8>, String, RunResult, Result<(), RecordingError>) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("run.jsonl");
        let clock = Arc::new(JumpyClock(AtomicU64::new(1_796_000_000_000), self.clock_step));
        let redactor = Redactor::new(self.secrets.iter().copied());
        let recorder = Recorder::create_with(&path, redactor, clock, self.max_bytes).expect("a file");
        let cancel = CancellationToken::new();
        let model = Model { turns: self.turns, next: AtomicUsize::new(0), cancel_at: self.cancel_at, cancel: cancel.clone() };
        let events = Arc::new(Events::default());
        let budget = Budget { max_steps: 6, max_wall_ms: self.max_wall_ms, ..Budget::default() };
        let settings = RunnerSettings {
            run: RunSettings { budget, ..RunSettings::default() },
            max_parallel: 3,
            ..RunnerSettings::default()
        };
        let runner = Runner::new(recorder.provider(Arc::new(model)), recorder.tools(Arc::new(Planned)))
            .with_approver(recorder.approver(Arc::new(Scripted::new(self.answers))))
            .with_clock(recorder.clock())
            .with_observer(recorder.observer())
            .with_observer(events.clone())
            .with_settings(settings.clone());
        let run = runner.start("北京天气怎么样？ hunter2hunter2").expect("starts");
        let mut run = recorder.begin(&run, &settings, Origin::default()).expect("begins");
        let result = runner.resume(&mut run, &cancel).await;
        let finished = recorder.finish(&result);
        (std::fs::read(&path).expect("the file"), events.json(), result, finished)
    }
}

async fn play(bytes: &[u8]) -> (Replayed, String) {
    let recording = Recording::parse(bytes).expect("a recording");
    let events = Arc::new(Events::default());
    let replayed = replay(&recording, Some(events.clone())).await;
    (replayed, events.json())
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let arguments =
        prop_oneof![4 => "\\{\"x\":[0-9]{1,6}\\}", 1 => Just("not json".to_owned()), 1 => Just("{\"panic\":1}".to_owned())];
    let call = (0..TOOLS.len(), arguments);
    let turn = (prop::collection::vec("[a-z北京 ]{0,6}", 0..6), prop::collection::vec(call, 0..5), prop::bool::weighted(0.05));
    let turn = turn.prop_map(|(pieces, calls, fails)| Turn { pieces, calls, fails, hangs: false });
    prop::collection::vec(turn, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_run_replays_to_the_same_events(
        turns in turns(),
        answers in prop::collection::vec(prop_oneof![Just(Approval::Once), Just(Approval::ForRun), Just(Approval::No)], 0..4),
        clock_step in 0u64..120,
        cancel_at in prop::option::weighted(0.3, 0usize..4),
        place in any::<prop::sample::Index>(),
        bit in 0u8..8,
        end in any::<prop::sample::Index>(),
    ) {
        block_on(async {
            let plan = Plan { answers, clock_step, cancel_at, ..Plan::of(turns) };
            let (bytes, recorded, _, finished) = plan.record().await;
            finished.expect("written");
            let (replayed, events) = play(&bytes).await;
            prop_assert_eq!(&replayed.verdict, &Verdict::Identical);
            prop_assert_eq!(replayed.events, recorded.lines().count());
            prop_assert_eq!(events, recorded);

            // A flipped bit is found, wherever it is.
            let mut damaged = bytes.clone();
            damaged[place.index(bytes.len())] ^= 1 << bit;
            if let Ok(recording) = Recording::parse(&damaged) {
                let replayed = replay(&recording, None).await;
                prop_assert!(replayed.verdict != Verdict::Identical, "{:?}", replayed);
            }
            // What a kill leaves behind replays as far as it goes.
            let kept = end.index(bytes.len());
            if let Ok(recording) = Recording::parse(&bytes[..kept]) {
                let replayed = replay(&recording, None).await;
                prop_assert!(matches!(replayed.verdict, Verdict::EndsEarly { .. }), "{:?}", replayed);
            }
            Ok(())
        })?;
    }
}

fn says(text: &str) -> Turn {
    Turn { pieces: vec![text.to_owned()], ..Turn::default() }
}

fn calls(calls: &[(usize, &str)]) -> Turn {
    let calls = calls.iter().map(|(tool, arguments)| (*tool, (*arguments).to_owned())).collect();
    Turn { calls, ..Turn::default() }
}

#[tokio::test]
async fn a_run_whose_time_was_up_replays_without_the_wait() {
    let hangs = Turn { pieces: vec!["let me".into()], hangs: true, ..Turn::default() };
    let plan = Plan { max_wall_ms: Some(200), ..Plan::of(vec![calls(&[(0, "{}"), (1, "{}")]), hangs]) };
    let (bytes, recorded, result, _) = plan.record().await;
    assert_eq!(result.stop_reason, StopReason::Deadline);
    let (replayed, events) = play(&bytes).await;
    assert_eq!(replayed.verdict, Verdict::Identical);
    assert_eq!(events, recorded);
}

#[tokio::test]
async fn secrets_are_not_in_the_file_and_it_still_replays() {
    let secret = "hunter2hunter2";
    let spread = Turn { pieces: vec!["it is hunter2".into(), "hunter2, I think".into()], ..Turn::default() };
    let argument = format!("{{\"x\":\"{secret}\"}}");
    let plan = Plan { secrets: vec![secret], ..Plan::of(vec![calls(&[(0, &argument)]), spread]) };
    let (bytes, _, result, _) = plan.record().await;
    let text = String::from_utf8(bytes.clone()).expect("UTF-8");
    assert!(!text.contains(secret), "{text}");
    assert!(!text.contains("it is hunter2"), "no half of it either: {text}");
    assert_eq!(result.answer.as_deref(), Some("it is [secret], I think"));
    assert_eq!(play(&bytes).await.0.verdict, Verdict::Identical);
}

#[tokio::test]
async fn a_full_recording_says_so_and_the_run_goes_on() {
    let plan = Plan { max_bytes: 6_000, ..Plan::of(vec![calls(&[(0, "{}")]), calls(&[(2, "{}")]), says("done")]) };
    let (bytes, _, result, finished) = plan.record().await;
    assert_eq!(result.stop_reason, StopReason::EndTurn);
    assert!(matches!(finished, Err(RecordingError::Full { .. })), "{finished:?}");
    assert!(bytes.len() <= 6_000);
    assert!(matches!(play(&bytes).await.0.verdict, Verdict::EndsEarly { .. }));
}

#[tokio::test]
async fn a_divergence_names_the_line_and_what_differs() {
    let (bytes, ..) = Plan::of(vec![calls(&[(0, "{\"x\":1}")]), says("five")]).record().await;
    // The same lines, sealed anew, with another outcome in the third turn's text.
    let mut seal = format::Seal::default();
    let mut open = format::Seal::default();
    let text = String::from_utf8(bytes).expect("UTF-8");
    let line = |text: &str| text.contains("\"kind\":\"run.finished\"");
    let number = text.lines().position(line).expect("the last event") + 1;
    let forged: String = text
        .lines()
        .map(|line| seal.seal(&open.open(line).expect("sealed").replace("\"answer\":\"five\"", "\"answer\":\"six\"")))
        .collect();
    let Verdict::Diverged(divergence) = play(forged.as_bytes()).await.0.verdict else { panic!("it is not the same") };
    assert_eq!((divergence.line, divergence.what.as_str()), (number, "/answer"));
    assert_eq!((divergence.recorded.as_str(), divergence.replayed.as_str()), ("\"six\"", "\"five\""));
}

#[test]
fn files_that_are_no_usable_recording_say_why() {
    let (bytes, ..) = block_on(Plan::of(vec![says("hi")]).record());
    let text = String::from_utf8(bytes).expect("UTF-8");
    let lines: Vec<&str> = text.lines().collect();
    let newer = text.replacen("\"format\":1", "\"format\":2", 1);
    let without_second = format!("{}\n{}\n", lines[0], lines[2..].join("\n"));
    let damaged = text.replacen("run.started", "run.startled", 1);
    for (text, expected) in [
        ("", "not a recording"),
        ("hello\n", "first line is not JSON"),
        ("{\"seq\":0}\n", "first line is not a header"),
        ("{\"kind\":\"header\"}\n", "names no format"),
        (newer.as_str(), "format 2, and this program reads up to 1"),
        (without_second.as_str(), "line 2 of the recording is damaged"),
        (damaged.as_str(), "line 2 of the recording is damaged"),
    ] {
        let error = Recording::parse(text.as_bytes()).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(Recording::parse(b"\xff\n").is_err());
}

#[cfg(unix)]
#[test]
fn a_recording_is_its_owners_and_replaces_nothing() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("run.jsonl");
    Recorder::create(&path, Redactor::default()).expect("made");
    assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    assert!(matches!(Recorder::create(&path, Redactor::default()), Err(RecordingError::Exists { .. })));
}

#[tokio::test]
async fn live_tools_are_compared_call_by_call() {
    struct Other;
    impl Tools for Other {
        fn specs(&self) -> Arc<[ToolSpec]> {
            Planned.specs()
        }
        fn check(&self, run_id: &str, call: &ToolCall) -> Check {
            match call.name.as_str() {
                "b__read" => Planned.check(run_id, &ToolCall { name: "a__deny".into(), ..call.clone() }),
                "a__deny" => Check::Ready,
                _ => Planned.check(run_id, call),
            }
        }
        fn call<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolOutcome> {
            Box::pin(async move {
                assert_ne!(call.name, "a__deny", "what did not run then does not run now");
                if call.name == "a__ask" && context.approval != Some(Approval::Once) {
                    let failure = Failure::new(ErrorCode::POLICY_DENIED, "nobody said yes");
                    return ToolOutcome::refused(ToolStatus::Denied, failure);
                }
                let mut outcome = Planned.call(call, context).await;
                if call.name == "a__write" {
                    outcome.content = vec![Content::Text { text: "other".into() }];
                }
                outcome
            })
        }
    }
    let all = calls(&[(0, "{}"), (1, "{}"), (2, "{}"), (3, "{}"), (4, "{}")]);
    let plan = Plan { answers: vec![Approval::Once], ..Plan::of(vec![all, says("ok")]) };
    let (bytes, ..) = plan.record().await;
    let recording = Recording::parse(&bytes).expect("a recording");
    let mut seen = Vec::new();
    // The recorded yes counts for nothing.
    let nobody = Scripted::default();
    let report = compare_live(&recording, &Other, &nobody, &CancellationToken::new(), &mut |call: &CallComparison| {
        seen.push((call.tool.clone(), call.differences.iter().map(|difference| difference.what.clone()).collect::<Vec<_>>()));
    })
    .await;
    let expected = [
        ("a__read", vec![]),
        ("b__read", vec!["decision", "status", "error", "/0"]),
        ("a__write", vec!["/0/type"]),
        ("a__ask", vec!["status", "error", "/0"]),
        ("a__deny", vec!["decision"]),
    ];
    let expected: Vec<(String, Vec<String>)> =
        expected.into_iter().map(|(tool, what)| (tool.to_owned(), what.into_iter().map(str::to_owned).collect())).collect();
    assert_eq!(seen, expected);
    assert_eq!((report.calls, report.different), (5, 4));
    assert_eq!(nobody.asked().len(), 1);
}
