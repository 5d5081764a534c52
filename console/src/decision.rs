//! One decision: its card among others, and its page, which stays readable after it is settled.

use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use lastword_facts::Priority;
use lastword_facts::fact::{EndReason, EscalationCause, Role};
use lastword_facts::status::ApprovalState;
use lastword_facts::status::EscalationState;
use lastword_facts::visible::escape;
use lastword_server::Context;
use lastword_server::calls::explanations::explain;
use lastword_server::calls::limits;
use lastword_server::calls::subjects::first_line;
use lastword_wire::redact::redacted_call;
use lastword_wire::{ApprovalView, EscalationView, IncidentView, LimitsView};
use maud::{Markup, html};

use super::call::Extent;
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, heading};
use super::live::Topic;
use super::parts::{badge, clock, conversation, countdown, excerpt, foreign, foreign_line, links, time, url};
use super::session::Viewer;
use super::terms::told_within;
use super::{call, edit, exchange, incidents, markdown};
use crate::reads::decisions::{self, Asked, Decision, TimedOut, Waiting};

/// The characters of a question in the title of its page.
const TITLE_CHARS: usize = 64;
/// The characters that are shown of the request that an agent works on.
const TASK_CHARS: usize = 220;

/// Returns the path of a decision's page.
pub(super) fn path(asked: &Asked) -> String {
    match asked {
        Asked::Question(view) => format!("/questions/{}", view.id),
        Asked::Call(view) => format!("/approvals/{}", view.id),
        Asked::Latch(view) => format!("/incidents/{}", view.id),
    }
}

/// `GET /approvals/{id}`, `/questions/{id}`, `/escalations/{id}` and `/incidents/{id}`: one decision.
pub(super) async fn page(
    State(ctx): State<Context>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let decision = decisions::one(&ctx, viewer.caller, &id).await?;
    let right = path(&decision.asked);
    if viewer.here.starts_with("/approvals") != right.starts_with("/approvals") {
        return Ok(Redirect::to(&right).into_response());
    }
    let limits = limits::in_force(&ctx).await?;
    let exchange = match &decision.asked {
        Asked::Question(asked) if asked.cause == EscalationCause::NoProgress => {
            explain(&ctx, viewer.caller, &id).await?.exchange
        }
        Asked::Question(_) | Asked::Call(_) | Asked::Latch(_) => None,
    };
    let title = title(&decision);
    let next = if is_open(&decision.asked) { None } else { decisions::next(&ctx, viewer.caller).await? };
    let main = html! {
        (heading(&title, &badge(viewer.word(state_word(&decision)))))
        @if is_open(&decision.asked) {
            div.cards.one {
                @match &decision.asked {
                    Asked::Call(held) => (call::card(&viewer, &moment, &limits, &decision, held, Extent::Whole)),
                    Asked::Question(_) | Asked::Latch(_) => (card(&viewer, &moment, &limits, &decision)),
                }
            }
        } @else {
            (record(&viewer, &moment, &decision))
        }
        @if let Some(exchange) = &exchange { (exchange::table(exchange)) }
        @if let Some(next) = &next {
            // An entry of its own, so that a decision leaves the focus on it.
            div.next data-row tabindex="-1" {
                a.button.main data-open-row href=(url(&path(&next.asked))) { "Next: " (foreign_line(&self::title(next))) }
                " " (ends(next, &moment))
            }
        }
        p { a href=(url("/inbox")) { "Back to inbox" } }
    };
    let topics = [Topic::Inbox, Topic::Incidents];
    viewer.page(&ctx, &moment, Page { title: &title, place: Place::Inbox, topics: &topics, main }).await
}

/// Returns what is decided, for the heading and the window's title.
pub(super) fn title(decision: &Decision) -> String {
    match (&decision.asked, &decision.timed_out) {
        (Asked::Call(held), _) => {
            let ask = if is_one(decision, &held.agent) { "asks" } else { "ask" };
            format!("{} {ask} to call {}", escape(&askers(decision, &held.agent)), escape(&held.tool))
        }
        (Asked::Question(asked), Some(request)) => {
            format!("Timed out: {} asked {}", escape(&askers(decision, &asked.agent)), escape(&request.agent))
        }
        (Asked::Question(asked), None) => {
            format!(
                "{} asks: {}",
                escape(&asked.agent),
                escape(&shortened(&first_line(&markdown::plain(&asked.message))))
            )
        }
        (Asked::Latch(incident), _) => {
            let on = incident.reference.as_ref().unwrap_or(&incident.on);
            let is = if incident.lifted_at.is_some() { "was" } else { "is" };
            format!("{} {is} held: {}", escape(on), told_within(incident.code))
        }
    }
}

