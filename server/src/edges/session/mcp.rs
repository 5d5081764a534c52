//! MCP in a session: a message goes to MCP's own route, what comes before its answer is pushed, and a cancellation ends the
//! wait of its call.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::{Body, BodyDataStream};
use axum::http::header::{ACCEPT, CONTENT_TYPE, HOST};
use axum::http::{HeaderName, HeaderValue, Request};
use axum::response::Response;
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, ready};
use lastword_proto::Code;
use lastword_proto::wire::session::{AS_HUMAN, SessionCall};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::oneshot;

use super::dispatch::{self, Desk, Prepared, REPLY_BYTES_MAX, Said, Waiting};
use crate::error::ApiError;

const STREAM: &str = "text/event-stream";
const CANCELLED: &str = "notifications/cancelled";

/// A message of MCP, ready to be carried out.
pub(super) struct Carried {
    pub(super) request: Request<Body>,
    /// Its id in JSON-RPC; a notification has none.
    asks: Option<Value>,
    /// The id of the call that it cancels.
    cancels: Option<Value>,
}

/// What the edge has to know of a message: its headers over HTTP repeat this.
#[derive(Deserialize)]
struct Peek<'a> {
    id: Option<Value>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    params: Option<PeekParams>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PeekParams {
    name: Option<String>,
    uri: Option<String>,
    #[serde(rename = "requestId")]
    request_id: Option<Value>,
    #[serde(rename = "_meta")]
    meta: Option<PeekMeta>,
}

#[derive(Deserialize)]
struct PeekMeta {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<String>,
}

/// The calls of MCP that wait. Dropping a sender ends the wait.
#[derive(Default)]
pub(super) struct Running(Vec<(Value, oneshot::Sender<()>)>);

impl Running {
    /// Begins to carry out a call. One of MCP can be cancelled.
    pub(super) fn begin(
        &mut self,
        desk: &Arc<Desk>,
        id: u64,
        prepared: Prepared,
        waiting: Waiting,
    ) -> BoxFuture<'static, Said> {
        let mut asked = None;
        if let Prepared::Mcp(carried) = &prepared {
            self.0.retain(|(_, stop)| !stop.is_closed());
            if let Some(cancelled) = &carried.cancels {
                self.0.retain(|(asked, _)| asked != cancelled);
                return Box::pin(ready(Said::last(dispatch::nothing(id))));
            }
            asked.clone_from(&carried.asks);
        }
        let call = dispatch::call(Arc::clone(desk), id, prepared, waiting);
        let Some(asked) = asked else { return Box::pin(call) };
        let (stop, stopped) = oneshot::channel();
        self.0.push((asked, stop));
        until(stopped, id, Box::pin(call))
    }
}

/// Carries out a call until it is cancelled.
fn until(mut stopped: oneshot::Receiver<()>, id: u64, call: BoxFuture<'static, Said>) -> BoxFuture<'static, Said> {
    Box::pin(async move {
        let said = tokio::select! {
            biased;
            said = call => said,
            _ = &mut stopped => return Said::last(dispatch::nothing(id)),
        };
        Said { more: said.more.map(|more| until(stopped, id, more)), ..said }
    })
}

/// Reads a message from its frame.
pub(super) fn prepare(desk: &Desk, call: &SessionCall<'_>) -> Result<Carried, ApiError> {
    let malformed = |what: &str| ApiError::new(Code::Malformed, what.to_owned());
    let body = call.body.map(|body| body.get()).filter(|body| body.starts_with('{'));
    let body = body.ok_or_else(|| malformed("`body` is missing: it is a message of MCP, a JSON object"))?;
    let peek: Peek<'_> =
        serde_json::from_str(body).map_err(|error| malformed(&format!("the message of MCP: {error}")))?;
    let (method, params) = (peek.method.as_deref().unwrap_or_default(), peek.params.unwrap_or_default());
    if method == "initialize" {
        return Err(malformed("a session needs no handshake of MCP: call without `initialize`"));
    }
    let mut call = call.clone();
    let as_human = call.query.remove(AS_HUMAN);
    let mut request = dispatch::request_at(&format!("/mcp{}", dispatch::query(&call)?), "POST", desk, &call)?;
    let headers = request.headers_mut();
    // The hosts that may be named were checked when the session was opened.
    headers.insert(HOST, HeaderValue::from_static("localhost"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    let version = params.meta.as_ref().and_then(|meta| meta.version.as_deref());
    let meta = version.map(|version| {
        let name = params.name.as_deref().or(params.uri.as_deref());
        [("mcp-protocol-version", Some(version)), ("mcp-method", Some(method)), ("mcp-name", name)]
    });
    let as_human = as_human.as_ref().and_then(Value::as_str);
    for (name, value) in meta.into_iter().flatten().chain([("lastword-as-human", as_human)]) {
        if let Some(value) = value {
            let value = HeaderValue::from_str(value).map_err(|_| malformed(&format!("{name} is no header")))?;
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    let cancels = params.request_id.filter(|_| method == CANCELLED);
    Ok(Carried { request, asks: peek.id, cancels })
}

/// Returns the answer of MCP, or what comes before it.
pub(super) async fn answered(id: u64, response: Response) -> Result<Said, ApiError> {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.starts_with(STREAM) {
        let events = Events { body: response.into_body().into_data_stream(), read: Vec::new() };
        // The call has its place in the broker's queue only until here: a subscription lasts for days.
        return Ok(Said { text: None, permit: None, more: Some(next(id, events)) });
    }
    dispatch::replied(id, response).await.map(Said::last)
}

/// Returns the next message of a stream: a push, or the answer, which ends it.
fn next(id: u64, mut events: Events) -> BoxFuture<'static, Said> {
    Box::pin(async move {
        let Some(message) = events.next().await else { return Said::last(dispatch::nothing(id)) };
        if serde_json::from_str::<Peek<'_>>(&message).is_ok_and(|peek| peek.method.is_none()) {
            return Said::last(dispatch::assembled(id, 200, "body", &message));
        }
        Said {
            text: Some(format!("{{\"mcp\":{id},\"message\":{message}}}")),
            permit: None,
            more: Some(next(id, events)),
        }
    })
}

/// Server-sent events with one line of data each.
struct Events {
    body: BodyDataStream,
    read: Vec<u8>,
}

impl Events {
    /// Returns the next message; `None` if the stream ended, or is no stream of messages.
    async fn next(&mut self) -> Option<String> {
        loop {
            while let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                let data = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii).filter(|data| !data.is_empty());
                if let Some(data) = data {
                    return String::from_utf8(data.to_vec()).ok();
                }
            }
            if self.read.len() > REPLY_BYTES_MAX {
                return None;
            }
            self.read.extend_from_slice(&self.body.next().await?.ok()?);
        }
    }
}
