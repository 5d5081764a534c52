//! The devices of the signed-in human: the code that signs another one in, and those that are notified.

use std::fmt::Write as _;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::http::header::USER_AGENT;
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::{get, post};
use lastword_broker::identity::{HANDOVER_MS, HandedSession, Handover, HandoverCode, credential};
use lastword_facts::Code;
use lastword_server::views::{DeviceView, Subscription};
use lastword_server::{ApiError, Context};
use lastword_wire::rfc3339;
use maud::{Markup, html};
use qrcodegen::{QrCode, QrCodeEcc};
use serde::Deserialize;
use serde_json::json;

use super::bound::place;
use super::forms::{Form, Nothing};
use super::frame::ErrorPage;
use super::layout::{self, Moment, Page, Place, heading};
use super::live::Topic;
use super::parts::{countdown, encoded, foreign_line, time, url};
use super::session::{self, Viewer};
use super::{passkeys, sign_in, team};

/// The pixels of a quiet zone that readers of QR codes ask for, in modules.
const QUIET: i32 = 4;

pub(super) fn routes() -> Router<Context> {
    Router::new()
        .route("/devices", get(page))
        .route("/devices/phone", get(handed_over).post(hand_over))
        .route("/devices/notified", post(subscribe))
        .route("/devices/notified/{id}/{verb}", post(act))
        .merge(passkeys::routes())
}

/// `GET /devices`.
pub(super) async fn page(
    State(ctx): State<Context>,
    viewer: Viewer,
    headers: HeaderMap,
) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let main = html! {
        (heading("Devices", &html! {}))
        div.columns {
            div { (phone(&viewer, &address(&ctx, &headers))) }
            div { (passkeys::section(&ctx, &viewer, &moment, &headers).await)
                (notified(&ctx, &viewer, &moment, &headers).await) }
        }
    };
    viewer.page(&ctx, &moment, Page { title: "Devices", place: Place::Devices, topics: &[Topic::Agents], main }).await
}

/// Returns the console's address for another device.
fn address(ctx: &Context, headers: &HeaderMap) -> String {
    ctx.console.address.as_ref().map_or_else(|| team::address(ctx, headers), |address| format!("{address}{}", url("")))
}

fn phone(viewer: &Viewer, address: &str) -> Markup {
    let host = address.split_once("://").map_or(address, |(_, rest)| rest);
    let is_here = ["127.", "localhost", "[::1]"].iter().any(|own| host.starts_with(own));
    html! {
        section.card #phone aria-labelledby="phone-title" {
            header { h2 #phone-title { "Sign in on your phone" } }
            p { "A code for its camera signs it in as you, once, within " (HANDOVER_MS / 60_000) " minutes. That session ends when this one would. Whoever reads the code first is you, so show it to nobody." }
            @if is_here {
                p.faint { "It leads to " code { (address) } ", which is this machine alone. Open this page by an address that the phone reaches, or name one as " code { "address" } " in " code { "[console]" } " of " code { "lastword.toml" } "." }
            }
            div { (viewer.fill_in("phone-form", "/devices/phone", &html! { button.main type="submit" { "Show a code" } })) }
        }
    }
}

/// `POST /devices/phone`: makes a code, and shows it once.
pub(super) async fn hand_over(
    State(ctx): State<Context>,
    headers: HeaderMap,
    form: Form<Nothing>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Nothing {} } = form;
    let cookie = session::cookie(&headers).unwrap_or_default();
    let session = ctx.handle.session(cookie).ok_or_else(|| ApiError::unknown("the session"))?;
    let human = session.principal.agent();
    let from = HandedSession { human, token: session.token, cookie: credential(cookie), until: session.until };
    let made = ctx.sign_in.handovers.mint(ctx.handle.now(), from);
    let HandoverCode { code, id, .. } = made.map_err(|error| ApiError::internal(&error.to_string()))?;
    let link = format!("{}{}#{}", address(&ctx, &headers), sign_in::DEVICE, code.reveal());
    let qr = qr(&link).ok_or_else(|| ApiError::internal("the address is too long for a QR code"))?;
    let made = html! {
        div.made {
            (qr)
            details { summary { "As a link" } pre.rule { (link) } }
            (standing(&ctx, &viewer, &id))
        }
    };
    if viewer.partial {
        return Ok(Html(made.into_string()).into_response());
    }
    let page = html! { h1 { "Sign in on your phone" } (made) p { a href=(url("/devices")) { "Back to Devices" } } };
    Ok(Html(layout::bare("Sign in on your phone", &page).into_string()).into_response())
}