/// Returns who asks for a decision and for those alike, in one line.
pub(super) fn askers(decision: &Decision, first: &str) -> String {
    let mut names = vec![first];
    for one in &decision.alike {
        if !names.contains(&one.agent.as_str()) {
            names.push(&one.agent);
        }
    }
    match names.as_slice() {
        [one] => (*one).to_owned(),
        [one, other] => format!("{one} and {other}"),
        [one, other, third] => format!("{one}, {other} and {third}"),
        [one, other, rest @ ..] => format!("{one}, {other} and {} others", rest.len()),
        [] => String::new(),
    }
}

/// Returns whether one agent alone asks.
pub(super) fn is_one(decision: &Decision, first: &str) -> bool {
    decision.alike.iter().all(|one| one.agent == first)
}

/// Returns what a human does about a decision; whom the role doesn't let decide looks at it.
pub(super) fn verb(viewer: &Viewer, decision: &Decision) -> &'static str {
    match (&decision.asked, &decision.timed_out) {
        (Asked::Latch(_), _) if viewer.role > Role::Operator => "Look",
        _ if viewer.role > Role::Approver => "Look",
        (Asked::Call(_), _) | (Asked::Question(_), Some(_)) => "Decide",
        (Asked::Question(_), None) => "Answer",
        (Asked::Latch(_), _) => "Lift or stop",
    }
}

/// Says how many of the decisions in a list an approver doesn't make, and isn't counted as waiting for.
pub(super) fn beyond_role(viewer: &Viewer, waiting: &Waiting) -> Option<String> {
    match waiting.all.len() - waiting.count(viewer.role) {
        0 => None,
        1 => Some("1 tripped limit needs the role operator.".to_owned()),
        n => Some(format!("{n} tripped limits need the role operator.")),
    }
}

/// Returns the words that fit into a title.
pub(super) fn shortened(line: &str) -> String {
    let Some((end, _)) = line.char_indices().nth(TITLE_CHARS) else { return line.to_owned() };
    let cut = &line[..end];
    // A text without spaces is cut where it is.
    let words = cut.rfind(' ').map_or(cut, |space| &cut[..space]);
    format!("{words}…")
}

fn is_open(asked: &Asked) -> bool {
    match asked {
        Asked::Question(view) => view.state == EscalationState::Open,
        Asked::Call(view) => view.state == ApprovalState::Pending,
        Asked::Latch(view) => view.lifted_at.is_none(),
    }
}

fn state_word(decision: &Decision) -> &'static str {
    match &decision.asked {
        // No agent waits for what is done about a time-out.
        Asked::Question(view) if view.state == EscalationState::Open && decision.timed_out.is_some() => "timed out",
        Asked::Question(view) if view.state == EscalationState::Open => "waiting for you",
        Asked::Call(view) if view.state == ApprovalState::Pending => "waiting for you",
        Asked::Question(view) => escalation_word(view.state),
        Asked::Call(view) => approval_word(view.state),
        Asked::Latch(view) if view.lifted_by.is_some() => "lifted",
        Asked::Latch(view) if view.lifted_at.is_some() => "ended",
        Asked::Latch(_) => "held",
    }
}

/// Shows a pending decision with the forms that settle it.
pub(super) fn card(viewer: &Viewer, moment: &Moment, limits: &LimitsView, decision: &Decision) -> Markup {
    match (&decision.asked, &decision.timed_out) {
        (Asked::Question(asked), Some(request)) => timed_out(viewer, moment, decision, asked, request),
        (Asked::Question(asked), None) => question(viewer, moment, decision, asked),
        (Asked::Call(held), _) => call::card(viewer, moment, limits, decision, held, Extent::Folded),
        (Asked::Latch(incident), _) => incidents::card(viewer, moment, limits, incident, Some(decision)),
    }
}

/// Shows the time left until a decision is settled without a human.
pub(super) fn ends(decision: &Decision, moment: &Moment) -> Markup {
    html! { @if let Some(due) = decision.due { (countdown(due, moment.now)) } }
}

