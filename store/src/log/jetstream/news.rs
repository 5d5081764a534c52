//! An ordered consumer of a stream. It ends at the first irregularity, and its reader creates another one.
//!
//! The client library's ordered consumer recreates itself under a fixed name instead. If the servers place that consumer on a
//! server that has just died, they refuse each attempt until that server is back, and the reader gets no error.

use std::time::Duration;

use async_nats::jetstream::{self, Message};
use async_nats::{Subject, Subscriber, header};
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::nats::Stored;

/// The time without a message and without a heartbeat after which the consumer is gone. The servers send a heartbeat after
/// 5 s without a message.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The header of a heartbeat with the subject at which a stalled consumer waits for the reader's sign.
const STALLED: &str = "Nats-Consumer-Stalled";

/// A consumer's messages.
pub(super) struct News {
    subscriber: Subscriber,
    context: jetstream::Context,
    /// Changes with each connection.
    connects: watch::Receiver<u64>,
    /// The messages that came.
    delivered: u64,
    heard: Instant,
    /// Where the consumer waits for a sign that the reader keeps up.
    owed: Option<Subject>,
    /// Whether nothing more counts: a message was lost, or nothing comes.
    ended: bool,
}

impl News {
    /// Reads what a consumer that was just created sends to the subscriber.
    pub(super) fn new(subscriber: Subscriber, context: jetstream::Context, connects: watch::Receiver<u64>) -> Self {
        Self { subscriber, context, connects, delivered: 0, heard: Instant::now(), owed: None, ended: false }
    }

    /// Waits for the next message; returns it, and how many are still to come. `None`: create another consumer. Dropping the
    /// future loses nothing.
    pub(super) async fn next(&mut self) -> Option<(Stored, u64)> {
        while !self.ended {
            if let Some(subject) = self.owed.clone() {
                self.context.client().publish(subject, Vec::new().into()).await.ok()?;
                self.owed = None;
            }
            tokio::select! {
                // What came before the end counts.
                biased;
                message = self.subscriber.next() => {
                    if let Some(next) = self.take(message) {
                        return Some(next);
                    }
                }
                // Some of what was sent to the connection before may be lost.
                _ = self.connects.changed() => self.ended = true,
                () = sleep_until(self.heard + SILENCE_MAX) => self.ended = true,
            }
        }
        None
    }

    /// Returns the next message if it is there already.
    pub(super) fn ready(&mut self) -> Option<(Stored, u64)> {
        while !self.ended && self.owed.is_none() {
            let message = self.subscriber.next().now_or_never()?;
            if let Some(next) = self.take(message) {
                return Some(next);
            }
        }
        None
    }

    /// Takes in what the consumer sent; returns it if it is a message of the stream.
    fn take(&mut self, message: Option<async_nats::Message>) -> Option<(Stored, u64)> {
        self.heard = Instant::now();
        match message {
            Some(message) if message.status.is_some() => {
                self.ended = !self.heartbeat(&message);
                None
            }
            Some(message) => {
                let next = self.stored(message);
                self.ended = next.is_none();
                next
            }
            None => {
                self.ended = true;
                None
            }
        }
    }

    /// Returns a message of the stream, unless one before it was lost.
    fn stored(&mut self, message: async_nats::Message) -> Option<(Stored, u64)> {
        let message = Message { message, context: self.context.clone() };
        let info = message.info().ok().filter(|info| info.consumer_sequence == self.delivered + 1)?;
        let (at, pending) = (info.stream_sequence, info.pending);
        self.delivered += 1;
        let (subject, payload) = (message.subject.to_string(), message.payload.to_vec());
        Some((Stored { at, subject, payload }, pending))
    }

    /// Notes the answer that a heartbeat asks for. Returns whether all that was sent before it came.
    fn heartbeat(&mut self, message: &async_nats::Message) -> bool {
        let said = |name: &str| message.headers.as_ref().and_then(|headers| headers.get_last(name));
        let stalled = said(STALLED).map(|subject| Subject::from(subject.as_str()));
        let sent = said(header::NATS_LAST_CONSUMER.as_ref()).and_then(|sent| sent.as_str().parse().ok());
        self.owed = message.reply.clone().or(stalled);
        sent.is_none_or(|sent: u64| sent == self.delivered)
    }
}
