//! Figures of the whole workspace, and the peaks relative to its limits.

use std::collections::BTreeMap;

use lastword_broker::Live;
use lastword_core::State;
use lastword_core::state::Grant;
use lastword_facts::ids::{DAY_MS, HOUR_MS};
use lastword_facts::{Seq, Time};
use lastword_server::calls::Caller;
use lastword_server::calls::control::OpenWork;
use lastword_server::calls::read_model::ask_fresh;
use lastword_server::{ApiError, Context, views};
use lastword_store::{CodeCount, Sums};
use lastword_wire::ConversationStatus;

use super::history;

/// The days, today included, over which the peaks are taken.
const WEEK_DAYS: u64 = 7;

/// What happened in the whole workspace.
pub(crate) struct Figures {
    /// The read model's sums over the last day.
    pub(crate) sums: Sums,
    /// The messages of each of the last hours, oldest first; the last hour is still running.
    pub(crate) hours: Vec<(Time, u64)>,
    /// The current counts.
    pub(crate) standing: WorkspaceCounts,
}

/// The current counts of the workspace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkspaceCounts {
    /// Conversations with open work that are neither held, paused nor stopped.
    pub(crate) active: u64,
    /// Conversations without open work that were neither held, paused nor stopped.
    pub(crate) ended: u64,
    /// Conversations that a limit holds.
    pub(crate) held: u64,
    /// Conversations that a human paused.
    pub(crate) paused: u64,
    /// Conversations that a human stopped.
    pub(crate) stopped: u64,
    /// The open work.
    pub(crate) open: OpenWork,
    /// How long a closed conversation and a lifted incident are remembered, in ms.
    pub(crate) retention_ms: u64,
}

/// Returns the figures, with the messages of each hour of the last day.
pub(crate) async fn figures(ctx: &Context, caller: Caller) -> Result<Figures, ApiError> {
    caller.human()?;
    let now = ctx.handle.now();
    // Starts at a full hour, so that the first bar covers as much time as the others.
    let first = Time((now.0 / HOUR_MS * HOUR_MS).saturating_sub(DAY_MS - HOUR_MS));
    let sums = ask_fresh(ctx, move |index| index.sums(first)).await?;
    let counted: BTreeMap<u64, u64> = sums.hours.iter().map(|(at, n)| (at.0, *n)).collect();
    let starts = (0..DAY_MS / HOUR_MS).map(|hour| Time(first.0 + hour * HOUR_MS));
    let hours = starts.map(|at| (at, counted.get(&at.0).copied().unwrap_or_default())).collect();
    Ok(Figures { sums, hours, standing: ctx.handle.query(standing).await? })
}

fn standing(live: &Live<'_>) -> WorkspaceCounts {
    let state = live.state;
    let mut standing = WorkspaceCounts { retention_ms: state.limits.retention_ms, ..WorkspaceCounts::default() };
    for (_, conv) in state.conversations.range(..) {
        let count = match views::standing(state, conv) {
            ConversationStatus::Stopped => &mut standing.stopped,
            ConversationStatus::Latched => &mut standing.held,
            ConversationStatus::Paused => &mut standing.paused,
            ConversationStatus::Active => &mut standing.active,
            ConversationStatus::Idle => &mut standing.ended,
        };
        *count += 1;
    }
    standing.open = OpenWork::of(state);
    standing
}

/// The closest approach to a limit.
#[derive(Clone, Debug)]
pub(crate) struct Reached {
    /// The limit in force, including what a human granted on top.
    pub(crate) limit: u64,
    /// The highest value reached, in the limit's unit.
    pub(crate) value: u64,
    /// Where it was reached, if that is still known.
    pub(crate) by: Option<ReachedBy>,
}

/// What approached a limit.
#[derive(Clone, Debug)]
pub(crate) enum ReachedBy {
    /// The conversation with this REF.
    Conversation(String),
    /// The room with this name.
    Room(String),
    /// The agent with this name; the limit is per agent and day.
    Agent(String),
}

/// The last week in numbers: the peaks of those limits whose values the log or the state keeps, and all refusals.
pub(crate) struct Week {
    /// The peaks, by the limit's name.
    pub(crate) reached: BTreeMap<&'static str, Reached>,
    /// The refusals by code, most frequent first.
    pub(crate) refused: Vec<CodeCount>,
    /// The begin of the first day that is counted, in the broker's time.
    pub(crate) since: Time,
}

