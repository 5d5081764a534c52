//! The limits in force: where each was set, its recent peak, and what it refused.

use std::collections::BTreeMap;
use std::iter;
use std::path::Path;

use axum::extract::{Query, State};
use axum::response::Response;
use lastword_broker::Live;
use lastword_facts::fact::Role;
use lastword_facts::policy::Ruling;
use lastword_server::Context;
use lastword_server::calls::{limits, policy};
use lastword_wire::{ApprovalRuleView, LimitView, LimitsView, rfc3339};
use maud::{Markup, html};

use super::agents::name_link;
use super::bound;
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, heading};
use super::limit_forms;
use super::live::Topic;
use super::parts::{
    badge, bar_of, capital, conversation, foreign_line, limit_words, number, plural, quantity, room, url,
};
use super::session::Viewer;
use super::terms::{rule, told};
use crate::reads::figures::{self, Reached, ReachedBy, Week};

/// The limits by what a human wants to bound, each with its rules.
const GROUPS: [(&str, &[&str]); 8] = [
    ("How far one conversation goes", &["D2", "D3", "D4", "D11", "R1", "R5"]),
    ("What one grant can cause", &["D8"]),
    ("Budgets", &["B1"]),
    ("Work that agents start on their own, and schedules", &["D7", "D12", "H8", "D13"]),
    ("Turns and deliveries", &["F1", "F5", "Q2", "Q4", "Q5"]),
    ("How fast agents may write", &["G1", "G2", "E4"]),
    ("Questions to humans and held calls", &["H1", "H2"]),
    ("Sizes, claims, and how long things are kept", &["L3", "L4", "L7", "C1", "E2"]),
];

/// How the page shows each limit.
struct Shown<'a> {
    ctx: &'a Context,
    viewer: &'a Viewer,
    limits: &'a LimitsView,
    week: &'a Week,
    open_grants: u64,
    /// The limit whose form is open.
    changing: Option<&'a str>,
}

/// `GET /limits?hops_max=4`: what other limits would bound, and all limits with last week's peaks and refusals.
/// `change=NAME` opens the form of a limit.
pub(super) async fn page(
    State(ctx): State<Context>,
    viewer: Viewer,
    Query(wanted): Query<BTreeMap<String, String>>,
) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let limits = limits::in_force(&ctx).await?;
    let look = |live: &Live<'_>| {
        let open = live.state.grants.iter().filter(|(_, grant)| grant.end.is_none()).count() as u64;
        (live.state.limits.clone(), open)
    };
    let (in_force, open_grants) = ctx.handle.query(look).await?;
    let written = policy::comments(&ctx).await?;
    let week = figures::week(&ctx, viewer.caller).await?;
    let changed = limits.items.iter().filter(|limit| limit.value != limit.default).count() as u64;
    let changing = wanted.get("change").map(String::as_str);
    let shown = Shown { ctx: &ctx, viewer: &viewer, limits: &limits, week: &week, open_grants, changing };
    let main = html! {
        (heading("Limits", &html! { span.faint { (plural(changed, "limit differs", "limits differ")) " from the default" } }))
        p #profile { "Profile " b { (limits.profile) } ", " (set_at(&ctx, "profile")) ". " (bound::about(in_force.profile)) " Limits that are set one by one win over it; the values below are in force." }
        @if ctx.config.place().is_some() {
            p { "What an owner changes here is in force at once, and written to " code { (bound::place(&ctx)) } ". What is changed in that file takes effect at the next server start." }
        } @else {
            p { "Limits are set where the configuration of this server is kept." }
        }
        (bound::bound(&ctx, &viewer, &in_force, &wanted))
        h2 { "The last seven days " span.faint { "since " (rfc3339(week.since).get(..10).unwrap_or_default()) } }
        (nearest(&limits, &week))
        (refused(&week))
        h2 { "All limits" }
        (shown.differing())
        @for (name, rules) in GROUPS { (shown.group(name, rules)) }
        (guards(&ctx, &limits))
        (held_calls(&viewer, &limits, &written))
    };
    let page = Page { title: "Limits", place: Place::Limits, topics: &[Topic::Limits], main };
    viewer.page(&ctx, &moment, page).await
}

