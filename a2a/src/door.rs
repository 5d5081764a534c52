//! The entry: addresses, bindings, versions and callers. Both bindings make the same operations.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request};
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LAST_MODIFIED, VARY, WWW_AUTHENTICATE,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use futures_util::stream;
use lastword_broker::ReadLane;
use lastword_broker::clock::{self, Stopwatch};
use lastword_facts::Code;
use lastword_server::calls::{Caller, WAIT_MAX, requests};
use lastword_server::edges::http::{AnswerPermit, Peer, authenticate, origin, permitted, read};
use lastword_server::{ApiError, Context, Mount, url};
use lastword_wire::Scope;
use serde_json::{Value, json};

use crate::binding::{Missing, called, route, spoken};
use crate::card;
use crate::causality::{self, URI};
use crate::fault::{Fault, Kind};
use crate::model::{Operation, PushConfig, SendMessage, StreamResponse};
use crate::push::Pushes;
use crate::stream::TaskStream;
use crate::tasks::{self, TaskSnapshot};
use crate::{A2aSettings, Published, collect, send};

const PREFIX: &str = "/a2a";
const WELL_KNOWN: &str = ".well-known/agent-card.json";
const EXTENSIONS_HEADER: HeaderName = HeaderName::from_static("a2a-extensions");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const A2A_JSON: HeaderValue = HeaderValue::from_static("application/a2a+json");
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a card may be kept.
const CARD_AGE: &str = "max-age=300";
/// The query parameters of HTTP+JSON.
const PARAMETERS: &[&str] = &[
    "A2A-Version",
    "tenant",
    "contextId",
    "status",
    "pageSize",
    "pageToken",
    "historyLength",
    "statusTimestampAfter",
    "includeArtifacts",
];

/// Returns the edge: `/a2a/NAME/` for each published agent, and what leaves with a request to another system.
#[must_use]
pub fn mount(settings: A2aSettings) -> Mount {
    let settings = Arc::new(settings);
    let routes = move |ctx: &Context| {
        let leaving = get(async |axum::extract::State(ctx): axum::extract::State<Context>, caller: Caller| {
            leaving(&ctx, caller).await
        });
        let all = Router::new().route(&format!("{PREFIX}/.lastword/causality"), leaving);
        if settings.publish.is_empty() {
            return all;
        }
        let door = Arc::new(Door::open(ctx.clone(), Arc::clone(&settings)));
        let keys = Arc::clone(&door);
        let (root, below) = (Arc::clone(&door), door);
        all.route(&format!("{PREFIX}{}", card::KEYS), get(async move || axum::Json(card::keys(&keys.ctx))))
            .route(
                &format!("{PREFIX}/{{agent}}"),
                any(async move |Path(agent): Path<String>, request: Request| root.enter(&agent, "", request).await),
            )
            .route(&format!("{PREFIX}/{{agent}}/"), {
                let root = Arc::clone(&below);
                any(async move |Path(agent): Path<String>, request: Request| root.enter(&agent, "", request).await)
            })
            .route(
                &format!("{PREFIX}/{{agent}}/{{*path}}"),
                any(async move |Path((agent, path)): Path<(String, String)>, request: Request| {
                    below.enter(&agent, &path, request).await
                }),
            )
    };
    Mount { prefix: PREFIX, parameters: PARAMETERS, anonymous: false, routes: Arc::new(routes) }
}

/// Returns what leaves with a request that serves the caller's turn.
async fn leaving(ctx: &Context, caller: Caller) -> Result<axum::Json<Value>, ApiError> {
    let turn = caller.turn().ok_or_else(|| {
        ApiError::new(Code::TurnRequired, "The header Lastword-Turn is missing")
            .hinted("Send the turn's token: what leaves is what caused the turn.")
    })?;
    causality::leaving(ctx, caller, turn).await.map(axum::Json)
}

/// The form of an answer.
#[derive(Clone, Debug, PartialEq)]
enum Binding {
    /// JSON-RPC, with the id of the request.
    Rpc(Value),
    Rest,
}

