//! Streamable HTTP in both forms: each request on its own, and the sessions of revisions with a handshake.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use lastword_facts::Code;
use lastword_server::edges::http::{MCP_SESSION_HEADER, REQUEST_BYTES_MAX, read};
use lastword_server::{ApiError, ended};
use rmcp::ServerHandler;
use rmcp::model::ProtocolVersion;
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use tokio::sync::watch;

use super::exact;
use super::sessions::{Owner, SessionState, Sessions};

/// The header that names the protocol's revision.
const VERSION_HEADER: &str = "mcp-protocol-version";

/// The longest answer inside a session, in bytes: the server's description of itself.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The requests that are served inside a session, if the client has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Within {
    /// Only those that create and change the session. Each call is a request on its own, which ends when the client
    /// disconnects.
    Changes,
    /// Calls too, because they may ask the client something in between.
    Calls,
}

/// One surface, served over HTTP.
#[derive(Clone)]
pub(super) struct Wire<H> {
    /// Serves each request on its own.
    single: StreamableHttpService<H, NeverSessionManager>,
    /// Serves requests inside a session.
    lasting: StreamableHttpService<H, LocalSessionManager>,
    /// Serves requests inside a session of a client that can't read the empty event at the start of a stream.
    unprimed: StreamableHttpService<H, LocalSessionManager>,
    manager: Arc<LocalSessionManager>,
    sessions: Arc<Sessions>,
    within: Within,
    stopping: watch::Receiver<bool>,
}

impl<H: ServerHandler> Wire<H> {
    /// Serves a surface; `make` creates one for each request and each session.
    pub(super) fn new(
        sessions: Arc<Sessions>,
        within: Within,
        stopping: watch::Receiver<bool>,
        make: impl Fn() -> H + Clone + Send + Sync + 'static,
    ) -> Self {
        let mut manager = LocalSessionManager::default();
        // No timeout, because a model may think for hours between two calls. The number of sessions is bounded instead.
        manager.session_config.keep_alive = None;
        let manager = Arc::new(manager);
        let (again, once_more) = (make.clone(), make.clone());
        Self {
            single: StreamableHttpService::new(
                move || Ok(make()),
                Arc::new(NeverSessionManager::default()),
                config().with_legacy_session_mode(false),
            ),
            unprimed: StreamableHttpService::new(
                move || Ok(once_more()),
                Arc::clone(&manager),
                config().with_legacy_session_mode(true).with_sse_retry(None),
            ),
            lasting: StreamableHttpService::new(
                move || Ok(again()),
                Arc::clone(&manager),
                config().with_legacy_session_mode(true),
            ),
            manager,
            sessions,
            within,
            stopping,
        }
    }

    /// Answers a request of an authenticated caller.
    pub(super) async fn handle(&self, caller: Owner, request: Request) -> Response {
        let alone = self_contained(request.headers());
        if alone && request.method() != Method::POST {
            return self.alone(request).await;
        }
        let named = session(request.headers()).map(str::to_owned);
        if request.method() != Method::POST {
            return match named.map(|id| (self.sessions.standing(&id, caller), id)) {
                Some((SessionState::Open, id)) => self.lasting(&id, request).await,
                Some((SessionState::Unknown | SessionState::Ended, _)) => no_such_session(),
                None => self.lasting.handle(request).await.map(Body::new),
            };
        }
        let (request, method) = match peeked(request).await {
            Ok(peeked) => peeked,
            Err(fault) => return fault.into_response(),
        };
        if alone {
            return self.alone(request).await;
        }
        match named.map(|id| (self.sessions.standing(&id, caller), id)) {
            Some((SessionState::Open, id)) if self.belongs(method.as_deref()) => self.lasting(&id, request).await,
            Some((SessionState::Ended, _)) => no_such_session(),
            // The server was restarted since an unknown session began. Requests that need no session still work.
            Some((SessionState::Open | SessionState::Unknown, _)) => self.alone(request).await,
            None if method.as_deref() == Some("initialize") => self.begin(caller, request).await,
            None => self.alone(request).await,
        }
    }

    /// Returns whether a message with this method is served inside the session.
    fn belongs(&self, method: Option<&str>) -> bool {
        let changes = |method: &str| {
            matches!(method, "initialize" | "resources/subscribe" | "resources/unsubscribe")
                || method.starts_with("notifications/")
        };
        // A message without a method answers a question of the server.
        self.within == Within::Calls || method.is_none_or(changes)
    }

    async fn alone(&self, request: Request) -> Response {
        self.single.handle(request).await.map(Body::new)
    }

