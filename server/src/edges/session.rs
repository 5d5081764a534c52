//! The session edge: one WebSocket carries every call of a principal, and what is pushed to it.
//!
//! It holds no rule. A call has the name, the shape and the refusals of the HTTP call that it stands for: the calls of the
//! hot path go to [`crate::calls`], all others through the table that HTTP serves, too.
//!
//! One task serves a session. It reads the frames that wait, submits all of them, and writes the replies that are ready
//! at once. While the client doesn't read, the task doesn't read either: nothing queues up in the server.

#[cfg(all(test, feature = "schema"))]
mod asyncapi;
mod deliveries;
mod dispatch;
#[cfg(feature = "properties")]
pub(crate) mod properties;
mod socket;
mod tracker;
mod upgrade;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::response::Response;
use axum::routing::{MethodRouter, get};
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, FuturesUnordered};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use hyper::upgrade::OnUpgrade;
use lastword_broker::Parcel;
use lastword_facts::ids::TurnId;
use lastword_wire::session::{EndedTurn, MOVED, PushedDelivery, PushedEnd, PushedEvent, Welcome};
use lastword_wire::{Delivery, Event};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use self::dispatch::{Desk, Said, SessionClient, WaitingBytes};
use self::socket::Socket;
use crate::calls::places::AllPlaces;
use crate::calls::{Caller, Context, agents, ended};
use crate::edges::http::connections::{Peer, SessionPermit};
use crate::edges::http::{authenticate_bearer, bearer_header, client_id};
use crate::error::ApiError;

/// The most calls of a session that wait for their replies. The session reads no further ones.
const CALLS_MAX: usize = 256;
/// The most bytes of calls that have no place in the broker's queue yet. The session reads no further ones.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// The most bytes of replies and pushes that are written at once.
const WRITE_BYTES_MAX: usize = 256 << 10;
/// The time after which a silent client is pinged. The session ends if another such time passes in silence.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// How often the session looks at the clock.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// The time in which a session has to authenticate.
const PROOF_TIME_MAX: Duration = Duration::from_secs(15);
/// The time in which a frame has to arrive, from its first byte.
const FRAME_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a session may take to answer its calls when the server shuts down.
const ENDING_MAX: Duration = Duration::from_secs(5);
/// How long the client may take to confirm the end.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// Why a session ends.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// The client closed it, or its connection broke.
    Left,
    /// The server shuts down, or hands the workspace over.
    Stopping,
    /// It has to make room, or was silent for too long.
    TooSlow(&'static str),
    /// Its token isn't valid, or isn't any more.
    Unauthenticated(String),
    /// The client broke the protocol.
    Protocol(String),
    /// The client sent a frame whose text isn't UTF-8.
    NoText,
    /// The client sent a frame that is too long.
    TooLong,
}

/// What the calls of sessions work with. Those of agents have places in the broker's queue.
#[derive(Clone)]
struct Edge {
    ctx: Context,
    places: Arc<AllPlaces>,
}

impl Edge {
    fn of(&self, caller: &Caller) -> Context {
        let ctx = self.ctx.clone();
        if caller.principal.is_human() { ctx } else { ctx.with(self.places.of(caller.principal.agent())) }
    }
}

/// Returns the route of sessions.
pub(crate) fn route(ctx: &Context) -> MethodRouter<Context> {
    let edge = Edge { ctx: ctx.clone(), places: Arc::new(AllPlaces::new()) };
    get(move |State(_): State<Context>, peer: Option<Extension<Peer>>, request: Request| {
        let opened = open(edge.clone(), peer, request);
        async { opened }
    })
}