/// Shows a request that timed out: what happened, and what a human can do about it.
fn timed_out(
    viewer: &Viewer,
    moment: &Moment,
    decision: &Decision,
    asked: &EscalationView,
    request: &TimedOut,
) -> Markup {
    let id = &asked.id;
    html! {
        article.card id=(id) tabindex="-1" data-row aria-labelledby={ (id) "-title" } {
            header {
                h2 id={ (id) "-title" } { "Timed out: " b { (foreign_line(&asked.agent)) } " asked " b { (foreign_line(&request.agent)) } }
                (badge("timed_out"))
                span.grow {}
                a.faint href=(url(&path(&decision.asked))) { code { (id) } } (time(&asked.created_at, moment.now))
            }
            (chain(viewer, decision, &asked.reference))
            p { (foreign_line(&asked.message)) }
            p { a href={ (url("/messages/")) (request.message) } { q { (markdown::line(&request.subject, usize::MAX)) } } }
            (viewer.allowed(Role::Operator, "Asking again", || again(viewer, id, request)))
            (viewer.allowed(Role::Approver, "Dismissing", || {
                viewer.form(&format!("{id}-dismiss"), "/dismiss", &html! {
                    input type="hidden" name=(id) value="question";
                    button type="submit" data-key="r" { "Dismiss" } " " span.faint { "Nobody is asked, and no agent waits for it." }
                })
            }))
        }
    }
}

fn again(viewer: &Viewer, id: &str, request: &TimedOut) -> Markup {
    let to = format!("/escalations/{id}/again");
    html! {
        div.decide {
            (viewer.form(&format!("{id}-again"), &to, &html! {
                input type="hidden" name="to" value=(request.agent);
                button.main type="submit" data-key="a" { "Ask " (foreign_line(&request.agent)) " again" }
            }))
            @if !request.others.is_empty() {
                (viewer.form(&format!("{id}-other"), &to, &html! {
                    label.unseen for={ (id) "-to" } { "Another agent for " (id) }
                    select id={ (id) "-to" } name="to" required { option value="" { "another agent…" } @for name in &request.others { option value=(name) { (foreign_line(name)) } } }
                    button type="submit" { "Ask this agent" }
                }))
            }
        }
        p.faint { "Asking again is a new request in your name, with its own grant. The first requester went on without it." }
    }
}

/// Shows a settled decision: what was asked, with what could have been chosen, and how it ended.
fn record(viewer: &Viewer, moment: &Moment, decision: &Decision) -> Markup {
    match &decision.asked {
        Asked::Question(asked) => answered(viewer, moment, decision, asked),
        Asked::Call(held) => decided(viewer, moment, decision, held),
        Asked::Latch(incident) => lifted(moment, incident),
    }
}

fn answered(viewer: &Viewer, moment: &Moment, decision: &Decision, asked: &EscalationView) -> Markup {
    let chosen = |option: &String| asked.answer.as_ref() == Some(option);
    html! {
        article.card {
            h2 { b { (foreign_line(&asked.agent)) } " asked " (time(&asked.created_at, moment.now)) }
            (chain(viewer, decision, &asked.reference))
            (markdown::text(&asked.message))
            @if let Some(request) = &decision.timed_out { p { a href={ (url("/messages/")) (request.message) } { q { (markdown::line(&request.subject, usize::MAX)) } } } }
            @if !asked.options.is_empty() {
                h3 { "Offered answers" }
                ul { @for option in &asked.options { li { (foreign_line(option)) @if chosen(option) { " " (badge("chosen")) } } } }
            }
            @if let Some(limit) = &asked.limit { p { (limit) } }
            @if !asked.lifts.is_empty() {
                h3 { "Offered lifts" }
                ul { @for lift in &asked.lifts { li { (lift.text) @if lift.chosen { " " (badge("chosen")) } } } }
            }
            p {
                @match (&asked.answer, asked.state) {
                    (Some(answer), _) => { "Answer: " q { (foreign_line(answer)) } }
                    (None, EscalationState::Expired) => "No human answered in time.",
                    (None, EscalationState::Withdrawn) => "It was withdrawn: its task ended.",
                    (None, EscalationState::Open | EscalationState::Answered) => "Answered without a text.",
                }
                @if let Some(by) = &asked.answered_by { " by " b { (foreign_line(by)) } }
                @if let Some(at) = &asked.answered_at { " " (time(at, moment.now)) }
            }
        }
    }
}

