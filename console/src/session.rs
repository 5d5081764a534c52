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
use maud::Markup;
use percent_encoding::percent_decode_str;

use super::frame::{self, ErrorPage};
use super::layout::Tone;
use super::packed::masked;
use super::parts::{encoded, url};

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
    /// What came of the form that led to this page, where no script tells it on the form's own page.
    pub(super) said: Option<(Tone, String)>,
    /// The form that was sent.
    pub(super) sent: SentForm,
    /// The cookie by which it comes here: its name, and its attributes.
    said_cookie: (String, String),
}

/// What a form says, and what a passkey confirms it with.
#[derive(Clone, Debug, Default)]
pub(super) struct SentForm {
    /// Its path and its fields.
    pub(super) content: String,
    /// What the browser states of the passkey's signature.
    pub(super) passkey: Option<String>,
}

/// The longest text that such a cookie has, in characters.
const SAID_CHARS: usize = 600;

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
            known.map_err(|gone| ErrorPage::from(gone).into_response())?.ok_or_else(frame::signed_out)?;
        let caller = Caller::of(&session);
        ReadLane::Humans.enter();
        prove(&parts.extensions, caller).map_err(|full| ErrorPage::from(full).into_response())?;
        let here = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            caller,
            name,
            role,
            partial: frame::is_partial(&parts.headers),
            here: here.to_owned(),
            workspace: format!("{}{}", host(&parts.headers), url("")),
            said: cookie_named(&parts.headers, &name_of(SAID, &parts.headers)).and_then(heard),
            said_cookie: (
                name_of(SAID, &parts.headers),
                format!("; Path={}; HttpOnly; SameSite=Lax{}", root(), secure(ctx, &parts.headers)),
            ),
            sent: SentForm::default(),
            forms: masked(&session.forms),
            secret: session.forms,
        })
    }
}

const SAID: &str = "lastword_said";

/// Reads what came of a form.
fn heard(value: &str) -> Option<(Tone, String)> {
    let (tone, words) = value.split_once('.')?;
    let words = percent_decode_str(words).decode_utf8().ok()?.into_owned();
    Some((if tone == "good" { Tone::Good } else { Tone::Bad }, words))
}

impl Viewer {
    /// Returns the words for what waits for a human, who is this one if its role decides (H7).
    pub(super) fn waiting(&self) -> &'static str {
        if self.role <= Role::Approver { "waiting for you" } else { "waiting for an approver" }
    }

    /// Returns the word for a state as this human reads it.
    pub(super) fn word(&self, word: &'static str) -> &'static str {
        if word == "waiting for you" { self.waiting() } else { word }
    }

    /// Returns the header by which the next page says what came of a form.
    pub(super) fn says(&self, tone: Tone, words: &Markup) -> String {
        let tone = if tone == Tone::Good { "good" } else { "bad" };
        let words: String = plain(&words.clone().into_string()).chars().take(SAID_CHARS).collect();
        let (name, attributes) = &self.said_cookie;
        format!("{name}={tone}.{}; Max-Age=60{attributes}", encoded(&words))
    }

    /// Returns the header after which no other page says it.
    pub(super) fn was_said(&self) -> Option<String> {
        let (name, attributes) = &self.said_cookie;
        self.said.is_some().then(|| format!("{name}=; Max-Age=0{attributes}"))
    }
}

/// Returns the text of markup.
fn plain(markup: &str) -> String {
    let mut text = String::new();
    for (index, part) in markup.split('<').enumerate() {
        text.push_str(if index == 0 { part } else { part.split_once('>').map_or("", |(_, after)| after) });
    }
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&amp;", "&")]
        .iter()
        .fold(text, |text, (from, to)| text.replace(from, to))
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
    let path = root();
    format!("{}={value}; Path={path}; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}", name(headers))
}

/// Returns the path below which the console's pages are.
fn root() -> String {
    Some(url("")).filter(|path| !path.is_empty()).unwrap_or_else(|| "/".to_owned())
}

/// Returns the attribute of a cookie that is sent over TLS alone, if this request came so.
pub(super) fn secure(ctx: &Context, headers: &HeaderMap) -> &'static str {
    // A proxy may speak TLS in front of this server: a browser sends the origin with every form.
    let https = ctx.transport != Transport::Plain
        || headers.get("origin").is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
    if https { "; Secure" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_on_the_next_page_is_the_text_of_what_a_script_would_show() {
        assert_eq!(plain("<code>apr-1</code> of a &lt;b&gt; is &amp;lt; done."), "apr-1 of a <b> is &lt; done.");
        assert_eq!(heard("good.a%20b"), Some((Tone::Good, "a b".to_owned())));
        assert_eq!(heard("x.%FF"), None);
    }
}
