//! Asking the client's user when the policy says `ask`.
//!
//! Up to 2025-11-25 the server asks with `elicitation/create` while the call waits. From 2026-07-28 on it answers the call with the
//! question, and the client repeats the call with the answer; a seal ties the answer to the call that it was given for.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, InputRequest, InputRequiredResult, InputResponses,
    ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::message::ToolStatus;
use crate::text;
use crate::tool::{Approval, ErrorCode, Failure, Question, ToolOutcome};

/// How long a person may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// The longest arguments that a person is asked about, in bytes as shown. Nobody reads more, and a question that shows a part of what it
/// is about would be a lie.
const MAX_SHOWN: usize = 16 * 1024;
/// The name of our question in an `InputRequiredResult`.
const INPUT: &str = "approval";

const ONCE: &str = "allow once";
const SESSION: &str = "allow for this session";
const DENY: &str = "deny";

/// What came of asking.
pub(super) enum Asked {
    /// Go on with this approval; none where nobody can be asked.
    Answered(Option<Approval>),
    /// The client is to ask, and to call again.
    Input(Box<InputRequiredResult>),
    /// It cannot be asked about.
    Refused(Box<ToolOutcome>),
}

/// The questions of one session.
#[derive(Default)]
pub(super) struct Questions {
    /// Rules that the person allowed for the session.
    allowed: Mutex<HashSet<String>>,
    /// One question at a time: two dialogs at once get one of them answered blindly.
    turn: tokio::sync::Mutex<()>,
}

/// What a client sends along when it repeats a call with an answer.
pub(super) struct Repeat {
    pub(super) responses: Option<InputResponses>,
    pub(super) state: Option<String>,
}

impl Questions {
    /// Asks. What a person allows for the session holds within one `generation` of the policy; `seal` is the server's secret.
    pub(super) async fn ask(
        &self,
        question: &Question,
        generation: u64,
        repeat: Repeat,
        context: &RequestContext<RoleServer>,
        stop: &CancellationToken,
        seal: &[u8; 32],
    ) -> Asked {
        let rule = format!("{generation}\n{}\n{}", question.plugin, question.rule);
        if self.is_allowed(&rule) {
            return Asked::Answered(Some(Approval::ForRun));
        }
        if !can_ask(context) {
            return Asked::Answered(None);
        }
        let params = match params(question) {
            Ok(params) => params,
            Err(refused) => return Asked::Refused(refused),
        };
        if context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28) {
            return answer_or_input(question, &params, &repeat, seal);
        }
        let asked = async {
            let _turn = self.turn.lock().await;
            if self.is_allowed(&rule) {
                return Some(Approval::ForRun);
            }
            let answer = context.peer.create_elicitation_with_timeout(params, Some(PATIENCE)).await;
            let approval = match &answer {
                Ok(result) => approval(result),
                Err(error) => {
                    tracing::warn!("the client did not answer a question: {error}");
                    Approval::No
                }
            };
            if approval == Approval::ForRun {
                self.allowed.lock().unwrap_or_else(PoisonError::into_inner).insert(rule);
            }
            Some(approval)
        };
        tokio::select! {
            approval = asked => Asked::Answered(approval),
            () = context.ct.cancelled() => Asked::Answered(Some(Approval::No)),
            () = stop.cancelled() => Asked::Answered(Some(Approval::No)),
        }
    }

    fn is_allowed(&self, rule: &str) -> bool {
        self.allowed.lock().unwrap_or_else(PoisonError::into_inner).contains(rule)
    }
}

/// Whether the client can show a form. One that names no mode knows only forms.
fn can_ask(context: &RequestContext<RoleServer>) -> bool {
    let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
    elicitation.is_some_and(|elicitation| elicitation.form.is_some() || elicitation.url.is_none())
}

/// The stateless form: the question goes out, or its answer has come back.
fn answer_or_input(question: &Question, params: &ElicitRequestParams, repeat: &Repeat, seal: &[u8; 32]) -> Asked {
    let state = sealed(question, seal);
    let answer = repeat.responses.as_ref().and_then(|responses| responses.get(INPUT));
    if let (Some(answer), Some(given)) = (answer, &repeat.state)
        && *given == state
    {
        let approval = serde_json::from_value::<ElicitResult>(answer.clone()).map_or(Approval::No, |result| approval(&result));
        // There is no session to remember a rule in.
        return Asked::Answered(Some(if approval == Approval::ForRun { Approval::Once } else { approval }));
    }
    let request = json!({"method": "elicitation/create", "params": params});
    match serde_json::from_value::<InputRequest>(request) {
        Ok(request) => {
            let requests = [(INPUT.to_owned(), request)].into_iter().collect();
            Asked::Input(Box::new(InputRequiredResult::new(Some(requests), Some(state))))
        }
        Err(error) => {
            tracing::error!("cannot write a question: {error}");
            Asked::Answered(None)
        }
    }
}

/// Names a question so that no answer fits another one: other arguments, another tool, another server.
fn sealed(question: &Question, seal: &[u8; 32]) -> String {
    let text = json!([question.plugin, question.tool, question.rule, question.arguments]).to_string();
    let inner = Sha256::new().chain_update(seal).chain_update(text).finalize();
    // Twice, so that nobody can append to a text whose hash is known.
    text::hex(&Sha256::new().chain_update(seal).chain_update(inner).finalize())
}

