//! What was spent over a stretch of time, by agent, by grant and by model, beside the limits of the day.

use std::collections::{BTreeMap, BTreeSet};

use lastword_broker::Live;
use lastword_core::State;
use lastword_core::state::Grant;
use lastword_facts::Time;
use lastword_facts::ids::{AgentId, ConvId, DAY_MS, GrantId, HOUR_MS};
use lastword_server::calls::Caller;
use lastword_server::calls::read_model::ask_fresh;
use lastword_server::{ApiError, Context};
use lastword_store::{IndexReader, ReadError, SpentIn, SpentOnModels, SpentTurn};

use super::history;

/// The most turns that are added up.
const TURNS_MAX: usize = 100_000;

/// A stretch of time up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Window {
    /// The last hour.
    Hour,
    /// The last 24 hours.
    #[default]
    Day,
    /// The last seven days.
    Week,
}

impl Window {
    /// Returns its length, and the length of one bar, in ms.
    pub(crate) const fn lengths(self) -> (u64, u64) {
        match self {
            Self::Hour => (HOUR_MS, HOUR_MS / 12),
            Self::Day => (DAY_MS, HOUR_MS),
            Self::Week => (7 * DAY_MS, DAY_MS / 2),
        }
    }
}

/// The spending of one agent, grant or model.
pub(crate) struct Spender {
    /// The name of the agent or model, or the grant's id; `None` for what no agent that is known spent, or on no model
    /// that was reported.
    pub(crate) name: Option<String>,
    /// For a grant: the REF of its conversation.
    pub(crate) reference: Option<String>,
    /// Whether it has no page: the agent was removed, or the grant's conversation is forgotten.
    pub(crate) gone: bool,
    /// For an open grant: its budget, and whether that is used up.
    pub(crate) budget: Option<GrantBudget>,
    /// What it spent.
    pub(crate) spent: SpentIn,
    /// For an agent: what it spent on each model that was reported, the largest part first.
    pub(crate) models: Vec<(String, SpentIn)>,
}

/// The budget of an open grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrantBudget {
    /// The tokens that it may spend, extensions included; 0 is no limit.
    pub(crate) tokens: u64,
    /// The cost that it may spend, in millionths of a dollar, extensions included; 0 is no limit.
    pub(crate) cost_microusd: u64,
    /// Whether it has spent that much.
    pub(crate) used_up: bool,
}

/// One agent's use of its day budget.
pub(crate) struct DayBudget {
    /// The agent's name.
    pub(crate) agent: String,
    /// Whether it counts dollars instead of tokens.
    pub(crate) is_cost: bool,
    /// What it used today.
    pub(crate) used: u64,
    /// Whether that is estimated from the length of the text, at least in part.
    pub(crate) estimated: bool,
    /// The limit, with what humans granted for today.
    pub(crate) limit: u64,
    /// What it had used after each of its turns today, oldest first.
    pub(crate) curve: Vec<(Time, u64)>,
    /// When it was used up, or will be at the pace of the last hour.
    pub(crate) used_up: Option<Time>,
}

/// The spending over a window.
pub(crate) struct Spending {
    /// The sum.
    pub(crate) sum: SpentIn,
    /// The begin of the window.
    pub(crate) since: Time,
    /// The tokens and the cost of each bar, with its begin, oldest first. The first one may begin before the window, and
    /// the last one end after it: they have what was spent within.
    pub(crate) bars: Vec<(Time, u64, u64)>,
    /// The agents, the largest spender first.
    pub(crate) agents: Vec<Spender>,
    /// The grants, the largest spender first.
    pub(crate) grants: Vec<Spender>,
    /// The models, the largest part first.
    pub(crate) models: Vec<Spender>,
    /// The day budgets of agents that spent something today.
    pub(crate) budgets: Vec<DayBudget>,
    /// Whether only the newest turns were added up.
    pub(crate) cut: bool,
}

