//! Humans: their roles, their acts, and the edition of the rules (D12, H7).

use lastword_facts::fact::{Fact, Role};
use lastword_facts::ids::{AgentId, HOUR_MS};
use lastword_facts::refusal::{Code, Refusal};

use super::{Outcome, Step};
use crate::input::Reply;
use crate::state::Principal;

impl Step<'_> {
    /// Notes that a human signed in or opened a page. One fact an hour is enough, or one in a quarter of a shorter
    /// `unattended_ms` (D12).
    pub(super) fn act(&mut self, by: Principal) -> Outcome {
        self.human(by, Role::Approver)?;
        if self.now.since(self.state().last_human_act) >= self.act_interval() {
            self.record(Fact::HumanActed { by: by.agent() });
        }
        Ok(Reply::Done)
    }

    /// Returns the time in which one fact about the presence of a human is enough.
    pub(super) fn act_interval(&self) -> u64 {
        let unattended_ms = self.state().limits.unattended_ms;
        if unattended_ms == 0 { HOUR_MS } else { HOUR_MS.min(unattended_ms / 4) }
    }

    /// Sets the role of a human; at least one owner is always left (H7).
    pub(super) fn set_role(&mut self, by: Principal, human: AgentId, role: Role) -> Outcome {
        self.human(by, Role::Owner)?;
        self.known(human)?;
        if !self.state().agents[human.0 as usize].is_human() {
            return Err(Refusal::new(Code::UnknownRecipient).about("a human: an agent has no role"));
        }
        let owners = |id: usize| self.state().agents[id].live && self.state().agents[id].is_owner();
        let others = (0..self.state().agents.len()).filter(|id| *id != human.0 as usize).any(owners);
        if role != Role::Owner && !others {
            return Err(Refusal::new(Code::Forbidden).about("the last owner of the workspace"));
        }
        if self.state().agents[human.0 as usize].role != role {
            self.record(Fact::RoleSet { human, role });
        }
        Ok(Reply::Done)
    }

    /// Puts the rules of an edition into force for the facts from here on.
    pub(super) fn upgrade(&mut self, edition: u32) -> Outcome {
        if edition > self.state().edition {
            self.record(Fact::Upgraded { edition });
        }
        Ok(Reply::Done)
    }

    /// Notifies the humans that no human has acted for a large part of `unattended_ms`.
    pub(super) fn unattended_due(&mut self) {
        let percent = self.state().unattended_percent(self.now);
        self.record(Fact::Unattended { percent });
    }
}
