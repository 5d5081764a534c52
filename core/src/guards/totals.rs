//! D8: what one grant can cause in total, whatever the shape of its tree. These guards are always enforced (G7).

use lastword_facts::fact::Extension;
use lastword_facts::ids::Time;
use lastword_facts::refusal::{Code, Refusal};

use super::View;
use crate::state::{Grant, State};

/// Refuses a request if the grant has expired.
pub(super) fn grant_expired(view: &View<'_>) -> Option<Refusal> {
    let grant = grant_of_request(view)?;
    // While the clock is stopped the end moves on, so it can't be passed.
    let over = grant.end.is_some() || (grant.clock_stopped_at.is_none() && view.now >= grant.expires_at);
    let (whole, age) = (grant.expires_at.since(grant.opened_at), view.now.since(grant.opened_at));
    over.then(|| Refusal::new(Code::GrantExpired).numbers(whole, age))
}

/// Refuses a request if the waking messages are used up. A request takes two, its own and its answer's (F6).
pub(super) fn grant_messages(view: &View<'_>) -> Option<Refusal> {
    let max_base = view.state.limits.grant_messages_max;
    let (used, more) = match grant_of_request(view) {
        Some(grant) => (grant.messages, grant.extension().messages),
        // A root or a human's request opens its grant only when it is accepted.
        None if view.is_request() && !view.to_human() => (0, 0),
        None => return None,
    };
    let max = max_base.saturating_add(more);
    let would_be = used + 2 * (view.ahead.count() + 1);
    (would_be > max).then(|| Refusal::new(Code::GrantMessages).numbers(max, would_be))
}

/// Refuses a request if the turns are used up.
pub(super) fn grant_turns(view: &View<'_>) -> Option<Refusal> {
    let grant = grant_of_request(view)?;
    let max = view.state.limits.grant_turns_max.saturating_add(grant.extension().turns);
    (grant.turns >= max).then(|| Refusal::new(Code::GrantTurns).numbers(max, grant.turns + 1))
}

/// Refuses a request if it would wake one more agent than the grant may.
pub(super) fn grant_agents(view: &View<'_>) -> Option<Refusal> {
    let grant = grant_of_request(view)?;
    let to = view.to?;
    let max = view.state.limits.grant_agents_max.saturating_add(grant.extension().agents);
    let fresh = |agent| !grant.agents.contains(&agent);
    // Recipients of the same send count once each, and only those that the grant hasn't woken.
    let mut ahead: alloc::vec::Vec<_> = view.ahead.targets.iter().copied().filter(|t| fresh(*t)).collect();
    ahead.sort_unstable();
    ahead.dedup();
    let would_be = (grant.agents.len() + ahead.len() + usize::from(fresh(to) && !ahead.contains(&to))) as u64;
    (would_be > max).then(|| Refusal::new(Code::GrantAgents).numbers(max, would_be))
}

/// Whether a limit that latches a grant is used up, so that lifting the latch would change nothing.
pub(crate) fn trips_again(state: &State, grant: &Grant, now: Time) -> bool {
    let (limits, more) = (&state.limits, grant.extension());
    let messages = grant.messages.saturating_add(2) > limits.grant_messages_max.saturating_add(more.messages);
    let turns = grant.turns >= limits.grant_turns_max.saturating_add(more.turns);
    let time = grant.clock_stopped_at.get().unwrap_or(now) >= grant.expires_at;
    let tripped = grant.latched.get().and_then(|id| state.incidents.get(&id)).map(|incident| incident.code);
    match tripped {
        Some(Code::GrantMessages) => messages,
        Some(Code::GrantTurns) => turns,
        Some(Code::GrantExpired) => time,
        // The grant's budget only: an agent's own day never latches a grant (B1).
        Some(Code::Budget) => super::budget_of_grant(state, grant).is_some(),
        Some(_) | None => false,
    }
}

/// Returns how far a grant has passed its limits of tokens, cost and time: a turn reports its usage only when it ends.
pub(crate) fn overrun(state: &State, grant: &Grant, now: Time) -> Extension {
    let (limits, more) = (&state.limits, grant.extension());
    let past =
        |used: u64, max: u64, more: u64| if max == 0 { 0 } else { used.saturating_sub(max.saturating_add(more)) };
    Extension {
        tokens: past(grant.spend.tokens, limits.grant_tokens_max, more.tokens),
        cost_microusd: past(grant.spend.cost_microusd, limits.grant_cost_microusd_max, more.cost_microusd),
        time_ms: grant.clock_stopped_at.get().unwrap_or(now).since(grant.expires_at),
        ..Extension::NONE
    }
}

pub(super) fn grant_of_request<'a>(view: &View<'a>) -> Option<&'a Grant> {
    view.grant().filter(|_| view.is_request() && !view.to_human())
}
