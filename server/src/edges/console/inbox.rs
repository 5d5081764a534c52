//! The inbox: the decisions that wait for a human, and those settled last.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::{Html, IntoResponse as _, Response};
use lastword_proto::fact::{Decision as Verdict, EscalationCause, Role};
use lastword_proto::ids::{ApprovalId, EscalationId};
use lastword_proto::state::{ApprovalState, EscalationState};
use lastword_proto::wire::{DecideApproval, EscalationAnswer, EscalationView};
use lastword_proto::{Code, Priority};
use maud::{Markup, html};
use serde::Deserialize;

use super::forms::{Form, Nothing, filled};
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, empty, heading};
use super::live::Topic;
use super::parts::{badge, conversation, excerpt, foreign, foreign_line, links, plural, time};
use super::session::Viewer;
use crate::calls::decisions::{self, Asked, Decision};
use crate::calls::{Context, approvals, escalations, turns};
use crate::error::ApiError;

/// `GET /`: the inbox.
pub(super) async fn page(State(ctx): State<Context>, viewer: Viewer) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let lists = decisions::list(&ctx, viewer.caller).await?;
    let waiting = lists.waiting.len() as u64;
    let main = html! {
        (heading("Inbox", &html! { span.faint { (plural(waiting, "pending decision", "pending decisions")) } }))
        @if lists.waiting.is_empty() {
            (empty("No pending decisions.", &html! {
                "Agents' questions and held tool calls appear here as they arrive."
            }))
        }
        div.cards {
            @for decision in &lists.waiting { (card(&viewer, &moment, decision)) }
        }
        @if !lists.unread.is_empty() {
            details #unread.fold {
                summary { "Unread messages for you " span.count { (lists.unread.len()) } }
                (viewer.form("mark-read", "/unread/read", &html! {
                    p { button type="submit" { "Mark as read" } " " span.faint { "Until then " code { "lastword inbox" } " returns them, too." } }
                }))
                ul.lines {
                    @for message in &lists.unread {
                        li { (badge(message.kind.word())) " " b { (foreign_line(&message.from)) } " in " (conversation(&message.reference)) " "
                            a href={ "/messages/" (message.id) } { (excerpt(&message.body, 140)) } " " (time(&message.created_at, moment.now)) }
                    }
                }
            }
        }
        @if !lists.settled.is_empty() {
            details #settled.fold {
                summary { "Recently settled " span.count { (lists.settled.len()) } }
                ul.lines { @for decision in &lists.settled { (settled(&moment, decision)) } }
            }
        }
    };
    let page = Page { title: "Inbox", place: Place::Inbox, topics: &[Topic::Inbox], main };
    viewer.page(&ctx, &moment, page).await
}

fn card(viewer: &Viewer, moment: &Moment, decision: &Decision) -> Markup {
    match &decision.asked {
        Asked::Question(asked) => question(viewer, moment, decision, asked),
        Asked::Call(held) => super::call::card(viewer, moment, decision, held),
    }
}

fn question(viewer: &Viewer, moment: &Moment, decision: &Decision, asked: &EscalationView) -> Markup {
    let id = &asked.id;
    html! {
        article.card id=(id) tabindex="-1" data-row aria-labelledby={ (id) "-title" } {
            header {
                h2 id={ (id) "-title" } { b { (foreign_line(&asked.agent)) } " asks" }
                (urgency(decision.priority))
                span.grow {}
                code.faint { (id) } (time(&asked.created_at, moment.now))
            }
            (chain(decision, &asked.reference))
            (foreign(&asked.message))
            @if asked.cause == EscalationCause::NoProgress {
                p { a href={ "/escalations/" (id) } { "What was said again and again" } }
            }
            (viewer.allowed(Role::Approver, "Answering a question", || answers(viewer, asked)))
        }
    }
}

