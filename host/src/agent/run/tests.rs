mod faults;
mod properties;

use std::sync::Arc;

use super::*;
use crate::agent::event::ToolCompleted;
use crate::agent::testing::{calls, error, outcome, part, read_only, says, spec, specs, turn};
use crate::agent::{Budget, Price};
use crate::message::{FinishReason, Part, ToolCall, ToolStatus};
use crate::provider::ProviderErrorClass;
use crate::tool::{Approval, Check, ToolHints, ToolOutcome};

fn run() -> Run {
    Run::new("run", "the task", RunSettings::default())
}

/// Steps a run by hand, with all calls allowed, until it asks the model or ends.
fn act(run: &mut Run, mut answer: impl FnMut(&ToolCall) -> ToolOutcome) -> Step {
    loop {
        match run.next_step(0, &specs()) {
            Step::CheckCalls(calls) => {
                let checks = calls.into_iter().map(|call| checked(&call.id, Check::Ready)).collect();
                run.on_checks(checks, 0);
            }
            Step::CallTools(group) => {
                let ids: Vec<_> = group.iter().map(|pending| pending.call.id.clone()).collect();
                run.on_started(&ids, 0);
                for pending in group {
                    assert!(run.on_tool(&pending.call.id, &answer(&pending.call), 0));
                }
            }
            step => return step,
        }
    }
}

fn checked(call_id: &str, check: Check) -> CheckedCall {
    CheckedCall { call_id: call_id.to_owned(), arguments: None, check }
}

/// Lets the model take one turn, and runs its calls.
fn take(run: &mut Run, turn: ModelTurn) -> Step {
    let step = act(run, |call| outcome(format!("{} {}", call.id, call.arguments)));
    assert!(matches!(step, Step::CallModel(_)), "{step:?}");
    run.on_model(Ok(turn), 0);
    act(run, |call| outcome(format!("{} {}", call.name, call.arguments)))
}

fn reason(step: &Step) -> StopReason {
    if let Step::Done(result) = step { result.stop_reason } else { panic!("not over: {step:?}") }
}

fn results(run: &Run) -> Vec<(String, ToolStatus, String)> {
    let parts = run.messages().iter().flat_map(|message| &message.parts);
    parts
        .filter_map(|part| match part {
            Part::ToolResult(result) => Some((result.call_id.clone(), result.status, result.text.clone())),
            _ => None,
        })
        .collect()
}

fn completed(run: &mut Run) -> Vec<ToolCompleted> {
    run.take_events()
        .into_iter()
        .filter_map(|event| if let EventKind::ToolCompleted(completed) = event { Some(*completed) } else { None })
        .collect()
}

#[test]
fn answers_and_ends() {
    let mut run = run();
    assert_eq!(run.phase(), Phase::Think);
    let Step::Done(result) = take(&mut run, says("579")) else { panic!() };
    assert_eq!((result.stop_reason, result.answer.as_deref(), result.usage.steps), (StopReason::EndTurn, Some("579"), 1));
    assert_eq!(run.phase(), Phase::Finish);
    let names: Vec<_> = run.take_events().iter().map(|kind| serde_json::to_value(kind).expect("json")["kind"].clone()).collect();
    assert_eq!(names, ["run.started", "step.started", "model.request", "model.completed", "run.finished"]);
}

#[test]
fn readers_run_together_and_others_alone_and_in_order() {
    let mut run = run();
    take_only(
        &mut run,
        calls(&[("1", "a__read", "{}"), ("2", "b__read", "{}"), ("3", "a__write", "{}"), ("4", "a__read", "{}")]),
    );
    let mut groups = Vec::new();
    loop {
        match run.next_step(0, &specs()) {
            Step::CheckCalls(calls) => {
                run.on_checks(calls.iter().map(|call| checked(&call.id, Check::Ready)).collect(), 0);
            }
            Step::CallTools(group) => {
                let ids: Vec<_> = group.iter().map(|pending| pending.call.id.clone()).collect();
                run.on_started(&ids, 0);
                // The last one ends first.
                for id in ids.iter().rev() {
                    run.on_tool(id, &outcome("x"), 0);
                }
                groups.push(ids);
            }
            Step::CallModel(_) => break,
            step => panic!("{step:?}"),
        }
    }
    assert_eq!(groups, [vec!["1", "2"], vec!["3"], vec!["4"]]);
    let order: Vec<_> = results(&run).into_iter().map(|(id, ..)| id).collect();
    assert_eq!(order, ["1", "2", "3", "4"]);
}

