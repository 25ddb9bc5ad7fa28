use super::*;
use crate::message::{ToolCall, ToolResult, ToolStatus};

fn exchange(n: usize, result: &str) -> [Message; 2] {
    let call = ToolCall { id: format!("c{n}"), provider_id: None, name: "a__b".into(), arguments: "{}".into() };
    let (call_id, name, text) = (call.id.clone(), call.name.clone(), result.to_owned());
    [
        Message { role: Role::Assistant, parts: vec![Part::ToolCall(call)] },
        Message { role: Role::Tool, parts: vec![Part::ToolResult(ToolResult { call_id, name, status: ToolStatus::Ok, text })] },
    ]
}

fn history(exchanges: usize, result: &str) -> Vec<Message> {
    std::iter::once(Message::user("the task")).chain((0..exchanges).flat_map(|n| exchange(n, result))).collect()
}

fn settings(window_tokens: u64) -> ContextSettings {
    ContextSettings { window_tokens, max_output_tokens: Some(0), reserve_percent: 0, ..ContextSettings::default() }
}

fn plan(settings: &ContextSettings, state: &mut ContextState, history: &[Message]) -> (Plan, Vec<EventKind>) {
    ContextManager::new(settings, state, history, 0, 0).plan()
}

fn sent(settings: &ContextSettings, state: &mut ContextState, history: &[Message]) -> Vec<Message> {
    match plan(settings, state, history) {
        (Plan::Send { messages, tokens }, _) => {
            assert!(tokens <= limit(settings, state), "{tokens}");
            messages
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_fits_is_sent_as_it_is() {
    let history = history(3, "short");
    let (plan, events) = plan(&settings(10_000), &mut ContextState::default(), &history);
    assert!(matches!(plan, Plan::Send { messages, .. } if messages == history));
    assert_eq!(events, []);
}

#[test]
fn an_unknown_window_leaves_nothing_out() {
    let history = history(50, &"x".repeat(10_000));
    assert_eq!(sent(&settings(0), &mut ContextState::default(), &history), history);
}

#[test]
fn old_large_results_become_stubs_that_stay_the_same() {
    let settings = settings(10_000);
    let mut state = ContextState::default();
    let mut history = history(10, &"x".repeat(5_000));
    let first = sent(&settings, &mut state, &history);
    assert!(first[2] != history[2] && first.last() == history.last(), "oldest first, the newest last");
    let stubs: Vec<_> = first.iter().zip(&history).filter(|(sent, was)| sent != was).map(|(sent, _)| sent.clone()).collect();
    history.extend(exchange(10, "short"));
    let second = sent(&settings, &mut state, &history);
    assert_eq!(second[..first.len()], first, "one more step does not touch the beginning");
    assert!(stubs.len() < 10, "no more than needed");
}

#[test]
fn when_stubs_do_not_do_a_summary_is_asked_for_and_replaces_the_earlier() {
    let settings = ContextSettings { protect_tokens: 100, ..settings(2_000) };
    let mut state = ContextState::default();
    let mut history = history(40, &"y".repeat(500));
    let (plan, _) = plan(&settings, &mut state, &history);
    let Plan::Summarise(request) = plan else { panic!("{plan:?}") };
    assert!(request.messages[0].text().len() < 6_000 && request.tools.is_empty());
    let events = ContextManager::new(&settings, &mut state, &history, 0, 0).finish_summary(Some("first summary"));
    assert!(matches!(events[..], [EventKind::ContextSummarised { fallback: false, .. }]));
    let messages = sent(&settings, &mut state, &history);
    assert_eq!(messages[0].text(), "the task");
    assert!(messages[1].text().ends_with("first summary"));
    assert!(messages[2].role != Role::Tool, "cut between turns");

    history.extend((40..80).flat_map(|n| exchange(n, &"z".repeat(500))));
    let (again, _) = super::tests::plan(&settings, &mut state, &history);
    let Plan::Summarise(request) = again else { panic!("{again:?}") };
    assert!(request.messages[0].text().contains("first summary"), "the new one is made from the earlier");
    ContextManager::new(&settings, &mut state, &history, 0, 0).finish_summary(Some("second summary"));
    let text: String = sent(&settings, &mut state, &history).iter().map(Message::text).collect();
    assert!(text.contains("second summary") && !text.contains("first summary"));
}

#[test]
fn a_summariser_that_fails_three_times_is_not_asked_again() {
    let settings = ContextSettings { protect_tokens: 100, ..settings(2_000) };
    let mut state = ContextState::default();
    let mut history = history(1, "short");
    let mut asked = 0;
    for n in 1..400 {
        history.extend(exchange(n, &"y".repeat(500)));
        while let (Plan::Summarise(_), _) = plan(&settings, &mut state, &history) {
            asked += 1;
            ContextManager::new(&settings, &mut state, &history, 0, 0).finish_summary(None);
        }
        let messages = sent(&settings, &mut state, &history);
        assert_eq!(messages[0].text(), "the task");
    }
    assert_eq!(asked, 3);
    assert!(state.summary.as_ref().is_some_and(|summary| summary.len() < 9_000), "lists of lists do not grow");
}

#[test]
fn what_nothing_can_make_fit_is_a_clear_end() {
    let task = vec![Message::user("w".repeat(100_000))];
    let (plan, _) = plan(&settings(1_000), &mut ContextState::default(), &task);
    assert!(matches!(plan, Plan::Overflow { tokens: 25_012, limit: 1_000 }), "{plan:?}");
}

#[test]
fn one_result_larger_than_the_window_is_stubbed_too() {
    let history = history(1, &"x".repeat(100_000));
    let messages = sent(&settings(1_000), &mut ContextState::default(), &history);
    assert_eq!(messages.len(), 3);
}

#[test]
fn max_history_cuts_between_turns_and_keeps_the_task() {
    let settings = ContextSettings { max_history: Some(8), ..settings(0) };
    let mut state = ContextState::default();
    let mut history = history(1, "x");
    for n in 1..50 {
        history.extend(exchange(n, "x"));
        let messages = sent(&settings, &mut state, &history);
        assert!(messages.len() <= 9, "{}", messages.len());
        assert_eq!(messages[0].text(), "the task");
        assert_eq!(messages[1].role, Role::Assistant);
    }
}

#[test]
fn a_provider_that_knows_a_smaller_window_is_believed() {
    let settings = settings(0);
    let mut state = ContextState::default();
    let history = history(20, &"x".repeat(5_000));
    let before = sent(&settings, &mut state, &history);
    assert_eq!(before, history);
    state.overflowed();
    assert!(sent(&settings, &mut state, &history) != history);
}