/// Returns the spending over a window.
pub(crate) async fn spending(ctx: &Context, caller: Caller, window: Window) -> Result<Spending, ApiError> {
    caller.human()?;
    let now = ctx.handle.now();
    let midnight = Time(now.day() * DAY_MS);
    let since = Time(now.0.saturating_sub(window.lengths().0));
    let from = since.min(midnight);
    let both = move |index: &IndexReader| -> Result<_, ReadError> {
        Ok((index.spent_since(from, TURNS_MAX)?, index.spent_on_models(since, TURNS_MAX)?))
    };
    let (turns, models) = ask_fresh(ctx, both).await?;
    let cut = turns.len() >= TURNS_MAX;
    let of: Vec<(GrantId, ConvId)> = turns.iter().filter_map(|turn| turn.grant.zip(turn.conv)).collect();
    let forgotten = move |live: &Live<'_>| -> BTreeSet<ConvId> {
        of.iter().filter(|(grant, _)| live.state.grants.get(grant).is_none()).map(|(_, conv)| *conv).collect()
    };
    let convs: Vec<ConvId> = ctx.handle.query(forgotten).await?.into_iter().collect();
    let refs: BTreeMap<ConvId, String> = ask_fresh(ctx, move |index| index.refs(&convs)).await?.into_iter().collect();
    let look = move |live: &Live<'_>| {
        let within = || turns.iter().filter(|turn| turn.at >= since);
        let sum = history::add_up(within().map(spent));
        Spending {
            sum,
            since,
            bars: bars(within(), now, window),
            agents: by_agent(live, within(), &models),
            grants: by_grant(live, &refs, within()),
            models: by_model(&models, sum),
            budgets: budgets(live, &turns, midnight),
            cut,
        }
    };
    Ok(ctx.handle.query(look).await?)
}

const fn spent(turn: &SpentTurn) -> SpentIn {
    SpentIn { tokens: turn.tokens, cost_microusd: turn.cost_microusd, estimated: turn.estimated }
}

fn bars<'a>(turns: impl Iterator<Item = &'a SpentTurn>, now: Time, window: Window) -> Vec<(Time, u64, u64)> {
    let (length, bar) = window.lengths();
    // Whole hours between the parts of one at either end: no bar covers more time than another.
    let first = now.0.saturating_sub(length) / bar * bar;
    let mut bars: Vec<(Time, u64, u64)> = (0..=length / bar).map(|n| (Time(first + n * bar), 0, 0)).collect();
    for turn in turns {
        let at = usize::try_from(turn.at.0.saturating_sub(first) / bar).ok();
        if let Some((_, tokens, cost)) = at.and_then(|at| bars.get_mut(at)) {
            *tokens = tokens.saturating_add(turn.tokens);
            *cost = cost.saturating_add(turn.cost_microusd);
        }
    }
    bars
}

/// Orders spenders by cost, then by tokens.
fn ordered(sums: impl Iterator<Item = Spender>) -> Vec<Spender> {
    let mut spenders: Vec<Spender> = sums.collect();
    spenders.sort_by_key(|one| std::cmp::Reverse((one.spent.cost_microusd, one.spent.tokens)));
    spenders
}

fn by_agent<'a>(live: &Live<'_>, turns: impl Iterator<Item = &'a SpentTurn>, models: &SpentOnModels) -> Vec<Spender> {
    let mut sums: BTreeMap<Option<AgentId>, SpentIn> = BTreeMap::new();
    for turn in turns {
        sums.entry(turn.agent).or_default().add(spent(turn));
    }
    ordered(sums.into_iter().map(|(agent, spent)| {
        let name = agent.map(|agent| live.state.name_of(agent).to_owned());
        let gone = name.as_deref().is_none_or(|name| live.state.live(name).is_none());
        let mut on: Vec<(String, SpentIn)> =
            models.get(&agent).into_iter().flatten().map(|(model, spent)| (model.clone(), *spent)).collect();
        on.sort_by_key(|(_, spent)| std::cmp::Reverse((spent.cost_microusd, spent.tokens)));
        Spender { name, reference: None, gone, budget: None, spent, models: on }
    }))
}

