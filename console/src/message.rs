//! One message with everything that is known about it, or a refused one with the reason.

use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use lastword_facts::fact::{WriteKind, WriteRefused};
use lastword_facts::{Code, Fact, Seq};
use lastword_server::Context;
use lastword_server::calls::explanations::explain;
use lastword_wire::{Event, LiftStep, Problem, StoredMessage};
use maud::{Markup, html};

use super::agents::name_link;
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, heading};
use super::pages::in_tree;
use super::palette::path;
use super::parts::{
    badge, capital, code, conversation, encoded, exactly, foreign_line, limit_words, links, money, number, reason_of,
    room, time, url,
};
use super::session::Viewer;
use super::terms;
use super::{exchange, live, log, markdown};
use crate::reads::finding;
use crate::reads::history::{self, HistoryEntry};

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
        (None, Some(problem)) if let Fact::WriteRefused(WriteRefused { write, refusal, .. }) = &line.entry.fact => {
            write_refused(&viewer, &moment, &line, *write, refusal.room(), problem)
        }
        (None, Some(problem)) => {
            let exchange =
                if problem.code == Code::NoProgress { explain(&ctx, viewer.caller, &id).await?.exchange } else { None };
            html! { (refused(&viewer, &moment, &line, problem)) @if let Some(exchange) = &exchange { (exchange::table(exchange)) } }
        }
        (None, None) => other(&viewer, &moment, &line),
    };
    let page = Page { title: &id, place: Place::Work, topics: &[live::Topic::Conversations], main };
    viewer.page(&ctx, &moment, page).await
}

fn told(moment: &Moment, message: &StoredMessage) -> Markup {
    html! {
        (heading(&format!("{} from {} to {}", capital(message.kind.word()), message.from, message.to), &html! {
            code.faint { (message.id) } @if let Some(outcome) = message.outcome() { " " (badge(outcome.word())) }
        }))
        // What was said is read first.
        div.told {
            div {
                @if message.body.is_empty() { p.faint { "No text." } } @else { (markdown::text(&message.body)) }
                @if let Some(payload) = &message.payload { h2 { "Payload" } (code(payload)) }
                @if let Some(metadata) = &message.metadata { h2 { "Metadata" } (code(metadata)) }
                (reason_of(message))
            }
            dl.about {
                dt { "From" } dd { b { (foreign_line(&message.from)) } " → " b { (foreign_line(&message.to)) } }
                dt { "Conversation" } dd { (conversation(&message.reference))
                    @if let Some(parent) = &message.parent_ref { ", opened from " (conversation(parent)) } }
                dt { "Where" } dd { a href=(url(&in_tree(&message.reference, &message.id))) { "In the tree" } }
                dt { "When" } dd { (exactly(&message.created_at, moment.now)) }
                dt { "Delivery" } dd { (badge(message.delivery_state.word())) }
                @if let Some(id) = &message.request_id { dt { "Request" } dd { code { (foreign_line(id)) } } }
                @if let Some(action) = &message.action { dt { "Action" } dd { code { (foreign_line(action)) } } }
                @if let Some(priority) = message.priority { dt { "Priority" } dd { (priority.word()) } }
                @if let Some(deadline) = &message.deadline { dt { "Deadline" } dd { (time(deadline, moment.now)) } }
                @if let Some(cause) = &message.cause { dt { "Caused by" } dd { a href={ (url("/messages/")) (cause) } { (cause) } } }
                @if let Some(above) = &message.in_reply_to { dt { "In reply to" } dd { a href={ (url("/messages/")) (above) } { (above) } } }
                @if let Some(grant) = &message.grant { dt { "Grant" } dd { a href={ (url("/messages/")) (grant) } { code { (grant) } } } }
                @if !message.completed.is_empty() { dt { "Done" } dd { (foreign_line(&message.completed.join(", "))) } }
                @if !message.failed.is_empty() { dt { "Failed" } dd { (foreign_line(&message.failed.join(", "))) } }
            }
        }
    }
}

fn refused(viewer: &Viewer, moment: &Moment, line: &HistoryEntry, problem: &Problem) -> Markup {
    let event = &line.event;
    let member = |name: &str| event.data.get(name).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    html! {
        (heading("Refused message", &badge("refused")))
        p { (agent_link(event)) " tried to send a " (member("type")) " to "
            (name_link(&member("to"))) @if !member("ref").is_empty() { " in " (conversation(&member("ref"))) } "." }
        dl.about {
            (why(problem))
            @if let Some(step) = &line.lift { dt { "What you can do" } dd { (how_to_lift(step, event)) } }
            @if !line.chain.is_empty() { dt { "Chain" } dd { (links(&line.chain, &viewer.name)) } }
            dt { "When" } dd { (exactly(&event.at, moment.now)) }
        }
        p.faint { "The text was not kept: a refusal records sender, recipient, REF and reason only." }
        (onward(line))
    }
}

fn agent_link(event: &Event) -> Markup {
    html! { @match &event.agent { Some(agent) => b { (name_link(agent)) }, None => b { "Somebody" } } }
}

