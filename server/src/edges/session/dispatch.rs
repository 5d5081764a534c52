//! The calls of a session: each frame becomes one call, and its result one reply.

use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::HeaderValue;
use futures_util::FutureExt as _;
use lastword_broker::{ClientId, Handle, ReadLane};
use lastword_core::input::Consumer;
use lastword_facts::envelope::nesting_above;
use lastword_facts::ids::{AgentId, TurnId};
use lastword_facts::names::RequestId;
use lastword_facts::{Code, Draft};
use lastword_wire::Call;
use lastword_wire::session::{ACK, Ack, HELLO, Hello, SessionCall, WATCH, Watch};
use lastword_wire::{FieldError, Finish, Progress, Receipt, StoredMessage, text as wire_text};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use super::deliveries::Window;
use crate::calls::messages::{self, Sent};
use crate::calls::{Caller, Context, inbox, turns};
use crate::edges::http::answers::{self, AnswerPermit};
use crate::edges::http::connections::Peer;
use crate::edges::http::query::allowed;
use crate::edges::http::{
    Representation, envelope_draft, keyed, panicked, parse, parse_answer, parse_wait, sent, text_draft,
};
use crate::edges::table::{Incoming, Served};
use crate::error::ApiError;

/// The deepest nesting of a frame: that of a body, within the call.
const NESTING_MAX: u64 = 121;
/// The longest reply that is passed on.
const REPLY_BYTES_MAX: usize = 64 << 20;
/// The initial capacity of a frame's buffer, in bytes. Most frames fit.
const FRAME_CAPACITY: usize = 1 << 10;
/// The characters of a path's segment that stand for themselves.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// Who calls, and what the calls work with.
pub(super) struct Desk {
    pub(super) ctx: Context,
    pub(super) caller: Caller,
    pub(super) authorization: HeaderValue,
    pub(super) peer: Peer,
    pub(super) window: Arc<Window>,
    #[expect(dead_code, reason = "it is held")]
    pub(super) client: SessionClient,
}

/// A session as a client that takes deliveries (F1). It ends with the session.
pub(super) struct SessionClient {
    handle: Handle,
    agent: AgentId,
    /// The id that the client gave itself, or one of the session's own.
    id: HeaderValue,
    /// Whether the client may come back under it.
    named: bool,
}

impl SessionClient {
    /// Counts a session of the client that the request for it names.
    pub(super) fn begin(handle: &Handle, agent: AgentId, given: Option<HeaderValue>) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let named = given.is_some();
        // No client can give itself one with a space.
        let own = || HeaderValue::from_str(&format!("session {}", LAST.fetch_add(1, Ordering::Relaxed)));
        let id = given.or_else(|| own().ok()).unwrap_or_else(|| HeaderValue::from_static("session"));
        let client = Self { handle: handle.clone(), agent, id, named };
        handle.holders().begin(agent, client.client());
        client
    }

    fn text(&self) -> &str {
        self.id.to_str().unwrap_or_default()
    }

    fn client(&self) -> ClientId {
        ClientId::of(self.text())
    }

    /// Returns the session's principal as this client.
    pub(super) fn calls(&self, caller: Caller) -> Caller {
        caller.by(Some(self.text()))
    }
}

impl Drop for SessionClient {
    fn drop(&mut self) {
        self.handle.end_session(self.agent, self.client(), self.named);
    }
}

/// A fault, and the number of the call that it belongs to.
pub(super) type Fault = (u64, ApiError);

/// A call that the session itself carries out.
pub(super) enum Own {
    Watch(Watch),
    Ack(u64),
}

/// Returns the reply to a call that succeeded.
pub(super) fn reply<T: Serialize>(id: u64, status: u16, body: &T) -> String {
    text(&Reply { id, status, body }).unwrap_or_else(|| refused(id, &ApiError::internal("the reply can't be written")))
}

#[derive(Serialize)]
struct Reply<'a, T> {
    id: u64,
    status: u16,
    body: &'a T,
}

/// Returns a frame's text; `None` if the value has no JSON.
pub(super) fn text<T: Serialize>(frame: &T) -> Option<String> {
    let mut json = Vec::with_capacity(FRAME_CAPACITY);
    let written = serde_json::to_writer(&mut json, frame).inspect_err(|error| {
        tracing::error!(%error, "a frame has no JSON");
    });
    written.ok().and_then(|()| String::from_utf8(json).ok())
}

