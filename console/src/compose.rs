//! The form with which a human sends a request to an agent.

use axum::extract::{Query, State};
use axum::response::Response;
use lastword_facts::MessageType;
use lastword_facts::fact::{Kind, Role};
use lastword_facts::{Code, Priority};
use lastword_server::calls::agents;
use lastword_server::calls::messages::{self, Sent};
use lastword_server::{ApiError, Context};
use lastword_wire::{Envelope, StoredMessage};
use maud::{Markup, html};
use serde::Deserialize;

use super::forms::{Form, filled};
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, heading};
use super::live::Topic;
use super::parts::{encoded, url};
use super::session::Viewer;
use crate::reads::history;

#[derive(Debug, Default, Deserialize)]
pub(super) struct ComposeParams {
    #[serde(default)]
    to: String,
    /// The REF of the work item that the request continues.
    #[serde(default)]
    reference: String,
    /// The message whose text is asked for again.
    #[serde(default)]
    again: String,
}

/// What the form is filled in with.
#[derive(Debug, Default)]
pub(super) struct Filled {
    /// The recipient that the human can't change.
    fixed: Option<String>,
    to: String,
    reference: String,
    body: String,
}

impl Filled {
    /// Returns an empty form for this recipient.
    pub(super) fn to(name: &str) -> Self {
        Self { fixed: Some(name.to_owned()), ..Self::default() }
    }
}

/// `GET /compose?to=NAME`: the form on a page of its own. With `again`, it has the text of that message.
pub(super) async fn page(
    State(ctx): State<Context>,
    viewer: Viewer,
    Query(params): Query<ComposeParams>,
) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let members = agents::members(&ctx, viewer.caller).await?;
    let names = members.iter().filter(|member| member.view.kind == Kind::Agent).map(|member| &member.view.name);
    let filled = if params.again.is_empty() {
        Filled { fixed: Some(params.to).filter(|to| !to.is_empty()), reference: params.reference, ..Filled::default() }
    } else {
        let line = history::line(&ctx, viewer.caller, &params.again).await?;
        let body = line.event.message.map(|message| message.body).unwrap_or_default();
        Filled { fixed: None, to: params.to, reference: params.reference, body }
    };
    let main = html! {
        (heading("Ask", &html! {}))
        (form(&viewer, &filled))
        // Suggestions only: the recipient may also be a group or an action.
        datalist #agents { @for name in names { option value=(name) {} } }
    };
    let page = Page { title: "Ask", place: Place::Agents, topics: &[Topic::Agents], main };
    viewer.page(&ctx, &moment, page).await
}

/// Shows the form; on an agent's own page the recipient is fixed.
pub(super) fn form(viewer: &Viewer, filled: &Filled) -> Markup {
    viewer.allowed(Role::Operator, "A request to an agent", || fields(viewer, filled))
}

fn fields(viewer: &Viewer, filled: &Filled) -> Markup {
    viewer.form("compose-form", "/compose", &html! {
        @match &filled.fixed {
            Some(to) => { input type="hidden" name="to" value=(to); p.faint { "To " b { (super::parts::foreign_line(to)) } } }
            None => label { span { "To" }
                input type="text" name="to" value=(filled.to) list="agents" autocomplete="off" spellcheck="false" required autofocus
                    placeholder="An agent, @group or #action"; }
        }
        label { span { "Request" }
            textarea name="body" rows="5" required data-compose { (filled.body) } }
        div.fields {
            label { span { "REF of the work item" } input type="text" name="reference" value=(filled.reference) autocomplete="off" spellcheck="false" placeholder="a new one"; }
            label { span { "Priority" } select name="priority" {
                @for priority in [Priority::Normal, Priority::Urgent, Priority::High, Priority::Low] {
                    option value=(priority.word()) { (priority.word()) }
                }
            } }
        }
        p.faint { "A human's request is a grant: the agent may work and send requests within the "
            a href=(url("/limits")) { "limits of a grant" } ". Its answer arrives in your inbox." }
        p { button.main type="submit" { "Send" } }
    })
}

#[derive(Debug, Deserialize)]
pub(super) struct Composed {
    #[serde(default)]
    to: String,
    #[serde(default)]
    body: String,
    #[serde(default)]
    reference: String,
    #[serde(default)]
    priority: String,
}

/// `POST /compose`: sends the request and leads to its conversation.
pub(super) async fn send(State(ctx): State<Context>, form: Form<Composed>) -> Result<Response, ErrorPage> {
    let Form { viewer, fields } = form;
    let missing = |what: &str| ApiError::new(Code::Malformed, format!("Enter {what}"));
    let to = filled(&fields.to).ok_or_else(|| missing("a recipient"))?;
    let body = filled(&fields.body).ok_or_else(|| missing("a request"))?;
    let mut envelope = Envelope::new(MessageType::Request, to.trim(), &body);
    envelope.reference = filled(&fields.reference).map(|reference| reference.trim().to_owned());
    let mut draft = envelope.draft()?;
    if let Some(word) = filled(&fields.priority) {
        let wrong = || ApiError::new(Code::Malformed, format!("{word:?} isn't a priority"));
        draft.priority = Priority::from_word(&word).ok_or_else(wrong)?;
    }
    let next = match messages::send::<StoredMessage>(&ctx, viewer.caller, Box::new(draft), None).await? {
        Sent::One(message, _) => format!("/conversations/{}", encoded(&message.reference)),
        Sent::Many(messages) => {
            let first = messages.first().map(|message| encoded(&message.reference)).unwrap_or_default();
            format!("/conversations/{first}")
        }
        Sent::Escalated(_) | Sent::Finished(_) | Sent::Noted => "/inbox".to_owned(),
    };
    Ok(viewer.leads_to(&next))
}