/// Returns the peaks and refusals of the last seven days, today included.
pub(crate) async fn week(ctx: &Context, caller: Caller) -> Result<Week, ApiError> {
    caller.human()?;
    let now = ctx.handle.now();
    let since = Time((now.day() + 1).saturating_sub(WEEK_DAYS) * DAY_MS);
    let peaks = ask_fresh(ctx, move |index| index.peaks(since)).await?;
    let refused = ask_fresh(ctx, move |index| index.refused(since)).await?;
    let (mut reached, limits) =
        ctx.handle.query(move |live| (of_state(live, since), live.state.limits.clone())).await?;
    for peak in peaks {
        let Some(row) = lastword_facts::limits::LIMITS.iter().find(|row| row.name == peak.name) else { continue };
        let by = reached_by(ctx, caller, peak.seq).await?;
        let limit = limits.value(row.name).unwrap_or(row.default);
        reached.insert(row.name, Reached { limit, value: peak.value, by });
    }
    Ok(Week { reached, refused, since })
}

/// Returns the conversation or room that a fact belongs to.
async fn reached_by(ctx: &Context, caller: Caller, seq: Seq) -> Result<Option<ReachedBy>, ApiError> {
    let event = history::line(ctx, caller, &seq.to_string()).await?.event;
    let room = event.data.get("room").and_then(serde_json::Value::as_str).map(|name| ReachedBy::Room(name.to_owned()));
    let reference = event.message.map(|message| message.reference).or(event.reference);
    Ok(reference.map(ReachedBy::Conversation).or(room))
}

/// Returns the peaks that the state itself remembers: each grant's totals, and each agent's use today.
fn of_state(live: &Live<'_>, since: Time) -> BTreeMap<&'static str, Reached> {
    let mut reached = BTreeMap::new();
    for (_, grant) in live.state.grants.iter().filter(|(_, grant)| grant.opened_at >= since || grant.end.is_none()) {
        of_grant(live.state, grant, &mut reached);
    }
    let limits = &live.state.limits;
    for agent in live.state.agents.iter().filter(|agent| agent.live && !agent.is_human()) {
        let today = agent.day.on(live.now());
        let all = [
            ("agent_day_tokens_max", agent.day_tokens_max(limits, live.now()), today.spend.tokens),
            ("agent_day_cost_microusd_max", agent.day_cost_microusd_max(limits, live.now()), today.spend.cost_microusd),
            ("root_messages_per_day_max", limits.root_messages_per_day_max, today.root_messages.into()),
        ];
        for (name, limit, value) in all {
            higher(&mut reached, name, limit, value, || Some(ReachedBy::Agent(agent.name().to_owned())));
        }
    }
    reached
}

fn of_grant(state: &State, grant: &Grant, reached: &mut BTreeMap<&'static str, Reached>) {
    let (limits, more) = (&state.limits, grant.extension());
    let all = [
        ("grant_messages_max", limits.grant_messages_max, more.messages, grant.messages),
        ("grant_turns_max", limits.grant_turns_max, more.turns, grant.turns),
        ("grant_agents_max", limits.grant_agents_max, more.agents, grant.agents.len() as u64),
        ("grant_tokens_max", limits.grant_tokens_max, more.tokens, grant.spend.tokens),
        ("grant_cost_microusd_max", limits.grant_cost_microusd_max, more.cost_microusd, grant.spend.cost_microusd),
    ];
    for (name, limit, more, value) in all {
        // 0 turns a limit off, and an extension must not turn it on.
        let whole = if limit == 0 { 0 } else { limit.saturating_add(more) };
        higher(reached, name, whole, value, || {
            state.ref_of(grant.conv).map(|reference| ReachedBy::Conversation(reference.to_string()))
        });
    }
}

/// Keeps the peak with the larger share of its limit. A limit of 0 is off and has no share.
fn higher(
    reached: &mut BTreeMap<&'static str, Reached>,
    name: &'static str,
    limit: u64,
    value: u64,
    by: impl FnOnce() -> Option<ReachedBy>,
) {
    // Compares a/b > c/d as a·d > c·b in 128 bits, which can't overflow.
    let part = |value: u64, limit: u64| u128::from(value) * u128::from(limit);
    let known = reached.get(name);
    if value == 0 || limit == 0 || known.is_some_and(|known| part(value, known.limit) <= part(known.value, limit)) {
        return;
    }
    reached.insert(name, Reached { limit, value, by: by() });
}
