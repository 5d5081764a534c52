//! The context of an explanation: what the state says about a message's task, conversation, grant and holds.

use lastword_core::State;
use lastword_core::state::{Agent, IncidentOn};
use lastword_facts::fact::{Latched, Place, Refused, WriteRefused};
use lastword_facts::ids::{AgentId, ConvId, GrantId, TaskId, TurnId};
use lastword_facts::status::Running;
use lastword_facts::{Fact, Message, Seq};
use lastword_wire::{CausalLink, Distance, GrantView, Hold, LiftStep, Problem, RefusedAt, RefusedSend, StoredMessage};

use super::conversations::{distance, grant, own_limits};
use crate::error::record_id;

/// The task, conversation, grant and agent that an explanation is about, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExplainContext {
    /// The task in which it was sent, or would be.
    pub(crate) task: Option<TaskId>,
    /// The conversation that it belongs to.
    pub(crate) conv: Option<ConvId>,
    /// The grant that it is charged to.
    pub(crate) grant: Option<GrantId>,
    /// The agent whose turn is next: the recipient, or the agent of the task.
    pub(crate) agent: Option<AgentId>,
}

impl ExplainContext {
    /// Returns the context of a message. Its task is the one in whose turn its cause was delivered.
    pub(crate) fn of(state: &State, message: &Message) -> Self {
        let to = if let lastword_facts::fact::Recipient::One(agent) = message.to { Some(agent) } else { None };
        let task = message.cause.and_then(|cause| sender_task(state, message.from, cause));
        Self { task, conv: Some(message.conv), grant: message.grant, agent: to }
    }

    /// Returns the context of something that happened in a turn.
    pub(crate) fn in_turn(state: &State, turn: Option<TurnId>, agent: AgentId) -> Self {
        let task = turn.and_then(|turn| state.turns.get(&turn)).map(|turn| turn.task);
        Self::in_task(state, task, agent)
    }

    /// Returns the context of something that belongs to a task.
    pub(crate) fn in_task(state: &State, task: Option<TaskId>, agent: AgentId) -> Self {
        let known = task.and_then(|task| state.tasks.get(&task));
        Self { task, conv: known.map(|t| t.conv), grant: known.map(|t| t.grant), agent: Some(agent) }
    }

    /// Returns the position of the task's REQUEST, from which the chain leads up. For a root, the message that opened
    /// its first turn.
    pub(crate) fn begin(&self, state: &State) -> Option<Seq> {
        let task = state.tasks.get(&self.task?)?;
        let opened = || task.turns.first().and_then(|turn| Some(state.turns.get(turn)?.delivered.first()?.message));
        task.request.as_ref().map(|request| request.message).or_else(opened)
    }

    /// Returns the distance to the limits of the task and of the conversation.
    pub(crate) fn limits(&self, state: &State) -> Vec<Distance> {
        let limits = &state.limits;
        let mut found = Vec::new();
        if let Some(task) = self.task.and_then(|task| state.tasks.get(&task)) {
            // A human may have extended the task beyond the limit in force.
            let max = limits.task_requests_max.max(task.quota_left);
            found.push(distance("task_requests_max", max, max - task.quota_left));
            found.push(distance("hops_max", limits.hops_max, task.hop.into()));
        }
        if let Some(conv) = self.conv.and_then(|conv| state.conversations.get(&conv)) {
            found.extend(own_limits(state, conv));
        }
        found
    }

    /// Returns the grant, if it is known.
    pub(crate) fn grant(&self, state: &State) -> Option<GrantView> {
        grant(state, self.grant?)
    }

    /// Returns the holds that apply, widest first.
    pub(crate) fn holds(&self, state: &State) -> Vec<Hold> {
        let mut holds = Vec::new();
        let mut hold = |scope: &str, on: String, running: Running| {
            if let Some(word) = held(running) {
                holds.push(Hold { scope: scope.into(), on, state: word.into(), incident: None });
            }
        };
        hold("workspace", String::new(), state.running);
        if let Some(agent) = self.agent.and_then(|agent| state.agent(agent)) {
            hold("agent", agent.name().to_owned(), agent.running);
        }
        let above = self.conv.into_iter().flat_map(|conv| state.up(conv));
        for conv in above.filter_map(|conv| state.conversations.get(&conv)) {
            hold("conversation", conv.reference.to_string(), conv.running);
        }
        holds.extend(self.latches(state));
        holds
    }

