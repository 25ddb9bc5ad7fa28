//! The sessions of Streamable HTTP: the SDK's own, with a bound on how many there are.

use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, LocalSessionManagerError};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use tokio::sync::Mutex;

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionsError {
    /// There are as many as there may be.
    #[error("too many sessions are open")]
    Full,
    /// The SDK's manager says no.
    #[error(transparent)]
    Session(#[from] LocalSessionManagerError),
}

/// At most so many sessions; each ends when nothing happens in it for a while.
pub(super) struct Sessions {
    inner: LocalSessionManager,
    max: usize,
    /// Held while one is counted and made.
    making: Mutex<()>,
}

type Made<T> = Result<T, SessionsError>;

impl Sessions {
    pub(super) fn new(max: usize, idle: Duration) -> Self {
        let mut inner = LocalSessionManager::default();
        inner.session_config.keep_alive = Some(idle);
        Self { inner, max, making: Mutex::new(()) }
    }

    /// Whether there is room for one more.
    pub(super) async fn has_room(&self) -> bool {
        self.inner.sessions.read().await.len() < self.max
    }
}

impl SessionManager for Sessions {
    type Error = SessionsError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Made<(SessionId, Self::Transport)> {
        let _making = self.making.lock().await;
        if !self.has_room().await {
            return Err(SessionsError::Full);
        }
        Ok(self.inner.create_session().await?)
    }

    async fn initialize_session(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Made<ServerJsonRpcMessage> {
        Ok(self.inner.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Made<bool> {
        Ok(self.inner.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Made<()> {
        Ok(self.inner.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Made<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static> {
        Ok(self.inner.create_stream(id, message).await?)
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Made<()> {
        Ok(self.inner.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Made<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static> {
        Ok(self.inner.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Made<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static> {
        Ok(self.inner.resume(id, last_event_id).await?)
    }
}

/// Shared by the connections.
pub(super) type SharedSessions = Arc<Sessions>;
