//! The inbox: the decisions that wait for a human in full, those settled last, and the calls that settle one.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::{Html, IntoResponse as _, Redirect, Response};
use lastword_core::input::Consumer;
use lastword_facts::Code;
use lastword_facts::fact::{Decision as Verdict, Role};
use lastword_facts::ids::{ApprovalId, EscalationId};
use lastword_facts::names::SYSTEM_NAME;
use lastword_facts::status::{EscalationState, Running};
use lastword_server::calls::{agents, approvals, escalations, inbox, limits, requests};
use lastword_server::{ApiError, Context};
use lastword_wire::{ApprovalView, Arguments, DecideApproval, EscalationAnswer, Inexact};
use maud::{Markup, html};
use serde::Deserialize;

use super::decision::{self, approval_word};
use super::forms::{Form, Nothing, filled};
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, empty, heading};
use super::live::Topic;
use super::parts::{badge, conversation, excerpt, foreign_line, plural, time, url};
use super::session::Viewer;
use super::{call, markdown};
use crate::reads::decisions::{self, Asked, Decision, Unread};

/// The characters that a line shows of what a call acts on.
const SUBJECT_CHARS: usize = 120;

/// `GET /inbox`: the inbox.
pub(super) async fn page(State(ctx): State<Context>, viewer: Viewer) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let lists = decisions::list(&ctx, viewer.caller).await?;
    let limits = limits::in_force(&ctx).await?;
    let (waiting, more) = (&lists.waiting.first, lists.waiting.beyond(usize::MAX));
    let main = html! {
        (heading("Inbox", &html! { span.faint { (plural(lists.waiting.count(viewer.role) as u64, "pending decision", "pending decisions")) ", what destroys or reaches further first, then what a limit holds, then the next to expire" } }))
        @if let Some(words) = decision::beyond_role(&viewer, &lists.waiting) { p.faint { (words) } }
        @if waiting.is_empty() {
            (empty("No pending decisions.", &html! {
                "Agents' questions, held tool calls and tripped limits appear here as they arrive."
            }))
        }
        @let calls = waiting.iter().filter(|decision| matches!(decision.asked, Asked::Call(_))).count();
        div.panes {
            @if waiting.len() > 1 {
                (index(&moment, waiting))
                // In a narrow window the list leads to one card at a time.
                p.back { a href="#main" { "All decisions" } }
            }
            div.cards {
                @for decision in waiting { (decision::card(&viewer, &moment, &limits, decision)) }
            }
        }
        // After the boxes, which it counts.
        @if calls > 1 && viewer.role <= Role::Approver { (select_many(&viewer)) }
        @if !more.is_empty() {
            p.faint { "And " (more) ". They move up as you decide." }
        }
        @if !lists.unread.is_empty() {
            details #unread.fold {
                summary { "Unread messages for you " span.count { (lists.unread_all) } }
                (viewer.form("mark-read", "/unread/read", &html! {
                    p { button type="submit" { "Mark all as read" } " " span.faint { "They stay here until then." } }
                }))
                ul.lines {
                    @for (message, answer) in with_answers(&lists.unread) {
                        li { (badge(message.kind)) " " b { (foreign_line(&message.from)) } @if let Some(reference) = &message.reference { " in " (conversation(reference)) } " "
                            a href={ (url("/messages/")) (message.id) } { (markdown::line(&message.body, 140)) }
                            @if let Some(answer) = answer { " · " a href={ (url("/messages/")) (answer.id) } { "the answer" } }
                            " " (time(&message.created_at, moment.now)) }
                    }
                }
            }
        }
        @if !lists.settled.is_empty() {
            details #settled.fold {
                summary { "Recently settled " span.count { (lists.settled.len()) } }
                ul.lines { @for decision in &lists.settled { (decision::settled(&moment, decision)) } }
            }
        }
        p.onward { a href=(url("/conversations#lifted")) { "Limits that were lifted" } }
    };
    let page = Page { title: "Inbox", place: Place::Inbox, topics: &[Topic::Inbox], main };
    viewer.page(&ctx, &moment, page).await
}