/// What an operation gives.
enum Outcome {
    /// A value, with the room that its bytes take until they are read (L4).
    Value(Value, Option<AnswerPermit>),
    Stream(Box<TaskStream>),
    Nothing,
}

struct Door {
    ctx: Context,
    settings: Arc<A2aSettings>,
    pushes: Arc<Pushes>,
    changes: card::Changes,
}

/// An authenticated request that was read.
struct CallParts<'a> {
    agent: &'a Published,
    caller: Caller,
    parts: &'a Parts,
    bytes: Bytes,
}

impl CallParts<'_> {
    fn query(&self) -> &str {
        self.parts.uri.query().unwrap_or_default()
    }
}

/// A call on its way: who makes it, and at which agent.
struct Call<'a> {
    caller: Caller,
    agent: &'a Published,
    headers: &'a HeaderMap,
    peer: Option<Peer>,
}

impl Call<'_> {
    /// Waits for room for an answer that may be long, and refuses if the caller doesn't read those before it.
    async fn room(&self) -> Result<Option<AnswerPermit>, Fault> {
        match &self.peer {
            Some(peer) => Ok(peer.answer_in_time().await?),
            None => Ok(None),
        }
    }
}

impl Door {
    fn open(ctx: Context, settings: Arc<A2aSettings>) -> Self {
        let pushes = Pushes::open(ctx.clone(), settings.allow_private);
        #[allow(clippy::disallowed_methods, reason = "it ends with the server, which `stopping` says")]
        drop(tokio::spawn(collect::run(ctx.clone())));
        let changes = card::Changes::since(clock::wall());
        Self { ctx, settings, pushes, changes }
    }

    async fn enter(&self, agent: &str, path: &str, request: Request) -> Response {
        let published = self.settings.publish.iter().find(|known| known.name == agent);
        let Some(published) = published else { return self.nothing(agent) };
        // The address ends with a slash, and some clients add another one.
        let path = path.trim_start_matches('/');
        let (parts, body) = request.into_parts();
        let answered = if path == WELL_KNOWN {
            self.card(published, &parts.headers, &parts.method, false).await
        } else {
            let binding = if path.is_empty() { Binding::Rpc(Value::Null) } else { Binding::Rest };
            // Before the body is read: a stranger may send little.
            match self.admitted(&parts, body).await {
                Ok((caller, bytes)) => {
                    let parts = CallParts { agent: published, caller, parts: &parts, bytes };
                    if path.is_empty() { self.rpc(&parts).await } else { self.rest(&parts, path).await }
                }
                Err(fault) => failed(&binding, &fault),
            }
        };
        extended(answered, &parts.headers)
    }

    fn nothing(&self, agent: &str) -> Response {
        let fault = ApiError::new(Code::UnknownRequest, format!("No agent {agent:?} is published here"))
            .hinted("A human publishes an agent in lastword.toml: `[a2a]` with `publish = [\"NAME\"]`.");
        fault.into_response()
    }