fn take_only(run: &mut Run, turn: ModelTurn) {
    let Step::CallModel(_) = run.next_step(0, &specs()) else { panic!() };
    run.on_model(Ok(turn), 0);
}

#[test]
fn a_question_is_asked_and_a_no_is_a_denial() {
    let question = |id: &str| {
        Check::Ask(Box::new(crate::tool::Question {
            plugin: "a".into(),
            tool: id.into(),
            arguments: serde_json::json!({}),
            rule: "p:1".into(),
            rule_id: String::new(),
            sha256: String::new(),
            hints: ToolHints::default(),
        }))
    };
    let mut run = run();
    take_only(&mut run, calls(&[("1", "a__ask", "{}"), ("2", "a__ask", "{}")]));
    let Step::CheckCalls(_) = run.next_step(0, &specs()) else { panic!() };
    run.on_checks(vec![checked("1", question("1")), checked("2", question("2"))], 0);
    let Step::AskApproval(asked) = run.next_step(0, &specs()) else { panic!() };
    assert_eq!(asked.len(), 2);
    run.on_approval("1", Approval::No, false, 0);
    run.on_approval("2", Approval::Once, false, 0);
    let Step::CallTools(group) = run.next_step(0, &specs()) else { panic!() };
    assert_eq!((group.len(), group[0].approval), (1, Some(Approval::Once)));
    assert!(!run.on_tool("2", &outcome("x"), 0), "a call that was not started has no outcome");
    run.on_started(&["2".into()], 0);
    run.on_tool("2", &outcome("x"), 0);
    let statuses: Vec<_> = results(&run).into_iter().map(|(_, status, _)| status).collect();
    assert_eq!(statuses, [ToolStatus::Denied, ToolStatus::Ok]);
}

