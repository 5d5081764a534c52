//! Forms: the secret that keeps other sites from sending one, and the reply to a form.

use axum::RequestExt as _;
use axum::extract::{FromRequest, Request};
use axum::http::header::{LOCATION, REFERER, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use lastword_facts::Code;
use lastword_facts::fact::{Decision, Role};
use lastword_server::calls::humans;
use lastword_server::edges::http::read;
use lastword_server::{ApiError, Context};
use maud::{Markup, html};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::frame::ErrorPage;
use super::layout::{self, INTO_FLASH, Tone, flash};
use super::live::Topic;
use super::packed::is_secret;
use super::parts::{foreign_line, url};
use super::session::{SentForm, Viewer};
use super::sign_in::within;

/// The suffix of the id of the element in which a form shows its refusal.
pub(super) const SAID: &str = "-said";

/// A form that a human sent from one of the console's pages.
pub(super) struct Form<T> {
    /// The human who sent it.
    pub(super) viewer: Viewer,
    /// The form's own fields.
    pub(super) fields: T,
}

#[derive(Deserialize)]
struct Common {
    #[serde(default)]
    forms: String,
    /// What is asked before it is done.
    question: Option<String>,
    /// Whether the human was asked, and is sure.
    sure: Option<String>,
    /// What a passkey confirms the form with.
    passkey: Option<String>,
}

impl<T: DeserializeOwned> FromRequest<Context> for Form<T> {
    type Rejection = Response;

    async fn from_request(mut request: Request, ctx: &Context) -> Result<Self, Response> {
        let mut viewer = request.extract_parts_with_state::<Viewer, _>(ctx).await?;
        let told = |fault: ApiError| ErrorPage::from(fault).into_response();
        let (parts, body) = request.into_parts();
        let bytes = read(&parts, body).await.map_err(told)?;
        let Common { forms, question, sure, passkey } = fields(&bytes).map_err(told)?;
        // No constant-time comparison is needed: another site never sees the response, so it can't measure anything.
        if !is_secret(&forms, &viewer.secret) {
            ctx.handle.metrics().refuse(Code::Forbidden);
            let text = "This form is from another session. Reload the page and submit it again";
            return Err(told(ApiError::new(Code::Forbidden, text)));
        }
        // The script of an open page has asked already.
        if let (Some(question), None, false) = (question, sure, viewer.partial) {
            let all: Vec<(String, String)> = fields(&bytes).map_err(told)?;
            return Err(ask(&viewer, &parts, &question, &all));
        }
        if ctx.passkeys.is_some() {
            let said: Vec<(String, String)> = fields(&bytes).map_err(told)?;
            viewer.sent = SentForm { content: content(parts.uri.path(), &said), passkey };
        }
        Ok(Self { viewer, fields: fields(&bytes).map_err(told)? })
    }
}

/// Returns what a form says: its path and its fields, but those that are of each sending.
fn content(path: &str, fields: &[(String, String)]) -> String {
    let said = fields.iter().filter(|(name, _)| !matches!(name.as_str(), "forms" | "passkey" | "question" | "sure"));
    let all: Vec<&str> = std::iter::once(path).chain(said.flat_map(|(name, value)| [&**name, &**value])).collect();
    json!(all).to_string()
}

/// Returns the page that asks what the script of an open page would ask, and sends the form again.
fn ask(viewer: &Viewer, parts: &Parts, question: &str, fields: &[(String, String)]) -> Response {
    let came_from = parts.headers.get(REFERER).and_then(|url| url.to_str().ok());
    let path = came_from.and_then(|url| url.split_once("://")?.1.split_once('/')).map(|(_, path)| format!("/{path}"));
    // It has the path behind a proxy already.
    let path = path.as_deref().map(|path| path.strip_prefix(&url("")).unwrap_or(path));
    let back = within(path);
    let content = html! {
        @for (name, value) in fields.iter().filter(|(name, _)| !matches!(name.as_str(), "forms" | "question")) {
            input type="hidden" name=(name) value=(value);
        }
        input type="hidden" name="sure" value="yes";
        button.danger type="submit" { "Yes, do it" }
    };
    let main = html! {
        h1 { "Are you sure?" }
        p { (foreign_line(question)) }
        (viewer.form("ask", parts.uri.path(), &content))
        p { a href=(url(back)) { "No, back without a change" } }
    };
    Html(layout::bare("Are you sure?", &main).into_string()).into_response()
}

/// A form without fields of its own.
#[derive(Debug, Deserialize)]
pub(super) struct Nothing {}

/// Parses the fields of a form's body.
pub(super) fn fields<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    serde_urlencoded::from_bytes(bytes).map_err(|error| ApiError::new(Code::Malformed, format!("the form: {error}")))
}

/// Returns the text of a field; `None` if it is blank. Browsers send line ends as two characters, which become one.
pub(super) fn filled(text: &str) -> Option<String> {
    if text.trim().is_empty() { None } else { Some(text.replace("\r\n", "\n")) }
}

impl Viewer {
    /// Returns a form of this session that shows its result at the top of the page.
    pub(super) fn form(&self, id: &str, action: &str, content: &Markup) -> Markup {
        let action = url(action);
        html! {
            form id=(id) method="post" action=(action) hx-post=(action) hx-target="#flash" hx-swap="innerHTML"
                hx-disable="find button" {
                input type="hidden" name="forms" value=(self.forms);
                (content)
            }
        }
    }

