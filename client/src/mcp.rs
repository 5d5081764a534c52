//! MCP's messages to a running server, over HTTP at `/mcp`.

use futures_util::StreamExt as _;
use reqwest::header::ACCEPT;
use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use crate::error::ClientError;
use crate::events::{Bytes, EVENT_BYTES_MAX, Parser};
use crate::http::Client;

const PATH: &str = "/mcp";
/// The header with which a person lets a model read and decide with a human's token.
const AS_HUMAN_HEADER: &str = "lastword-as-human";
/// The member of `_meta` that names the revision of a message, and the headers that repeat it and the method.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const VERSION_HEADER: &str = "mcp-protocol-version";
const METHOD_HEADER: &str = "mcp-method";

/// What a client of MCP asks for.
#[derive(Clone, Debug, Default)]
pub struct McpTerms {
    /// The tools to list, as in `/mcp?tools=`; `None` for the core.
    pub tools: Option<String>,
    /// Whether a person chose a human's token by name.
    pub as_human: bool,
}

/// The messages of the server before its answer. Dropping them cancels the call.
pub struct McpMessages {
    client: Client,
    bytes: Bytes,
    parser: Parser,
}

impl Client {
    /// Sends a request of MCP. Returns the answer, in JSON-RPC.
    ///
    /// # Errors
    /// The server refuses or does not answer.
    pub async fn mcp(&self, terms: &McpTerms, message: &Value) -> Result<Value, ClientError> {
        self.json(self.mcp_request(terms, message)).await
    }

    /// Sends a request of MCP and reads what comes before its answer.
    ///
    /// # Errors
    /// The server refuses or does not answer.
    pub async fn mcp_messages(&self, terms: &McpTerms, message: &Value) -> Result<McpMessages, ClientError> {
        let response = self.answer(self.mcp_request(terms, message)).await?;
        let bytes = response.bytes_stream().map(|chunk| chunk.map(|bytes| bytes.to_vec()));
        Ok(McpMessages { client: self.clone(), bytes: Box::pin(bytes), parser: Parser::default() })
    }

    fn mcp_request(&self, terms: &McpTerms, message: &Value) -> RequestBuilder {
        let mut request = self.request(Method::POST, PATH).header(ACCEPT, "application/json, text/event-stream");
        if let Some(tools) = &terms.tools {
            request = request.query(&[("tools", tools)]);
        }
        if terms.as_human {
            request = request.header(AS_HUMAN_HEADER, "yes");
        }
        if let (Some(version), Some(method)) =
            (message["params"]["_meta"][VERSION].as_str(), message["method"].as_str())
        {
            request = request.header(VERSION_HEADER, version).header(METHOD_HEADER, method);
        }
        request.json(message)
    }
}

impl McpMessages {
    /// Returns the next message, in JSON-RPC; `None` once the server ended the call.
    ///
    /// # Errors
    /// The connection broke, or the server refuses the call or sent something that isn't a message.
    pub async fn next(&mut self) -> Result<Option<Value>, ClientError> {
        let text = loop {
            if let Some(data) = self.parser.event() {
                break Some(data);
            }
            match self.bytes.next().await {
                None => break None,
                Some(Err(error)) => return Err(self.client.unreachable(&error)),
                Some(Ok(chunk)) if self.parser.push(&chunk) => {}
                Some(Ok(_)) => return Err(self.unexpected(&format!("more than {EVENT_BYTES_MAX} bytes"))),
            }
        };
        text.map(|text| serde_json::from_str(&text).map_err(|error| self.unexpected(&error.to_string()))).transpose()
    }

    fn unexpected(&self, detail: &str) -> ClientError {
        let detail = format!("a message of MCP that is none: {detail}");
        ClientError::Unexpected { url: self.client.url().to_owned(), status: 200, detail }
    }
}
