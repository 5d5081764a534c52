//! The entries of the palette: pages, agents and conversations.

use axum::extract::{Query, State};
use axum::response::{Html, IntoResponse, Response};
use maud::html;
use serde::Deserialize;

use super::frame::ErrorPage;
use super::layout::PLACES;
use super::parts::{encoded, foreign_line};
use super::session::Viewer;
use crate::calls::{Context, agents};

/// The most agents and conversations, each.
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
    let found = agents::named(&ctx, viewer.caller, &wanted, FOUND_MAX).await?;
    let places: Vec<_> = PLACES.iter().filter(|place| place.2.to_lowercase().contains(&wanted)).collect();
    let markup = html! {
        ul.choices {
            @for (_, path, name, _) in &places { li { a href=(path) { (name) span.faint { " page" } } } }
            @for name in &found.people {
                li { a href={ "/agents/" (encoded(name)) } { (foreign_line(name)) span.faint { " agent or human" } } }
            }
            @for reference in &found.references {
                li { a href={ "/conversations/" (encoded(reference)) } { (foreign_line(reference)) span.faint { " conversation" } } }
            }
        }
        @if places.is_empty() && found.people.is_empty() && found.references.is_empty() {
            p.faint { "No matches." }
        }
    };
    Ok(Html(markup.into_string()).into_response())
}
