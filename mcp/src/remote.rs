//! A client of a running server in the name of one agent, for MCP over stdio.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lastword_client::{Backoff, Client, ClientError, McpTerms};
use lastword_server::ApiError;
use lastword_server::edges::http::{REQUEST_BYTES_MAX, too_large};
use rmcp::model::{CallToolResult, ErrorData, JsonObject, ProtocolVersion, ReadResourceResult, ResultType, Tool};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::Offer;
use super::brief::Output;
use super::catalog;
use super::inbox::Listener;
use super::listing::{self, Selection};
use super::permission_prompt;
use super::resources;
use super::trace::Trace;

/// The pause before a broken watch is resumed.
const WATCH_AGAIN: Duration = Duration::from_secs(2);
/// The pause between two looks at the list of tools.
const TOOLS_AGAIN: Duration = Duration::from_secs(30);
/// The time in which a broken call is made again.
const AGAIN_MAX: Duration = Duration::from_secs(10);
/// The first and the longest pause between two tries.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A running server, called in the name of one agent.
pub struct Remote {
    client: Client,
    offer: Offer,
    /// The tools that the client asks for.
    selection: Selection,
    calls: AtomicU64,
}

/// The reply to a request that has no result.
enum Failure {
    /// The server refused the call with a problem.
    Refused(Value),
    /// The server can't be reached, or the connection broke before the answer.
    Unanswered(ErrorData),
    /// The protocol's own error, or a reply that is none.
    Error(ErrorData),
}

/// Whether a call whose connection broke is made again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Yes,
    No,
}

impl Remote {
    /// Creates a client of the server of `client`, with an agent's token.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, offer: Offer::Agent, selection: Selection::default(), calls: AtomicU64::new(0) }
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
        let mut result = self.request("tools/list", json!({}), Repeat::No).await.ok()?;
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
            sleep(TOOLS_AGAIN).await;
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
        let repeat = if catalog::is_repeatable(name) { Repeat::Yes } else { Repeat::No };
        let result = match self.request("tools/call", params, repeat).await {
            Ok(result) => result,
            Err(Failure::Refused(problem)) => return Ok(Output::refusal(problem)),
            // A model reads the denial of a tool call as being about that call.
            Err(Failure::Unanswered(mut error)) if repeat == Repeat::No && name != permission_prompt::TOOL => {
                error.message.to_mut().push_str(". The call may have been carried out: look before you repeat it");
                return Err(error);
            }
            Err(Failure::Unanswered(error) | Failure::Error(error)) => return Err(error),
        };
        let mut result: CallToolResult = serde_json::from_value(result).map_err(|e| self.unreachable(&e))?;
        // The server replies as to a client of an older revision. The local client may speak the newest one, which
        // requires this member.
        result.result_type = Some(ResultType::COMPLETE);
        Ok(result)
    }

    /// Reads a resource from the server.
    pub(super) async fn read(&self, uri: &str) -> Result<ReadResourceResult, ErrorData> {
        let result = match self.request("resources/read", json!({ "uri": uri }), Repeat::Yes).await {
            Ok(result) => result,
            Err(Failure::Refused(problem)) => {
                let detail = problem["detail"].as_str().unwrap_or("refused").to_owned();
                return Err(ErrorData::invalid_params(detail, Some(problem)));
            }
            Err(Failure::Unanswered(error) | Failure::Error(error)) => return Err(error),
        };
        let mut result: ReadResourceResult = serde_json::from_value(result).map_err(|e| self.unreachable(&e))?;
        result.result_type = Some(ResultType::COMPLETE);
        Ok(result)
    }

    async fn request(&self, method: &str, params: Value, repeat: Repeat) -> Result<Value, Failure> {
        let (mut broke, mut backoff) = (None, Backoff::new(PAUSE_MIN, PAUSE_MAX));
        // No handshake: each call is a request on its own, so a restart of the server loses nothing.
        let call = json!({ "jsonrpc": "2.0", "id": self.next_id(), "method": method, "params": params });
        if call.to_string().len() > REQUEST_BYTES_MAX {
            // The server closes the connection in the middle of such a request, and its answer may get lost.
            let refusal = ApiError::from(too_large());
            return Err(Failure::Refused(serde_json::to_value(&refusal.0).unwrap_or_default()));
        }
        let mut body = loop {
            match self.client.mcp(&self.terms(), &call).await {
                Ok(body) => break body,
                Err(ClientError::Unreachable { .. })
                    if repeat == Repeat::Yes && broke.get_or_insert_with(Instant::now).elapsed() < AGAIN_MAX =>
                {
                    sleep(backoff.grow()).await;
                }
                Err(ClientError::Refused(problem)) => {
                    return Err(Failure::Refused(serde_json::to_value(problem).unwrap_or_default()));
                }
                Err(error @ ClientError::Unreachable { .. }) => {
                    return Err(Failure::Unanswered(self.unreachable(&error)));
                }
                Err(error) => return Err(Failure::Error(self.unreachable(&error))),
            }
        };
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
            sleep(WATCH_AGAIN).await;
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
        let params = json!({ "_meta": meta, "notifications": { "resourceSubscriptions": [resources::INBOX] } });
        let call =
            json!({ "jsonrpc": "2.0", "id": self.next_id(), "method": "subscriptions/listen", "params": params });
        let watched = async {
            let mut messages = self.client.mcp_messages(&self.terms(), &call).await?;
            while let Some(message) = messages.next().await? {
                if message["method"] == "notifications/resources/updated" && !listener.tell().await {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        match watched.await {
            Ok(again) => again,
            // The token was replaced or its agent removed, so another attempt would fail too.
            Err(ClientError::Refused(problem)) if problem.status < 500 => false,
            Err(error) => {
                tracing::warn!(%error, "the inbox is not watched");
                true
            }
        }
    }

    fn terms(&self) -> McpTerms {
        let chosen = self.selection != Selection::default();
        McpTerms { tools: chosen.then(|| self.selection.to_string()), as_human: self.offer == Offer::Human }
    }

    fn next_id(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    fn unreachable(&self, error: &dyn std::fmt::Display) -> ErrorData {
        let url = self.client.url();
        ErrorData::internal_error(format!("the Lastword server at {url} can't be reached: {error}"), None)
    }
}
