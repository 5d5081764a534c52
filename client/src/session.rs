//! A session: one WebSocket that carries every call of a client, and what the server pushes.

mod connect;
mod link;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use lastword_wire::session::{
    ACK, Ack, EndedTurn, MOVED, PushedDelivery, PushedEnd, PushedEvent, SessionCall, SessionReply, WATCH, Watch,
    Watching,
};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use self::connect::Wire;
pub(crate) use self::link::Link;
use crate::endpoint::Endpoint;
use crate::error::ClientError;
use crate::token::Token;

/// The most calls that wait to be written. Further callers wait.
const OUTGOING_MAX: usize = 1_024;
/// The most pushes that wait to be read. The session ends if its owner lets more wait: it begins again where it was.
const PUSHED_MAX: usize = 4_096;
/// The longest silence of a server that is there: it pings a client that has been silent for a minute.
const SILENCE_MAX: Duration = Duration::from_secs(150);
/// The call that takes a delivery.
const NEXT: &str = "next";
/// The most bytes of calls that are written at once.
const WRITE_BYTES_MAX: usize = 256 << 10;

/// What the server pushed.
#[derive(Clone, Debug)]
pub enum Pushed {
    /// A delivery, to be acknowledged by its cursor or by the end of its turn.
    Delivery(Box<PushedDelivery>),
    /// The end of a turn, other than by this client's `finish`.
    Ended(EndedTurn),
    /// An event.
    Event(Box<PushedEvent>),
}

/// The reply to a call.
#[derive(Clone, Debug)]
pub struct Replied {
    /// The status, as HTTP has it.
    pub status: u16,
    /// The JSON of the result, or of the problem if the status is 400 or more; empty for 204.
    pub json: String,
}

/// An open session. Clones share it; it ends when the last one is dropped.
#[derive(Clone)]
pub struct Session(Arc<Shared>);

struct Shared {
    url: Box<str>,
    calls: Arc<Calls>,
    outgoing: mpsc::Sender<String>,
    /// Owns the task of the connection, and ends it.
    _task: JoinSet<()>,
}

/// The calls that wait for their replies.
#[derive(Default)]
struct Calls {
    last: AtomicU64,
    waiting: Mutex<PendingCalls>,
}

#[derive(Default)]
struct PendingCalls {
    replies: HashMap<u64, oneshot::Sender<Replied>>,
    /// Why the session ended.
    ended: Option<String>,
    /// The calls that take a delivery and wait.
    taking: HashSet<u64>,
    /// The deliveries whose callers gave up waiting: the next callers get them.
    unclaimed: VecDeque<Replied>,
}

/// What the server pushes in a session.
#[derive(Debug)]
pub struct Pushes(mpsc::Receiver<Pushed>);

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("url", &self.0.url).finish_non_exhaustive()
    }
}

impl Pushes {
    /// Returns the next push; `None` once the session has ended.
    pub async fn next(&mut self) -> Option<Pushed> {
        self.0.recv().await
    }

    /// Returns a push that is there.
    pub fn ready(&mut self) -> Option<Pushed> {
        self.0.try_recv().ok()
    }
}

impl Session {
    /// Opens a session with a token.
    ///
    /// # Errors
    /// The server does not answer, refuses the token, or has no sessions.
    pub async fn open(endpoint: &Endpoint, token: &Token) -> Result<(Self, Pushes), ClientError> {
        let socket = connect::connect(endpoint, token).await?;
        Ok(Self::over(endpoint.url(), socket))
    }

    fn over(url: &str, socket: WebSocketStream<Wire>) -> (Self, Pushes) {
        let (outgoing, calls) = mpsc::channel(OUTGOING_MAX);
        let (push, pushes) = mpsc::channel(PUSHED_MAX);
        let waiting = Arc::new(Calls::default());
        let mut task = JoinSet::new();
        task.spawn(run(socket, calls, Arc::clone(&waiting), push));
        let shared = Shared { url: url.into(), calls: waiting, outgoing, _task: task };
        (Self(Arc::new(shared)), Pushes(pushes))
    }

