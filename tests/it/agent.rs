//! The agent over the providers' own wire formats, against a server that refuses what the real ones refuse.

mod processes;
mod wire;

use std::sync::Arc;

use honeycomb_host::agent::{Runner, RunnerSettings, StopReason, WireRules};
use honeycomb_host::message::{ToolCall, ToolStatus};
use honeycomb_host::provider::Provider;
use honeycomb_host::provider::settings::{ProviderKind, ProviderSettings, build};
use honeycomb_host::tool::{BoxFuture, CallContext, CallUsage, Check, Content, ToolHints, ToolOutcome, ToolSpec, Tools};
use honeycomb_tests::fakellm::{Exchange, FakeLlm, render, validate};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// One tool that says which city it was asked about.
pub(crate) struct Weather;

impl Tools for Weather {
    fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::new([ToolSpec {
            name: "weather__get".to_owned(),
            title: None,
            description: "The weather in a city.".to_owned(),
            input_schema: json!({"type": "object", "properties": {"city": {"type": "string"}}}),
            output_schema: None,
            hints: ToolHints { read_only: true, ..ToolHints::default() },
        }])
    }

    fn check(&self, _: &str, _: &ToolCall) -> Check {
        Check::Ready
    }

    fn call<'a>(&'a self, call: &'a ToolCall, _: CallContext) -> BoxFuture<'a, ToolOutcome> {
        let text = format!("sunny: {}", call.arguments);
        Box::pin(std::future::ready(ToolOutcome {
            status: ToolStatus::Ok,
            content: vec![Content::Text { text }],
            structured: None,
            error: None,
            denials: Vec::new(),
            usage: CallUsage::default(),
        }))
    }
}

fn provider(server: &FakeLlm, kind: ProviderKind) -> Arc<dyn Provider> {
    let mut settings = ProviderSettings::new(kind, "fake-model");
    settings.base_url = Some(server.url());
    build(settings).expect("valid settings")
}

/// A task whose model repeats ids, writes broken arguments, invents a tool and falls silent, before it answers.
async fn survive(
    kind: ProviderKind,
    answers: Vec<String>,
    validator: fn(&Value) -> Result<(), String>,
    rules: WireRules,
) -> Vec<Value> {
    let server = FakeLlm::strict(answers.into_iter().map(Exchange::stream), validator).await.expect("listens");
    let mut settings = RunnerSettings::default();
    settings.run.wire = rules;
    let runner = Runner::new(provider(&server, kind), Arc::new(Weather)).with_settings(settings);
    let result = runner.run("北京天气怎么样？", &CancellationToken::new()).await.expect("starts");
    assert_eq!((result.stop_reason, result.answer.as_deref()), (StopReason::EndTurn, Some("晴")), "{:?}", result.error);
    assert_eq!(server.remaining(), 0);
    server.requests().into_iter().map(|request| request.body).collect()
}

const CALLS: [&[(&str, &str, &str)]; 3] = [
    &[("call_1", "weather__get", r#"{"city":"北京"}"#), ("call_1", "weather__get", r#"{"city":"Paris"}"#)],
    &[("call_1", "weather__get", r#"{"city":"#)],
    &[("call_2", "functions.weather", "{}"), ("call_3", "weather__get", "")],
];

#[tokio::test]
async fn a_misbehaving_openai_model_gets_to_its_answer() {
    let mut answers: Vec<String> = CALLS.iter().map(|calls| render::openai_calls(calls)).collect();
    answers.extend([render::openai_stream(&[], "tool_calls"), render::openai_text(&["晴"])]);
    let requests = survive(ProviderKind::OpenAi, answers, validate::openai, WireRules::openai()).await;
    let tools: Vec<&Value> = requests[1]["messages"].as_array().expect("a list").iter().filter(|m| m["role"] == "tool").collect();
    assert_eq!(tools.len(), 2);
    assert!(
        tools[0]["content"].as_str().expect("text").contains("北京")
            && tools[1]["content"].as_str().expect("text").contains("Paris")
    );
    assert_ne!(tools[0]["tool_call_id"], tools[1]["tool_call_id"]);
}

#[tokio::test]
async fn a_misbehaving_anthropic_model_gets_to_its_answer() {
    let uses = |calls: &[(&str, &str, &str)]| {
        let blocks: Vec<Value> = calls
            .iter()
            .map(|(id, name, input)| {
                let input: Value = serde_json::from_str(input).unwrap_or_else(|_| json!({}));
                json!({"type": "tool_use", "id": id, "name": name, "input": input})
            })
            .collect();
        render::anthropic_stream_of(&render::anthropic_message(&blocks, "tool_use"))
    };
    let says = |content: &[Value]| render::anthropic_stream_of(&render::anthropic_message(content, "end_turn"));
    let mut answers: Vec<String> = CALLS.iter().map(|calls| uses(calls)).collect();
    answers.extend([says(&[]), says(&[json!({"type": "text", "text": "晴"})])]);
    let requests = survive(ProviderKind::Anthropic, answers, validate::anthropic, WireRules::anthropic()).await;
    let last = requests[1]["messages"].as_array().expect("a list").last().expect("not empty");
    assert_eq!(last["content"].as_array().expect("blocks").iter().filter(|block| block["type"] == "tool_result").count(), 2);
}