impl Shown<'_> {
    /// Shows the limits that aren't the defaults, which is what a reader comes for.
    fn differing(&self) -> Markup {
        let of: Vec<&LimitView> = self.limits.items.iter().filter(|limit| limit.value != limit.default).collect();
        html! {
            @if !of.is_empty() {
                details.limits #limits-set open {
                    summary { "Set here " span.faint { (plural(of.len() as u64, "limit differs", "limits differ")) " from the default" } }
                    (rows("Set here", &html! { @for limit in &of { (self.row(limit, None)) } }))
                }
            }
        }
    }

    /// Shows the limits of some rules, folded: a browser unfolds what a link leads to.
    fn group(&self, name: &str, rules: &[&str]) -> Markup {
        let of: Vec<&LimitView> =
            rules.iter().flat_map(|rule| self.limits.items.iter().filter(move |limit| limit.rule == *rule)).collect();
        let differ = of.iter().filter(|limit| limit.value != limit.default).count() as u64;
        html! {
            details.limits id={ "limits-" (rules.first().unwrap_or(&"")) } open[of.iter().any(|limit| self.changing == Some(&limit.name))] {
                summary {
                    (name) " " span.faint { (plural(of.len() as u64, "limit", "limits"))
                        @if differ > 0 { ", " (plural(differ, "differs", "differ")) " from the default" } }
                }
                (rows(name, &html! {
                    @for (index, limit) in of.iter().enumerate() {
                        @let is_first = index == 0 || of[index - 1].rule != limit.rule;
                        (self.row(limit, Some(Anchors { of_rule: is_first })))
                    }
                }))
            }
        }
    }

    fn row(&self, limit: &LimitView, anchors: Option<Anchors>) -> Markup {
        let changed = limit.value != limit.default;
        let is_changing = anchors.is_some() && self.changing == Some(&limit.name);
        let may_change = self.viewer.role == Role::Owner && self.ctx.config.place().is_some();
        html! {
            tr id=[anchors.map(|_| &limit.name)] {
                th scope="row" { (with_code(&limit.meaning)) div.faint { code { (limit.name) } } }
                td {
                    @if changed { b { (quantity(&limit.name, limit.value)) } } @else { (quantity(&limit.name, limit.value)) }
                    @if changed { div.faint { "default " (quantity(&limit.name, limit.default)) } }
                    @if changed || self.ctx.config.set_at(&limit.name).is_some() { div.faint { (set_at(self.ctx, &limit.name)) } }
                    @if may_change && is_changing { (limit_forms::form(self.viewer, limit, self.week.reached.get(limit.name.as_str()), self.open_grants)) }
                    @else if may_change {
                        " " a aria-label={ "Change " (limit.name) } href={ (url("/limits")) "?change=" (limit.name) "#" (limit.name) } { "Change" }
                    }
                }
                td.rule-id id=[anchors.filter(|to| to.of_rule).map(|_| &limit.rule)] { (limit.rule) }
            }
        }
    }
}

fn rows(name: &str, rows: &Markup) -> Markup {
    html! {
        div.table.stacked tabindex="0" role="region" aria-label=(name) {
            table {
                thead { tr { th scope="col" { "Limit" } th scope="col" { "Value" } th scope="col" { "Rule" } } }
                tbody { (rows) }
            }
        }
    }
}

/// What links to a limit, and to its rule, lead to.
#[derive(Clone, Copy)]
struct Anchors {
    /// Whether the limit is the first one of its rule, to which links to the rule lead.
    of_rule: bool,
}

/// Shows the file and line, as the server read them at startup.
fn set_at(ctx: &Context, name: &str) -> Markup {
    let Some(at) = ctx.config.set_at(name) else { return html! { "set at startup" } };
    let file = Path::new(&at).file_name().map_or(at.as_str().into(), std::ffi::OsStr::to_string_lossy);
    html! { "set in " code title=(at) { (foreign_line(&file)) } }
}

/// Shows the peaks, by their share of the limit.
fn nearest(limits: &LimitsView, week: &Week) -> Markup {
    let mut all: Vec<(&LimitView, &Reached)> =
        limits.items.iter().filter_map(|limit| Some((limit, week.reached.get(limit.name.as_str())?))).collect();
    all.sort_by_key(|(_, reached)| std::cmp::Reverse(permille(reached)));
    html! {
        @if all.is_empty() { p.faint { "No messages, so no limit was approached." } }
        ul.lines.shares {
            @for (limit, reached) in &all {
                li {
                    span { (capital(limit_words(&limit.name))) " " code.faint { (limit.name) } }
                    (bar_of(&limit.name, reached.value, reached.limit))
                    span { (reached_by(reached)) }
                }
            }
        }
        @if !all.is_empty() {
            p.faint { "The highest value of each, per UTC day, compared with the limits in force now. Peaks are not recorded for windows, times and sizes; see their refusals instead." }
        }
    }
}

/// Says where a limit was approached.
pub(super) fn reached_by(reached: &Reached) -> Markup {
    html! {
        @match &reached.by {
            Some(ReachedBy::Conversation(reference)) => { " in " (conversation(reference)) }
            Some(ReachedBy::Room(name)) => { " in the room " (room(name)) }
            Some(ReachedBy::Agent(agent)) => { " by " (name_link(agent)) ", today" }
            None => {}
        }
    }
}

