//! Folds a period in which the broker didn't run: times that are measured in seconds or minutes stood still (L6).
//!
//! Times that are measured in hours or days are not named here, and so include the period: grants, roots an hour, days,
//! deadlines, the age of notices, retention.

use alloc::vec::Vec;

use lastword_facts::ids::{AgentId, ApprovalId, ClaimId, TaskId, Time, TurnId};
use lastword_facts::status::ApprovalState;

use super::{Opt, State, Timer};

impl State {
    /// Moves every short time forward by `ms`, so that its remainder stays the same.
    pub(super) fn idled(&mut self, ms: u64) {
        self.idled_agents(ms);
        self.idled_turns(ms);
        self.idled_tasks(ms);
        self.idled_approvals(ms);
        self.idled_claims(ms);
    }

    /// Moves the windows (G1) and the times to acknowledge (Q2).
    fn idled_agents(&mut self, ms: u64) {
        for id in (0..u32::try_from(self.agents.len()).unwrap_or(u32::MAX)).map(AgentId) {
            let agent = &mut self.agents[id.0 as usize];
            for (at, _) in &mut agent.recent {
                *at = at.plus(ms);
            }
            later(&mut agent.ack.since, ms);
            if let Some(rare) = &mut agent.rare {
                rare.refused.iter_mut().for_each(|at| *at = at.plus(ms));
                rare.exempt.iter_mut().for_each(|(at, _)| *at = at.plus(ms));
            }
            // The free time so far is unchanged, but the moment at which it reaches the limit moves.
            self.reset_ack_timer(id);
        }
    }

    /// Moves the leases (F1) and the intervals between progress reports (R1).
    fn idled_turns(&mut self, ms: u64) {
        // Found through the agents: the table of turns also has all remembered closed ones.
        let open: Vec<TurnId> = self.agents.iter().flat_map(|agent| agent.turns.iter().copied()).collect();
        for id in open {
            let Some(turn) = self.turns.get_mut(&id) else { continue };
            later(&mut turn.progress_at, ms);
            let lease_until = turn.lease_until.plus(ms);
            self.renew(id, lease_until);
        }
    }

    /// Moves the intervals between progress reports (R1) and the ends of blocking sends (Q8).
    fn idled_tasks(&mut self, ms: u64) {
        let open: Vec<TaskId> = self.tasks.iter().filter(|(_, task)| !task.is_closed()).map(|(id, _)| id).collect();
        for id in open {
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            later(&mut task.status_at, ms);
            if let Some(request) = &mut task.request {
                later(&mut request.wait_until, ms);
            }
        }
    }

    /// Moves the times to decide (H2).
    fn idled_approvals(&mut self, ms: u64) {
        let pending = self.approvals.iter().filter(|(_, approval)| approval.state == ApprovalState::Pending);
        for id in pending.map(|(id, _)| *id).collect::<Vec<ApprovalId>>() {
            let Some(approval) = self.approvals.get_mut(&id) else { continue };
            self.timers.remove(approval.expires_at, Timer::Approval(id));
            approval.expires_at = approval.expires_at.plus(ms);
            self.timers.insert(approval.expires_at, Timer::Approval(id));
        }
    }

    /// Moves the ends of claims (C1).
    fn idled_claims(&mut self, ms: u64) {
        for id in self.claims.keys().copied().collect::<Vec<ClaimId>>() {
            let Some(claim) = self.claims.get_mut(&id) else { continue };
            self.timers.remove(claim.expires_at, Timer::Claim(id));
            claim.expires_at = claim.expires_at.plus(ms);
            self.timers.insert(claim.expires_at, Timer::Claim(id));
        }
    }
}

/// Moves a moment forward, if there is one.
fn later(moment: &mut Opt<Time>, ms: u64) {
    if let Some(at) = moment.get() {
        *moment = at.plus(ms).into();
    }
}