/// Returns the reply to a call that has no result.
pub(super) fn nothing(id: u64) -> String {
    format!("{{\"id\":{id},\"status\":204}}")
}

/// Returns the reply to a call that was refused.
pub(super) fn refused(id: u64, fault: &ApiError) -> String {
    let problem = serde_json::to_string(&fault.0).unwrap_or_default();
    assembled(id, fault.0.status, "problem", &problem)
}

fn assembled(id: u64, status: u16, member: &str, json: &str) -> String {
    let mut text = String::with_capacity(json.len() + 64);
    // Writing to a String never fails.
    let _written = write!(text, "{{\"id\":{id},\"status\":{status},\"{member}\":{json}}}").is_ok();
    text
}

/// Parses a frame. A fault names the call if its number can be read.
pub(super) fn parsed(text: &str) -> Result<SessionCall<'_>, Fault> {
    if nesting_above(text.as_bytes(), NESTING_MAX).is_some() {
        return Err((0, ApiError::new(Code::Malformed, format!("the frame is nested deeper than {NESTING_MAX}"))));
    }
    serde_json::from_str(text).map_err(|error| {
        let id = serde_json::from_str::<Value>(&wire_text::mended(text.as_bytes())).ok();
        let id = id.as_ref().and_then(|frame| frame.get("id")).and_then(Value::as_u64).unwrap_or_default();
        (id, ApiError::new(Code::Malformed, format!("the frame: {error}")))
    })
}

fn body_of<'a, T: serde::Deserialize<'a>>(call: &SessionCall<'a>) -> Result<T, Fault> {
    let text = call.body.map_or("{}", |body| body.get());
    serde_json::from_str(text).map_err(|error| (call.id, ApiError::new(Code::Malformed, format!("the body: {error}"))))
}

/// Returns the token of a first frame; `None` if the frame is another call, or has no token.
pub(super) fn hello(text: &str) -> Result<(u64, Option<Hello>), Fault> {
    let call = parsed(text)?;
    if call.call != HELLO || call.body.is_none() {
        return Ok((call.id, None));
    }
    body_of(&call).map(|hello| (call.id, Some(hello)))
}

/// Returns the header that this token makes.
pub(super) fn authorization(hello: &Hello) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", hello.token)).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns a call that the session itself carries out; `None` for any other.
pub(super) fn own(text: &str) -> Option<Result<(u64, Own), Fault>> {
    // Most frames are calls of the broker, which are parsed once, where they are carried out.
    let mark = |name: &str| text.contains(name);
    if ![WATCH, ACK].into_iter().any(mark) {
        return None;
    }
    let call = parsed(text).ok()?;
    Some(match &*call.call {
        WATCH => body_of(&call).map(|watch| (call.id, Own::Watch(watch))),
        ACK => body_of(&call).map(|Ack { cursor }| (call.id, Own::Ack(cursor))),
        _ => return None,
    })
}

/// The reply to a call.
pub(super) struct Said {
    /// Its frame.
    pub(super) text: String,
    /// The permit of a long one, until it is written.
    pub(super) permit: Option<AnswerPermit>,
}

impl Said {
    pub(super) const fn of(text: String) -> Self {
        Self { text, permit: None }
    }
}

