//! Streamable HTTP, in both forms: each request by itself, and the sessions of revisions with a handshake.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use lastword_proto::Code;
use rmcp::ServerHandler;
use rmcp::model::ProtocolVersion;
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use tokio::sync::watch;

use super::sessions::{Owner, Sessions, Standing};
use crate::calls::ended;
use crate::edges::Fault;
use crate::edges::http::{REQUEST_BYTES_MAX, read};

/// The header that names a session.
pub(super) const SESSION_HEADER: &str = "mcp-session-id";
/// The header that names the revision.
const VERSION_HEADER: &str = "mcp-protocol-version";

/// One surface on the wire.
#[derive(Clone)]
pub(super) struct Wire<H> {
    /// Serves each request by itself.
    single: StreamableHttpService<H, NeverSessionManager>,
    /// Serves what a session is made of.
    lasting: StreamableHttpService<H, LocalSessionManager>,
    manager: Arc<LocalSessionManager>,
    sessions: Arc<Sessions>,
    stopping: watch::Receiver<bool>,
}

impl<H: ServerHandler> Wire<H> {
    /// Puts a surface on the wire; `make` makes one for each request and each session.
    pub(super) fn new(
        sessions: Arc<Sessions>,
        stopping: watch::Receiver<bool>,
        make: impl Fn() -> H + Clone + Send + Sync + 'static,
    ) -> Self {
        let mut manager = LocalSessionManager::default();
        // A model may think for hours between two calls; sessions are bounded by their number.
        manager.session_config.keep_alive = None;
        let manager = Arc::new(manager);
        let again = make.clone();
        Self {
            single: StreamableHttpService::new(
                move || Ok(make()),
                Arc::new(NeverSessionManager::default()),
                config().with_legacy_session_mode(false),
            ),
            lasting: StreamableHttpService::new(
                move || Ok(again()),
                Arc::clone(&manager),
                config().with_legacy_session_mode(true),
            ),
            manager,
            sessions,
            stopping,
        }
    }

    /// Answers a request of a caller who was admitted.
    pub(super) async fn handle(&self, caller: Owner, request: Request) -> Response {
        if self_contained(request.headers()) {
            return self.single.handle(request).await.map(Body::new);
        }
        let named = request.headers().get(SESSION_HEADER).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let post = request.method() == Method::POST;
        match named.map(|id| (self.sessions.standing(&id, caller), id)) {
            Some((Standing::Open, id)) => self.within(&id, request).await,
            // The server was started anew since. What needs no session goes on without.
            Some((Standing::Unknown, _)) if post => self.single.handle(request).await.map(Body::new),
            Some((Standing::Unknown | Standing::Ended, _)) => no_such_session(),
            None if post => self.first(caller, request).await,
            None => self.lasting.handle(request).await.map(Body::new),
        }
    }

    /// A request outside sessions: a handshake begins one, and everything else does without.
    async fn first(&self, caller: Owner, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let bytes = match read(body).await {
            Ok(bytes) => bytes,
            Err(fault) => return fault.into_response(),
        };
        let begins = serde_json::from_slice::<Peek>(&bytes).is_ok_and(|call| call.method == "initialize");
        let request = Request::from_parts(parts, Body::from(bytes));
        if !begins {
            return self.single.handle(request).await.map(Body::new);
        }
        let response = self.lasting.handle(request).await;
        if let Some(id) = response.headers().get(SESSION_HEADER).and_then(|id| id.to_str().ok())
            && let Some(idle) = self.sessions.open(id, caller)
        {
            self.close(idle).await;
        }
        response.map(Body::new)
    }

    async fn close(&self, id: String) {
        if let Err(error) = self.manager.close_session(&id.into()).await {
            tracing::debug!(%error, "a session that made room did not end well");
        }
    }

    /// A request of an open session.
    async fn within(&self, id: &str, request: Request) -> Response {
        let method = request.method().clone();
        let response = self.lasting.handle(request).await.map(Body::new);
        if response.status() == StatusCode::NOT_FOUND || method == Method::DELETE && response.status().is_success() {
            self.sessions.end(id);
        }
        if method == Method::GET && is_stream(&response) { self.watched(id, response) } else { response }
    }

    /// The stream on which a session is told what happens: counted, and ended with the server.
    fn watched(&self, id: &str, response: Response) -> Response {
        let open = self.sessions.stream(id);
        let mut stopping = self.stopping.clone();
        response.map(|body| {
            let told = body.into_data_stream().map(move |chunk| {
                let _open = &open;
                chunk
            });
            Body::from_stream(told.take_until(async move { ended(&mut stopping).await }))
        })
    }
}

/// Hosts and origins are checked before, as for every other route.
fn config() -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default()
        .with_json_response(true)
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_max_request_body_bytes(REQUEST_BYTES_MAX)
}

/// As much of a message as says whether it begins a session.
#[derive(Deserialize)]
struct Peek<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
}

/// Whether a request is of a revision without sessions.
fn self_contained(headers: &HeaderMap) -> bool {
    let version = headers.get(VERSION_HEADER).and_then(|version| version.to_str().ok());
    // Revisions are dates: they sort as texts.
    version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28.as_str())
}

fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

fn no_such_session() -> Response {
    Fault::new(Code::UnknownRequest, "There is no such session: begin a new one with `initialize`").into_response()
}
