//! The spending: over time, by agent, by grant and by model, and the budgets of the day with their limits.

use axum::extract::{Query, State};
use axum::response::Response;
use lastword_facts::Time;
use lastword_facts::ids::DAY_MS;
use lastword_server::Context;
use lastword_store::SpentIn;
use lastword_wire::rfc3339;
use maud::{Markup, html};
use serde::Deserialize;

use super::activity::activity;
use super::agents::name_link;
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, empty, heading};
use super::live::Topic;
use super::parts::{
    Shown, badge, clock, conversation, foreign_line, local, money, number, quantity, spent, tokens, url, utc, zone,
};
use super::session::Viewer;
use crate::reads::figures;
use crate::reads::spend::{self, DayBudget, GrantBudget, Spender, Spending, Window};

/// The most agents, grants or models in a list.
const LINES_MAX: usize = 20;
/// The most models that are named of one agent.
const MODELS_MAX: usize = 4;
/// The size of the chart of bars.
const CHART: (u64, u64) = (720, 100);
/// The widest bar.
const BAR_MAX: u64 = 48;
/// The fewest bars of the chart.
const BARS_MIN: usize = 6;
/// The size of the chart of a budget.
const BUDGET: (u64, u64) = (360, 90);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum Over {
    #[serde(rename = "1h")]
    Hour,
    #[default]
    #[serde(rename = "24h")]
    Day,
    #[serde(rename = "7d")]
    Week,
}

const OVER: [(Over, &str, &str, Window); 3] = [
    (Over::Hour, "1h", "1 hour", Window::Hour),
    (Over::Day, "24h", "24 hours", Window::Day),
    (Over::Week, "7d", "7 days", Window::Week),
];

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpendParams {
    #[serde(default)]
    over: Over,
}

/// `GET /spend?over=24h`: the spending.
pub(super) async fn page(
    State(ctx): State<Context>,
    viewer: Viewer,
    Query(params): Query<SpendParams>,
) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let (_, _, words, window) = OVER.into_iter().find(|one| one.0 == params.over).unwrap_or(OVER[1]);
    let spending = spend::spending(&ctx, viewer.caller, window).await?;
    let sum = spending.sum;
    let figures = figures::figures(&ctx, viewer.caller).await?;
    let main = html! {
        (heading("Spend", &html! { (spent(sum.tokens, sum.estimated, sum.cost_microusd)) span.faint { " in the last " (words) } }))
        nav.views aria-label="Over" {
            @for (over, word, name, _) in OVER { a href={ "?over=" (word) } aria-current=[(over == params.over).then_some("page")] { (name) } }
        }
        (used_up(&spending.grants))
        @if sum.tokens == 0 { (empty("Nothing was spent.", &html! { "Agents report tokens and cost when they end a turn; without a report, tokens are estimated from the texts." })) }
        @if spending.cut { p.faint { "Only the newest turns are added up." } }
        @if sum.tokens > 0 && sum.cost_microusd == 0 { p.faint { "No turn has reported a cost, so tokens are shown." } }
        @if sum.tokens > 0 { (over_time(&spending, window, moment.now)) }
        div.spenders {
            (spenders(By::Agent, &spending.agents)) (spenders(By::Model, &spending.models)) (spenders(By::Grant, &spending.grants))
        }
        @let (near, far): (Vec<_>, Vec<_>) = spending.budgets.iter().partition(|budget| budget.used.saturating_mul(4) >= budget.limit);
        @if !spending.budgets.is_empty() { h2 { "Today's budgets of the agents" } }
        @if !near.is_empty() {
            div.panels.budgets { @for budget in near.into_iter().take(LINES_MAX) { (day(budget, moment.now)) } }
        }
        @if !far.is_empty() { (small(&far)) }
        (activity(&figures))
    };
    let topics = [Topic::Agents, Topic::Limits];
    viewer.page(&ctx, &moment, Page { title: "Spend", place: Place::Spend, topics: &topics, main }).await
}

