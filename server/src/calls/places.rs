//! The places of session calls in the broker's queue: the calls of all agents' sessions together never fill it, and those
//! of one agent leave room for the others'.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use lastword_facts::ids::AgentId;
use tokio::sync::Notify;

/// The most calls of agents' sessions that are carried out at a time; further ones wait for their turn. A call that waits for
/// an answer or a decision doesn't count.
pub(crate) const PLACES_MAX: isize = 2_048;

/// The most of them that one agent's sessions have.
const SHARE_MAX: isize = PLACES_MAX / 4;

/// The places of a session's calls: those of all agents, and within them the agent's share.
#[derive(Debug)]
pub(crate) struct Places {
    share: Arc<Pool>,
    all: Arc<Pool>,
}

/// The places of all agents' sessions.
#[derive(Debug)]
pub(crate) struct AllPlaces {
    all: Arc<Pool>,
    shares: Mutex<BTreeMap<AgentId, Weak<Pool>>>,
}

/// A bounded number of places.
#[derive(Debug)]
struct Pool {
    taken: AtomicIsize,
    max: isize,
    freed: Notify,
}

/// A taken place; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Place {
    _share: Taken,
    _all: Taken,
}

#[derive(Debug)]
struct Taken(Arc<Pool>);

/// A pause of a call that has a place.
#[derive(Debug)]
pub(crate) struct Away<'a> {
    share: AwayFrom<'a>,
    all: AwayFrom<'a>,
}

#[derive(Debug)]
struct AwayFrom<'a> {
    pool: &'a Pool,
    back: bool,
}

impl AllPlaces {
    pub(crate) fn new() -> Self {
        Self { all: Pool::new(PLACES_MAX), shares: Mutex::default() }
    }

    /// Returns the places of an agent's session. The sessions of one agent share a part of all.
    pub(crate) fn of(&self, agent: AgentId) -> Arc<Places> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        shares.retain(|_, share| share.strong_count() > 0);
        let share = shares.get(&agent).and_then(Weak::upgrade).unwrap_or_else(|| Pool::new(SHARE_MAX));
        shares.insert(agent, Arc::downgrade(&share));
        Arc::new(Places { share, all: Arc::clone(&self.all) })
    }
}

impl Places {
    /// Takes a place as soon as one is free.
    pub(crate) async fn enter(&self) -> Place {
        // The share first, so that an agent that has used it up takes no place from the others while it waits.
        Place { _share: self.share.enter().await, _all: self.all.enter().await }
    }

    /// Gives the caller's place back for as long as the returned pause lasts.
    pub(crate) fn leave_a_while(&self) -> Away<'_> {
        Away { share: self.share.leave_a_while(), all: self.all.leave_a_while() }
    }
}

impl Pool {
    fn new(max: isize) -> Arc<Self> {
        Arc::new(Self { taken: AtomicIsize::new(0), max, freed: Notify::new() })
    }

    async fn enter(self: &Arc<Self>) -> Taken {
        self.take().await;
        Taken(Arc::clone(self))
    }

    async fn take(&self) {
        loop {
            let mut freed = pin!(self.freed.notified());
            // Listen before looking: a place that is freed between the two still wakes.
            freed.as_mut().enable();
            let free = |taken| (taken < self.max).then_some(taken + 1);
            if self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).is_ok() {
                return;
            }
            freed.await;
        }
    }

    fn leave_a_while(&self) -> AwayFrom<'_> {
        self.leave();
        AwayFrom { pool: self, back: false }
    }

    fn leave(&self) {
        self.taken.fetch_sub(1, Ordering::AcqRel);
        self.freed.notify_one();
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Away<'_> {
    /// Ends the pause as soon as a place is free.
    pub(crate) async fn end(self) {
        self.share.end().await;
        self.all.end().await;
    }
}

impl AwayFrom<'_> {
    async fn end(mut self) {
        self.pool.take().await;
        self.back = true;
    }
}

impl Drop for AwayFrom<'_> {
    fn drop(&mut self) {
        if !self.back {
            // The call was given up: its place is about to be given back, which has to be one that counts.
            self.pool.taken.fetch_add(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn places(max: isize) -> Places {
        Places { share: Pool::new(SHARE_MAX), all: Pool::new(max) }
    }

    fn taken(places: &Places) -> isize {
        places.all.taken.load(Ordering::Acquire)
    }

    #[tokio::test]
    async fn calls_beyond_the_places_wait_and_paused_ones_do_not_count() {
        let places = places(1);
        let first = places.enter().await;
        assert!(places.enter().now_or_never().is_none());
        let away = places.leave_a_while();
        let second = places.enter().now_or_never().unwrap();
        let mut back = Box::pin(away.end());
        assert!(back.as_mut().now_or_never().is_none(), "a call comes back only where there is a place");
        drop(second);
        back.await;
        assert!(places.enter().now_or_never().is_none());
        // A call that is given up in a pause gives back what it took.
        let away = places.leave_a_while();
        drop((away, first));
        assert_eq!(taken(&places), 0);
    }

    #[tokio::test]
    async fn a_freed_place_wakes_one_that_waits() {
        let places = places(1);
        let held = places.enter().await;
        let mut waiting = Box::pin(places.enter());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(held);
        drop(waiting.await);
        assert_eq!(taken(&places), 0);
    }

    #[tokio::test]
    async fn the_sessions_of_one_agent_leave_room_for_the_others() {
        let all = AllPlaces::new();
        let (one, same, other) = (all.of(AgentId(1)), all.of(AgentId(1)), all.of(AgentId(2)));
        let mut held = Vec::new();
        while let Some(place) = [&one, &same][held.len() % 2].enter().now_or_never() {
            held.push(place);
        }
        assert_eq!(held.len(), usize::try_from(SHARE_MAX).unwrap());
        assert!(other.enter().now_or_never().is_some());
        let away = one.leave_a_while();
        assert!(same.enter().now_or_never().is_some(), "a call that waits for an answer has no place of the share");
        drop((away, held));
        assert_eq!(taken(&one), 0);
        drop((one, same));
        drop(all.of(AgentId(3)));
        assert_eq!(all.shares.lock().unwrap().len(), 2, "an agent without a session is forgotten");
    }
}
