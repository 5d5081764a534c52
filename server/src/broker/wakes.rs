//! Hints that wake waiting callers: one channel per connected agent, one per awaited answer, one for approvals.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use lastword_proto::ids::AgentId;
use lastword_proto::{Entry, Fact, Input, MessageType, Seq};
use tokio::sync::{Notify, oneshot};

use super::Handle;
use crate::sync::{Mutex, MutexGuard};

/// The hint channels. A lost hint only costs time, because what it announces is in the state.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    slots: Mutex<BTreeMap<AgentId, Slot>>,
    /// Senders that wait for an answer, by request: an answer wakes only those that wait for it.
    answers: Mutex<BTreeMap<Seq, Vec<oneshot::Sender<()>>>>,
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
    /// Rings for the callers that wait for this entry: the sender of an answered request, or a decided approval.
    pub(super) fn durable(&self, entry: &Entry) {
        if let Fact::Accepted { message } = &entry.fact
            && message.kind == MessageType::Response
        {
            // The receivers end when their senders are dropped, so removing them is the hint.
            drop(message.in_reply_to.and_then(|request| self.answers().remove(&request)));
        } else if matches!(entry.fact, Fact::ApprovalDecided { .. }) {
            self.approvals.notify_waiters();
        }
    }

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

    /// Counts a connection. The core gets the input under the lock, so that it sees beginnings and ends in the order in
    /// which they were counted.
    fn attach(&self, agent: AgentId, tell: impl FnOnce()) {
        let mut slots = self.lock();
        let slot = slots.entry(agent).or_default();
        slot.attached += 1;
        // Only the first connection changes anything for the core.
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

    fn answers(&self) -> MutexGuard<'_, BTreeMap<Seq, Vec<oneshot::Sender<()>>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AgentId, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection of an agent that waits for deliveries. It ends when dropped, also when its request is cancelled.
pub(crate) struct Subscription {
    handle: Handle,
    agent: AgentId,
    bell: Arc<Notify>,
    attached: bool,
}

impl Subscription {
    /// Waits for wakes of `agent` without counting as its connection.
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

    /// Returns the bell on which the hints arrive.
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

/// A send that waits for the answer to its request; it stops waiting when dropped.
pub(crate) struct Wait {
    handle: Handle,
    request: Seq,
    ring: oneshot::Receiver<()>,
}

impl Wait {
    /// Starts to wait for the answer to this message.
    pub(crate) fn new(handle: &Handle, request: Seq) -> Self {
        let (rings, ring) = oneshot::channel();
        handle.wakes().answers().entry(request).or_default().push(rings);
        Self { handle: handle.clone(), request, ring }
    }

    /// Returns once the answer is durable.
    pub(crate) async fn rings(&mut self) {
        let _dropped = (&mut self.ring).await.is_err();
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        // Closed first, so that `retain` recognizes the sender of this wait.
        self.ring.close();
        let mut answers = self.handle.wakes().answers();
        if let Some(waiting) = answers.get_mut(&self.request) {
            waiting.retain(|rings| !rings.is_closed());
            if waiting.is_empty() {
                answers.remove(&self.request);
            }
        }
    }
}
