//! Clients of the surfaces of a running server, for tests that use all of them alike.

use std::sync::atomic::{AtomicU64, Ordering};

use lastword_client::{ClientError, Endpoint, Session, Token};
use lastword_wire::session::SessionCall;
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, Lines, ReadHalf, WriteHalf,
};
use tokio::sync::Mutex;

use crate::rogue::{Call, Edge, Refused, Turn};

/// Returns a client for `http://`.
///
/// # Panics
/// The client can't be built.
#[must_use]
#[expect(clippy::expect_used, reason = "this crate is for tests alone")]
pub fn http() -> Client {
    lastword_client::plain_http().expect("a client without settings is built")
}

/// A client of the HTTP surface.
pub struct Http {
    http: Client,
    url: String,
    token: String,
}

impl Http {
    /// Returns a client of the server at `url`, with the token of one agent.
    #[must_use]
    pub fn new(url: &str, token: &str) -> Self {
        Self { http: http(), url: url.to_owned(), token: token.to_owned() }
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        turn: Option<&Turn>,
        body: Option<Value>,
    ) -> Result<Value, Refused> {
        let mut request = self.http.request(method, format!("{}/v1{path}", self.url)).bearer_auth(&self.token);
        if let Some(turn) = turn {
            request = request.header("lastword-turn", &turn.token);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.map_err(|error| Refused::Untyped(error.to_string()))?;
        let status = response.status();
        let body = value(response).await;
        if status.is_success() { Ok(body) } else { Err(typed(status, &body)) }
    }
}

/// A client of A2A where that has the call: an agent sends by it. The rest of its work is done over HTTP.
pub struct A2a {
    http: Http,
    next: AtomicU64,
}

impl A2a {
    /// Returns a client of the server at `url`, with the token of one agent.
    #[must_use]
    pub fn new(url: &str, token: &str) -> Self {
        Self { http: Http::new(url, token), next: AtomicU64::new(1) }
    }
}

impl Edge for A2a {
    async fn call(&self, call: Call) -> Result<Value, Refused> {
        let Call::Send { to, body, reference: _, turn } = call else { return self.http.call(call).await };
        let id = format!("message-{}", self.next.fetch_add(1, Ordering::Relaxed));
        let message = json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": body }] });
        let params = json!({ "message": message, "configuration": { "returnImmediately": true } });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params });
        let Http { http, url, token } = &self.http;
        let mut request = http.post(format!("{url}/a2a/{to}/")).bearer_auth(token).header("a2a-version", "1.0");
        if let Some(turn) = turn {
            request = request.header("lastword-turn", turn.token);
        }
        let response = request.json(&body).send().await.map_err(|error| Refused::Untyped(error.to_string()))?;
        let mut answer = value(response).await;
        let error = answer["error"].take();
        if error.is_null() {
            let task = answer["result"]["task"].take();
            return Ok(json!({ "request_id": task["id"], "ref": task["contextId"] }));
        }
        let info = &error["data"][0];
        let code = info["reason"].as_str().unwrap_or_default().to_lowercase();
        Err(Refused::of(&json!({ "code": code, "hint": info["metadata"]["hint"] })))
    }
}