    /// Returns whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.calls.lock().ended.is_some()
    }

    /// Returns whether the server ended it, and had answered each call that it carried out.
    pub(crate) fn was_answered(&self) -> bool {
        self.0.calls.lock().ended.as_deref().is_some_and(|reason| reason.ends_with(MOVED))
    }

    /// Makes a call; its number is set here.
    ///
    /// # Errors
    /// The session ended before the reply came: whether the call was carried out isn't known.
    pub async fn call(&self, call: SessionCall<'_>) -> Result<Replied, ClientError> {
        let (id, frame) = self.frame(&call)?;
        let (sender, reply) = oneshot::channel();
        {
            let mut waiting = self.0.calls.lock();
            // Within a turn, only what joins it is taken.
            let takes = call.call == NEXT && call.turn.is_none();
            if takes && let Some(unclaimed) = waiting.unclaimed.pop_front() {
                return Ok(unclaimed);
            }
            if waiting.ended.is_none() {
                waiting.replies.insert(id, sender);
                if takes {
                    waiting.taking.insert(id);
                }
            }
        }
        // A caller that gives up takes its place back.
        let _place = PendingReply { calls: Arc::clone(&self.0.calls), id };
        if self.0.outgoing.send(frame).await.is_err() {
            return Err(self.ended());
        }
        reply.await.map_err(|_| self.ended())
    }

    /// Numbers a call. Returns its frame.
    fn frame(&self, call: &SessionCall<'_>) -> Result<(u64, String), ClientError> {
        let id = self.0.calls.last.fetch_add(1, Ordering::Relaxed) + 1;
        let call = SessionCall { id, ..call.clone() };
        let frame = serde_json::to_string(&call).map_err(|error| ClientError::Unusable(error.to_string()))?;
        Ok((id, frame))
    }

    fn ended(&self) -> ClientError {
        let reason = self.0.calls.lock().ended.clone();
        let reason = reason.unwrap_or_else(|| "the session ended".to_owned());
        ClientError::Unreachable { url: self.0.url.to_string(), reason }
    }

    /// Says what is to be pushed from now on.
    ///
    /// # Errors
    /// The server refuses, or the session ended.
    pub async fn watch(&self, watch: &Watch) -> Result<Watching, ClientError> {
        self.own(WATCH, watch).await
    }

    /// Acknowledges the deliveries up to a cursor.
    ///
    /// # Errors
    /// The session ended.
    pub async fn acknowledge(&self, cursor: u64) -> Result<(), ClientError> {
        self.own::<Option<()>>(ACK, &Ack { cursor }).await.map(drop)
    }

    async fn own<T: DeserializeOwned>(
        &self,
        name: &str,
        body: &(impl serde::Serialize + Sync),
    ) -> Result<T, ClientError> {
        let body = raw(body)?;
        let call = SessionCall { call: name.into(), body: Some(&body), ..SessionCall::default() };
        let replied = self.call(call).await?;
        self.read(&replied)
    }

    /// Reads a reply; a refusal is an error.
    fn read<T: DeserializeOwned>(&self, replied: &Replied) -> Result<T, ClientError> {
        let Replied { status, json } = replied;
        let unexpected =
            |detail: String| ClientError::Unexpected { url: self.0.url.to_string(), status: *status, detail };
        if *status >= 400 {
            let problem = serde_json::from_str(json).map_err(|error| unexpected(error.to_string()))?;
            return Err(ClientError::Refused(problem));
        }
        serde_json::from_str(if json.is_empty() { "null" } else { json }).map_err(|error| unexpected(error.to_string()))
    }
}

/// Returns a value as the body of a call.
pub(crate) fn raw(body: &impl serde::Serialize) -> Result<Box<RawValue>, ClientError> {
    serde_json::value::to_raw_value(body).map_err(|error| ClientError::Unusable(error.to_string()))
}

