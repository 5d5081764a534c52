//! What a closure on the broker's thread can see: the state as its input left it. What it makes of that is
//! handed over only when everything it saw is durable.

use std::sync::Arc;

use lastword_proto::ids::AgentId;
use lastword_proto::{Entry, Seq, State, Time};

use super::handle::BrokerShared;
use super::writer::Batch;
use crate::identity::TurnSigner;

/// The state, and what stands beside it. Borrowed: no closure may keep the broker waiting with it.
pub struct Live<'a> {
    /// The state.
    pub state: &'a State,
    shared: &'a BrokerShared,
    batch: &'a Batch,
}

impl<'a> Live<'a> {
    pub(super) const fn new(state: &'a State, shared: &'a BrokerShared, batch: &'a Batch) -> Self {
        Self { state, shared, batch }
    }

    /// A recent entry; `None` where it has to be read from the log.
    #[must_use]
    pub fn entry(&self, seq: Seq) -> Option<Arc<Entry>> {
        self.batch.entry(seq).cloned().or_else(|| self.shared.recent().get(seq))
    }

    /// Whether an agent has a connection open (Q2).
    #[must_use]
    pub fn is_attached(&self, agent: AgentId) -> bool {
        self.shared.wakes.is_attached(agent)
    }

    /// The broker's time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// Signs turn tokens.
    #[must_use]
    pub const fn signer(&self) -> &TurnSigner {
        &self.shared.signer
    }
}
