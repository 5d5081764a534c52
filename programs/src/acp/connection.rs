//! JSON-RPC 2.0 with the agent, one message a line, over its standard input and output. What the agent sends is handled in
//! the order in which it sent it: an answer comes after the updates before it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, CLIENT_METHOD_NAMES, CancelNotification, Error, InitializeRequest, InitializeResponse,
    LoadSessionRequest, LoadSessionResponse, NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, SessionId, SessionNotification,
    SetSessionModeRequest, SetSessionModeResponse,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{mpsc, oneshot};

use super::exact;

/// Longest line of the protocol.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// The code of JSON-RPC for an error of no other kind.
const INTERNAL_ERROR: i32 = -32603;

/// A request to the agent, with its answer.
pub(super) trait Request: Serialize {
    type Answer: DeserializeOwned;
    const METHOD: &'static str;
}

macro_rules! calls {
    ($($call:ty => $answer:ty, $method:ident;)*) => {
        $(impl Request for $call {
            type Answer = $answer;
            const METHOD: &'static str = AGENT_METHOD_NAMES.$method;
        })*
    };
}

calls! {
    InitializeRequest => InitializeResponse, initialize;
    NewSessionRequest => NewSessionResponse, session_new;
    LoadSessionRequest => LoadSessionResponse, session_load;
    SetSessionModeRequest => SetSessionModeResponse, session_set_mode;
    PromptRequest => PromptResponse, session_prompt;
}

/// Why a call has no answer.
#[derive(Debug)]
pub(super) enum CallError {
    /// The agent closed its output.
    Closed,
    /// The agent answered with an error, or with what isn't an answer of this call.
    Agent(Error),
}

impl CallError {
    /// Returns the message alone.
    pub(super) fn message(self) -> String {
        match self {
            Self::Closed => "it closed its output".to_owned(),
            Self::Agent(error) => error.message,
        }
    }
}

type Answered = Result<Box<RawValue>, CallError>;

/// The calls that wait for their answers.
#[derive(Default)]
struct OpenCalls {
    last: u64,
    waiting: BTreeMap<u64, oneshot::Sender<Answered>>,
    closed: bool,
}

/// A connection to an agent. Clones share it.
#[derive(Clone)]
pub(super) struct Connection {
    lines: mpsc::UnboundedSender<String>,
    open: Arc<Mutex<OpenCalls>>,
}

/// What an agent asks or says of its own accord.
pub(super) enum Heard {
    Update(SessionNotification),
    Asked(RequestPermissionRequest, Responder),
}

impl Connection {
    /// Returns a connection, and the lines that are to be written to the agent.
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<String>) {
        let (lines, written) = mpsc::unbounded_channel();
        (Self { lines, open: Arc::default() }, written)
    }

    fn open(&self) -> MutexGuard<'_, OpenCalls> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request at once; the future resolves with its answer.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(super) fn call<C: Request>(&self, request: &C) -> impl Future<Output = Result<C::Answer, CallError>> + use<C> {
        let (sender, answer) = oneshot::channel();
        let mut open = self.open();
        if !open.closed {
            open.last += 1;
            let id = open.last;
            open.waiting.insert(id, sender);
            // The writer closes the connection as it ends, which ends this call.
            let _sent = self.lines.send(line(json!({"id": id, "method": C::METHOD, "params": request})));
        }
        drop(open);
        async move {
            let answer = answer.await.unwrap_or(Err(CallError::Closed))?;
            serde_json::from_str(answer.get()).map_err(|error| {
                CallError::Agent(Error::new(
                    INTERNAL_ERROR,
                    format!("its answer to {} can't be read: {error}", C::METHOD),
                ))
            })
        }
    }

    /// Tells the agent to end a session's prompt.
    pub(super) fn cancel(&self, session: SessionId) {
        let method = AGENT_METHOD_NAMES.session_cancel;
        // A connection that is closed has no prompt any more.
        let _sent = self.lines.send(line(json!({"method": method, "params": CancelNotification::new(session)})));
    }

    /// Reads until the agent closes its output.
    pub(super) async fn read(self, stdout: impl AsyncRead + Unpin, mut hear: impl FnMut(Heard)) {
        let mut stdout = BufReader::new(stdout);
        let mut line = Vec::new();
        // A longer line is cut here and then fails to parse, instead of filling the memory.
        while (&mut stdout).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await.is_ok_and(|bytes| bytes > 0) {
            if let Some(heard) = self.receive(&exact::kept(&line)) {
                hear(heard);
            }
            line.clear();
        }
        self.close();
    }

    /// Writes the lines to the agent until it takes no more.
    pub(super) async fn write(self, mut stdin: impl AsyncWrite + Unpin, mut lines: mpsc::UnboundedReceiver<String>) {
        while let Some(line) = lines.recv().await {
            if stdin.write_all(line.as_bytes()).await.is_err() || stdin.flush().await.is_err() {
                break;
            }
        }
        self.close();
    }

    /// Ends each call that waits.
    fn close(&self) {
        let mut open = self.open();
        open.closed = true;
        open.waiting.clear();
    }

    /// Takes one line; what is no message of the protocol is skipped, such as what an agent logs.
    fn receive(&self, line: &str) -> Option<Heard> {
        let message: RpcMessage<'_> = serde_json::from_str(line).ok()?;
        let params = message.params.map_or("null", RawValue::get);
        match (message.method.as_deref(), message.id) {
            (Some(method), None) if method == CLIENT_METHOD_NAMES.session_update => {
                serde_json::from_str(params).ok().map(Heard::Update)
            }
            (Some(method), Some(id)) if method == CLIENT_METHOD_NAMES.session_request_permission => {
                let responder = Responder { id: id.to_owned(), lines: Some(self.lines.clone()) };
                match serde_json::from_str(params) {
                    Ok(request) => Some(Heard::Asked(request, responder)),
                    Err(error) => {
                        responder.refuse(&Error::new(-32602, format!("Invalid params: {error}")));
                        None
                    }
                }
            }
            (Some(_), Some(id)) => {
                let responder = Responder { id: id.to_owned(), lines: Some(self.lines.clone()) };
                responder.refuse(&Error::new(-32601, "Method not found"));
                None
            }
            (None, Some(id)) => {
                let id: u64 = serde_json::from_str(id.get()).ok()?;
                let waiting = self.open().waiting.remove(&id)?;
                let answer = match message.error {
                    Some(error) => Err(CallError::Agent(error_of(error))),
                    // An answer without a member is `null`.
                    None => Ok(message.result.unwrap_or(RawValue::NULL).to_owned()),
                };
                // The caller may have given up.
                let _given_up = waiting.send(answer);
                None
            }
            (_, None) => None,
        }
    }
}

