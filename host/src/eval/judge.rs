//! Compares what came of an attempt with what the scenario expects. Each problem is a sentence.

use std::collections::BTreeMap;

use serde_json::Value;

use super::glob::matches;
use super::observe::{Observed, SeenCall};
use super::scenario::{AnswerText, AtMost, CallMade, Expect, Never, Scenario};
use crate::agent::RunResult;
use crate::text::clean_line;

/// How much of a text a problem quotes, in bytes.
const QUOTE: usize = 300;

/// What is not as it should be.
pub(super) fn judge(scenario: &Scenario, observed: &Observed) -> Vec<String> {
    let mut problems = observed.setup_failures.clone();
    let expect = &scenario.expect;
    match (&expect.refused_start, &observed.refused_start) {
        (None, None) => {}
        (Some(wanted), Some(found)) if found.contains(wanted.as_str()) => {}
        (Some(wanted), found) => {
            let found = found.as_ref().map_or("it started".to_owned(), |found| format!("it said `{}`", quote(found)));
            problems.push(format!("the host should refuse to start with `{wanted}`, and {found}"));
        }
        (None, Some(found)) => problems.push(format!("the host refused to start: {}", quote(found))),
    }
    if let Some(result) = &observed.result {
        ends(expect, result, observed, &mut problems);
        calls(expect, &observed.calls, &mut problems);
        effects(expect, observed, &mut problems);
    }
    for (plugin, code) in &expect.not_loaded {
        let found = observed.not_loaded.get(plugin);
        if found != Some(code) {
            problems.push(format!("plugin `{plugin}` should not be loaded, for `{code}`; it is {found:?}"));
        }
    }
    for plugin in observed.not_loaded.keys().filter(|plugin| !expect.not_loaded.contains_key(*plugin)) {
        problems.push(format!("plugin `{plugin}` is not loaded: {}", observed.not_loaded[plugin]));
    }
    forbidden(&scenario.never, observed, &mut problems);
    problems
}

fn ends(expect: &Expect, result: &RunResult, observed: &Observed, problems: &mut Vec<String>) {
    if let Some(wanted) = expect.stop_reason
        && wanted != result.stop_reason
    {
        let error =
            result.error.as_ref().map(|error| format!(" ({}: {})", error.code, quote(&error.message))).unwrap_or_default();
        problems.push(format!("the run should end with `{wanted}`, and ended with `{}`{error}", result.stop_reason));
    }
    let code = result.error.as_ref().map(|error| error.code.as_str());
    if expect.error.is_some() && expect.error.as_deref() != code {
        problems.push(format!("the run's error should be {:?}, and is {code:?}", expect.error));
    }
    if let Some(wanted) = &expect.answer {
        answer(wanted, result.answer.as_deref().unwrap_or_default(), problems);
    }
    at_most(expect.at_most, result, problems);
    if observed.unused_turns > 0 && !expect.unused_turns {
        problems.push(format!("{} turns of the script were not asked for", observed.unused_turns));
    }
}

fn answer(wanted: &AnswerText, answer: &str, problems: &mut Vec<String>) {
    if let Some(equals) = &wanted.equals
        && equals != answer
    {
        problems.push(format!("the answer should be `{}`, and is `{}`", quote(equals), quote(answer)));
    }
    for part in wanted.contains.iter().filter(|part| !answer.contains(part.as_str())) {
        problems.push(format!("the answer should hold `{}`, and is `{}`", quote(part), quote(answer)));
    }
    if let Some(pattern) = &wanted.matches
        && !regex::Regex::new(pattern).is_ok_and(|regex| regex.is_match(answer))
    {
        problems.push(format!("the answer should match `{pattern}`, and is `{}`", quote(answer)));
    }
}

fn at_most(limits: AtMost, result: &RunResult, problems: &mut Vec<String>) {
    let usage = &result.usage;
    let tokens = usage.tokens.input_tokens.saturating_add(usage.tokens.output_tokens);
    for (name, limit, used) in [
        ("steps", limits.steps, u64::from(usage.steps)),
        ("tool calls", limits.tool_calls, u64::from(usage.tool_calls)),
        ("fuel", limits.fuel, usage.fuel),
        ("tokens", limits.tokens, tokens),
        ("milliseconds", limits.wall_ms, usage.wall_ms),
    ] {
        if let Some(limit) = limit.filter(|limit| used > *limit) {
            problems.push(format!("it used {used} {name}; {limit} at most"));
        }
    }
}