/// Returns the unread messages, each notice of a request that timed out with the broker's answer to it, which says the same.
fn with_answers(unread: &[Unread]) -> Vec<(&Unread, Option<&Unread>)> {
    let mut all = unread.iter().peekable();
    let mut lines = Vec::new();
    while let Some(one) = all.next() {
        let says_the_same = |next: &&Unread| {
            one.kind == "alert"
                && next.kind == "response"
                && next.from == SYSTEM_NAME
                && next.reference == one.reference
        };
        lines.push((one, all.next_if(says_the_same)));
    }
    lines
}

/// Shows all pending decisions on a line each, where a window has room for it beside the cards.
fn index(moment: &Moment, waiting: &[Decision]) -> Markup {
    html! {
        nav.index aria-label="Pending decisions" {
            @for decision in waiting {
                a href={ "#" (decision.asked.id()) } {
                    span.head {
                        span.what { (foreign_line(&decision::title(decision))) @if !decision.alike.is_empty() { " " b { "× " (decision.alike.len() + 1) } } }
                        span.faint { (decision::ends(decision, moment)) }
                    }
                    @if let Asked::Call(held) = &decision.asked { code.what { (excerpt(&call::gist(&held.arguments, SUBJECT_CHARS), SUBJECT_CHARS)) } }
                    @if let Some(risk) = &decision.risk { span.apart { (call::alarms(risk)) } }
                }
            }
        }
    }
}

/// Shows the form that rejects the calls whose boxes are ticked; the boxes are on their cards.
fn select_many(viewer: &Viewer) -> Markup {
    viewer.form(
        "reject-many",
        "/inbox/reject",
        &html! {
            div.decide {
                label.unseen for="reject-many-reason" { "Reason for rejecting the selected calls" }
                input #reject-many-reason type="text" name="comment" placeholder="Reason for the selected calls" autocomplete="off";
                button.danger type="submit" { "Reject selected" }
            }
        },
    )
}

/// `POST /inbox/alike/{verb}`: decides held calls that are alike. The names of the fields are their ids, the values their
/// digests.
pub(super) async fn decide_alike(
    State(ctx): State<Context>,
    Path(verb): Path<String>,
    form: Form<BTreeMap<String, String>>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields } = form;
    let decision = Verdict::from_word(&verb).filter(|verdict| matches!(verdict, Verdict::Approve | Verdict::Reject));
    let decision = decision.ok_or_else(|| ApiError::unknown(&verb))?;
    let comment = fields.get("comment").and_then(|text| filled(text));
    let calls: Vec<(ApprovalId, &String)> =
        fields.iter().filter_map(|(name, digest)| Some((ApprovalId::parse(name)?, digest))).collect();
    let first = calls.first().ok_or_else(|| ApiError::new(Code::Malformed, "The form names no call"))?.0;
    let unseen = fields.get("unseen").is_some_and(|lines| lines != "0");
    if decision == Verdict::Approve && unseen {
        return Ok(Redirect::to(&format!("/approvals/{first}")).into_response());
    }
    let viewer = viewer.deciding(&ctx, decision).await?;
    let asked = |digest: &str| DecideApproval {
        decision,
        digest: Some(digest.to_owned()),
        comment: comment.clone(),
        input: None,
    };
    let (done, others) = decide_each(&ctx, &viewer, calls.iter().map(|(id, digest)| (*id, asked(digest)))).await?;
    let word = if decision == Verdict::Approve { "approved" } else { "rejected" };
    Ok(decided(&viewer, word, done, others))
}

