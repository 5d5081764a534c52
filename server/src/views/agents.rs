//! Agents and humans with their distance to their limits and their current work.

use std::collections::{BTreeMap, BTreeSet};

use lastword_broker::Live;
use lastword_core::State;
use lastword_core::state::{Agent, IncidentOn};
use lastword_facts::Time;
use lastword_facts::fact::{EscalationCause, Kind, Latched, Place, SYSTEM};
use lastword_facts::ids::{AgentId, HOUR_MS, TaskId, TurnId};
use lastword_facts::status::ApprovalState;
use lastword_facts::status::EscalationState;
use lastword_facts::status::Running;
use lastword_wire::{AgentView, Distance, rfc3339};

use super::conversations::distance;
use super::held::of_rest;

/// Returns an agent or human; `None` if the number is unknown.
pub(crate) fn agent(live: &Live<'_>, id: AgentId) -> Option<AgentView> {
    let agent = live.state.agent(id)?;
    let texts = |labels: &[lastword_facts::names::Label]| labels.iter().map(ToString::to_string).collect();
    Some(AgentView {
        name: agent.name().to_owned(),
        display_name: agent.display_name().map(|name| name.as_str().to_owned()),
        kind: agent.kind,
        actions: texts(&agent.profile.actions),
        groups: texts(&agent.profile.groups),
        incarnation: agent.incarnation,
        state: agent.running,
        connected: live.is_attached(id),
        clients: live.clients(id) as u64,
        unavailable: live.unavailable(id).map(Into::into),
        turns_max: agent.turns_max(&live.state.limits),
        turns: agent.turns.iter().map(ToString::to_string).collect(),
        waits_for_user: agent.turns.iter().filter_map(|id| live.state.turns.get(id)).any(|turn| turn.waits_for_user),
        queued: agent.queue.len() as u64,
        notices: agent.notices.len() as u64,
        tokens_today: agent.day.on(live.now()).spend.tokens,
        tokens_estimated: agent.day.on(live.now()).estimated,
        cost_today_microusd: agent.day.on(live.now()).spend.cost_microusd,
        rests_until: agent.rests_until().map(rfc3339),
        held_by: of_rest(live.state, agent).into_iter().collect(),
        role: agent.is_human().then_some(agent.role),
        limits: own_limits(agent),
        windows: windows(live, agent),
    })
}

/// Returns when an agent without a connection last asked for deliveries, unless that is longer ago than the time in which
/// it has to acknowledge one (Q2).
pub fn polled_at(live: &Live<'_>, id: AgentId) -> Option<Time> {
    let own = live.state.agent(id)?.own_limits().ack_ms;
    let within = if own > 0 { own } else { live.state.limits.ack_polling_ms };
    live.polled_at(id).filter(|at| live.now().since(*at) < within)
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
pub struct Member {
    /// The entry as all callers see it.
    pub view: AgentView,
    /// The open turns, oldest first.
    pub turns: Vec<OpenTurn>,
    /// The distance to the limits of the day (B1, D7); empty for a human, whom none of them binds.
    pub day: Vec<Distance>,
    /// The ids of the pending calls and open questions of its tasks.
    pub asks: Vec<String>,
    /// The REFs of its open work that a latch holds.
    pub held: Vec<String>,
    /// The number of humans' requests to it that ended without a result and that no human has dismissed.
    pub failed: u64,
    /// The end of its rest, if its day budget is used up.
    pub rests_until: Option<Time>,
    /// When it last asked for deliveries, if it polls and still has time to acknowledge.
    pub polled_at: Option<Time>,
    /// When it last asked for deliveries since the server started, however long ago.
    pub asked_at: Option<Time>,
    /// What a human did to the workspace, or to all conversations in which it has an open turn.
    pub enclosing: Running,
}

/// What an agent does, in the order of what a human should see first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// A human stopped it.
    Stopped,
    /// A human paused it.
    Paused,
    /// Its day budget is used up, so that it starts no work until its rest ends or a human extends the budget.
    Rests,
    /// A latch holds work of it, and it works on nothing else.
    Held,
    /// A task of it waits for a human.
    WaitsForHuman,
    /// It has an open turn.
    Working,
    /// Its program told that it can't work.
    Unable,
    /// It neither is connected nor polls while requests are queued for it.
    Down,
    /// Requests are queued for it.
    Queued,
    /// It is connected or polls, and has nothing to do.
    Idle,
    /// It neither is connected nor polls, and has nothing to do.
    Away,
}

impl Activity {
    /// All of them, in their order.
    pub const ALL: [Self; 11] = [
        Self::Stopped,
        Self::Paused,
        Self::Rests,
        Self::Held,
        Self::WaitsForHuman,
        Self::Working,
        Self::Unable,
        Self::Down,
        Self::Queued,
        Self::Idle,
        Self::Away,
    ];

    /// Returns the word for it. Whether requests wait for an agent that isn't connected is told beside the word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Paused => "paused",
            Self::Rests => "budget used up",
            Self::Held => "held",
            Self::WaitsForHuman => "waiting for you",
            Self::Working => "working",
            Self::Unable => "can't work",
            Self::Down | Self::Away => "not connected",
            Self::Queued => "queued",
            Self::Idle => "idle",
        }
    }
}