    fn latches(&self, state: &State) -> Vec<Hold> {
        let latched = |scope: &str, on: String, incident: Option<String>| Hold {
            scope: scope.into(),
            on,
            state: "latched".into(),
            incident,
        };
        let mut holds = Vec::new();
        if let Some(conv) = self.conv.and_then(|conv| state.conversations.get(&conv)).filter(|conv| conv.latched) {
            let place = self.conv.map(Place::Conversation);
            let on = |on: &IncidentOn| matches!(on, IncidentOn::Latch(Latched::Place(at)) if Some(*at) == place);
            let incident = state.incidents.iter().rev().find(|(_, i)| i.lifted.is_none() && on(&i.on));
            holds.push(latched("conversation", conv.reference.to_string(), incident.map(|(id, _)| id.to_string())));
        }
        let grant = self.grant.and_then(|id| Some((id, state.grants.get(&id)?.latched.get()?)));
        if let Some((id, incident)) = grant {
            holds.push(latched("grant", id.to_string(), Some(incident.to_string())));
        }
        holds
    }
}

const fn held(running: Running) -> Option<&'static str> {
    match running {
        Running::Active => None,
        Running::Paused => Some("paused"),
        Running::Stopped => Some("stopped"),
    }
}

/// Returns the task of `agent` in one of whose turns the message `cause` was delivered.
fn sender_task(state: &State, agent: AgentId, cause: Seq) -> Option<TaskId> {
    let mut tasks = state.agent(agent).into_iter().flat_map(Agent::grant_tasks);
    let delivered = |task: &TaskId| {
        let turns = state.tasks.get(task).into_iter().flat_map(|task| &task.turns);
        turns.filter_map(|turn| state.turns.get(turn)).any(|turn| turn.delivered.iter().any(|r| r.message == cause))
    };
    tasks.find(delivered)
}

/// Returns a message as a link of a chain.
pub(crate) fn link(message: StoredMessage) -> CausalLink {
    CausalLink {
        id: message.id,
        from: message.from,
        to: message.to,
        kind: message.kind,
        reference: message.reference,
        depth: message.depth,
        hops: message.hops,
        request_id: message.request_id,
    }
}

/// Returns the step by which a human lifts a recorded refusal now (H6).
pub fn lift_of(state: &State, fact: &Fact) -> Option<LiftStep> {
    let (Fact::Refused(Refused { refusal, .. })
    | Fact::WriteRefused(WriteRefused { refusal, .. })
    | Fact::Observed { refusal, .. }) = fact
    else {
        return None;
    };
    LiftStep::of(refusal, RefusedAt::from(&state.refused_about(refusal, Some(fact))))
}

/// Returns a recorded refusal with the refused agent and its turn; `None` for any other fact.
pub(crate) fn refused(state: &State, seq: Seq, fact: &Fact) -> Option<(AgentId, Option<TurnId>, RefusedSend)> {
    let (agent, turn, refusal) = if let Fact::Refused(Refused { agent, turn, refusal, .. }) = fact {
        (*agent, *turn, refusal)
    } else if let Fact::Observed { agent, refusal } = fact {
        (*agent, None, refusal)
    } else {
        return None;
    };
    let lift = lift_of(state, fact);
    let mut told = RefusedSend {
        from: state.name_of(agent).to_owned(),
        to: None,
        kind: None,
        reference: None,
        turn: turn.map(|turn| turn.to_string()),
        problem: Problem { record: Some(record_id(seq)), lift, ..Problem::new(refusal) },
    };
    if let Fact::Refused(Refused { kind, to, reference, .. }) = fact {
        told.kind = Some(*kind);
        told.to = Some(to.to_string());
        told.reference = reference.as_ref().map(ToString::to_string);
    }
    Some((agent, turn, told))
}
