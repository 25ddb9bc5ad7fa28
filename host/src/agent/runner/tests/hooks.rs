use super::*;
use crate::agent::hook::{AfterModel, AfterTool, BeforeModel, BeforeTool, OnCompaction, RunInfo};
use crate::agent::testing::failed;
use crate::message::{Role, ToolCall};
use crate::provider::ModelRequest;
use crate::tool::{BoxFuture, ToolOutcome};

/// A hook made of closures; those that are not set do nothing.
#[derive(Default)]
struct TestHook {
    name: &'static str,
    before_model: Option<fn(&ModelRequest) -> BeforeModel>,
    after_model: Option<fn(&ModelTurn) -> AfterModel>,
    before_tool: Option<fn(&ToolCall) -> BeforeTool>,
    after_tool: Option<fn(&ToolCall, &ToolOutcome) -> AfterTool>,
    on_compaction: Option<fn(&ModelRequest) -> OnCompaction>,
    on_stop: Option<fn(&RunResult) -> OnStop>,
}

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

impl Hook for TestHook {
    fn name(&self) -> &str {
        self.name
    }
    fn before_model<'a>(&'a self, _: &'a RunInfo, request: &'a ModelRequest) -> BoxFuture<'a, BeforeModel> {
        ready(self.before_model.map_or(BeforeModel::Continue, |hook| hook(request)))
    }
    fn after_model<'a>(&'a self, _: &'a RunInfo, turn: &'a ModelTurn) -> BoxFuture<'a, AfterModel> {
        ready(self.after_model.map_or(AfterModel::Continue, |hook| hook(turn)))
    }
    fn before_tool<'a>(&'a self, _: &'a RunInfo, call: &'a ToolCall) -> BoxFuture<'a, BeforeTool> {
        ready(self.before_tool.map_or(BeforeTool::Continue, |hook| hook(call)))
    }
    fn after_tool<'a>(&'a self, _: &'a RunInfo, call: &'a ToolCall, outcome: &'a ToolOutcome) -> BoxFuture<'a, AfterTool> {
        ready(self.after_tool.map_or(AfterTool::Continue, |hook| hook(call, outcome)))
    }
    fn on_compaction<'a>(&'a self, _: &'a RunInfo, request: &'a ModelRequest) -> BoxFuture<'a, OnCompaction> {
        ready(self.on_compaction.map_or(OnCompaction::Continue, |hook| hook(request)))
    }
    fn on_stop<'a>(&'a self, _: &'a RunInfo, result: &'a RunResult) -> BoxFuture<'a, OnStop> {
        ready(self.on_stop.map_or(OnStop::Continue, |hook| hook(result)))
    }
}

/// Runs a script under hooks.
async fn run_with(
    hooks: impl IntoIterator<Item = TestHook>,
    turns: impl IntoIterator<Item = ModelTurn>,
    tools: &Arc<FakeTools>,
) -> (Run, RunResult, Vec<ModelRequest>, Arc<Recorder>) {
    let model = FakeModel::script(turns);
    let (mut runner, recorder) = runner(&model, tools);
    for hook in hooks {
        runner = runner.with_hook(Arc::new(hook));
    }
    let mut run = runner.start("task").expect("starts");
    let result = runner.resume(&mut run, &CancellationToken::new()).await;
    (run, result, model.requests(), recorder)
}

