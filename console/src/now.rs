//! The front page: what waits for you, what runs, what went wrong, and what today cost.

use std::collections::BTreeSet;

use axum::extract::{Query, State};
use axum::response::Response;
use lastword_facts::fact::{EndReason, Role};
use lastword_facts::ids::EscalationId;
use lastword_facts::{AnswerStatus, Code, Seq, Time};
use lastword_server::Context;
use lastword_server::calls::limits;
use lastword_store::SpentIn;
use lastword_wire::{LimitsView, rfc3339};
use maud::{Markup, html};
use serde::Deserialize;

use super::agents::name_link;
use super::conversations::{work_badge, work_word};
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, heading};
use super::live::Topic;
use super::parts::{
    bar, capital, clock, conversation, countdown, encoded, excerpt, foreign_line, is_near, money, number, or_you,
    plural, spent, time, tokens, url,
};
use super::session::Viewer;
use super::terms::told_within;
use super::{call, decision, incidents, markdown, parts};
use crate::reads::decisions::{Asked, Decision};
use crate::reads::history::add_up;
use crate::reads::now::{self, EndedRequest, Listing, Now, RunningWork, Today, Wrong};
use crate::reads::work_state::WorkState;

/// The most decisions in the list; the inbox has all.
const WAITING_MAX: usize = 8;
/// The most agents in the list of spenders.
const SPENDERS_MAX: usize = 5;
/// The characters that are shown of a text.
const EXCERPT_CHARS: usize = 110;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NowParams {
    #[serde(default)]
    wrong: Listing,
}

/// `GET /`: the state of the workspace at a glance; `GET /?wrong=all`: the same with all that went wrong.
pub(super) async fn page(
    State(ctx): State<Context>,
    viewer: Viewer,
    Query(params): Query<NowParams>,
) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let now = now::now(&ctx, viewer.caller, params.wrong).await?;
    let limits = limits::in_force(&ctx).await?;
    let main = html! {
        (heading("Now", &html! { span.faint { (clock(moment.now)) } }))
        (tiles(&viewer, &moment, &now))
        div.columns {
            div {
                (waiting(&viewer, &moment, &limits, &now))
                (work(&viewer, &moment, &now))
            }
            div {
                (wrong(&viewer, &moment, &now))
                (today(&now.today))
            }
        }
    };
    let topics = [Topic::Inbox, Topic::Conversations, Topic::Agents, Topic::Incidents];
    viewer.page(&ctx, &moment, Page { title: "Now", place: Place::Now, topics: &topics, main }).await
}

fn tiles(viewer: &Viewer, moment: &Moment, now: &Now) -> Markup {
    let waiting = &now.waiting;
    html! {
        div.tiles {
            a.tile.warn[!waiting.all.is_empty()] href="#waits" {
                span { (capital(viewer.waiting())) } b { (number(waiting.count(viewer.role) as u64)) }
                span.faint { @if waiting.count(viewer.role) == 1 { "decision, " } @else { "decisions, " } @match waiting.due { Some(due) => { "the next to expire: " (countdown(due, moment.now)) }, None => "none expires" } }
            }
            a.tile href="#runs" {
                span { "Open work" } b { (number(now.states.values().sum())) }
                span.faint { (open_work(viewer, now)) }
            }
            a.tile.bad[!now.wrong.is_empty()] href="#wrong" {
                span { "Went wrong" } b { (number(now.wrong_all as u64)) } span.faint { "requests without a result, and agents that can't work" }
            }
            a.tile href="#cost" {
                (cost(&now.today))
            }
        }
    }
}