fn decided(viewer: &Viewer, moment: &Moment, decision: &Decision, held: &ApprovalView) -> Markup {
    // Nobody decides on them any more.
    let shown = redacted_call(&held.arguments);
    let at = html! { @if let Some(at) = &held.decided_at { " " (time(at, moment.now)) } };
    html! {
        article.card {
            h2 { b { (foreign_line(&held.agent)) } " asked to call " code { (foreign_line(&held.tool)) } " " (time(&held.created_at, moment.now)) }
            (chain(viewer, decision, held.reference.as_deref().unwrap_or_default()))
            @match &held.requested {
                Some(requested) => {
                    h3 { "As " (foreign_line(&held.agent)) " asked" }
                    (call::arguments_of(&redacted_call(requested), Extent::Whole))
                    h3 { "What was changed" }
                    (edit::changed(&redacted_call(requested), &shown))
                    h3 { "As " (held.by.as_deref().map_or_else(|| html! { "a human" }, foreign_line)) " edited it" }
                    (call::arguments_of(&shown, Extent::Whole))
                }
                None => (call::arguments_of(&shown, Extent::Whole)),
            }
            @if let Some(reason) = &held.reason { div.reason { span.faint { (foreign_line(&held.agent)) " said why" } (foreign(reason)) } }
            p {
                @if let Some(why) = undecided(held) {
                    "The call was " @if held.state == ApprovalState::Withdrawn { "withdrawn" } @else { "denied" } ": " (why) "." (at)
                } @else {
                    "The call was " (decided_as(held)) @if let Some(by) = &held.by { " by " b { (foreign_line(by)) } } (at) "."
                    @if held.state == ApprovalState::Used { " " (foreign_line(&held.agent)) " made it" @if held.requested.is_some() { " as edited" } "." }
                    @else if held.state == ApprovalState::Approved { " " (foreign_line(&held.agent)) " hasn't made it." }
                }
                @if let Some(comment) = &held.comment { " " q { (foreign_line(comment)) } }
            }
            div.facts {
                @if let Some(policy) = &held.policy { span { "Held by the rule " code { (foreign_line(policy)) } } }
                (call::digest(held))
            }
        }
    }
}

/// Returns why a call ended without a decision. It names no human, who may be the reader.
fn undecided(held: &ApprovalView) -> Option<&'static str> {
    let why = held.undecided()?;
    Some(if held.ended == Some(EndReason::Stopped) { "its work was stopped" } else { why })
}

/// Returns the word for what was decided about a call, whether it was made since or not.
const fn decided_as(held: &ApprovalView) -> &'static str {
    // A call that was made was approved before.
    let approved = matches!(held.state, ApprovalState::Approved | ApprovalState::Used);
    match (approved, held.requested.is_some()) {
        (true, true) => "edited and approved",
        (true, false) => approval_word(ApprovalState::Approved),
        (false, _) => approval_word(held.state),
    }
}

fn lifted(moment: &Moment, incident: &IncidentView) -> Markup {
    html! { article.card { p { (incidents::line(moment, incident)) } } }
}

fn question(viewer: &Viewer, moment: &Moment, decision: &Decision, asked: &EscalationView) -> Markup {
    let id = &asked.id;
    html! {
        article.card id=(id) tabindex="-1" data-row aria-labelledby={ (id) "-title" } {
            header {
                h2 id={ (id) "-title" } { b { (foreign_line(&asked.agent)) } " asks" }
                (urgency(decision.priority))
                span.grow {}
                (ends(decision, moment))
                a.faint href=(url(&path(&decision.asked))) { code { (id) } } (time(&asked.created_at, moment.now))
            }
            (chain(viewer, decision, &asked.reference))
            (markdown::text(&asked.message))
            @match decision.due {
                Some(due) if decision.lease_until == Some(due) => div.facts { span { "Withdrawn if " (foreign_line(&asked.agent)) " isn't heard of in the time left, before " (clock(due)) "." } },
                Some(_) => div.facts { span { "If nobody answers in time, the task that asked ends." } },
                None => {}
            }
            @if asked.cause == EscalationCause::NoProgress {
                p { a href={ (url("/questions/")) (id) } { "What was said again and again" } }
            }
            (viewer.allowed(Role::Approver, "Answering a question", || answers(viewer, asked)))
        }
        (lift(viewer, asked))
    }
}

/// Shows what the broker offers for the limit that the task met, as a decision of its own: it answers no question.
fn lift(viewer: &Viewer, asked: &EscalationView) -> Markup {
    let id = &asked.id;
    let Some(limit) = asked.limit.as_ref().filter(|_| asked.offered().next().is_some()) else { return html! {} };
    html! {
        article.card id={ (id) "-lift" } tabindex="-1" data-row aria-labelledby={ (id) "-lift-title" } {
            header { h2 id={ (id) "-lift-title" } { "A limit stopped " b { (foreign_line(&asked.agent)) } } }
            p { (limit) }
            (viewer.allowed(Role::Operator, "Choosing a lift", || viewer.form(
                &format!("{id}-lift-form"),
                &format!("/escalations/{id}/answer"),
                &html! {
                    p.faint { "The lift resumes the work in " (conversation(&asked.reference)) ". It answers no question; an answer lifts no limit." }
                    div.buttons role="group" aria-label="What the broker offers" {
                        @for (n, lift) in asked.offered().enumerate() {
                            button.main[n == 0] type="submit" name="lift" value=(lift.id) data-key="l" { (lift.text) }
                        }
                    }
                },
            )))
        }
    }
}

