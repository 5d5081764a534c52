//! The places of session calls in the broker's queue: the calls of all agents' sessions together never fill it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

use tokio::sync::Notify;

/// The most calls of agents' sessions that are carried out at a time; further ones wait for their turn. A call that waits for
/// an answer or a decision doesn't count.
pub(crate) const PLACES_MAX: isize = 2_048;

/// A bounded number of places.
#[derive(Debug)]
pub(crate) struct Places {
    taken: AtomicIsize,
    max: isize,
    freed: Notify,
}

/// A taken place; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Place(Arc<Places>);

/// A pause of a call that has a place.
#[derive(Debug)]
pub(crate) struct Away<'a> {
    places: &'a Places,
    back: bool,
}

impl Places {
    pub(crate) fn new(max: isize) -> Arc<Self> {
        Arc::new(Self { taken: AtomicIsize::new(0), max, freed: Notify::new() })
    }

    /// Takes a place as soon as one is free.
    pub(crate) async fn enter(self: &Arc<Self>) -> Place {
        self.take().await;
        Place(Arc::clone(self))
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

    /// Gives the caller's place back for as long as the returned pause lasts.
    pub(crate) fn leave_a_while(&self) -> Away<'_> {
        self.leave();
        Away { places: self, back: false }
    }

    fn leave(&self) {
        self.taken.fetch_sub(1, Ordering::AcqRel);
        self.freed.notify_one();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Away<'_> {
    /// Ends the pause as soon as a place is free.
    pub(crate) async fn end(mut self) {
        self.places.take().await;
        self.back = true;
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        if !self.back {
            // The call was given up: its place is about to be given back, which has to be one that counts.
            self.places.taken.fetch_add(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn calls_beyond_the_places_wait_and_paused_ones_do_not_count() {
        let places = Places::new(1);
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
        assert_eq!(places.taken.load(Ordering::Acquire), 0);
    }

    #[tokio::test]
    async fn a_freed_place_wakes_one_that_waits() {
        let places = Places::new(1);
        let held = places.enter().await;
        let mut waiting = Box::pin(places.enter());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(held);
        drop(waiting.await);
        assert_eq!(places.taken.load(Ordering::Acquire), 0);
    }
}
