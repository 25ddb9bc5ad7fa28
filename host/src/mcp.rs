//! The MCP server: offers the tools of a registry to any client of the Model Context Protocol, over stdio or Streamable HTTP.
//!
//! It decides nothing about rights. A call goes through the same [`Tools`] as the agent's calls; what the protocol adds is who is asked
//! (the client's user, by elicitation) and where progress and log lines go (the client that called). Protocol details are those of
//! `rmcp`, the official SDK; only the lines of stdio are read here, since the SDK drops what it cannot parse.
//!
//! The handshake does not wait for plugins: [`McpServer::new`] serves at once, and [`McpServer::ready`] brings the tools.

mod ask;
mod catalog;
mod content;
mod generic;
mod http;
mod notify;
mod session;
mod sessions;
mod stdio;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::ServiceExt as _;
use rmcp::service::ServerInitializeError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::catalog::Catalog;
use self::session::Session;
use self::stdio::LineTransport;
use crate::registry::{LiveRegistry, ToolRegistry};
use crate::tool::{ErrorCode, Failure, Tools};

pub use self::http::{HttpError, HttpOptions, Token, TokenError};

/// How long a request waits for plugins that are still being loaded. Clients give up after 30 to 60 seconds.
const LOAD_WAIT: Duration = Duration::from_secs(25);

/// How the tools are offered.
#[derive(Clone, Debug, Default)]
pub struct McpOptions {
    /// Offers the tools of this plugin under their own names, without `plugin__`.
    pub bare_names: Option<String>,
    /// Offers `search_tools` and `call_tool` in place of the tools themselves, for clients with few tool slots.
    pub generic_tools: bool,
}

/// What is served once it is loaded.
pub struct Offer {
    /// Says which tools there are, and tells of reloads.
    pub registry: Arc<LiveRegistry>,
    /// Runs the calls: the registry itself, or what stands before it.
    pub tools: Arc<dyn Tools>,
}

/// Why the server ended, or what it cannot offer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// `bare_names` names a plugin that is not loaded.
    #[error("there is no plugin `{plugin}` to offer without its prefix")]
    NoSuchPlugin {
        /// The plugin's id.
        plugin: String,
    },
    /// A name without its prefix is taken.
    #[error("tool `{plugin}/{tool}` cannot be offered as `{tool}`: another tool has that name")]
    Collision {
        /// The plugin's id.
        plugin: String,
        /// The plugin's own tool name.
        tool: String,
    },
    /// The client did not begin a session.
    #[error("the client did not begin a session")]
    Handshake(#[source] Box<ServerInitializeError>),
    /// The task that serves the session is lost.
    #[error("the session ended unexpectedly")]
    Lost(#[source] tokio::task::JoinError),
}

/// An MCP server. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct McpServer(Arc<Shared>);

struct Shared {
    options: McpOptions,
    state: watch::Sender<State>,
    /// The catalogue of the registry that it was made for.
    catalog: Mutex<Option<(Arc<ToolRegistry>, Arc<Catalog>)>>,
    /// The run of all calls that come without a session: a client must not shed `max_calls` by leaving the session out.
    sessionless_run: String,
    /// Ties a question to the call that it was asked about.
    seal: [u8; 32],
}

/// How far loading has come.
#[derive(Clone)]
enum State {
    Loading,
    Ready(Arc<Offer>),
    Failed(Failure),
}

impl McpServer {
    /// A server whose tools are still being loaded.
    pub fn new(options: McpOptions) -> Self {
        let mut seal = [0; 32];
        for half in seal.chunks_exact_mut(16) {
            half.copy_from_slice(Uuid::now_v7().as_bytes());
        }
        Self(Arc::new(Shared {
            options,
            state: watch::Sender::new(State::Loading),
            catalog: Mutex::new(None),
            sessionless_run: Uuid::now_v7().to_string(),
            seal,
        }))
    }

    /// Brings the tools. Requests that wait for them go on.
    ///
    /// # Errors
    ///
    /// Fails when [`McpOptions::bare_names`] names no plugin, or leads to two tools of one name.
    pub fn ready(&self, offer: Offer) -> Result<(), McpError> {
        Catalog::new(&offer.registry.current(), &self.0.options)?;
        self.0.state.send_replace(State::Ready(Arc::new(offer)));
        Ok(())
    }

    /// Says that there will be no tools, and why. Requests for them are answered with it.
    pub fn failed(&self, failure: Failure) {
        self.0.state.send_replace(State::Failed(failure));
    }

    /// Serves one client over lines of JSON until the input ends or `stop` is cancelled. Calls that still run are then stopped.
    ///
    /// # Errors
    ///
    /// Fails when the client does not begin a session, or the session's task is lost.
    pub async fn serve_lines<R, W>(&self, input: R, output: W, stop: CancellationToken) -> Result<(), McpError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let session = Session::new(Arc::clone(&self.0));
        let transport = LineTransport::new(input, output, session.stop_token());
        match session.serve_with_ct(transport, stop).await {
            Ok(running) => running.waiting().await.map(drop).map_err(McpError::Lost),
            // A client that goes away before it begins, and a signal, are no errors.
            Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
            Err(error) => Err(McpError::Handshake(Box::new(error))),
        }
    }
}

impl Shared {
    /// What is served, once it is loaded; the wait is bounded.
    async fn offer(&self) -> Result<Arc<Offer>, Failure> {
        let mut state = self.state.subscribe();
        let loaded = tokio::time::timeout(LOAD_WAIT, state.wait_for(|state| !matches!(state, State::Loading))).await;
        match loaded.ok().and_then(Result::ok).as_deref() {
            Some(State::Ready(offer)) => Ok(Arc::clone(offer)),
            Some(State::Failed(failure)) => Err(failure.clone()),
            Some(State::Loading) | None => Err(Failure::new(ErrorCode::LIMIT_BUSY, "the plugins are still being loaded")
                .hint("try again; the list of tools changes when they are there")),
        }
    }

    /// What is served, if it is loaded.
    fn offer_now(&self) -> Option<Arc<Offer>> {
        match &*self.state.borrow() {
            State::Ready(offer) => Some(Arc::clone(offer)),
            State::Loading | State::Failed(_) => None,
        }
    }

    /// The tools of the moment, as they are listed.
    fn catalog(&self, offer: &Offer) -> Arc<Catalog> {
        let registry = offer.registry.current();
        let mut cached = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made_for, catalog)) = &*cached
            && Arc::ptr_eq(made_for, &registry)
        {
            return Arc::clone(catalog);
        }
        let catalog = Arc::new(Catalog::new(&registry, &self.options).unwrap_or_else(|error| {
            // Only after a reload: the first catalogue was checked. The tools stay reachable under their full names.
            tracing::warn!("{error}; after this reload all tools are offered under their full names");
            Catalog::full_names(&registry, &self.options)
        }));
        *cached = Some((registry, Arc::clone(&catalog)));
        catalog
    }
}