    /// Handles `initialize`, which opens a session.
    async fn begin(&self, caller: Owner, request: Request) -> Response {
        let response = self.lasting.handle(request).await.map(Body::new);
        // Only a successful handshake names a session.
        if let Some(id) = response.headers().get(MCP_SESSION_HEADER).and_then(|id| id.to_str().ok())
            && let Some(idle) = self.sessions.open(id, caller)
        {
            self.close(idle).await;
        }
        plain(response).await
    }

    async fn close(&self, id: String) {
        if let Err(error) = self.manager.close_session(&id.into()).await {
            tracing::debug!(%error, "a session that made room did not end well");
        }
    }

    /// Handles a request inside an open session.
    async fn lasting(&self, id: &str, request: Request) -> Response {
        let method = request.method().clone();
        let service = if method == Method::GET && !takes_empty_events(request.headers()) {
            &self.unprimed
        } else {
            &self.lasting
        };
        let response = service.handle(request).await.map(Body::new);
        let over = method == Method::DELETE && response.status().is_success();
        // 404: the session manager has no such session any more, so forget it here too.
        if over || response.status() == StatusCode::NOT_FOUND {
            self.sessions.end(id);
        }
        match (method, self.within) {
            // The session has already ended. With 202 ("accepted"), clients would report a failure.
            _ if over => StatusCode::NO_CONTENT.into_response(),
            (Method::GET, _) if is_stream(&response) => self.watched(id, response),
            (Method::POST, Within::Changes) => plain(response).await,
            _ => response,
        }
    }

    /// Counts the stream that reports to a session, and ends it when the server shuts down.
    fn watched(&self, id: &str, response: Response) -> Response {
        let open = self.sessions.stream(id);
        let mut stopping = self.stopping.clone();
        response.map(|body| {
            let told = body.into_data_stream().map(move |chunk| {
                // Moves the counter into the stream, so that it is dropped with it.
                let _open = &open;
                chunk
            });
            Body::from_stream(told.take_until(async move { ended(&mut stopping).await }))
        })
    }
}

/// The configuration of both forms. Hosts and origins are checked before, as for every other route.
fn config() -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default()
        .with_json_response(true)
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_max_request_body_bytes(REQUEST_BYTES_MAX)
}

/// The part of a message that decides whether it belongs to a session.
#[derive(Deserialize)]
struct Peek<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
}

/// Returns the session that a request names, if its revision has sessions.
pub(super) fn session(headers: &HeaderMap) -> Option<&str> {
    if self_contained(headers) { None } else { headers.get(MCP_SESSION_HEADER)?.to_str().ok() }
}

/// Returns whether a client knows the empty event at the start of a stream, introduced with 2025-11-25. Older clients
/// read it as a message and fail. A client that names no revision counts as the oldest.
fn takes_empty_events(headers: &HeaderMap) -> bool {
    let version = headers.get(VERSION_HEADER).and_then(|version| version.to_str().ok());
    version.is_some_and(|version| version >= ProtocolVersion::V_2025_11_25.as_str())
}

/// Returns whether a request's revision has no sessions.
fn self_contained(headers: &HeaderMap) -> bool {
    let version = headers.get(VERSION_HEADER).and_then(|version| version.to_str().ok());
    // Revisions are dates, so comparing them as texts orders them.
    version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28.as_str())
}

/// Reads a request's body and returns both, with the method that it names.
async fn peeked(request: Request) -> Result<(Request, Option<String>), ApiError> {
    let (parts, body) = request.into_parts();
    let bytes = read(&parts, body).await?;
    let method = method(&bytes);
    let Some(refused) = exact::refused(&bytes) else {
        return Ok((Request::from_parts(parts, Body::from(bytes)), method));
    };
    let mut request = Request::from_parts(parts, Body::from(refused));
    request.headers_mut().remove(CONTENT_LENGTH);
    Ok((request, method))
}

/// Returns the method that a message names.
pub(super) fn method(message: &[u8]) -> Option<String> {
    serde_json::from_slice::<Peek<'_>>(message).ok().map(|peek| peek.method.into_owned())
}

/// Converts a stream with a single answer to that answer as plain JSON, which every client can read.
async fn plain(response: Response) -> Response {
    if !is_stream(&response) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = axum::body::to_bytes(body, ANSWER_BYTES_MAX).await else {
        return ApiError::internal("an answer could not be read").into_response();
    };
    let lines = bytes.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data:"));
    let Some(answer) = lines.map(<[u8]>::trim_ascii).rfind(|data| !data.is_empty()) else {
        return Response::from_parts(parts, Body::from(bytes));
    };
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(parts, Body::from(answer.to_vec()))
}

fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

fn no_such_session() -> Response {
    ApiError::new(Code::UnknownRequest, "Unknown session")
        .hinted("Start a new session with `initialize`.")
        .into_response()
}
