//! What holds for every run, whatever model and tools do.

use proptest::prelude::*;

use super::*;
use crate::agent::history::{WireRules, validate_history};
use crate::message::TokenUsage;

#[derive(Clone, Debug)]
enum Doing {
    Turn(ModelTurn),
    Fail(ProviderErrorClass),
    Cancel,
    Steer,
}

fn any_turn() -> impl Strategy<Value = ModelTurn> {
    let text = prop_oneof![Just(String::new()), "[a-z京 \u{0}]{0,6}"];
    let name =
        prop_oneof![Just("a__read"), Just("b__read"), Just("a__write"), Just("a__deny"), Just("nope"), Just("read_result")];
    let arguments = prop_oneof![Just("{}".to_owned()), Just("[".to_owned()), Just(r#"{"id":"1"}"#.to_owned()), "[a-z]{0,3}"];
    let call = ("[0-3]", name, arguments).prop_map(|(id, name, arguments)| part(&id, name, &arguments));
    let finish = prop_oneof![
        4 => Just(FinishReason::ToolCalls),
        4 => Just(FinishReason::Stop),
        1 => Just(FinishReason::Length),
        1 => Just(FinishReason::Refusal),
        1 => Just(FinishReason::Missing),
    ];
    (text, prop::collection::vec(call, 0..4), finish, 0..500_u64).prop_map(|(text, calls, finish_reason, tokens)| {
        let parts = std::iter::once(Part::text(text)).chain(calls).collect();
        ModelTurn { parts, finish_reason, usage: TokenUsage { input_tokens: tokens, output_tokens: 1, ..TokenUsage::default() } }
    })
}

fn any_doing() -> impl Strategy<Value = Doing> {
    prop_oneof![
        20 => any_turn().prop_map(Doing::Turn),
        1 => Just(Doing::Fail(ProviderErrorClass::ContextOverflow)),
        1 => Just(Doing::Fail(ProviderErrorClass::Network)),
        1 => Just(Doing::Cancel),
        1 => Just(Doing::Steer),
    ]
}

/// How a run is stored and read after each step.
type Storage = fn(&Run) -> Run;

fn through_json(run: &Run) -> Run {
    Run::from_json(&run.to_json().expect("writes")).expect("reads")
}

fn through_parts(run: &Run) -> Run {
    let parts = run.to_parts(&|text| text.into()).expect("writes");
    let own = |list: &[(&str, &str)]| list.iter().map(|(id, text)| ((*id).to_owned(), (*text).to_owned())).collect();
    let (results, stubs) = (own(&parts.results), own(&parts.stubs));
    let messages = parts.messages.to_vec();
    Run::from_parts(StoredParts { settings: parts.settings, state: parts.state, messages, results, stubs }).expect("reads")
}

/// Drives a run; after each step it goes through `storage`, if there is one.
fn drive(doings: &[Doing], result: &str, window: u64, storage: Option<Storage>) -> (Run, Vec<EventKind>) {
    let mut settings = RunSettings::default();
    settings.budget.max_steps = 12;
    settings.context.window_tokens = window;
    settings.context.protect_tokens = 100;
    settings.context.stub_min_bytes = 64;
    let mut run = Run::new("run", "the task", settings);
    let mut events = Vec::new();
    let mut doings = doings.iter().cloned().cycle();
    for _ in 0..1000 {
        let step = run.next_step(0, &specs());
        match step {
            Step::CallModel(request) => {
                validate_history(&request.messages, &WireRules::default()).expect("the provider accepts each request");
                match doings.next().expect("cycles") {
                    Doing::Turn(turn) => run.on_model(Ok(turn), 0),
                    Doing::Fail(class) => run.on_model(Err(error(class)), 0),
                    Doing::Cancel => run.cancel(0),
                    Doing::Steer => {
                        run.steer(Message::user("and this?"));
                        run.on_model(Ok(says("yes")), 0);
                    }
                }
            }
            Step::CheckCalls(calls) => {
                let check = |call: &ToolCall| match call.name.as_str() {
                    "a__deny" => {
                        let failure = Failure::new(ErrorCode::POLICY_DENIED, "no");
                        Check::Refused(Box::new(ToolOutcome::refused(ToolStatus::Denied, failure)))
                    }
                    _ => Check::Ready,
                };
                run.on_checks(calls.iter().map(|call| checked(&call.id, check(call))).collect(), 0);
            }
            Step::CallTools(group) => {
                let ids: Vec<_> = group.iter().map(|pending| pending.call.id.clone()).collect();
                run.on_started(&ids, 0);
                for (n, id) in ids.iter().enumerate() {
                    run.on_tool(id, &outcome(format!("{result}{n}{id}")), 0);
                }
            }
            Step::Summarise(_) => run.on_summary(Ok(says("summary")), 0),
            Step::AskApproval(_) => unreachable!("nothing asks"),
            Step::Done(_) => {
                events.extend(run.take_events());
                return (run, events);
            }
        }
        events.extend(run.take_events());
        if let Some(storage) = storage {
            run = storage(&run);
        }
    }
    panic!("the run does not end");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_run_ends_with_one_outcome_per_call(doings in prop::collection::vec(any_doing(), 1..8), size in 0..2000_usize) {
        let (run, events) = drive(&doings, &"r".repeat(size), 1500, None);
        let ready: Vec<_> = events.iter().filter_map(|event| match event {
            EventKind::ToolCallReady { call_id, .. } => Some(call_id.clone()),
            _ => None,
        }).collect();
        let mut completed: Vec<_> = events.iter().filter_map(|event| match event {
            EventKind::ToolCompleted(completed) => Some(completed.call_id.clone()),
            _ => None,
        }).collect();
        let mut answered: Vec<_> = results(&run).into_iter().map(|(id, ..)| id).collect();
        let mut expected = ready;
        for list in [&mut expected, &mut completed, &mut answered] {
            list.sort();
        }
        prop_assert_eq!(&completed, &expected);
        prop_assert_eq!(&answered, &expected);
        let told_its_end = matches!(events.last(), Some(EventKind::RunFinished { .. }));
        prop_assert!(told_its_end);
    }

    #[test]
    fn a_run_stored_after_every_step_tells_the_same(doings in prop::collection::vec(any_doing(), 1..8), size in 0..2000_usize) {
        let (run, events) = drive(&doings, &"r".repeat(size), 1500, None);
        for storage in [through_json as Storage, through_parts] {
            let (stored, stored_events) = drive(&doings, &"r".repeat(size), 1500, Some(storage));
            prop_assert_eq!(&events, &stored_events);
            prop_assert_eq!(run.to_json().expect("writes"), stored.to_json().expect("writes"));
        }
    }
}
