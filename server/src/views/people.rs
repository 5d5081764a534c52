//! Agents, requests and limits.

use std::collections::{BTreeMap, BTreeSet};

use lastword_proto::State;
use lastword_proto::fact::SYSTEM;
use lastword_proto::ids::{AgentId, HOUR_MS, TaskId, TurnId};
use lastword_proto::names::SYSTEM_NAME;
use lastword_proto::state::{Agent, Phase, Request, Task};
use lastword_proto::wire::{AgentView, Distance, HistoryItem, RequestView, rfc3339};

use super::conversations::distance;
use super::held::held_by;
use crate::broker::Live;

/// An agent or human; `None` when there is none.
pub(crate) fn agent(live: &Live<'_>, id: AgentId) -> Option<AgentView> {
    let agent = live.state.agent(id)?;
    let texts = |labels: &[lastword_proto::names::Label]| labels.iter().map(ToString::to_string).collect();
    Some(AgentView {
        name: agent.name().to_owned(),
        kind: agent.kind,
        actions: texts(&agent.profile.actions),
        groups: texts(&agent.profile.groups),
        incarnation: agent.incarnation,
        state: agent.running,
        connected: live.is_attached(id),
        turns_max: agent.turns_max(&live.state.limits),
        turns: agent.turns.iter().map(ToString::to_string).collect(),
        queued: agent.queue.len() as u64,
        notices: agent.notices.len() as u64,
        tokens_today: agent.day.on(live.now()).spend.tokens,
        rests_until: agent.rests_until().map(rfc3339),
        role: agent.is_human().then_some(agent.role),
        limits: own_limits(agent),
        windows: windows(live, agent),
    })
}

