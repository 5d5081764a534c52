//! The entries of the palette: pages, agents, humans, rooms, conversations, what was written, and the place of an id.

use axum::extract::{Query, State};
use axum::response::{Html, IntoResponse, Response};
use lastword_facts::Code;
use lastword_facts::limits::LIMITS;
use lastword_server::Context;
use lastword_server::calls::limits;
use lastword_wire::LimitView;
use maud::html;
use serde::Deserialize;

use super::frame::ErrorPage;
use super::layout::places;
use super::markdown;
use super::parts::{capital, encoded, foreign_line, limit_words, quantity, url};
use super::session::Viewer;
use super::terms::told;
use crate::reads::decisions::DecisionId;
use crate::reads::finding::{self, Whereabouts};

/// The most agents and humans, rooms, and conversations, each.
const FOUND_MAX: usize = 8;

#[derive(Debug, Default, Deserialize)]
pub(super) struct PaletteParams {
    #[serde(default)]
    q: String,
}

/// `GET /palette`: the entries that match the query.
pub(super) async fn list(
    State(ctx): State<Context>,
    viewer: Viewer,
    Query(params): Query<PaletteParams>,
) -> Result<Response, ErrorPage> {
    let wanted = params.q.trim().to_lowercase();
    let found = finding::find(&ctx, viewer.caller, &wanted, FOUND_MAX).await?;
    let limits = limits::in_force(&ctx).await?;
    // Of one letter, most would be there.
    let named = |text: &str| {
        wanted.chars().count() > 1 && text.to_lowercase().replace('_', " ").contains(&wanted.replace('_', " "))
    };
    let limits: Vec<&LimitView> = limits
        .items
        .iter()
        .filter(|limit| named(&limit.name) || named(limit_words(&limit.name)))
        .take(FOUND_MAX)
        .collect();
    let codes = Code::ALL.iter().copied();
    let refusals: Vec<Code> = codes.filter(|code| named(code.word()) || named(told(*code))).take(FOUND_MAX).collect();
    let places: Vec<_> = places().filter(|place| place.2.to_lowercase().contains(&wanted)).collect();
    let markup = html! {
        ul.choices {
            @if let Some(place) = &found.place { li { a href=(url(&path(place))) { (foreign_line(&wanted)) span.faint { " by its id" } } } }
            @for (_, path, name, _) in &places { li { a href=(url(path)) { (name) span.faint { " page" } } } }
            @for (name, kind) in &found.people {
                li { a href={ (url("/agents/")) (encoded(name)) } { (foreign_line(name)) span.faint { " " (kind.word()) } } }
            }
            @for name in &found.rooms {
                li { a href={ (url("/rooms/")) (encoded(name)) } { (foreign_line(name)) span.faint { " room" } } }
            }
            @for (reference, subject) in &found.conversations {
                li { a href={ (url("/conversations/")) (encoded(reference)) } { span.ref { (foreign_line(reference)) } " " span.faint { (markdown::line(subject, usize::MAX)) } } }
            }
            @for limit in &limits {
                li { a href={ (url("/limits#")) (limit.name) } { @if limit_words(&limit.name) != limit.name { (capital(limit_words(&limit.name))) " " } (quantity(&limit.name, limit.value)) span.faint { " limit " (limit.name) } } }
            }
            @for code in &refusals {
                li { a href={ (url("/limits#")) (refusals_at(*code)) } { (told(*code)) span.faint { " refusal " (code.word()) } } }
            }
            @for text in &found.texts {
                li { a href=(url(&path(&text.place))) { q { (markdown::line(&text.text, 80)) } span.faint { " " (kind(&text.place)) (foreign_line(&text.from)) @if !text.within.is_empty() { " in " (foreign_line(&text.within)) } } } }
            }
        }
        @if found.place.is_none() && places.is_empty() && found.people.is_empty() && found.rooms.is_empty() && found.conversations.is_empty() && found.texts.is_empty() && limits.is_empty() && refusals.is_empty() {
            p.faint { "No matches." }
        }
    };
    Ok(Html(markup.into_string()).into_response())
}

/// Returns the place on the page of limits that says more about a refusal: its rule's limits, or what was refused.
fn refusals_at(code: Code) -> &'static str {
    if LIMITS.iter().any(|limit| limit.rule == code.rule()) { code.rule() } else { "refused" }
}

/// Returns what was written there, before the name of who wrote it.
const fn kind(place: &Whereabouts) -> &'static str {
    match place {
        Whereabouts::Decision(DecisionId::Call(_)) => "held call of ",
        Whereabouts::Decision(_) => "question of ",
        Whereabouts::Room(_) => "post of ",
        Whereabouts::Line(_) | Whereabouts::Conversation(_) => "",
    }
}

/// Returns the path at which something is shown.
pub(super) fn path(place: &Whereabouts) -> String {
    match place {
        Whereabouts::Decision(id @ DecisionId::Question(_)) => format!("/questions/{id}"),
        Whereabouts::Decision(id @ DecisionId::Call(_)) => format!("/approvals/{id}"),
        Whereabouts::Decision(id @ DecisionId::Latch(_)) => format!("/incidents/{id}"),
        Whereabouts::Line(seq) => format!("/messages/{seq}"),
        Whereabouts::Conversation(reference) => format!("/conversations/{}", encoded(reference)),
        Whereabouts::Room(name) => format!("/rooms/{}", encoded(name)),
    }
}