/// Makes several decisions; returns how many were made, and how many calls others had settled.
async fn decide_each(
    ctx: &Context,
    viewer: &Viewer,
    all: impl Iterator<Item = (ApprovalId, DecideApproval)>,
) -> Result<(u64, u64), ApiError> {
    let (mut done, mut others) = (0, 0);
    for (id, asked) in all {
        match approvals::decide(ctx, viewer.caller, id, asked, None).await {
            Ok(_) => done += 1,
            Err(fault) if fault.0.code == Code::AlreadySettled => others += 1,
            Err(fault) => return Err(fault),
        }
    }
    Ok((done, others))
}

fn decided(viewer: &Viewer, word: &str, done: u64, others: u64) -> Response {
    let words = html! {
        (plural(done, "call is", "calls are")) " " (word) "."
        @if others > 0 { " " (plural(others, "was", "were")) " settled by others meanwhile." }
    };
    viewer.done(&words, "/inbox", &[Topic::Inbox])
}

/// `POST /dismiss`: dismisses requests that ended without their result. The names of the fields are their ids, or those of
/// the questions about them, the values what they name.
pub(super) async fn dismiss(
    State(ctx): State<Context>,
    form: Form<BTreeMap<String, String>>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields } = form;
    let mut dismissed = 0;
    for (id, what) in &fields {
        let done = match (what.as_str(), EscalationId::parse(id)) {
            ("question", Some(question)) => {
                let chosen = EscalationAnswer { answer: "dismissed".to_owned(), lift: None };
                escalations::answer(&ctx, viewer.caller, question, &chosen).await.map(|_| ())
            }
            ("request", _) => requests::dismiss(&ctx, viewer.caller, id).await,
            _ => continue,
        };
        match done {
            Ok(()) => dismissed += 1,
            Err(fault) if fault.0.code == Code::AlreadySettled => {}
            Err(fault) => return Err(fault.into()),
        }
    }
    let words = html! { (plural(dismissed, "request is", "requests are")) " dismissed." };
    Ok(viewer.done(&words, "/", &[Topic::Inbox]))
}

/// `POST /inbox/reject`: rejects several held calls. The names of the ticked boxes are their ids.
pub(super) async fn reject_many(
    State(ctx): State<Context>,
    form: Form<BTreeMap<String, String>>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields } = form;
    let comment = fields.get("comment").and_then(|text| filled(text));
    let ids: Vec<ApprovalId> = fields.keys().filter_map(|name| ApprovalId::parse(name)).collect();
    if ids.is_empty() {
        return Err(ApiError::new(Code::Malformed, "Select at least one call").into());
    }
    let asked = || DecideApproval { decision: Verdict::Reject, digest: None, comment: comment.clone(), input: None };
    let (done, others) = decide_each(&ctx, &viewer, ids.into_iter().map(|id| (id, asked()))).await?;
    Ok(decided(&viewer, "rejected", done, others))
}

#[derive(Debug, Deserialize)]
pub(super) struct AnswerForm {
    #[serde(default)]
    answer: String,
    option: Option<String>,
    lift: Option<String>,
}

/// `POST /escalations/{id}/answer`: an option, a lift or a text.
pub(super) async fn answer(
    State(ctx): State<Context>,
    Path(id): Path<String>,
    form: Form<AnswerForm>,
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
            let did = if view.state == EscalationState::Open { "Lifted the limit of " } else { "Answered " };
            let asker = view.agent.clone();
            let paused = ctx.handle.query(move |live| {
                let agent = live.state.agent_of(&asker).and_then(|id| live.state.agent(id));
                agent.is_some_and(|agent| agent.running.max(live.state.running) != Running::Active)
            });
            let goes_on =
                if paused.await.map_err(ApiError::from)? { " continues once it is resumed." } else { " continues." };
            let words = html! { (did) code { (view.id) } ": " (foreign_line(&view.agent)) (goes_on) };
            Ok(viewer.done(&words, "/inbox", &[Topic::Inbox]))
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
    fault.into()
}

#[derive(Debug, Deserialize)]
pub(super) struct AskAgain {
    #[serde(default)]
    to: String,
}

