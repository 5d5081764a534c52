//! Forms: what they carry so that no other site can send one, and what is said once one was done.

use axum::RequestExt as _;
use axum::extract::{FromRequest, Request};
use axum::http::header::LOCATION;
use axum::http::{HeaderName, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use lastword_proto::Code;
use lastword_proto::fact::Role;
use maud::{Markup, html};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::frame::ErrorPage;
use super::layout::{INTO_FLASH, Tone, flash};
use super::live::Topic;
use super::session::Viewer;
use crate::calls::Context;
use crate::edges::http::read;
use crate::error::ApiError;

/// How the id of the place ends where a form tells what was refused.
pub(super) const SAID: &str = "-said";

/// A form that a human sent from one of our pages.
pub(super) struct Form<T> {
    /// Who sent it.
    pub(super) viewer: Viewer,
    /// Its fields.
    pub(super) fields: T,
}

#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    forms: String,
}

impl<T: DeserializeOwned> FromRequest<Context> for Form<T> {
    type Rejection = Response;

    async fn from_request(mut request: Request, ctx: &Context) -> Result<Self, Response> {
        let viewer = request.extract_parts_with_state::<Viewer, _>(ctx).await?;
        let told = |fault: ApiError| ErrorPage(fault).into_response();
        let bytes = read(request.into_body()).await.map_err(told)?;
        let Secret { forms } = fields(&bytes).map_err(told)?;
        // Another site can't know it, so how long a comparison takes tells it nothing: it never gets to see an answer.
        if forms != viewer.forms {
            ctx.handle.metrics().refuse(Code::Forbidden);
            let text = "This form is from another session. Reload the page and submit it again";
            return Err(told(ApiError::new(Code::Forbidden, text)));
        }
        Ok(Self { viewer, fields: fields(&bytes).map_err(told)? })
    }
}

/// A form that has no fields of its own.
#[derive(Debug, Deserialize)]
pub(super) struct Nothing {}

/// The fields of a form's body.
pub(super) fn fields<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    serde_urlencoded::from_bytes(bytes).map_err(|error| ApiError::new(Code::Malformed, format!("the form: {error}")))
}

/// A field that was left empty is one that was not filled in. Browsers send line ends as two characters.
pub(super) fn filled(text: &str) -> Option<String> {
    if text.trim().is_empty() { None } else { Some(text.replace("\r\n", "\n")) }
}

impl Viewer {
    /// A form of this session, which tells in the page what came of it.
    pub(super) fn form(&self, id: &str, action: &str, content: &Markup) -> Markup {
        html! {
            form id=(id) method="post" action=(action) hx-post=(action) hx-target="#flash" hx-swap="innerHTML"
                hx-disable="find button" {
                input type="hidden" name="forms" value=(self.forms);
                (content)
            }
        }
    }

    /// The same where a human fills in fields: what is refused is told in the form, beside what was typed, which stays.
    pub(super) fn fill_in(&self, id: &str, action: &str, content: &Markup) -> Markup {
        let said = format!("{id}{SAID}");
        html! {
            form id=(id) method="post" action=(action) hx-post=(action) hx-target={ "#" (said) } hx-swap="innerHTML"
                hx-disable="find button" {
                input type="hidden" name="forms" value=(self.forms);
                (content)
                div.said id=(said) role="alert" data-said {}
            }
        }
    }

    /// A form, where the human's role allows what it does; else why it isn't here (H7).
    pub(super) fn allowed(&self, role: Role, what: &str, form: impl FnOnce() -> Markup) -> Markup {
        if self.role <= role {
            return form();
        }
        html! { p.faint data-role { (what) " needs the role " (role) ". Yours is " (self.role) "." } }
    }

    /// The same, after the human said yes to a question.
    pub(super) fn confirmed(&self, id: &str, action: &str, question: &str, content: &Markup) -> Markup {
        html! {
            form id=(id) method="post" action=(action) hx-post=(action) hx-target="#flash" hx-swap="innerHTML"
                hx-disable="find button" hx-confirm=(question) {
                input type="hidden" name="forms" value=(self.forms);
                (content)
            }
        }
    }

    /// What was done, in words; the parts of open pages that it concerns are asked for anew. Without script, the browser
    /// goes on to `next`.
    pub(super) fn done(&self, words: &Markup, next: &str, topics: &[Topic]) -> Response {
        if !self.partial {
            return (StatusCode::SEE_OTHER, [(LOCATION, next)]).into_response();
        }
        let events: Vec<String> = topics.iter().map(Topic::to_string).collect();
        let trigger = [(HeaderName::from_static("hx-trigger"), events.join(", "))];
        (trigger, INTO_FLASH, Html(flash(Tone::Good, words).into_string())).into_response()
    }
    /// What was done is to be seen elsewhere: the browser goes there.
    pub(super) fn leads_to(&self, next: &str) -> Response {
        if self.partial {
            return [("hx-redirect", next)].into_response();
        }
        (StatusCode::SEE_OTHER, [(LOCATION, next)]).into_response()
    }
}