/// Shows what today cost; without a reported price the tokens alone, because $0 would read as free.
fn cost(today: &Today) -> Markup {
    let SpentIn { tokens, cost_microusd, estimated } = today.sum;
    let about = html! { @if estimated { (parts::about()) } };
    html! {
        @if cost_microusd > 0 {
            span { "Cost today" } b { (money(cost_microusd)) }
            span.faint { (about) (self::tokens(tokens)) " tokens" }
        } @else {
            span { "Tokens today" } b { (about) (self::tokens(tokens)) }
            span.faint { @if estimated { "in part estimated, " } @if tokens > 0 { "no price reported" } @else { "nothing spent" } }
        }
    }
}

/// Says what the number of the tile counts: what each piece of work does, in numbers that add up to it.
fn open_work(viewer: &Viewer, now: &Now) -> String {
    let parts: Vec<String> =
        now.states.iter().map(|(state, count)| format!("{count} {}", work_word(viewer.waiting(), *state))).collect();
    match now.states.values().sum() {
        0 => "no piece of work".to_owned(),
        1 => format!("piece of work: {}", parts.concat()),
        _ => format!("pieces of work: {}", parts.join(", ")),
    }
}

fn waiting(viewer: &Viewer, moment: &Moment, limits: &LimitsView, now: &Now) -> Markup {
    let more = now.waiting.beyond(WAITING_MAX);
    html! {
        section.card #waits aria-labelledby="waits-title" {
            header { h2 #waits-title { (capital(viewer.waiting())) } span.grow {} a href=(url("/inbox")) { "Inbox" } }
            @if now.waiting.all.is_empty() { p.faint { "No decision is pending." } }
            ul.lines { @for decision in now.waiting.first.iter().take(WAITING_MAX) { (waits(viewer, moment, limits, decision)) } }
            @if !more.is_empty() { p { a href=(url("/inbox")) { "and " (more) } } }
            @if let Some(words) = decision::beyond_role(viewer, &now.waiting) { p.faint { (words) } }
            @if now.unread > 0 { p.faint { a href=(url("/inbox#unread")) { (plural(now.unread as u64, "unread message", "unread messages")) " for you" } } }
        }
    }
}

/// Shows one decision on a line, with the button that leads to its page. Nothing is decided here, because the whole of
/// it isn't shown here.
fn waits(viewer: &Viewer, moment: &Moment, limits: &LimitsView, decision: &Decision) -> Markup {
    let verb = decision::verb(viewer, decision);
    let id = decision.asked.id();
    html! {
        li.wait data-row tabindex="-1" id={ "now-" (id) } {
            span.what {
                (alarmed(decision, ""))
                @if let Asked::Latch(incident) = &decision.asked { " " span.faint { (incidents::offer(limits, incident)) } }
            }
            span.when {
                @match decision.due {
                    Some(due) => (countdown(due, moment.now)),
                    None => span.faint { "no expiry" },
                }
            }
            a.button data-open-row href=(url(&decision::path(&decision.asked))) aria-label={ (verb) " " (id) } { (verb) }
        }
    }
}

/// Returns why something is held, and what waits for the lift.
fn is_held(code: Code, requests: u64) -> String {
    let waits = match requests {
        0 => String::new(),
        n => format!(" {} for the lift.", plural(n, "request waits", "requests wait")),
    };
    format!(" is held: {}.{waits}", told_within(code))
}

/// Returns what sets a decision apart, what it is about, and how many are alike. The conversation on whose page it stands
/// isn't named.
pub(super) fn alarmed(decision: &Decision, here: &str) -> Markup {
    html! {
        @if let Some(risk) = &decision.risk { (call::alarms(risk)) }
        (sentence(decision, here))
        @if !decision.alike.is_empty() { " " b { "× " (decision.alike.len() + 1) } }
    }
}

