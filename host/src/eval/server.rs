//! A web server on loopback that answers as the scenario says, and remembers what it was asked.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::scenario::Route;

/// The most requests that are remembered.
const MAX_REQUESTS: usize = 10_000;

/// The running server. It ends when this is dropped.
pub(super) struct Server {
    port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    routes: Mutex<Vec<Route>>,
    seen: Mutex<Vec<Seen>>,
}

/// A request that came.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Method, path and query.
    pub(super) request: String,
    pub(super) host: String,
    /// Names in lower case.
    pub(super) headers: BTreeMap<String, String>,
}

impl Server {
    /// Begins to listen. Every request is answered with 404 until there are routes.
    pub(super) async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(serve(listener, shared.clone()));
        Ok(Self { port, shared, task })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn set_routes(&self, routes: Vec<Route>) {
        *self.shared.routes.lock().unwrap_or_else(PoisonError::into_inner) = routes;
    }

    /// What it was asked so far.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // Connections end with the server: it is dropped when its scenario is over.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let shared = shared.clone();
                connections.spawn(async move {
                    let service = service_fn(|request| answer(request, &shared));
                    // A client that breaks off is its own business.
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(request: Request<Incoming>, shared: &Shared) -> Result<Response<Full<Bytes>>, Infallible> {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let text = |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let seen = Seen {
        request: format!("{} {target}", request.method()),
        host: request.headers().get("host").map(text).unwrap_or_default(),
        headers: request.headers().iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect(),
    };
    {
        let mut log = shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if log.len() < MAX_REQUESTS {
            log.push(seen);
        }
    }
    let path = request.uri().path();
    let route = shared.routes.lock().unwrap_or_else(PoisonError::into_inner).iter().find(|route| route.path == path).cloned();
    let mut response = Response::new(Full::default());
    let Some(route) = route else {
        *response.status_mut() = StatusCode::NOT_FOUND;
        return Ok(response);
    };
    tokio::time::sleep(Duration::from_millis(route.delay_ms)).await;
    *response.status_mut() = StatusCode::from_u16(route.status).unwrap_or(StatusCode::OK);
    for (name, value) in &route.headers {
        if let (Ok(name), Ok(value)) = (name.parse::<hyper::header::HeaderName>(), value.parse()) {
            response.headers_mut().insert(name, value);
        }
    }
    *response.body_mut() = Full::from(route.body);
    Ok(response)
}
