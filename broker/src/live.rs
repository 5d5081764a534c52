//! The state as a closure on the broker's thread sees it. Its result is released once everything it saw is durable.

use std::sync::Arc;

use lastword_core::{Core, State};
use lastword_facts::ids::{AgentId, TurnId};
use lastword_facts::{Entry, Seq, Time};

use crate::handle::BrokerShared;
use crate::holders::{Claimable, ClientId};
use crate::identity::TurnSigner;
use crate::writer::Batch;

/// The state right after an input, with the entries and the clock around it. Borrowed, so no closure can keep it beyond
/// its call.
pub struct Live<'a> {
    /// The state as the last judged input left it, possibly ahead of the log.
    pub state: &'a State,
    core: &'a Core,
    shared: &'a BrokerShared,
    batch: &'a Batch,
}

impl<'a> Live<'a> {
    pub(crate) const fn new(core: &'a Core, shared: &'a BrokerShared, batch: &'a Batch) -> Self {
        Self { state: core.state(), core, shared, batch }
    }

    /// Returns when the next timer is due; `None` if there is none.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.core.next_deadline().map(|(at, _why)| at)
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

    /// Returns when an agent last asked for deliveries; `None` if it has had a connection since.
    #[must_use]
    pub fn polled_at(&self, agent: AgentId) -> Option<Time> {
        self.shared.wakes.polled_at(agent)
    }

    /// Makes a client the holder of a turn; `false` if another one holds it (F1).
    pub fn hold(&self, agent: AgentId, turn: TurnId, client: Option<ClientId>) -> bool {
        self.shared.holders.hold(self.state, agent, turn, client, self.now())
    }

    /// Returns what a client that names no turn may do with the open turns of its agent (F1).
    #[must_use]
    pub fn claimable(&self, agent: AgentId, client: Option<ClientId>) -> Claimable {
        self.shared.holders.claimable(self.state, agent, client, self.now())
    }

    /// Returns the number of clients that wait for the agent's deliveries or hold one.
    #[must_use]
    pub fn clients(&self, agent: AgentId) -> usize {
        let (holding, nameless) = self.shared.holders.of(self.state, agent);
        self.shared.wakes.clients(agent, holding, nameless)
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
