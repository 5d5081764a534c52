//! Reactions that say how far a request is, on the post that asked for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lastword_client::ClientError;
use lastword_client::wire::StoredMessage;
use lastword_proto::AnswerStatus;

use super::book::lost;
use super::bridge::BridgeContext;
use super::names::post_of;

const QUEUED: &str = "⏳";
const TAKEN: &str = "👀";
const WAITS_FOR_A_HUMAN: &str = "✋";
const DONE: &str = "✅";
const FAILED: &str = "❌";
/// Most posts with a sign that is to be taken back; more get none.
const POSTS_MAX: usize = 1_000;

/// A post, and the channel or thread that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    channel: u64,
    post: u64,
}

/// The signs that are to be taken back; a restart forgets those of queued requests.
#[derive(Debug, Default)]
pub(crate) struct Signs(Mutex<Shown>);

#[derive(Debug, Default)]
struct Shown {
    /// By post: the agent that has its request in its queue.
    queued: BTreeMap<u64, String>,
    /// By post: the held calls and questions that wait for a human.
    waiting: BTreeMap<u64, BTreeSet<String>>,
}

impl Signs {
    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a queued request; returns whether it gets a sign.
    fn queue(&self, post: u64, agent: &str) -> bool {
        let mut shown = self.shown();
        let room = shown.queued.len() < POSTS_MAX;
        room && shown.queued.insert(post, agent.to_owned()).is_none()
    }

    /// Returns the agent whose sign is to be taken back.
    fn unqueue(&self, post: u64) -> Option<String> {
        self.shown().queued.remove(&post)
    }

    /// Notes that a matter waits; returns whether the post gets the sign now.
    fn wait(&self, post: u64, id: &str) -> bool {
        let mut shown = self.shown();
        if !shown.waiting.contains_key(&post) && shown.waiting.len() >= POSTS_MAX {
            return false;
        }
        let waiting = shown.waiting.entry(post).or_default();
        waiting.insert(id.to_owned()) && waiting.len() == 1
    }

    /// Notes that a matter is settled; returns whether the sign is to be taken back: nothing else waits.
    fn settle(&self, post: u64, id: &str) -> bool {
        let mut shown = self.shown();
        let Some(waiting) = shown.waiting.get_mut(&post) else { return true };
        waiting.remove(id);
        let last = waiting.is_empty();
        if last {
            shown.waiting.remove(&post);
        }
        last
    }
}

/// Returns the human's post that a message's request came from.
pub(crate) fn origin(shared: &BridgeContext, message: &StoredMessage) -> Option<Spot> {
    let post = message.request_id.as_deref().and_then(post_of)?;
    let place = shared.book.placed(&message.reference).ok()??;
    // The post that started the thread is in the channel; later ones are in the thread.
    let channel = if place.origin == post { place.channel } else { place.thread? };
    Some(Spot { channel, post })
}

impl Spot {
    /// Returns the post, if it is in this channel.
    pub(crate) fn within(self, channel: u64) -> Option<u64> {
        (self.channel == channel).then_some(self.post)
    }

    /// Adds a sign; losing one doesn't matter.
    async fn sign(self, shared: &BridgeContext, agent: &str, sign: &str) {
        if let Some(rest) = shared.outbox.agents.get(agent) {
            let _shown = rest.react(self.channel, self.post, sign).await.is_ok();
        }
    }

    async fn unsign(self, shared: &BridgeContext, agent: &str, sign: &str) {
        if let Some(rest) = shared.outbox.agents.get(agent) {
            let _gone = rest.unreact(self.channel, self.post, sign).await.is_ok();
        }
    }
}

/// Shows that a request waits for its agent.
pub(crate) async fn queued(shared: &BridgeContext, agent: &str, spot: Spot) {
    if shared.signs.queue(spot.post, agent) {
        spot.sign(shared, agent, QUEUED).await;
    }
}

/// Shows that a request doesn't wait any more.
pub(crate) async fn unqueued(shared: &BridgeContext, spot: Spot) {
    if let Some(agent) = shared.signs.unqueue(spot.post) {
        spot.unsign(shared, &agent, QUEUED).await;
    }
}

/// Shows that an agent works, and types.
pub(crate) async fn at_work(shared: &BridgeContext, agent: &str, message: &StoredMessage, thread: u64) {
    let Some(rest) = shared.outbox.agents.get(agent) else { return };
    let _typing = rest.typing(thread).await.is_ok();
    if let Some(spot) = origin(shared, message) {
        spot.sign(shared, agent, TAKEN).await;
        unqueued(shared, spot).await;
    }
}

/// Shows a request's outcome.
pub(crate) async fn answered(shared: &BridgeContext, message: &StoredMessage) {
    let (Some(spot), Some(status)) = (origin(shared, message), message.status) else { return };
    let sign = if status == AnswerStatus::Completed { DONE } else { FAILED };
    spot.sign(shared, &message.from, sign).await;
    unqueued(shared, spot).await;
}

/// Shows on a conversation's first post whether a held call or question of an agent waits for a human.
pub(crate) async fn waits(
    shared: &BridgeContext,
    (id, agent, reference): (&str, &str, &str),
    settled: bool,
) -> Result<(), ClientError> {
    if !shared.outbox.agents.contains_key(agent) {
        return Ok(());
    }
    let Some(place) = shared.threads.place(reference, None).map_err(lost)? else { return Ok(()) };
    let spot = Spot { channel: place.channel, post: place.origin };
    if settled && shared.signs.settle(spot.post, id) {
        spot.unsign(shared, agent, WAITS_FOR_A_HUMAN).await;
    } else if !settled && shared.signs.wait(spot.post, id) {
        spot.sign(shared, agent, WAITS_FOR_A_HUMAN).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_post_waits_for_a_human_until_its_last_matter_is_settled() {
        let signs = Signs::default();
        assert!(signs.wait(7, "apr-1") && !signs.wait(7, "apr-1") && !signs.wait(7, "esc-1"));
        assert!(!signs.settle(7, "apr-1") && signs.settle(7, "esc-1"));
        assert!(signs.settle(7, "apr-2"), "shown before a restart");
        assert!(signs.queue(7, "kilo") && !signs.queue(7, "kilo"));
        assert_eq!((signs.unqueue(7).as_deref(), signs.unqueue(7)), (Some("kilo"), None));
    }
}