/// A call of the broker, ready to be carried out. It keeps nothing of its frame.
pub(super) enum Prepared {
    Hello,
    Send(Caller, Box<Draft>, SendQuery),
    Next(Caller, Duration),
    Finish(Caller, TurnId, Box<Finish>),
    Progress(Caller, TurnId, Box<Progress>),
    Served(&'static Served, Box<Incoming>),
}

/// Reads a call of the broker from its frame.
pub(super) fn prepare(desk: &Desk, text: &str) -> Result<(u64, Prepared), Fault> {
    let call = parsed(text).inspect_err(|(_, fault)| desk.ctx.handle.metrics().refuse(fault.0.code))?;
    let id = call.id;
    let prepared = match &*call.call {
        HELLO => Ok(Prepared::Hello),
        "send" => send(desk, &call),
        "finish" => finish(desk, &call),
        "progress" => progress(desk, &call),
        "next" => next(desk, &call),
        _ => served(desk, &call),
    };
    prepared.map(|prepared| (id, prepared)).map_err(|fault| (id, fault))
}

/// Carries out a call of the broker, once it has its place. Returns its reply.
pub(super) async fn call(desk: Arc<Desk>, id: u64, prepared: Prepared, waiting: HeldBytes) -> Said {
    let lane = ReadLane::of(desk.caller.principal.is_human());
    lane.scope(carried_out(desk, id, prepared, waiting)).await
}

async fn carried_out(desk: Arc<Desk>, id: u64, prepared: Prepared, waiting: HeldBytes) -> Said {
    let _place = match &desk.ctx.places {
        Some(places) => Some(places.enter().await),
        None => None,
    };
    drop(waiting);
    let ctx = &desk.ctx;
    let result = match prepared {
        Prepared::Hello => Ok(reply(id, 200, &Box::pin(super::welcome(ctx, desk.caller)).await)),
        Prepared::Send(caller, draft, SendQuery { wait, representation: Representation::Whole }) => {
            messages::send(ctx, caller, draft, wait).await.map(|done| sent_reply::<StoredMessage>(&desk, id, done))
        }
        Prepared::Send(caller, draft, SendQuery { wait, representation: Representation::Minimal }) => {
            messages::send(ctx, caller, draft, wait).await.map(|done| sent_reply::<Receipt>(&desk, id, done))
        }
        Prepared::Next(caller, wait) => {
            let taken = Box::pin(inbox::take(ctx, caller, Consumer::InTurns, wait)).await;
            taken.map(|taken| taken.delivery().map_or_else(|| nothing(id), |delivery| reply(id, 200, &delivery)))
        }
        Prepared::Finish(caller, turn, body) => match turns::finish(ctx, caller, Some(turn), body).await {
            Ok(finished) => {
                desk.window.finished(turn);
                Ok(reply(id, 200, &finished))
            }
            Err(fault) => {
                // The turn may have ended otherwise.
                desk.window.nudge();
                Err(fault)
            }
        },
        Prepared::Progress(caller, turn, body) => {
            turns::progress(ctx, caller, Some(turn), *body).await.map(|renewed| reply(id, 200, &renewed))
        }
        Prepared::Served(served, incoming) => {
            let caught = AssertUnwindSafe(carry_out(&desk, id, served, *incoming)).catch_unwind().await;
            let said = caught.unwrap_or_else(|panic| Err(panicked(&*panic)));
            return said.unwrap_or_else(|fault| Said::of(refused(id, &fault)));
        }
    };
    Said::of(result.unwrap_or_else(|fault| refused(id, &fault)))
}

/// Returns the reply to a send.
fn sent_reply<M: Serialize>(desk: &Desk, id: u64, done: Sent<M>) -> String {
    if matches!(done, Sent::Finished(_)) {
        desk.window.nudge();
    }
    sent(done).map_or_else(|| nothing(id), |body| reply(id, 201, &body))
}

/// The bytes of calls that have no place yet. The session reads no further ones while there are many.
#[derive(Clone, Default)]
pub(super) struct WaitingBytes(Arc<AtomicUsize>);

/// The bytes of one such call.
pub(super) struct HeldBytes(WaitingBytes, usize);

impl WaitingBytes {
    pub(super) fn enter(&self, bytes: usize) -> HeldBytes {
        self.0.fetch_add(bytes, Ordering::AcqRel);
        HeldBytes(self.clone(), bytes)
    }

