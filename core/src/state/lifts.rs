//! Extensions by humans, and the limits that a task met (D2, H6).

use alloc::string::String;

use lastword_facts::fact::{Extension, Fact, Lift, Met, Refused, WriteRefused};
use lastword_facts::ids::{AgentId, ConvId, GrantId, TaskId, Time, TurnId};
use lastword_facts::names::Ref;
use lastword_facts::refusal::RefusedAbout;
use lastword_facts::refusal::{Code, Refusal};
use lastword_facts::status::Running;

use super::State;

impl State {
    /// Adds rounds: the conversation may go deeper, and the grant gets the messages, turns and requests for them (D2).
    pub(super) fn rounds(&mut self, at: Time, id: GrantId, task: Option<TaskId>, conv: ConvId, rounds: u64) {
        if let Some(conv) = self.conversations.get_mut(&conv) {
            // A round is a request and its answer, each one deeper (D2).
            let deeper = u8::try_from(rounds.saturating_mul(2)).unwrap_or(u8::MAX);
            conv.depth_more = conv.depth_more.saturating_add(deeper);
            conv.depth_extensions = conv.depth_extensions.saturating_add(1);
        }
        let more = Extension::for_rounds(rounds);
        if let Some(grant) = self.grants.get_mut(&id) {
            // The requests go to the task that asks, which isn't always the grant's root.
            grant.extended.get_or_insert_default().add(&Extension { requests: 0, ..more });
            grant.extensions += 1;
        }
        if let Some(task) = task {
            self.more_requests(task, more.requests);
        }
        self.refresh_grant(at, id);
    }

