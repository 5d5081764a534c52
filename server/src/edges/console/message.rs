//! One message with everything that is known about it, or a refused one with the reason.

use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use lastword_proto::wire::{LiftStep, Problem, RefusedAt, StoredMessage};
use lastword_proto::{Code, Fact, Refusal, Seq};
use maud::{Markup, html};

use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, heading};
use super::palette::path;
use super::parts::{badge, code, conversation, foreign_line, links, time};
use super::session::Viewer;
use super::{exchange, live, log, markdown};
use crate::calls::Context;
use crate::calls::explanations::explain;
use crate::calls::finding;
use crate::calls::history::{self, HistoryEntry};

/// `GET /messages/{id}`: the page of a message or of another line of the log. Every other id leads to its own page.
pub(super) async fn page(
    State(ctx): State<Context>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Response, ErrorPage> {
    if Seq::parse(&id).is_none()
        && let Some(place) = finding::whereabouts(&ctx, viewer.caller, &id).await?
    {
        return Ok(Redirect::to(&path(&place)).into_response());
    }
    let moment = Moment::of(&ctx);
    let line = history::line(&ctx, viewer.caller, &id).await?;
    let main = match (&line.event.message, &line.refusal) {
        (Some(message), _) => told(&moment, message),
        (None, Some(problem)) => {
            let exchange =
                if problem.code == Code::NoProgress { explain(&ctx, viewer.caller, &id).await?.exchange } else { None };
            html! { (refused(&moment, &line, problem)) @if let Some(exchange) = &exchange { (exchange::table(exchange)) } }
        }
        (None, None) => {
            if let Fact::WriteRefused { write, refusal, .. } = &line.entry.fact {
                write_refused(&moment, &line, (write.word(), refusal))
            } else {
                other(&moment, &line)
            }
        }
    };
    let page = Page { title: &id, place: Place::Conversations, topics: &[live::Topic::Conversations], main };
    viewer.page(&ctx, &moment, page).await
}

fn told(moment: &Moment, message: &StoredMessage) -> Markup {
    html! {
        (heading(&message.id, &html! {
            (badge(message.kind.word())) @if let Some(status) = message.status { " " (badge(status.word())) }
        }))
        dl.about {
            dt { "From" } dd { b { (foreign_line(&message.from)) } " → " b { (foreign_line(&message.to)) } }
            dt { "Conversation" } dd { (conversation(&message.reference))
                @if let Some(parent) = &message.parent_ref { ", opened from " (conversation(parent)) } }
            dt { "Where" } dd { "depth " (message.depth) ", hop " (message.hops) }
            dt { "When" } dd { (time(&message.created_at, moment.now)) }
            dt { "Delivery" } dd { (badge(message.delivery_state.word())) }
            @if let Some(id) = &message.request_id { dt { "Request" } dd { code { (foreign_line(id)) } } }
            @if let Some(action) = &message.action { dt { "Action" } dd { code { (foreign_line(action)) } } }
            @if let Some(priority) = message.priority { dt { "Priority" } dd { (priority.word()) } }
            @if let Some(deadline) = &message.deadline { dt { "Deadline" } dd { (time(deadline, moment.now)) } }
            @if let Some(cause) = &message.cause { dt { "Caused by" } dd { a href={ "/messages/" (cause) } { (cause) } } }
            @if let Some(above) = &message.in_reply_to { dt { "In reply to" } dd { a href={ "/messages/" (above) } { (above) } } }
            @if let Some(grant) = &message.grant { dt { "Grant" } dd { code { (grant) } } }
            @if let Some(reason) = &message.reason { dt { "Reason" } dd { (foreign_line(reason)) } }
            @if !message.completed.is_empty() { dt { "Done" } dd { (foreign_line(&message.completed.join(", "))) } }
            @if !message.failed.is_empty() { dt { "Failed" } dd { (foreign_line(&message.failed.join(", "))) } }
        }
        @if message.body.is_empty() { p.faint { "No text." } } @else { (markdown::text(&message.body)) }
        @if let Some(payload) = &message.payload { h2 { "Payload" } (code(payload)) }
        @if let Some(metadata) = &message.metadata { h2 { "Metadata" } (code(metadata)) }
    }
}

fn refused(moment: &Moment, line: &HistoryEntry, problem: &Problem) -> Markup {
    let event = &line.event;
    let member = |name: &str| event.data.get(name).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    html! {
        (heading("Refused message", &badge("refused")))
        p { b { (foreign_line(event.agent.as_deref().unwrap_or_default())) } " tried to send a " (member("type")) " to "
            b { (foreign_line(&member("to"))) } @if !member("ref").is_empty() { " on " code { (foreign_line(&member("ref"))) } } "." }
        dl.about {
            dt { "Why" } dd { (foreign_line(&problem.detail)) }
            dt { "Rule" } dd { (problem.rule) }
            dt { "Code" } dd { code { (problem.code) } }
            @if let Some(limit) = problem.limit { dt { "Limit" } dd { (limit) } }
            @if let Some(current) = problem.current { dt { "Would be" } dd { (current) } }
            dt { "Told to the sender" } dd.faint { (foreign_line(&problem.hint)) }
            @if let Some(step) = step(line) { dt { "What you can do" } dd { (step.text) " " code { (foreign_line(&step.cli)) } } }
            @if !line.chain.is_empty() { dt { "Chain" } dd { (links(&line.chain)) } }
            dt { "When" } dd { (time(&event.at, moment.now)) }
        }
        p.faint { "The text was not kept: a refusal records sender, recipient, REF and reason only." }
    }
}

/// Shows a refused write other than a message: a post, a question, a held call or a claim.
fn write_refused(moment: &Moment, line: &HistoryEntry, (write, refusal): (&str, &Refusal)) -> Markup {
    let problem = Problem::new(refusal);
    let event = &line.event;
    html! {
        (heading(&format!("Refused {}", write.replace('_', " ")), &badge("refused")))
        p { b { (foreign_line(event.agent.as_deref().unwrap_or_default())) } " tried to make a " (write.replace('_', " "))
            @if let Some(reference) = &event.reference { " in " (conversation(reference)) } "." }
        dl.about {
            dt { "Why" } dd { (foreign_line(&problem.detail)) }
            dt { "Rule" } dd { (problem.rule) ", " code { (problem.code) } }
            dt { "Told to the sender" } dd.faint { (foreign_line(&problem.hint)) }
            @if let Some(step) = step(line) { dt { "What you can do" } dd { (step.text) " " code { (foreign_line(&step.cli)) } } }
            dt { "When" } dd { (time(&event.at, moment.now)) }
        }
    }
}

/// Returns the step by which a human lifts what refused the message or write.
fn step(line: &HistoryEntry) -> Option<LiftStep> {
    let (Fact::Refused { refusal, .. } | Fact::WriteRefused { refusal, .. }) = &line.entry.fact else { return None };
    let at = RefusedAt { reference: line.event.reference.as_deref(), agent: line.event.agent.as_deref() };
    LiftStep::of(refusal, at)
}

fn other(moment: &Moment, line: &HistoryEntry) -> Markup {
    let event = &line.event;
    html! {
        (heading(&event.kind.replace('_', " "), &html! { span.faint { "line " (event.seq) } }))
        p { @if let Some(agent) = &event.agent { b { (foreign_line(agent)) } " " }
            @if let Some(reference) = &event.reference { "in " (conversation(reference)) " " }
            (time(&event.at, moment.now)) }
        p { (log::data(event)) }
    }
}