#[derive(Deserialize)]
struct RpcMessage<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Reads an error; one of another shape is its own message, so that its call ends.
fn error_of(error: &RawValue) -> Error {
    serde_json::from_str(error.get()).unwrap_or_else(|_| Error::new(INTERNAL_ERROR, error.get()))
}

fn line(mut message: serde_json::Value) -> String {
    message["jsonrpc"] = json!("2.0");
    format!("{message}\n")
}

/// Answers one request of the agent; dropped, it cancels it, so that the agent never waits for nobody.
pub(super) struct Responder {
    id: Box<RawValue>,
    lines: Option<mpsc::UnboundedSender<String>>,
}

impl Responder {
    pub(super) fn respond(mut self, outcome: RequestPermissionOutcome) {
        self.send("result", &json!(RequestPermissionResponse::new(outcome)));
    }

    fn refuse(mut self, error: &Error) {
        self.send("error", &json!(error));
    }

    fn send(&mut self, member: &str, value: &serde_json::Value) {
        if let Some(lines) = self.lines.take() {
            // A connection that is closed asks for nothing any more.
            let _sent = lines.send(line(json!({"id": self.id, member: value})));
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.send("result", &json!(RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(lines: &mut mpsc::UnboundedReceiver<String>) -> serde_json::Value {
        serde_json::from_str(&lines.try_recv().expect("a line")).unwrap()
    }

    #[tokio::test]
    async fn an_answer_is_that_of_its_call_and_an_error_keeps_its_words() {
        let (connection, mut lines) = Connection::new();
        let prompts = ["a", "b"].map(|id| connection.call(&PromptRequest::new(SessionId::new(id), vec![])));
        let ids = [sent(&mut lines), sent(&mut lines)].map(|line| line["id"].clone());
        let error = json!({"jsonrpc": "2.0", "id": ids[0], "error": {"code": -32000, "message": "log in", "data": 1}});
        let answer = json!({"jsonrpc": "2.0", "id": ids[1], "result": {"stopReason": "end_turn"}});
        for line in [answer, error, json!({"jsonrpc": "2.0", "id": 77, "result": null})] {
            assert!(connection.receive(&line.to_string()).is_none());
        }
        let [first, second] = prompts;
        assert!(matches!(first.await, Err(CallError::Agent(error)) if error.message == "log in"));
        assert!(second.await.is_ok());
    }

    #[tokio::test]
    async fn a_call_ends_when_the_agent_closes_its_output() {
        let (connection, _lines) = Connection::new();
        let open = connection.call(&PromptRequest::new(SessionId::new("a"), vec![]));
        connection.clone().read(&b"no message\n{\"jsonrpc\": \"2.0\"}\n"[..], |_| panic!("nothing was said")).await;
        assert!(matches!(open.await, Err(CallError::Closed)));
        let late = connection.call(&PromptRequest::new(SessionId::new("a"), vec![]));
        assert!(matches!(late.await, Err(CallError::Closed)));
    }

    #[tokio::test]
    async fn a_call_ends_with_an_error_of_any_shape_and_when_the_agent_takes_nothing() {
        let (connection, mut lines) = Connection::new();
        let odd = connection.call(&PromptRequest::new(SessionId::new("a"), vec![]));
        let id = sent(&mut lines)["id"].clone();
        assert!(connection.receive(&json!({"id": id, "error": "out of credit"}).to_string()).is_none());
        assert!(matches!(odd.await, Err(CallError::Agent(error)) if error.message.contains("out of credit")));
        let untaken = connection.call(&PromptRequest::new(SessionId::new("a"), vec![]));
        let (stdin, reader) = tokio::io::duplex(1);
        drop(reader);
        connection.write(stdin, lines).await;
        assert!(matches!(untaken.await, Err(CallError::Closed)));
    }

    #[test]
    fn a_request_of_the_agent_is_answered_whatever_it_is() {
        let (connection, mut lines) = Connection::new();
        let ask = |method: &str, params: serde_json::Value| {
            connection.receive(&json!({"id": "x-1", "method": method, "params": params}).to_string())
        };
        assert!(ask("fs/read_text_file", json!({"path": "/etc/passwd"})).is_none());
        let refused = sent(&mut lines);
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("x-1"), &json!(-32601)));
        assert!(ask("session/request_permission", json!({"options": 7})).is_none());
        assert_eq!(sent(&mut lines)["error"]["code"], -32602);
        let asked = ask(
            "session/request_permission",
            json!({"sessionId": "s", "toolCall": {"toolCallId": "c"}, "options": []}),
        );
        assert!(matches!(asked, Some(Heard::Asked(..))));
        drop(asked);
        assert_eq!(sent(&mut lines)["result"]["outcome"]["outcome"], "cancelled");
        assert!(lines.try_recv().is_err(), "each is answered once");
    }
}