    /// Adds requests to an open task; each raises Φ by what it can cause (D9).
    pub(super) fn more_requests(&mut self, id: TaskId, requests: u64) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| !task.is_closed()) else { return };
        task.quota_left = task.quota_left.saturating_add(requests);
        let (hop, grant) = (u64::from(task.hop), task.grant);
        let each = self.limits.potential(hop + 1).saturating_add(1);
        // A task at the last hop can't delegate, so more requests cause nothing.
        if let Some(grant) = self.grants.get_mut(&grant).filter(|_| hop < self.limits.hops_max) {
            grant.structure = grant.structure.saturating_add(requests.saturating_mul(each));
        }
    }

    /// Returns what a lift does, with the name of its room.
    #[must_use]
    pub fn lift_words(&self, lift: Lift) -> String {
        let room = if let Lift::RearmRoom(id) = lift { self.rooms.get(&id) } else { None };
        match room {
            Some(room) => alloc::format!("go on in the room {}, counted from 0", room.name),
            None => alloc::format!("{lift}"),
        }
    }

    /// Keeps the room that refused an agent's post, or forgets the one before it (H6).
    pub(super) fn refused_in(&mut self, agent: AgentId, room: Option<&str>) {
        let newest = TurnId(self.minted.turn);
        let room = room.and_then(|name| self.room_names.get(name)).map(|room| (*room, newest));
        if self.agents.get(agent.0 as usize).is_some_and(|known| known.refused_in() != room) {
            self.rare(agent).refused_in = room;
        }
    }

    /// Returns the subject of a refusal, for the step that lifts it now (H6); `fact` is its record, if there is one.
    #[must_use]
    pub fn refused_about(&self, refusal: &Refusal, fact: Option<&Fact>) -> RefusedAbout {
        if let Code::Paused | Code::Stopped = refusal.code {
            return self.held_about(refusal);
        }
        let (agent, turn, to, named) = if let Some(Fact::Refused(Refused { agent, turn, to, reference, .. })) = fact {
            (*agent, *turn, Some(to), reference.as_ref())
        } else if let Some(Fact::WriteRefused(WriteRefused { agent, turn, .. })) = fact {
            (*agent, *turn, None, None)
        } else if let Some(Fact::Observed { agent, .. }) = fact {
            (*agent, None, None, None)
        } else {
            return RefusedAbout::default();
        };
        let tied = || to?.names().filter_map(|to| self.tie(agent, self.live(to.as_str())?)).max();
        let task = turn.and_then(|turn| self.turns.get(&turn)).map(|turn| turn.task).or_else(tied);
        let task = task.and_then(|task| self.tasks.get(&task));
        let named = named.and_then(|named| self.conv_of(named.as_str()));
        let own = task.map(|task| task.conv);
        // A total belongs to the whole work, and the other limits to the conversation that was named, if the work has it.
        let of_work =
            |conv: &ConvId| task.is_none_or(|t| t.conv == *conv || t.delegates.iter().any(|d| d.conv == *conv));
        let in_conv = matches!(refusal.code, Code::DepthCap | Code::TurnsSoft | Code::TurnsHard | Code::NoProgress);
        let conv = if in_conv {
            named.filter(of_work).or(own)
        } else if refusal.code == Code::RootAllowance {
            named
        } else {
            own.or(named).filter(|_| refusal.code.can_be_lifted())
        };
        // A root that is too large for a grant has none that a human could extend.
        let extends = Lift::of(refusal.code, 0, 0).is_some_and(|lift| lift != Lift::Rearm);
        let settled = extends && conv.is_none_or(|conv| self.open_grants_of(conv).is_empty());
        let conv = conv.filter(|_| !settled || task.is_some() || refusal.code == Code::DepthCap);
        RefusedAbout {
            reference: conv.and_then(|conv| self.ref_of(conv)).cloned(),
            agent: self.agent(agent).and_then(|agent| agent.name.clone()),
            settled,
        }
    }

    /// Returns what a human has paused or stopped: an agent or a conversation; neither if it is the workspace.
    fn held_about(&self, refusal: &Refusal) -> RefusedAbout {
        let Some(on) = refusal.subject.as_deref() else { return RefusedAbout::default() };
        let running = if refusal.code == Code::Paused { Running::Paused } else { Running::Stopped };
        // A conversation may have the name of an agent.
        let conv = self.conv_of(on).filter(|conv| self.running_in(*conv) == running);
        let agent = self.live(on).and_then(|id| self.agent(id));
        let agent = agent.filter(|agent| conv.is_none() || agent.running == running);
        let workspace = on == "workspace" && (conv.is_none() || self.running == running);
        let reference = Ref::new(on).ok().filter(|_| agent.is_none() && !workspace);
        RefusedAbout { reference, agent: agent.and_then(|agent| agent.name.clone()), settled: false }
    }

    /// Keeps the last limit that a task met in its turn and that a human can lift, for the question that follows (H6).
    pub(super) fn met(&mut self, id: TaskId, reference: Option<&Ref>, refusal: &Refusal) {
        if !refusal.code.can_be_lifted() {
            return;
        }
        let named = reference.and_then(|reference| self.conv_of(reference.as_str()));
        let Some(task) = self.tasks.get(&id) else { return };
        let (conv, grant) = (named.unwrap_or(task.conv), task.grant);
        let of_conv = self.conversations.get(&conv).map_or(0, |conv| u64::from(conv.depth_extensions));
        let of_grant = self.grants.get(&grant).map_or(0, |grant| u64::from(grant.extensions));
        let of_one = refusal.code == Code::DepthCap;
        // A refusal by a latch is reported as the limit that set the latch.
        let tripped = self.grants.get(&grant).and_then(|grant| self.incidents.get(&grant.latched.get()?));
        let (code, limit, current) = match tripped.filter(|_| refusal.code == Code::Latched) {
            Some(incident) => (incident.code, incident.limit, incident.current),
            // No latch of the grant holds, so the hard limit of the conversation does.
            None if refusal.code == Code::Latched => (Code::TurnsHard, self.limits.turns_hard_max, 0),
            None => (refusal.code, refusal.limit.unwrap_or(0), refusal.current.unwrap_or(0)),
        };
        let met =
            Met { code, limit, current, conv: Some(conv), grant, extended: if of_one { of_conv } else { of_grant } };
        if let Some(task) = self.tasks.get_mut(&id) {
            task.rare.get_or_insert_default().met = Some(met);
        }
    }
}