/// Shows the possible answers: the agent's options, the broker's lifts if a limit caused the question, or a text.
fn answers(viewer: &Viewer, asked: &EscalationView) -> Markup {
    let id = &asked.id;
    viewer.form(
        &format!("{id}-form"),
        &format!("/escalations/{id}/answer"),
        &html! {
            @if !asked.options.is_empty() {
                div.buttons role="group" aria-label="Offered answers" {
                    @for option in &asked.options {
                        button type="submit" name="option" value=(option) data-key="a" { (excerpt(option, 120)) }
                    }
                }
            }
            @if let Some(limit) = &asked.limit {
                p { (limit) " A text answer extends nothing; choose a lift:" }
                (viewer.allowed(Role::Operator, "Choosing a lift", || html! {
                    div.buttons role="group" aria-label="What the broker offers" {
                        @for lift in &asked.lifts {
                            button.main type="submit" name="lift" value=(lift.id) data-key="l" { (lift.text) }
                        }
                    }
                }))
            }
            div.answer {
                label.unseen for={ (id) "-answer" } { "Your answer to " (id) }
                textarea id={ (id) "-answer" } name="answer" rows="2" placeholder="Your answer" data-key="a" {}
                button.main type="submit" { "Answer" }
            }
        },
    )
}

/// Shows the priority if it is above normal.
pub(super) fn urgency(priority: Priority) -> Markup {
    match priority {
        Priority::Urgent | Priority::High => badge(priority.word()),
        Priority::Normal | Priority::Low => html! {},
    }
}

/// Shows the requests that led here, from the root on.
pub(super) fn chain(decision: &Decision, reference: &str) -> Markup {
    html! {
        div.chain {
            p {
                @if decision.chain.is_empty() && !reference.is_empty() { "in " (conversation(reference)) }
                (links(&decision.chain))
            }
            @if let Some(root) = &decision.root { p.faint.root { (excerpt(root, 220)) } }
        }
    }
}

fn settled(moment: &Moment, decision: &Decision) -> Markup {
    match &decision.asked {
        Asked::Question(asked) => html! {
            li {
                (badge(escalation_word(asked.state))) " " code { (asked.id) } " of " b { (foreign_line(&asked.agent)) } " in " (conversation(&asked.reference))
                ": " (excerpt(&asked.message, 100))
                @if let Some(answer) = &asked.answer { " → " q { (excerpt(answer, 100)) } }
                @if let Some(by) = &asked.answered_by { " by " (foreign_line(by)) }
                " " (time(&asked.created_at, moment.now))
            }
        },
        Asked::Call(held) => html! {
            li {
                (badge(approval_word(held.state))) " " code { (held.id) } " " b { (foreign_line(&held.agent)) } ": " code { (foreign_line(&held.tool)) }
                @if let Some(by) = &held.by { " by " (foreign_line(by)) }
                @if let Some(comment) = &held.comment { " " q { (excerpt(comment, 100)) } }
                " " (time(&held.created_at, moment.now))
            }
        },
    }
}

const fn escalation_word(state: EscalationState) -> &'static str {
    match state {
        EscalationState::Open => "open",
        EscalationState::Answered => "answered",
        EscalationState::Withdrawn => "withdrawn",
        EscalationState::Expired => "expired",
    }
}

const fn approval_word(state: ApprovalState) -> &'static str {
    match state {
        ApprovalState::Pending => "pending",
        ApprovalState::Approved => "approved",
        ApprovalState::Rejected => "rejected",
        ApprovalState::Ignored => "ignored",
        ApprovalState::Expired => "expired",
        ApprovalState::Used => "used",
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    #[serde(default)]
    answer: String,
    option: Option<String>,
    lift: Option<String>,
}