/// Returns what a decision is about, in one sentence.
fn sentence(decision: &Decision, here: &str) -> Markup {
    let within = |reference: &str| html! { @if reference != here { " " span { "in " (conversation(reference)) } } };
    match &decision.asked {
        Asked::Call(held) => html! {
            span { b { (foreign_line(&decision::askers(decision, &held.agent))) } @if decision::is_one(decision, &held.agent) { " asks" } @else { " ask" } " to call " b { (foreign_line(&held.tool)) } ":" }
            " " code { (excerpt(&call::gist(&held.arguments, EXCERPT_CHARS), EXCERPT_CHARS)) }
            @if let Some(reference) = &held.reference { (within(reference)) }
        },
        Asked::Question(asked) => html! {
            @match &decision.timed_out {
                Some(request) => { span { (foreign_line(&asked.message)) } " " q { (markdown::line(&request.subject, EXCERPT_CHARS)) } }
                None => { span { b { (foreign_line(&asked.agent)) } " asks:" } " " q { (markdown::line(&asked.message, EXCERPT_CHARS)) } }
            }
            (within(&asked.reference))
        },
        Asked::Latch(incident) => html! {
            @match &incident.reference {
                Some(reference) => (conversation(reference)),
                None => b { (foreign_line(&incident.on)) },
            }
            (is_held(incident.code, incident.parked.len() as u64))
        },
    }
}

fn work(viewer: &Viewer, moment: &Moment, now: &Now) -> Markup {
    html! {
        section.card #runs aria-labelledby="runs-title" {
            header { h2 #runs-title { "Open work" } span.grow {} a href=(url("/conversations")) { "Work" } }
            @if now.running.is_empty() { p.faint { "No work is open." @if viewer.role <= Role::Operator { " " a href=(url("/compose")) { "Ask an agent" } } } }
            ul.lines { @for work in &now.running { (runs(viewer, moment, work)) } }
            @if now.running_more > 0 { p.faint { "and " (now.running_more) " more" } }
            @if !(now.paused.is_empty() && now.paused_work.is_empty()) {
                div #paused-by-humans {
                    p { "Paused or stopped by a human:" }
                    ul.lines {
                        @for name in &now.paused { li.steps { (name_link(name)) (resume(viewer, "agents", name)) } }
                        @for reference in &now.paused_work { li.steps { (conversation(reference)) (resume(viewer, "conversations", reference)) } }
                    }
                }
            }
        }
    }
}

/// Shows the button that lets a paused or stopped agent or conversation go on.
fn resume(viewer: &Viewer, of: &str, name: &str) -> Markup {
    html! {
        @if viewer.role <= Role::Operator {
            (viewer.form(&format!("resume-{of}-{}", encoded(name)), &format!("/{of}/{}/resume", encoded(name)), &html! {
                button.quiet type="submit" aria-label={ "Resume " (name) } { "Resume" }
            }))
        }
    }
}

fn runs(viewer: &Viewer, moment: &Moment, work: &RunningWork) -> Markup {
    html! {
        li.work data-row tabindex="-1" {
            p.strong { (conversation(&work.reference)) " " (markdown::line(&work.subject, usize::MAX)) }
            p {
                (work_badge(viewer.waiting(), work.state)) " "
                (who(viewer, work))
                span.faint { "requested by " (or_you(&work.giver, &viewer.name)) " " (time(&rfc3339(work.since), moment.now)) " · " (spent(work.tokens, work.estimated, work.cost_microusd)) }
            }
            @if let Some(nearest) = work.nearest.as_ref().filter(|nearest| is_near(nearest)) { (bar(nearest)) }
        }
    }
}

