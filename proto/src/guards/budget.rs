//! B1: tokens and money, per grant and per agent and day.

use super::View;
use super::totals::grant_of_request;
use crate::refusal::{Code, Refusal};
use crate::state::{Agent, Grant, State};

/// The budget of the grant, or of the sender's day, is used up.
pub(super) fn budget(view: &View<'_>) -> Option<Refusal> {
    if !view.is_request() || view.to_human() {
        return None;
    }
    let spent = grant_of_request(view).and_then(|grant| exceeded(view.state, grant));
    spent.or_else(|| exceeded_by_day(view.state, view.sender()?, view.now))
}

/// The limit and value of the grant's budget that is used up.
pub(crate) fn exceeded(state: &State, grant: &Grant) -> Option<Refusal> {
    let limits = &state.limits;
    let tokens = (grant.spend.tokens, limits.grant_tokens_max.saturating_add(grant.extension().tokens));
    let cost_max = limits.grant_cost_microusd_max;
    let cost_max = if cost_max == 0 { 0 } else { cost_max.saturating_add(grant.extension().cost_microusd) };
    over(tokens).or_else(|| over((grant.spend.cost_microusd, cost_max)))
}

/// The limit and value of the agent's budget of today that is used up.
pub(crate) fn exceeded_by_day(state: &State, agent: &Agent, now: crate::ids::Time) -> Option<Refusal> {
    let spend = agent.day.on(now).spend;
    over((spend.tokens, state.limits.agent_day_tokens_max))
        .or_else(|| over((spend.cost_microusd, state.limits.agent_day_cost_microusd_max)))
}

/// A limit of 0 is no limit.
fn over((used, max): (u64, u64)) -> Option<Refusal> {
    (max > 0 && used >= max).then(|| Refusal::new(Code::Budget).numbers(max, used))
}
