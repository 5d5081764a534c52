//! Deliveries that the judge takes for a caller that waits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use lastword_core::Input;
use lastword_core::input::Delivery;
use lastword_facts::ids::AgentId;
use tokio::sync::Notify;

use crate::handle::Handle;
use crate::judge::Release;
use crate::live::Live;
use crate::sync::{Mutex, MutexGuard};
use crate::wakes::Subscription;

/// A caller for which the judge takes deliveries.
pub(crate) trait Takes: Send {
    /// Returns whether the caller has room for another one.
    fn has_room(&self) -> bool;
    /// Returns the input that takes the next delivery; `None` if the caller may take no more.
    fn input(&self) -> Option<Input>;
    /// Prepares a delivery for the caller.
    fn put(&mut self, delivery: Delivery, live: &Live<'_>) -> Release;
    /// Returns whether the caller still has to be woken once there is nothing left to take.
    fn must_wake(&self, live: &Live<'_>) -> bool;
    /// Returns whether the caller has gone.
    fn has_left(&self) -> bool;
}

/// Deliveries that the broker takes for a caller in the step that brings them, so that a message and its delivery are
/// appended together. It ends when dropped; what was taken until then is kept for the agent's next call.
pub struct Receiving<T> {
    handle: Handle,
    agent: AgentId,
    number: u64,
    tray: Arc<Tray<T>>,
    /// How many deliveries the caller got.
    got: u64,
}

/// The deliveries that were taken for a caller and are durable.
struct Tray<T> {
    taken: Mutex<VecDeque<T>>,
    arrived: Notify,
    left: AtomicBool,
    over: AtomicBool,
    /// How many deliveries may be taken in all.
    limit: AtomicU64,
}

impl<T> Tray<T> {
    fn taken(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The judge's side of [`Receiving`].
struct Taker<T, C> {
    tray: Arc<Tray<T>>,
    /// How many deliveries it has taken.
    taken: u64,
    caller: C,
}

/// How deliveries are taken for a caller.
pub trait Receiver<T>: Send + 'static {
    /// Returns the input that takes the next one; `None` if the caller may take no more.
    fn input(&self) -> Option<Input>;
    /// Prepares one for the caller.
    fn put(&self, delivery: Delivery, live: &Live<'_>) -> T;
    /// Returns whether the caller still has to be woken once there is nothing left to take.
    fn must_wake(&self, live: &Live<'_>) -> bool;
}

impl<T: Send + 'static, C: Receiver<T>> Takes for Taker<T, C> {
    fn has_room(&self) -> bool {
        self.taken < self.tray.limit.load(Ordering::Acquire)
    }

    fn input(&self) -> Option<Input> {
        self.caller.input()
    }

    fn put(&mut self, delivery: Delivery, live: &Live<'_>) -> Release {
        self.taken += 1;
        let (taken, tray) = (self.caller.put(delivery, live), Arc::clone(&self.tray));
        Box::new(move || {
            tray.taken().push_back(taken);
            tray.arrived.notify_one();
        })
    }

    fn must_wake(&self, live: &Live<'_>) -> bool {
        self.caller.must_wake(live)
    }

    fn has_left(&self) -> bool {
        self.tray.left.load(Ordering::Acquire)
    }
}

impl<T, C> Drop for Taker<T, C> {
    fn drop(&mut self) {
        self.tray.over.store(true, Ordering::Release);
        self.tray.arrived.notify_one();
    }
}

impl<T: Send + 'static> Receiving<T> {
    /// Takes deliveries of the subscription's agent, once there is room ([`Receiving::allow`]).
    pub fn new(subscription: &Subscription, caller: impl Receiver<T>) -> Self {
        let tray = Arc::new(Tray {
            taken: Mutex::new(VecDeque::new()),
            arrived: Notify::new(),
            left: AtomicBool::new(false),
            over: AtomicBool::new(false),
            limit: AtomicU64::new(0),
        });
        let (handle, agent) = (subscription.handle.clone(), subscription.agent);
        let number = handle.wakes().add_taker(agent, Box::new(Taker { tray: Arc::clone(&tray), taken: 0, caller }));
        Self { handle, agent, number, tray, got: 0 }
    }
}

impl<T> Receiving<T> {
    /// Takes the next delivery that is there.
    pub fn take(&mut self) -> Option<T> {
        let next = self.tray.taken().pop_front();
        self.got += u64::from(next.is_some());
        next
    }

    /// Allows so many deliveries beyond those that the caller got. Those on their way count.
    pub fn allow(&self, room: usize) {
        self.tray.limit.store(self.got + room as u64, Ordering::Release);
    }

    /// Waits for a delivery, or for the end.
    pub async fn arrived(&self) {
        self.tray.arrived.notified().await;
    }

    /// Returns whether no more deliveries are taken.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.tray.over.load(Ordering::Acquire)
    }
}

impl<T> Drop for Receiving<T> {
    fn drop(&mut self) {
        self.tray.left.store(true, Ordering::Release);
        // Dropped here, outside of the lock, which what it holds may need.
        drop(self.handle.wakes().remove_taker(self.agent, self.number));
    }
}

/// A caller for tests.
#[cfg(test)]
pub(crate) mod testing {
    use lastword_core::input::{Consumer, Delivery};
    use lastword_core::{Input, Principal};

    use crate::handle::{Handle, Parcel};
    use crate::live::Live;
    use crate::receiving::Receiver;

    /// Receives for somebody whose turns no answer joins.
    pub(crate) struct Reader(pub(crate) Handle, pub(crate) Principal);

    impl Receiver<Parcel> for Reader {
        fn input(&self) -> Option<Input> {
            Some(Input::Receive(self.1, Consumer::InTurns))
        }

        fn put(&self, delivery: Delivery, _: &Live<'_>) -> Parcel {
            self.0.parcel(self.1.agent(), delivery)
        }

        fn must_wake(&self, _: &Live<'_>) -> bool {
            false
        }
    }
}
