//! The passkeys of the signed-in human, and the forms that add and remove them.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::post;
use lastword_broker::identity::credential;
use lastword_facts::Code;
use lastword_facts::fact::Role;
use lastword_server::calls::agents;
use lastword_server::passkeys::{FRESH_MS, PasskeyView, Passkeys};
use lastword_server::{ApiError, Context};
use lastword_wire::rfc3339;
use maud::{Markup, html};
use serde::Deserialize;

use super::devices::guessed;
use super::forms::{Form, Nothing};
use super::frame::ErrorPage;
use super::layout::Moment;
use super::live::Topic;
use super::parts::{encoded, foreign_line, time};
use super::session::{self, Viewer};

pub(super) fn routes() -> Router<Context> {
    Router::new()
        .route("/devices/passkeys", post(add))
        .route("/devices/passkeys/{id}/remove", post(remove))
        .route("/team/{name}/passkeys/remove", post(remove_all))
}

fn of(ctx: &Context) -> Result<&Passkeys, ApiError> {
    let off = || ApiError::new(Code::Forbidden, "This workspace asks for no passkeys");
    ctx.passkeys.as_deref().ok_or_else(off)
}

/// Shows the passkeys of the human, where the workspace asks for one.
pub(super) async fn section(ctx: &Context, viewer: &Viewer, moment: &Moment, headers: &HeaderMap) -> Markup {
    let Some(passkeys) = &ctx.passkeys else { return html! {} };
    let own = passkeys.list(viewer.caller.principal.agent()).await;
    html! {
        section.card #passkeys aria-labelledby="passkeys-title" {
            header { h2 #passkeys-title { "Passkeys" } }
            p { "Here a call is approved, and somebody given more rights, with a passkey alone: your device asks for your finger, face or PIN. Rejecting needs none." }
            @if own.is_empty() { p.faint { "You have none. The first one is added within " (FRESH_MS / 60_000) " minutes of signing in." } }
            ul.lines { @for PasskeyView { id, name, since } in &own {
                li {
                    b { (foreign_line(name)) } " " span.faint { "since " (time(&rfc3339(*since), moment.now)) }
                    (viewer.form(&format!("remove-{id}"), &format!("/devices/passkeys/{id}/remove"), &html! {
                        button type="submit" aria-label={ "Remove the passkey " (name) } { "Remove" }
                    }))
                }
            } }
            div { (viewer.fill_in("add-passkey", "/devices/passkeys", &html! {
                div.fields.wide { label { span { "Name" } input type="text" name="name" value=(guessed(headers)) maxlength="64" autocomplete="off"; } }
                button type="submit" { "Add a passkey" }
            })) }
            noscript { p.faint { "A passkey needs scripts." } }
        }
    }
}

#[derive(Debug, Deserialize)]
struct PasskeyFields {
    #[serde(default)]
    name: String,
    created: Option<String>,
}

/// `POST /devices/passkeys`: asks the browser for a passkey, or adds it. One that there is confirms another one.
async fn add(State(ctx): State<Context>, headers: HeaderMap, form: Form<PasskeyFields>) -> Result<Response, ErrorPage> {
    let Form { mut viewer, fields: PasskeyFields { name, created } } = form;
    let (passkeys, human, now) = (of(&ctx)?, viewer.caller.principal.agent(), ctx.handle.now());
    if let Some(created) = created {
        let wrong = |error: serde_json::Error| ApiError::new(Code::Malformed, format!("the passkey: {error}"));
        passkeys.add(human, &name, &serde_json::from_str(&created).map_err(wrong)?, now).await?;
        tracing::info!(name = %viewer.name, "a passkey was added");
        return Ok(viewer.done(&html! { "The passkey is added." }, "/devices", &[Topic::Agents]));
    }
    let has_one = !passkeys.list(human).await.is_empty();
    if has_one {
        viewer = viewer.confirmed(&ctx, Role::Viewer).await?;
    }
    let cookie = credential(session::cookie(&headers).unwrap_or_default());
    Ok(viewer.asks(&passkeys.ask_new(human, &viewer.name, &cookie, has_one, now).await?))
}

/// `POST /devices/passkeys/{id}/remove`: removes one of the human's own.
async fn remove(
    State(ctx): State<Context>,
    Path(id): Path<String>,
    form: Form<Nothing>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Nothing {} } = form;
    let passkeys = of(&ctx)?;
    let viewer = viewer.confirmed(&ctx, Role::Viewer).await?;
    passkeys.remove(viewer.caller.principal.agent(), Some(&id)).await?;
    Ok(viewer.done(&html! { "The passkey is removed." }, "/devices", &[Topic::Agents]))
}

/// `POST /team/{name}/passkeys/remove`: removes all of a human who has lost them.
async fn remove_all(
    State(ctx): State<Context>,
    Path(name): Path<String>,
    form: Form<Nothing>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Nothing {} } = form;
    let passkeys = of(&ctx)?;
    let viewer = viewer.confirmed(&ctx, Role::Viewer).await?;
    passkeys.remove(agents::find(&ctx, &name).await?, None).await?;
    Ok(viewer.done(&html! { (foreign_line(&name)) " has no passkeys now." }, "/team", &[Topic::Agents]))
}

/// Shows the form that removes the passkeys of another human.
pub(super) fn removal(ctx: &Context, viewer: &Viewer, name: &str) -> Markup {
    if ctx.passkeys.is_none() {
        return html! {};
    }
    viewer.form(
        &format!("passkeys-{}", encoded(name)),
        &format!("/team/{}/passkeys/remove", encoded(name)),
        &html! { button type="submit" aria-label={ "Remove the passkeys of " (name) } { "Remove the passkeys" } },
    )
}
