//! Incidents: tripped limits that hold work until a human lifts them.

use lastword_facts::Code;
use lastword_facts::fact::Role;
use lastword_facts::ids::HOUR_MS;
use lastword_server::calls::incidents;
use lastword_server::{ApiError, Context};
use lastword_wire::{IncidentView, LimitsView};
use maud::{Markup, html};

use super::conversation::amounts;
use super::decision::{chain, ends};
use super::layout::Moment;
use super::parts::{
    badge, conversation, encoded, excerpt, foreign_line, money, number, or_you, plural, room, time, url,
};
use super::session::Viewer;
use super::terms::{rule, term, told};
use super::work::duration;
use crate::reads::decisions::{Decision, RequestLink};

/// The most incidents in a list.
const LISTED_MAX: usize = 50;
/// What lifting a hold does, where no incident says it in numbers.
pub(super) const EFFECT: &str =
    "Its held requests continue. A grant that used up a total or its budget gets the same amount once more.";

/// What stopping a conversation does.
pub(super) const STOPPED: &str = "Its open requests are cancelled for good, and their requesters are notified.";

/// The characters that are shown of a held request.
const TEXT_CHARS: usize = 120;

/// Shows the limits that tripped and hold nothing, folded: those for information, and those that were lifted.
pub(super) async fn history(ctx: &Context, viewer: &Viewer, moment: &Moment) -> Result<Markup, ApiError> {
    let incidents = incidents::list(ctx, viewer.caller).await?.items;
    let (noted, others): (Vec<_>, Vec<_>) = incidents.iter().partition(|incident| incident.scope == "agent");
    let lifted: Vec<_> = others.into_iter().filter(|incident| incident.lifted_at.is_some()).collect();
    let fold = |id: &str, title: &str, all: &[&IncidentView], shown: fn(&Moment, &IncidentView) -> Markup| {
        html! {
            @if !all.is_empty() {
                details.fold id=(id) {
                    summary { (title) " " span.count { (all.len()) } }
                    ul.lines { @for incident in all.iter().take(LISTED_MAX) { li { (shown(moment, incident)) } } }
                    @if all.len() > LISTED_MAX { p.faint { "and " (all.len() - LISTED_MAX) " earlier ones" } }
                }
            }
        }
    };
    Ok(html! {
        (fold("noted", "Limits that agents met often; nothing is held", &noted, note))
        (fold("lifted", "Limits that held work, lifted or ended", &lifted, line))
    })
}

/// Shows an open incident with the forms that lift it.
pub(super) fn card(
    viewer: &Viewer,
    moment: &Moment,
    limits: &LimitsView,
    incident: &IncidentView,
    decision: Option<&Decision>,
) -> Markup {
    let id = &incident.id;
    html! {
        article.card id=(id) tabindex="-1" data-row aria-labelledby={ (id) "-title" } {
            header {
                h2 id={ (id) "-title" } { (told(incident.code)) }
                (badge("held"))
                span.grow {}
                @if let Some(decision) = decision { (ends(decision, moment)) }
                a.faint href={ (url("/incidents/")) (id) } { code { (id) } } (time(&incident.at, moment.now))
            }
            @if let Some(decision) = decision.filter(|decision| !decision.chain.is_empty()) { (chain(viewer, decision, "")) }
            p { "Holds " (held(incident)) "." }
            dl.about {
                dt { "Rule" } dd { (rule(incident.code.rule())) ", " code { (incident.code) } }
                dt { "Limit" } dd { (amount(incident, incident.limit)) }
                dt { (reached(incident.code)) } dd { (amount(incident, incident.current)) @if reached(incident.code) == "Reached" { " when it tripped" } }
                dt { "Held" } dd { (parked(viewer, incident, decision)) }
            }
            @if decision.is_some_and(|decision| decision.due.is_some()) {
                p.faint { "If nobody lifts it in time, the " (term("grant")) " is closed, and its requests end without an answer." }
            }
            @match &incident.reference {
                Some(reference) => {
                    (viewer.allowed(Role::Operator, "Lifting a hold or stopping its work", || lifts(viewer, limits, incident, reference)))
                }
                None => p.faint { "A human's post in the room lifts the hold." }
            }
        }
    }
}

