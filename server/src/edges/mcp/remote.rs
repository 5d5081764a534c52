//! A client of a running server in the name of one agent, for MCP over stdio.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use rmcp::model::{CallToolResult, ErrorData, JsonObject, ProtocolVersion, ReadResourceResult, ResultType, Tool};
use serde_json::{Value, json};

use super::Offer;
use super::brief::Output;
use super::human::AS_HUMAN;
use super::inbox::Listener;
use super::listing::{self, Selection};
use super::resources;
use super::trace::Trace;
use crate::identity::Secret;

/// The pause before a broken watch is resumed.
const WATCH_AGAIN: Duration = Duration::from_secs(2);
/// The pause between two looks at the list of tools.
const TOOLS_AGAIN: Duration = Duration::from_secs(30);
/// The longest event of a watch, in bytes; the server's events have a few hundred.
const EVENT_BYTES_MAX: usize = 64 * 1024;

/// A running server, called in the name of one agent.
pub struct Remote {
    http: reqwest::Client,
    url: String,
    token: Secret,
    offer: Offer,
    /// The tools that the client asks for.
    selection: Selection,
    calls: AtomicU64,
}

/// The reply to a request that has no result.
enum Failure {
    /// The server refused the call with a problem.
    Refused(Value),
    /// The protocol's own error, or one of the connection.
    Error(ErrorData),
}

impl Remote {
    /// Creates a client of the server at `url` (`http://127.0.0.1:7171`), with an agent's token. `http` verifies the
    /// server's certificate.
    #[must_use]
    pub fn new(http: reqwest::Client, url: &str, token: Secret) -> Self {
        let url = format!("{}/mcp", url.trim_end_matches('/'));
        Self { http, url, token, offer: Offer::Agent, selection: Selection::default(), calls: AtomicU64::new(0) }
    }

    /// Calls the server with a human's token, which a person chose by name; only tools that read and decide remain.
    #[must_use]
    pub fn as_human(self) -> Self {
        Self { offer: Offer::Human, ..self }
    }

    /// Lists these tools instead of the core.
    #[must_use]
    pub fn with_tools(self, selection: Selection) -> Self {
        Self { selection, ..self }
    }

    /// Lists the tools.
    pub(super) async fn tools(&self) -> Vec<Tool> {
        // A server that is away for a moment must not leave a session without tools.
        self.known_tools().await.unwrap_or_else(|| listing::offline(self.offer, &self.selection))
    }

    /// Asks the server for the tools; `None` if it can't be reached or refuses.
    async fn known_tools(&self) -> Option<Vec<Tool>> {
        let mut result = self.request("tools/list", json!({})).await.ok()?;
        serde_json::from_value(result["tools"].take()).ok()
    }

    /// Reports changes of the list to a listener, until the listener is gone.
    pub(super) async fn watch_tools(&self, listener: &Listener) {
        if !self.selection.can_change() {
            return std::future::pending().await;
        }
        let mut known = None;
        loop {
            // A server that can't be reached changes nothing.
            if let Some(now) = self.known_tools().await {
                let now: Vec<String> = now.into_iter().map(|tool| tool.name.into_owned()).collect();
                if known.as_ref().is_some_and(|known| *known != now) && !listener.tell_tools().await {
                    return;
                }
                known = Some(now);
            }
            tokio::time::sleep(TOOLS_AGAIN).await;
        }
    }

    pub(super) const fn offer(&self) -> Offer {
        self.offer
    }

    /// Calls a tool on the server.
    pub(super) async fn call(
        &self,
        name: &str,
        arguments: JsonObject,
        trace: &Trace,
    ) -> Result<CallToolResult, ErrorData> {
        let params = json!({ "name": name, "arguments": arguments, "_meta": trace.members() });
        let result = match self.request("tools/call", params).await {
            Ok(result) => result,
            Err(Failure::Refused(problem)) => return Ok(Output::refusal(problem)),
            Err(Failure::Error(error)) => return Err(error),
        };
        let mut result: CallToolResult = serde_json::from_value(result).map_err(|e| self.unreachable(&e))?;
        // The server replies as to a client of an older revision. The local client may speak the newest one, which
        // requires this member.
        result.result_type = Some(ResultType::COMPLETE);
        Ok(result)
    }

