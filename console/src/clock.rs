//! The notice on each page that the system clock and the broker's clock differ (L6).

use axum::extract::State;
use axum::response::{Html, IntoResponse as _, Response};
use lastword_broker::clock::ClockStatus;
use lastword_facts::fact::Role;
use lastword_server::calls::clock as calls;
use lastword_server::{Context, views};
use lastword_wire::ClockState;
use maud::{Markup, html};

use super::forms::{Form, Nothing};
use super::frame::ErrorPage;
use super::live::Topic;
use super::parts::url;
use super::session::Viewer;

/// `GET /clock`: the notice, which every open page reloads.
pub(super) async fn standing(State(ctx): State<Context>, viewer: Viewer) -> Response {
    Html(banner(&viewer, ctx.handle.clock()).into_string()).into_response()
}

/// `POST /clock/accept`: accepts the system clock.
pub(super) async fn accept(State(ctx): State<Context>, form: Form<Nothing>) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Nothing {} } = form;
    calls::accept(&ctx, viewer.caller).await?;
    let words = html! { "The broker's clock now matches the system clock." };
    Ok(viewer.done(&words, "/", &[Topic::All]))
}

/// Shows that the clocks differ by more than a minute. It reloads every minute, because no fact announces that a clock
/// was set.
pub(super) fn banner(viewer: &Viewer, standing: ClockStatus) -> Markup {
    let note = views::note(standing);
    let accepts = matches!(standing.state, ClockState::CatchingUp | ClockState::Waiting);
    let button = html! { button.quiet type="submit" { "Accept the system clock" } };
    html! {
        div #clock class={ "standing " (if note.is_some() { "warn" } else { "" }) } role="status" hx-get=(url("/clock"))
            hx-trigger="every 60s, lw-changed" data-topics="" hx-target="this" hx-swap="outerMorph" {
            @if let Some(note) = note {
                p { "The clocks differ: " (note) "." }
                @if accepts {
                    (viewer.allowed(Role::Owner, "Accepting the system clock", || viewer.form("clock-accept", "/clock/accept", &button)))
                }
            }
        }
    }
}