/// Returns the label of an incident's number: the value that the next message would have made, or the value reached.
#[expect(clippy::wildcard_enum_match_arm, reason = "only these three codes refuse what would pass a total")]
const fn reached(code: Code) -> &'static str {
    match code {
        Code::GrantMessages | Code::GrantTurns | Code::GrantAgents => "Needed",
        _ => "Reached",
    }
}

/// Formats a value of an incident with its unit.
fn amount(incident: &IncidentView, n: u64) -> String {
    let unit = match total(incident.code) {
        _ if incident.is_cost => return money(n),
        Some((_, "grant_age_ms")) => return duration(n),
        Some((unit, _)) => unit,
        None if matches!(incident.code, Code::TurnsHard) => "agent messages",
        None => "",
    };
    format!("{} {unit}", number(n)).trim_end().to_owned()
}

fn held(incident: &IncidentView) -> Markup {
    match &incident.reference {
        Some(reference) if incident.scope == "grant" => {
            html! { "all work of the " (term("grant")) " " code { (foreign_line(&incident.on)) } ", started in " (conversation(reference)) }
        }
        Some(reference) => html! { "the conversation " (conversation(reference)) },
        None => html! { "the room " (room(&incident.on)) },
    }
}

fn parked(viewer: &Viewer, incident: &IncidentView, decision: Option<&Decision>) -> Markup {
    let known = decision.map_or(&[][..], |decision| &decision.held);
    let more = incident.parked.len().saturating_sub(known.len());
    html! {
        @if incident.parked.is_empty() { "no request" } @else { (plural(incident.parked.len() as u64, "request", "requests")) }
        @if !known.is_empty() {
            ul.parked { @for (link, text) in known { li { (request(viewer, link, text)) } } }
            @if more > 0 { p.faint { "and " (more) " more" } }
        }
    }
}

/// Shows who asked whom for what.
fn request(viewer: &Viewer, link: &RequestLink, text: &str) -> Markup {
    let said = html! { q { (excerpt(text, TEXT_CHARS)) } };
    html! {
        @match &link.from {
            Some(from) => { (or_you(from, &viewer.name)) " asked " b { (foreign_line(&link.to)) } }
            None => { b { (foreign_line(&link.to)) } " began" }
        }
        @match link.message {
            Some(message) => { " " a href={ (url("/messages/")) (message) } { (said) } }
            None => {}
        }
    }
}

/// Returns the grant's total or budget that a resume grants once more; `None` for limits that only count until a human
/// acts.
#[expect(clippy::wildcard_enum_match_arm, reason = "only these five codes hold a grant")]
const fn total(code: Code) -> Option<(&'static str, &'static str)> {
    match code {
        Code::GrantMessages => Some(("messages", "grant_messages_max")),
        Code::GrantTurns => Some(("turns", "grant_turns_max")),
        Code::GrantAgents => Some(("agents", "grant_agents_max")),
        Code::GrantExpired => Some(("hours", "grant_age_ms")),
        Code::Budget => Some(("tokens", "grant_tokens_max")),
        _ => None,
    }
}

/// Shows the forms that lift a hold or stop its work.
fn lifts(viewer: &Viewer, limits: &LimitsView, incident: &IncidentView, reference: &str) -> Markup {
    let id = &incident.id;
    let to = |verb: &str| format!("/conversations/{}/{verb}", encoded(reference));
    let more = total(incident.code).filter(|_| incident.scope == "grant");
    let more = more.map(|field| if incident.is_cost { ("dollars", "grant_cost_microusd_max") } else { field });
    let offered =
        |name: &str| more.filter(|(field, _)| *field == name).map(|(_, limit)| whole(limits, limit).div_ceil(2));
    let effect = effect(limits, incident);
    html! {
        p #{ (id) "-effect" } { b { (term("Lift")) } ": " (effect) }
        p #{ (id) "-stopped" } { b { "Stop" } ": " (STOPPED) }
        div.decide {
            (viewer.asked(&format!("{id}-resume"), &to("resume"), &format!("Lift the hold on {reference}? {effect}"), &html! {
                button.main type="submit" data-key="a l" aria-describedby={ (id) "-effect" } { "Lift" }
            }))
            (viewer.asked(&format!("{id}-stop"), &to("stop"), &format!("Stop {reference}? {STOPPED}"), &html! {
                button.danger type="submit" aria-describedby={ (id) "-stopped" } { "Stop" }
            }))
        }
        @if more.is_some() {
            details id={ (id) "-more" } {
                summary { "Lift with another amount" }
                (viewer.form(&format!("{id}-grant"), &to("grant"), &html! {
                    input type="hidden" name="grant" value=(incident.on);
                    (amounts(offered, |_| None))
                    p.faint { "The number that is filled in is half of what a grant has at first. Tokens, dollars and hours count from the amount used. Held requests continue if the amount is enough." }
                    button type="submit" { "Lift with this amount" }
                }))
            }
        }
    }
}