fn open(edge: Edge, peer: Option<Extension<Peer>>, mut request: Request) -> Result<Response, ApiError> {
    let response = upgrade::accept(&request)?;
    let Some(Extension(peer)) = peer else { return Err(upgrade::needed("The connection can't be upgraded")) };
    let client = client_id(request.headers());
    let caller = match bearer_header(request.headers()) {
        Some(authorization) => {
            let caller = authenticate_bearer(&edge.ctx, &authorization, &peer)?;
            Some((caller, authorization, peer.session()?))
        }
        None => None,
    };
    let upgrade = hyper::upgrade::on(&mut request);
    let owner = peer.clone();
    owner.own(async move {
        // Boxed, so that a session that waits doesn't hold what only its start needs.
        let begun = Box::pin(begin(edge, peer, upgrade, caller, client)).await;
        if let Some(session) = begun {
            live(session).await;
        }
    });
    Ok(response)
}

/// Counts a session while it may have calls to answer.
struct Serving(Arc<AtomicUsize>);

impl Serving {
    fn enter(ctx: &Context) -> Self {
        ctx.sessions.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(&ctx.sessions))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

type Proven = (Caller, HeaderValue, SessionPermit);

/// Opens a session and authenticates it, or tells the client why there is none.
async fn begin(
    edge: Edge,
    peer: Peer,
    upgrade: OnUpgrade,
    proven: Option<Proven>,
    client: Option<HeaderValue>,
) -> Option<Box<Session>> {
    let mut socket = match upgrade.await {
        Ok(upgraded) => Socket::open(upgraded).await,
        Err(error) => {
            tracing::debug!(%error, "a session was not begun");
            return None;
        }
    };
    let proven = match proven {
        Some(proven) => Ok(proven),
        None => greet(&edge.ctx, &peer, &mut socket).await,
    };
    socket.prove(&peer);
    match proven {
        Ok((caller, authorization, permit)) => {
            let ctx = edge.of(&caller);
            let client = SessionClient::begin(&ctx.handle, caller.principal.agent(), client);
            let caller = client.calls(caller);
            let desk = Arc::new(Desk { ctx, caller, authorization, peer, window: Arc::default(), client });
            Some(Box::new(Session::new(desk, socket, permit)))
        }
        Err(end) => {
            leave(&mut socket, &end).await;
            None
        }
    }
}

/// Serves a session until its end, and tells the client why it ended.
async fn live(mut session: Box<Session>) {
    let end = session.run().await;
    let mut socket = session.into_socket();
    Box::pin(leave(&mut socket, &end)).await;
}

async fn leave(socket: &mut Socket, end: &End) {
    tracing::debug!(?end, "a session ended");
    // The client may be gone, and then nobody misses the reason.
    let _closed = timeout(FAREWELL_MAX, farewell(socket, end.frame())).await.is_ok();
}

/// Sends the reason of the end, if the client didn't close the session itself, and waits until both have said so
/// (RFC 6455, 5.5.1). Reading on writes the confirmation.
async fn farewell(socket: &mut Socket, frame: Option<CloseFrame>) {
    if frame.is_none() || socket.close(frame).await.is_ok() {
        while let Some(Ok(_)) = socket.next().await {}
    }
}

/// Authenticates a session by its first frame.
async fn greet(ctx: &Context, peer: &Peer, socket: &mut Socket) -> Result<Proven, End> {
    let (deadline, mut stopping) = (sleep(PROOF_TIME_MAX), ctx.stopping.clone());
    let first = async {
        loop {
            match socket.next().await {
                Some(Ok(Message::Text(text))) => return Ok::<Utf8Bytes, End>(text),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Binary(_) | Message::Frame(_))) => return Err(End::binary()),
                Some(Ok(Message::Close(_))) | None => return Err(End::Left),
                Some(Err(error)) => return Err(End::of(&error)),
            }
        }
    };
    let text = tokio::select! {
        first = first => first?,
        () = deadline => return Err(End::TooSlow("the session did not authenticate in time")),
        () = peer.evicted() => return Err(End::TooSlow("the session did not authenticate and made room for others")),
        () = ended(&mut stopping) => return Err(End::Stopping),
    };
    let (id, hello) = match dispatch::hello(&text) {
        Ok((id, Some(hello))) => (id, hello),
        Ok((_, None)) => return Err(End::Unauthenticated("the first call has to be hello with a token".to_owned())),
        Err((id, fault)) => {
            send(socket, dispatch::refused(id, &fault)).await?;
            return Err(End::Protocol(fault.0.detail));
        }
    };
    let authorization = dispatch::authorization(&hello);
    let proven = match authorization {
        Some(authorization) => authenticate_bearer(ctx, &authorization, peer)
            .and_then(|caller| Ok((caller, authorization, peer.session()?))),
        None => Err(lastword_facts::Refusal::new(lastword_facts::Code::Unauthenticated).into()),
    };
    match proven {
        Ok(proven) => {
            let welcome = welcome(ctx, proven.0).await;
            send(socket, dispatch::reply(id, 200, &welcome)).await?;
            Ok(proven)
        }
        Err(fault) => {
            send(socket, dispatch::refused(id, &fault)).await?;
            Err(End::Unauthenticated(fault.0.detail))
        }
    }
}

