//! Agents and humans with their distance to their limits and their current work.

use std::collections::{BTreeMap, BTreeSet};

use lastword_proto::State;
use lastword_proto::fact::SYSTEM;
use lastword_proto::ids::{AgentId, HOUR_MS, TurnId};
use lastword_proto::state::Agent;
use lastword_proto::wire::{AgentView, Distance, rfc3339};

use super::conversations::distance;
use crate::broker::Live;

/// Returns an agent or human; `None` if the number is unknown.
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
        tokens_estimated: agent.day.on(live.now()).estimated,
        rests_until: agent.rests_until().map(rfc3339),
        role: agent.is_human().then_some(agent.role),
        limits: own_limits(agent),
        windows: windows(live, agent),
    })
}

/// Returns the limits that a human set for this agent, by name.
fn own_limits(agent: &Agent) -> BTreeMap<String, u64> {
    let own = agent.own_limits().values();
    own.into_iter().filter(|(_, value)| *value > 0).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the distance to the limits of the agent's sliding windows (G1) and of its own roots (D7); empty for a human,
/// whom none of them binds.
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

/// An agent or human with its current work and its distance to its limits.
pub(crate) struct Member {
    /// The entry as all callers see it.
    pub(crate) view: AgentView,
    /// The open turns, oldest first.
    pub(crate) turns: Vec<OpenTurn>,
    /// The distance to the limits of the day (B1, D7); empty for a human, whom none of them binds.
    pub(crate) day: Vec<Distance>,
}

/// An open turn.
pub(crate) struct OpenTurn {
    /// The turn's id, `turn-3`.
    pub(crate) id: String,
    /// The REF of its task's conversation.
    pub(crate) reference: String,
    /// The id of the REQUEST; `None` for an agent's own root.
    pub(crate) message: Option<String>,
    /// The name of the requester, to which the answer is routed.
    pub(crate) asker: Option<String>,
    /// The time at which it was opened.
    pub(crate) opened_at: String,
    /// The time at which its lease ends.
    pub(crate) lease_until: String,
    /// The number of the attempt at the task.
    pub(crate) attempt: u32,
}

/// Returns an agent or human as the console shows it; `None` if the number is unknown.
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
    let roots = (limits.root_messages_per_day_max, u64::from(used.root_messages));
    let all = [
        of("agent_day_tokens_max", tokens).map(|day| Distance { estimated: used.estimated, ..day }),
        of("root_messages_per_day_max", roots),
        of("agent_day_cost_microusd_max", money),
        of("agent_day_bytes_max", (limits.agent_day_bytes_max, used.bytes)),
    ];
    all.into_iter().flatten().collect()
}