/// `POST /escalations/{id}/again`: asks once more for what timed out, and settles the question about it.
pub(super) async fn again(
    State(ctx): State<Context>,
    Path(id): Path<String>,
    form: Form<AskAgain>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields } = form;
    let wanted = EscalationId::parse(&id).ok_or_else(|| ApiError::unknown(&id))?;
    let to = filled(&fields.to).map(|to| to.trim().to_owned());
    let sent = escalations::ask_again(&ctx, viewer.caller, wanted, to).await?;
    let words = html! { "Asked " (foreign_line(&sent.to)) " again in " (conversation(&sent.reference)) "." };
    Ok(viewer.done(&words, "/inbox", &[Topic::Inbox, Topic::Conversations]))
}

#[derive(Debug, Deserialize)]
pub(super) struct Decide {
    digest: Option<String>,
    #[serde(default)]
    comment: String,
    input: Option<String>,
    /// The lines of the call that its reader has not seen.
    #[serde(default)]
    unseen: usize,
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
    if decision == Verdict::Approve && fields.unseen > 0 {
        return Ok(Redirect::to(&format!("/approvals/{wanted}")).into_response());
    }
    let viewer = viewer.deciding(&ctx, decision).await?;
    let input = match fields.input.as_deref() {
        Some(text) if decision == Verdict::Edit => Some(parsed(text)?),
        Some(_) | None => None,
    };
    let asked = DecideApproval { decision, digest: fields.digest, comment: filled(&fields.comment), input };
    match approvals::decide(&ctx, viewer.caller, wanted, asked, None).await {
        Ok(view) => Ok(viewer.done(&settled(&view), "/inbox", &[Topic::Inbox])),
        Err(fault) if fault.0.code == Code::AlreadySettled => {
            let view = approvals::show(&ctx, viewer.caller, wanted, Duration::ZERO).await?;
            let own = agents::own(&ctx, viewer.caller).await?.name;
            if view.by.as_deref() == Some(own.as_str()) && view.decision == Some(decision) {
                return Ok(viewer.done(&settled(&view), "/inbox", &[Topic::Inbox]));
            }
            let by = view.by.as_deref().unwrap_or("the broker");
            let comment = view.comment.as_deref().map(|words| format!(": {words}")).unwrap_or_default();
            let state = approval_word(view.state);
            Err(already(&fault, format!("{} was already settled: {state} by {by}{comment}", view.id)))
        }
        Err(fault) => Err(fault.into()),
    }
}

/// Says what came of a held call, and which rule had held it.
fn settled(view: &ApprovalView) -> Markup {
    html! {
        code { (view.id) } " of " (foreign_line(&view.agent)) " is " (approval_word(view.state)) "."
        @if let Some(policy) = &view.policy { " The rule " code { (foreign_line(policy)) } " had held it." }
    }
}

fn parsed(text: &str) -> Result<Arguments, ApiError> {
    let wrong = |error: Inexact| ApiError::new(Code::Malformed, format!("the arguments aren't valid JSON: {error}"));
    Arguments::parse(text).map_err(wrong)
}

/// `GET /waiting`: the number of pending decisions, which every open page reloads.
pub(super) async fn waiting(State(ctx): State<Context>, viewer: Viewer) -> Result<Response, ErrorPage> {
    let waiting = decisions::waiting(&ctx, viewer.role).await?;
    Ok(Html(super::layout::waiting(&viewer, waiting).into_string()).into_response())
}

/// `POST /unread/read`: takes the human's deliveries, as `lastword inbox` does.
pub(super) async fn mark_read(State(ctx): State<Context>, form: Form<Nothing>) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Nothing {} } = form;
    let mut read = 0;
    while inbox::take(&ctx, viewer.caller, Consumer::InTurns, Duration::ZERO).await?.delivery().is_some() {
        read += 1;
    }
    let words = html! { (plural(read, "message", "messages")) " marked as read." };
    Ok(viewer.done(&words, "/inbox", &[Topic::Inbox]))
}
