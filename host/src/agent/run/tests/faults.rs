//! Faults that other agents had, one test each.

use super::*;

#[test]
fn calls_run_whatever_the_finish_reason_says() {
    for finish_reason in [FinishReason::Stop, FinishReason::Missing, FinishReason::Other("eos".into()), FinishReason::ToolCalls] {
        let mut run = run();
        let step = take(&mut run, turn(vec![part("1", "a__read", "{}")], finish_reason));
        assert!(matches!(step, Step::CallModel(_)));
        assert_eq!(results(&run)[0].1, ToolStatus::Ok);
    }
}

#[test]
fn a_model_that_waits_for_tools_it_did_not_call_does_not_loop() {
    let reasoning = || Part::Reasoning(crate::message::Reasoning { text: "let me think".into(), raw: None });
    for parts in [vec![], vec![reasoning()], vec![Part::text(" \n")]] {
        let mut run = run();
        let empty = turn(parts, FinishReason::ToolCalls);
        assert!(matches!(take(&mut run, empty.clone()), Step::CallModel(_)));
        assert!(matches!(take(&mut run, empty.clone()), Step::CallModel(_)));
        assert_eq!(reason(&take(&mut run, empty)), StopReason::EmptyResponse);
    }
}

#[test]
fn a_model_that_speaks_after_a_nudge_is_nudged_anew_later() {
    let mut run = run();
    let empty = turn(vec![], FinishReason::Stop);
    for n in 0..5 {
        take(&mut run, empty.clone());
        take(&mut run, empty.clone());
        let step = take(&mut run, calls(&[("c", "a__read", &format!(r#"{{"n":{n}}}"#))]));
        assert!(matches!(step, Step::CallModel(_)));
    }
}

#[test]
fn an_answer_with_an_empty_list_of_calls_is_an_answer() {
    assert_eq!(reason(&take(&mut run(), turn(vec![Part::text("done")], FinishReason::ToolCalls))), StopReason::EndTurn);
}

#[test]
fn calls_of_a_refused_or_filtered_turn_do_not_run() {
    for (finish_reason, expected) in
        [(FinishReason::Refusal, StopReason::Refusal), (FinishReason::ContentFilter, StopReason::ContentFilter)]
    {
        let mut run = run();
        let step = take(&mut run, turn(vec![Part::text("no"), part("1", "a__write", "{}")], finish_reason));
        assert_eq!(reason(&step), expected);
        assert_eq!(results(&run)[0].1, ToolStatus::NotExecuted);
    }
}

#[test]
fn calls_of_a_turn_that_was_cut_off_do_not_run() {
    let mut run = run();
    let cut = turn(vec![part("1", "a__write", r#"{"path":"/da"#), part("2", "a__write", "{}")], FinishReason::Length);
    let Step::CallModel(request) = take(&mut run, cut.clone()) else { panic!() };
    let told: String = request.messages.last().into_iter().flat_map(|last| &last.parts).map(|part| format!("{part:?}")).collect();
    assert!(told.contains("cut off"), "{told}");
    assert!(results(&run).iter().all(|(_, status, _)| *status == ToolStatus::NotExecuted));
    take(&mut run, cut.clone());
    assert_eq!(reason(&take(&mut run, cut)), StopReason::InvalidCalls, "and not for ever");
}

#[test]
fn an_answer_that_was_cut_off_is_not_passed_off_as_whole() {
    let Step::Done(result) = take(&mut run(), turn(vec![Part::text("half an ans")], FinishReason::Length)) else { panic!() };
    assert_eq!((result.stop_reason, result.answer.as_deref()), (StopReason::OutputLimit, Some("half an ans")));
}

#[test]
fn an_empty_turn_leaves_no_empty_block_behind() {
    let mut run = run();
    take(&mut run, turn(vec![Part::text("")], FinishReason::Stop));
    let blank = run.messages().iter().any(|message| message.text().trim().is_empty());
    assert!(!blank);
}

#[test]
fn two_calls_with_one_id_both_run() {
    let mut run = run();
    take(&mut run, calls(&[("1", "a__read", r#"{"n":1}"#), ("1", "a__read", r#"{"n":2}"#), ("", "a__read", r#"{"n":3}"#)]));
    take(&mut run, calls(&[("1", "a__read", r#"{"n":4}"#)]));
    let results = results(&run);
    let mut ids: Vec<_> = results.iter().map(|(id, ..)| id.clone()).collect();
    ids.dedup();
    assert_eq!(ids.len(), 4);
    assert!(results.iter().zip(1..).all(|((.., text), n)| text.contains(&n.to_string())));
}

#[test]
fn an_unknown_tool_is_answered_with_the_list_of_tools() {
    let mut run = run();
    let step = take(&mut run, calls(&[("1", "functions.read file", "{}")]));
    assert!(matches!(step, Step::CallModel(_)));
    let (_, status, text) = &results(&run)[0];
    assert_eq!(*status, ToolStatus::Error);
    assert!(text.contains("tool.unknown") && text.contains("a__read, b__read"), "{text}");
}

#[test]
fn three_turns_without_a_usable_call_end_the_run() {
    let mut run = run();
    let bad = |n: u32| calls(&[("1", &format!("nope{n}"), "{}"), ("2", "a__read", &format!("[{n}]"))]);
    assert!(matches!(take(&mut run, bad(1)), Step::CallModel(_)));
    assert!(matches!(take(&mut run, bad(2)), Step::CallModel(_)));
    take(&mut run, calls(&[("4", "nope", "{}"), ("5", "a__read", "{}")]));
    for n in 3..5 {
        assert!(matches!(take(&mut run, bad(n)), Step::CallModel(_)), "a usable call starts the count anew");
    }
    assert_eq!(reason(&take(&mut run, bad(5))), StopReason::InvalidCalls);
}

#[test]
fn the_same_call_with_the_same_result_ends_after_a_warning() {
    let mut run = run();
    let mut last = None;
    for n in 1..=5 {
        let step = take(&mut run, calls(&[("c", "a__read", r#"{"x":1}"#)]));
        let warned = run.messages().last().is_some_and(|message| message.text().contains("same result"));
        assert_eq!(warned, n == 3 || n == 4, "{n}");
        last = Some(step);
    }
    assert_eq!(reason(&last.expect("took turns")), StopReason::LoopDetected);
}

#[test]
fn polling_until_something_changes_is_not_a_loop() {
    let mut run = run();
    for n in 0..20 {
        let Step::CallModel(_) = run.next_step(0, &specs()) else { panic!() };
        run.on_model(Ok(calls(&[("c", "a__read", "{}")])), 0);
        assert!(matches!(act(&mut run, |_| outcome(format!("{n} %"))), Step::CallModel(_)));
    }
}

#[test]
fn an_interrupted_call_is_not_reported_as_refused() {
    let mut run = run();
    take_only(&mut run, calls(&[("1", "a__write", "{}")]));
    let Step::CheckCalls(_) = run.next_step(0, &specs()) else { panic!() };
    run.on_checks(vec![checked("1", Check::Ready)], 0);
    run.on_started(&["1".into()], 0);
    run.cancel(0);
    let (_, status, text) = &results(&run)[0];
    assert_eq!(*status, ToolStatus::Interrupted);
    assert!(text.contains("may have had effects"), "{text}");
}

#[test]
fn a_provider_with_a_smaller_window_is_obeyed_once_then_the_run_ends() {
    let mut run = run();
    let bytes = |step: &Step| {
        let Step::CallModel(request) = step else { panic!("{step:?}") };
        serde_json::to_string(request).expect("json").len()
    };
    let mut step = run.next_step(0, &specs());
    for n in 0..4 {
        run.on_model(Ok(calls(&[("c", "a__read", &format!(r#"{{"n":{n}}}"#))])), 0);
        step = act(&mut run, |_| outcome("x".repeat(5_000)));
    }
    let before = bytes(&step);
    run.on_model(Err(error(ProviderErrorClass::ContextOverflow)), 0);
    assert!(bytes(&run.next_step(0, &specs())) < before * 8 / 10);
    run.on_model(Err(error(ProviderErrorClass::ContextOverflow)), 0);
    assert_eq!(reason(&run.next_step(0, &specs())), StopReason::ContextOverflow);
}

#[test]
fn more_calls_than_a_turn_may_hold_are_not_executed() {
    let mut run = run();
    let many: Vec<_> = (0..40).map(|n| part(&n.to_string(), "a__read", &format!(r#"{{"n":{n}}}"#))).collect();
    take(&mut run, turn(many, FinishReason::ToolCalls));
    let executed = results(&run).iter().filter(|(_, status, _)| *status == ToolStatus::Ok).count();
    assert_eq!((executed, results(&run).len()), (32, 40));
}