fn over_time(spending: &Spending, window: Window, now: Time) -> Markup {
    let is_cost = spending.sum.cost_microusd > 0;
    let value = |bar: &(Time, u64, u64)| if is_cost { bar.2 } else { bar.1 };
    let words = |n: u64| if is_cost { money(n) } else { format!("{} tokens", number(n)) };
    let most = spending.bars.iter().map(value).max().unwrap_or_default().max(1);
    // Without the stretches before anything was spent, of which a new workspace has most.
    let empty = spending.bars.iter().take_while(|bar| bar.1 == 0 && bar.2 == 0).count();
    let bars = &spending.bars[empty.min(spending.bars.len().saturating_sub(BARS_MIN))..];
    let step = CHART.0 / bars.len().max(1) as u64;
    let shown = if window == Window::Week { Shown::Day } else { Shown::Minute };
    html! {
        section.card {
            svg.chart viewBox={ "0 0 " (CHART.0) " " (CHART.1 + 20) } role="img" aria-label={ "Spending over time, at most " (words(most)) " in one bar" } {
                line.grid x1="0" y1="14" x2=(CHART.0) y2="14" {}
                text x="0" y="10" { (words(most)) }
                @for (index, bar) in bars.iter().enumerate() {
                    @let x = index as u64 * step;
                    @let height = (u128::from(value(bar)) * u128::from(CHART.1 - 14) / u128::from(most)).max(1);
                    rect x=(x) y=(u128::from(CHART.1) - height) width=(step.saturating_sub(4).clamp(1, BAR_MAX)) height=(height) class=[(value(bar) == 0).then_some("none")] {
                        title { (utc(&rfc3339(bar.0))) ": " (words(value(bar))) }
                    }
                    @if index % (bars.len().div_ceil(6)) == 0 { text.below x=(x) y=(CHART.1 + 5) data-at=(rfc3339(bar.0)) data-local=(shown.pattern()) { (shown.of(&rfc3339(bar.0))) } }
                }
            }
            p.faint { "Times are in " (zone()) ". "
                @if let Some((begin, ..)) = bars.first().filter(|_| bars.len() < spending.bars.len()) { "Nothing was spent before " (local(&rfc3339(*begin), Shown::DateAndMinute)) ". " }
                (edges(spending, bars.len() == spending.bars.len(), window, now)) }
        }
    }
}

/// Says which bars cover less time than the others: the window begins and ends within one.
fn edges(spending: &Spending, has_first: bool, window: Window, now: Time) -> Markup {
    html! {
        @if has_first { "The first bar has what was spent since " (clock(spending.since)) ", the last one" } @else { "The last bar has" }
        " what was spent up to " (clock(now)) "; each of the others covers " (quantity("bar_ms", window.lengths().1)) "."
    }
}

/// Shows the open grants whose budget is used up.
fn used_up(grants: &[Spender]) -> Markup {
    let over: Vec<(&Spender, GrantBudget)> =
        grants.iter().filter_map(|one| Some((one, one.budget.filter(|budget| budget.used_up)?))).collect();
    html! {
        @if !over.is_empty() {
            section.card.over aria-label="Budgets that are used up" {
                ul.lines {
                    @for (one, budget) in over {
                        li {
                            (badge("held")) " " @if let Some(reference) = &one.reference { (conversation(reference)) " " }
                            "has used up the budget of " code { (one.name.as_deref().unwrap_or_default()) } ": "
                            @if budget.tokens > 0 { (tokens(budget.tokens)) " tokens" }
                            @if budget.tokens > 0 && budget.cost_microusd > 0 { " and " }
                            @if budget.cost_microusd > 0 { (money(budget.cost_microusd)) }
                            ". " a.step href=(url("/inbox")) { "Lift or stop it" }
                        }
                    }
                }
            }
        }
    }
}

/// Shows the budgets of which less than a quarter is used, as bars: their curves would be flat.
fn small(budgets: &[&DayBudget]) -> Markup {
    html! {
        section.card.far aria-label="Budgets of which less than a quarter is used" {
            ul.measures {
                @for budget in budgets.iter().take(LINES_MAX) {
                    li {
                        span { (name_link(&budget.agent)) }
                        b { @if budget.estimated { "≈ " } (shown(budget, budget.used)) " of " (shown(budget, budget.limit)) @if !budget.is_cost { " tokens" } }
                        progress max=(budget.limit) value=(budget.used) aria-label={ (budget.agent) ", of its budget" } {}
                    }
                }
            }
            @if budgets.len() > LINES_MAX { p.faint { "and " (budgets.len() - LINES_MAX) " more" } }
        }
    }
}

/// Shows an amount of a budget without its unit.
fn shown(budget: &DayBudget, n: u64) -> Markup {
    html! { @if budget.is_cost { (money(n)) } @else { (tokens(n)) } }
}

/// Returns an amount of a budget for where no markup fits.
fn counted(budget: &DayBudget, n: u64) -> String {
    if budget.is_cost { money(n) } else { format!("{} tokens", number(n)) }
}

/// What a list of spenders adds up by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Agent,
    Grant,
    Model,
}

