//! The session of a page: the human whose session the cookie names. `/v1` ignores cookies.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::{COOKIE, HOST};
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use lastword_broker::ReadLane;
use lastword_broker::identity::SESSION_MS;
use lastword_facts::fact::Role;
use lastword_server::calls::Caller;
use lastword_server::edges::http::prove;
use lastword_server::{Context, Transport};

use super::frame::{self, ErrorPage};
use super::packed::masked;
use super::parts::url;

/// The human at a page, with the properties of the request that pages need.
pub(super) struct Viewer {
    /// The caller in whose name the page's calls are made.
    pub(super) caller: Caller,
    /// The human's name.
    pub(super) name: String,
    /// The human's role, which decides the forms on the page (H7).
    pub(super) role: Role,
    /// The secret in each form of this session, under the mask of this page.
    pub(super) forms: String,
    /// That secret itself.
    pub(super) secret: String,
    /// Whether an open page requests a part of itself.
    pub(super) partial: bool,
    /// The path and query of the request.
    pub(super) here: String,
    /// The address of the workspace as the browser knows it; in a cluster, it begins with the workspace's name.
    pub(super) workspace: String,
}

impl FromRequestParts<Context> for Viewer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, ctx: &Context) -> Result<Self, Response> {
        let cookie = cookie(&parts.headers).ok_or_else(frame::signed_out)?;
        let session = ctx.handle.session(cookie).ok_or_else(frame::signed_out)?;
        let who = session.principal.agent();
        let known = ctx
            .handle
            .query(move |live| live.state.agent(who).map(|human| (human.name().to_owned(), human.role)))
            .await;
        let (name, role) =
            known.map_err(|gone| ErrorPage(gone.into()).into_response())?.ok_or_else(frame::signed_out)?;
        let caller = Caller::of(&session);
        ReadLane::Humans.enter();
        prove(&parts.extensions, caller).map_err(|full| ErrorPage(full).into_response())?;
        let here = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            caller,
            name,
            role,
            partial: frame::is_partial(&parts.headers),
            here: here.to_owned(),
            workspace: format!("{}{}", host(&parts.headers), url("")),
            forms: masked(&session.forms),
            secret: session.forms,
        })
    }
}

/// Cookies ignore ports, so each server on a machine needs a cookie name of its own.
fn name(headers: &HeaderMap) -> String {
    name_of("lastword_session", headers)
}

fn host(headers: &HeaderMap) -> &str {
    headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default()
}

/// Returns the name of a cookie of this server.
pub(super) fn name_of(what: &str, headers: &HeaderMap) -> String {
    let port = host(headers).rsplit_once(':').map_or("", |(_, port)| port);
    let port = if port.bytes().all(|b| b.is_ascii_digit()) { port } else { "" };
    format!("{what}_{port}")
}

/// Returns the value of the session's cookie.
pub(super) fn cookie(headers: &HeaderMap) -> Option<&str> {
    cookie_named(headers, &name(headers))
}

/// Returns the value of a cookie.
pub(super) fn cookie_named<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// Returns the header that sets the session's cookie; an empty value ends the session in this browser.
pub(super) fn set_cookie(ctx: &Context, headers: &HeaderMap, value: &str) -> String {
    set_cookie_for(ctx, headers, value, if value.is_empty() { 0 } else { SESSION_MS })
}

/// Returns the header that sets the session's cookie for this many milliseconds. `Lax`: a link from a chat or a mail
/// opens a page with the session, which is safe because no GET changes anything.
pub(super) fn set_cookie_for(ctx: &Context, headers: &HeaderMap, value: &str, valid_ms: u64) -> String {
    let (secure, seconds) = (secure(ctx, headers), valid_ms / 1000);
    let path = Some(url("")).filter(|path| !path.is_empty()).unwrap_or_else(|| "/".to_owned());
    format!("{}={value}; Path={path}; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}", name(headers))
}

/// Returns the attribute of a cookie that is sent over TLS alone, if this request came so.
pub(super) fn secure(ctx: &Context, headers: &HeaderMap) -> &'static str {
    // A proxy may speak TLS in front of this server: a browser sends the origin with every form.
    let https = ctx.transport != Transport::Plain
        || headers.get("origin").is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
    if https { "; Secure" } else { "" }
}
