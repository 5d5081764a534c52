//! Who waits for what: a hint channel for each agent that is connected, and for approvals.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lastword_proto::Input;
use lastword_proto::ids::AgentId;
use tokio::sync::Notify;

use super::Handle;

/// The hint channels. A hint that is lost costs time only: what it hints at is in the state.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    slots: Mutex<BTreeMap<AgentId, Slot>>,
    /// Rings when an approval is decided.
    pub(crate) approvals: Notify,
}

#[derive(Debug, Default)]
struct Slot {
    bell: Arc<Notify>,
    waiting: usize,
    attached: usize,
}

impl Wakes {
    pub(crate) fn wake(&self, agent: AgentId) {
        if let Some(slot) = self.lock().get(&agent) {
            slot.bell.notify_waiters();
        }
    }

    pub(crate) fn wake_all(&self) {
        for slot in self.lock().values() {
            slot.bell.notify_waiters();
        }
    }

    pub(crate) fn is_attached(&self, agent: AgentId) -> bool {
        self.lock().get(&agent).is_some_and(|slot| slot.attached > 0)
    }

    fn enter(&self, agent: AgentId) -> Arc<Notify> {
        let mut slots = self.lock();
        let slot = slots.entry(agent).or_default();
        slot.waiting += 1;
        Arc::clone(&slot.bell)
    }

    /// Counts a connection. The core is told under the lock, so that it hears of a beginning and an end
    /// in the order in which they were counted.
    fn attach(&self, agent: AgentId, tell: impl FnOnce()) {
        let mut slots = self.lock();
        let slot = slots.entry(agent).or_default();
        slot.attached += 1;
        if slot.attached == 1 {
            tell();
        }
    }

    fn leave(&self, agent: AgentId, attached: bool, tell: impl FnOnce()) {
        let mut slots = self.lock();
        let Some(slot) = slots.get_mut(&agent) else { return };
        slot.waiting -= 1;
        slot.attached -= usize::from(attached);
        if attached && slot.attached == 0 {
            tell();
        }
        if slot.waiting == 0 {
            slots.remove(&agent);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AgentId, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection of an agent that waits; ends when it is dropped, however that comes about.
pub(crate) struct Subscription {
    handle: Handle,
    agent: AgentId,
    bell: Arc<Notify>,
    attached: bool,
}

impl Subscription {
    /// Waits for wakes of `agent`, without counting as its connection.
    pub(crate) fn new(handle: &Handle, agent: AgentId) -> Self {
        let bell = handle.wakes().enter(agent);
        Self { handle: handle.clone(), agent, bell, attached: false }
    }

    /// Counts as a connection of the agent from now on (Q2).
    pub(crate) fn attach(&mut self) {
        if !self.attached {
            self.attached = true;
            self.handle.wakes().attach(self.agent, || self.handle.cast(Input::Attach(self.agent, true)));
        }
    }

    /// The channel on which the hints come.
    pub(crate) fn bell(&self) -> Arc<Notify> {
        Arc::clone(&self.bell)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let tell = || self.handle.cast(Input::Attach(self.agent, false));
        self.handle.wakes().leave(self.agent, self.attached, tell);
    }
}
