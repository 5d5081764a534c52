//! Claims: leases on resources (C1).

use serde::{Deserialize, Serialize};

use lastword_facts::fact::{ClaimMode, Kind};
use lastword_facts::ids::{AgentId, ClaimId, TaskId, Time};
use lastword_facts::names::Resource;

use super::{Agent, State, Timer};

/// The recipient of claims in the list of what an agent wrote: they have a window of their own (G1).
pub(crate) const CLAIMS: AgentId = AgentId(u32::MAX);

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

/// The holder of a claim. Two tasks of one agent are two holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimHolder {
    /// The agent or human.
    pub agent: AgentId,
    /// The task for which it holds the claim; `None` outside every turn.
    pub task: Option<TaskId>,
}

impl Claim {
    /// Returns the holder.
    #[must_use]
    pub const fn holder(&self) -> ClaimHolder {
        ClaimHolder { agent: self.agent, task: self.task }
    }

    /// Returns whether the claim lasts no longer than a call of its holder: an agent holds all of a tree by it.
    #[must_use]
    pub fn is_for_a_call(&self, holder: &Agent) -> bool {
        holder.kind == Kind::Agent && self.resource.is_wide()
    }
}

impl State {
    /// Returns the claim of another holder with which a claim of this one would conflict.
    #[must_use]
    pub fn claim_against(
        &self,
        holder: ClaimHolder,
        resource: &Resource,
        mode: ClaimMode,
    ) -> Option<(ClaimId, &Claim)> {
        let conflicts = |held: &Claim| {
            held.holder() != holder
                && (mode == ClaimMode::Exclusive || held.mode == ClaimMode::Exclusive)
                && held.resource.overlaps(resource)
        };
        self.claims.iter().find(|(_, held)| conflicts(held)).map(|(id, held)| (*id, held))
    }

    /// A claim was granted, or its lease renewed.
    pub(super) fn claimed(&mut self, at: Time, id: ClaimId, claim: Claim) {
        self.released(id);
        self.minted.claim = self.minted.claim.max(id.0);
        self.timers.insert(claim.expires_at, Timer::Claim(id));
        self.agents[claim.agent.0 as usize].claims += 1;
        self.charge_sender(at, claim.agent, CLAIMS);
        self.claims.insert(id, claim);
    }

    /// Keeps the claims of a task at least as long as its turn is leased: its holder works.
    pub(super) fn keep_claims(&mut self, task: TaskId, until: Time) {
        if self.claims.is_empty() {
            return;
        }
        let agents = &self.agents;
        let is_brief = |claim: &Claim| claim.is_for_a_call(&agents[claim.agent.0 as usize]);
        let short = |claim: &Claim| claim.task == Some(task) && claim.expires_at < until && !is_brief(claim);
        for (id, claim) in self.claims.iter_mut().filter(|(_, claim)| short(claim)) {
            self.timers.remove(claim.expires_at, Timer::Claim(*id));
            claim.expires_at = until;
            self.timers.insert(until, Timer::Claim(*id));
        }
    }

    pub(super) fn released(&mut self, id: ClaimId) {
        if let Some(claim) = self.claims.remove(&id) {
            self.timers.remove(claim.expires_at, Timer::Claim(id));
            let count = &mut self.agents[claim.agent.0 as usize].claims;
            *count = count.saturating_sub(1);
        }
    }
}