/// Its own limits, by name.
fn own_limits(agent: &Agent) -> BTreeMap<String, u64> {
    let own = agent.own_limits().values();
    own.into_iter().filter(|(_, value)| *value > 0).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// How far it is to the limits of its sliding windows (G1) and of its own roots (D7); none bind a human.
fn windows(live: &Live<'_>, agent: &Agent) -> Vec<Distance> {
    if agent.is_human() {
        return Vec::new();
    }
    let (limits, now) = (&live.state.limits, live.now());
    let sent = agent.recent.iter().filter(|(at, _)| now.since(*at) < limits.window_ms).count();
    let fanned = agent.recent.iter().filter(|(at, to)| {
        now.since(*at) < limits.fan_out_window_ms && *to != SYSTEM && agent.name() != live.state.name_of(*to)
    });
    let fanned: BTreeSet<AgentId> = fanned.map(|(_, to)| *to).collect();
    let roots = agent.roots.iter().filter(|at| now.since(**at) < HOUR_MS).count();
    vec![
        distance("sender_messages_max", agent.sender_messages_max(limits), sent as u64),
        distance("fan_out_targets_max", limits.fan_out_targets_max, fanned.len() as u64),
        distance("roots_per_hour_max", agent.roots_per_hour_max(limits), roots as u64),
    ]
}

/// Somebody with all that concerns them now: what they work on, and how far it is to their limits.
pub(crate) struct Member {
    /// Who, as everybody sees them.
    pub(crate) view: AgentView,
    /// The open turns, oldest first.
    pub(crate) turns: Vec<OpenTurn>,
    /// How far it is to the limits of the day (B1, D7); none bind a human.
    pub(crate) day: Vec<Distance>,
}

/// A turn that is open.
pub(crate) struct OpenTurn {
    /// Its id.
    pub(crate) id: String,
    /// The conversation of its task.
    pub(crate) reference: String,
    /// The message that asked for the work; an agent's own root has none.
    pub(crate) message: Option<String>,
    /// Who waits for the answer.
    pub(crate) asker: Option<String>,
    /// Since when.
    pub(crate) opened_at: String,
    /// When its lease ends.
    pub(crate) lease_until: String,
    /// The attempt at the task.
    pub(crate) attempt: u32,
}

/// The same agent or human, as the console shows them; `None` when there is none.
pub(crate) fn member(live: &Live<'_>, id: AgentId) -> Option<Member> {
    let known = live.state.agent(id)?;
    let turns = known.turns.iter().filter_map(|turn| open_turn(live.state, *turn)).collect();
    Some(Member { view: agent(live, id)?, turns, day: day(live, known) })
}

fn open_turn(state: &State, id: TurnId) -> Option<OpenTurn> {
    let turn = state.turns.get(&id)?;
    let task = state.tasks.get(&turn.task)?;
    Some(OpenTurn {
        id: id.to_string(),
        reference: state.ref_of(task.conv).map_or_else(String::new, ToString::to_string),
        message: task.request.as_ref().map(|request| request.message.to_string()),
        asker: task.asker.agent().map(|asker| state.name_of(asker).to_owned()),
        opened_at: rfc3339(turn.opened_at),
        lease_until: rfc3339(turn.lease_until),
        attempt: turn.attempt,
    })
}

fn day(live: &Live<'_>, agent: &Agent) -> Vec<Distance> {
    if agent.is_human() {
        return Vec::new();
    }
    let (limits, now) = (&live.state.limits, live.now());
    let used = agent.day.on(now);
    let tokens = (agent.day_tokens_max(limits, now), used.spend.tokens);
    let money = (agent.day_cost_microusd_max(limits, now), used.spend.cost_microusd);
    let of = |name, (limit, current): (u64, u64)| (limit > 0).then(|| distance(name, limit, current));
    let roots = (limits.root_messages_per_day_max, used.root_messages);
    let all = [
        of("agent_day_tokens_max", tokens),
        of("root_messages_per_day_max", roots),
        of("agent_day_cost_microusd_max", money),
    ];
    all.into_iter().flatten().collect()
}

/// A request, without its response; `None` for the root task of an agent.
pub(crate) fn request(state: &State, id: TaskId, task: &Task) -> Option<RequestView> {
    let request = task.request.as_ref()?;
    let name = |agent: AgentId| state.name_of(agent).to_owned();
    let status = match task.phase {
        Phase::Closed(status, _) => Some(status),
        Phase::Queued | Phase::Open(_) | Phase::Waiting => None,
    };
    Some(RequestView {
        request_id: request.id.to_string(),
        state: request.state,
        attempts: task.attempt,
        deadline: request.deadline.get().map(rfc3339),
        from: task.asker.agent().map_or_else(|| SYSTEM_NAME.to_owned(), name),
        to: name(task.agent),
        tried: task.tried().map(name).collect(),
        reference: state.ref_of(task.conv).map_or_else(String::new, ToString::to_string),
        message: request.message.to_string(),
        priority: request.priority,
        queue_position: queue_position(state, id, task),
        status,
        response: None,
        held_by: if status.is_some() { Vec::new() } else { held_by(state, id) },
        history: history(state, task, request),
    })
}

fn queue_position(state: &State, id: TaskId, task: &Task) -> Option<u64> {
    let queue = &state.agent(task.agent)?.queue;
    queue.iter().position(|(_, queued)| *queued == id).map(|position| position as u64)
}

fn history(state: &State, task: &Task, request: &Request) -> Vec<HistoryItem> {
    let item = |at, event: &str, agent, attempt| HistoryItem {
        at: rfc3339(at),
        event: event.to_owned(),
        agent: state.name_of(agent).to_owned(),
        attempt,
    };
    let asker = task.asker.agent().unwrap_or(lastword_proto::fact::SYSTEM);
    let mut items = vec![item(task.created_at, "sent", asker, None)];
    let turns = task.turns.iter().filter_map(|turn| state.turns.get(turn));
    items.extend(turns.map(|turn| item(turn.opened_at, "taken", turn.agent, Some(turn.attempt))));
    if request.answer.is_some() {
        let last = task.turns.last().and_then(|turn| state.turns.get(turn));
        let at = last.and_then(|turn| turn.progress_at.get()).unwrap_or(state.at).min(state.at);
        items.push(item(at, "settled", task.agent, Some(task.attempt)));
    }
    items
}