#[test]
fn each_budget_ends_the_run_under_its_name() {
    let budget = Budget::default();
    for (budget, expected) in [
        (Budget { max_steps: 1, ..budget }, StopReason::MaxSteps),
        (Budget { max_tool_calls: 1, ..budget }, StopReason::MaxToolCalls),
        (Budget { max_input_tokens: Some(10), ..budget }, StopReason::MaxTokens),
        (Budget { max_output_tokens: Some(5), ..budget }, StopReason::MaxTokens),
        (Budget { max_cost_micros: Some(10), ..budget }, StopReason::MaxCost),
        (Budget { max_fuel: Some(10), ..budget }, StopReason::MaxFuel),
        (Budget { max_wall_ms: Some(100), ..budget }, StopReason::Deadline),
    ] {
        let price = Some(Price { input: 1_000_000, ..Price::default() });
        let mut run = Run::new("run", "task", RunSettings { budget, price, ..RunSettings::default() });
        let mut now = 0;
        let end = loop {
            match run.next_step(now, &specs()) {
                Step::CallModel(request) => {
                    let mut turn = calls(&[("c", "a__read", &format!(r#"{{"n":{now}}}"#))]);
                    if request.tools.is_empty() {
                        turn = says("what there is");
                    }
                    turn.usage = crate::message::TokenUsage { input_tokens: 10, output_tokens: 5, ..Default::default() };
                    now += 60;
                    run.on_model(Ok(turn), now);
                }
                Step::CheckCalls(calls) => {
                    run.on_checks(calls.iter().map(|call| checked(&call.id, Check::Ready)).collect(), now);
                }
                Step::CallTools(group) => {
                    run.on_started(std::slice::from_ref(&group[0].call.id), now);
                    run.on_tool(&group[0].call.id, &outcome(format!("{now}")), now);
                }
                Step::Done(result) => break result,
                step => panic!("{step:?}"),
            }
        };
        assert_eq!(end.stop_reason, expected);
        let hands_over = matches!(expected, StopReason::MaxSteps | StopReason::MaxToolCalls | StopReason::MaxFuel);
        assert_eq!(end.answer.is_some(), hands_over, "{expected}: a last turn saves the work");
        assert!(run.take_events().iter().any(|event| matches!(event, EventKind::BudgetWarning { .. })), "{expected}");
    }
}

#[test]
fn calls_over_the_budget_are_not_executed_and_say_so() {
    let budget = Budget { max_tool_calls: 2, ..Budget::default() };
    let mut run = Run::new("run", "task", RunSettings { budget, ..RunSettings::default() });
    let step = take(&mut run, calls(&[("1", "a__read", "{}"), ("2", "a__read", r#"{"a":1}"#), ("3", "a__read", r#"{"a":2}"#)]));
    let Step::CallModel(request) = step else { panic!("{step:?}") };
    assert!(request.tools.is_empty());
    let statuses: Vec<_> = results(&run).into_iter().map(|(_, status, _)| status).collect();
    assert_eq!(statuses, [ToolStatus::Ok, ToolStatus::Ok, ToolStatus::NotExecuted]);
    run.on_model(Ok(calls(&[("4", "a__read", "{}")])), 0);
    assert_eq!(reason(&run.next_step(0, &specs())), StopReason::MaxToolCalls);
    assert_eq!(results(&run)[3].1, ToolStatus::NotExecuted, "also a call that was not on offer has its outcome");
}

#[test]
fn cancelling_gives_each_call_exactly_one_outcome() {
    let mut run = run();
    take_only(&mut run, calls(&[("1", "a__read", "{}"), ("2", "b__read", "{}"), ("3", "a__write", "{}")]));
    let Step::CheckCalls(all) = run.next_step(0, &specs()) else { panic!() };
    run.on_checks(all.iter().map(|call| checked(&call.id, Check::Ready)).collect(), 0);
    let Step::CallTools(_) = run.next_step(0, &specs()) else { panic!() };
    run.on_started(&["1".into(), "2".into()], 0);
    assert!(run.on_tool("1", &outcome("done"), 0));
    run.cancel(0);
    assert!(!run.on_tool("2", &outcome("too late"), 0));
    run.cancel(0);
    assert_eq!(reason(&run.next_step(0, &specs())), StopReason::Cancelled);
    let statuses: Vec<_> = results(&run).into_iter().map(|(_, status, _)| status).collect();
    assert_eq!(statuses, [ToolStatus::Ok, ToolStatus::Interrupted, ToolStatus::NotExecuted]);
    assert_eq!(completed(&mut run).len(), 3);
}

#[test]
fn after_a_crash_only_idempotent_calls_run_again() {
    let mut run = run();
    take_only(&mut run, calls(&[("1", "a__read", "{}"), ("2", "a__write", "{}")]));
    let Step::CheckCalls(all) = run.next_step(0, &specs()) else { panic!() };
    run.on_checks(all.iter().map(|call| checked(&call.id, Check::Ready)).collect(), 0);
    let Step::CallTools(first) = run.next_step(0, &specs()) else { panic!() };
    run.on_started(&["1".into()], 0);
    let mut run = Run::from_json(&run.to_json().expect("json")).expect("reads");
    let Step::CallTools(again) = run.next_step(0, &specs()) else { panic!() };
    assert_eq!((again[0].call.id.as_str(), again[0].attempt), ("1", 2));
    assert_eq!(again[0].idempotency_key, first[0].idempotency_key);
    run.on_started(&["1".into()], 0);
    run.on_tool("1", &outcome("x"), 0);
    let Step::CallTools(_) = run.next_step(0, &specs()) else { panic!() };
    run.on_started(&["2".into()], 0);
    let mut run = Run::from_json(&run.to_json().expect("json")).expect("reads");
    let Step::CallModel(_) = run.next_step(0, &specs()) else { panic!() };
    assert_eq!(results(&run)[1].1, ToolStatus::Interrupted);
}

#[test]
fn a_pause_between_two_processes_takes_no_time() {
    let mut run = run();
    let _ = run.next_step(1_000, &specs());
    let _ = run.next_step(1_500, &specs());
    let mut run = Run::from_json(&run.to_json().expect("json")).expect("reads");
    let _ = run.next_step(90_000_000, &specs());
    assert_eq!(run.usage().wall_ms, 500);
}

#[test]
fn a_run_of_another_version_is_refused() {
    let json = run().to_json().expect("json").replace("\"schema_version\":1", "\"schema_version\":2");
    assert!(matches!(Run::from_json(&json), Err(RunError::Version { found: 2 })));
    assert!(matches!(Run::from_json("{}"), Err(RunError::Malformed(_))));
}

#[test]
fn a_message_of_the_user_is_heard_before_the_end() {
    let mut run = run();
    take_only(&mut run, says("done"));
    run.steer(Message::user("and in French?"));
    let Step::CallModel(request) = run.next_step(0, &specs()) else { panic!() };
    assert_eq!(request.messages.last().map(Message::text).as_deref(), Some("and in French?"));
}

#[test]
fn a_follow_up_knows_the_conversation_and_counts_anew() {
    let mut first = run();
    take(&mut first, says("579"));
    let mut next = first.follow_up("next", "and doubled?", RunSettings::default());
    assert_eq!(next.usage().steps, 0);
    let Step::CallModel(request) = next.next_step(0, &specs()) else { panic!() };
    let texts: Vec<_> = request.messages.iter().map(Message::text).collect();
    assert_eq!(texts, ["the task", "579", "and doubled?"]);
}

#[test]
fn a_shortened_result_can_be_read_back() {
    let mut settings = RunSettings::default();
    settings.display.default.max_bytes = 100;
    let mut run = Run::new("run", "task", settings);
    take_only(&mut run, calls(&[("big", "a__read", "{}")]));
    let step = act(&mut run, |_| outcome(format!("{}needle{}", "x".repeat(500), "y".repeat(500))));
    let Step::CallModel(request) = step else { panic!("{step:?}") };
    assert!(request.tools.iter().any(|tool| tool.name == "read_result"), "offered once something is hidden");
    run.on_model(Ok(calls(&[("r", "read_result", r#"{"id":"big","offset":500}"#)])), 0);
    act(&mut run, |call| panic!("{call:?} is not a plugin's"));
    assert!(results(&run)[1].2.starts_with("needle"), "{:?}", results(&run)[1]);
}

#[test]
fn a_result_may_be_shown_as_a_summary() {
    let mut settings = RunSettings::default();
    settings
        .display
        .tools
        .insert("a__*".into(), super::super::ResultDisplay { max_bytes: 50, summarise: true, ..Default::default() });
    let mut run = Run::new("run", "task", settings);
    take_only(&mut run, calls(&[("1", "a__read", "{}"), ("2", "a__read", r#"{"n":1}"#)]));
    let step = act(&mut run, |_| outcome("long ".repeat(100)));
    assert!(matches!(step, Step::Summarise(_)));
    assert_eq!(run.phase(), Phase::Observe);
    run.on_summary(Ok(says("it is long")), 0);
    let Step::Summarise(_) = run.next_step(0, &specs()) else { panic!() };
    run.on_summary(Err(error(ProviderErrorClass::RateLimited)), 0);
    let texts: Vec<_> = results(&run).into_iter().map(|(_, _, text)| text).collect();
    assert!(texts[0].ends_with("it is long") && texts[0].contains("read_result"), "{}", texts[0]);
    assert!(texts[1].contains("left out"), "without a summary it is cut: {}", texts[1]);
}

#[test]
fn reasoning_of_another_model_is_not_replayed() {
    let raw = Some(serde_json::json!({"signature": "x"}));
    let thought = Part::Reasoning(crate::message::Reasoning { text: "hm".into(), raw });
    let mut run = run();
    run.set_model("one");
    take_only(&mut run, turn(vec![thought, part("1", "a__read", "{}")], FinishReason::ToolCalls));
    let reasoning = |step: &Step| {
        let Step::CallModel(request) = step else { panic!() };
        request.messages.iter().flat_map(|message| &message.parts).filter(|part| matches!(part, Part::Reasoning(_))).count()
    };
    let step = act(&mut run, |_| outcome("x"));
    assert_eq!(reasoning(&step), 1);
    run.set_model("two");
    assert_eq!(reasoning(&run.next_step(0, &specs())), 0);
}

#[test]
fn a_provider_that_fails_ends_the_run_under_its_class() {
    for (class, expected) in [
        (ProviderErrorClass::Auth, StopReason::ModelError),
        (ProviderErrorClass::ContentFilter, StopReason::ContentFilter),
        (ProviderErrorClass::Cancelled, StopReason::Cancelled),
    ] {
        let mut run = run();
        let Step::CallModel(_) = run.next_step(0, &specs()) else { panic!() };
        run.on_model(Err(error(class)), 0);
        let Step::Done(result) = run.next_step(0, &specs()) else { panic!() };
        assert_eq!(result.stop_reason, expected);
        assert_eq!(result.error.expect("says why").code.as_str(), format!("provider.{}", class.as_str()));
    }
}

#[test]
fn tools_with_an_illegal_name_are_not_offered() {
    let tools: Arc<[ToolSpec]> = [spec("a.b", read_only()), spec("a__b", read_only())].into_iter().collect();
    let Step::CallModel(request) = run().next_step(0, &tools) else { panic!() };
    assert_eq!(request.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["a__b"]);
}
