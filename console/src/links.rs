//! The link by which anybody reads one conversation, and the page that it opens.
//!
//! The secret of a link follows `#`, as that of a sign-in does: no request line, log or referrer has it, and what fetches
//! addresses from a chat to show what is behind them gets a form. The script posts it.

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{Html, IntoResponse as _, Response};
use lastword_broker::ReadLane;
use lastword_facts::Fact;
use lastword_facts::fact::{ApprovalAsked, Role};
use lastword_facts::ids::DAY_MS;
use lastword_server::calls::links::{LinkView, Opened};
use lastword_server::calls::{conversations, links as calls};
use lastword_server::edges::http::{attempt, read, succeeded};
use lastword_server::{ApiError, Context};
use lastword_store::{PageCut, PagePlace, PageUnit};
use lastword_wire::call::{ArgumentKind, arguments};
use lastword_wire::redact::redacted;
use lastword_wire::{Arguments, Event, rfc3339, told};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::conversations::standing;
use super::forms::{Form, Nothing, fields};
use super::frame::ErrorPage;
use super::layout::{self, Moment};
use super::live::Topic;
use super::parts::{badge, clock_time, encoded, foreign, foreign_line, number, plural, spent, time, url, utc, zone};
use super::session::Viewer;
use super::{log, markdown, team};
use crate::reads::history::{self, History, HistoryEntry, PageAsked};

/// The path of the page that links open.
pub(super) const SHARED: &str = "/shared";
/// How long a link is valid.
const VALID: [(u64, &str); 3] = [(DAY_MS, "a day"), (3 * DAY_MS, "3 days"), (7 * DAY_MS, "7 days")];
/// The most facts on the page.
const FACTS_MAX: usize = 500;
/// The most characters of a text on the page.
const TEXT_CHARS_MAX: usize = 4_000;
/// The members of events that say something to readers who aren't of the workspace. No name is among them.
const TOLD: [&str; 17] = [
    "agent_messages",
    "attempt",
    "code",
    "control",
    "crossing",
    "current",
    "decision",
    "end",
    "is_cost",
    "level",
    "limit",
    "percent",
    "requests",
    "rounds",
    "stall",
    "status",
    "why",
];

/// Shows the link to a conversation, with the forms that make and end one.
pub(super) fn section(viewer: &Viewer, moment: &Moment, reference: &str, link: Option<&LinkView>) -> Markup {
    let to = format!("/conversations/{}/link", encoded(reference));
    html! {
        details #link {
            summary { "Link for others" @if link.is_some() { " " (badge("open")) } }
            @if let Some(link) = link {
                p { "A link that " (foreign_line(&link.by)) " made expires " (time(&rfc3339(link.until), moment.now)) "." }
                @if viewer.role <= Role::Approver {
                    (viewer.form("end-link", &format!("{to}/end"), &html! { button type="submit" { "End the link" } }))
                }
            }
            p.faint { "Whoever has the link reads this conversation, and those opened from it, without signing in. What looks like a secret, and most arguments of calls, are left out." }
            (viewer.allowed(Role::Approver, "Making or ending a link", || viewer.fill_in("make-link", &to, &html! {
                label { span { "Expires after" } select name="valid_ms" { @for (ms, words) in VALID { option value=(ms) { (words) } } } }
                button type="submit" { @if link.is_some() { "Replace the link" } @else { "Make a link" } }
            })))
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Terms {
    valid_ms: u64,
}

/// `POST /conversations/{ref}/link`: makes the link, and shows it once.
pub(super) async fn make(
    State(ctx): State<Context>,
    Path(reference): Path<String>,
    headers: HeaderMap,
    form: Form<Terms>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Terms { valid_ms } } = form;
    let conv = conversations::find(&ctx, viewer.caller, &reference).await?;
    let (secret, until) = calls::make(&ctx, viewer.caller, conv, valid_ms).await?;
    let made = html! {
        div.made {
            p { "The link to " (foreign_line(&reference)) ", shown once, valid until " (utc(&rfc3339(until))) ":" }
            pre.rule { (team::address(&ctx, &headers)) (SHARED) "#" (secret) }
        }
    };
    if viewer.partial {
        let trigger = [("hx-trigger", Topic::Conversation(conv).to_string())];
        return Ok((trigger, Html(made.into_string())).into_response());
    }
    let back = format!("/conversations/{}", encoded(&reference));
    let page = html! { h1 { "Link" } (made) p { a href=(url(&back)) { "Back to " (foreign_line(&reference)) } } };
    Ok(Html(layout::bare("Link", &page).into_string()).into_response())
}

/// `POST /conversations/{ref}/link/end`: ends the link.
pub(super) async fn end(
    State(ctx): State<Context>,
    Path(reference): Path<String>,
    form: Form<Nothing>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Nothing {} } = form;
    let conv = conversations::find(&ctx, viewer.caller, &reference).await?;
    calls::end(&ctx, viewer.caller, conv).await?;
    let words = html! { "The link to " (foreign_line(&reference)) " opens nothing any more." };
    let next = format!("/conversations/{}", encoded(&reference));
    Ok(viewer.done(&words, &next, &[Topic::Conversation(conv)]))
}