fn one_call() -> [ModelTurn; 2] {
    [calls(&[("1", "a__read", r#"{"n":1}"#)]), says("done")]
}

#[tokio::test]
async fn rules_are_injected_before_each_call_of_the_model_in_the_order_of_the_hooks() {
    let first = TestHook { name: "first", before_model: Some(|request| patched(request, " one")), ..Default::default() };
    let second = TestHook { name: "second", before_model: Some(|request| patched(request, " two")), ..Default::default() };
    let (_, _, requests, _) = run_with([first, second], one_call(), &FakeTools::echo()).await;
    assert!(requests.len() == 2 && requests.iter().all(|request| request.system.ends_with(" one two")));
}

fn patched(request: &ModelRequest, text: &str) -> BeforeModel {
    let mut request = request.clone();
    request.system.push_str(text);
    BeforeModel::Patch(Box::new(request))
}

#[tokio::test]
async fn a_hook_can_answer_in_the_models_place_and_change_its_turn() {
    let skip = TestHook { before_model: Some(|_| BeforeModel::Skip(Box::new(says("from a cache")))), ..Default::default() };
    let (_, result, requests, _) = run_with([skip], [], &FakeTools::echo()).await;
    assert_eq!((result.answer.as_deref(), requests.len()), (Some("from a cache"), 0));
    let patch = TestHook { after_model: Some(|_| AfterModel::Patch(Box::new(says("censored")))), ..Default::default() };
    let (_, result, ..) = run_with([patch], [says("secret")], &FakeTools::echo()).await;
    assert_eq!(result.answer.as_deref(), Some("censored"));
}

#[tokio::test]
async fn changed_arguments_are_checked_like_the_models_own() {
    let tools = FakeTools::echo();
    let patch = TestHook { before_tool: Some(|_| BeforeTool::Patch(r#"{"n":2}"#.into())), ..Default::default() };
    let (run, ..) = run_with([patch], one_call(), &tools).await;
    assert!(format!("{:?}", run.messages()).contains(r#"a__read {\"n\":2}"#));
    let bad = TestHook { before_tool: Some(|_| BeforeTool::Patch("[]".into())), ..Default::default() };
    let (run, ..) = run_with([bad], one_call(), &tools).await;
    assert_eq!((statuses(&run), tools.log().len()), (vec![ToolStatus::Error], 2), "it ran the first time only");
}

#[tokio::test]
async fn a_hook_can_answer_in_a_tools_place() {
    let tools = FakeTools::echo();
    let skip = TestHook { before_tool: Some(|_| BeforeTool::Skip(Box::new(outcome("cached")))), ..Default::default() };
    let (run, ..) = run_with([skip], one_call(), &tools).await;
    assert_eq!((statuses(&run), tools.log()), (vec![ToolStatus::Ok], vec![]));
}

#[tokio::test]
async fn a_failed_tool_is_tried_again_with_corrected_arguments_a_bounded_number_of_times() {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let tools = FakeTools::new({
        let keys = keys.clone();
        move |call, context| {
            keys.lock().expect("lock").push((context.attempt, context.idempotency_key.clone()));
            Act::Give(if call.arguments.contains("good") { outcome("fine") } else { failed("bad") })
        }
    });
    let correct = TestHook {
        after_tool: Some(|_, outcome| match outcome.status {
            ToolStatus::Ok => AfterTool::Continue,
            _ => AfterTool::Retry(r#"{"x":"good"}"#.into()),
        }),
        ..Default::default()
    };
    let (run, ..) = run_with([correct], one_call(), &tools).await;
    assert_eq!(statuses(&run), [ToolStatus::Ok]);
    let seen = std::mem::take(&mut *keys.lock().expect("lock"));
    assert_eq!((seen[0].0, seen[1].0), (1, 2));
    assert_ne!(seen[0].1, seen[1].1, "other arguments are another request");
    let stubborn = TestHook { after_tool: Some(|_, _| AfterTool::Retry("{}".into())), ..Default::default() };
    let (run, ..) = run_with([stubborn], one_call(), &tools).await;
    assert_eq!((statuses(&run), keys.lock().expect("lock").len()), (vec![ToolStatus::Error], 3));
}

#[tokio::test]
async fn a_repeat_that_would_need_a_person_is_not_made() {
    let tools = FakeTools::new(|_, _| Act::Give(failed("bad")));
    let again = TestHook { after_tool: Some(|_, _| AfterTool::Retry(r#"{"other":1}"#.into())), ..Default::default() };
    let model = FakeModel::script([calls(&[("1", "a__ask", "{}")]), says("done")]);
    let (runner, _) = runner(&model, &tools);
    let runner = runner.with_hook(Arc::new(again)).with_approver(Arc::new(Scripted::new([Approval::ForRun; 9])));
    runner.run("task", &CancellationToken::new()).await.expect("runs");
    assert_eq!(tools.log(), ["+1", "-1"]);
}

#[tokio::test]
async fn each_point_can_stop_the_run() {
    let stops = [
        TestHook { name: "h", before_model: Some(|_| BeforeModel::Stop("why".into())), ..Default::default() },
        TestHook { name: "h", after_model: Some(|_| AfterModel::Stop("why".into())), ..Default::default() },
        TestHook { name: "h", before_tool: Some(|_| BeforeTool::Stop("why".into())), ..Default::default() },
        TestHook { name: "h", after_tool: Some(|_, _| AfterTool::Stop("why".into())), ..Default::default() },
    ];
    for hook in stops {
        let (run, result, ..) = run_with([hook], one_call(), &FakeTools::echo()).await;
        assert_eq!(result.stop_reason, StopReason::HookStopped);
        assert!(result.error.expect("says why").message.contains("hook `h` stopped the run: why"));
        let (calls, results): (Vec<_>, Vec<_>) = (run.messages().iter().flat_map(Message::tool_calls).collect(), statuses(&run));
        assert_eq!(calls.len(), results.len(), "each call has its outcome");
    }
}

#[tokio::test]
async fn a_hook_can_keep_a_run_going_three_times() {
    let more = TestHook { on_stop: Some(|_| OnStop::Resume("are you sure?".into())), ..Default::default() };
    let (_, result, requests, recorder) = run_with([more], (0..4).map(|n| says(&n.to_string())), &FakeTools::echo()).await;
    assert_eq!((result.answer.as_deref(), requests.len()), (Some("3"), 4));
    let ends = recorder.kinds().iter().filter(|kind| matches!(kind, EventKind::RunFinished { .. })).count();
    assert_eq!(ends, 1);
}

#[tokio::test]
async fn a_hook_can_give_the_summary() {
    let mut settings = RunnerSettings::default();
    settings.run.context.window_tokens = 2_000;
    settings.run.context.protect_tokens = 100;
    let turns = (0..30).map(|n| calls(&[("c", "a__read", &format!(r#"{{"n":"{n} {}"}}"#, "x".repeat(400)))]));
    let model = FakeModel::script(turns.chain([says("done")]));
    let (runner, recorder) = runner(&model, &FakeTools::echo());
    let hook = TestHook { on_compaction: Some(|_| OnCompaction::Skip("all is well".into())), ..Default::default() };
    let runner = runner.with_settings(settings).with_hook(Arc::new(hook));
    runner.run("task", &CancellationToken::new()).await.expect("runs");
    assert!(recorder.kinds().iter().any(|kind| matches!(kind, EventKind::ContextSummarised { fallback: false, .. })));
    let last = model.requests().pop().expect("asked");
    assert!(last.messages[0].role == Role::User && format!("{:?}", last.messages[0]).contains("all is well"));
}

#[tokio::test]
async fn a_hook_that_panics_is_reported_and_before_a_tool_the_call_does_not_run() {
    let tools = FakeTools::echo();
    let broken = TestHook {
        name: "broken",
        before_model: Some(|_| panic!("bug")),
        after_model: Some(|_| panic!("bug")),
        before_tool: Some(|_| panic!("bug")),
        on_stop: Some(|_| panic!("bug")),
        ..Default::default()
    };
    let (run, result, _, recorder) = run_with([broken], one_call(), &tools).await;
    assert_eq!(result.stop_reason, StopReason::EndTurn);
    assert_eq!((statuses(&run), tools.log()), (vec![ToolStatus::NotExecuted], vec![]));
    let mut points: Vec<_> = recorder
        .kinds()
        .into_iter()
        .filter_map(|kind| if let EventKind::HookFailed { point, .. } = kind { Some(point) } else { None })
        .collect();
    points.sort();
    points.dedup();
    assert_eq!(points, ["after_model", "before_model", "before_tool", "on_stop"]);
}
