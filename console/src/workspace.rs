//! The controls of the whole workspace, and the banner shown while it is paused or stopped.

use axum::extract::{Path, Query, State};
use axum::response::{Html, IntoResponse as _, Response};
use lastword_facts::fact::{Control, Role, Scope};
use lastword_facts::status::Running;
use lastword_server::calls::control::{self as calls, OpenWork, Workspace};
use lastword_server::{ApiError, Context};
use maud::{Markup, html};
use serde::Deserialize;

use super::forms::{Form, Nothing};
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, heading};
use super::live::Topic;
use super::parts::{done_word, plural, url};
use super::session::Viewer;
use super::terms::term;

/// What is asked about the whole workspace.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuestionParams {
    /// Whether to resume it, instead of pausing or stopping it.
    #[serde(default)]
    resume: bool,
}

/// `GET /workspace`: the question on a page of its own, for browsers without scripts.
pub(super) async fn page(
    State(ctx): State<Context>,
    viewer: Viewer,
    Query(asked): Query<QuestionParams>,
) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let workspace = calls::workspace(&ctx).await?;
    let title = if asked.resume { "Resume the workspace" } else { "Pause or stop everything" };
    let main = html! { (heading(title, &html! {})) (question(&viewer, &workspace, asked)) p { a href=(url("/")) { "Back, without a change" } } };
    let topics = [Topic::Conversations, Topic::Incidents];
    viewer.page(&ctx, &moment, Page { title: "Workspace", place: Place::Now, topics: &topics, main }).await
}

/// `GET /workspace/question`: the content of the dialogs.
pub(super) async fn ask(
    State(ctx): State<Context>,
    viewer: Viewer,
    Query(asked): Query<QuestionParams>,
) -> Result<Response, ErrorPage> {
    let workspace = calls::workspace(&ctx).await?;
    Ok(Html(question(&viewer, &workspace, asked).into_string()).into_response())
}

/// Shows the open work, and what can be done to all of it.
fn question(viewer: &Viewer, workspace: &Workspace, asked: QuestionParams) -> Markup {
    let OpenWork { grants, conversations, turns } = workspace.open;
    html! {
        p {
            "Open work: " (grants) " " (term(if grants == 1 { "grant" } else { "grants" })) " in "
            (plural(conversations, "conversation", "conversations")) ", with " (plural(turns, "open turn", "open turns")) "."
        }
        (viewer.allowed(Role::Operator, "Stopping, pausing or resuming the workspace", || choices(viewer, workspace, asked)))
    }
}

fn choices(viewer: &Viewer, workspace: &Workspace, asked: QuestionParams) -> Markup {
    let form = |verb: &str, button: Markup| {
        let id = format!("{}-{verb}", if asked.resume { "resume" } else { "all" });
        viewer.form(&id, &format!("/workspace/{verb}"), &button)
    };
    html! {
        dl.about {
            @if workspace.running != Running::Active {
                dt { (form("resume", html! { button.main type="submit" { "Resume" } })) }
                dd { "Agents receive their queued deliveries and can send again." }
            } @else if asked.resume { dd { "It is active already." } }
            @if !asked.resume {
                @if workspace.running == Running::Active {
                    dt { (form("pause", html! { button type="submit" { "Pause" } })) }
                    dd { "Nothing new is delivered or sent. Open work is kept and continues when a human resumes." }
                }
                @if workspace.running != Running::Stopped {
                    dt { (form("stop", html! { button.danger.filled type="submit" { "Stop everything" } })) }
                    dd { "Cancels all open work and notifies the requesters. Nothing is delivered or sent until a human resumes. Cancelled work is not restored." }
                }
            }
        }
    }
}

/// `POST /workspace/{verb}`: pauses, resumes or stops the workspace.
pub(super) async fn control(
    State(ctx): State<Context>,
    Path(verb): Path<String>,
    form: Form<Nothing>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Nothing {} } = form;
    let control = Control::from_word(&verb).ok_or_else(|| ApiError::unknown(&verb))?;
    calls::control(&ctx, viewer.caller, Scope::Workspace, control).await?;
    let words = html! { "The workspace is " (done_word(control)) "." };
    // The banner says it with these words, not a moment later.
    let banner = banner(&viewer, calls::running(&ctx).await?, true);
    Ok(viewer.done_with(&words, "/", &[Topic::Conversations, Topic::Agents, Topic::Incidents], &banner))
}

/// `GET /standing`: the banner, which every open page reloads.
pub(super) async fn standing(State(ctx): State<Context>, viewer: Viewer) -> Result<Response, ErrorPage> {
    let running = calls::running(&ctx).await?;
    Ok(Html(banner(&viewer, running, false).into_string()).into_response())
}

/// Shows on every page that the workspace is paused or stopped. It reloads on its own; in another reply to an open page it
/// replaces the old one.
pub(super) fn banner(viewer: &Viewer, running: Running, beside: bool) -> Markup {
    let (class, words) = match running {
        Running::Active => ("", None),
        Running::Paused => ("warn", Some("The workspace is paused: nothing is delivered or sent.")),
        Running::Stopped => {
            ("bad", Some("The workspace is stopped: its work was cancelled, and nothing is delivered or sent."))
        }
    };
    html! {
        div #standing class={ "standing " (class) } role="status" hx-get=(url("/standing"))
            hx-trigger="lw-changed" data-topics="lw-incidents" hx-target="this" hx-swap="outerMorph" hx-swap-oob=[beside.then_some("outerMorph")] {
            @if let Some(words) = words {
                p { (words) @if viewer.role <= Role::Operator { " " a href=(url("/workspace?resume=true")) data-open="resume" { "Resume…" } } }
            }
        }
    }
}