/// Names the agents behind what the work does.
fn who(viewer: &Viewer, work: &RunningWork) -> Markup {
    let names = |names: &[String]| {
        html! { @for (index, name) in names.iter().enumerate() { @if index > 0 { ", " } (name_link(name)) } }
    };
    let [one_waits, many_wait] = [" is ", " are "].map(|is| format!("{is}{}", viewer.waiting()));
    let has = |agents: &[String], one: &str, many: &str| {
        html! { @if !agents.is_empty() { (names(agents)) @if agents.len() == 1 { (one) } @else { (many) } " · " } }
    };
    match work.state {
        // What is held or paused lets an open turn end, and nothing follows it.
        WorkState::Controlled(_) => {
            let open: BTreeSet<&String> = work.asking.iter().chain(&work.working).collect();
            let open: Vec<String> = open.into_iter().cloned().collect();
            html! { (has(&open, " has an open turn", " have open turns")) (has(&work.queued, " has it queued", " have it queued")) }
        }
        WorkState::Held => html! {
            (has(&work.asking, &one_waits, &many_wait)) (has(&work.working, " has an open turn", " have open turns"))
            (has(&work.queued, " has it queued", " have it queued"))
        },
        WorkState::WaitsForHuman => {
            html! { (has(&work.asking, "", "")) (has(&work.working, " is working", " are working")) }
        }
        WorkState::Working => has(&work.working, "", ""),
        WorkState::Gone => has(&work.gone, "", ""),
        WorkState::Queued => html! { "for " (has(&work.queued, "", "")) },
        WorkState::WaitsForAnswers => html! {},
    }
}

fn wrong(viewer: &Viewer, moment: &Moment, now: &Now) -> Markup {
    let shown: usize = now.wrong.iter().map(|one| 1 + alike(one).len()).sum();
    let more = now.wrong_all.saturating_sub(shown);
    html! {
        section.card #wrong aria-labelledby="wrong-title" {
            header { h2 #wrong-title { "Went wrong" } }
            @if now.wrong.is_empty() { p.faint { "Nothing that ended without a result waits to be dismissed." } }
            ul.lines { @for one in &now.wrong { li.mishap data-row tabindex="-1" { (happened(viewer, moment, one)) } } }
            @if more > 0 { p { a href=(url("/?wrong=all#wrong")) { "and " (number(more as u64)) " more" } } }
            @if viewer.role <= Role::Approver { (dismissals(viewer, &now.wrong)) }
            @if now.refused > 0 { p.faint { "Rules refused " a href=(url("/limits#refused")) { (plural(now.refused, "message", "messages")) } "; the agents were told why." } }
        }
    }
}

/// Returns the other requests that a line is about.
fn alike(wrong: &Wrong) -> &[EndedRequest] {
    match wrong {
        Wrong::Ended { alike, .. } => alike,
        Wrong::Away { .. } | Wrong::Rests { .. } => &[],
    }
}

/// Shows the requests to which an agent stopped responding, or which ended with the same reason, on one line that unfolds.
fn together(viewer: &Viewer, moment: &Moment, wrong: &Wrong) -> Markup {
    let Wrong::Ended { agent, reference, subject, status, reason, at, request, id, question, alike, .. } = wrong else {
        return html! {};
    };
    let agents: BTreeSet<&str> = alike.iter().map(|one| one.agent.as_str()).chain([agent.as_str()]).collect();
    let line = |agent: &str, subject: &str, reference: &str, at: Time, request: Seq| {
        html! {
            @if agents.len() > 1 { (name_link(agent)) " " }
            @if !subject.is_empty() { q { (markdown::line(subject, EXCERPT_CHARS)) } " " }
            "in " (conversation(reference)) " " (time(&rfc3339(at), moment.now)) " "
            (ask_again(viewer, agent, reference, request))
        }
    };
    html! {
        details id={ "away-" (request) } {
            summary {
                @if let Some(why) = reason {
                    b { (plural(alike.len() as u64 + 1, "request", "requests")) " " (ended_as(*status)) } ": " (markdown::line(why, EXCERPT_CHARS))
                } @else if agents.len() > 1 {
                    b { (agents.len()) " agents stopped responding at once" } ": " (foreign_line(&agents.iter().copied().collect::<Vec<_>>().join(", ")))
                    " · " (plural(alike.len() as u64 + 1, "request", "requests"))
                } @else {
                    b { (foreign_line(agent)) " stopped responding · " (alike.len() + 1) }
                }
                " " (time(&rfc3339(*at), moment.now))
            }
            ul.lines {
                li { (line(agent, subject, reference, *at, *request)) }
                @for one in alike { li { (line(&one.agent, one.subject.as_deref().unwrap_or_default(), &one.reference, one.at, one.request)) } }
            }
        }
        div.steps {
            @if agents.len() == 1 { a.step data-open-row href={ (url("/agents/")) (encoded(agent)) } { "Look at the agent" } }
            @if viewer.role <= Role::Approver {
                (viewer.form(&format!("dismiss-{request}"), "/dismiss", &html! {
                    (dismissed(id, *question))
                    @for one in alike { (dismissed(&one.id, one.question)) }
                    button.quiet type="submit" aria-label={ "Dismiss the " (alike.len() + 1) " of " (agents.iter().copied().collect::<Vec<_>>().join(", ")) } { "Dismiss" }
                }))
            }
        }
    }
}