    pub(super) fn sum(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.0.0.fetch_sub(self.1, Ordering::AcqRel);
    }
}

/// Returns the caller of a call, in the turn that it names.
fn caller(desk: &Desk, call: &SessionCall<'_>) -> Result<Caller, ApiError> {
    let caller = match &call.turn {
        Some(turn) => desk.caller.within(&desk.ctx.handle, turn)?,
        None => desk.caller,
    };
    let scope = Call::named(&call.call).and_then(|call| call.scope);
    caller.may(scope).inspect_err(|fault| desk.ctx.handle.metrics().refuse(fault.0.code))?;
    Ok(caller)
}

fn send(desk: &Desk, call: &SessionCall<'_>) -> Result<Prepared, ApiError> {
    let caller = caller(desk, call)?;
    let (draft, query) = drafted(call).inspect_err(|fault| desk.ctx.handle.metrics().refuse(fault.0.code))?;
    Ok(Prepared::Send(caller, Box::new(draft), query))
}

/// The parameters of a send.
pub(super) struct SendQuery {
    wait: Option<Duration>,
    representation: Representation,
}

fn drafted(call: &SessionCall<'_>) -> Result<(Draft, SendQuery), ApiError> {
    let (wait, representation) = parameters(call, &["wait", "return"])?;
    let (wait, representation) = (wait.filter(|wait| !wait.is_zero()), representation.unwrap_or_default());
    let body = call.body.ok_or_else(|| ApiError::new(Code::Malformed, "`body` is missing: it is the message"))?;
    let draft = match body.get().as_bytes().first() {
        Some(b'"') => text_draft(&parse::<String>(body.get().as_bytes())?)?,
        Some(b'[') => {
            let text = "`body` is a list: send each message as a call of its own; those that wait are judged together";
            return Err(ApiError::new(Code::Malformed, text));
        }
        _ => envelope_draft(body.get().as_bytes())?,
    };
    Ok((keyed(draft, key(call)?), SendQuery { wait, representation }))
}

/// Returns the key by which a retry is recognized as the same call (Q1).
fn key(call: &SessionCall<'_>) -> Result<Option<RequestId>, FieldError> {
    let parse = |key| RequestId::new(key).map_err(|error| FieldError::new("key", error));
    call.key.as_deref().map(parse).transpose()
}

/// Returns the parameters `wait` and `return`, for calls that have these `known` ones.
fn parameters(call: &SessionCall<'_>, known: &[&str]) -> Result<(Option<Duration>, Option<Representation>), ApiError> {
    let (mut wait, mut representation) = (None, None);
    for (name, value) in &call.query {
        match (name.as_str(), value) {
            ("wait", Value::String(text)) => wait = Some(parse_wait(text)?),
            ("wait", _) => return Err(FieldError::new("query.wait", "is a text such as 30s, 500ms or 2m").into()),
            // A client with a session works in turns.
            ("turns", Value::String(_)) if known.contains(&"turns") => {}
            ("return", value) if known.contains(&"return") => {
                let problem = |_| FieldError::new("query.return", "is `minimal` or `representation`");
                representation = Some(Representation::deserialize(value).map_err(problem)?);
            }
            (other, _) => {
                let text = format!("unknown query parameter `{other}`; known: {}", known.join(", "));
                return Err(ApiError::new(Code::Malformed, text));
            }
        }
    }
    Ok((wait, representation))
}

fn next(desk: &Desk, call: &SessionCall<'_>) -> Result<Prepared, ApiError> {
    Ok(Prepared::Next(caller(desk, call)?, parameters(call, &["wait", "turns"])?.0.unwrap_or_default()))
}

fn turn_of(call: &SessionCall<'_>) -> Result<TurnId, ApiError> {
    let missing = || ApiError::new(Code::Malformed, "`path` is missing: it is the turn's id");
    let path = call.path.as_deref().ok_or_else(missing)?;
    TurnId::parse(path).ok_or_else(|| ApiError::unknown(path))
}

/// Returns the body of a call whose members may all be left out.
fn optional<'a>(call: &SessionCall<'a>) -> Result<&'a [u8], ApiError> {
    let text = call.body.map_or("{}", |body| body.get());
    if text.starts_with('[') {
        return Err(ApiError::new(Code::Malformed, "the body is a list; send a JSON object"));
    }
    Ok(text.as_bytes())
}

fn finish(desk: &Desk, call: &SessionCall<'_>) -> Result<Prepared, ApiError> {
    Ok(Prepared::Finish(caller(desk, call)?, turn_of(call)?, Box::new(parse_answer(optional(call)?)?)))
}

fn progress(desk: &Desk, call: &SessionCall<'_>) -> Result<Prepared, ApiError> {
    Ok(Prepared::Progress(caller(desk, call)?, turn_of(call)?, Box::new(parse(optional(call)?)?)))
}

