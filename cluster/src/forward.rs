//! Passes a call on to the node that leads its workspace.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONNECTION, CONTENT_TYPE, HOST, TRANSFER_ENCODING, UPGRADE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use hyper_util::rt::TokioIo;
use lastword_client::ClientError;
use lastword_wire::session::PATH;

use crate::members::{Leader, NodeInfo};
use crate::reach;

/// The header with the nodes' secret, which only nodes send.
pub(crate) const NODE: HeaderName = HeaderName::from_static("lastword-node");
/// The header with the workspace of a call that a node passes on.
pub(crate) const WORKSPACE: HeaderName = HeaderName::from_static("lastword-workspace");
/// The header with the address that the call came from.
pub(crate) const FROM: HeaderName = HeaderName::from_static("lastword-from");
/// The header with the epoch of the leader to whom a node passes a call on.
pub(crate) const EPOCH: HeaderName = HeaderName::from_static("lastword-epoch");
/// The header of a call that a node can't send again.
pub(crate) const ONCE: HeaderName = HeaderName::from_static("lastword-once");
/// The header of the answer to a node whose call was not carried out, because the epoch is over.
pub(crate) const OVER: HeaderName = HeaderName::from_static("lastword-over");
/// The header of the answer to a node: whose token the call had.
pub(crate) const PROOF: HeaderName = HeaderName::from_static("lastword-proof");
/// The type of event streams.
const EVENTS: &[u8] = b"text/event-stream";
/// The headers that are of one connection.
pub(crate) const OF_CONNECTION: [HeaderName; 2] = [CONNECTION, TRANSFER_ENCODING];

fn place(info: &NodeInfo) -> String {
    format!("{} {}", info.url, info.pin.as_deref().unwrap_or_default())
}

/// Why a call was not passed on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotForwarded {
    /// The node wasn't reached: nothing was done.
    #[error("{node} can't be reached: {reason}")]
    Unreached { node: String, reason: String },
    /// The node leads the workspace no longer: nothing was done.
    #[error("{node} has handed the workspace over")]
    Over { node: String },
    /// The connection broke: the call may have been carried out.
    #[error("{node} gave no answer: {reason}")]
    Unanswered { node: String, reason: String },
}

/// The connections to the other nodes.
#[derive(Default)]
pub(crate) struct Forwarder {
    clients: Mutex<HashMap<String, reqwest::Client>>,
    /// The run of the node that has proved itself at each address.
    proved: Mutex<HashMap<String, String>>,
}

impl Forwarder {
    /// Returns the client for a node.
    pub(crate) fn client(&self, info: &NodeInfo) -> Result<reqwest::Client, ClientError> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&place(info)) {
            return Ok(client.clone());
        }
        let client = reach::client(info)?;
        clients.insert(place(info), client.clone());
        Ok(client)
    }

    /// Returns the client for the leader, once it has proved that it is what answers at its address.
    async fn proved(&self, leader: &Leader, secret: &str) -> Result<reqwest::Client, NotForwarded> {
        let unreached = |reason: String| NotForwarded::Unreached { node: leader.node.clone(), reason };
        let info = &leader.info;
        let client = self.client(info).map_err(|error| unreached(error.to_string()))?;
        let known = self.proved.lock().unwrap_or_else(PoisonError::into_inner).get(&place(info)) == Some(&info.session);
        if info.proves && !known {
            reach::check(&client, info, secret).await.map_err(unreached)?;
            self.proved.lock().unwrap_or_else(PoisonError::into_inner).insert(place(info), info.session.clone());
        }
        Ok(client)
    }

    /// Passes a call on, and returns the answer as it comes. Its body isn't kept, so it is sent once.
    pub(crate) async fn forward(
        &self,
        leader: &Leader,
        secret: &str,
        workspace: &str,
        from: Option<IpAddr>,
        request: Request,
    ) -> Result<Response, NotForwarded> {
        let client = self.proved(leader, secret).await?;
        let (parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let session = asks_for_session(&parts.uri, &parts.headers);
        let mut headers = parts.headers;
        OF_CONNECTION.iter().for_each(|name| drop(headers.remove(name)));
        let mut add = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        add(NODE, secret);
        add(WORKSPACE, workspace);
        if let Some(from) = from {
            add(FROM, &from.to_string());
        }
        if session {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        }
        let call = client.request(parts.method, format!("{}{path}", leader.info.url)).headers(headers);
        // A request for a session has no body, and the connection is the session's once it is answered.
        let call = if session { call } else { call.body(reqwest::Body::wrap_stream(body.into_data_stream())) };
        let answer = call.send().await;
        let answer = answer.map_err(|error| {
            let (node, reason) = (leader.node.clone(), error.to_string());
            if error.is_connect() {
                NotForwarded::Unreached { node, reason }
            } else {
                NotForwarded::Unanswered { node, reason }
            }
        })?;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = answer.status();
        *response.headers_mut() = answer.headers().clone();
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            response.extensions_mut().insert(Tunnel(Arc::new(Mutex::new(Some(answer)))));
            return Ok(response);
        }
        OF_CONNECTION.iter().for_each(|name| drop(response.headers_mut().remove(name)));
        *response.body_mut() = Body::from_stream(answer.bytes_stream());
        Ok(response)
    }
}

/// The far end of a session with the leader, in the response that accepts it.
#[derive(Clone)]
pub(crate) struct Tunnel(Arc<Mutex<Option<reqwest::Response>>>);

impl Tunnel {
    /// Copies between a client's connection and the leader's until one of them ends.
    pub(crate) async fn run(self, near: hyper::upgrade::OnUpgrade) {
        let far = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(far) = far else { return };
        let copied = async {
            let mut far = far.upgrade().await.map_err(io::Error::other)?;
            let mut near = TokioIo::new(near.await.map_err(io::Error::other)?);
            tokio::io::copy_bidirectional(&mut near, &mut far).await
        };
        if let Err(error) = copied.await {
            tracing::debug!(%error, "a session that was passed on ended");
        }
    }
}

/// Returns whether a request asks to become a session.
pub(crate) fn asks_for_session(uri: &Uri, headers: &HeaderMap) -> bool {
    uri.path() == PATH && headers.contains_key(UPGRADE)
}

/// Returns whether an answer is an event stream.
pub(crate) fn is_events(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(EVENTS))
}

/// Removes what only nodes may send.
pub(crate) fn strip(headers: &mut HeaderMap) {
    [NODE, WORKSPACE, FROM, EPOCH, ONCE].iter().for_each(|name| drop(headers.remove(name)));
}

/// Returns the host name of a call, without its port.
pub(crate) fn host(headers: &HeaderMap) -> Option<&str> {
    let host = headers.get(HOST)?.to_str().ok()?;
    match host.rfind(':') {
        Some(colon) if !host[colon..].contains(']') => Some(&host[..colon]),
        Some(_) | None => Some(host),
    }
}
