//! Incidents, and the requests that each holds.

use lastword_core::State;
use lastword_core::state::{Incident, IncidentOn};
use lastword_facts::Code;
use lastword_facts::fact::{Latched, Place, SYSTEM};
use lastword_facts::ids::{IncidentId, TaskId};
use lastword_wire::{IncidentView, rfc3339};

use super::requests::request_of;

/// Returns an incident with the requests that it holds.
pub fn incident(state: &State, id: IncidentId, incident: &Incident) -> IncidentView {
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
        is_cost: is_cost(state, incident),
        limit: incident.limit,
        current: incident.current,
        at: rfc3339(incident.at),
        lifted_at: incident.lifted.map(|(at, _)| rfc3339(at)),
        lifted_by: incident.lifted.filter(|(_, by)| *by != SYSTEM).map(|(_, by)| state.name_of(by).to_owned()),
        parked: held_tasks(state, incident).into_iter().filter_map(|task| request_of(state, Some(task))).collect(),
    }
}

/// Returns whether a known incident's numbers are money.
pub(crate) fn counts_cost(state: &State, id: IncidentId) -> bool {
    state.incidents.get(&id).is_some_and(|incident| is_cost(state, incident))
}

/// Returns whether an incident's numbers are money: only a budget counts it, beside tokens.
pub(crate) fn is_cost(state: &State, incident: &Incident) -> bool {
    if incident.code != Code::Budget {
        return false;
    }
    let Incident { limit, current, .. } = *incident;
    // A budget's limit only grows, by extensions; what was spent does, too.
    let fits = |max: u64, more: u64, spent: u64| {
        max > 0 && (max..=max.saturating_add(more)).contains(&limit) && (limit..=spent).contains(&current)
    };
    let limits = &state.limits;
    match incident.on {
        IncidentOn::Latch(Latched::Grant(id)) => state.grants.get(&id).is_some_and(|grant| {
            let (spend, more) = (grant.spend, grant.extension());
            fits(limits.grant_cost_microusd_max, more.cost_microusd, spend.cost_microusd)
                && !fits(limits.grant_tokens_max, more.tokens, spend.tokens)
        }),
        IncidentOn::Agent(id) => state.agent(id).is_some_and(|agent| {
            let day = (agent.day_tokens_max(limits, incident.at), agent.day_cost_microusd_max(limits, incident.at));
            day.1 > 0 && (day.0 == 0 || (limit == day.1 && limit != day.0))
        }),
        IncidentOn::Latch(Latched::Place(_)) => false,
    }
}

/// Returns the open tasks that an incident holds, the oldest first; none once a human has lifted it.
pub fn held_tasks(state: &State, incident: &Incident) -> Vec<TaskId> {
    match incident.on {
        _ if incident.lifted.is_some() => Vec::new(),
        IncidentOn::Latch(Latched::Grant(grant)) => state.open_tasks_of(grant).collect(),
        IncidentOn::Latch(Latched::Place(Place::Conversation(conv))) => {
            state.conversations.get(&conv).map_or_else(Vec::new, |conv| conv.open_tasks.iter().copied().collect())
        }
        IncidentOn::Latch(Latched::Place(Place::Room(_))) | IncidentOn::Agent(_) => Vec::new(),
    }
}
