//! Passes a call on through NATS, where this node doesn't reach the leader at its address.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use lastword_facts::Code;
use lastword_server::{ApiError, Certificate};
use lastword_store::{AskError, Listener, NatsError, Question, Sealing};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::forward::{EPOCH, NotForwarded, OF_CONNECTION, OVER, asks_for_session, is_events};
use crate::members::{Leader, NodeInfo};
use crate::{RETRY_MS, Shared};

/// The longest wait for an answer. Somewhat longer than most polls wait.
const ANSWER_MAX: Duration = Duration::from_secs(35);
/// The calls that a node carries out at a time for nodes that don't reach it.
const CALLS_MAX: usize = 256;
/// Those of humans that it carries out beyond these.
const HUMANS_MAX: usize = 64;
/// The pause before a node listens anew.
const AGAIN: Duration = Duration::from_secs(1);

type Headers = Vec<(String, Vec<u8>)>;

/// A call as it is sent.
#[derive(Serialize, Deserialize)]
struct PassedCall {
    workspace: String,
    from: Option<IpAddr>,
    method: String,
    path: String,
    headers: Headers,
    body: Vec<u8>,
}

/// Its answer.
#[derive(Serialize, Deserialize)]
struct PassedAnswer {
    status: u16,
    headers: Headers,
    body: Vec<u8>,
}

/// How a call gets to a leader.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    shared: &'a Shared,
    leader: &'a Leader,
    /// Whether it goes through NATS.
    pub(crate) detour: bool,
}

impl<'a> Way<'a> {
    /// Returns the way that is open now.
    pub(crate) fn to(shared: &'a Shared, leader: &'a Leader) -> Self {
        Self { shared, leader, detour: shared.misses(&leader.node) > 0 }
    }

    /// Passes a call on.
    pub(crate) async fn forward(
        self,
        workspace: &str,
        from: Option<IpAddr>,
        mut request: Request,
    ) -> Result<Response, NotForwarded> {
        let Self { shared, leader, detour } = self;
        request.headers_mut().insert(EPOCH, HeaderValue::from(leader.epoch));
        let answered = if detour {
            forward(shared, leader, workspace, from, request).await?
        } else {
            shared.forwarder.forward(leader, &shared.secret, workspace, from, request).await?
        };
        if answered.headers().contains_key(OVER) {
            return Err(NotForwarded::Over { node: leader.node.clone() });
        }
        Ok(answered)
    }

    /// Waits until no answer is expected any more, because the leader isn't reached: for one attempt more if the call can't be
    /// repeated.
    pub(crate) async fn is_lost(self, repeats: bool) {
        if self.detour {
            return std::future::pending().await;
        }
        self.shared.missed(&self.leader.node, if repeats { 1 } else { 2 }).await;
    }
}

/// Returns the subject on which a node listens for calls.
pub(crate) fn subject(node: &str) -> String {
    format!("lastword.{node}.call")
}

fn written(headers: &HeaderMap) -> Headers {
    let kept = headers.iter().filter(|(name, _)| !OF_CONNECTION.contains(name));
    kept.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect()
}

fn read(headers: Headers) -> HeaderMap {
    let parse = |(name, value): (String, Vec<u8>)| {
        Some((name.parse::<HeaderName>().ok()?, HeaderValue::from_bytes(&value).ok()?))
    };
    headers.into_iter().filter_map(parse).collect()
}

fn refusal(text: &str) -> Response {
    let mut fault = ApiError::new(Code::Saturated, text);
    fault.0.retry_after_ms = Some(RETRY_MS);
    fault.into_response()
}

/// What a call gets that was made, or may have been, and whose answer can't be passed on.
fn unknown(text: &str) -> Response {
    let mut fault = ApiError::new(Code::Saturated, text);
    fault.0.status = StatusCode::BAD_GATEWAY.as_u16();
    fault.0.retry_after_ms = Some(RETRY_MS);
    fault.into_response()
}