    /// Returns a card, or that it hasn't changed.
    async fn card(&self, agent: &Published, headers: &HeaderMap, method: &Method, extended: bool) -> Response {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD")]).into_response();
        }
        match self.made_card(agent, headers, extended).await {
            Ok(Some(card)) => {
                let tag = card::tag(&card);
                let same = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
                let same = same.flat_map(|value| value.split(',')).any(|value| value.trim() == tag);
                let scope = if extended { "private" } else { "public" };
                let vary = "Host, X-Forwarded-Proto".to_owned();
                let changed = self.changes.last(&card, extended, clock::wall());
                let kept = [
                    (CACHE_CONTROL, format!("{scope}, {CARD_AGE}")),
                    (ETAG, tag),
                    (LAST_MODIFIED, card::http_date(changed)),
                    (VARY, vary),
                ];
                if same {
                    return (StatusCode::NOT_MODIFIED, kept).into_response();
                }
                (kept, [(CONTENT_TYPE, JSON)], card.to_string()).into_response()
            }
            Ok(None) => self.nothing(&agent.name),
            Err(fault) => fault.into_response(),
        }
    }

    async fn made_card(
        &self,
        agent: &Published,
        headers: &HeaderMap,
        extended: bool,
    ) -> Result<Option<Value>, ApiError> {
        let edge = format!("{}{}", origin(&self.ctx, headers).unwrap_or_default(), url(PREFIX));
        let (base, keys) = (format!("{edge}/{}/", agent.name), format!("{edge}{}", card::KEYS));
        card::card(&self.ctx, agent, &base, &keys, extended, self.ctx.origins.is_named(headers)).await
    }

    /// Authenticates the caller of a request, and reads its body.
    async fn admitted(&self, parts: &Parts, body: Body) -> Result<(Caller, Bytes), Fault> {
        let caller = authenticate(&self.ctx, &parts.headers, &parts.extensions)?;
        if caller.principal.is_human() {
            let fault = ApiError::new(Code::Forbidden, "A2A is for agents: each message of a human is a new grant")
                .hinted("Register the calling system with `lastword agent add NAME`, and give it that token.");
            return Err(fault.into());
        }
        Ok((caller, read(parts, body).await?))
    }

    async fn rpc(&self, call: &CallParts<'_>) -> Response {
        if call.parts.method != Method::POST {
            return (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "POST")]).into_response();
        }
        let (id, parsed) = called(&call.parts.headers, &call.bytes);
        // An older client's methods are other ones: the version is what it has to hear of.
        let done = match spoken(&call.parts.headers, call.query()).and(parsed) {
            Ok(operation) => self.done(call, operation).await,
            Err(fault) => Err(fault),
        };
        answer(&Binding::Rpc(id), done)
    }

    async fn rest(&self, call: &CallParts<'_>, path: &str) -> Response {
        if let Err(fault) = spoken(&call.parts.headers, call.query()) {
            return failed(&Binding::Rest, &fault);
        }
        let found = match route(&call.parts.method, path) {
            Ok(found) => found,
            Err(Missing::Path) => {
                let fault = Fault::new(Kind::MethodNotFound, format!("There is nothing at {path}"));
                return failed(&Binding::Rest, &fault);
            }
            Err(Missing::Method(allowed)) => {
                let text = format!("{path} has no {}", call.parts.method);
                let mut response = failed(&Binding::Rest, &Fault::new(Kind::UnsupportedOperation, text));
                *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
                return response;
            }
        };
        let done = match found.parsed(&call.parts.headers, call.query(), &call.bytes) {
            Ok(operation) => self.done(call, operation).await,
            Err(fault) => Err(fault),
        };
        answer(&Binding::Rest, done)
    }

    /// Checks what the token may do, and makes the call.
    async fn done(&self, call: &CallParts<'_>, operation: Operation) -> Result<Outcome, Fault> {
        let headers = &call.parts.headers;
        let changes = matches!(
            operation,
            Operation::Send(_)
                | Operation::SendStreaming(_)
                | Operation::Cancel(_)
                | Operation::CreatePush(_)
                | Operation::DeletePush(_)
        );
        call.caller.may(Some(if changes { Scope::Send } else { Scope::Read }))?;
        ReadLane::of(false).enter();
        let peer = call.parts.extensions.get::<Peer>().cloned();
        self.operate(Call { caller: call.caller, agent: call.agent, headers, peer }, operation).await
    }

    async fn operate(&self, call: Call<'_>, operation: Operation) -> Result<Outcome, Fault> {
        let (ctx, caller, agent) = (&self.ctx, call.caller, call.agent.name.as_str());
        match operation {
            Operation::Send(send) => {
                let (history, now) = (send.configuration.history_length, send.configuration.return_immediately);
                let known = self.sent(&call, *send).await?;
                let known = if now { known } else { waited(ctx, caller, agent, known).await? };
                let room = call.room().await?;
                let value = match known.replied(ctx).await?.filter(|_| !now) {
                    Some(message) => json!({ "message": message }),
                    None => json!({ "task": known.shown(ctx, history, true).await? }),
                };
                Ok(Outcome::Value(value, room))
            }
            Operation::SendStreaming(send) => {
                let history = send.configuration.history_length;
                let known = self.sent(&call, *send).await?;
                self.streamed(&call, &known, history).await
            }
            Operation::Get(named) => {
                tasks::checked_history(named.history_length)?;
                let known = tasks::find(ctx, caller, agent, &named.id).await?;
                let room = call.room().await?;
                Ok(Outcome::Value(json!(known.shown(ctx, named.history_length, true).await?), room))
            }
            Operation::List(wanted) => {
                let room = call.room().await?;
                Ok(Outcome::Value(tasks::list(ctx, caller, agent, wanted).await?, room))
            }
            Operation::Cancel(named) => {
                let known = tasks::find(ctx, caller, agent, &named.id).await?;
                if known.fold.settled.is_some() {
                    return Err(Fault::new(Kind::TaskNotCancelable, "The task has ended"));
                }
                requests::cancel(ctx, caller, &named.id).await.map_err(|fault| {
                    // It ended meanwhile.
                    let over = fault.0.code == Code::AlreadySettled;
                    if over { Fault::new(Kind::TaskNotCancelable, "The task has ended") } else { fault.into() }
                })?;
                let known = tasks::find(ctx, caller, agent, &named.id).await?;
                let room = call.room().await?;
                Ok(Outcome::Value(json!(known.shown(ctx, None, true).await?), room))
            }
            Operation::Subscribe(named) => {
                let known = tasks::find(ctx, caller, agent, &named.id).await?;
                if known.fold.settled.is_some() {
                    let text = "The task has ended, and nothing follows: get it instead";
                    return Err(Fault::new(Kind::UnsupportedOperation, text));
                }
                self.streamed(&call, &known, None).await
            }
            Operation::CreatePush(config) => {
                let name = self.name_of(caller).await?;
                self.pushes.create(caller, agent, name, config).await.map(short)
            }
            Operation::GetPush(named) => self.pushes.get(caller, agent, &named).await.map(short),
            Operation::ListPush(named) => self.pushes.list(caller, agent, &named.task_id).await.map(short),
            Operation::DeletePush(named) => self.pushes.delete(caller, agent, &named).await.map(|()| Outcome::Nothing),
            Operation::ExtendedCard => {
                let card = self.made_card(call.agent, call.headers, true).await?;
                card.map(short).ok_or_else(|| ApiError::unknown(agent).into())
            }
        }
    }

    async fn name_of(&self, caller: Caller) -> Result<String, Fault> {
        let who = caller.principal.agent();
        let name = self.ctx.handle.query(move |live| live.state.name_of(who).to_owned());
        Ok(name.await.map_err(ApiError::from)?)
    }

    /// Sends a message, and keeps where its changes are to be posted.
    async fn sent(&self, call: &Call<'_>, mut request: SendMessage) -> Result<TaskSnapshot, Fault> {
        tasks::checked_history(request.configuration.history_length)?;
        let push = request.configuration.task_push_notification_config.take();
        let agent = call.agent.name.as_str();
        let known = send::send(&self.ctx, call.caller, agent, call.headers, request).await?;
        if let Some(config) = push {
            let name = self.name_of(call.caller).await?;
            let config = PushConfig { task_id: known.id.to_string(), ..config };
            self.pushes.create(call.caller, agent, name, config).await?;
        }
        Ok(known)
    }

    async fn streamed(&self, call: &Call<'_>, known: &TaskSnapshot, history: Option<i32>) -> Result<Outcome, Fault> {
        let permit = call.peer.as_ref().map(Peer::stream).transpose()?;
        let stream = TaskStream::open(&self.ctx, call.caller, known, history).await?;
        Ok(Outcome::Stream(Box::new(stream.with(permit))))
    }
}