/// Shows the possible answers: the agent's options, or a text.
fn answers(viewer: &Viewer, asked: &EscalationView) -> Markup {
    let id = &asked.id;
    viewer.form(
        &format!("{id}-form"),
        &format!("/escalations/{id}/answer"),
        &html! {
            @if !asked.options.is_empty() {
                p.faint { "Press an answer to send it, or write one." }
                div.buttons role="group" aria-label="Offered answers" {
                    @for option in &asked.options {
                        button.whole type="submit" name="option" value=(option) data-key="a" { (foreign_line(option)) }
                    }
                }
            }
            div.answer {
                label.unseen for={ (id) "-answer" } { "Your answer to " (id) }
                textarea id={ (id) "-answer" } name="answer" rows="2" placeholder="Your answer" data-key="a" {}
                button.main type="submit" aria-label={ "Answer " (id) } { "Answer" }
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

/// Shows the requests that led here, from the root on, and the text of the last one, which the agent works on.
pub(super) fn chain(viewer: &Viewer, decision: &Decision, reference: &str) -> Markup {
    html! {
        div.chain {
            p {
                @if decision.chain.is_empty() && !reference.is_empty() { "in " (conversation(reference)) }
                (links(&decision.chain, &viewer.name))
            }
            // A request that timed out is shown by its card.
            @if let Some((seq, text)) = decision.request.as_ref().filter(|_| decision.timed_out.is_none()) {
                p.task { "Its task: " a href={ (url("/messages/")) (seq) } { q { (markdown::line(text, TASK_CHARS)) } } }
            }
        }
    }
}

pub(super) fn settled(moment: &Moment, decision: &Decision) -> Markup {
    match &decision.asked {
        Asked::Question(asked) => html! {
            li {
                (badge(escalation_word(asked.state))) " " a href=(url(&path(&decision.asked))) { code { (asked.id) } } " of " b { (foreign_line(&asked.agent)) } " in " (conversation(&asked.reference))
                ": " (markdown::line(&asked.message, 100))
                @if let Some(answer) = &asked.answer { " → " q { (excerpt(answer, 100)) } }
                @if let Some(by) = &asked.answered_by { " by " (foreign_line(by)) }
                " " (settled_at(asked.answered_at.as_deref(), &asked.created_at, moment))
            }
        },
        Asked::Latch(incident) => html! { li { (incidents::line(moment, incident)) } },
        Asked::Call(held) => html! {
            li {
                (badge(approval_word(held.state))) " " a href=(url(&path(&decision.asked))) { code { (held.id) } } " " b { (foreign_line(&held.agent)) } ": " code { (foreign_line(&held.tool)) }
                @if let Some(by) = &held.by { " by " (foreign_line(by)) }
                @if let Some(comment) = &held.comment { " " q { (excerpt(comment, 100)) } }
                @if let Some(policy) = &held.policy { " " span.faint { "held by the rule " code { (foreign_line(policy)) } } }
                " " (settled_at(held.decided_at.as_deref(), &held.created_at, moment))
            }
        },
    }
}

/// Shows when something was settled, or else when it was asked.
fn settled_at(settled: Option<&str>, asked: &str, moment: &Moment) -> Markup {
    html! { @if settled.is_none() { "asked " } (time(settled.unwrap_or(asked), moment.now)) }
}

const fn escalation_word(state: EscalationState) -> &'static str {
    match state {
        EscalationState::Open => "open",
        EscalationState::Answered => "answered",
        EscalationState::Withdrawn => "withdrawn",
        EscalationState::Expired => "expired",
    }
}

pub(super) const fn approval_word(state: ApprovalState) -> &'static str {
    match state {
        ApprovalState::Pending => "pending",
        ApprovalState::Approved => "approved",
        ApprovalState::Rejected => "rejected",
        ApprovalState::Ignored => "ignored",
        ApprovalState::Expired => "expired",
        ApprovalState::Used => "approved and made",
        ApprovalState::Withdrawn => "withdrawn",
    }
}