    /// Reads a resource from the server.
    pub(super) async fn read(&self, uri: &str) -> Result<ReadResourceResult, ErrorData> {
        let result = match self.request("resources/read", json!({ "uri": uri })).await {
            Ok(result) => result,
            Err(Failure::Refused(problem)) => {
                let detail = problem["detail"].as_str().unwrap_or("refused").to_owned();
                return Err(ErrorData::invalid_params(detail, Some(problem)));
            }
            Err(Failure::Error(error)) => return Err(error),
        };
        let mut result: ReadResourceResult = serde_json::from_value(result).map_err(|e| self.unreachable(&e))?;
        result.result_type = Some(ResultType::COMPLETE);
        Ok(result)
    }

    async fn request(&self, method: &str, params: Value) -> Result<Value, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::Error(self.unreachable(error));
        let id = self.calls.fetch_add(1, Ordering::Relaxed);
        // No handshake: each call is a request on its own, so a restart of the server loses nothing.
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let response = self.post().json(&call).send().await.map_err(|e| failed(&e))?;
        let status = response.status();
        let mut body: Value = response.json().await.map_err(|e| failed(&e))?;
        if !status.is_success() {
            return Err(Failure::Refused(body));
        }
        if let Some(error) = body.get_mut("error") {
            let error = error.take();
            let told = ErrorData::internal_error(error.to_string(), None);
            return Err(Failure::Error(serde_json::from_value(error).unwrap_or(told)));
        }
        Ok(body["result"].take())
    }

    /// Reports each new entry of the inbox to a listener, until the listener is gone.
    pub(super) async fn watch(&self, listener: &Listener) {
        while self.watch_once(listener).await {
            tokio::time::sleep(WATCH_AGAIN).await;
        }
    }

    /// Runs one connection of a watch; `false` if no further one makes sense.
    async fn watch_once(&self, listener: &Listener) -> bool {
        // In this revision a subscription is one long request and needs no session.
        let version = ProtocolVersion::V_2026_07_28;
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientInfo": { "name": "lastword", "version": env!("CARGO_PKG_VERSION") },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let method = "subscriptions/listen";
        let params = json!({ "_meta": meta, "notifications": { "resourceSubscriptions": [resources::INBOX] } });
        let id = self.calls.fetch_add(1, Ordering::Relaxed);
        let request = self
            .post()
            .header("mcp-protocol-version", version.as_str())
            .header("mcp-method", method)
            .json(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        let response = match request.send().await.and_then(reqwest::Response::error_for_status) {
            Ok(response) => response,
            // The token was replaced or its agent removed, so another attempt would fail too.
            Err(error) if error.status().is_some_and(|status| status.is_client_error()) => return false,
            Err(error) => {
                tracing::warn!(%error, "the inbox is not watched");
                return true;
            }
        };
        let mut events = response.bytes_stream();
        let mut line = Vec::new();
        while let Some(Ok(bytes)) = events.next().await {
            for byte in bytes {
                if byte != b'\n' {
                    line.push(byte);
                } else if updated(&line) && !listener.tell().await {
                    return false;
                } else {
                    line.clear();
                }
            }
            // Not one of our events; a new connection starts clean.
            if line.len() > EVENT_BYTES_MAX {
                return true;
            }
        }
        true
    }

    fn post(&self) -> reqwest::RequestBuilder {
        let accept = "application/json, text/event-stream";
        let url = match &self.selection {
            chosen if *chosen != Selection::default() => format!("{}?tools={chosen}", self.url),
            _ => self.url.clone(),
        };
        let request = self.http.post(url).bearer_auth(self.token.reveal()).header("accept", accept);
        match self.offer {
            Offer::Agent => request,
            Offer::Human => request.header(AS_HUMAN, "yes"),
        }
    }

    fn unreachable(&self, error: &dyn std::fmt::Display) -> ErrorData {
        ErrorData::internal_error(format!("the Lastword server at {} can't be reached: {error}", self.url), None)
    }
}

/// Returns whether a line of the stream reports a change.
fn updated(line: &[u8]) -> bool {
    let data = line.strip_prefix(b"data:").and_then(|data| serde_json::from_slice::<Value>(data).ok());
    data.is_some_and(|message| message["method"] == "notifications/resources/updated")
}
