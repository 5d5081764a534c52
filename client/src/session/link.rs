//! The session of a client: opened with the first call that it can carry, and again after it ended.

use std::sync::atomic::{AtomicU64, Ordering};

use lastword_wire::Call;
use lastword_wire::session::{REQUEST_BYTES_MAX, SessionCall, Watch, WatchEvents};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Request, Response};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use super::{Pushes, Replied, Session, raw};
use crate::endpoint::Endpoint;
use crate::error::ClientError;
use crate::token::Token;

/// The session of a client, if there is one at the moment.
#[derive(Debug, Default)]
pub(crate) struct Link {
    state: Mutex<State>,
    /// How often no session could be opened.
    failures: AtomicU64,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Closed,
    Open(Session),
    /// The server, or a proxy before it, has no sessions.
    Unsupported,
}

impl Link {
    /// Makes a call of HTTP in the session; `None` if it has to be made over HTTP.
    pub(crate) async fn carry(
        &self,
        endpoint: &Endpoint,
        token: Option<&Token>,
        request: &Request,
    ) -> Option<Result<Response, ClientError>> {
        let (call, token) = (Carried::of(endpoint, request)?, token?);
        let session = self.session(endpoint, token).await?;
        match call.over(&session).await {
            // Once more: it was not carried out.
            Err(_) if session.was_answered() => Some(call.over(&self.session(endpoint, token).await?).await),
            answered => Some(answered),
        }
    }

    /// Watches the events after a position, in a session of their own: a reader that is slow with events holds up no call.
    /// `None` if that has to be done over HTTP.
    pub(crate) async fn events(
        &self,
        endpoint: &Endpoint,
        token: Option<&Token>,
        after: Option<u64>,
    ) -> Option<Result<(Session, Pushes, u64), ClientError>> {
        if matches!(*self.state.lock().await, State::Unsupported) {
            return None;
        }
        let (session, pushes) = Session::open(endpoint, token?).await.ok()?;
        let watch = Watch { deliveries: None, events: Some(WatchEvents { after }) };
        Some(session.watch(&watch).await.map(|watching| (session, pushes, watching.position)))
    }

    /// Returns the open session; `None` if there is none to be had.
    async fn session(&self, endpoint: &Endpoint, token: &Token) -> Option<Session> {
        let failures = self.failures.load(Ordering::Acquire);
        let mut state = self.state.lock().await;
        match &*state {
            State::Open(session) if !session.has_ended() => return Some(session.clone()),
            State::Unsupported => return None,
            // Another caller has just tried. All that waited for it would otherwise wait for a connection one by one.
            State::Open(_) | State::Closed if self.failures.load(Ordering::Acquire) != failures => return None,
            State::Open(_) | State::Closed => {}
        }
        match Session::open(endpoint, token).await {
            Ok((session, _pushes)) => {
                *state = State::Open(session.clone());
                Some(session)
            }
            // Over HTTP the call fails with the better error, or works, if the server has no sessions.
            Err(error) => {
                self.failures.fetch_add(1, Ordering::AcqRel);
                *state = if has_no_sessions(&error) { State::Unsupported } else { State::Closed };
                None
            }
        }
    }
}

fn has_no_sessions(error: &ClientError) -> bool {
    match error {
        // A proxy whose server is away for now says so with 502, 503 or 504.
        ClientError::Unexpected { status, .. } => !matches!(status, 502..=504),
        ClientError::Refused(problem) => matches!(problem.status, 400 | 404 | 405 | 426 | 501),
        ClientError::Unreachable { .. } | ClientError::Untrusted { .. } | ClientError::Unusable(_) => false,
    }
}

/// A call of HTTP as a session carries it.
struct Carried {
    call: &'static str,
    path: Option<String>,
    query: Map<String, Value>,
    key: Option<String>,
    turn: Option<String>,
    body: Option<Box<RawValue>>,
}

impl Carried {
    fn of(endpoint: &Endpoint, request: &Request) -> Option<Self> {
        let base = reqwest::Url::parse(endpoint.url()).ok()?;
        let path = request.url().path().strip_prefix(base.path().trim_end_matches('/'))?;
        let (call, open) = Call::find(request.method().as_str(), path.strip_prefix("/v1")?)?;
        let call = call.name?;
        let header = |name: &str| Some(request.headers().get(name)?.to_str().ok()?.to_owned());
        let body = match request.body() {
            None => None,
            Some(body) => {
                let text = std::str::from_utf8(body.as_bytes()?).ok()?;
                let plain = request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes() == b"text/plain");
                Some(if plain { raw(&text).ok()? } else { RawValue::from_string(text.to_owned()).ok()? })
            }
        };
        // Over HTTP the server answers that it is too large; in the session its frame would end the connection.
        if body.as_ref().is_some_and(|body| body.get().len() > REQUEST_BYTES_MAX) {
            return None;
        }
        let query =
            request.url().query_pairs().map(|(name, value)| (name.into(), Value::String(value.into()))).collect();
        Some(Self {
            call,
            path: open.map(decoded),
            query,
            key: header("idempotency-key"),
            turn: header("lastword-turn"),
            body,
        })
    }

    fn call(&self) -> SessionCall<'_> {
        SessionCall {
            id: 0,
            call: self.call.into(),
            path: self.path.as_deref().map(Into::into),
            query: self.query.clone(),
            key: self.key.as_deref().map(Into::into),
            turn: self.turn.as_deref().map(Into::into),
            body: self.body.as_deref(),
        }
    }

    async fn over(&self, session: &Session) -> Result<Response, ClientError> {
        let Replied { status, json } = session.call(self.call()).await?;
        let response = http::Response::builder().status(status).body(json);
        response.map(Response::from).map_err(|error| ClientError::Unusable(error.to_string()))
    }
}

/// Decodes the percent-encoded bytes of a segment.
fn decoded(segment: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(segment.len()), segment.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| byte == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(decoded) => {
                bytes.push(decoded);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::segment;

    #[test]
    fn a_segment_is_decoded_as_it_was_encoded() {
        for text in ["T-1/2", "é ? %41", "..", "100%"] {
            assert_eq!(decoded(&segment(text)), text);
        }
    }
}
