//! Registers, amends, rekeys and removes agents and humans (§1).

use lastword_facts::fact::{EndReason, Fact, GrantEnd, Kind, Profile, Registered, Role, TokenRotated};
use lastword_facts::ids::AgentId;
use lastword_facts::names::DisplayName;
use lastword_facts::refusal::{Code, Refusal};

use super::admit::key;
use super::{Outcome, Step};
use crate::input::{NewToken, Registration, Reply};
use crate::rules::Rule;
use crate::state::{Agent, Principal};

impl Step<'_> {
    /// Registers the first human, for the shell itself.
    pub(super) fn bootstrap(&mut self, registration: Registration) -> Outcome {
        if registration.kind != Kind::Human || self.state().agents.iter().any(|a| a.live && a.is_human()) {
            return Err(Code::Forbidden.into());
        }
        self.enrol(registration)
    }

    pub(super) fn register(&mut self, by: Principal, registration: Registration) -> Outcome {
        self.human(by, Role::Owner)?;
        let id = registration.key.clone();
        let key = key(id.as_ref(), format_args!("{}\0{}", registration.name, registration.kind));
        if let Some(again) = self.made_before(by.agent(), key.as_ref())? {
            // The token of the first reply is lost, so the newly generated one has to work.
            if let Reply::Registered(agent) = again {
                self.known(agent)?;
                self.record(Fact::Rekeyed { agent, credential: registration.credential });
            }
            return Ok(again);
        }
        let reply = self.enrol(registration)?;
        self.keep_key(by.agent(), key, &reply);
        Ok(reply)
    }

    fn enrol(&mut self, new: Registration) -> Outcome {
        let state = self.state();
        let known = state.agent_of(new.name.as_str());
        if known.is_some_and(|id| state.agents[id.0 as usize].live) {
            return Err(Refusal::new(Code::NameTaken).about(&new.name));
        }
        self.unlike(None, new.name.as_str())?;
        if let Some(display_name) = &new.display_name {
            self.unlike(None, display_name.as_str())?;
        }
        let max = state.limits.agents_max;
        let count = state.agents.iter().filter(|agent| agent.live).count() as u64;
        if count >= max {
            return Err(Refusal::new(Code::Saturated).numbers(max, count + 1));
        }
        // A name that is registered again gets another number, so that nothing meant for its predecessor reaches it.
        let agent = AgentId(u32::try_from(state.agents.len()).unwrap_or(u32::MAX));
        let incarnation = known.map_or(1, |id| state.agents[id.0 as usize].incarnation + 1);
        let Registration { name, kind, profile, credential, role, display_name, key: _ } = new;
        self.record(Fact::Registered(Registered { agent, name, kind, incarnation, profile, credential }));
        // A human without a role fact is an owner, so only the other roles are recorded.
        if let Some(role) = role.filter(|role| kind == Kind::Human && *role != Role::Owner) {
            self.record(Fact::RoleSet { human: agent, role });
        }
        if display_name.is_some() {
            self.record(Fact::DisplayNameSet { agent, display_name });
        }
        Ok(Reply::Registered(agent))
    }

    /// Refuses a name or display name by which an agent or human would pass for another one.
    fn unlike(&self, own: Option<AgentId>, name: &str) -> Result<(), Refusal> {
        let wanted = name.to_lowercase();
        let reads_as = |known: &Agent| {
            known.name() == wanted || known.display_name().is_some_and(|name| name.as_str().to_lowercase() == wanted)
        };
        let mut others = self.state().agents.iter().filter(|known| known.live);
        let own = own.map(|own| self.state().name_of(own));
        if others.any(|known| Some(known.name()) != own && reads_as(known)) {
            return Err(Refusal::new(Code::NameTaken).about(format_args!("the display name {name:?}")));
        }
        Ok(())
    }

    pub(super) fn set_display_name(&mut self, by: Principal, agent: AgentId, name: Option<DisplayName>) -> Outcome {
        self.human(by, Role::Owner)?;
        self.known(agent)?;
        if let Some(name) = &name {
            self.unlike(Some(agent), name.as_str())?;
        }
        self.record(Fact::DisplayNameSet { agent, display_name: name });
        Ok(Reply::Done)
    }

    pub(super) fn amend(&mut self, by: Principal, agent: AgentId, profile: Profile) -> Outcome {
        self.human(by, Role::Owner)?;
        self.known(agent)?;
        self.record(Fact::Amended { agent, profile });
        Ok(Reply::Done)
    }

    pub(super) fn rekey(&mut self, by: Principal, agent: AgentId, token: NewToken) -> Outcome {
        self.human(by, Role::Owner)?;
        self.known(agent)?;
        let NewToken { credential, expires_in_ms, overlap_ms } = token;
        if expires_in_ms.is_none() && overlap_ms == 0 {
            self.record(Fact::Rekeyed { agent, credential });
            return Ok(Reply::Done);
        }
        let expires_at = expires_in_ms.map(|ms| self.now.plus(ms));
        // An overlap shortens the life of a token that is to expire earlier by nothing, and extends none.
        let ends = self.state().agent(agent).and_then(Agent::token_expires_at);
        let overlap = (overlap_ms > 0).then(|| self.now.plus(overlap_ms));
        let former_until = overlap.map(|until| ends.map_or(until, |end| end.min(until)));
        self.record(Fact::TokenRotated(TokenRotated { agent, credential, expires_at, former_until }));
        Ok(Reply::Done)
    }

    /// Removes an agent: the requests that it serves are settled for their requesters (L3).
    pub(super) fn remove(&mut self, by: Principal, agent: AgentId) -> Outcome {
        self.human(by, Role::Owner)?;
        self.known(agent)?;
        let owners = self.state().agents.iter().filter(|a| a.live && a.is_owner()).count();
        if owners == 1 && self.state().agents[agent.0 as usize].is_owner() {
            // A workspace without an owner could never get one again.
            return Err(Refusal::new(Code::Forbidden).about("the last owner of the workspace"));
        }
        // Before the removal, while the outcomes can still be routed.
        if self.rule(Rule::Undeliverable) {
            self.end_tasks_of(agent, EndReason::RecipientGone);
        }
        // The requests of a removed human have no requester any more, and no successor of the name may get their
        // answers.
        let given = self.state().grants.iter().filter(|(_, g)| g.giver == agent && g.end.is_none());
        for grant in given.map(|(id, _)| id).collect::<alloc::vec::Vec<_>>() {
            self.end_grant(grant, GrantEnd::Stopped, EndReason::AskerEnded);
        }
        self.release_claims_of(agent);
        self.end_schedules_of(agent);
        self.record(Fact::Removed { agent });
        Ok(Reply::Done)
    }

    pub(super) fn known(&self, agent: AgentId) -> Result<(), Refusal> {
        let live = self.state().agent(agent).is_some_and(|a| a.live);
        if live { Ok(()) } else { Err(Refusal::new(Code::UnknownRecipient).about(agent)) }
    }
}