fn permille(reached: &Reached) -> u64 {
    reached.value.saturating_mul(1000).checked_div(reached.limit).unwrap_or_default()
}

fn refused(week: &Week) -> Markup {
    let recent = week.refused.iter().filter(|code| code.count.since > 0);
    html! {
        section #refused {
            h3 { "Refused" }
            @if recent.clone().next().is_none() { p.faint { "No message was refused." } }
            ul.lines {
                @for code in recent {
                    li { b { (number(code.count.since)) } " " (told(code.code)) ", " span.faint { "rule " (rule(code.code.rule())) ", " code { (code.code) } }
                        " " a href={ (url("/messages/msg-")) (code.last.0) } { "latest" } }
                }
            }
        }
    }
}

fn guards(ctx: &Context, limits: &LimitsView) -> Markup {
    let observed: Vec<&String> =
        limits.guards.iter().filter(|(_, mode)| *mode == "observe").map(|(name, _)| name).collect();
    html! {
        h2 { "Guards" }
        p.faint {
            @if observed.is_empty() { "All guards enforce." }
            @else {
                @for (index, name) in observed.iter().enumerate() { @if index > 0 { ", " } code { (name) } }
                @if observed.len() == 1 { " observes" } @else { " observe" } " instead of refusing, " (set_at(ctx, "observe")) ". The others enforce."
            }
        }
        p.tags { @for (name, mode) in &limits.guards {
            span { code { (name) } @if mode == "observe" { " " (badge("observes")) } } " "
        } }
    }
}

/// Shows the policy; `written` has the text and the comment of each rule that a human's click wrote.
fn held_calls(viewer: &Viewer, limits: &LimitsView, written: &[Option<(String, String)>]) -> Markup {
    let rules = limits.approvals.iter().zip(written.iter().map(Option::as_ref).chain(iter::repeat(None)));
    html! {
        h2 #held-calls { "Held calls" }
        p.faint { "The first rule that matches a call applies." }
        p.faint.narrow-only { "Scroll sideways to see who decides, and in which time." }
        div.table tabindex="0" role="region" aria-label="The policy of held calls" {
            table {
                thead { tr { th scope="col" { "Call" } th scope="col" { "Agents" } th scope="col" { "Decision" } th scope="col" { "Who decides" } th scope="col" { "Time" } } }
                tbody { @for (index, (rule, written)) in rules.enumerate() { (held(viewer, index, rule, written)) } }
            }
        }
    }
}

fn held(viewer: &Viewer, index: usize, rule: &ApprovalRuleView, written: Option<&(String, String)>) -> Markup {
    let asks = rule.decision == Ruling::Ask;
    html! {
        tr {
            th scope="row" { code { (foreign_line(&rule.call)) }
                @if let Some((_, comment)) = written { div.faint { (foreign_line(comment)) } } }
            td { @if rule.agents.is_empty() { "every agent" } @else { (foreign_line(&rule.agents.join(", "))) } }
            td { (ruled(rule.decision)) @if let Some(tier) = &rule.tier { " " span.badge.plain { (foreign_line(tier)) } }
                @if let Some((text, _)) = written.filter(|_| viewer.role == Role::Owner) {
                    (viewer.asked(&format!("withdraw-{index}"), "/limits/rules/withdraw", "Take back this rule? Such a call is held again.", &html! {
                        input type="hidden" name="rule" value=(text);
                        button type="submit" { "Take back" }
                    }))
                } }
            td { @if asks { (foreign_line(&rule.who.join(", "))) } @else { "–" } }
            td { @if asks { (quantity("approval_ms", rule.timeout_ms)) } @else { "–" } }
        }
    }
}

/// Shows a sentence, with what stands between backticks as code.
fn with_code(text: &str) -> Markup {
    html! { @for (index, part) in text.split('`').enumerate() { @if index % 2 == 1 { code { (part) } } @else { (part) } } }
}

const fn ruled(ruling: Ruling) -> &'static str {
    match ruling {
        Ruling::Ask => "ask",
        Ruling::Allow => "allow",
        Ruling::Deny => "deny",
    }
}

#[cfg(test)]
mod tests {
    use lastword_facts::limits::LIMITS;

    use super::*;

    #[test]
    fn each_limit_is_in_one_group() {
        for limit in LIMITS {
            let groups = GROUPS.iter().filter(|(_, rules)| rules.contains(&limit.rule)).count();
            assert_eq!(groups, 1, "{}", limit.rule);
        }
    }

    #[test]
    fn what_stands_between_backticks_is_code() {
        assert_eq!(with_code("`a b` & c").into_string(), "<code>a b</code> &amp; c");
    }
}
