//! One client's session: answers its requests.

// The specification of 2026-07-28 deprecates logging and keeps it working; the SDK marks its types so.
#![expect(deprecated, reason = "clients of every protocol version so far use logging")]

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest, CustomResult, ErrorCode as RpcCode,
    Implementation, InitializeRequestParams, InitializeResult, ListToolsResult, LoggingLevel, PaginatedRequestParams,
    ProtocolVersion, ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscriptionFilter, Tool,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::ask::{self, Asked, Questions, Repeat};
use super::generic::{self, Request};
use super::notify::{self, Notices};
use super::{Offer, Shared, State, content};
use crate::message::{ToolCall, ToolStatus};
use crate::tool::{CallContext, Check, Conversation, ErrorCode, Failure, LogLevel, ToolOutcome};

/// What a client is told about the server when it begins.
const INSTRUCTIONS: &str = "Each tool runs in a sandbox of its own and can do only what the operator's policy grants. An error with \
    the code `policy.denied` or `cap.denied` names the rule that is missing; calling again does not help.";

/// The methods that the SDK knows. One that arrives as an unknown request had parameters that it could not read.
const KNOWN_METHODS: [&str; 7] =
    ["initialize", "tools/call", "tools/list", "logging/setLevel", "server/discover", "subscriptions/listen", "ping"];

/// One client's session. A request that comes without a session gets one of its own, and shares its run with all such requests.
pub(super) struct Session {
    server: Arc<Shared>,
    /// Set when the client initialises.
    run: OnceLock<String>,
    questions: Questions,
    /// The least level of log lines that the client wants: a [`LogLevel`] as a number, or [`SILENT`].
    level: AtomicU8,
    /// A list was answered before there were tools.
    listed_early: Arc<AtomicBool>,
    stop: CancellationToken,
}

/// No log line is important enough.
const SILENT: u8 = u8::MAX;

impl Session {
    pub(super) fn new(server: Arc<Shared>) -> Self {
        Self {
            server,
            run: OnceLock::new(),
            questions: Questions::default(),
            // What a client that never sets a level hears: what an operator would want to know.
            level: AtomicU8::new(LogLevel::Warn as u8),
            listed_early: Arc::default(),
            stop: CancellationToken::new(),
        }
    }

    /// Stops what the session runs.
    pub(super) fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// One run for each session, so that `max_calls` and the audit see the client's calls as one.
    fn run_id(&self) -> &str {
        self.run.get().unwrap_or(&self.server.sessionless_run)
    }

    /// What is served. Waits for it, but not beyond the session.
    async fn offer(&self) -> Result<Arc<Offer>, Failure> {
        let stopped = || Failure::new(ErrorCode::CALL_CANCELLED, "the session ended before the plugins were loaded");
        self.stop.run_until_cancelled(self.server.offer()).await.unwrap_or_else(|| Err(stopped()))
    }

    fn least_level(&self, context: &RequestContext<RoleServer>) -> Option<LogLevel> {
        if is_stateless(context) {
            // From 2026-07-28 on each request says what it wants to hear.
            return context.meta.log_level().and_then(notify::least);
        }
        let level = self.level.load(Ordering::Relaxed);
        let levels = [LogLevel::Trace, LogLevel::Debug, LogLevel::Info, LogLevel::Warn, LogLevel::Error, LogLevel::Critical];
        levels.into_iter().find(|known| *known as u8 == level)
    }

    async fn call(
        &self,
        offer: &Offer,
        call: ToolCall,
        repeat: Repeat,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let outcome = match offer.tools.check(self.run_id(), &call) {
            Check::Refused(outcome) => *outcome,
            Check::Ready => self.run(offer, &call, None, context).await,
            Check::Ask(question) => {
                let generation = offer.tools.generation();
                match self.questions.ask(&question, generation, repeat, context, &self.stop, &self.server.seal).await {
                    Asked::Answered(approval) => self.run(offer, &call, approval, context).await,
                    Asked::Input(input) => return Ok((*input).into()),
                    Asked::Refused(outcome) => {
                        offer.tools.declined(self.run_id(), &call.id, &question);
                        *outcome
                    }
                }
            }
        };
        match &outcome.error {
            Some(failure) if failure.code == ErrorCode::TOOL_UNKNOWN => {
                Err(ErrorData::invalid_params(failure.message.clone(), failure.hint.clone().map(Value::from)))
            }
            _ => Ok(content::result(&outcome, &call.id).into()),
        }
    }

