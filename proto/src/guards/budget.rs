//! B1: tokens and cost, for each grant and for each agent and day.

use super::totals::grant_of_request;
use super::{SendContext, View};
use crate::ids::{DAY_MS, Time};
use crate::refusal::{Code, Refusal};
use crate::state::{Agent, Grant, State};

/// The subject of a refusal for the cost of a grant, and the first word of one for the cost of an agent's day.
pub(crate) const MONEY: &str = "money";

/// Refuses a message if the budget of the grant, or of the sender's day, is used up.
pub(super) fn budget(view: &View<'_>) -> Option<Refusal> {
    if view.to_human() {
        return None;
    }
    if !view.is_request() {
        // A message that wakes no agent costs its grant nothing, but outside a turn it is charged to the sender's day.
        let outside = view.standing == SendContext::Outside;
        return view.sender().filter(|_| outside).and_then(|sender| exceeded_by_day(view.state, sender, view.now));
    }
    let spent = grant_of_request(view).and_then(|grant| exceeded(view.state, grant));
    spent.or_else(|| exceeded_by_day(view.state, view.sender()?, view.now))
}

impl State {
    /// Returns the refusal that a send in a grant would get, if the grant's budget is used up.
    #[must_use]
    pub fn budget_used_up(&self, grant: &Grant) -> Option<Refusal> {
        exceeded(self, grant)
    }

    /// Returns the refusal that an agent's send would get, if its budget of the day is used up.
    #[must_use]
    pub fn day_used_up(&self, agent: &Agent, now: Time) -> Option<Refusal> {
        exceeded_by_day(self, agent, now)
    }
}

/// Returns a refusal with the limit and value of the grant's budget, if it is used up.
pub(crate) fn exceeded(state: &State, grant: &Grant) -> Option<Refusal> {
    let limits = &state.limits;
    // 0 means no limit, which an extension must not turn into one.
    let with = |max: u64, more: u64| if max == 0 { 0 } else { max.saturating_add(more) };
    let tokens = (grant.spend.tokens, with(limits.grant_tokens_max, grant.extension().tokens));
    let cost = (grant.spend.cost_microusd, with(limits.grant_cost_microusd_max, grant.extension().cost_microusd));
    over(tokens).or_else(|| over(cost).map(|refusal| refusal.about(MONEY)))
}

/// Returns a refusal with the limit and value of the agent's budget of today, if it is used up.
pub(crate) fn exceeded_by_day(state: &State, agent: &Agent, now: Time) -> Option<Refusal> {
    let spend = agent.day.on(now).spend;
    let tokens = over((spend.tokens, agent.day_tokens_max(&state.limits, now)));
    let cost = || over((spend.cost_microusd, agent.day_cost_microusd_max(&state.limits, now)));
    let day = match tokens {
        Some(tokens) => tokens.about(agent.name()),
        None => cost()?.about(format_args!("{MONEY} of {}'s day", agent.name())),
    };
    Some(day.retry_after(DAY_MS - now.0 % DAY_MS))
}

/// A limit of 0 means no limit.
fn over((used, max): (u64, u64)) -> Option<Refusal> {
    (max > 0 && used >= max).then(|| Refusal::new(Code::Budget).numbers(max, used))
}