/// Passes a call on through NATS, and returns the answer once all of it is there.
async fn forward(
    shared: &Shared,
    leader: &Leader,
    workspace: &str,
    from: Option<IpAddr>,
    request: Request,
) -> Result<Response, NotForwarded> {
    let unreached = |reason: &str| NotForwarded::Unreached { node: leader.node.clone(), reason: reason.to_owned() };
    let Some(sealing) = &shared.calls_sealing else { return Err(unreached("the nodes' secret is too short")) };
    if asks_for_session(request.uri(), request.headers()) {
        return Err(unreached("a session needs a connection to it"));
    }
    let (parts, body) = request.into_parts();
    let longest = shared.nats.question_bytes_max();
    let Ok(body) = to_bytes(body, longest).await else {
        return Ok(refusal(
            "This node reaches the workspace's leader through NATS alone, and the call is too long for that",
        ));
    };
    let call = PassedCall {
        workspace: workspace.to_owned(),
        from,
        method: parts.method.to_string(),
        path: parts.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        headers: written(&parts.headers),
        body: body.to_vec(),
    };
    let call = postcard::to_allocvec(&call).map_err(|error| unreached(&error.to_string()))?;
    let listener = Listener { subject: &subject(&leader.node), label: &leader.info.session };
    let answered = shared.nats.ask(listener, sealing, &call, ANSWER_MAX).await;
    let unanswered = |reason: String| NotForwarded::Unanswered { node: leader.node.clone(), reason };
    let answer = answered.map_err(|error| match error {
        AskError::Unasked(reason) => unreached(&reason),
        AskError::Unanswered(reason) => unanswered(reason),
    })?;
    let answer: PassedAnswer = postcard::from_bytes(&answer).map_err(|error| unanswered(error.to_string()))?;
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).map_err(|error| unanswered(error.to_string()))?;
    *response.headers_mut() = read(answer.headers);
    Ok(response)
}

/// The room for calls of nodes that don't reach this one.
struct Room {
    all: Arc<Semaphore>,
    /// What is kept for humans' calls.
    humans: Arc<Semaphore>,
}

impl Room {
    fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(CALLS_MAX)), humans: Arc::new(Semaphore::new(HUMANS_MAX)) }
    }

    /// Returns a place for a call, if there is one.
    fn enter(&self, is_urgent: impl FnOnce() -> bool) -> Option<OwnedSemaphorePermit> {
        let place = |of: &Arc<Semaphore>| Arc::clone(of).try_acquire_owned().ok();
        place(&self.all).or_else(|| place(&self.humans).filter(|_| is_urgent()))
    }
}