fn spenders(by: By, all: &[Spender]) -> Markup {
    let title = match by {
        By::Agent => "By agent",
        By::Grant => "By grant",
        By::Model => "By model",
    };
    let is_cost = all.iter().any(|one| one.spent.cost_microusd > 0);
    let value = |one: &Spender| if is_cost { one.spent.cost_microusd } else { one.spent.tokens };
    let most = all.iter().map(value).max().unwrap_or_default().max(1);
    html! {
        section.card {
            h2 { (title) }
            @if all.is_empty() { p.faint { "Nothing." } }
            ul.measures {
                @for one in all.iter().take(LINES_MAX) {
                    @let over = one.budget.is_some_and(|budget| budget.used_up);
                    li {
                        span { (spender(by, one)) }
                        b.bad[over] { (spent(one.spent.tokens, one.spent.estimated, one.spent.cost_microusd)) }
                        progress class=[over.then_some("bad")] max=(most) value=(value(one)) aria-label={ (one.name.as_deref().unwrap_or("the rest")) ", of the most" } {}
                        @if !one.models.is_empty() { div.parts.faint { (on_models(&one.models)) } }
                    }
                }
            }
            @if all.len() > LINES_MAX { p.faint { "and " (all.len() - LINES_MAX) " more" } }
        }
    }
}

/// Lists an agent's models, with the spending on each if there are several.
fn on_models(models: &[(String, SpentIn)]) -> Markup {
    html! {
        @for (index, (model, part)) in models.iter().take(MODELS_MAX).enumerate() {
            @if index > 0 { ", " }
            (foreign_line(model))
            @if models.len() > 1 { " " (spent(part.tokens, part.estimated, part.cost_microusd)) }
        }
        @if models.len() > MODELS_MAX { " and " (models.len() - MODELS_MAX) " more" }
    }
}

fn spender(by: By, one: &Spender) -> Markup {
    let reference = one.reference.as_deref();
    html! {
        @match (by, &one.name) {
            (By::Agent, Some(name)) if one.gone => span title="This agent was removed." { (foreign_line(name)) },
            (By::Agent, Some(name)) => (name_link(name)),
            (By::Agent, None) | (By::Grant, None) => span.faint title="The log no longer has the messages that opened these turns." { "turns of earlier agents" },
            (By::Grant, Some(id)) if one.gone => {
                span title="No longer in memory." { code { (foreign_line(reference.unwrap_or_default())) } " " code.faint { (id) } }
            },
            (By::Grant, Some(id)) => { @if let Some(reference) = reference { (conversation(reference)) " " } code.faint { (id) } },
            (By::Model, Some(name)) => (foreign_line(name)),
            (By::Model, None) => span.faint title="Turns whose agents named no model with their usage, and what is estimated from texts." { "no model reported" },
        }
    }
}

/// Shows an agent's budget of the day: what was used by the time, and the limit as a line.
fn day(budget: &DayBudget, now: Time) -> Markup {
    let words = |n: u64| counted(budget, n);
    let top = budget.limit.max(budget.used).max(1);
    let y = |n: u64| {
        BUDGET.1 - u64::try_from(u128::from(n) * u128::from(BUDGET.1 - 16) / u128::from(top)).unwrap_or_default()
    };
    let x = |at: Time| (at.0 % DAY_MS) * BUDGET.0 / DAY_MS;
    let mut path = format!("M 0 {}", BUDGET.1);
    for (at, sum) in &budget.curve {
        path.push_str(&format!(" H {} V {}", x(*at), y(*sum)));
    }
    path.push_str(&format!(" H {}", x(now)));
    let over = budget.used >= budget.limit;
    html! {
        article.card {
            h2 { (name_link(&budget.agent)) }
            p {
                @if budget.estimated { "≈ " } (shown(budget, budget.used)) " of " (shown(budget, budget.limit)) @if !budget.is_cost { " tokens" } ". "
                @match budget.used_up {
                    Some(at) if over => b.bad { "Used up at " (clock(at)) "." },
                    Some(at) => span.warn { "At this pace used up at " (clock(at)) "." },
                    None => {},
                }
            }
            svg.chart.curve viewBox={ "0 0 " (BUDGET.0) " " (BUDGET.1 + 18) } role="img" aria-label={ (budget.agent) ": " (words(budget.used)) " of " (words(budget.limit)) " today" } {
                line.limit x1="0" y1=(y(budget.limit)) x2=(BUDGET.0) y2=(y(budget.limit)) {}
                text x="2" y=(y(budget.limit) - 3) { "limit " (words(budget.limit)) }
                path d=(path) {}
                @for hour in [0_u64, 6, 12, 18] { text.below x=(hour * BUDGET.0 / 24) y=(BUDGET.1 + 4) { (format!("{hour:02}:00")) } }
            }
        }
    }
}
