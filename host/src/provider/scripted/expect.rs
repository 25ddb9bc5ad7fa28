//! Compares a request with what a script expects.

use serde_json::Value;

use super::script::{Expect, ExpectResult, When};
use crate::message::{Part, Role, ToolResult};
use crate::provider::ModelRequest;
use crate::text::clean_line;

/// How much of a text an error quotes, in bytes.
const QUOTE: usize = 200;

/// Checks a request; the error says what differs.
pub(super) fn check(expect: &Expect, request: &ModelRequest) -> Result<(), String> {
    let user = last_user(request);
    if let Some(wanted) = &expect.user
        && wanted.trim() != user.trim()
    {
        return Err(format!("expected the user to say `{}`, not `{}`", quote(wanted), quote(&user)));
    }
    if let Some(wanted) = &expect.user_contains
        && !user.contains(wanted.as_str())
    {
        return Err(format!("expected `{}` in what the user says, `{}`", quote(wanted), quote(&user)));
    }
    if let Some(wanted) = &expect.system_contains
        && !request.system.contains(wanted.as_str())
    {
        return Err(format!("expected `{}` in the system prompt", quote(wanted)));
    }
    if let Some(missing) = expect.tools.iter().find(|name| !request.tools.iter().any(|tool| tool.name == **name)) {
        let offered: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
        let offered = if offered.is_empty() { "none".to_owned() } else { quote(&offered.join(", ")) };
        return Err(format!("expected tool `{missing}` on offer; on offer: {offered}"));
    }
    if expect.no_tools && !request.tools.is_empty() {
        return Err(format!("expected no tools on offer, and there are {}", request.tools.len()));
    }
    if expect.any_results {
        return Ok(());
    }
    check_results(&expect.results, request)
}

/// Whether all conditions hold.
pub(super) fn holds(when: &When, request: &ModelRequest) -> bool {
    let last_turn = request.messages.iter().rposition(|message| message.role == Role::Assistant);
    let mut results = request
        .messages
        .iter()
        .skip(last_turn.map_or(0, |at| at + 1))
        .flat_map(|message| &message.parts)
        .filter_map(|part| if let Part::ToolResult(result) = part { Some(result) } else { None })
        .filter(|result| when.tool.as_ref().is_none_or(|tool| *tool == result.name));
    let about_results = when.tool.is_some() || when.result_contains.is_some() || when.status.is_some();
    let result = |result: &ToolResult| {
        when.result_contains.as_ref().is_none_or(|text| result.text.contains(text.as_str()))
            && when.status.is_none_or(|status| status == result.status)
    };
    let offer = |tool: &crate::tool::ToolSpec| {
        when.offered.as_ref().is_none_or(|name| *name == tool.name)
            && when.description_contains.as_ref().is_none_or(|text| tool.description.contains(text.as_str()))
    };
    (!about_results || results.any(result))
        && ((when.offered.is_none() && when.description_contains.is_none()) || request.tools.iter().any(offer))
        && when.system_contains.as_ref().is_none_or(|text| request.system.contains(text.as_str()))
        && when.user_contains.as_ref().is_none_or(|text| last_user(request).contains(text.as_str()))
}

/// The results must answer the calls of the model's last turn, each once, and be those that the script expects.
fn check_results(expected: &[ExpectResult], request: &ModelRequest) -> Result<(), String> {
    let last_turn = request.messages.iter().rposition(|message| message.role == Role::Assistant);
    let results: Vec<&ToolResult> = request
        .messages
        .iter()
        .skip(last_turn.map_or(0, |at| at + 1))
        .flat_map(|message| &message.parts)
        .filter_map(|part| if let Part::ToolResult(result) = part { Some(result) } else { None })
        .collect();
    let calls: Vec<&str> = match last_turn {
        Some(at) => request.messages[at].tool_calls().map(|call| call.id.as_str()).collect(),
        None => Vec::new(),
    };
    let answered: Vec<&str> = results.iter().map(|result| result.call_id.as_str()).collect();
    if calls != answered {
        let (calls, answered) = (calls.join(", "), answered.join(", "));
        return Err(format!("the model's last calls are `{calls}`, and the results are for `{answered}`"));
    }
    if expected.len() != results.len() {
        let tools: Vec<&str> = results.iter().map(|result| result.name.as_str()).collect();
        let tools = quote(&tools.join(", "));
        return Err(format!("expected {} tool results, and there are {} (`{tools}`)", expected.len(), results.len()));
    }
    for (at, (expected, result)) in expected.iter().zip(results).enumerate() {
        check_result(expected, result).map_err(|what| format!("result {} (`{}`): {what}", at + 1, result.name))?;
    }
    Ok(())
}

fn check_result(expected: &ExpectResult, result: &ToolResult) -> Result<(), String> {
    if expected.tool != result.name {
        return Err(format!("expected a result of `{}`", expected.tool));
    }
    let text = quote(&result.text);
    if let Some(status) = expected.status
        && status != result.status
    {
        return Err(format!("expected status {status:?}, not {:?}: `{text}`", result.status));
    }
    if let Some(missing) = expected.contains.iter().find(|part| !result.text.contains(part.as_str())) {
        return Err(format!("expected `{}` in `{text}`", quote(missing)));
    }
    if expected.json.is_empty() && expected.present.is_empty() {
        return Ok(());
    }
    let value = json_in(&result.text).ok_or_else(|| format!("expected JSON, not `{text}`"))?;
    for (pointer, wanted) in &expected.json {
        let found = value.pointer(pointer);
        if found != Some(wanted) {
            let found = found.map_or_else(|| "nothing".to_owned(), |found| format!("`{}`", quote(&found.to_string())));
            return Err(format!("expected `{}` at `{pointer}`, not {found}", quote(&wanted.to_string())));
        }
    }
    if let Some(missing) = expected.present.iter().find(|pointer| value.pointer(pointer).is_none()) {
        return Err(format!("expected something at `{missing}` in `{text}`"));
    }
    Ok(())
}

/// The last user message's text.
pub(super) fn last_user(request: &ModelRequest) -> String {
    let last = request.messages.iter().rev().find(|message| message.role == Role::User);
    last.map(|message| message.text()).unwrap_or_default()
}

/// The JSON in a result's text: all of it, or the first object or array in it.
pub(super) fn json_in(text: &str) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(text) {
        return Some(value);
    }
    let start = text.find(['{', '['])?;
    serde_json::Deserializer::from_str(&text[start..]).into_iter().next()?.ok()
}

fn quote(text: &str) -> String {
    clean_line(text, QUOTE)
}