/// Orders the models; what they leave of the sum is of none that was reported.
fn by_model(models: &SpentOnModels, sum: SpentIn) -> Vec<Spender> {
    let of = |name: Option<String>, spent| Spender {
        name,
        reference: None,
        gone: false,
        budget: None,
        spent,
        models: Vec::new(),
    };
    let mut sums: BTreeMap<&str, SpentIn> = BTreeMap::new();
    for (model, spent) in models.values().flatten() {
        sums.entry(model).or_default().add(*spent);
    }
    let known = history::add_up(sums.values().copied());
    let rest = SpentIn {
        tokens: sum.tokens.saturating_sub(known.tokens),
        cost_microusd: sum.cost_microusd.saturating_sub(known.cost_microusd),
        estimated: sum.estimated,
    };
    let mut spenders = ordered(sums.into_iter().map(|(name, spent)| of(Some(name.to_owned()), spent)));
    spenders.extend((rest.tokens > 0 || rest.cost_microusd > 0).then(|| of(None, rest)));
    spenders
}

fn by_grant<'a>(
    live: &Live<'_>,
    forgotten: &BTreeMap<ConvId, String>,
    turns: impl Iterator<Item = &'a SpentTurn>,
) -> Vec<Spender> {
    // With the first conversation that a turn of it was in, which stands for its own once the grant is forgotten.
    let mut sums: BTreeMap<GrantId, (SpentIn, Option<ConvId>)> = BTreeMap::new();
    for turn in turns {
        if let Some(grant) = turn.grant {
            let (sum, conv) = sums.entry(grant).or_default();
            sum.add(spent(turn));
            *conv = [*conv, turn.conv].into_iter().flatten().min();
        }
    }
    let state = live.state;
    let reference = |grant: &GrantId, conv: Option<ConvId>| {
        let own = state.grants.get(grant).and_then(|grant| state.ref_of(grant.conv)).map(ToString::to_string);
        own.or_else(|| forgotten.get(&conv?).cloned())
    };
    ordered(sums.into_iter().map(|(grant, (spent, conv))| Spender {
        name: Some(grant.to_string()),
        reference: reference(&grant, conv),
        gone: state.grants.get(&grant).is_none(),
        budget: state.grants.get(&grant).filter(|grant| grant.end.is_none()).map(|grant| budget_of(state, grant)),
        spent,
        models: Vec::new(),
    }))
}

fn budget_of(state: &State, grant: &Grant) -> GrantBudget {
    let (limits, more) = (&state.limits, grant.extension());
    let whole = |limit: u64, more: u64| if limit == 0 { 0 } else { limit.saturating_add(more) };
    let tokens = whole(limits.grant_tokens_max, more.tokens);
    let cost_microusd = whole(limits.grant_cost_microusd_max, more.cost_microusd);
    let is_over = |used: u64, limit: u64| limit > 0 && used >= limit;
    let used_up = is_over(grant.spend.tokens, tokens) || is_over(grant.spend.cost_microusd, cost_microusd);
    GrantBudget { tokens, cost_microusd, used_up }
}

