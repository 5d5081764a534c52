//! Signing in by a provider: the way there, and the way back.

use axum::extract::{Query, Request, State};
use axum::http::header::{HOST, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{AppendHeaders, Html, IntoResponse as _, Response};
use lastword_broker::identity::credential;
use lastword_facts::Code;
use lastword_server::calls::sign_in::{self, BEGUN_MS, SignedInHuman};
use lastword_server::edges::http::{attempt, succeeded};
use lastword_server::{ApiError, Context};
use maud::html;
use serde::Deserialize;

use super::frame::ErrorPage;
use super::layout;
use super::parts::{encoded, url};
use super::session::{cookie_named, secure, set_cookie_for};
use super::sign_in::{NextParams, within};

/// The path that leads to the provider.
pub(super) const BEGIN: &str = "/sign-in/provider";

/// `GET /sign-in/provider`: sends the browser to the provider.
pub(super) async fn begin(
    State(ctx): State<Context>,
    headers: HeaderMap,
    Query(params): Query<NextParams>,
) -> Result<Response, ErrorPage> {
    let next = within(params.next.as_deref());
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if let Some(console) = ctx.oidc.as_ref().and_then(|oidc| oidc.elsewhere(host)) {
        // Only the address that the provider sends back to gets the cookie that is checked there.
        let there = format!("{console}{BEGIN}?next={}", encoded(next));
        return Ok((StatusCode::SEE_OTHER, [(LOCATION, there)]).into_response());
    }
    let begun = sign_in::begin(&ctx, next).await?;
    let cookie = set_begun(&ctx, &headers, &begun.cookie, BEGUN_MS);
    Ok((StatusCode::SEE_OTHER, [(SET_COOKIE, cookie), (LOCATION, begun.location)]).into_response())
}

/// What the provider sends the browser back with.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Returned {
    code: Option<String>,
    state: Option<String>,
    error: Option<String>,
}

/// `GET /sign-in/callback`: opens a session for the human whom the provider names.
pub(super) async fn finish(
    State(ctx): State<Context>,
    Query(returned): Query<Returned>,
    request: Request,
) -> Result<Response, ErrorPage> {
    let (parts, _) = request.into_parts();
    // Before the provider is called, and taken back if the human is signed in.
    attempt(&ctx, &parts.extensions)?;
    let (known, next) = end(&ctx, &parts.headers, returned)
        .await
        .inspect_err(|fault: &ApiError| ctx.handle.metrics().refuse(fault.0.code))?;
    succeeded(&ctx, &parts.extensions);
    let SignedInHuman { principal, token, expires_at, valid_ms, .. } = known;
    let value = ctx.handle.signer().sign_session(principal.agent(), &token, expires_at);
    if let Some(passkeys) = &ctx.passkeys {
        passkeys.began(credential(&value), ctx.handle.now());
    }
    let cookies = [
        (SET_COOKIE, set_cookie_for(&ctx, &parts.headers, &value, valid_ms)),
        (SET_COOKIE, set_begun(&ctx, &parts.headers, "", 0)),
    ];
    // A page and not a redirect: the provider's site began this request, so the browser would follow a redirect without
    // the cookie, which is for requests of the console's own pages alone.
    let next = within(Some(&next));
    let main = html! {
        meta http-equiv="refresh" content={ "0;url=" (url(next)) };
        h1 { "Signed in" }
        p { a href=(url(next)) { "Go on" } }
    };
    Ok((AppendHeaders(cookies), Html(layout::bare("Signed in", &main).into_string())).into_response())
}

async fn end(ctx: &Context, headers: &HeaderMap, returned: Returned) -> Result<(SignedInHuman, String), ApiError> {
    let Returned { code, state, error } = returned;
    if let Some(error) = error {
        let text = format!("The provider signed nobody in ({error}): begin again at {}", url("/sign-in"));
        return Err(ApiError::new(Code::Unauthenticated, text));
    }
    let (Some(code), Some(state)) = (code, state) else {
        return Err(ApiError::new(Code::Malformed, "The provider sent no code and state back"));
    };
    let cookie = cookie_named(headers, &name(headers)).unwrap_or_default();
    sign_in::finish(ctx, cookie, &state, &code).await
}

/// Cookies ignore ports, so each server on a machine needs a cookie name of its own.
fn name(headers: &HeaderMap) -> String {
    super::session::name_of("lastword_oidc", headers)
}

/// Returns the header that sets the cookie of a sign-in that has begun. Unlike the session's it is sent when the
/// provider's site leads back here.
fn set_begun(ctx: &Context, headers: &HeaderMap, value: &str, valid_ms: u64) -> String {
    let (secure, seconds) = (secure(ctx, headers), valid_ms / 1000);
    format!("{}={value}; Path={}; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}", name(headers), url("/sign-in"))
}
