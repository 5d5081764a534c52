//! D7: how much work an agent may start on its own.

use lastword_facts::ids::{DAY_MS, HOUR_MS, Time};
use lastword_facts::refusal::{Code, Refusal};

use super::{SendContext, View};
use crate::state::{Agent, State};

/// Refuses a root beyond the allowance of the hour, and a request beyond the waking messages that the roots of one
/// agent may cause in a day.
pub(super) fn root_allowance(view: &View<'_>) -> Option<Refusal> {
    if !view.is_request() {
        return None;
    }
    let limits = &view.state.limits;
    if view.context == SendContext::Root {
        let agent = view.sender()?;
        let recent = agent.roots.iter().filter(|at| view.now.since(**at) < HOUR_MS).count() as u64;
        let max = agent.roots_per_hour_max(limits);
        if recent >= max {
            // As many of the oldest as are over the limit have to leave before one more fits.
            let over = recent - max;
            let first = agent.roots.iter().filter(|at| view.now.since(**at) < HOUR_MS).nth(over as usize);
            let refusal = Refusal::new(Code::RootAllowance).numbers(max, recent + 1);
            // Where none is allowed, none is left to wait for.
            return Some(match first {
                Some(first) => refusal.retry_after(first.plus(HOUR_MS).since(view.now)),
                None => refusal,
            });
        }
        return day_allowance(view.state, agent, view.now, view.ahead.count() + 1);
    }
    // Work that the root delegated is charged to the day of the root's agent, whichever agent sends it.
    let grant = view.grant().filter(|g| g.own_root)?;
    day_allowance(view.state, view.state.agent(grant.giver)?, view.now, view.ahead.count() + 1)
}

/// Refuses to start work if no human has acted for `unattended_ms`; work that no human gave may not continue either
/// (D12).
pub(super) fn unattended(view: &View<'_>) -> Option<Refusal> {
    let (since, max) = view.state.unattended(view.now)?;
    let starts = matches!(view.context, SendContext::Root | SendContext::Typed(_));
    let own = starts || view.grant().is_some_and(|grant| grant.own_root || grant.scheduled);
    (own && view.is_request() && !view.to_human()).then(|| Refusal::new(Code::Unattended).numbers(max, since))
}

/// Refuses `requests` more requests, of two waking messages each, that don't fit into the day of `agent`'s roots.
fn day_allowance(state: &State, agent: &Agent, now: Time, requests: u64) -> Option<Refusal> {
    let max = state.limits.root_messages_per_day_max;
    let would_be = u64::from(agent.day.on(now).root_messages) + 2 * requests;
    if would_be <= max {
        return None;
    }
    let refusal = Refusal::new(Code::RootAllowance).numbers(max, would_be);
    let refusal = refusal.about(format_args!("waking messages of {}'s day", agent.name()));
    // What no day has room for doesn't fit into tomorrow either.
    Some(if 2 * requests > max { refusal } else { refusal.retry_after(DAY_MS - now.0 % DAY_MS) })
}