fn budgets(live: &Live<'_>, turns: &[SpentTurn], midnight: Time) -> Vec<DayBudget> {
    let (state, now) = (live.state, live.now());
    let mut found = Vec::new();
    for id in state.live_by_name() {
        let Some(agent) = state.agent(id).filter(|agent| !agent.is_human()) else { continue };
        let used = agent.day.on(now).spend;
        let tokens = (false, used.tokens, agent.day_tokens_max(&state.limits, now));
        let cost = (true, used.cost_microusd, agent.day_cost_microusd_max(&state.limits, now));
        for (is_cost, used, limit) in [tokens, cost].into_iter().filter(|(_, used, limit)| *used > 0 && *limit > 0) {
            let mut own: Vec<(Time, u64)> = turns
                .iter()
                .filter(|turn| turn.agent == Some(id) && turn.at >= midnight)
                .map(|turn| (turn.at, if is_cost { turn.cost_microusd } else { turn.tokens }))
                .collect();
            own.sort_unstable();
            let curve = summed(&own);
            let used_up = used_up(&curve, &own, used, limit, now);
            let estimated = !is_cost && agent.day.on(now).estimated;
            found.push(DayBudget { agent: agent.name().to_owned(), is_cost, used, estimated, limit, curve, used_up });
        }
    }
    // Those nearest to their limit first, compared as a/b > c/d as a·d > c·b.
    found.sort_by(|a, b| {
        let part = |x: &DayBudget, y: &DayBudget| u128::from(x.used) * u128::from(y.limit);
        part(b, a).cmp(&part(a, b))
    });
    found
}

fn summed(own: &[(Time, u64)]) -> Vec<(Time, u64)> {
    let mut sum = 0_u64;
    let add = |(at, amount): &(Time, u64)| {
        sum = sum.saturating_add(*amount);
        (*at, sum)
    };
    own.iter().map(add).collect()
}

/// Returns when a budget was used up; otherwise when it will be today at the pace of the last hour.
fn used_up(curve: &[(Time, u64)], own: &[(Time, u64)], used: u64, limit: u64, now: Time) -> Option<Time> {
    if used >= limit {
        return curve.iter().find(|(_, sum)| *sum >= limit).map(|(at, _)| *at).or(Some(now));
    }
    let recent =
        own.iter().filter(|(at, _)| now.since(*at) < HOUR_MS).fold(0, |sum: u64, (_, n)| sum.saturating_add(*n));
    let left_ms = u128::from(limit - used) * u128::from(HOUR_MS) / u128::from(recent.max(1));
    let at = u64::try_from(left_ms).ok().filter(|_| recent > 0).map(|left| now.plus(left))?;
    (at.day() == now.day()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Time = Time(20_000 * DAY_MS + 12 * HOUR_MS);

    #[test]
    fn a_budget_is_used_up_when_its_sum_reached_the_limit_or_will_at_this_pace() {
        let own = [(Time(NOON.0 - 2 * HOUR_MS), 60), (Time(NOON.0 - HOUR_MS / 2), 50)];
        let curve = summed(&own);
        assert_eq!(curve, [(own[0].0, 60), (own[1].0, 110)]);
        let when = |limit| used_up(&curve, &own, 110, limit, NOON);
        assert_eq!(when(100), Some(own[1].0));
        assert_eq!(when(60), Some(own[0].0));
        assert_eq!(when(160), Some(NOON.plus(HOUR_MS)));
        assert_eq!(when(1_000), None, "not today");
        assert_eq!(used_up(&curve, &own[..1], 60, 100, NOON), None, "nothing was spent in the last hour");
    }

    #[test]
    fn each_turn_is_in_one_bar() {
        let turn = |at| SpentTurn {
            turn: lastword_facts::ids::TurnId(1),
            tokens: 7,
            cost_microusd: 2,
            at,
            estimated: false,
            conv: None,
            grant: None,
            agent: None,
        };
        let now = Time(NOON.0 + 1);
        for (window, n) in [(Window::Hour, 13), (Window::Day, 25), (Window::Week, 15)] {
            let (length, bar) = window.lengths();
            // The window begins within the first bar, and the second one is whole.
            let since = now.0 - length;
            let turns = [turn(now), turn(Time(NOON.0 - 1)), turn(Time(since)), turn(Time(since + bar))];
            let bars: Vec<u64> = bars(turns.iter(), now, window).iter().map(|bar| bar.1).collect();
            assert_eq!((bars.len(), bars.iter().sum::<u64>()), (n, 28), "{window:?}");
            assert_eq!([bars[0], bars[1], bars[n - 2], bars[n - 1]], [7, 7, 7, 7], "{window:?}");
        }
    }
}
