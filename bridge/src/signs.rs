//! Reactions that say how far a request is, on the post that asked for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lastword_client::ClientError;
use lastword_client::wire::StoredMessage;
use lastword_facts::AnswerStatus;
use rusqlite::params;

use super::book::{BridgeStore, Kept, lost};
use super::bridge::BridgeContext;
use super::ids::{ChannelId, PostId};
use super::platform::{Poster, Spot};

const QUEUED: &str = "⏳";
const TAKEN: &str = "👀";
const WAITS_FOR_A_HUMAN: &str = "✋";
const DONE: &str = "✅";
const FAILED: &str = "❌";
/// Most posts noted with the sign of a queued request.
const QUEUED_MAX: u32 = 1_000;
/// Most posts noted with the sign of something that waits for a human; more get none.
const POSTS_MAX: usize = 1_000;

/// A held call or question, its agent and its conversation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matter<'a> {
    pub(crate) id: &'a str,
    pub(crate) agent: &'a str,
    pub(crate) reference: &'a str,
}

/// By post: the held calls and questions that wait for a human. After a restart the cards tell of them again; queued
/// requests are in the bridge's file.
#[derive(Debug, Default)]
pub(crate) struct Signs(Mutex<Waiting>);

type Waiting = BTreeMap<PostId, BTreeSet<String>>;

impl Signs {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a matter waits; returns whether the post gets the sign now.
    fn wait(&self, post: PostId, id: &str) -> bool {
        let mut posts = self.waiting();
        if !posts.contains_key(&post) && posts.len() >= POSTS_MAX {
            return false;
        }
        let waiting = posts.entry(post).or_default();
        waiting.insert(id.to_owned()) && waiting.len() == 1
    }

    /// Notes that a matter is settled; returns whether the sign is to be taken back: nothing else waits.
    fn settle(&self, post: PostId, id: &str) -> bool {
        let mut posts = self.waiting();
        let Some(waiting) = posts.get_mut(&post) else { return true };
        waiting.remove(id);
        let last = waiting.is_empty();
        if last {
            posts.remove(&post);
        }
        last
    }
}

/// Returns the human's post that a message's request came from.
pub(crate) fn origin(shared: &BridgeContext, message: &StoredMessage) -> Option<Spot> {
    let post = message.request_id.as_deref().and_then(|id| shared.dialect.post_of(id))?;
    let place = shared.book.placed(&message.reference).ok()??;
    // The post that started the thread is in the channel; later ones are in the thread.
    let channel = if place.origin == post { place.channel } else { place.thread? };
    Some(Spot { channel, post })
}

impl Spot {
    /// Returns the post, if it is in this channel.
    pub(crate) fn within(self, channel: ChannelId) -> Option<PostId> {
        (self.channel == channel).then_some(self.post)
    }

    /// Adds a sign; losing one doesn't matter.
    async fn sign(self, shared: &BridgeContext, agent: &str, sign: &str) {
        if shared.outbox.agents.contains_key(agent) {
            let _shown = shared.platform.sign(&Poster::Agent(agent.to_owned()), self, sign).await.is_ok();
        }
    }

    async fn unsign(self, shared: &BridgeContext, agent: &str, sign: &str) {
        if shared.outbox.agents.contains_key(agent) {
            let _gone = shared.platform.unsign(&Poster::Agent(agent.to_owned()), self, sign).await.is_ok();
        }
    }
}

/// Shows that a request waits for its agent.
pub(crate) async fn queued(shared: &BridgeContext, agent: &str, spot: Spot) {
    if shared.book.queue(spot.post, agent).unwrap_or(false) {
        spot.sign(shared, agent, QUEUED).await;
    }
}

/// Shows that a request doesn't wait any more.
pub(crate) async fn unqueued(shared: &BridgeContext, spot: Spot) {
    if let Some(agent) = shared.book.queued(spot.post).ok().flatten() {
        taken_back(shared, &agent, spot).await;
    }
}

/// Takes back the sign of a queued request.
pub(crate) async fn taken_back(shared: &BridgeContext, agent: &str, spot: Spot) {
    spot.unsign(shared, agent, QUEUED).await;
    // Only now: a bridge that is killed in between finds the sign again with the event that ended the wait.
    if let Err(error) = shared.book.unqueue(spot.post) {
        shared.outbox.warn(&lost(error).to_string());
    }
}

/// Shows that an agent works, and types.
pub(crate) async fn at_work(shared: &BridgeContext, agent: &str, message: &StoredMessage, thread: ChannelId) {
    if !shared.outbox.agents.contains_key(agent) {
        return;
    }
    let _typing = shared.platform.typing(&Poster::Agent(agent.to_owned()), thread).await.is_ok();
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
pub(crate) async fn waits(shared: &BridgeContext, matter: Matter<'_>, settled: bool) -> Result<(), ClientError> {
    let Matter { id, agent, reference } = matter;
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

impl BridgeStore {
    /// Notes a queued request, in place of the oldest if there are too many; returns whether it is new.
    fn queue(&self, post: PostId, agent: &str) -> Kept<bool> {
        let mut db = self.db();
        let change = db.transaction()?;
        let new =
            change.prepare_cached("INSERT OR IGNORE INTO queued VALUES (?1, ?2)")?.execute(params![post, agent])?;
        change
            .prepare_cached(
                "DELETE FROM queued WHERE post <= (SELECT post FROM queued ORDER BY post DESC LIMIT 1 OFFSET ?1)",
            )?
            .execute([QUEUED_MAX])?;
        change.commit()?;
        Ok(new == 1)
    }

    /// Returns the agent whose sign of a queued request is on a post.
    fn queued(&self, post: PostId) -> Kept<Option<String>> {
        self.first("SELECT agent FROM queued WHERE post = ?1", [post], |row| row.get(0))
    }

    fn unqueue(&self, post: PostId) -> Kept<()> {
        self.change("DELETE FROM queued WHERE post = ?1", [post])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_post_waits_for_a_human_until_its_last_matter_is_settled() {
        let (signs, post) = (Signs::default(), PostId::new(7));
        assert!(signs.wait(post, "apr-1") && !signs.wait(post, "apr-1") && !signs.wait(post, "esc-1"));
        assert!(!signs.settle(post, "apr-1") && signs.settle(post, "esc-1"));
        assert!(signs.settle(post, "apr-2"), "shown before a restart");
    }

    #[test]
    fn a_queued_request_is_noted_once_and_the_oldest_makes_room() {
        let book = BridgeStore::in_memory().unwrap();
        assert!(book.queue(PostId::new(7), "kilo").unwrap() && !book.queue(PostId::new(7), "kilo").unwrap());
        assert_eq!(book.queued(PostId::new(7)).unwrap().as_deref(), Some("kilo"));
        book.unqueue(PostId::new(7)).unwrap();
        assert_eq!(book.queued(PostId::new(7)).unwrap(), None);
        for post in 1..=u64::from(QUEUED_MAX) + 1 {
            book.queue(PostId::new(post), "kilo").unwrap();
        }
        assert_eq!(
            (book.queued(PostId::new(1)).unwrap(), book.queued(PostId::new(2)).unwrap().as_deref()),
            (None, Some("kilo"))
        );
    }
}
