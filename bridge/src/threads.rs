//! Finds and starts the threads that show conversations.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lastword_client::ClientError;
use lastword_facts::Code;
use tokio::time::Instant;

use super::book::{BridgeStore, ThreadPlace, lost};
use super::ids::{ChannelId, PostId};
use super::names::lineage;
use super::outbox::Outbox;
use super::platform::{PlatformError, Spot};
use super::text::title;
use lastword_client::RetryingClient;

/// Most conversations followed from a child to its parent in search of a thread.
const PARENTS_MAX: usize = 8;

/// How long the platform isn't asked again for a refused thread: a human may grant the permission meanwhile.
const REFUSED: Duration = Duration::from_secs(600);

/// Finds where conversations are shown.
#[derive(Debug)]
pub(crate) struct Threads {
    book: BridgeStore,
    outbox: Arc<Outbox>,
    refused: Refusals,
}

/// The posts from which no thread could be started, and when to ask again.
#[derive(Debug, Default)]
struct Refusals(Mutex<BTreeMap<PostId, Instant>>);

impl Refusals {
    fn note(&self, origin: PostId, now: Instant) {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|_, again| *again > now);
        refused.insert(origin, now + REFUSED);
    }

    fn holds(&self, origin: PostId, now: Instant) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&origin).is_some_and(|again| *again > now)
    }
}

impl Threads {
    pub(crate) fn new(book: BridgeStore, outbox: Arc<Outbox>) -> Self {
        Self { book, outbox, refused: Refusals::default() }
    }

    /// Returns where a conversation is shown: its own thread, or that of a parent by name.
    pub(crate) fn place(&self, reference: &str, parent: Option<&str>) -> rusqlite::Result<Option<ThreadPlace>> {
        for name in lineage(reference).chain(parent.into_iter().flat_map(lineage)) {
            if let Some(place) = self.book.placed(name)? {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Like [`Threads::place`], but asks the broker for parents that the REF doesn't name. The result is stored.
    pub(crate) async fn find(
        &self,
        broker: &RetryingClient,
        reference: &str,
        parent: Option<&str>,
    ) -> Result<Option<ThreadPlace>, ClientError> {
        let mut next = reference.to_owned();
        let mut parent = parent.map(str::to_owned);
        for _ in 0..PARENTS_MAX {
            if let Some(place) = self.place(&next, parent.as_deref()).map_err(lost)? {
                if self.place(reference, None).map_err(lost)?.is_none() {
                    self.book.join(reference, &place.reference).map_err(lost)?;
                }
                return Ok(Some(place));
            }
            if let Some(parent) = parent.take() {
                next = parent;
            }
            let known = match broker.persist(|| broker.client().conversation(&next)).await {
                // A forgotten conversation has no known parent.
                Err(ClientError::Refused(problem)) if problem.code != Code::Unauthenticated => return Ok(None),
                known => known?,
            };
            match known.summary.parent_ref {
                Some(parent) => next = parent,
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Returns a place's thread, started if needed; the channel if that is refused.
    pub(crate) async fn thread(&self, place: &ThreadPlace, about: &str) -> Option<ChannelId> {
        if let Some(thread) = place.thread {
            return Some(thread);
        }
        if self.refused.holds(place.origin, Instant::now()) {
            return Some(place.channel);
        }
        let platform = &self.outbox.platform;
        let chars_max = platform.dialect().thread_chars_max;
        let name = title(&format!("{} · {}", place.reference, title(about, chars_max)), chars_max);
        let start = || platform.start_thread(Spot { channel: place.channel, post: place.origin }, &name);
        match self.outbox.persist(start).await {
            Ok(thread) => {
                let noted = self.book.set_thread(&place.reference, thread);
                let noted = noted.and_then(|()| self.book.set_parent(thread, Some(place.channel)));
                noted.is_ok().then_some(thread)
            }
            Err(error) => {
                self.outbox.warn(&format!("{} gets no thread and is shown in its channel. {error}", place.reference));
                self.refused.note(place.origin, Instant::now());
                // Not stored: otherwise the whole channel would show this conversation.
                Some(place.channel)
            }
        }
    }

    /// Returns a thread's channel; `None` if the id isn't a thread.
    pub(crate) async fn parent(&self, channel: ChannelId) -> Result<Option<ChannelId>, PlatformError> {
        if let Ok(Some(parent)) = self.book.parent(channel) {
            return Ok(parent);
        }
        let parent = self.outbox.persist(|| self.outbox.platform.channel(channel)).await?.parent;
        self.note_parent(channel, parent);
        Ok(parent)
    }

    pub(crate) fn note_parent(&self, channel: ChannelId, parent: Option<ChannelId>) {
        // If it can't be stored, it is read again next time.
        let _noted = self.book.set_parent(channel, parent).is_ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_was_refused_is_asked_for_again_after_a_while() {
        let (refused, now) = (Refusals::default(), Instant::now());
        assert!(!refused.holds(PostId::new(7), now));
        refused.note(PostId::new(7), now);
        assert!(refused.holds(PostId::new(7), now) && !refused.holds(PostId::new(8), now));
        assert!(!refused.holds(PostId::new(7), now + REFUSED));
        refused.note(PostId::new(8), now + REFUSED);
        assert_eq!(refused.0.lock().unwrap().len(), 1, "what is over is forgotten");
    }
}