    async fn run(
        &self,
        offer: &Offer,
        call: &ToolCall,
        approval: Option<crate::tool::Approval>,
        context: &RequestContext<RoleServer>,
    ) -> ToolOutcome {
        // Stopped by the client for this call, or with the session; and when this future is dropped.
        let cancel = self.stop.child_token();
        let _guard = cancel.clone().drop_guard();
        let notices = Notices::new(context.peer.clone(), context.meta.get_progress_token());
        let call_context = CallContext {
            run_id: self.run_id().to_owned(),
            idempotency_key: call.id.clone(),
            attempt: 1,
            // What is remembered for a session is remembered for the client's.
            conversation: Conversation { session_id: Some(self.run_id().to_owned()), ..Conversation::default() },
            approval,
            cancel: cancel.clone(),
            progress: notices.progress(),
            log: self.least_level(context).map(|least| notices.log(least)),
        };
        let stopping = async {
            context.ct.cancelled().await;
            cancel.cancel();
            std::future::pending::<()>().await;
        };
        let running = async {
            tokio::select! {
                outcome = offer.tools.call(call, call_context) => outcome,
                () = stopping => unreachable!("pending for ever"),
            }
        };
        notices.during(running).await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop.cancel();
        if let (Some(run), Some(offer)) = (self.run.get(), self.server.offer_now()) {
            offer.tools.end_run(run);
        }
    }
}

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        let implementation = Implementation::new("honeycomb", env!("CARGO_PKG_VERSION")).with_title("Honeycomb: sandboxed tools");
        ServerConfig::new(capabilities()).with_server_info(implementation).with_instructions(INSTRUCTIONS)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        self.run.get_or_init(|| Uuid::now_v7().to_string());
        context.peer.set_peer_info(request.clone());
        self.negotiate_initialize(&request)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let (server, early, stop) = (Arc::clone(&self.server), Arc::clone(&self.listed_early), self.stop.clone());
        let peer = context.peer;
        tokio::spawn(async move {
            let told = server.each_change(&early, || async { peer.notify_tool_list_changed().await.is_ok() });
            stop.run_until_cancelled(told).await;
        });
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if request.is_some_and(|request| request.cursor.is_some()) {
            return Err(ErrorData::invalid_params("there is one page of tools: leave `cursor` out", None));
        }
        let offer = match self.offer().await {
            Ok(offer) => offer,
            Err(failure) if failure.code == ErrorCode::LIMIT_BUSY => {
                self.listed_early.store(true, Ordering::SeqCst);
                // Once more: the plugins may have come in between, and then nobody would tell the client.
                let Some(offer) = self.server.offer_now() else { return Ok(ListToolsResult::default()) };
                offer
            }
            Err(failure) => return Err(ErrorData::internal_error(with_hint(&failure), None)),
        };
        Ok(ListToolsResult::with_all_items(self.server.catalog(&offer).listed.to_vec()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let offer = self.server.offer_now()?;
        self.server.catalog(&offer).get(name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let offer = match self.offer().await {
            Ok(offer) => offer,
            Err(failure) => return Ok(failed(failure)),
        };
        let catalog = self.server.catalog(&offer);
        let arguments = request.arguments.unwrap_or_default();
        let asked = if self.server.options.generic_tools {
            generic::unwrap(&request.name, arguments)
        } else {
            Request::Call(request.name.into_owned(), arguments)
        };
        let (name, arguments) = match asked {
            Request::Call(name, arguments) => (name, arguments),
            Request::Search(query) => {
                let found = generic::search(&catalog, &query);
                let mut result = CallToolResult::success(vec![ContentBlock::text(found.to_string())]);
                result.structured_content = Some(found);
                return Ok(result.into());
            }
            Request::Invalid(message) => return Ok(failed(Failure::new(ErrorCode::ARGS_INVALID, message))),
        };
        let call = ToolCall {
            id: Uuid::now_v7().to_string(),
            provider_id: None,
            name: catalog.registry_name(&name).to_owned(),
            arguments: Value::Object(arguments).to_string(),
        };
        let repeat = Repeat { responses: request.input_responses, state: request.request_state };
        self.call(&offer, call, repeat, &context).await
    }

    async fn set_level(&self, request: SetLevelRequestParams, _context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        let level: LoggingLevel = request.level;
        self.level.store(notify::least(level).map_or(SILENT, |least| least as u8), Ordering::Relaxed);
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let tools = SubscriptionFilter::builder().tools_list_changed().build();
        Some(requested.intersection(&tools))
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let told = self
            .server
            .each_change(&self.listed_early, || async { subscription.sink().notify_tool_list_changed().await.is_ok() });
        tokio::select! {
            () = told => {}
            () = subscription.cancelled() => {}
            () = self.stop.cancelled() => {}
        }
        Ok(())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if KNOWN_METHODS.contains(&request.method.as_str()) {
            return Err(ask::malformed(&request.method));
        }
        let message = format!("there is no method `{}`", crate::text::clean_line(&request.method, 64));
        Err(ErrorData::new(RpcCode::METHOD_NOT_FOUND, message, None))
    }
}

impl Shared {
    /// Calls `tell` whenever the listed tools have changed, until it returns false. `early`: a list was answered before there were tools.
    async fn each_change<F: Future<Output = bool>>(&self, early: &AtomicBool, tell: impl Fn() -> F) {
        let mut state = self.state.subscribe();
        let ready = state.wait_for(|state| matches!(state, State::Ready(_))).await.map(|state| state.clone());
        let Ok(State::Ready(offer)) = ready else { return };
        let mut changed = offer.registry.changed();
        let mut listed = Arc::clone(&self.catalog(&offer).listed);
        if early.load(Ordering::SeqCst) && !tell().await {
            return;
        }
        while changed.changed().await.is_ok() {
            let now = Arc::clone(&self.catalog(&offer).listed);
            // A reload that changes limits alone changes no list.
            if now != listed && !tell().await {
                return;
            }
            listed = now;
        }
    }
}

fn capabilities() -> ServerCapabilities {
    ServerCapabilities::builder().enable_logging().enable_tools().enable_tool_list_changed().build()
}

fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

fn with_hint(failure: &Failure) -> String {
    match &failure.hint {
        Some(hint) => format!("{}; {hint}", failure.message),
        None => failure.message.clone(),
    }
}

/// A call that could not be made, for the model to read.
fn failed(failure: Failure) -> CallToolResponse {
    content::result(&ToolOutcome::refused(ToolStatus::NotExecuted, failure), "").into()
}