#[derive(Debug, Deserialize)]
pub(super) struct HandoverParams {
    id: String,
}

/// `GET /devices/phone?id=…`: what came of a code.
pub(super) async fn handed_over(
    State(ctx): State<Context>,
    viewer: Viewer,
    Query(HandoverParams { id }): Query<HandoverParams>,
) -> Response {
    let standing = standing(&ctx, &viewer, &id);
    if viewer.partial {
        return Html(standing.into_string()).into_response();
    }
    let page = html! { h1 { "Sign in on your phone" } (standing) p { a href=(url("/devices")) { "Back to Devices" } } };
    Html(layout::bare("Sign in on your phone", &page).into_string()).into_response()
}

/// Shows what came of a code. An open page asks again while it waits.
fn standing(ctx: &Context, viewer: &Viewer, id: &str) -> Markup {
    let now = ctx.handle.now();
    let at = format!("/devices/phone?id={}", encoded(id));
    match ctx.sign_in.handovers.of(viewer.caller.principal.agent(), id, now) {
        Handover::Waits(until) => html! {
            p #handed hx-get=(url(&at)) hx-trigger="every 2s" hx-target="this" hx-swap="outerHTML" role="status" {
                "Not used yet, " (countdown(until, now)) ". " noscript { a href=(url(&at)) { "Look again" } }
            }
        },
        Handover::Used(at) => {
            html! { p #handed role="status" { b { "Signed in" } " by this code " (time(&rfc3339(at), now)) ". If that wasn't you, renew your token: it ends all your sessions." } }
        }
        Handover::Over => html! { p #handed role="status" { "The code has expired, or another one took its place." } },
    }
}

/// `GET /sign-in/device`: the form into which the script puts the code. It is sent by a press, so that what looks at an
/// address to show what is behind it doesn't use the code up.
pub(super) async fn entry() -> Response {
    let main = html! {
        h1 { "Sign in on this device" }
        form #hand-over method="post" action=(url("/sign-in")) data-press {
            label for="code" { "The link" }
            input #code type="text" name="code" required autocomplete="off" spellcheck="false";
            button.main type="submit" { "Sign in" }
        }
        p.faint { "As whom the other device is signed in, for as long as that one is." }
    };
    Html(layout::bare("Sign in on this device", &main).into_string()).into_response()
}

/// Shows the browsers that are notified, and the form that adds this one.
async fn notified(ctx: &Context, viewer: &Viewer, moment: &Moment, headers: &HeaderMap) -> Markup {
    let Some(devices) = &ctx.devices else { return html! {} };
    let own = devices.list(viewer.caller.principal.agent()).await;
    html! {
        section.card #notified aria-labelledby="notified-title" {
            header { h2 #notified-title { "Notify this device" } }
            p { "Where no page of the console is open, this browser says what is " (viewer.waiting()) ", and opens it. The text goes, encrypted, through the push service of the browser's maker." }
            @if !ctx.console.address.as_ref().is_some_and(|address| address.starts_with("https://")) {
                p.warn { "The service may refuse it, because this server names it no address of its own: set " code { "address" } " under " code { "[console]" } " in " code { (place(ctx)) } " to its https address, and start the server again." }
            }
            ul.lines { @for device in &own { (line(viewer, moment, device)) } }
            div { (viewer.fill_in("notify-device", "/devices/notified", &html! {
                div.fields.wide { label { span { "Name" } input type="text" name="name" value=(guessed(headers)) maxlength="64" autocomplete="off"; } }
                button type="submit" data-permission { "Notify this device" }
            })) }
            noscript { p.faint { "That needs scripts." } }
        }
    }
}

