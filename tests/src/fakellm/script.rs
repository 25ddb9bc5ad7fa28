//! Scripts for the server as a program: TOML that says what it answers, in either protocol, streamed or not.
//!
//! ```toml
//! [[answers]]                              # a turn, rendered as the request wants it
//! text = "Let me look."
//! calls = [{ name = "weather__get", arguments = { city = "北京" } }]
//!
//! [[answers]]                              # a status, headers and a body; a table here is JSON
//! status = 429
//! headers = { retry-after = "1" }
//! body = { error = { message = "slow down", type = "rate_limit_error" } }
//!
//! [[answers]]                              # bytes, when they come, and how they end
//! content_type = "text/event-stream"
//! steps = [{ bytes = ": hello\n\n" }, { pause_ms = 100 }, "stall", "close", "reset"]
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Exchange, RecordedRequest, Signal, Step, render};

/// What the server says next.
#[derive(Clone, Debug)]
pub enum Answer {
    /// These bytes, whatever was asked.
    Exchange(Exchange),
    /// This turn, in the protocol of the request's path, streamed if the request says so.
    Turn(Turn),
}

/// A turn of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    /// What it says.
    pub text: String,
    /// What it calls: names and arguments.
    pub calls: Vec<(String, Value)>,
}

/// Reads a script.
///
/// # Errors
///
/// Says which line or answer is wrong.
pub fn parse(text: &str) -> anyhow::Result<Vec<Answer>> {
    let script: Script = toml::from_str(text)?;
    let answers = script.answers.into_iter().enumerate();
    answers.map(|(at, answer)| answer.read().map_err(|what| anyhow::anyhow!("answer {}: {what}", at + 1))).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    answers: Vec<AnswerScript>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerScript {
    text: Option<String>,
    #[serde(default)]
    calls: Vec<CallScript>,
    status: Option<u16>,
    content_type: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Value>,
    #[serde(default)]
    steps: Vec<StepScript>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallScript {
    name: String,
    #[serde(default)]
    arguments: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum StepScript {
    Bytes(String),
    PauseMs(u64),
    Stall,
    Close,
    Reset,
}

impl AnswerScript {
    fn read(self) -> Result<Answer, &'static str> {
        let is_turn = self.text.is_some() || !self.calls.is_empty();
        let is_raw = self.status.is_some() || self.content_type.is_some() || self.body.is_some() || !self.steps.is_empty();
        if is_turn && (is_raw || !self.headers.is_empty()) {
            return Err("it has a turn (`text`, `calls`) and also a status, headers, a body or steps");
        }
        if is_turn {
            let calls = self.calls.into_iter().map(|call| {
                let arguments = if call.arguments.is_null() { json!({}) } else { call.arguments };
                (call.name, arguments)
            });
            return Ok(Answer::Turn(Turn { text: self.text.unwrap_or_default(), calls: calls.collect() }));
        }
        if !is_raw {
            return Err("it says nothing");
        }
        let content_type = self.content_type.as_deref().unwrap_or("application/json");
        let mut exchange = Exchange::new(self.status.unwrap_or(200), content_type);
        for (name, value) in &self.headers {
            exchange = exchange.header(&name.to_ascii_lowercase(), value);
        }
        match self.body {
            Some(Value::String(text)) => exchange = exchange.bytes(text),
            Some(body) => exchange = exchange.bytes(body.to_string()),
            None => {}
        }
        for step in self.steps {
            exchange = exchange.step(match step {
                StepScript::Bytes(text) => Step::Bytes(text.into_bytes()),
                StepScript::PauseMs(ms) => Step::Pause(Duration::from_millis(ms)),
                StepScript::Stall => Step::Wait(Signal::default()),
                StepScript::Close => Step::Close,
                StepScript::Reset => Step::Reset,
            });
        }
        Ok(Answer::Exchange(exchange))
    }
}

impl Answer {
    /// The bytes that answer a request.
    pub(super) fn exchange(&self, request: &RecordedRequest) -> Exchange {
        let turn = match self {
            Self::Exchange(exchange) => return exchange.clone(),
            Self::Turn(turn) => turn,
        };
        let streams = request.body["stream"] == true;
        let model = request.body["model"].clone();
        if request.is_anthropic() {
            let mut message = turn.anthropic();
            message["model"] = model;
            if streams { Exchange::stream(render::anthropic_stream_of(&message)) } else { Exchange::json(200, &message) }
        } else {
            let mut completion = turn.openai();
            completion["model"] = model;
            if streams { Exchange::stream(render::openai_stream_of(&completion)) } else { Exchange::json(200, &completion) }
        }
    }
}

impl Turn {
    fn anthropic(&self) -> Value {
        let mut content = Vec::new();
        if !self.text.is_empty() {
            content.push(json!({"type": "text", "text": self.text}));
        }
        let calls = self.calls.iter().enumerate();
        content.extend(calls.map(
            |(at, (name, arguments))| json!({"type": "tool_use", "id": format!("toolu_{at}"), "name": name, "input": arguments}),
        ));
        render::anthropic_message(&content, if self.calls.is_empty() { "end_turn" } else { "tool_use" })
    }

    fn openai(&self) -> Value {
        let calls: Vec<Value> = self
            .calls
            .iter()
            .enumerate()
            .map(|(at, (name, arguments))| {
                let function = json!({"name": name, "arguments": arguments.to_string()});
                json!({"id": format!("call_{at}"), "type": "function", "function": function})
            })
            .collect();
        let content = if self.text.is_empty() { Value::Null } else { self.text.as_str().into() };
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        render::openai_completion(&message, if self.calls.is_empty() { "stop" } else { "tool_calls" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_makes_no_sense_is_refused() {
        for (text, expected) in [
            ("[[answers]]\n", "answer 1: it says nothing"),
            ("[[answers]]\ntext = \"a\"\nstatus = 500\n", "answer 1: it has a turn"),
            ("[[answers]]\ntxt = \"a\"\n", "unknown field `txt`"),
            ("[[answers]]\nsteps = [{ wait = 1 }]\n", "unknown variant `wait`"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