fn calls(expect: &Expect, seen: &[SeenCall], problems: &mut Vec<String>) {
    let mut next = 0;
    for wanted in &expect.calls {
        let candidates = &seen[next..];
        if let Some(at) = candidates.iter().position(|call| call_problems(wanted, call).is_empty()) {
            next += at + 1;
            continue;
        }
        let closest = candidates.iter().find(|call| matches(&wanted.tool, &call.tool));
        problems.push(match closest {
            Some(call) => format!("call `{}`: {}", wanted.tool, call_problems(wanted, call).join("; ")),
            None => {
                let made: Vec<&str> = seen.iter().map(|call| call.tool.as_str()).collect();
                format!("`{}` should be called (then); the calls are: {}", wanted.tool, made.join(", "))
            }
        });
    }
    if expect.only_these_calls && seen.len() != expect.calls.len() {
        let made: Vec<&str> = seen.iter().map(|call| call.tool.as_str()).collect();
        problems.push(format!("there should be {} calls, and there are {}: {}", expect.calls.len(), seen.len(), made.join(", ")));
    }
}

/// What keeps a call from being the one that is wanted.
fn call_problems(wanted: &CallMade, call: &SeenCall) -> Vec<String> {
    let mut problems = Vec::new();
    if !matches(&wanted.tool, &call.tool) {
        problems.push(format!("it is `{}`", call.tool));
    }
    if let Some(arguments) = &wanted.arguments {
        let given = serde_json::from_str(&call.arguments).unwrap_or(Value::Null);
        if !holds(&given, arguments) {
            problems.push(format!("its arguments are `{}`", quote(&call.arguments)));
        }
    }
    if let Some(status) = wanted.status
        && status != call.status
    {
        problems.push(format!("it ended as {:?}, not {status:?}: `{}`", call.status, quote(&call.text)));
    }
    if wanted.code.is_some() && wanted.code != call.code {
        problems.push(format!("its code is {:?}, not {:?}: `{}`", call.code, wanted.code, quote(&call.text)));
    }
    for part in wanted.contains.iter().filter(|part| !call.text.contains(part.as_str())) {
        problems.push(format!("`{}` is not in its result, `{}`", quote(part), quote(&call.text)));
    }
    for part in wanted.lacks.iter().filter(|part| call.text.contains(part.as_str())) {
        problems.push(format!("`{}` is in its result", quote(part)));
    }
    if !wanted.json.is_empty() {
        problems.extend(json_problems(&wanted.json, &call.text));
    }
    if let Some(truncated) = wanted.truncated
        && truncated != call.truncated
    {
        problems.push(format!("its result is {}", if call.truncated { "cut" } else { "whole" }));
    }
    problems
}

fn json_problems(wanted: &BTreeMap<String, Value>, text: &str) -> Vec<String> {
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return vec![format!("its result is not JSON: `{}`", quote(text))];
    };
    let differs = |(pointer, wanted): (&String, &Value)| {
        let found = value.pointer(pointer);
        (found != Some(wanted)).then(|| format!("at `{pointer}` there is {found:?}, not {wanted}"))
    };
    wanted.iter().filter_map(differs).collect()
}

/// Whether a value holds another: of objects, the fields that the other has.
fn holds(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(fields), Value::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| fields.get(name).is_some_and(|value| holds(value, wanted)))
        }
        _ => value == wanted,
    }
}

