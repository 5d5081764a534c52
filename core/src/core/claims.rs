//! Leases on shared resources (C1).

use alloc::vec::Vec;

use lastword_facts::fact::{ClaimMode, Claimed, Fact, Role, WriteKind};
use lastword_facts::ids::{AgentId, ClaimId, TaskId, TurnId};
use lastword_facts::refusal::{Code, Refusal};
use lastword_facts::resource::TREE_LEASE_MS_MAX;

use super::admit::key;
use super::{Outcome, Step};
use crate::input::{ClaimDraft, Reply};
use crate::state::{Claim, ClaimHolder, Principal};

impl Step<'_> {
    pub(super) fn claim(&mut self, by: Principal, turn: Option<TurnId>, claim: ClaimDraft) -> Outcome {
        let id = claim.key.clone();
        let key = key(id.as_ref(), format_args!("{}\0{}\0{}", claim.resource, claim.mode, claim.ttl_ms));
        let human = by.is_human();
        self.write(by, WriteKind::Claim, turn, key, |step| step.take_lease(by.agent(), human, turn, claim))
    }

    fn take_lease(&mut self, agent: AgentId, human: bool, turn: Option<TurnId>, claim: ClaimDraft) -> Outcome {
        let ClaimDraft { resource, mode, ttl_ms, .. } = claim;
        let for_a_call = !human && resource.is_tree();
        if !human && resource.is_wide() && !for_a_call {
            return Err(Refusal::new(Code::Forbidden).about(format_args!(
                "a claim on all of {resource}, which only a human may make; name a directory, as in repo:src/auth/*"
            )));
        }
        let task = self.task_in_turn(agent, turn)?;
        // A lease that is too long is shortened instead of refused.
        let longest = self.state().limits.claim_ms_max;
        let ttl_ms = ttl_ms.clamp(1, if for_a_call { longest.min(TREE_LEASE_MS_MAX) } else { longest });
        let expires_at = self.now.plus(ttl_ms);
        let holder = ClaimHolder { agent, task };
        // One for a call neither renews nor replaces what the task holds, which goes on after the call.
        let is_own = |held: &Claim| held.holder() == holder && !for_a_call && (human || !held.resource.is_wide());
        let state = self.state();
        let covering = state.claims.iter().find(|(_, held)| {
            is_own(held) && (held.mode == mode || held.mode == ClaimMode::Exclusive) && held.resource.covers(&resource)
        });
        if let Some((id, held)) = covering.map(|(id, held)| (*id, held.clone())) {
            // Renewed in its second half: an agent that edits a file again and again writes no fact each time.
            if held.expires_at.since(self.now) < ttl_ms / 2 {
                let Claim { agent, task, resource, mode, .. } = held;
                self.record(Fact::Claimed(Claimed { claim: id, agent, task, resource, mode, expires_at }));
            }
            return Ok(Reply::Claimed(id));
        }
        if let Some((fence, held)) = state.claim_against(holder, &resource, mode) {
            let request = held.task.and_then(|t| state.tasks.get(&t)).and_then(|t| t.request.as_ref());
            let task = request.map_or("no task", |r| r.id.as_str());
            let wait = held.expires_at.since(self.now);
            let words = format_args!("{} in {task}, {fence}", state.name_of(held.agent));
            return Err(Refusal::new(Code::ClaimHeld).about(words).retry_after(wait.max(1)));
        }
        let within = |held: &Claim| is_own(held) && held.mode == mode && resource.covers(&held.resource);
        let covered = state.claims.values().filter(|held| within(held)).count() as u64;
        let (max, count) = (state.limits.claims_max, state.agents[agent.0 as usize].claims - covered);
        if count >= max {
            return Err(Refusal::new(Code::Saturated).numbers(max, count + 1));
        }
        // What the new claim covers as well is held once.
        self.release_where(within);
        let claim = ClaimId(self.state().last_claim() + 1);
        self.record(Fact::Claimed(Claimed { claim, agent, task, resource, mode, expires_at }));
        Ok(Reply::Claimed(claim))
    }

    pub(super) fn release(&mut self, by: Principal, id: ClaimId) -> Outcome {
        self.may(by, Role::Operator)?;
        let unknown = || Refusal::new(Code::UnknownRequest).about(id);
        let claim = self.state().claims.get(&id).ok_or_else(unknown)?;
        match claim.agent == by.agent() {
            true => self.record(Fact::Released { claim: id }),
            false if by.is_human() => self.record(Fact::ClaimBroken { claim: id, by: by.agent() }),
            false => return Err(Code::Forbidden.into()),
        }
        Ok(Reply::Done)
    }

    /// Releases the claims of a task that ended.
    pub(super) fn release_claims(&mut self, task: TaskId) {
        self.release_where(|claim| claim.task == Some(task));
    }

    /// Releases the claims of an agent that is removed.
    pub(super) fn release_claims_of(&mut self, agent: AgentId) {
        self.release_where(|claim| claim.agent == agent);
    }

    fn release_where(&mut self, ended: impl Fn(&Claim) -> bool) {
        let held = self.state().claims.iter().filter(|(_, claim)| ended(claim)).map(|(id, _)| *id);
        for claim in held.collect::<Vec<ClaimId>>() {
            self.record(Fact::Released { claim });
        }
    }
}