fn value(limits: &LimitsView, name: &str) -> u64 {
    limits.items.iter().find(|limit| limit.name == name).map_or(0, |limit| limit.value)
}

/// Returns the value of a limit, a time in hours and a cost in dollars.
fn whole(limits: &LimitsView, name: &str) -> u64 {
    let value = value(limits, name);
    match name {
        "grant_age_ms" => value / HOUR_MS,
        "grant_cost_microusd_max" => value.div_ceil(1_000_000),
        _ => value,
    }
}

/// Returns the budget of a grant in words; `None` if it has none.
fn budget(limits: &LimitsView) -> Option<String> {
    match (value(limits, "grant_tokens_max"), value(limits, "grant_cost_microusd_max")) {
        (0, 0) => None,
        (tokens, 0) => Some(format!("{} tokens", number(tokens))),
        (0, cost) => Some(money(cost)),
        (tokens, cost) => Some(format!("{} tokens and {}", number(tokens), money(cost))),
    }
}

/// Says in one sentence what a lift gives; its card says the rest.
pub(super) fn offer(limits: &LimitsView, incident: &IncidentView) -> String {
    match total(incident.code).filter(|_| incident.scope == "grant") {
        Some(_) if incident.code == Code::Budget => budget(limits)
            .map_or_else(|| "A lift removes its budget.".to_owned(), |budget| format!("A lift gives {budget} more.")),
        Some((field, limit)) => format!("A lift gives {} more {field}.", number(whole(limits, limit))),
        None => "A lift restarts the count at 0.".to_owned(),
    }
}

/// Says what lifting the hold gives, and what that can cost at most.
fn effect(limits: &LimitsView, incident: &IncidentView) -> String {
    let budget = budget(limits);
    let gives = match total(incident.code).filter(|_| incident.scope == "grant") {
        Some(_) if incident.code == Code::Budget => {
            let gives = match budget {
                Some(budget) => format!(
                    "{} gets its whole budget once more and is held again after {budget} more, counted from the lift. A turn is charged when it \
                     reports, so the last one can pass that.",
                    incident.on
                ),
                None => format!("{} goes on without a budget.", incident.on),
            };
            return format!("{gives} {}", continues(incident));
        }
        Some((field, limit)) => format!("{} gets {} more {field}.", incident.on, number(whole(limits, limit))),
        None => "the count of agent messages restarts at 0.".to_owned(),
    };
    let bounded = budget.map(|budget| format!(" Its budget ({budget}, unless extended) stays.")).unwrap_or_default();
    format!("{gives} {}{bounded}", continues(incident))
}

fn continues(incident: &IncidentView) -> String {
    match incident.parked.len() as u64 {
        0 => "No request is held.".to_owned(),
        1 => "The held request continues.".to_owned(),
        n => format!("The {n} held requests continue."),
    }
}

/// Shows an agent that met a limit repeatedly.
fn note(moment: &Moment, incident: &IncidentView) -> Markup {
    html! {
        code { (incident.id) } " " b { (foreign_line(&incident.on)) } ": " (told(incident.code)) ", "
        (amount(incident, incident.current)) " of " (amount(incident, incident.limit)) " " (time(&incident.at, moment.now))
    }
}

/// Shows a lifted incident on one line.
pub(super) fn line(moment: &Moment, incident: &IncidentView) -> Markup {
    html! {
        code { (incident.id) } " " (told(incident.code)) " (rule " (incident.code.rule()) "): " (held(incident)) ", "
        (reached(incident.code).to_lowercase()) " " (amount(incident, incident.current)) " of " (amount(incident, incident.limit)) " " (time(&incident.at, moment.now))
        @match (&incident.lifted_by, &incident.lifted_at) {
            (Some(by), Some(at)) => { ", lifted by " (foreign_line(by)) " " (time(at, moment.now)) }
            (None, Some(at)) => { ", ended with its grant " (time(at, moment.now)) }
            (_, None) => {}
        }
    }
}
