//! The state as a closure on the broker's thread sees it. Its result is released once everything it saw is durable.

use std::sync::Arc;

use lastword_proto::ids::AgentId;
use lastword_proto::{Entry, Seq, State, Time};

use super::handle::BrokerShared;
use super::writer::Batch;
use crate::identity::TurnSigner;

/// The state right after an input, with the entries and the clock around it. Borrowed, so no closure can keep it beyond
/// its call.
pub struct Live<'a> {
    /// The state as the last judged input left it, possibly ahead of the log.
    pub state: &'a State,
    shared: &'a BrokerShared,
    batch: &'a Batch,
}

impl<'a> Live<'a> {
    pub(super) const fn new(state: &'a State, shared: &'a BrokerShared, batch: &'a Batch) -> Self {
        Self { state, shared, batch }
    }

    /// Returns a recent entry; `None` if it has to be read from the log.
    #[must_use]
    pub fn entry(&self, seq: Seq) -> Option<Arc<Entry>> {
        // The batch first: its entries aren't durable yet, so `recent` doesn't have them.
        self.batch.entry(seq).cloned().or_else(|| self.shared.recent().get(seq))
    }

    /// Returns whether the agent has a connection open (Q2).
    #[must_use]
    pub fn is_attached(&self, agent: AgentId) -> bool {
        self.shared.wakes.is_attached(agent)
    }

    /// Returns the reason why an agent's program can't work.
    #[must_use]
    pub fn unavailable(&self, agent: AgentId) -> Option<Box<str>> {
        self.shared.wakes.unavailable(agent)
    }

    /// Returns the broker's time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// Returns the signer of turn tokens.
    #[must_use]
    pub const fn signer(&self) -> &TurnSigner {
        &self.shared.signer
    }
}