/// A caller's place among those that wait.
struct PendingReply {
    calls: Arc<Calls>,
    id: u64,
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        self.calls.lock().replies.remove(&self.id);
    }
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, PendingCalls> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a reply to the call's caller. A delivery whose caller gave up is kept for the next one.
    fn hand(&self, id: u64, replied: Replied) {
        let mut waiting = self.lock();
        let takes = waiting.taking.remove(&id);
        let unclaimed = match waiting.replies.remove(&id) {
            Some(caller) => caller.send(replied).err(),
            None => Some(replied),
        };
        if let Some(replied) = unclaimed.filter(|replied| takes && replied.status == 200) {
            waiting.unclaimed.push_back(replied);
        }
    }

    fn end(&self, reason: String) {
        let mut waiting = self.lock();
        waiting.ended.get_or_insert(reason);
        // The callers learn it, because their replies are dropped.
        waiting.replies.clear();
    }
}

/// Serves the connection until it ends, or until nobody holds the session.
async fn run(
    socket: WebSocketStream<Wire>,
    outgoing: mpsc::Receiver<String>,
    calls: Arc<Calls>,
    push: mpsc::Sender<Pushed>,
) {
    // Reading and writing wait independently: if both sides only wrote, neither would go on.
    let (sink, stream) = socket.split();
    let reason = tokio::select! {
        reason = write(sink, outgoing) => reason,
        reason = read(stream, &calls, &push) => reason,
    };
    calls.end(reason);
}

async fn write(mut sink: SplitSink<WebSocketStream<Wire>, Message>, mut outgoing: mpsc::Receiver<String>) -> String {
    let written = async {
        while let Some(frame) = outgoing.recv().await {
            // Lets ready tasks queue their frames first: one write carries all of them.
            tokio::task::yield_now().await;
            let mut bytes = frame.len();
            sink.feed(Message::text(frame)).await?;
            while bytes < WRITE_BYTES_MAX
                && let Ok(frame) = outgoing.try_recv()
            {
                bytes += frame.len();
                sink.feed(Message::text(frame)).await?;
            }
            sink.flush().await?;
        }
        sink.close().await
    };
    match written.await {
        Ok(()) => "the client ended the session".to_owned(),
        Err(error) => error.to_string(),
    }
}

async fn read(mut stream: SplitStream<WebSocketStream<Wire>>, calls: &Calls, push: &mpsc::Sender<Pushed>) -> String {
    loop {
        let next = match stream.next().now_or_never() {
            Some(next) => next,
            None => match timeout(SILENCE_MAX, stream.next()).await {
                Ok(next) => next,
                Err(_) => return format!("nothing came for {} s", SILENCE_MAX.as_secs()),
            },
        };
        match next {
            Some(Ok(Message::Text(text))) => {
                if let Err(reason) = take(&text, calls, push) {
                    return reason;
                }
            }
            Some(Ok(Message::Close(Some(frame)))) => return format!("the server ended the session: {}", frame.reason),
            Some(Ok(Message::Close(None))) | None => return "the server ended the session".to_owned(),
            Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Err(error)) => return error.to_string(),
        }
    }
}

/// Hands a frame to whom it is for.
fn take(text: &Utf8Bytes, calls: &Calls, push: &mpsc::Sender<Pushed>) -> Result<(), String> {
    let none = |error: serde_json::Error| format!("a push that is none: {error}");
    let pushed = if text.starts_with(r#"{"id":"#) {
        let reply: SessionReply<'_> =
            serde_json::from_str(text).map_err(|error| format!("a reply that is none: {error}"))?;
        let json = reply.body.or(reply.problem).map(|json| json.get().to_owned()).unwrap_or_default();
        calls.hand(reply.id, Replied { status: reply.status, json });
        return Ok(());
    } else if text.starts_with(r#"{"event":"#) {
        serde_json::from_str(text).map(|event| Pushed::Event(Box::new(event)))
    } else if text.starts_with(r#"{"ended":"#) {
        serde_json::from_str(text).map(|PushedEnd { ended }| Pushed::Ended(ended))
    } else {
        serde_json::from_str(text).map(|delivery| Pushed::Delivery(Box::new(delivery)))
    };
    match push.try_send(pushed.map_err(none)?) {
        // Without a receiver nobody watches.
        Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
        Err(mpsc::error::TrySendError::Full(_)) => Err(format!("more than {PUSHED_MAX} pushes waited to be read")),
    }
}