/// Leads to the form that asks once more, or to the request for whom may not.
fn ask_again(viewer: &Viewer, agent: &str, reference: &str, request: Seq) -> Markup {
    html! {
        @if viewer.role <= Role::Operator {
            a.step data-open-row href={ (url("/compose?to=")) (encoded(agent)) "&reference=" (encoded(reference)) "&again=" (request) } { "Ask again" }
        } @else {
            a.step data-open-row href={ (url("/messages/")) (request) } { "Show the request" }
        }
    }
}

/// Shows what happened in one sentence, and one step that mends it.
fn happened(viewer: &Viewer, moment: &Moment, wrong: &Wrong) -> Markup {
    match wrong {
        Wrong::Ended { alike, .. } if !alike.is_empty() => together(viewer, moment, wrong),
        Wrong::Ended {
            agent,
            reference,
            subject,
            status,
            cause,
            taken,
            answer,
            reason,
            at,
            request,
            id,
            question,
            call,
            ..
        } => html! {
            p {
                (name_link(agent)) " " (failed(*status, *cause, *taken)) " " q { (markdown::line(subject, EXCERPT_CHARS)) } " in " (conversation(reference))
                @if !answer.is_empty() { ": " (markdown::line(answer, EXCERPT_CHARS)) }
                " " (time(&rfc3339(*at), moment.now))
                @if let Some((approval, made)) = call {
                    ". Its approved call " a.id href={ (url("/approvals/")) (approval) } { (approval) } @if *made { " was made." } @else { " was not made." }
                }
            }
            @if let Some(why) = reason { (parts::reason(&request.to_string(), why)) }
            div.steps {
                (ask_again(viewer, agent, reference, *request))
                @if viewer.role <= Role::Approver {
                    (viewer.form(&format!("dismiss-{request}"), "/dismiss", &html! {
                        (dismissed(id, *question))
                        button.quiet type="submit" aria-label={ "Dismiss " (request) } { "Dismiss" }
                    }))
                }
            }
        },
        Wrong::Away { agent, unavailable, queued } => html! {
            p {
                (name_link(agent))
                @if let Some(reason) = unavailable { " can't work: " (foreign_line(reason)) "; " } @else { " is not connected, and " }  (plural(*queued, "request is", "requests are")) " queued for it."
            }
            div.steps { a.step data-open-row href={ (url("/agents/")) (encoded(agent)) } { "Look at the agent" } }
        },
        Wrong::Rests { agent, until } => html! {
            p { (name_link(agent)) " has used up today's budget and starts no work before " (clock(*until)) "." }
            div.steps { a.step data-open-row href={ (url("/agents/")) (encoded(agent)) "#more-today" } { @if viewer.role <= Role::Owner { "Extend today's budget" } @else { "Look at the agent" } } }
        },
    }
}

