//! The broker's queue: bounded, with a lane for inputs that overtake all others (H4, L4). The judge waits here for
//! commands and for the writer at once.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::Duration;

use crate::faults::{Fault, injected};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// The lane that a command waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Before all others, and never refused when the queue is full: controls, and connections that begin or end.
    Ahead,
    /// In order of arrival, and refused when the queue is full.
    Normal,
}

/// Why a command was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The normal lane is full.
    Saturated,
    /// The queue is closed: the broker is ending or has failed.
    Closed,
}

/// A queue with many producers and one consumer.
pub(crate) struct Queue<T> {
    lanes: Mutex<Lanes<T>>,
    filled: Condvar,
    room: usize,
}

/// What the consumer takes from a queue, and how long it waits for that.
pub(crate) struct Drain {
    /// Most items.
    pub(crate) max: usize,
    /// The longest wait for the first item; `None` waits for as long as it takes.
    pub(crate) wait: Option<Duration>,
    /// Whether a batch is still to be written: an idle writer ends the wait as well.
    pub(crate) pending: bool,
}

struct Lanes<T> {
    ahead: VecDeque<T>,
    normal: VecDeque<T>,
    closed: bool,
    /// Whether the writer has no batch.
    writer_idle: bool,
    /// Whether the judge holds a batch and waits for the writer.
    pending: bool,
    /// Whether the judge sleeps until an item comes. A producer clears the flag and wakes it; a wake is a system call.
    asleep: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new(room: usize) -> Self {
        let lanes = Lanes {
            ahead: VecDeque::new(),
            normal: VecDeque::new(),
            closed: false,
            writer_idle: true,
            pending: false,
            asleep: false,
        };
        Self { lanes: Mutex::new(lanes), filled: Condvar::new(), room }
    }

    pub(crate) fn push(&self, lane: Lane, item: T) -> Result<(), Full> {
        if injected(Fault::WakeBeforePush) {
            self.filled.notify_one();
        }
        let mut lanes = self.lock();
        if lanes.closed {
            return Err(Full::Closed);
        }
        match lane {
            Lane::Ahead => lanes.ahead.push_back(item),
            Lane::Normal if lanes.normal.len() >= self.room => return Err(Full::Saturated),
            Lane::Normal => lanes.normal.push_back(item),
        }
        let asleep = std::mem::take(&mut lanes.asleep);
        // Unlocked before the wake, so that the judge doesn't wake only to wait for the lock.
        drop(lanes);
        if asleep && !injected(Fault::WakeBeforePush) {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Moves items into `batch`; `false` once the queue is closed and empty.
    pub(crate) fn drain(&self, batch: &mut Vec<T>, Drain { max, wait, pending }: Drain) -> bool {
        let nothing_to_do = |lanes: &mut Lanes<T>| {
            let moves = max > 0 && !lanes.is_empty();
            // With a full batch (`max` is 0) the writer is all there is to wait for.
            let writes = pending && lanes.writer_idle;
            // A closed queue must not end the wait while a batch is still to be written.
            let ends = !pending && lanes.closed;
            let sleeps = !(moves || writes || ends);
            lanes.asleep = sleeps && max > 0;
            sleeps
        };
        let mut lanes = self.lock();
        lanes.pending = pending;
        let mut lanes = match wait {
            None => self.filled.wait_while(lanes, nothing_to_do).unwrap_or_else(PoisonError::into_inner),
            Some(wait) => {
                self.filled.wait_timeout_while(lanes, wait, nothing_to_do).unwrap_or_else(PoisonError::into_inner).0
            }
        };
        // The wait may have timed out.
        lanes.asleep = false;
        let ahead = lanes.ahead.len().min(max);
        batch.extend(lanes.ahead.drain(..ahead));
        let normal = lanes.normal.len().min(max - ahead);
        batch.extend(lanes.normal.drain(..normal));
        !(lanes.closed && batch.is_empty() && lanes.is_empty())
    }

    /// Marks the writer as idle and wakes the judge if it waits for that.
    pub(crate) fn mark_writer_idle(&self) {
        let asked_before = injected(Fault::AskBeforeIdle).then(|| self.lock().pending);
        let mut lanes = self.lock();
        lanes.writer_idle = true;
        let awaited = asked_before.unwrap_or(lanes.pending);
        drop(lanes);
        // Without a pending batch the judge has nothing to hand over, so the wake is saved.
        if awaited && !injected(Fault::IdleWithoutWake) {
            self.filled.notify_one();
        }
    }

    /// Takes the writer if it is idle, unless the batch isn't `full` and commands that could join it are queued. Counts
    /// the writer as busy from then on.
    pub(crate) fn take_writer(&self, full: bool) -> bool {
        let mut lanes = self.lock();
        let takes = lanes.writer_idle && (full || lanes.is_empty());
        lanes.writer_idle &= !takes;
        takes
    }

    /// Refuses further items. Those already queued can still be drained.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
    }

    /// Drops all queued items.
    pub(crate) fn clear(&self) {
        let mut lanes = self.lock();
        lanes.ahead.clear();
        lanes.normal.clear();
    }

    pub(crate) fn depth(&self) -> usize {
        let lanes = self.lock();
        lanes.ahead.len() + lanes.normal.len()
    }

    fn lock(&self) -> MutexGuard<'_, Lanes<T>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Lanes<T> {
    fn is_empty(&self) -> bool {
        self.ahead.is_empty() && self.normal.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_and_controls_go_ahead() {
        let queue = Queue::new(2);
        assert_eq!(queue.push(Lane::Normal, 1), Ok(()));
        assert_eq!(queue.push(Lane::Normal, 2), Ok(()));
        assert_eq!(queue.push(Lane::Normal, 3), Err(Full::Saturated));
        assert_eq!(queue.push(Lane::Ahead, 4), Ok(()));
        let mut batch = Vec::new();
        assert!(queue.drain(&mut batch, Drain { max: 2, wait: None, pending: false }));
        assert_eq!(batch, [4, 1]);
        queue.close();
        assert_eq!(queue.push(Lane::Ahead, 5), Err(Full::Closed));
        batch.clear();
        assert!(queue.drain(&mut batch, Drain { max: 2, wait: None, pending: false }));
        assert_eq!(batch, [2]);
        batch.clear();
        assert!(!queue.drain(&mut batch, Drain { max: 2, wait: None, pending: false }));
    }

    #[test]
    fn what_waits_when_the_queue_is_closed_is_not_its_end() {
        let queue = Queue::new(2);
        assert_eq!(queue.push(Lane::Normal, 1), Ok(()));
        queue.close();
        let mut batch = Vec::new();
        assert!(queue.drain(&mut batch, Drain { max: 0, wait: None, pending: true }), "there was no room for it");
        assert!(queue.drain(&mut batch, Drain { max: 1, wait: None, pending: false }));
        assert_eq!(batch, [1]);
        batch.clear();
        assert!(!queue.drain(&mut batch, Drain { max: 1, wait: None, pending: false }));
    }

    #[test]
    fn the_writer_is_taken_when_nothing_waits_or_the_batch_is_full() {
        let queue = Queue::new(2);
        assert_eq!(queue.push(Lane::Normal, 1), Ok(()));
        assert!(!queue.take_writer(false), "what waits goes along");
        assert!(queue.take_writer(true));
        assert!(!queue.take_writer(true), "it is busy");
        queue.mark_writer_idle();
        assert!(queue.drain(&mut Vec::new(), Drain { max: 1, wait: None, pending: false }));
        assert!(queue.take_writer(false));
    }
}