impl Member {
    /// Returns what it does.
    pub fn activity(&self) -> Activity {
        let reachable = self.view.connected || self.polled_at.is_some();
        let elsewhere = || self.turns.iter().any(|turn| !self.held.contains(&turn.reference));
        let does = match self.view.state {
            Running::Stopped => Activity::Stopped,
            Running::Paused => Activity::Paused,
            Running::Active if self.rests_until.is_some() => Activity::Rests,
            Running::Active if !self.held.is_empty() && !elsewhere() => Activity::Held,
            Running::Active if !self.asks.is_empty() => Activity::WaitsForHuman,
            Running::Active if !self.turns.is_empty() => Activity::Working,
            Running::Active if self.view.unavailable.is_some() => Activity::Unable,
            Running::Active if self.view.queued > 0 && !reachable => Activity::Down,
            Running::Active if self.view.queued > 0 => Activity::Queued,
            Running::Active if reachable => Activity::Idle,
            Running::Active => Activity::Away,
        };
        match (self.enclosing, does) {
            (Running::Paused, Activity::WaitsForHuman | Activity::Working | Activity::Queued) => Activity::Paused,
            (Running::Stopped, Activity::WaitsForHuman | Activity::Working | Activity::Queued) => Activity::Stopped,
            _ => does,
        }
    }
}

/// Counts the agents that do the same, of those that do something. Every page that shows one of these numbers has it from
/// here.
pub fn activities(live: &Live<'_>) -> BTreeMap<Activity, u64> {
    let state = live.state;
    let calls = state.approvals.values().filter(|call| call.state == ApprovalState::Pending).map(|call| call.agent);
    let asked =
        state.escalations.values().filter(|asked| asked.state == EscalationState::Open).map(|asked| asked.agent);
    let held = held_tasks(state).filter_map(|task| state.tasks.get(&task)).map(|task| task.agent);
    let waiting: BTreeSet<AgentId> = calls.chain(asked).chain(held).collect();
    let is_calm = |agent: &Agent| {
        agent.turns.is_empty()
            && agent.queue.is_empty()
            && agent.running == Running::Active
            && agent.rests_until().is_none()
    };
    // Most agents do nothing, and their view takes long to make.
    let busy = |id: &AgentId| waiting.contains(id) || state.agent(*id).is_some_and(|agent| !is_calm(agent));
    let members = state.live_by_name().into_iter().filter(busy).filter_map(|id| member(live, id));
    let mut counts = BTreeMap::new();
    for member in members.filter(|member| member.view.kind == Kind::Agent) {
        *counts.entry(member.activity()).or_default() += 1;
    }
    counts
}

/// An open turn.
pub struct OpenTurn {
    /// The turn's id, `turn-3`.
    pub id: String,
    /// The REF of its task's conversation.
    pub reference: String,
    /// The id of the REQUEST; `None` for an agent's own root.
    pub message: Option<String>,
    /// The name of the requester, to which the answer is routed.
    pub asker: Option<String>,
    /// The time at which it was opened.
    pub opened_at: String,
    /// The time at which its lease ends.
    pub lease_until: String,
    /// The number of the attempt at the task.
    pub attempt: u32,
}

/// Returns an agent or human as the console shows it; `None` if the number is unknown.
pub fn member(live: &Live<'_>, id: AgentId) -> Option<Member> {
    let known = live.state.agent(id)?;
    let state = live.state;
    let turns = known.turns.iter().filter_map(|turn| open_turn(state, *turn)).collect();
    let calls = state.approvals.iter().filter(|(_, call)| call.agent == id && call.state == ApprovalState::Pending);
    let asked = state.escalations.iter().filter(|(_, asked)| asked.agent == id && asked.state == EscalationState::Open);
    let asked = asked.filter(|(_, asked)| asked.cause != EscalationCause::TimedOut);
    let asks = calls.map(|(id, _)| id.to_string()).chain(asked.map(|(id, _)| id.to_string())).collect();
    Some(Member {
        view: agent(live, id)?,
        turns,
        day: day(live, known),
        asks,
        held: held(state, id),
        failed: state.failed.iter().filter(|task| state.tasks.get(task).is_some_and(|task| task.agent == id)).count()
            as u64,
        rests_until: known.rests_until(),
        polled_at: polled_at(live, id),
        asked_at: live.polled_at(id),
        enclosing: state.running.max(enclosing(state, known)),
    })
}

/// Returns whether a human paused or stopped all conversations in which an agent has an open turn.
fn enclosing(state: &State, agent: &Agent) -> Running {
    let tasks = agent.turns.iter().filter_map(|turn| state.tasks.get(&state.turns.get(turn)?.task));
    tasks.map(|task| state.running_in(task.conv)).min().unwrap_or_default()
}

/// Returns the REFs of an agent's open work that a latch of a grant or conversation holds.
fn held(state: &State, id: AgentId) -> Vec<String> {
    let own = held_tasks(state).filter_map(|task| state.tasks.get(&task)).filter(|task| task.agent == id);
    let mut refs: Vec<String> = own.filter_map(|task| state.ref_of(task.conv)).map(ToString::to_string).collect();
    refs.sort_unstable();
    refs.dedup();
    refs
}

/// Returns the open tasks that a latch of a grant or conversation holds.
fn held_tasks(state: &State) -> impl Iterator<Item = TaskId> {
    let latches = state.incidents.values().filter(|incident| incident.lifted.is_none());
    latches.flat_map(move |incident| -> Vec<TaskId> {
        match incident.on {
            IncidentOn::Latch(Latched::Grant(grant)) => state.open_tasks_of(grant).collect(),
            IncidentOn::Latch(Latched::Place(Place::Conversation(conv))) => {
                state.conversations.get(&conv).map_or_else(Vec::new, |conv| conv.open_tasks.iter().copied().collect())
            }
            IncidentOn::Latch(Latched::Place(Place::Room(_))) | IncidentOn::Agent(_) => Vec::new(),
        }
    })
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