async fn send(socket: &mut Socket, text: String) -> Result<(), End> {
    socket.send(Message::text(text)).await.map_err(|error| End::of(&error))
}

/// Returns what a session is told about itself.
async fn welcome(ctx: &Context, caller: Caller) -> Welcome {
    let agent = caller.principal.agent();
    let name = ctx.handle.query(move |live| live.state.name_of(agent).to_owned()).await.unwrap_or_default();
    Welcome {
        name,
        calls_max: u32::try_from(CALLS_MAX).unwrap_or(u32::MAX),
        frame_bytes_max: socket::FRAME_BYTES_MAX as u64,
        heartbeat_ms: u64::try_from(HEARTBEAT.as_millis()).unwrap_or(u64::MAX),
    }
}

impl End {
    fn binary() -> Self {
        Self::Protocol("frames are text".to_owned())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other error of the library is a fault of the client")]
    fn of(error: &Error) -> Self {
        match error {
            Error::ConnectionClosed | Error::AlreadyClosed | Error::Io(_) => Self::Left,
            Error::Capacity(_) => Self::TooLong,
            Error::Utf8(_) => Self::NoText,
            other => Self::Protocol(other.to_string()),
        }
    }

    /// Returns the frame that tells the client.
    fn frame(&self) -> Option<CloseFrame> {
        let long;
        let (code, reason) = match self {
            Self::Left => return None,
            Self::Stopping => (CloseCode::Away, MOVED),
            Self::TooSlow(why) => (CloseCode::Policy, *why),
            Self::Unauthenticated(why) => (CloseCode::Policy, why.as_str()),
            Self::Protocol(why) => (CloseCode::Protocol, why.as_str()),
            Self::NoText => (CloseCode::Invalid, "the text of a frame isn't UTF-8"),
            Self::TooLong => {
                long = format!("too_large: a frame has at most {} bytes", socket::FRAME_BYTES_MAX);
                (CloseCode::Size, long.as_str())
            }
        };
        // A control frame has 125 bytes, two of them for the code.
        Some(CloseFrame { code, reason: reason[..reason.floor_char_boundary(123)].into() })
    }
}

/// What a session does next for its client.
enum Push {
    Delivery(Parcel, Box<Delivery>),
    /// A turn of the session is over.
    Ended(TurnId),
    Event(Box<Event>),
    /// The token isn't valid any more.
    Revoked(String),
    /// The events end: the next one has left the log, or the server shuts down.
    EventsEnd,
}

/// One session.
struct Session {
    desk: Arc<Desk>,
    socket: Socket,
    calls: FuturesUnordered<BoxFuture<'static, Said>>,
    deliveries: Option<BoxStream<'static, Push>>,
    events: Option<BoxStream<'static, Push>>,
    heard: Instant,
    pinged: bool,
    waiting: WaitingBytes,
    _permit: SessionPermit,
    _serving: Serving,
}

impl Session {
    fn new(desk: Arc<Desk>, socket: Socket, permit: SessionPermit) -> Self {
        let calls = FuturesUnordered::new();
        let (deliveries, events, heard) = (None, None, Instant::now());
        let serving = Serving::enter(&desk.ctx);
        Self {
            desk,
            socket,
            calls,
            deliveries,
            events,
            heard,
            pinged: false,
            waiting: WaitingBytes::default(),
            _permit: permit,
            _serving: serving,
        }
    }

