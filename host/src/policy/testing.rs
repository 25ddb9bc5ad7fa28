//! `policy test`: a policy is code, so it has tests.

use serde::Serialize;
use serde_json::{Map, Value};

use super::Policy;
use super::explain::split_call;
use super::nearest::did_you_mean;
use super::rules::Verdict;
use crate::json::{kind, parse_object};
use crate::text::clean_line;

/// Failures beyond this number are counted, not kept.
const MAX_FAILURES: usize = 1_000;

/// What came of a file of cases.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct TestReport {
    /// Cases that were as expected.
    pub passed: usize,
    /// Cases that were not, those that cannot be read included.
    pub failed: usize,
    /// What failed, at most 1000.
    pub failures: Vec<CaseFailure>,
}

/// One case that was not as expected.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct CaseFailure {
    /// The line of the case, counted from 1.
    pub line: usize,
    /// What was called, as the case writes it.
    pub call: String,
    /// What the case expects; `None` when the case cannot be read.
    pub expected: Option<Verdict>,
    /// What the policy says.
    pub got: Option<Verdict>,
    /// The rule, as `file:line`.
    pub rule: Option<String>,
    /// Why, or what is wrong with the case.
    pub reason: String,
}

/// Runs cases: JSON lines `{"call":"plugin/tool","args":{…},"expect":"allow|ask|deny"}`. Blank lines are skipped; `args` may be left
/// out.
pub fn run_cases(policy: &Policy, text: &str) -> TestReport {
    let mut report = TestReport::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.strip_prefix('\u{feff}').unwrap_or(line).trim();
        if line.is_empty() {
            continue;
        }
        match run_case(policy, line) {
            Ok(()) => report.passed += 1,
            Err(failure) => {
                report.failed += 1;
                if report.failures.len() < MAX_FAILURES {
                    report.failures.push(CaseFailure { line: index + 1, ..*failure });
                }
            }
        }
    }
    report
}

fn run_case(policy: &Policy, line: &str) -> Result<(), Box<CaseFailure>> {
    let case = read_case(line).map_err(|(call, reason)| {
        Box::new(CaseFailure { line: 0, call: clean_line(&call, 200), expected: None, got: None, rule: None, reason })
    })?;
    let (plugin, tool) = (case.plugin.as_str(), case.tool.as_str());
    let decision = policy.decide(plugin, tool, &case.args);
    if decision.verdict == case.expect {
        return Ok(());
    }
    Err(Box::new(CaseFailure {
        line: 0,
        call: clean_line(&format!("{plugin}/{tool}"), 200),
        expected: Some(case.expect),
        got: Some(decision.verdict),
        rule: decision.rule.map(|rule| rule.to_string()),
        reason: decision.reason,
    }))
}

struct Case {
    plugin: String,
    tool: String,
    args: Map<String, Value>,
    expect: Verdict,
}

/// Reads one case; the error holds the call, if there is one, and what is wrong.
fn read_case(line: &str) -> Result<Case, (String, String)> {
    const FIELDS: [&str; 3] = ["call", "args", "expect"];
    let mut object = parse_object(line).map_err(|error| (String::new(), error))?;
    let call = object.get("call").and_then(Value::as_str).unwrap_or_default().to_owned();
    let wrong = |reason: String| (call.clone(), reason);
    if let Some(unknown) = object.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        return Err(wrong(format!("unknown field `{}`; {}", clean_line(unknown, 60), did_you_mean(unknown, &FIELDS))));
    }
    let (plugin, tool) = split_call(&call).map_err(&wrong)?;
    let expect = match object.get("expect").and_then(Value::as_str) {
        Some("allow") => Verdict::Allow,
        Some("ask") => Verdict::Ask,
        Some("deny") => Verdict::Deny,
        _ => return Err(wrong("`expect` must be `allow`, `ask` or `deny`".to_owned())),
    };
    let (plugin, tool) = (plugin.to_owned(), tool.to_owned());
    let args = match object.remove("args") {
        None => Map::new(),
        Some(Value::Object(args)) => args,
        Some(other) => return Err(wrong(format!("`args` must be an object, not {}", kind(&other)))),
    };
    Ok(Case { plugin, tool, args, expect })
}