/// Reads a call that the table serves.
fn served(desk: &Desk, call: &SessionCall<'_>) -> Result<Prepared, ApiError> {
    let served = Served::named(&call.call).ok_or_else(|| {
        ApiError::new(Code::Malformed, format!("there is no call {:?}; /asyncapi.json lists them", call.call))
    })?;
    let caller = caller(desk, call)?;
    let query = query(call)?;
    allowed(&query, served.call.query)?;
    let incoming = Incoming {
        ctx: desk.ctx.clone(),
        caller,
        authorization: desk.authorization.clone(),
        part: part(served.call.path, call.path.as_deref())?.to_owned(),
        query,
        key: key(call)?,
        body: if served.call.body.is_some() { Bytes::copy_from_slice(optional(call)?) } else { Bytes::new() },
    };
    Ok(Prepared::Served(served, Box::new(incoming)))
}

/// Carries out a call that the table serves. Its reply has a permit if it may be long.
async fn carry_out(desk: &Desk, id: u64, served: &'static Served, incoming: Incoming) -> Result<Said, ApiError> {
    let mut permit = answers::enter(served.call, &incoming.query, &desk.peer).await?;
    let Some(json) = served.carry_out(incoming).await? else { return Ok(Said::of(nothing(id))) };
    if json.len() > REPLY_BYTES_MAX {
        return Err(ApiError::internal("the reply is too long for a session: ask for less at a time"));
    }
    let json = std::str::from_utf8(&json).map_err(|_| ApiError::internal("the reply is no text"))?;
    let text = assembled(id, served.call.status, "body", json);
    if let Some(permit) = &mut permit {
        permit.keep(text.len());
    }
    Ok(Said { text, permit })
}

/// Returns the query of a call, as it is in an address.
fn query(call: &SessionCall<'_>) -> Result<String, ApiError> {
    let mut query = String::new();
    for (at, (name, value)) in call.query.iter().enumerate() {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => {
                return Err(ApiError::new(
                    Code::Malformed,
                    format!("the query parameter `{name}` is no text or number"),
                ));
            }
        };
        let encoded = [name.as_str(), &text].map(|part| utf8_percent_encode(part, SEGMENT).to_string());
        query.push_str(if at == 0 { "" } else { "&" });
        query.push_str(&encoded.join("="));
    }
    Ok(query)
}

/// Returns what a call is about, which its path leaves open; empty if it leaves nothing open.
fn part<'p>(template: &str, part: Option<&'p str>) -> Result<&'p str, ApiError> {
    let open = template.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    match (open, part) {
        (Some(_), Some(part)) if !part.is_empty() => Ok(part),
        (Some((name, _)), _) => {
            Err(ApiError::new(Code::Malformed, format!("`path` is missing: it is the {name} that the call is about")))
        }
        (None, Some(_)) => Err(ApiError::new(Code::Malformed, "`path` is for calls about one thing; this is none")),
        (None, None) => Ok(""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_about_one_thing_says_which() {
        assert_eq!(part("/conversations/{ref}/pause", Some("T/1 é")).unwrap(), "T/1 é");
        assert!(part("/messages/{id}", None).is_err() && part("/agents", Some("x")).is_err());
        assert_eq!(part("/agents", None).unwrap(), "");
    }

    #[test]
    fn a_frame_that_is_none_is_refused_under_its_number() {
        assert_eq!(parsed("{").unwrap_err().0, 0);
        let (id, fault) = parsed(r#"{"id":7,"call":"send","depth":3}"#).unwrap_err();
        assert_eq!(id, 7);
        assert!(fault.0.detail.contains("depth"), "{}", fault.0.detail);
        assert!(parsed(&format!(r#"{{"id":1,"call":"send","body":{}}}"#, "[".repeat(9_000))).is_err());
    }

    #[test]
    fn a_text_that_speaks_of_an_own_call_is_not_one() {
        assert!(own(r#"{"id":1,"call":"send","body":{"body":"hello, watch: ack"}}"#).is_none());
        assert!(matches!(own(r#"{"id":1,"call":"ack","body":{"cursor":3}}"#), Some(Ok((1, Own::Ack(3))))));
        assert!(matches!(own(r#"{"id":2,"call":"watch","body":{"x":3}}"#), Some(Err((2, _)))));
    }
}