/// `GET /shared`: the form into which the script puts the secret.
pub(super) async fn entry() -> Response {
    shown(StatusCode::OK, "Shared conversation", &form(None))
}

fn form(refused: Option<&ApiError>) -> Markup {
    html! {
        h1 { "A conversation to read" }
        @if let Some(fault) = refused { div.flash.bad role="alert" { p { (fault.0.detail) ". " (fault.0.hint) } } }
        form #open-link method="post" action=(url(SHARED)) {
            label for="code" { "The link" }
            input #code type="text" name="code" required autocomplete="off" spellcheck="false";
            button.main type="submit" { "Read" }
        }
    }
}

#[derive(Debug, Default, Deserialize)]
struct LinkForm {
    #[serde(default)]
    code: String,
}

/// `POST /shared`: the conversation that a link opens.
pub(super) async fn open(State(ctx): State<Context>, request: Request) -> Result<Response, ErrorPage> {
    let (parts, body) = request.into_parts();
    let LinkForm { code } = fields(&read(&parts, body).await?)?;
    // Counted before it is looked at; what opens something is taken back.
    attempt(&ctx, &parts.extensions)?;
    // Without scripts, the whole link is in the field.
    let secret = code.trim().rsplit('#').next().unwrap_or_default();
    let opened = match calls::open(&ctx, secret).await {
        Ok(opened) => opened,
        Err(fault) => {
            let status = StatusCode::from_u16(fault.0.status).unwrap_or(StatusCode::UNAUTHORIZED);
            return Ok(shown(status, "Shared conversation", &form(Some(&fault))));
        }
    };
    succeeded(&ctx, &parts.extensions);
    // Behind the humans of the workspace, and no more at a time than for agents.
    ReadLane::Agents.enter();
    let Opened { caller, reference, until } = opened;
    let cut = PageCut { unit: PageUnit::Facts, place: PagePlace::Newest, units_max: FACTS_MAX, facts_max: FACTS_MAX };
    let history = history::of(&ctx, caller, &reference, PageAsked { cut, ahead: false }).await?;
    let hash = calls::end_of_log(&ctx).await?;
    let moment = Moment::of(&ctx);
    let main = html! {
        header.heading { h1 { (foreign_line(&reference)) } (standing("waiting for a human", &history.view, history.state)) }
        (head(&history))
        p.faint { "Read-only, as of " (utc(&rfc3339(moment.now))) ". The link expires " (time(&rfc3339(until), moment.now))
            ". What looks like a secret, and most arguments of calls, are left out. Times are in " (zone()) "." }
        ol.log { @for line in history.page_lines() { (row(&history, &moment, line)) } }
        @if let Some(hash) = hash {
            section.card aria-labelledby="proof" {
                header { h2 #proof { "Proof" } }
                div {
                    p { "When this page was made, the log that it is from ended with this hash. Whoever has the log proves by it that nothing up to there was changed since:" }
                    pre.rule { "lastword verify --expect " (hash) }
                }
            }
        }
    };
    Ok(shown(StatusCode::OK, &reference, &main))
}

fn shown(status: StatusCode, title: &str, main: &Markup) -> Response {
    let robots = [(HeaderName::from_static("x-robots-tag"), "noindex")];
    (status, robots, Html(layout::shared(title, main).into_string())).into_response()
}

fn head(history: &History) -> Markup {
    let page = &history.page;
    html! {
        @if !history.subject.is_empty() { p.subject { (markdown::line(&redacted(&history.subject), usize::MAX)) } }
        p.facts {
            span { (plural(history.messages, "message", "messages")) }
            @if history.refused > 0 { span.bad { (number(history.refused)) " refused" } }
            @if history.spent.tokens > 0 { span { (spent(history.spent.tokens, history.spent.estimated, history.spent.cost_microusd)) } }
            @if page.within < page.total { span { "the last " (number(page.within as u64)) " of " (number(page.total as u64)) " lines" } }
        }
    }
}

fn row(history: &History, moment: &Moment, line: &HistoryEntry) -> Markup {
    let event = &line.event;
    html! {
        li {
            span.seq { (event.seq) }
            span.kind { (badge(&event.kind)) }
            div.what {
                @if let Some(agent) = &event.agent { b { (name(history, agent)) } " " }
                (what(history, line))
            }
            (clock_time(&event.at, moment.now))
        }
    }
}

/// Shows a name of the conversation; others aren't told.
fn name<'a>(history: &History, name: &'a str) -> &'a str {
    let known = ["all", lastword_facts::names::SYSTEM_NAME].contains(&name);
    if known || history.participants.iter().any(|part| part == name) { name } else { "someone else" }
}

