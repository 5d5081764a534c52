//! What goes on in a workspace beside its calls: a cluster lets a workspace rest when nobody calls and this is done.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lastword_facts::Time;

/// What is under way, and what is planned for later.
#[derive(Debug, Default)]
pub struct Errands {
    open: AtomicUsize,
    planned: Mutex<BTreeMap<&'static str, Time>>,
}

/// Something that is under way until this is dropped.
#[derive(Debug)]
pub struct Errand(Arc<Errands>);

impl Drop for Errand {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Errands {
    /// Counts something as under way.
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> Errand {
        self.open.fetch_add(1, Ordering::AcqRel);
        Errand(Arc::clone(self))
    }

    /// Notes when `what` goes on, by the broker's time; `None` if it waits for facts alone.
    pub fn plan(&self, what: &'static str, at: Option<Time>) {
        let mut planned = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        match at {
            Some(at) => drop(planned.insert(what, at)),
            None => drop(planned.remove(what)),
        }
    }

    /// Returns whether anything is under way.
    pub(super) fn any(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// Returns when the first of what is planned goes on.
    pub(super) fn next(&self) -> Option<Time> {
        self.planned.lock().unwrap_or_else(PoisonError::into_inner).values().min().copied()
    }
}

/// What a workspace has to do next if nobody calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agenda {
    /// The broker's time.
    pub now: Time,
    /// When something is due: a timer, a schedule's tick, a notification. `None` if nothing ever is.
    pub next: Option<Time>,
    /// Whether something is under way: a notification that is being sent, a span that isn't exported yet.
    pub busy: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_ends_and_what_is_planned_comes_in_order() {
        let errands = Arc::new(Errands::default());
        let (one, two) = (errands.begin(), errands.begin());
        drop(one);
        assert!(errands.any());
        drop(two);
        assert!(!errands.any() && errands.next().is_none());
        errands.plan("notifications", Some(Time(9)));
        errands.plan("reports", Some(Time(7)));
        assert_eq!(errands.next(), Some(Time(7)));
        errands.plan("reports", None);
        assert_eq!(errands.next(), Some(Time(9)));
    }
}
