//! Incidents: tripped limits that hold work until a human lifts them.

use axum::extract::State;
use axum::response::Response;
use lastword_proto::Code;
use lastword_proto::fact::Role;
use lastword_proto::ids::HOUR_MS;
use lastword_proto::wire::{IncidentView, LimitsView};
use maud::{Markup, html};

use super::conversation::amounts;
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, empty, heading};
use super::live::Topic;
use super::parts::{badge, conversation, encoded, foreign_line, number, plural, time};
use super::session::Viewer;
use crate::calls::{Context, incidents, limits};

/// The most lifted incidents in the list.
const LIFTED_MAX: usize = 50;
/// The most parked requests that are named.
const PARKED_MAX: usize = 12;

/// `GET /incidents`: the list of incidents.
pub(super) async fn page(State(ctx): State<Context>, viewer: Viewer) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let incidents = incidents::list(&ctx, viewer.caller).await?.items;
    let limits = limits::in_force(&ctx).await?;
    let (noted, incidents): (Vec<_>, Vec<_>) = incidents.iter().partition(|incident| incident.scope == "agent");
    let (lifted, open): (Vec<_>, Vec<_>) = incidents.into_iter().partition(|incident| incident.lifted_at.is_some());
    let main = html! {
        (heading("Incidents", &html! { span.faint { (plural(open.len() as u64, "open incident", "open incidents")) } }))
        @if open.is_empty() {
            (empty("No open incidents.", &html! {
                "A conversation or grant that reaches one of its totals is held and listed here until a human lifts it."
            }))
        }
        div.cards { @for incident in &open { (card(&viewer, &moment, &limits, incident)) } }
        @if !noted.is_empty() {
            details #noted.fold open {
                summary { "For information; nothing is held " span.count { (noted.len()) } }
                ul.lines { @for incident in noted.iter().take(LIFTED_MAX) { li { (note(&moment, incident)) } } }
                @if noted.len() > LIFTED_MAX { p.faint { "and " (noted.len() - LIFTED_MAX) " earlier ones" } }
            }
        }
        @if !lifted.is_empty() {
            details #lifted.fold {
                summary { "Lifted " span.count { (lifted.len()) } }
                ul.lines {
                    @for incident in lifted.iter().take(LIFTED_MAX) { li { (line(&moment, incident)) } }
                }
                @if lifted.len() > LIFTED_MAX { p.faint { "and " (lifted.len() - LIFTED_MAX) " earlier ones" } }
            }
        }
    };
    let page = Page { title: "Incidents", place: Place::Incidents, topics: &[Topic::Incidents, Topic::Limits], main };
    viewer.page(&ctx, &moment, page).await
}

/// Shows an open incident with the forms that lift it.
pub(super) fn card(viewer: &Viewer, moment: &Moment, limits: &LimitsView, incident: &IncidentView) -> Markup {
    let id = &incident.id;
    html! {
        article.card id=(id) tabindex="-1" data-row aria-labelledby={ (id) "-title" } {
            header {
                h2 id={ (id) "-title" } { (incident.code.title()) }
                (badge("latched"))
                span.grow {}
                a.faint href={ "/incidents/" (id) } { code { (id) } } (time(&incident.at, moment.now))
            }
            p { "Holds " (held(incident)) "." }
            dl.about {
                dt { "Rule" } dd { (incident.code.rule()) ", " code { (incident.code) } }
                dt { "Limit" } dd { (number(incident.limit)) }
                dt { (reached(incident.code)) } dd { (number(incident.current)) }
                dt { "Parked" } dd { (parked(incident)) }
            }
            @match &incident.reference {
                Some(reference) => {
                    (viewer.allowed(Role::Operator, "Resuming, stopping or granting more", || decisions(viewer, limits, incident, reference)))
                }
                None => p.faint { "A room is released when a human posts in it." }
            }
        }
    }
}