/// `POST /escalations/{id}/answer`: an option, a lift or a text.
pub(super) async fn answer(
    State(ctx): State<Context>,
    Path(id): Path<String>,
    form: Form<Answer>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields } = form;
    let wanted = EscalationId::parse(&id).ok_or_else(|| ApiError::unknown(&id))?;
    let text = fields.option.or_else(|| filled(&fields.answer));
    if text.is_none() && fields.lift.is_none() {
        return Err(ApiError::new(Code::Malformed, "Enter an answer, or choose one").into());
    }
    let chosen = EscalationAnswer { answer: text.unwrap_or_default(), lift: fields.lift };
    match escalations::answer(&ctx, viewer.caller, wanted, &chosen).await {
        Ok(view) => {
            let words = html! { "Answered " code { (view.id) } ": " (foreign_line(&view.agent)) " continues." };
            Ok(viewer.done(&words, "/", &[Topic::Inbox]))
        }
        Err(fault) if fault.0.code == Code::AlreadySettled => {
            let view = escalations::show(&ctx, wanted).await?;
            let by = view.answered_by.as_deref().unwrap_or("the end of its task");
            let answer = view.answer.as_deref().unwrap_or("the question was withdrawn");
            Err(already(&fault, format!("{} was already settled by {by}: {answer}", view.id)))
        }
        Err(fault) => Err(fault.into()),
    }
}

/// Returns the refusal with who settled it first, and how.
fn already(fault: &ApiError, words: String) -> ErrorPage {
    let mut fault = fault.clone();
    fault.0.detail = words;
    ErrorPage(fault)
}

#[derive(Debug, Deserialize)]
pub(super) struct Decide {
    digest: Option<String>,
    #[serde(default)]
    comment: String,
    input: Option<String>,
}

/// `POST /approvals/{id}/{verb}`: decides a held call.
pub(super) async fn decide(
    State(ctx): State<Context>,
    Path((id, verb)): Path<(String, String)>,
    form: Form<Decide>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields } = form;
    let wanted = ApprovalId::parse(&id).ok_or_else(|| ApiError::unknown(&id))?;
    let decision = Verdict::from_word(&verb).ok_or_else(|| ApiError::unknown(&verb))?;
    let input = match fields.input.as_deref() {
        Some(text) if decision == Verdict::Edit => Some(parsed(text)?),
        Some(_) | None => None,
    };
    let asked = DecideApproval { decision, digest: fields.digest, comment: filled(&fields.comment), input };
    match approvals::decide(&ctx, viewer.caller, wanted, asked).await {
        Ok(view) => {
            let state = approval_word(view.state);
            let words = html! { code { (view.id) } " of " (foreign_line(&view.agent)) " is " (state) "." };
            Ok(viewer.done(&words, "/", &[Topic::Inbox]))
        }
        Err(fault) if fault.0.code == Code::AlreadySettled => {
            let view = approvals::show(&ctx, viewer.caller, wanted, Duration::ZERO).await?;
            let by = view.by.as_deref().unwrap_or("the broker");
            let comment = view.comment.as_deref().map(|words| format!(": {words}")).unwrap_or_default();
            let state = approval_word(view.state);
            Err(already(&fault, format!("{} was already settled: {state} by {by}{comment}", view.id)))
        }
        Err(fault) => Err(fault.into()),
    }
}

fn parsed(text: &str) -> Result<serde_json::Value, ApiError> {
    let wrong =
        |error: serde_json::Error| ApiError::new(Code::Malformed, format!("the arguments aren't valid JSON: {error}"));
    serde_json::from_str(text).map_err(wrong)
}

/// `GET /waiting`: the number of pending decisions, which every open page reloads.
pub(super) async fn waiting(State(ctx): State<Context>, _viewer: Viewer) -> Result<Response, ErrorPage> {
    let waiting = decisions::waiting(&ctx).await?;
    Ok(Html(super::layout::waiting(waiting).into_string()).into_response())
}

/// `POST /unread/read`: takes the human's deliveries, as `lastword inbox` does.
pub(super) async fn mark_read(State(ctx): State<Context>, form: Form<Nothing>) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Nothing {} } = form;
    let mut read = 0;
    while turns::take(&ctx, viewer.caller, Duration::ZERO).await?.is_some() {
        read += 1;
    }
    let words = html! { (plural(read, "message", "messages")) " marked as read." };
    Ok(viewer.done(&words, "/", &[Topic::Inbox]))
}