/// The form: everything that the tool will get, escaped, and three answers.
fn params(question: &Question) -> Result<ElicitRequestParams, Box<ToolOutcome>> {
    let arguments = text::escape_hidden(&question.arguments.to_string());
    if arguments.len() > MAX_SHOWN {
        let what = format!("`{}/{}` needs a person's approval", question.plugin, question.tool);
        let message = format!("{what}, and its arguments are too long to be shown: {} bytes", arguments.len());
        let failure = Failure::new(ErrorCode::POLICY_DENIED, message)
            .hint(format!("send at most {MAX_SHOWN} bytes, or set the rule at {} to `allow`", question.rule));
        return Err(Box::new(ToolOutcome::refused(ToolStatus::Denied, failure)));
    }
    let warning = if question.hints.destructive { "\nThe tool says that it may destroy or overwrite something." } else { "" };
    let message = format!(
        "Allow a call of `{}/{}`?{warning}\nArguments: {arguments}\nAsked because of the policy rule at {}.",
        question.plugin, question.tool, question.rule
    );
    Ok(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema: form() })
}

fn form() -> ElicitationSchema {
    let schema = json!({
        "type": "object",
        "properties": {"decision": {
            "type": "string",
            "title": "Decision",
            "description": "Whether the tool may run",
            "enum": [ONCE, SESSION, DENY],
        }},
        "required": ["decision"],
    });
    let Value::Object(schema) = schema else { unreachable!("the schema above is an object") };
    ElicitationSchema::from_json_schema(schema).expect("the form is an elicitation schema: a unit test builds it")
}

/// Only a clear yes is a yes.
fn approval(result: &ElicitResult) -> Approval {
    let decision = result.content.as_ref().and_then(|content| content.get("decision")).and_then(Value::as_str);
    match (&result.action, decision) {
        (ElicitationAction::Accept, Some(ONCE)) => Approval::Once,
        (ElicitationAction::Accept, Some(SESSION)) => Approval::ForRun,
        _ => Approval::No,
    }
}

/// The error of a request that is no request at all.
pub(super) fn malformed(method: &str) -> ErrorData {
    ErrorData::invalid_params(format!("the parameters of `{}` are malformed", text::clean_line(method, 64)), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::ToolHints;

    fn question(arguments: Value) -> Question {
        Question {
            plugin: "files".into(),
            tool: "write".into(),
            arguments,
            rule: "policy.toml:7".into(),
            rule_id: String::new(),
            sha256: String::new(),
            hints: ToolHints { destructive: true, ..ToolHints::default() },
        }
    }

    #[test]
    fn the_question_shows_exactly_what_the_tool_gets() {
        let params = serde_json::to_value(params(&question(json!({"path": "/北京\u{202e}txt"}))).ok().unwrap()).unwrap();
        let message = params["message"].as_str().unwrap();
        assert!(
            message.contains("`files/write`") && message.contains("policy.toml:7") && message.contains("destroy"),
            "{message}"
        );
        assert!(message.contains(r#"{"path":"/北京\u{202e}txt"}"#), "{message}");
        assert_eq!(params["requestedSchema"]["properties"]["decision"]["enum"], json!([ONCE, SESSION, DENY]));
    }

    #[test]
    fn what_cannot_be_shown_whole_is_not_asked_about() {
        let long = question(json!({"text": "x".repeat(MAX_SHOWN)}));
        let refused = params(&long).err().unwrap();
        assert_eq!(refused.status, ToolStatus::Denied);
        assert!(refused.model_text().contains("too long to be shown"), "{}", refused.model_text());
    }

    #[test]
    fn only_a_clear_yes_is_a_yes() {
        for (answer, expected) in [
            (json!({"action": "accept", "content": {"decision": "allow once"}}), Approval::Once),
            (json!({"action": "accept", "content": {"decision": "allow for this session"}}), Approval::ForRun),
            (json!({"action": "accept", "content": {"decision": "deny"}}), Approval::No),
            (json!({"action": "accept", "content": {"decision": "yes"}}), Approval::No),
            (json!({"action": "accept", "content": {}}), Approval::No),
            (json!({"action": "accept"}), Approval::No),
            (json!({"action": "decline", "content": {"decision": "allow once"}}), Approval::No),
            (json!({"action": "cancel"}), Approval::No),
        ] {
            assert_eq!(approval(&serde_json::from_value(answer.clone()).unwrap()), expected, "{answer}");
        }
    }

    #[test]
    fn an_answer_fits_only_the_call_it_was_given_for() {
        let seal = [7; 32];
        let asked = question(json!({"path": "/a"}));
        let yes = json!({"action": "accept", "content": {"decision": SESSION}});
        let repeat = |state: &str| Repeat {
            responses: Some([(INPUT.to_owned(), yes.clone())].into_iter().collect()),
            state: Some(state.to_owned()),
        };
        let ask =
            |question: &Question, state: &str| answer_or_input(question, &params(question).ok().unwrap(), &repeat(state), &seal);
        let state = sealed(&asked, &seal);
        assert!(matches!(ask(&asked, &state), Asked::Answered(Some(Approval::Once))));
        assert!(matches!(ask(&question(json!({"path": "/b"})), &state), Asked::Input(_)));
        assert!(matches!(ask(&asked, &sealed(&asked, &[8; 32])), Asked::Input(_)));
        assert!(matches!(ask(&asked, ""), Asked::Input(_)));
    }
}
