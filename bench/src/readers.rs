//! Readers that are sent more than they read: slow ones, and ones that stop. Each checks what it gets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lastword_client::Session;
use lastword_facts::names::SYSTEM_NAME;
use lastword_wire::session::{PushedDelivery, SessionReply};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, sleep};

use crate::failure::Failure;
use crate::raw::Raw;
use crate::sessions::{checked, submit};

/// Length of what a reader is sent, in bytes: 256 of them fill a session's window.
pub(crate) const BODY_BYTES: usize = 4 << 10;
/// The bytes that a reader takes at a time, and the pause of a slow one.
const FAST_BYTES: usize = 64 << 10;
const SLOW_BYTES: usize = 512;
const SLOW_PAUSE: Duration = Duration::from_millis(20);

/// How a reader reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// All that arrives, at once.
    Fast,
    /// A few bytes at a time.
    Slow,
    /// Nothing.
    Stopped,
    /// The rest, in a new session if it was slow or had stopped.
    Rest(Goal),
}

/// What a reader has to have at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Goal {
    /// The deliveries that were sent to it, numbered from 1.
    pub(crate) sent: u64,
    /// The position up to which it watches events.
    pub(crate) until: u64,
}

/// What a reader watches, and how it acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReaderKind {
    /// A human, who acknowledges by cursors.
    Human,
    /// A human who watches all events as well.
    Watcher,
    /// An agent, whose answers acknowledge.
    Agent,
}

/// A reader in its session.
pub(crate) struct Reader {
    kind: ReaderKind,
    addr: String,
    token: String,
    raw: Raw,
    calls: u64,
    /// The deliveries that calls acknowledge which have no reply yet.
    unconfirmed: BTreeMap<u64, Vec<u64>>,
    /// The deliveries that were acknowledged for certain, of all sessions.
    done: BTreeSet<u64>,
    /// The deliveries that this session got and acknowledges next, with the turns that they opened.
    open: Vec<(u64, Option<String>)>,
    /// The last cursor of this session, and the deliveries that it got.
    cursor: u64,
    given: BTreeSet<u64>,
    /// The positions of the events, of all sessions.
    events: Vec<u64>,
    /// The deliveries that the session before got.
    before: BTreeSet<u64>,
    /// How many of them the session got again.
    again: u64,
}

/// What a reader got.
#[derive(Debug)]
pub(crate) struct Got {
    /// The deliveries that were given again, because they weren't acknowledged when the session ended.
    pub(crate) again: u64,
    /// The positions of the events, in order.
    pub(crate) events: Vec<u64>,
}

#[derive(Deserialize)]
struct Position {
    seq: u64,
}

#[derive(Deserialize)]
struct PushedPosition {
    event: Position,
}

impl Reader {
    /// Opens the session of a reader, and watches.
    pub(crate) async fn open(kind: ReaderKind, addr: &str, token: &str) -> Result<Self, Failure> {
        let mut reader = Self {
            kind,
            addr: addr.to_owned(),
            token: token.to_owned(),
            raw: Raw::open(addr, token).await?,
            calls: 0,
            unconfirmed: BTreeMap::new(),
            done: BTreeSet::new(),
            open: Vec::new(),
            cursor: 0,
            given: BTreeSet::new(),
            events: Vec::new(),
            before: BTreeSet::new(),
            again: 0,
        };
        reader.watch().await?;
        Ok(reader)
    }

    async fn watch(&mut self) -> Result<(), Failure> {
        let mut body = json!({ "deliveries": {} });
        if self.kind == ReaderKind::Watcher {
            body["events"] = self.events.last().map_or_else(|| json!({}), |after| json!({ "after": after }));
        }
        self.call(json!({ "call": "watch", "body": body }), Vec::new()).await?;
        self.settle().await
    }

    /// Makes a call that acknowledges these deliveries.
    async fn call(&mut self, mut call: serde_json::Value, deliveries: Vec<u64>) -> Result<(), Failure> {
        self.calls += 1;
        call["id"] = self.calls.into();
        self.unconfirmed.insert(self.calls, deliveries);
        self.raw.write(&call.to_string()).await
    }

    /// Reads until it has all that it was sent, at the pace that it is told. A delivery that comes twice, or an
    /// acknowledged one that comes again, is a failure.
    pub(crate) async fn run(mut self, mut pace: watch::Receiver<Pace>) -> Result<Got, Failure> {
        let mut hindered = false;
        let goal = loop {
            let now = *pace.borrow_and_update();
            hindered |= matches!(now, Pace::Slow | Pace::Stopped);
            match now {
                Pace::Fast => tokio::select! {
                    changed = pace.changed() => changed.map_err(Failure::bug)?,
                    arrived = self.raw.arrived() => {
                        arrived?;
                        self.take(FAST_BYTES).await?;
                        self.acknowledge().await?;
                    }
                },
                Pace::Slow => tokio::select! {
                    changed = pace.changed() => changed.map_err(Failure::bug)?,
                    arrived = async { sleep(SLOW_PAUSE).await; self.raw.arrived().await } => {
                        arrived?;
                        self.take(SLOW_BYTES).await?;
                        self.acknowledge().await?;
                    }
                },
                Pace::Stopped => {
                    self.settle().await?;
                    pace.changed().await.map_err(Failure::bug)?;
                }
                Pace::Rest(goal) => break goal,
            }
        };
        if hindered {
            self.begin_again().await?;
        }
        while !self.is_complete(goal) {
            self.acknowledge().await?;
            self.raw.arrived().await?;
            self.take(FAST_BYTES).await?;
        }
        Ok(Got { again: self.again, events: self.events })
    }