    /// Lets go of everything but the connection.
    fn into_socket(self: Box<Self>) -> Socket {
        self.socket
    }

    async fn run(&mut self) -> End {
        let (mut stopping, mut stopped) = (self.desk.ctx.stopping.clone(), self.desk.ctx.stopping.clone());
        tokio::select! {
            end = self.turns(&mut stopping) => end,
            // A client that doesn't read holds up no shutdown.
            () = async { ended(&mut stopped).await; sleep(ENDING_MAX).await } => End::Left,
        }
    }

    async fn turns(&mut self, stopping: &mut watch::Receiver<bool>) -> End {
        let mut look = Box::pin(sleep(LOOK_EVERY));
        loop {
            let turn = tokio::select! {
                biased;
                () = ended(stopping) => break,
                Some(said) = self.calls.next(), if !self.calls.is_empty() => self.answer(said).await,
                push = next_of(&mut self.deliveries, &mut self.events) => self.push(push).await,
                message = self.socket.next(), if self.calls.len() < CALLS_MAX && self.waiting.sum() < WAITING_BYTES_MAX => {
                    self.hear(message).await
                }
                () = &mut look => {
                    look.as_mut().reset(Instant::now() + LOOK_EVERY);
                    self.look().await
                }
            };
            if let Err(end) = turn {
                return end;
            }
        }
        self.settle().await
    }

    /// Answers the calls in progress before the end.
    async fn settle(&mut self) -> End {
        while let Some(said) = self.calls.next().await {
            if let Err(end) = self.answer(said).await {
                return end;
            }
        }
        End::Stopping
    }

    /// Writes what a call says, and what all others say that are ready.
    async fn answer(&mut self, said: Said) -> Result<(), End> {
        let (mut bytes, mut permits) = (0, Vec::new());
        let mut next = Some(said);
        while let Some(said) = next.take() {
            permits.extend(said.permit);
            bytes += said.text.len();
            self.feed(said.text).await?;
            if bytes < WRITE_BYTES_MAX {
                next = self.calls.next().now_or_never().flatten();
            }
        }
        self.flush().await
    }

    /// Writes a push and all others that are ready.
    async fn push(&mut self, push: Push) -> Result<(), End> {
        let mut bytes = 0;
        let mut next = Some(push);
        while let Some(push) = next.take() {
            let text = match push {
                Push::Delivery(parcel, delivery) => self.desk.window.enter(parcel, *delivery, delivery_text),
                Push::Ended(turn) => {
                    dispatch::text(&PushedEnd { ended: EndedTurn { turn: turn.to_string() } }).unwrap_or_default()
                }
                Push::Event(event) => dispatch::text(&PushedEvent { event: *event }).unwrap_or_default(),
                Push::Revoked(why) => return Err(End::Unauthenticated(why)),
                Push::EventsEnd => {
                    return Err(End::TooSlow("the events can't go on from here: watch again after the last one"));
                }
            };
            bytes += text.len();
            self.feed(text).await?;
            if bytes < WRITE_BYTES_MAX {
                next = next_of(&mut self.deliveries, &mut self.events).now_or_never();
            }
        }
        self.flush().await
    }

    /// Takes a frame, and all others that have arrived.
    async fn hear(&mut self, message: Option<Result<Message, Error>>) -> Result<(), End> {
        (self.heard, self.pinged) = (Instant::now(), false);
        let mut next = Some(message);
        let mut valid = false;
        while let Some(message) = next.take() {
            match message {
                Some(Ok(Message::Text(text))) => {
                    if !std::mem::replace(&mut valid, true) {
                        let known = self.desk.caller.reauthenticate(&self.desk.ctx.handle);
                        known.map_err(|fault| End::Unauthenticated(fault.0.detail))?;
                    }
                    self.call(text).await;
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Binary(_) | Message::Frame(_))) => return Err(End::binary()),
                Some(Ok(Message::Close(_))) | None => return Err(End::Left),
                Some(Err(error)) => return Err(End::of(&error)),
            }
            if self.hears() {
                next = self.socket.next().now_or_never();
            }
        }
        // A ping is answered when something is written.
        self.flush().await
    }