fn effects(expect: &Expect, observed: &Observed, problems: &mut Vec<String>) {
    for wanted in &expect.http {
        let fits = |seen: &&super::server::Seen| matches(&wanted.request, &seen.request);
        let has_headers = |seen: &super::server::Seen| {
            wanted
                .headers
                .iter()
                .all(|(name, value)| seen.headers.get(&name.to_ascii_lowercase()).is_some_and(|it| matches(value, it)))
        };
        if !observed.http.iter().filter(fits).any(has_headers) {
            let got: Vec<&str> = observed.http.iter().map(|seen| seen.request.as_str()).collect();
            let headers = if wanted.headers.is_empty() { "" } else { " with those headers" };
            problems.push(format!("the server should get `{}`{headers}; it got: {}", wanted.request, quote(&got.join(", "))));
        }
    }
    for (name, text) in &expect.files {
        let found = observed.files.get(name).map(|bytes| String::from_utf8_lossy(bytes));
        if !found.as_ref().is_some_and(|found| found.contains(text.as_str())) {
            let found = found.map_or("is not there".to_owned(), |found| format!("holds `{}`", quote(&found)));
            problems.push(format!("file `{name}` should hold `{}`, and {found}", quote(text)));
        }
    }
    for kind in &expect.events {
        let has = observed.events.iter().any(|event| serde_json::to_value(&event.kind).is_ok_and(|json| json["kind"] == *kind));
        if !has {
            problems.push(format!("there is no event `{kind}`"));
        }
    }
    if let Some(wanted) = expect.questions
        && wanted != observed.questions
    {
        problems.push(format!("the person should be asked {wanted} times, and was {}", observed.questions));
    }
    for text in expect.model_sees.iter().filter(|text| !model_sees(observed, text)) {
        problems.push(format!("the model should be sent `{}`, and was not", quote(text)));
    }
}

fn forbidden(never: &Never, observed: &Observed, problems: &mut Vec<String>) {
    let mut found = |what: &str, pattern: &str, hit: Option<String>| {
        if let Some(hit) = hit {
            problems.push(format!("{what} `{}` must not be, and is: {}", quote(pattern), quote(&hit)));
        }
    };
    for pattern in &never.calls {
        let ran = observed.calls.iter().find(|call| call.ran && matches(pattern, &call.tool));
        found("a run of", pattern, ran.map(|call| format!("{} {}", call.tool, call.arguments)));
    }
    for pattern in &never.offered {
        found("a tool", pattern, observed.offered.iter().find(|name| matches(pattern, name)).cloned());
    }
    for pattern in &never.http {
        found("a request", pattern, observed.http.iter().map(|seen| &seen.request).find(|it| matches(pattern, it)).cloned());
    }
    for pattern in &never.http_hosts {
        found("a request to", pattern, observed.http.iter().map(|seen| &seen.host).find(|it| matches(pattern, it)).cloned());
    }
    for pattern in &never.files_written {
        found("a change of", pattern, observed.changed_files.iter().find(|name| matches(pattern, name)).cloned());
    }
    let result = observed.result.as_ref();
    let said = result.and_then(|result| result.answer.as_deref()).unwrap_or_default();
    for text in &never.answer_contains {
        found("in the answer,", text, said.contains(text.as_str()).then(|| said.to_owned()));
    }
    for text in &never.system_contains {
        let system = observed.requests.iter().map(|request| &request.system).find(|system| system.contains(text.as_str()));
        found("in the system prompt,", text, system.cloned());
    }
    for text in &never.model_sees {
        found("in what the model is sent,", text, model_sees(observed, text).then(|| "it was sent".to_owned()));
    }
    for reason in &never.stop_reasons {
        let ended = result.filter(|result| result.stop_reason == *reason);
        found("an end by", reason.as_str(), ended.map(|result| result.stop_reason.to_string()));
    }
}

/// Whether a text was in anything that the model was sent: system prompt, messages, descriptions of tools.
fn model_sees(observed: &Observed, text: &str) -> bool {
    let mut strings = observed.requests.iter().filter_map(|request| serde_json::to_value(request).ok());
    strings.any(|request| any_string(&request, &|string| string.contains(text)))
}

fn any_string(value: &Value, found: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => found(text),
        Value::Array(items) => items.iter().any(|item| any_string(item, found)),
        Value::Object(fields) => fields.iter().any(|(name, value)| found(name) || any_string(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn quote(text: &str) -> String {
    clean_line(text, QUOTE)
}
