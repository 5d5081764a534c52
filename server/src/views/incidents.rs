//! Incidents, and the requests that each holds.

use lastword_proto::State;
use lastword_proto::fact::{Latched, Place, SYSTEM};
use lastword_proto::ids::{IncidentId, TaskId};
use lastword_proto::state::{Incident, IncidentOn};
use lastword_proto::wire::{IncidentView, rfc3339};

use super::requests::request_of;

/// Returns an incident with the requests that it holds.
pub(crate) fn incident(state: &State, id: IncidentId, incident: &Incident) -> IncidentView {
    let (scope, on, conv) = match incident.on {
        IncidentOn::Agent(agent) => ("agent", state.name_of(agent).to_owned(), None),
        IncidentOn::Latch(Latched::Grant(grant)) => {
            ("grant", grant.to_string(), state.grants.get(&grant).map(|grant| grant.conv))
        }
        IncidentOn::Latch(Latched::Place(Place::Conversation(conv))) => {
            let name = state.ref_of(conv).map_or_else(|| conv.to_string(), ToString::to_string);
            ("conversation", name, Some(conv))
        }
        IncidentOn::Latch(Latched::Place(Place::Room(room))) => {
            ("room", state.rooms.get(&room).map_or_else(|| room.to_string(), |r| r.name.to_string()), None)
        }
    };
    IncidentView {
        reference: conv.and_then(|conv| state.ref_of(conv)).map(ToString::to_string),
        id: id.to_string(),
        on,
        scope: scope.to_owned(),
        code: incident.code,
        limit: incident.limit,
        current: incident.current,
        at: rfc3339(incident.at),
        lifted_at: incident.lifted.map(|(at, _)| rfc3339(at)),
        lifted_by: incident.lifted.filter(|(_, by)| *by != SYSTEM).map(|(_, by)| state.name_of(by).to_owned()),
        parked: held_tasks(state, incident).into_iter().filter_map(|task| request_of(state, Some(task))).collect(),
    }
}

/// Returns the open tasks that an incident holds, the oldest first; none once a human has lifted it.
pub(crate) fn held_tasks(state: &State, incident: &Incident) -> Vec<TaskId> {
    match incident.on {
        _ if incident.lifted.is_some() => Vec::new(),
        IncidentOn::Latch(Latched::Grant(grant)) => state.open_tasks_of(grant).collect(),
        IncidentOn::Latch(Latched::Place(Place::Conversation(conv))) => {
            state.conversations.get(&conv).map_or_else(Vec::new, |conv| conv.open_tasks.iter().copied().collect())
        }
        IncidentOn::Latch(Latched::Place(Place::Room(_))) | IncidentOn::Agent(_) => Vec::new(),
    }
}