    async fn call(&mut self, text: Utf8Bytes) {
        let reply = match dispatch::own(&text) {
            None => match dispatch::prepare(&self.desk, &text) {
                Ok((id, prepared)) => {
                    let waiting = self.waiting.enter(text.len());
                    self.calls.push(Box::pin(dispatch::call(Arc::clone(&self.desk), id, prepared, waiting)));
                    return;
                }
                Err((id, fault)) => {
                    let desk = Arc::clone(&self.desk);
                    self.calls.push(Box::pin(async move {
                        Said::of(dispatch::refused(id, &agents::by_display_name(&desk.ctx, fault).await))
                    }));
                    return;
                }
            },
            Some(Ok((id, dispatch::Own::Watch(watch)))) => match Box::pin(deliveries::watch(&self.desk, watch)).await {
                Ok(watched) => {
                    (self.deliveries, self.events) = (watched.deliveries, watched.events);
                    dispatch::reply(id, 200, &watched.reply)
                }
                Err(fault) => dispatch::refused(id, &fault),
            },
            Some(Ok((id, dispatch::Own::Ack(cursor)))) => {
                self.desk.window.acknowledge(cursor);
                dispatch::nothing(id)
            }
            Some(Err((id, fault))) => dispatch::refused(id, &fault),
        };
        self.calls.push(Box::pin(async { Said::of(reply) }));
    }

    /// Returns whether the session reads further calls.
    fn hears(&self) -> bool {
        self.calls.len() < CALLS_MAX && self.waiting.sum() < WAITING_BYTES_MAX
    }

    /// Pings a silent client, and gives up one that stays silent or is slow with a frame.
    async fn look(&mut self) -> Result<(), End> {
        if !self.hears() {
            // It isn't the client that is slow: its frames aren't read for now.
            self.heard = Instant::now();
            return Ok(());
        }
        if self.socket.slow(FRAME_TIME_MAX) {
            return Err(End::TooSlow("a frame did not arrive in time"));
        }
        let silent = self.heard.elapsed();
        if silent >= HEARTBEAT * 2 {
            return Err(End::TooSlow("the client was silent for too long"));
        }
        if silent >= HEARTBEAT && !self.pinged {
            self.pinged = true;
            return self.socket.send(Message::Ping(Vec::new().into())).await.map_err(|error| End::of(&error));
        }
        Ok(())
    }

    async fn feed(&mut self, text: String) -> Result<(), End> {
        // A leader that was cut off may have answered from an old state.
        if self.desk.ctx.nodes.as_ref().is_some_and(|nodes| !nodes.leads()) {
            return Err(End::Stopping);
        }
        self.socket.feed(Message::text(text)).await.map_err(|error| End::of(&error))
    }

    async fn flush(&mut self) -> Result<(), End> {
        self.socket.flush().await.map_err(|error| End::of(&error))
    }
}

fn delivery_text(cursor: u64, delivery: Delivery) -> String {
    dispatch::text(&PushedDelivery { cursor, delivery }).unwrap_or_default()
}

/// Returns the next push of the two streams; waits for ever if there is none.
async fn next_of(
    deliveries: &mut Option<BoxStream<'static, Push>>,
    events: &mut Option<BoxStream<'static, Push>>,
) -> Push {
    let one = async |stream: &mut Option<BoxStream<'static, Push>>| match stream {
        Some(stream) => match stream.next().await {
            Some(push) => push,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    };
    tokio::select! {
        push = one(deliveries) => push,
        push = one(events) => push,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_fits_into_a_control_frame() {
        let long = End::Protocol("é".repeat(200)).frame().unwrap();
        assert!(long.reason.len() <= 123 && long.reason.starts_with('é'));
        assert_eq!(End::Left.frame(), None);
    }
}