/// Returns the label of an incident's number: the value that the next message would have made, or the value reached.
#[expect(clippy::wildcard_enum_match_arm, reason = "only these three codes refuse what would pass a total")]
const fn reached(code: Code) -> &'static str {
    match code {
        Code::GrantMessages | Code::GrantTurns | Code::GrantAgents => "Would reach",
        _ => "Reached",
    }
}

fn held(incident: &IncidentView) -> Markup {
    match &incident.reference {
        Some(reference) if incident.scope == "grant" => {
            html! { "all work of " code { (foreign_line(&incident.on)) } ", started in " (conversation(reference)) }
        }
        Some(reference) => html! { "the conversation " (conversation(reference)) },
        None => html! { "the room " b { (foreign_line(&incident.on)) } },
    }
}

fn parked(incident: &IncidentView) -> Markup {
    let more = incident.parked.len().saturating_sub(PARKED_MAX);
    html! {
        @if incident.parked.is_empty() { "no request" } @else { (plural(incident.parked.len() as u64, "request", "requests")) ": " }
        @for (index, request) in incident.parked.iter().take(PARKED_MAX).enumerate() {
            @if index > 0 { ", " } code { (foreign_line(request)) }
        }
        @if more > 0 { " and " (more) " more" }
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

fn decisions(viewer: &Viewer, limits: &LimitsView, incident: &IncidentView, reference: &str) -> Markup {
    let id = &incident.id;
    let to = |verb: &str| format!("/conversations/{}/{verb}", encoded(reference));
    let more = total(incident.code).filter(|_| incident.scope == "grant");
    let value = |name: &str| {
        let value = limits.items.iter().find(|limit| limit.name == name).map_or(0, |limit| limit.value);
        if name == "grant_age_ms" { value / HOUR_MS } else { value }
    };
    let offered = |name: &str| more.filter(|(field, _)| *field == name).map(|(_, limit)| value(limit).div_ceil(2));
    let question = match more {
        Some(_) if incident.code == Code::Budget => format!("Resume {reference}? It gets its full budget again."),
        Some((field, limit)) => {
            format!("Resume {reference}? It gets {} more {field}, the same as at the start.", value(limit))
        }
        None => format!("Resume {reference}? The count of agent messages restarts."),
    };
    html! {
        div.decide {
            (viewer.confirmed(&format!("{id}-resume"), &to("resume"), &question, &html! {
                button.main type="submit" data-key="a" { "Resume" }
            }))
            (viewer.confirmed(&format!("{id}-stop"), &to("stop"), &format!("Stop {reference}? Its open requests are cancelled, and their requesters are notified."), &html! {
                button.danger type="submit" { "Stop" }
            }))
        }
        @if more.is_some() {
            details id={ (id) "-more" } {
                summary { "Grant another amount" }
                (viewer.form(&format!("{id}-grant"), &to("grant"), &html! {
                    input type="hidden" name="grant" value=(incident.on);
                    (amounts(offered))
                    p.faint { "Tokens and hours count from the amount used. Held work continues if the extension is enough." }
                    button type="submit" { "Grant" }
                }))
            }
        }
    }
}

/// Shows an agent that met a limit repeatedly.
fn note(moment: &Moment, incident: &IncidentView) -> Markup {
    html! {
        code { (incident.id) } " " b { (foreign_line(&incident.on)) } ": " (incident.code.title()) ", "
        (number(incident.current)) " of " (number(incident.limit)) " " (time(&incident.at, moment.now))
    }
}

/// Shows a lifted incident on one line.
pub(super) fn line(moment: &Moment, incident: &IncidentView) -> Markup {
    html! {
        code { (incident.id) } " " (incident.code.title()) ": " (held(incident)) ", "
        (reached(incident.code).to_lowercase()) " " (number(incident.current)) " of " (number(incident.limit)) " " (time(&incident.at, moment.now))
        @if let Some(by) = &incident.lifted_by { ", lifted by " (foreign_line(by)) }
        @if let Some(at) = &incident.lifted_at { " " (time(at, moment.now)) }
    }
}
