//! B1: tokens and cost, for each grant and for each agent and day.

use lastword_facts::ids::{DAY_MS, Time};
use lastword_facts::refusal::{Code, MONEY, Refusal};

use super::totals::grant_of_request;
use super::{SendContext, View};
use crate::state::{Agent, Grant, State};

/// Refuses a message if the budget of the grant, or of the sender's day, is used up.
pub(super) fn budget(view: &View<'_>) -> Option<Refusal> {
    if view.to_human() {
        return None;
    }
    if !view.is_request() {
        // A message that wakes no agent costs its grant nothing, but outside a turn it is charged to the sender's day.
        let outside = view.context == SendContext::Outside;
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

/// An amount used, and its limit; a limit of 0 means no limit.
type Share = (u64, u64);

/// Returns a refusal with the limit and value of the grant's budget, if it is used up.
pub(crate) fn exceeded(state: &State, grant: &Grant) -> Option<Refusal> {
    let (tokens, cost) = of_grant(state, grant);
    over(tokens).or_else(|| over(cost).map(|refusal| refusal.about(MONEY)))
}

/// Returns a refusal with the limit and value of the agent's budget of today, if it is used up.
pub(crate) fn exceeded_by_day(state: &State, agent: &Agent, now: Time) -> Option<Refusal> {
    let (tokens, cost) = of_day(state, agent, now);
    let day = match over(tokens) {
        Some(tokens) => tokens.about(agent.name()),
        None => over(cost)?.about(format_args!("{MONEY} of {}'s day", agent.name())),
    };
    Some(day.retry_after(DAY_MS - now.0 % DAY_MS))
}

/// Whether a quarter more than the grant's budget is used up: running turns had that much to finish with.
pub(crate) fn ends_turns(state: &State, grant: &Grant) -> bool {
    let (tokens, cost) = of_grant(state, grant);
    is_a_quarter_over(tokens) || is_a_quarter_over(cost)
}

/// Whether a quarter more than the agent's budget of today is used up.
pub(crate) fn day_ends_turns(state: &State, agent: &Agent, now: Time) -> bool {
    let (tokens, cost) = of_day(state, agent, now);
    is_a_quarter_over(tokens) || is_a_quarter_over(cost)
}

/// Returns the tokens and the cost of a grant.
fn of_grant(state: &State, grant: &Grant) -> (Share, Share) {
    let limits = &state.limits;
    // 0 means no limit, which an extension must not turn into one.
    let with = |max: u64, more: u64| if max == 0 { 0 } else { max.saturating_add(more) };
    let tokens = (grant.spend.tokens, with(limits.grant_tokens_max, grant.extension().tokens));
    (tokens, (grant.spend.cost_microusd, with(limits.grant_cost_microusd_max, grant.extension().cost_microusd)))
}

/// Returns the tokens and the cost of an agent's day.
fn of_day(state: &State, agent: &Agent, now: Time) -> (Share, Share) {
    let spend = agent.day.on(now).spend;
    let tokens = (spend.tokens, agent.day_tokens_max(&state.limits, now));
    (tokens, (spend.cost_microusd, agent.day_cost_microusd_max(&state.limits, now)))
}

fn over((used, max): Share) -> Option<Refusal> {
    (max > 0 && used >= max).then(|| Refusal::new(Code::Budget).numbers(max, used))
}

const fn is_a_quarter_over((used, max): Share) -> bool {
    max > 0 && used >= max.saturating_add(max / 4)
}