fn line(viewer: &Viewer, moment: &Moment, device: &DeviceView) -> Markup {
    let id = &device.id;
    let button = |verb: &str, label: &str| {
        let content = html! { button type="submit" aria-label={ (label) ": " (device.name) } { (label) } };
        viewer.form(&format!("{id}-{verb}"), &format!("/devices/notified/{id}/{verb}"), &content)
    };
    html! {
        li {
            b { (foreign_line(&device.name)) } " " span.faint { "by " (foreign_line(&device.service)) ", since " (time(&rfc3339(device.since), moment.now)) }
            div.buttons { (button("test", "Send a test")) (button("remove", "Remove")) }
        }
    }
}

/// Returns a name for a browser, by what it says of itself.
pub(super) fn guessed(headers: &HeaderMap) -> &'static str {
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    let known = [
        ("iPhone", "iPhone"),
        ("iPad", "iPad"),
        ("Android", "Android"),
        ("Mac OS", "Mac"),
        ("Windows", "Windows"),
        ("Linux", "Linux"),
    ];
    known.iter().find(|(word, _)| agent.contains(word)).map_or("my browser", |(_, name)| name)
}

/// The fields of the form. Those of the subscription are the script's.
#[derive(Debug, Deserialize)]
pub(super) struct NotifiedFields {
    #[serde(default)]
    name: String,
    subscription: Option<String>,
}

/// `POST /devices/notified`: asks the browser for its subscription, or adds it.
pub(super) async fn subscribe(State(ctx): State<Context>, form: Form<NotifiedFields>) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: NotifiedFields { name, subscription } } = form;
    let devices = ctx.devices.as_ref().ok_or_else(off)?;
    let Some(text) = subscription else { return Ok(viewer.asks(&json!({ "push": devices.key().await? }))) };
    let wrong = |error: serde_json::Error| ApiError::new(Code::Malformed, format!("the subscription: {error}"));
    let subscription: Subscription = serde_json::from_str(&text).map_err(wrong)?;
    devices.add(viewer.caller.principal.agent(), Subscription { name, ..subscription }).await?;
    Ok(viewer.done(&html! { "This device is notified. Send it a test." }, "/devices", &[Topic::Agents]))
}

fn off() -> ApiError {
    ApiError::new(Code::Forbidden, "Notifications of devices are off here (`push` in [console] of lastword.toml)")
}

/// `POST /devices/notified/{id}/{verb}`: `test` or `remove`.
pub(super) async fn act(
    State(ctx): State<Context>,
    Path((id, verb)): Path<(String, String)>,
    form: Form<Nothing>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Nothing {} } = form;
    let (devices, human) = (ctx.devices.as_ref().ok_or_else(off)?, viewer.caller.principal.agent());
    let words = match verb.as_str() {
        "test" => devices.test(human, &id).await.map(|()| "A test is on its way.")?,
        "remove" => devices.remove(human, &id).await.map(|()| "The device is notified no more.")?,
        _ => return Err(ApiError::unknown(&verb).into()),
    };
    Ok(viewer.done(&html! { (words) }, "/devices", &[Topic::Agents]))
}

/// Draws a text as a QR code; `None` if it is too long for one.
fn qr(text: &str) -> Option<Markup> {
    let code = QrCode::encode_text(text, QrCodeEcc::Medium).ok()?;
    let mut dark = String::new();
    for y in 0..code.size() {
        let mut x = 0;
        while x < code.size() {
            let run = (x..code.size()).take_while(|x| code.get_module(*x, y)).count();
            if run > 0 {
                // Writing to a string can't fail.
                let _ok = write!(dark, "M{x} {y}h{run}v1h-{run}z");
            }
            x += i32::try_from(run).unwrap_or_default() + 1;
        }
    }
    let side = code.size() + 2 * QUIET;
    Some(html! {
        svg.qr viewBox={ (-QUIET) " " (-QUIET) " " (side) " " (side) } role="img" aria-label="QR code of the link" shape-rendering="crispEdges" {
            rect x=(-QUIET) y=(-QUIET) width=(side) height=(side) fill="#fff" {}
            path d=(dark) fill="#000" {}
        }
    })
}
