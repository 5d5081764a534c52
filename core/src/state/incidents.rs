//! Latches that hold work, and incidents that only inform humans (R3, D7, G2, B1).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use lastword_facts::fact::{Latched, Place};
use lastword_facts::ids::{AgentId, ConvId, IncidentId, TaskId, Time};
use lastword_facts::refusal::Code;

use super::{Closed, State};

/// The subject of an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IncidentOn {
    /// The scope that a latch holds until a human lifts it (R3).
    Latch(Latched),
    /// An agent; no work is held (D7, G2, B1).
    Agent(AgentId),
}

/// The record of a limit that tripped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// The subject of the incident.
    pub on: IncidentOn,
    /// The code of the limit that tripped.
    pub code: Code,
    /// The limit at the time.
    pub limit: u64,
    /// The value that reached or passed the limit.
    pub current: u64,
    /// The time at which the limit tripped.
    pub at: Time,
    /// The time at which the latch was lifted, and the human who lifted it; the broker if its grant closed.
    pub lifted: Option<(Time, AgentId)>,
}

/// A limit that tripped, and the value that reached or passed it.
pub(super) struct Tripped {
    pub(super) limit: u64,
    pub(super) current: u64,
}

impl State {
    pub(super) fn latch_set(
        &mut self,
        at: Time,
        id: IncidentId,
        on: Latched,
        code: Code,
        Tripped { limit, current }: Tripped,
    ) {
        self.minted.incident = id.0;
        let tripped = Incident { on: IncidentOn::Latch(on), code, limit, current, at, lifted: None };
        self.incidents.insert(id, tripped);
        self.set_latch(on, Some(id));
        self.after_latch(at, on);
    }

    pub(super) fn latch_lifted(&mut self, at: Time, on: Latched, by: AgentId) {
        self.set_latch(on, None);
        for (id, incident) in
            self.incidents.iter_mut().filter(|(_, i)| i.on == IncidentOn::Latch(on) && i.lifted.is_none())
        {
            incident.lifted = Some((at, by));
            self.closed.push_back((at, Closed::Incident(*id)));
        }
        if let Latched::Place(Place::Conversation(conv)) = on {
            self.human_in_exchanges(at, conv);
        }
        self.after_latch(at, on);
    }

    pub(super) fn incident_noted(
        &mut self,
        at: Time,
        id: IncidentId,
        agent: AgentId,
        code: Code,
        Tripped { limit, current }: Tripped,
    ) {
        self.minted.incident = id.0;
        let noted = Incident { on: IncidentOn::Agent(agent), code, limit, current, at, lifted: None };
        self.incidents.insert(id, noted);
        // Nothing is held, so only its age decides when it is forgotten.
        self.closed.push_back((at, Closed::Incident(id)));
        self.agent_noted(at, agent, code);
        self.notice_humans(at);
    }

    fn set_latch(&mut self, on: Latched, held: Option<IncidentId>) {
        match on {
            Latched::Grant(grant) => {
                if let Some(grant) = self.grants.get_mut(&grant) {
                    grant.latched = held.into();
                }
            }
            Latched::Place(Place::Conversation(conv)) => self.hold(conv, |conv| {
                conv.latched = held.is_some();
                // Lifting resets the count, or the next message would be refused again.
                conv.agent_messages = if held.is_some() { conv.agent_messages } else { 0 };
            }),
            Latched::Place(Place::Room(room)) => {
                if let Some(room) = self.rooms.get_mut(&room) {
                    room.latched = held.is_some();
                    room.agent_messages = if held.is_some() { room.agent_messages } else { 0 };
                }
            }
        }
    }

    fn after_latch(&mut self, at: Time, on: Latched) {
        match on {
            Latched::Grant(grant) => {
                self.refresh_grant(at, grant);
                let tasks: Vec<TaskId> = self.open_tasks_of(grant).collect();
                self.rearm_all(at, tasks);
            }
            Latched::Place(Place::Conversation(conv)) => self.latch_changed(at, conv),
            Latched::Place(Place::Room(_)) => {}
        }
    }

    /// Updates a conversation whose latch was set or lifted. A latch holds one conversation alone and an agent can trip
    /// it, so the cost must not grow with the workspace.
    fn latch_changed(&mut self, at: Time, conv: ConvId) {
        let Some(held) = self.conversations.get(&conv) else { return };
        let (tasks, mut grants) = (held.open_tasks.clone(), BTreeSet::from_iter(held.grant.get()));
        grants.extend(tasks.iter().filter_map(|t| self.tasks.get(t)).map(|t| t.grant));
        self.rearm_all(at, tasks);
        for grant in grants {
            self.refresh_grant(at, grant);
        }
    }
}