/// Waits until a task has ended or needs its caller, at most as long as any call waits.
async fn waited(ctx: &Context, caller: Caller, agent: &str, known: TaskSnapshot) -> Result<TaskSnapshot, Fault> {
    let state = known.state(ctx).await?;
    if state.is_terminal() || state.is_interrupted() {
        return Ok(known);
    }
    let mut stream = TaskStream::open(ctx, caller, &known, Some(0)).await?;
    let stopwatch = Stopwatch::start();
    loop {
        let left = WAIT_MAX.saturating_sub(stopwatch.elapsed());
        let state = match tokio::time::timeout(left, stream.next()).await {
            Ok(Some((_, StreamResponse::StatusUpdate { status, .. }))) => status.state,
            Ok(Some((_, StreamResponse::Task(_) | StreamResponse::ArtifactUpdate { .. }))) => continue,
            Ok(None) | Err(_) => break,
        };
        if state.is_terminal() || state.is_interrupted() {
            break;
        }
    }
    tasks::find(ctx, caller, agent, known.id.as_str()).await
}

/// Returns a value that is never long.
const fn short(value: Value) -> Outcome {
    Outcome::Value(value, None)
}

fn answer(binding: &Binding, done: Result<Outcome, Fault>) -> Response {
    let kind = if *binding == Binding::Rest { A2A_JSON } else { JSON };
    match done {
        Ok(Outcome::Value(value, room)) => {
            let value = match binding {
                Binding::Rpc(id) => json!({ "jsonrpc": "2.0", "id": id, "result": value }),
                Binding::Rest => value,
            };
            ([(CONTENT_TYPE, kind)], permitted(value.to_string().into_bytes(), room)).into_response()
        }
        Ok(Outcome::Nothing) => match binding {
            Binding::Rpc(id) => {
                let value = json!({ "jsonrpc": "2.0", "id": id, "result": {} });
                ([(CONTENT_TYPE, kind)], value.to_string()).into_response()
            }
            Binding::Rest => ([(CONTENT_TYPE, kind)], "{}").into_response(),
        },
        Ok(Outcome::Stream(stream)) => events(binding.clone(), *stream),
        Err(fault) => failed(binding, &fault),
    }
}