    /// Returns a form with fields to fill in. It shows a refusal beside the fields, whose content is kept.
    pub(super) fn fill_in(&self, id: &str, action: &str, content: &Markup) -> Markup {
        let (said, action) = (format!("{id}{SAID}"), url(action));
        html! {
            form id=(id) method="post" action=(action) hx-post=(action) hx-target={ "#" (said) } hx-swap="innerHTML"
                hx-disable="find button" {
                input type="hidden" name="forms" value=(self.forms);
                (content)
                div.said id=(said) role="alert" data-said {}
            }
        }
    }

    /// Returns the form if the human's role allows it, otherwise a sentence with the required role (H7).
    pub(super) fn allowed(&self, role: Role, what: &str, form: impl FnOnce() -> Markup) -> Markup {
        if self.role <= role {
            return form();
        }
        html! { p.faint data-role { (what) " needs the role " (role) ". Yours is " (self.role) "." } }
    }

    /// Returns a form that asks the human for confirmation.
    pub(super) fn asked(&self, id: &str, action: &str, question: &str, content: &Markup) -> Markup {
        let action = url(action);
        html! {
            form id=(id) method="post" action=(action) hx-post=(action) hx-target="#flash" hx-swap="innerHTML"
                hx-disable="find button" hx-confirm=(question) {
                input type="hidden" name="forms" value=(self.forms);
                // Without scripts, a page asks it.
                input type="hidden" name="question" value=(question);
                (content)
            }
        }
    }

    /// Reports the result in words, and makes open pages reload the parts for `topics`. Without scripts, the browser is
    /// redirected to `next`.
    pub(super) fn done(&self, words: &Markup, next: &str, topics: &[Topic]) -> Response {
        self.reported(Tone::Good, words, next, topics, &html! {})
    }

    /// Reports it as [`Self::done`] does, with a part of the open page that the response replaces as well.
    pub(super) fn done_with(&self, words: &Markup, next: &str, topics: &[Topic], part: &Markup) -> Response {
        self.reported(Tone::Good, words, next, topics, part)
    }

    /// Reports in red what was done but didn't have its effect, as [`Self::done`] does otherwise.
    pub(super) fn failed(&self, words: &Markup, next: &str, topics: &[Topic]) -> Response {
        self.reported(Tone::Bad, words, next, topics, &html! {})
    }

    fn reported(&self, tone: Tone, words: &Markup, next: &str, topics: &[Topic], part: &Markup) -> Response {
        if !self.partial {
            // The page that it leads to says it.
            return (StatusCode::SEE_OTHER, [(LOCATION, next)], [(SET_COOKIE, self.says(tone, words))]).into_response();
        }
        let events: Vec<String> = topics.iter().map(Topic::to_string).collect();
        let trigger = [(HeaderName::from_static("hx-trigger"), events.join(", "))];
        (trigger, INTO_FLASH, Html(html! { (flash(tone, words)) (part) }.into_string())).into_response()
    }

    /// Returns this human, who has this role, with the form that a passkey confirmed, where the workspace asks for one.
    /// Otherwise the form asks for it.
    pub(super) async fn confirmed(mut self, ctx: &Context, role: Role) -> Result<Self, ErrorPage> {
        humans::require(ctx, self.caller, role).await?;
        let Some(passkeys) = &ctx.passkeys else { return Ok(self) };
        let (human, now, content) = (self.caller.principal.agent(), ctx.handle.now(), &self.sent.content);
        let Some(passkey) = &self.sent.passkey else {
            return Err(ErrorPage::Asks(Box::new(self.asks(&passkeys.ask(human, content, now).await?))));
        };
        let wrong = |error: serde_json::Error| ApiError::new(Code::Malformed, format!("the passkey: {error}"));
        passkeys.confirm(human, content, &serde_json::from_str(passkey).map_err(wrong)?, now).await?;
        self.caller = self.caller.confirmed();
        Ok(self)
    }

    /// Returns this human for a decision on a held call: a passkey confirms one that allows it.
    pub(super) async fn deciding(self, ctx: &Context, decision: Decision) -> Result<Self, ErrorPage> {
        match decision {
            Decision::Approve | Decision::Edit => self.confirmed(ctx, Role::Approver).await,
            Decision::Reject | Decision::Respond | Decision::Ignore | Decision::Expire => Ok(self),
        }
    }

    /// Returns the response by which a form asks the browser for something; its script sends the form again with it.
    pub(super) fn asks(&self, what: &Value) -> Response {
        let words = html! { p { "This is confirmed in the browser, which needs scripts." } };
        let page = if self.partial { words } else { layout::bare("Scripts are needed", &words) };
        let header = [(HeaderName::from_static("lastword-asks"), what.to_string())];
        (StatusCode::PRECONDITION_REQUIRED, header, Html(page.into_string())).into_response()
    }

    /// Redirects the browser to the page that shows the result.
    pub(super) fn leads_to(&self, next: &str) -> Response {
        if self.partial {
            return [("hx-redirect", next)].into_response();
        }
        (StatusCode::SEE_OTHER, [(LOCATION, next)]).into_response()
    }
}
