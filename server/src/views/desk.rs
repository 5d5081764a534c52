//! What lies before humans: escalations, approvals, incidents; and rooms and claims.

use lastword_proto::fact::{Latched, Place, SYSTEM, hex};
use lastword_proto::ids::{ApprovalId, ClaimId, EscalationId, IncidentId, RoomId, TaskId};
use lastword_proto::state::{Incident, IncidentOn, Lifts};
use lastword_proto::wire::{
    ApprovalView, ClaimView, EscalationView, IncidentView, LiftView, RoomView, grant_body, rfc3339,
};
use lastword_proto::{Entry, Fact, State};

use super::words::{self, json};

fn request_of(state: &State, task: Option<TaskId>) -> Option<String> {
    Some(state.tasks.get(&task?)?.request.as_ref()?.id.to_string())
}

/// An escalation, with the question and the answer from the log.
pub(crate) fn escalation(
    state: &State,
    id: EscalationId,
    asked: Option<&Entry>,
    answer: Option<&Entry>,
) -> Option<EscalationView> {
    let known = state.escalations.get(&id)?;
    let (message, options) = match asked.map(|entry| &entry.fact) {
        Some(Fact::EscalationOpened { body, options, .. }) => (body.to_string(), options.clone()),
        Some(_) | None => (String::new(), Vec::new()),
    };
    let answer = answer.and_then(|entry| {
        if let Fact::EscalationNoted { body, .. } = &entry.fact {
            Some(body.to_string())
        } else if let Fact::Accepted { message } = &entry.fact {
            Some(message.body.to_string())
        } else {
            None
        }
    });
    let message = if message.is_empty() {
        "A request timed out on its last attempt; the requester does the work itself.".into()
    } else {
        message
    };
    Some(EscalationView {
        id: id.to_string(),
        state: known.state,
        cause: known.cause,
        agent: state.name_of(known.agent).to_owned(),
        reference: state.ref_of(known.conv).map_or_else(String::new, ToString::to_string),
        request_id: request_of(state, known.task),
        message,
        options: options.iter().map(ToString::to_string).collect(),
        limit: known.lifts.as_ref().map(|lifts| words::met(&lifts.met)),
        lifts: known.lifts.as_ref().map_or_else(Vec::new, |lifts| lift_views(lifts)),
        created_at: rfc3339(known.at),
        answered_by: known.by.map(|by| state.name_of(by).to_owned()),
        answer,
    })
}

fn lift_views(lifts: &Lifts) -> Vec<LiftView> {
    let view = |(place, lift): (usize, &lastword_proto::fact::Lift)| LiftView {
        id: format!("lift-{}", place + 1),
        text: lift.to_string(),
        grant: grant_body(*lift),
        chosen: lifts.chosen.is_some_and(|chosen| usize::try_from(chosen) == Ok(place + 1)),
    };
    lifts.lifts.iter().enumerate().map(view).collect()
}

/// An approval.
pub(crate) fn approval(state: &State, id: ApprovalId) -> Option<ApprovalView> {
    let known = state.approvals.get(&id)?;
    let task = known.task.and_then(|task| state.tasks.get(&task));
    Some(ApprovalView {
        id: id.to_string(),
        digest: hex(&known.digest),
        state: known.state,
        expires_at: rfc3339(known.expires_at),
        agent: state.name_of(known.agent).to_owned(),
        tool: known.tool.to_string(),
        arguments: json(&known.arguments),
        reason: known.reason.as_ref().map(ToString::to_string),
        reference: task.and_then(|task| state.ref_of(task.conv)).map(ToString::to_string),
        request_id: request_of(state, known.task),
        created_at: rfc3339(known.at),
        decision: known.decision,
        by: known.by.map(|by| if by == SYSTEM { "policy" } else { state.name_of(by) }.to_owned()),
        policy: known.rule.as_ref().map(|rule| rule.call.to_string()),
        tier: known.rule.as_ref().and_then(|rule| rule.tier.as_ref()).map(ToString::to_string),
        comment: known.comment.as_ref().map(ToString::to_string),
    })
}

/// An incident, and what it holds up.
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
        lifted_by: incident.lifted.map(|(_, by)| state.name_of(by).to_owned()),
        parked: match incident.on {
            IncidentOn::Latch(on) if incident.lifted.is_none() => parked(state, on),
            IncidentOn::Latch(_) | IncidentOn::Agent(_) => Vec::new(),
        },
    }
}

fn parked(state: &State, on: Latched) -> Vec<String> {
    let tasks: Vec<TaskId> = match on {
        Latched::Grant(grant) => state.open_tasks_of(grant).collect(),
        Latched::Place(Place::Conversation(conv)) => {
            state.conversations.get(&conv).map_or_else(Vec::new, |conv| conv.open_tasks.iter().copied().collect())
        }
        Latched::Place(Place::Room(_)) => Vec::new(),
    };
    tasks.into_iter().filter_map(|task| request_of(state, Some(task))).collect()
}

/// A room.
pub(crate) fn room(state: &State, id: RoomId) -> Option<RoomView> {
    let room = state.rooms.get(&id)?;
    Some(RoomView {
        id: id.to_string(),
        name: room.name.to_string(),
        members: room.members.iter().map(|m| state.name_of(*m).to_owned()).collect(),
        agent_messages: room.agent_messages,
        messages: room.messages,
        latched: room.latched,
    })
}

/// A claim.
pub(crate) fn claim(state: &State, id: ClaimId) -> Option<ClaimView> {
    let claim = state.claims.get(&id)?;
    Some(ClaimView {
        id: id.to_string(),
        fence: id.0,
        resource: claim.resource.to_string(),
        mode: claim.mode,
        agent: state.name_of(claim.agent).to_owned(),
        request_id: request_of(state, claim.task),
        expires_at: rfc3339(claim.expires_at),
    })
}