fn what(history: &History, line: &HistoryEntry) -> Markup {
    let event = &line.event;
    if let Some(problem) = &line.refusal {
        return html! { (told(problem.code)) " " span.faint { "rule " (problem.rule) } " " (told_members(event)) };
    }
    if let Some(message) = &event.message {
        return html! {
            (message.kind.word()) " to " b { (name(history, &message.to)) } " "
            @if let Some(outcome) = message.outcome() { (badge(outcome.word())) }
            (text(&message.body))
        };
    }
    if let Fact::ApprovalAsked(asked) = &line.entry.fact {
        return call(asked);
    }
    let body = event.data.get("body").and_then(Value::as_str);
    html! { (told_members(event)) @if let Some(body) = body { (text(body)) } }
}

fn told_members(event: &Event) -> Markup {
    let mut told = event.clone();
    told.data.retain(|name, _| TOLD.contains(&name.as_str()));
    log::data(&told)
}

/// Shows what a held call acts on, and of its other arguments the size.
fn call(asked: &ApprovalAsked) -> Markup {
    let parts = arguments(&Arguments::stored(&asked.arguments));
    html! {
        "asks to call " code { (foreign_line(&asked.tool)) }
        @for part in parts.iter().filter(|part| part.kind != ArgumentKind::Rest || part.text != "{}") {
            @if part.is_subject() { p.faint { (part.name) } (text(&part.text)) }
            @else { p.faint { (part.name) ": " (plural(part.text.chars().count() as u64, "character", "characters")) ", left out" } }
        }
        @if let Some(reason) = &asked.reason { p.faint { "its reason" } (text(reason)) }
    }
}

/// Shows a text without what looks like a secret, as far as the page has room for it.
fn text(text: &str) -> Markup {
    let text = redacted(text);
    let cut = text.char_indices().nth(TEXT_CHARS_MAX).map_or(text.len(), |(at, _)| at);
    html! {
        (foreign(&text[..cut]))
        @if cut < text.len() { p.faint { (number(text[cut..].chars().count() as u64)) " more characters" } }
    }
}