    /// Reads until it knows for certain what it acknowledged, and acknowledges nothing further.
    async fn settle(&mut self) -> Result<(), Failure> {
        while !self.unconfirmed.is_empty() {
            self.raw.arrived().await?;
            self.take(FAST_BYTES).await?;
        }
        Ok(())
    }

    async fn begin_again(&mut self) -> Result<(), Failure> {
        // One that had stopped has settled, and the server may have given it up.
        self.settle().await?;
        self.raw = Raw::open(&self.addr, &self.token).await?;
        self.before = std::mem::take(&mut self.given);
        self.cursor = 0;
        self.open.clear();
        self.watch().await
    }

    fn is_complete(&self, goal: Goal) -> bool {
        let events = self.kind != ReaderKind::Watcher || self.events.last().is_some_and(|last| *last >= goal.until);
        events && self.unconfirmed.is_empty() && self.done.len() as u64 == goal.sent
    }

    /// Reads some bytes, and the frames that they complete.
    async fn take(&mut self, most: usize) -> Result<(), Failure> {
        self.raw.read(most)?;
        while let Some(text) = self.raw.next().await? {
            if text.starts_with(r#"{"id":"#) {
                let reply: SessionReply<'_> = serde_json::from_str(&text).map_err(Failure::bug)?;
                if reply.status >= 400 {
                    return Err(Failure::bug(format!("a reader was refused: {text}")));
                }
                self.done.extend(self.unconfirmed.remove(&reply.id).unwrap_or_default());
            } else if text.starts_with(r#"{"event":"#) {
                let pushed: PushedPosition = serde_json::from_str(&text).map_err(Failure::bug)?;
                self.witnessed(pushed.event.seq)?;
            } else {
                self.delivered(serde_json::from_str(&text).map_err(Failure::bug)?)?;
            }
        }
        Ok(())
    }

    fn witnessed(&mut self, seq: u64) -> Result<(), Failure> {
        if self.events.last().is_some_and(|last| *last >= seq) {
            return Err(Failure::bug(format!("the event {seq} came twice or too late")));
        }
        self.events.push(seq);
        Ok(())
    }

    fn delivered(&mut self, pushed: PushedDelivery) -> Result<(), Failure> {
        let PushedDelivery { cursor, delivery } = pushed;
        if cursor != self.cursor + 1 {
            return Err(Failure::bug(format!("the cursor {cursor} came after {}", self.cursor)));
        }
        self.cursor = cursor;
        if delivery.message.from == SYSTEM_NAME {
            return Ok(());
        }
        let number = delivery.message.body.trim_start_matches('x').parse();
        let number: u64 = number.map_err(|_| Failure::bug("a message came that nobody sent"))?;
        let last = self.given.last().copied().unwrap_or_default();
        if self.done.contains(&number) {
            return Err(Failure::bug(format!("the message {number} came again after it was acknowledged")));
        }
        if !self.given.insert(number) {
            return Err(Failure::bug(format!("the message {number} came twice in a session")));
        }
        // After a break what comes again may stand behind what is new.
        if last > number && self.before.is_empty() {
            return Err(Failure::bug(format!("the message {number} came after {last}")));
        }
        self.again += u64::from(self.before.contains(&number));
        self.open.push((number, delivery.turn.map(|turn| turn.id)));
        Ok(())
    }

    /// Acknowledges all deliveries that have come: requests by their answers, messages by the last cursor.
    async fn acknowledge(&mut self) -> Result<(), Failure> {
        let open = std::mem::take(&mut self.open);
        if self.kind != ReaderKind::Agent && !open.is_empty() {
            let numbers = open.into_iter().map(|(number, _)| number).collect();
            return self.call(json!({ "call": "ack", "body": { "cursor": self.cursor } }), numbers).await;
        }
        for (number, turn) in open {
            let call = json!({ "call": "finish", "path": turn, "body": { "answer": "done" } });
            self.call(call, vec![number]).await?;
        }
        Ok(())
    }
}

/// What was sent to a reader.
#[derive(Debug, Default)]
pub(crate) struct Fed {
    sent: AtomicU64,
    refused: AtomicU64,
}

impl Fed {
    /// Returns how many messages were accepted.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// Returns how many were refused, because as many requests waited as may.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Acquire)
    }

    /// Sends the next message; returns its position, or `None` if it was refused.
    pub(crate) async fn one(&self, session: &Session, name: &str, kind: ReaderKind) -> Result<Option<u64>, Failure> {
        let message = if kind == ReaderKind::Agent { "request" } else { "info" };
        let number = self.sent() + 1;
        let reference = format!("{name}-{number}");
        let body = format!("{}{number}", "x".repeat(BODY_BYTES));
        let envelope = json!({ "type": message, "to": name, "ref": reference, "body": body });
        let replied = submit(session, &envelope, None, None).await?;
        if replied.json.contains(r#""code":"saturated""#) {
            self.refused.fetch_add(1, Ordering::AcqRel);
            return Ok(None);
        }
        let sent: Position = serde_json::from_str(&checked(replied)?).map_err(Failure::bug)?;
        self.sent.fetch_add(1, Ordering::AcqRel);
        Ok(Some(sent.seq))
    }
}

/// Sends to a reader, a message in each `pause`, until `stop`.
pub(crate) async fn feed(
    session: Session,
    name: String,
    kind: ReaderKind,
    fed: Arc<Fed>,
    pause: Duration,
    stop: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let mut due = tokio::time::interval(pause);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !*stop.borrow() {
        due.tick().await;
        fed.one(&session, &name, kind).await?;
    }
    Ok(())
}