async fn value(response: Response) -> Value {
    let text = response.text().await.unwrap_or_default();
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

/// Returns the refusal of a response. An error that the server reports as its own fault doesn't count as one.
fn typed(status: StatusCode, body: &Value) -> Refused {
    let own_fault = status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE;
    if own_fault { Refused::Untyped(format!("{status}: {body}")) } else { Refused::of(body) }
}

/// Encodes any text as one segment of a path.
fn segment(text: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.bytes().map(|b| if keep(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

impl Edge for Http {
    async fn call(&self, call: Call) -> Result<Value, Refused> {
        let post = Method::POST;
        match call {
            Call::Send { to, body, reference, turn } => {
                let envelope = json!({ "type": "request", "to": to, "body": body, "ref": reference });
                self.ask(post, "/messages", turn.as_ref(), Some(envelope)).await
            }
            Call::Next => self.ask(Method::GET, "/inbox", None, None).await,
            Call::Finish { turn, answer } => {
                let path = format!("/turns/{}/finish", segment(&turn.id));
                self.ask(post, &path, None, Some(json!({ "answer": answer }))).await
            }
            Call::Progress { turn, note } => {
                let path = format!("/turns/{}/progress", segment(&turn.id));
                self.ask(post, &path, None, Some(json!({ "note": note }))).await
            }
            Call::Hold { tool, arguments } => {
                self.ask(post, "/approvals", None, Some(json!({ "tool": tool, "arguments": arguments }))).await
            }
            Call::Approve { approval, digest } => {
                let decision = json!({ "decision": "approve", "digest": digest });
                self.ask(post, &format!("/approvals/{approval}/decision"), None, Some(decision)).await
            }
            Call::Request { id } => self.ask(Method::GET, &format!("/requests/{}", segment(&id)), None, None).await,
            Call::Conversation { reference } => {
                self.ask(Method::GET, &format!("/conversations/{}", segment(&reference)), None, None).await
            }
        }
    }
}

/// A client of the session surface.
pub struct InSession(Session);

impl InSession {
    /// Opens a session on the server at `url`, with the token of one agent.
    ///
    /// # Errors
    /// The server opens none.
    pub async fn open(url: &str, token: &str) -> Result<Self, ClientError> {
        Ok(Self(Session::open(&Endpoint::new(url), &Token::new(token)?).await?.0))
    }
}

impl Edge for InSession {
    async fn call(&self, call: Call) -> Result<Value, Refused> {
        let (name, path, turn, body) = match call {
            Call::Send { to, body, reference, turn } => {
                let envelope = json!({ "type": "request", "to": to, "body": body, "ref": reference });
                ("send", None, turn.map(|turn| turn.token), Some(envelope))
            }
            Call::Next => ("next", None, None, None),
            Call::Finish { turn, answer } => ("finish", Some(turn.id), None, Some(json!({ "answer": answer }))),
            Call::Progress { turn, note } => ("progress", Some(turn.id), None, Some(json!({ "note": note }))),
            Call::Hold { tool, arguments } => {
                ("request_approval", None, None, Some(json!({ "tool": tool, "arguments": arguments })))
            }
            Call::Approve { approval, digest } => {
                ("approve", Some(approval), None, Some(json!({ "decision": "approve", "digest": digest })))
            }
            Call::Request { id } => ("request", Some(id), None, None),
            Call::Conversation { reference } => ("conversation", Some(reference), None, None),
        };
        let untyped = |error: &dyn std::fmt::Display| Refused::Untyped(error.to_string());
        let body = body.as_ref().map(to_raw_value).transpose().map_err(|error| untyped(&error))?;
        let (path, turn) = (path.map(Into::into), turn.map(Into::into));
        let call = SessionCall { call: name.into(), path, turn, body: body.as_deref(), ..SessionCall::default() };
        let replied = self.0.call(call).await.map_err(|error| untyped(&error))?;
        let status = StatusCode::from_u16(replied.status).map_err(|error| untyped(&error))?;
        let body = serde_json::from_str(&replied.json).unwrap_or(Value::String(replied.json));
        if status.is_success() { Ok(body) } else { Err(typed(status, &body)) }
    }
}

/// Returns the tool's name and arguments for a call.
fn tool(call: Call) -> (&'static str, Value) {
    match call {
        Call::Send { to, body, reference, turn } => {
            let turn = turn.map(|turn| turn.token);
            let arguments = json!({ "target_agent_id": to, "message": body, "ref": reference, "turn": turn });
            ("send_agent_message", arguments)
        }
        Call::Next => ("next_message", json!({ "wait_ms": 0 })),
        Call::Finish { turn, answer } => ("finish_turn", json!({ "turn": turn.token, "answer": answer })),
        Call::Progress { turn, note } => ("report_progress", json!({ "turn": turn.token, "note": note })),
        Call::Hold { tool, arguments } => ("request_approval", json!({ "tool_name": tool, "input": arguments })),
        Call::Approve { approval, digest } => {
            let arguments = json!({ "approval_id": approval, "decision": "approve", "digest": digest });
            ("resolve_agent_approval", arguments)
        }
        Call::Request { id } => ("check_request", json!({ "request_id": id })),
        Call::Conversation { reference } => ("get_conversation", json!({ "ref": reference })),
    }
}

fn called(id: u64, call: Call) -> Value {
    let (name, mut arguments) = tool(call);
    if let Some(members) = arguments.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    let params = json!({ "name": name, "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

fn answered(answer: &Value) -> Result<Value, Refused> {
    let result = &answer["result"];
    match (result["isError"].as_bool(), result.is_object()) {
        (Some(true), _) => Err(Refused::of(&result["structuredContent"])),
        (_, true) => Ok(whole(result)),
        (_, false) => Err(Refused::Untyped(answer.to_string())),
    }
}

/// Returns what a tool returned. The ids of a delivery are in `_meta`, because a model has no use for them.
fn whole(result: &Value) -> Value {
    let mut content = result["structuredContent"].clone();
    let ids = &result["_meta"]["lastword/delivery"];
    if ids.is_object() {
        content["turn"] = ids["turn"].clone();
    }
    content
}

/// A client of the MCP surface over HTTP.
pub struct Mcp {
    http: Client,
    url: String,
    token: String,
}

impl Mcp {
    /// Returns a client of the server at `url`, with the token of one agent.
    #[must_use]
    pub fn new(url: &str, token: &str) -> Self {
        Self { http: http(), url: format!("{url}/mcp"), token: token.to_owned() }
    }
}

impl Edge for Mcp {
    async fn call(&self, call: Call) -> Result<Value, Refused> {
        let request = self.http.post(&self.url).bearer_auth(&self.token).json(&called(1, call));
        let request = request.header("accept", "application/json, text/event-stream");
        let response = request.send().await.map_err(|error| Refused::Untyped(error.to_string()))?;
        let status = response.status();
        let body = value(response).await;
        if status.is_success() { answered(&body) } else { Err(typed(status, &body)) }
    }
}

/// A client of the MCP surface on a pipe.
pub struct Pipe<S> {
    stream: Mutex<Ends<S>>,
    calls: AtomicU64,
}

struct Ends<S> {
    lines: Lines<BufReader<ReadHalf<S>>>,
    write: WriteHalf<S>,
}

impl<S: AsyncRead + AsyncWrite + Send> Pipe<S> {
    /// Does the MCP handshake on `stream`.
    ///
    /// # Errors
    /// Returns an error if the pipe breaks, or if the reply is not a handshake.
    pub async fn open(stream: S) -> Result<Self, Refused> {
        let (read, write) = tokio::io::split(stream);
        let pipe =
            Self { stream: Mutex::new(Ends { lines: BufReader::new(read).lines(), write }), calls: AtomicU64::new(1) };
        let client = json!({ "name": "sim", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello });
        pipe.say(&hello).await?;
        pipe.hear(0).await?;
        pipe.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
        Ok(pipe)
    }

    async fn say(&self, message: &Value) -> Result<(), Refused> {
        let mut stream = self.stream.lock().await;
        let line = format!("{message}\n");
        stream.write.write_all(line.as_bytes()).await.map_err(|error| Refused::Untyped(error.to_string()))
    }

    /// Returns the answer to a call; ignores every other message.
    async fn hear(&self, id: u64) -> Result<Value, Refused> {
        let mut stream = self.stream.lock().await;
        loop {
            let line = stream.lines.next_line().await.map_err(|error| Refused::Untyped(error.to_string()))?;
            let line = line.ok_or_else(|| Refused::Untyped("the pipe was closed".into()))?;
            let message: Value = serde_json::from_str(&line).map_err(|error| Refused::Untyped(error.to_string()))?;
            if message["id"] == id {
                return Ok(message);
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Send> Edge for Pipe<S> {
    async fn call(&self, call: Call) -> Result<Value, Refused> {
        let id = self.calls.fetch_add(1, Ordering::Relaxed);
        self.say(&called(id, call)).await?;
        answered(&self.hear(id).await?)
    }
}
