//! Claims: leases on resources (C1).

use serde::{Deserialize, Serialize};

use lastword_facts::fact::ClaimMode;
use lastword_facts::ids::{AgentId, ClaimId, TaskId, Time};
use lastword_facts::names::Resource;

use super::{State, Timer};

/// A lease on a resource (C1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The agent or human that holds the claim.
    pub agent: AgentId,
    /// The task for which it is held; `None` outside every turn.
    pub task: Option<TaskId>,
    /// The name of the claimed resource.
    pub resource: Resource,
    /// Whether other claims may share the resource.
    pub mode: ClaimMode,
    /// The time at which the claim expires.
    pub expires_at: Time,
}

impl State {
    pub(super) fn claimed(&mut self, at: Time, id: ClaimId, claim: Claim) {
        self.minted.claim = id.0;
        self.timers.insert(claim.expires_at, Timer::Claim(id));
        self.agents[claim.agent.0 as usize].claims += 1;
        self.charge_sender(at, claim.agent, claim.agent);
        self.claims.insert(id, claim);
    }

    pub(super) fn released(&mut self, id: ClaimId) {
        if let Some(claim) = self.claims.remove(&id) {
            self.timers.remove(claim.expires_at, Timer::Claim(id));
            let count = &mut self.agents[claim.agent.0 as usize].claims;
            *count = count.saturating_sub(1);
        }
    }
}
