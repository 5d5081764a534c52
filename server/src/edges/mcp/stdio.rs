//! MCP over stdio: the protocol is spoken here, and each call goes to a running server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rmcp::model::{CallToolResult, ErrorData, JsonObject, ResultType};
use rmcp::{ServiceExt as _, transport};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Backend, Tools};
use crate::identity::Secret;

/// A running server, as one agent sees it.
pub struct Remote {
    http: reqwest::Client,
    url: String,
    token: Secret,
    calls: AtomicU64,
}

impl Remote {
    /// The server at `url` (`http://127.0.0.1:7171`), called with an agent's token.
    #[must_use]
    pub fn new(url: &str, token: Secret) -> Self {
        let url = format!("{}/mcp", url.trim_end_matches('/'));
        Self { http: reqwest::Client::new(), url, token, calls: AtomicU64::new(0) }
    }

    /// Calls a tool there.
    pub(super) async fn call(&self, name: &str, arguments: JsonObject) -> Result<CallToolResult, ErrorData> {
        let failed = |error: &dyn std::fmt::Display| {
            ErrorData::internal_error(format!("the Lastword server at {} can't be reached: {error}", self.url), None)
        };
        let id = self.calls.fetch_add(1, Ordering::Relaxed);
        let params = json!({ "name": name, "arguments": arguments });
        let request = self
            .http
            .post(&self.url)
            .bearer_auth(self.token.reveal())
            .header("accept", "application/json, text/event-stream")
            .json(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }));
        let response = request.send().await.map_err(|e| failed(&e))?;
        let status = response.status();
        let mut body: Value = response.json().await.map_err(|e| failed(&e))?;
        if !status.is_success() {
            return Ok(CallToolResult::structured_error(body));
        }
        if let Some(error) = body.get("error") {
            return Err(ErrorData::internal_error(error.to_string(), None));
        }
        let mut result: CallToolResult = serde_json::from_value(body["result"].take()).map_err(|e| failed(&e))?;
        // The server answers us as a client of an older revision; ours may speak the newest, which wants it said.
        result.result_type = Some(ResultType::COMPLETE);
        Ok(result)
    }
}

/// Speaks MCP on stdin and stdout until the client ends it.
///
/// # Errors
/// What broke the conversation, in words.
pub async fn serve_stdio(remote: Remote) -> Result<(), String> {
    let (read, write) = transport::stdio();
    serve_pipe(remote, read, write).await
}

/// The same on any pair of streams.
///
/// # Errors
/// What broke the conversation, in words.
pub async fn serve_pipe<R, W>(remote: Remote, read: R, write: W) -> Result<(), String>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let tools = Tools(Backend::Remote(Arc::new(remote)));
    let running = tools.serve((read, write)).await.map_err(|error| error.to_string())?;
    running.waiting().await.map(|_| ()).map_err(|error| error.to_string())
}
