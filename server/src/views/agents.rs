//! Agents and humans, how near they are to their limits, and what they work on.

use std::collections::{BTreeMap, BTreeSet};

use lastword_proto::State;
use lastword_proto::fact::SYSTEM;
use lastword_proto::ids::{AgentId, HOUR_MS, TurnId};
use lastword_proto::state::Agent;
use lastword_proto::wire::{AgentView, Distance, rfc3339};

use super::conversations::distance;
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
