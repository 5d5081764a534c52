//! The frame of every response: headers that protect the human's browser, and refusals as pages.

use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, LOCATION, REFERRER_POLICY,
    STRICT_TRANSPORT_SECURITY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use lastword_facts::Code;
use lastword_server::{ApiError, Context};
use maud::{Markup, html};

use super::forms::SAID;
use super::layout;
use super::packed;
use super::parts::{foreign_line, url};

/// Nothing loads from other sites, scripts in the page's text don't run, and no other site may embed the page.
pub(super) const POLICY: &str =
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'";

const HEADERS: [(HeaderName, &str); 7] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    // Other sites get no referrer. `no-referrer` would also hide the origin of the console's own forms, and the origin
    // check couldn't tell them from another site's.
    (REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (CACHE_CONTROL, "no-store"),
    (VARY, "HX-Request"),
];

/// By this header htmx leads to another page.
const HX_REDIRECT: HeaderName = HeaderName::from_static("hx-redirect");

/// For a year, a browser that was here over TLS comes in no other way.
const STRICT_TRANSPORT: &str = "max-age=31536000";

/// A refusal on its way to the page that shows it.
#[derive(Clone)]
struct Refused(ApiError);

/// Marks a request without a valid session.
#[derive(Clone)]
struct SignedOut;

/// Returns a refusal as a response that [`around`] turns into a page.
fn error_response(fault: ApiError) -> Response {
    let status = StatusCode::from_u16(fault.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = status.into_response();
    response.extensions_mut().insert(Refused(fault));
    response
}

/// A failed call, shown as a page.
pub(super) enum ErrorPage {
    /// A refusal.
    Fault(ApiError),
    /// What the browser is asked before a form is done.
    Asks(Box<Response>),
}

impl<F: Into<ApiError>> From<F> for ErrorPage {
    fn from(fault: F) -> Self {
        Self::Fault(fault.into())
    }
}

impl IntoResponse for ErrorPage {
    fn into_response(self) -> Response {
        match self {
            Self::Fault(fault) => error_response(fault),
            Self::Asks(response) => *response,
        }
    }
}

/// Returns the response for a missing session: the sign-in page, or a message where only a part of a page was
/// requested.
pub(super) fn signed_out() -> Response {
    let mut response = StatusCode::UNAUTHORIZED.into_response();
    response.extensions_mut().insert(SignedOut);
    response
}

/// Returns whether the script of an open page requests only a part of it.
pub(super) fn is_partial(headers: &HeaderMap) -> bool {
    headers.contains_key("hx-request")
}

/// The place where a refusal is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Partial {
    /// On a page of its own.
    No,
    /// At the top of the open page.
    Flash,
    /// In the form that was sent.
    Form,
}

impl Partial {
    fn of(headers: &HeaderMap) -> Self {
        let target = headers.get("hx-target").and_then(|target| target.to_str().ok());
        match target {
            _ if !is_partial(headers) => Self::No,
            Some(target) if target.ends_with(SAID) => Self::Form,
            Some(_) | None => Self::Flash,
        }
    }
}

/// Refuses forms from other sites, turns refusals into pages and adds the headers.
pub(super) async fn around(
    axum::extract::State(ctx): axum::extract::State<Context>,
    request: Request,
    next: Next,
) -> Response {
    let partial = Partial::of(request.headers());
    let here = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let packs = packed::is_accepted(request.headers());
    let strict = ctx.origins.is_strict(request.headers());
    let mut response = if !reads && is_cross_site(request.headers()) {
        ctx.handle.metrics().refuse(Code::Forbidden);
        error_response(ApiError::new(Code::Forbidden, "The form was submitted by another site"))
    } else {
        next.run(request).await
    };
    if let Some(Refused(fault)) = response.extensions_mut().remove() {
        response = refused(response.status(), &fault, partial);
    }
    if let Some(SignedOut) = response.extensions_mut().remove() {
        response = if partial != Partial::No { signed_out_words() } else { to_sign_in(&here, reads) };
    }
    let mut response = with_headers(response);
    for name in [LOCATION, HX_REDIRECT] {
        let place = response.headers().get(&name).and_then(|place| place.to_str().ok());
        let place = place.filter(|place| place.starts_with('/')).map(|place| HeaderValue::try_from(url(place)));
        if let Some(Ok(place)) = place {
            response.headers_mut().insert(name, place);
        }
    }
    if packs {
        response = packed::packed(response).await;
    }
    if strict {
        response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(STRICT_TRANSPORT));
    }
    response
}

fn with_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        // A header that the handler set takes precedence.
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Returns the page for a browser that requests an unknown path, with links to the existing pages.
pub(super) fn nowhere(fault: &ApiError) -> Response {
    let status = StatusCode::from_u16(fault.0.status).unwrap_or(StatusCode::NOT_FOUND);
    let main = html! {
        section.empty {
            h1 { "Page not found" }
            p { (foreign_line(&fault.0.detail)) "." }
            p { "The console has these pages:" }
            ul.places { @for (_, path, name, _) in layout::places() { li { a href=(url(path)) { (name) } } } }
            p.faint { "A conversation is at " code { (url("/conversations/REF")) } ", an agent at " code { (url("/agents/NAME")) } ", a message at " code { (url("/messages/msg-9")) } "." }
        }
    };
    with_headers((status, Html(layout::bare("Page not found", &main).into_string())).into_response())
}

/// Uses the browser's own statement about where a form was. Without that header, the session's cookie and the form's
/// secret still protect.
fn is_cross_site(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin")
}

/// Returns a refusal as a page, or as a message in an open page, which leaves the rest of it unchanged.
fn refused(status: StatusCode, fault: &ApiError, partial: Partial) -> Response {
    let (title, detail) = (fault.0.title.clone(), fault.0.detail.clone());
    if partial != Partial::No {
        let text = if detail.is_empty() { title } else { detail };
        if partial == Partial::Form {
            return (status, Html(html! { p { (with_places(&text)) } }.into_string())).into_response();
        }
        let flash = layout::flash(layout::Tone::Bad, &with_places(&text));
        return (status, layout::INTO_FLASH, Html(flash.into_string())).into_response();
    }
    let main = html! {
        section.empty {
            h1 { (foreign_line(&title)) }
            p { (with_places(&detail)) }
            p { a href=(url("/")) { "Go to the front page" } }
        }
    };
    (status, Html(layout::bare(&title, &main).into_string())).into_response()
}

/// Shows a refusal that names the page on which it is mended with a link to that page.
fn with_places(text: &str) -> Markup {
    html! {
        @match text.strip_suffix("under Devices") {
            Some(before) => { (foreign_line(before)) "under " a href=(url("/devices")) { "Devices" } }
            None => (foreign_line(text)),
        }
    }
}

fn signed_out_words() -> Response {
    let words =
        html! { "You are signed out. " a href=(url("/sign-in")) target="_blank" { "Sign in" } " and submit it again." };
    let flash = layout::flash(layout::Tone::Bad, &words);
    (StatusCode::UNAUTHORIZED, layout::INTO_FLASH, Html(flash.into_string())).into_response()
}

fn to_sign_in(here: &str, reads: bool) -> Response {
    let mut url = "/sign-in".to_owned();
    if reads && here != "/" {
        url.push_str("?next=");
        url.push_str(&super::parts::encoded(here));
    }
    (StatusCode::SEE_OTHER, [(LOCATION, url)]).into_response()
}