fn events(binding: Binding, stream: TaskStream) -> Response {
    let told = stream::unfold((stream, binding), |(mut stream, binding)| async move {
        let (_, event) = stream.next().await?;
        let data = match &binding {
            Binding::Rpc(id) => json!({ "jsonrpc": "2.0", "id": id, "result": event }).to_string(),
            Binding::Rest => serde_json::to_string(&event).unwrap_or_default(),
        };
        Some((Ok::<_, Infallible>(Event::default().data(data)), (stream, binding)))
    });
    Sse::new(told).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

fn failed(binding: &Binding, fault: &Fault) -> Response {
    let status = fault.status();
    let mut response = match binding {
        // JSON-RPC has its own errors. What a proxy or a client has to see is the status: that a token is missing.
        Binding::Rpc(id) => {
            let body = json!({ "jsonrpc": "2.0", "id": id, "error": fault.rpc() }).to_string();
            let passed = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            let status = if passed { status } else { StatusCode::OK };
            (status, [(CONTENT_TYPE, JSON)], body).into_response()
        }
        Binding::Rest => (status, [(CONTENT_TYPE, A2A_JSON)], fault.rest().to_string()).into_response(),
    };
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Names the extensions that were asked for and are active.
fn extended(mut response: Response<Body>, headers: &HeaderMap) -> Response {
    let asked = headers.get_all(EXTENSIONS_HEADER).iter().filter_map(|value| value.to_str().ok());
    if asked.flat_map(|value| value.split(',')).any(|uri| uri.trim() == URI) {
        response.headers_mut().insert(EXTENSIONS_HEADER, HeaderValue::from_static(URI));
    }
    response
}