/// Carries out the calls of nodes that don't reach this one, for good.
pub(crate) async fn listen(shared: Arc<Shared>, certificate: Option<Arc<Certificate>>) {
    let room = Room::new();
    loop {
        if let Err(error) = listen_once(&shared, certificate.as_ref(), &room).await {
            tracing::debug!(%error, "nodes that don't reach this one can't pass calls on to it");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn listen_once(
    shared: &Arc<Shared>,
    certificate: Option<&Arc<Certificate>>,
    room: &Room,
) -> Result<(), NatsError> {
    let mut questions = shared.nats.questions(&subject(&shared.name)).await?;
    let mut under_way = JoinSet::new();
    while let Some(question) = questions.next().await {
        while under_way.try_join_next().is_some() {}
        let Some(sealing) = &shared.calls_sealing else { continue };
        let opened = question.open(sealing, &shared.session);
        let Some((call, request)) = opened.and_then(|bytes| as_request(&bytes)) else {
            tracing::warn!("a message for this node is of no node of this cluster");
            continue;
        };
        // What waits may hold its place for as long as it likes, also a human's.
        let is_urgent = || !waits(request.uri()) && shared.is_humans(&call.workspace, request.headers(), request.uri());
        let Some(place) = room.enter(is_urgent) else {
            let full = "The workspace's leader has too many calls of nodes that don't reach it, and nothing was done: try \
                        again, or ask another node";
            answer(shared, sealing, question, refusal(full)).await;
            continue;
        };
        // By its own connection to itself, so that each call counts and is checked as any that a node passes on.
        let info = NodeInfo {
            session: shared.session.clone(),
            url: shared.url.clone(),
            pin: certificate.map(|certificate| certificate.fingerprint()),
            proves: true,
            ..NodeInfo::default()
        };
        let (shared, itself) = (Arc::clone(shared), Leader { node: shared.name.clone(), info, epoch: 0 });
        let sealing = sealing.clone();
        under_way.spawn(async move {
            let response = carry_out(&shared, &itself, &call, request).await;
            answer(&shared, &sealing, question, response).await;
            drop(place);
        });
    }
    Ok(())
}

/// Returns whether a call may wait for news.
fn waits(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|part| part.starts_with("wait=")))
}

async fn carry_out(shared: &Shared, itself: &Leader, call: &PassedCall, request: Request) -> Response {
    let reads = request.method().is_safe();
    let forwarded = shared.forwarder.forward(itself, &shared.secret, &call.workspace, call.from, request).await;
    let response = forwarded.unwrap_or_else(|error| {
        tracing::warn!(%error, "a call that came through NATS was not carried out");
        match error {
            NotForwarded::Unanswered { .. } => unknown(
                "The workspace's leader gave no answer. Whether the call was carried out isn't known: repeat it with the same \
                 Idempotency-Key",
            ),
            NotForwarded::Unreached { .. } | NotForwarded::Over { .. } => {
                refusal("The workspace's leader is busy, and nothing was done: try again")
            }
        }
    });
    match is_events(response.headers()) {
        true if reads => refusal(
            "This node reaches the workspace's leader through NATS alone, which has no event streams: ask another node",
        ),
        true => unknown(
            "The call was made, and its answer is an event stream, which doesn't come through NATS: look at what it did \
             before you repeat it",
        ),
        false => response,
    }
}

async fn answer(shared: &Shared, sealing: &Sealing, question: Question, response: Response) {
    let (parts, body) = response.into_parts();
    let answer = match to_bytes(body, shared.nats.question_bytes_max()).await {
        Ok(body) => {
            PassedAnswer { status: parts.status.as_u16(), headers: written(&parts.headers), body: body.to_vec() }
        }
        Err(_) => PassedAnswer {
            status: StatusCode::BAD_GATEWAY.as_u16(),
            headers: Vec::new(),
            body: b"The answer is too long for NATS, through which alone this node reaches the workspace's leader"
                .to_vec(),
        },
    };
    let answered = match postcard::to_allocvec(&answer) {
        Ok(bytes) => question.answer(sealing, &bytes).await,
        Err(error) => Err(AskError::Unanswered(error.to_string())),
    };
    if let Err(error) = answered {
        tracing::debug!(%error, "a call that came through NATS has no answer");
    }
}

fn as_request(bytes: &[u8]) -> Option<(PassedCall, Request)> {
    let mut call: PassedCall = postcard::from_bytes(bytes).ok()?;
    let mut request = Request::new(Body::from(std::mem::take(&mut call.body)));
    *request.method_mut() = call.method.parse::<Method>().ok()?;
    *request.uri_mut() = call.path.parse::<Uri>().ok()?;
    *request.headers_mut() = read(std::mem::take(&mut call.headers));
    Some((call, request))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fills_the_room_leaves_a_humans_places_free() {
        let room = Room::new();
        let held: Vec<_> = std::iter::from_fn(|| room.enter(|| false)).collect();
        assert_eq!(held.len(), CALLS_MAX);
        let humans: Vec<_> = std::iter::from_fn(|| room.enter(|| true)).collect();
        assert_eq!(humans.len(), HUMANS_MAX);
        drop(held);
        assert!(room.enter(|| false).is_some());
        for (uri, waiting) in
            [("/v1/inbox?turns=true&wait=30s", true), ("/v1/inbox?turns=true", false), ("/v1/stop", false)]
        {
            assert_eq!(waits(&Uri::from_static(uri)), waiting, "{uri}");
        }
    }
}