/// Shows the reason: the sentence, the numbers with what they count, the rule with its limit, and the hint.
fn why(problem: &Problem) -> Markup {
    let limit = limit_of(problem.code);
    html! {
        dt { "Why" } dd { (terms::told(problem.code)) @if let Some(subject) = subject(problem) { ": " (foreign_line(subject)) } }
        @if let (Some(most), Some(current)) = (problem.limit, problem.current) {
            dt { "Numbers" } dd {
                // These limits count what agents try, not what gets through, and refuse what reaches them.
                @if matches!(problem.code, Code::TurnsSoft | Code::TurnsHard) {
                    "refused from number " (number(most)) " on; this is number " (number(current)) ", refused ones included"
                } @else {
                    @let words = |n| if problem.is_cost { money(n) } else { number(n) };
                    "at most " (words(most)) " allowed; this one would have made it " (words(current))
                }
            }
        }
        dt { "Rule" } dd {
            (problem.rule) ", " code { (problem.code) }
            @if let Some(name) = limit { ", " a href={ (url("/limits#")) (name) } { (limit_words(name)) } }
        }
        dt { "Sender" } dd { details { summary { "What it was told" } p.faint { (foreign_line(&problem.hint)) } } }
    }
}

/// Returns the part of the detail that the title doesn't say: whom or what it was about.
fn subject(problem: &Problem) -> Option<&str> {
    let rest = problem.detail.strip_prefix(problem.code.title())?.strip_prefix(": ")?;
    Some(rest.split(" (limit ").next().unwrap_or(rest))
}

/// Returns the limit that a code is about, if one limit alone is.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other codes have no limit, or several")]
const fn limit_of(code: Code) -> Option<&'static str> {
    match code {
        Code::DepthCap => Some("depth_max"),
        Code::HopCap => Some("hops_max"),
        Code::TaskRequests => Some("task_requests_max"),
        Code::GrantMessages => Some("grant_messages_max"),
        Code::GrantTurns => Some("grant_turns_max"),
        Code::GrantAgents => Some("grant_agents_max"),
        Code::GrantExpired => Some("grant_age_ms"),
        Code::TurnsSoft => Some("turns_soft_max"),
        Code::TurnsHard => Some("turns_hard_max"),
        Code::FanOut => Some("fan_out_targets_max"),
        _ => None,
    }
}

/// Leads on from a refusal: to the conversation, the agent, and its other refusals.
fn onward(line: &HistoryEntry) -> Markup {
    let event = &line.event;
    let reference = event.reference.as_ref().or_else(|| line.chain.last().map(|link| &link.reference));
    html! {
        ul.lines.onward {
            @if let Some(reference) = reference {
                li { "Conversation " (conversation(reference)) ": "
                    a href={ (url("/conversations/")) (encoded(reference)) "?view=waterfall&at=msg-" (event.seq) } { "where it was refused" } }
            }
            @if let Some(agent) = &event.agent {
                li { "Agent " (name_link(agent)) ": " a href={ (url("/conversations?from=")) (encoded(agent)) } { "its messages" } }
            }
            li { a href=(url("/limits#refused")) { "All refusals by rule" } }
        }
    }
}

/// Returns what an agent tried, as a verb.
const fn tried(write: WriteKind) -> &'static str {
    match write {
        WriteKind::Post => "post in a room",
        WriteKind::Escalation => "ask a human",
        WriteKind::Approval => "have a tool call approved",
        WriteKind::Claim => "claim a resource",
    }
}

/// Shows a refused write other than a message: a post, a question, a held call or a claim.
fn write_refused(
    viewer: &Viewer,
    moment: &Moment,
    line: &HistoryEntry,
    write: WriteKind,
    in_room: Option<&str>,
    problem: &Problem,
) -> Markup {
    let event = &line.event;
    html! {
        (heading(&format!("Refused {}", write.word()), &badge("refused")))
        p { (agent_link(event)) " tried to "
            @match in_room { Some(name) => { "post in the room " (room(name)) }, None => (tried(write)) }
            @if let Some(reference) = &event.reference { " in " (conversation(reference)) } "." }
        dl.about {
            (why(problem))
            @if !line.chain.is_empty() { dt { "Chain" } dd { (links(&line.chain, &viewer.name)) } }
            @if let Some(step) = &line.lift { dt { "What you can do" } dd { (how_to_lift(step, event)) } }
            dt { "When" } dd { (exactly(&event.at, moment.now)) }
        }
        (onward(line))
    }
}

/// Shows the step that lifts a refusal, with the page on which a human takes it.
fn how_to_lift(step: &LiftStep, event: &Event) -> Markup {
    html! { (step.text) @if let Some((path, name)) = place(step, event) { " " a href=(url(&path)) { (name) } } }
}

/// Returns the page for a step. The paths of pages are those of calls.
fn place(step: &LiftStep, event: &Event) -> Option<(String, &'static str)> {
    let mut path = step.call.split([' ', '/']).skip_while(|part| *part != "v1").skip(1);
    let (kind, of) = (path.next()?, path.next().unwrap_or_default());
    match kind {
        "conversations" => Some((format!("/conversations/{of}"), "Open the conversation")),
        "agents" => Some((format!("/agents/{of}"), "Open the agent's page")),
        "rooms" => Some((format!("/rooms/{of}"), "Open the room")),
        "workspace" => Some(("/workspace".to_owned(), "Resume the workspace")),
        "messages" => Some((format!("/compose?to={}", encoded(event.agent.as_deref()?)), "Ask it")),
        _ => None,
    }
}

fn other(viewer: &Viewer, moment: &Moment, line: &HistoryEntry) -> Markup {
    let event = &line.event;
    html! {
        (heading(&event.kind.replace('_', " "), &html! { span.faint { "line " (event.seq) } }))
        p { @if let Some(agent) = &event.agent { b { (foreign_line(agent)) } " " }
            @if let Some(reference) = &event.reference { "in " (conversation(reference)) " " }
            (exactly(&event.at, moment.now)) }
        @if line.waker.is_some() { p { (log::woke(viewer, line)) } }
        p { (log::data(event)) }
    }
}
