//! A long session in a small window.

use super::*;
use crate::agent::context::estimate;
use crate::message::TokenUsage;
use crate::provider::ModelRequest;

const WINDOW: u64 = 32_000;

/// Counts a request as a provider would: everything that is sent, at three bytes a token.
fn tokens(request: &ModelRequest) -> u64 {
    let messages: u64 = request.messages.iter().map(|message| estimate::message_bytes(message, &Default::default())).sum();
    (request.system.len() as u64 + messages + estimate::tools_bytes(&request.tools)) / 3
}

#[tokio::test]
async fn three_hundred_messages_with_two_megabytes_of_results_fit_a_small_window() {
    let mut turn = 0;
    let model = FakeModel::new(move |request| {
        let input_tokens = tokens(request);
        let mut answer = if request.tools.is_empty() {
            says("So far, reports were read and all is well.")
        } else if turn == 150 {
            says("done")
        } else {
            turn += 1;
            let text = Part::text(format!("Reading report {turn}. {}", "I think about what it says. ".repeat(12)));
            let mut answer = calls(&[("call", "a__read", &format!(r#"{{"report":{turn}}}"#))]);
            answer.parts.insert(0, text);
            answer
        };
        answer.usage = TokenUsage { input_tokens, output_tokens: 100, ..TokenUsage::default() };
        Act::Give(Ok(answer))
    });
    let tools =
        FakeTools::new(|call, _| Act::Give(outcome(format!("{} {}", call.arguments, "第一行 of a report.\n".repeat(640)))));
    let (runner, recorder) = runner(&model, &tools);
    let mut settings = RunnerSettings::default();
    settings.run.context.window_tokens = WINDOW;
    settings.run.budget.max_steps = 400;
    let runner = runner.with_settings(settings);
    let mut run = runner.start("Read all reports, 请读完所有报告。").expect("starts");
    let result = runner.resume(&mut run, &CancellationToken::new()).await;

    assert_eq!((result.stop_reason, result.answer.as_deref()), (StopReason::EndTurn, Some("done")));
    let bytes: usize = recorder
        .kinds()
        .iter()
        .map(|kind| if let EventKind::ToolCompleted(completed) = kind { completed.bytes } else { 0 })
        .sum();
    assert!(run.messages().len() > 300 && bytes > 2_000_000, "{} messages, {bytes} bytes", run.messages().len());
    let requests = model.requests();
    let largest = requests.iter().map(tokens).max().expect("asked");
    assert!(largest < WINDOW, "{largest}");
    assert!(requests.iter().filter(|request| !request.tools.is_empty()).all(|request| {
        request.messages.first().is_some_and(|first| first.text().starts_with("Read all reports")) && !request.system.is_empty()
    }));
    let tiers = recorder.kinds().iter().fold((0, 0), |(stubs, summaries), kind| match kind {
        EventKind::ContextTrimmed { .. } => (stubs + 1, summaries),
        EventKind::ContextSummarised { .. } => (stubs, summaries + 1),
        _ => (stubs, summaries),
    });
    assert!(tiers.0 > 0 && tiers.1 > 0, "the log shows which tier acted: {tiers:?}");
    let stored = run.messages().iter().flat_map(|message| &message.parts);
    let mut stored = stored.filter_map(|part| if let Part::ToolResult(result) = part { Some(&result.text) } else { None });
    assert!(stored.all(|text| text.len() > 10_000), "what is stored stays whole");
}

#[tokio::test]
async fn a_summariser_that_hangs_is_given_up_and_after_three_times_not_asked_again() {
    let mut turn = 0;
    let model = FakeModel::new(move |request| {
        if request.tools.is_empty() {
            return Act::Hang;
        }
        turn += 1;
        let next = calls(&[("c", "a__read", &format!(r#"{{"n":"{turn} {}"}}"#, "x".repeat(400)))]);
        Act::Give(Ok(if turn == 40 { says("done") } else { next }))
    });
    let (runner, recorder) = runner(&model, &FakeTools::echo());
    let mut settings = RunnerSettings::default();
    let context = &mut settings.run.context;
    (context.window_tokens, context.protect_tokens, context.summary_timeout_ms) = (2_000, 100, 20);
    let runner = runner.with_settings(settings);
    let result = runner.run("读完所有报告。", &CancellationToken::new()).await.expect("starts");
    assert_eq!(result.answer.as_deref(), Some("done"), "{:?}", result.error);
    let kinds = recorder.kinds();
    let failures = kinds.iter().filter_map(|kind| if let EventKind::ModelFailed { error } = kind { Some(error) } else { None });
    let codes: Vec<&str> = failures.map(|error| error.code.as_str()).collect();
    assert_eq!(codes, ["provider.timeout"; 3]);
    let fallbacks = kinds.iter().filter(|kind| matches!(kind, EventKind::ContextSummarised { fallback: true, .. })).count();
    assert!(fallbacks > 3, "{fallbacks}");
}
