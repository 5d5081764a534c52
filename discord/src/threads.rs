//! Conversations and the threads that show them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lastword_client::ClientError;
use lastword_proto::Code;
use tokio::time::Instant;

use super::book::{BridgeStore, Place, lost};
use super::names::lineage;
use super::outbox::Outbox;
use super::rest::RestError;
use super::text::title;
use lastword_client::RetryingClient;

/// Longest name of a thread.
const NAME_CHARS_MAX: usize = 100;
/// Most conversations through which a thread is looked for, from a child to whom it came from.
const PARENTS_MAX: usize = 8;

/// How long Discord is not asked again for a thread that it refused: a human may give the permission meanwhile.
const REFUSED: Duration = Duration::from_secs(600);

/// Where conversations are shown.
#[derive(Debug)]
pub(crate) struct Threads {
    book: BridgeStore,
    outbox: Arc<Outbox>,
    refused: Refusals,
}

/// The posts from which Discord would start no thread, and when it is asked again.
#[derive(Debug, Default)]
struct Refusals(Mutex<BTreeMap<u64, Instant>>);

impl Refusals {
    fn note(&self, origin: u64, now: Instant) {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|_, again| *again > now);
        refused.insert(origin, now + REFUSED);
    }

    fn holds(&self, origin: u64, now: Instant) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&origin).is_some_and(|again| *again > now)
    }
}

impl Threads {
    pub(crate) fn new(book: BridgeStore, outbox: Arc<Outbox>) -> Self {
        Self { book, outbox, refused: Refusals::default() }
    }

    /// Where a conversation is shown: its own thread, or that of the one from which it came.
    pub(crate) fn place(&self, reference: &str, parent: Option<&str>) -> rusqlite::Result<Option<Place>> {
        for name in lineage(reference).chain(parent.into_iter().flat_map(lineage)) {
            if let Some(place) = self.book.placed(name)? {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// The same, looked for up to the conversation from which it all came, which the broker knows. What is found is noted:
    /// a REF of its own does not tell from where it came.
    pub(crate) async fn find(
        &self,
        broker: &RetryingClient,
        reference: &str,
        parent: Option<&str>,
    ) -> Result<Option<Place>, ClientError> {
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
                // A conversation that is forgotten came from nowhere.
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

    /// The thread of a place, started where it isn't there yet; its channel where Discord refuses that.
    pub(crate) async fn thread(&self, place: &Place, about: &str) -> Option<u64> {
        if let Some(thread) = place.thread {
            return Some(thread);
        }
        if self.refused.holds(place.origin, Instant::now()) {
            return Some(place.channel);
        }
        let name = title(&format!("{} · {}", place.reference, title(about, NAME_CHARS_MAX)), NAME_CHARS_MAX);
        let start = || self.outbox.broker.start_thread(place.channel, place.origin, &name);
        match self.outbox.persist(start).await {
            Ok(thread) => {
                let noted = self.book.set_thread(&place.reference, thread);
                let noted = noted.and_then(|()| self.book.set_parent(thread, Some(place.channel)));
                noted.is_ok().then_some(thread)
            }
            Err(error) => {
                self.outbox.warn(&format!("{} gets no thread and is shown in its channel. {error}", place.reference));
                self.refused.note(place.origin, Instant::now());
                // Better there than nowhere; and not noted, or the whole channel would be about this conversation.
                Some(place.channel)
            }
        }
    }

    /// The channel in which a thread is; `None` for what is no thread.
    pub(crate) async fn parent(&self, channel: u64) -> Result<Option<u64>, RestError> {
        if let Ok(Some(parent)) = self.book.parent(channel) {
            return Ok(parent);
        }
        let parent = self.outbox.persist(|| self.outbox.broker.channel(channel)).await?.parent();
        self.note_parent(channel, parent);
        Ok(parent)
    }

    pub(crate) fn note_parent(&self, channel: u64, parent: Option<u64>) {
        // What can't be noted is asked again.
        let _noted = self.book.set_parent(channel, parent).is_ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_was_refused_is_asked_for_again_after_a_while() {
        let (refused, now) = (Refusals::default(), Instant::now());
        assert!(!refused.holds(7, now));
        refused.note(7, now);
        assert!(refused.holds(7, now) && !refused.holds(8, now));
        assert!(!refused.holds(7, now + REFUSED));
        refused.note(8, now + REFUSED);
        assert_eq!(refused.0.lock().unwrap().len(), 1, "what is over is forgotten");
    }
}