/// Shows the button that dismisses all requests in the list.
fn dismissals(viewer: &Viewer, wrong: &[Wrong]) -> Markup {
    let ended = wrong.iter().filter_map(|one| match one {
        Wrong::Ended { id, question, alike, .. } => {
            Some(std::iter::once((id, *question)).chain(alike.iter().map(|one| (&one.id, one.question))))
        }
        Wrong::Away { .. } | Wrong::Rests { .. } => None,
    });
    let ended: Vec<Markup> = ended.flatten().map(|(id, question)| dismissed(id, question)).collect();
    let lines = wrong.iter().filter(|one| matches!(one, Wrong::Ended { .. })).count();
    let asked = format!("Dismiss the {} requests in this list? No agent is told.", ended.len());
    html! {
        @if lines > 1 {
            (viewer.asked("dismiss-all", "/dismiss", &asked, &html! {
                @for one in &ended { (one) }
                button.quiet type="submit" { "Dismiss these " (ended.len()) }
            }))
        }
    }
}

/// Names what a form dismisses: the question about a request, or the request.
fn dismissed(id: &str, question: Option<EscalationId>) -> Markup {
    html! {
        @match question {
            Some(question) => input type="hidden" name=(question) value="question";,
            None => input type="hidden" name=(id) value="request";,
        }
    }
}

/// Says how requests ended that have a reason in common.
const fn ended_as(status: AnswerStatus) -> &'static str {
    match status {
        AnswerStatus::Rejected => "were declined",
        AnswerStatus::Cancelled => "were cancelled",
        AnswerStatus::TimedOut => "timed out",
        AnswerStatus::Completed | AnswerStatus::Partial | AnswerStatus::Failed | AnswerStatus::Exhausted => "failed",
    }
}

const fn failed(status: AnswerStatus, cause: EndReason, taken: bool) -> &'static str {
    match (status, cause) {
        (_, EndReason::NotAcknowledged) if !taken => "never took",
        (_, EndReason::NotAcknowledged | EndReason::LeaseLost) => "stopped responding while it worked on",
        (_, EndReason::Deadline) => "missed the deadline of",
        (_, EndReason::GrantExpired) => "ran out of the grant's time on",
        (_, EndReason::Unanswered) => "got no answer from a human about",
        (_, EndReason::Empty) => "ended without an answer to",
        (_, EndReason::NobodyLeft) | (AnswerStatus::Exhausted, _) => "was the last agent that could do",
        (_, EndReason::RecipientGone) => "was removed before it answered",
        (AnswerStatus::Rejected, _) => "declined",
        (_, _) => "failed at",
    }
}

fn today(today: &Today) -> Markup {
    // What the list is sorted by.
    let is_cost = today.sum.cost_microusd > 0;
    let value = |spent: &SpentIn| if is_cost { spent.cost_microusd } else { spent.tokens };
    let most = today.agents.iter().map(|(_, spent)| value(spent)).max().unwrap_or_default().max(1);
    let others = today.agents.get(SPENDERS_MAX..).unwrap_or_default();
    let rest = add_up(others.iter().map(|(_, spent)| *spent));
    let shown = |SpentIn { tokens, cost_microusd, estimated }| spent(tokens, estimated, cost_microusd);
    html! {
        section.card #cost aria-labelledby="cost-title" {
            header { h2 #cost-title { "Spent today" } span.grow {} a href=(url("/spend")) { "Spend" } }
            p { b { (shown(today.sum)) } span.faint { " since midnight UTC" } }
            @if today.sum.tokens > 0 && today.sum.cost_microusd == 0 { p.faint { "No agent reported a price, so the cost is unknown." } }
            ul.measures {
                @for (name, spent) in today.agents.iter().take(SPENDERS_MAX) {
                    li {
                        (name_link(name)) b { (shown(*spent)) }
                        progress max=(most) value=(value(spent)) aria-label={ (name) ", of the most" } {}
                    }
                }
            }
            @if !others.is_empty() { p.faint { (plural(others.len() as u64, "other agent", "other agents")) ": " (shown(rest)) } }
        }
    }
}
