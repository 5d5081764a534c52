//! One conversation: its status, its controls, and its history in its views.

use std::collections::BTreeSet;

use axum::extract::{Path, Query, State};
use axum::http::Uri;
use axum::response::{IntoResponse as _, Redirect, Response};
use lastword_broker::Live;
use lastword_core::state::Grant;
use lastword_facts::Code;
use lastword_facts::fact::{Control, Role, Scope};
use lastword_facts::ids::HOUR_MS;
use lastword_facts::status::Running;
use lastword_server::calls::{control, conversations, grants, links as shared};
use lastword_server::{ApiError, Context};
use lastword_wire::{
    ConversationStatus, ConversationView, Distance, Extend, GrantKind, GrantView, HeldBy, microusd, rfc3339,
};
use maud::{Markup, html};
use serde::Deserialize;

use super::conversations::{standing, work_badge};
use super::forms::Form;
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, heading};
use super::live::Topic;
use super::pages::{View, ViewParams};
use super::parts::{
    about, badge, bar, capital, conversation, done_word, encoded, foreign_line, money, number, plural, quantity, spent,
    time, tokens as counted, url,
};
use super::session::Viewer;
use super::{claims, decision, exchange, film, graph, incidents, links, log, markdown, now, pages, tree, waterfall};
use crate::reads::graph as calls;
use crate::reads::history::{self, History};
use crate::reads::open_requests::OpenRequest;
use crate::reads::work_state::{ConversationState, WorkState};

/// The most decisions in the list; the inbox has all.
const WAITING_MAX: usize = 4;

/// `GET /conversations/{ref}`: the page of a conversation.
pub(super) async fn page(
    State(ctx): State<Context>,
    mut viewer: Viewer,
    Path(reference): Path<String>,
    uri: Uri,
) -> Result<Response, ErrorPage> {
    if let Some(query) = uri.query().and_then(pages::moved) {
        return Ok(Redirect::permanent(&format!("/conversations/{}?{query}", encoded(&reference))).into_response());
    }
    let params = Query::<ViewParams>::try_from_uri(&uri);
    let Query(params) = params.map_err(|fault| ApiError::new(Code::Malformed, fault.body_text()))?;
    let moment = Moment::of(&ctx);
    let (history, main) = detail(&ctx, &viewer, &moment, &reference, &params).await?;
    viewer.here = params.live(&history);
    let topics = [Topic::Conversation(history.conv), Topic::Inbox];
    let page = Page { title: &reference, place: Place::Work, topics: &topics, main };
    viewer.page(&ctx, &moment, page).await
}

/// Shows a conversation, as a page or beside the list of all.
pub(super) async fn detail(
    ctx: &Context,
    viewer: &Viewer,
    moment: &Moment,
    reference: &str,
    params: &ViewParams,
) -> Result<(History, Markup), ApiError> {
    let history = history::of(ctx, viewer.caller, reference, params.asked()?).await?;
    let graph = if params.graph { Some(calls::graph(ctx, viewer.caller, Some(reference)).await?) } else { None };
    let link = shared::of(ctx, history.conv).await?;
    let stalled = match params.view {
        View::Waterfall => exchange::in_history(ctx, viewer.caller, &history.lines).await?,
        View::Tree | View::Log => Vec::new(),
    };
    let main = html! {
        div.split {
        div.side {
        (heading(reference, &html! { (standing(viewer.waiting(), &history.view, history.state)) span.grow {} (controls(viewer, &history.view)) }))
        @if !history.subject.is_empty() { p.subject { (markdown::line(&history.subject, usize::MAX)) } }
        (essentials(viewer, &history))
        (waiting(viewer, moment, &history))
        (open_work(viewer, moment, &history))
        (claims::held(&history.view.claims, reference))
        div.folds {
            (details(moment, &history)) (more_budget(viewer, &history.view))
            (links::section(viewer, moment, reference, link.as_ref()))
        }
        }
        div.content {
        div.view-bar {
            nav.views aria-label="Views" {
                @for (view, _, name) in View::ALL {
                    a href=(url(&params.to_view(&history, view))) aria-current=[(view == params.view).then_some("page")] { (name) }
                }
            }
            (params.graph_toggle(&history))
            (params.following(&history))
        }
        @if let Some(graph) = &graph { (film::offer(reference)) (graph::view(viewer, graph)) }
        (params.paging(&history, "Parts of the history"))
        div #history data-total=(history.page.total) data-left=(history.page.total - history.page.before - history.page.within) {
            @match params.view {
                View::Tree => (tree::view(moment, &history)),
                View::Waterfall => (waterfall::view(viewer, moment, &history, &stalled, params)),
                View::Log => (log::view(viewer, moment, &history)),
            }
        }
        (params.paging(&history, "Parts of the history, again"))
        }
        }
    };
    Ok((history, main))
}

/// Shows in one line what each agent does with the open work, and what was spent of its budget.
fn essentials(viewer: &Viewer, history: &History) -> Markup {
    let doing = |state: WorkState| {
        let names = history.open.iter().filter(|one| one.state == state).map(|one| one.agent.as_str());
        names.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    let waits = [" is ", " are "].map(|is| format!("{is}{}", viewer.waiting()));
    let working =
        if is_kept(history) { [" has an open turn", " have open turns"] } else { [" is working", " are working"] };
    let gone = [" isn't connected: what is open waits for it", " aren't connected: what is open waits for them"];
    let paused = [" is paused: what is open waits for it", " are paused: what is open waits for them"];
    let lines = [
        (doing(WorkState::Held), "", [" is held", " are held"]),
        (doing(WorkState::WaitsForHuman), "", [waits[0].as_str(), waits[1].as_str()]),
        (doing(WorkState::Working), "", working),
        (doing(WorkState::Queued), "queued for ", ["", ""]),
        (doing(WorkState::WaitsForAnswers), "", [" is waiting for answers", " are waiting for answers"]),
        (doing(WorkState::Controlled(Running::Paused)), "", paused),
        (doing(WorkState::Gone), "", gone),
    ];
    html! {
        p.facts {
            @for (names, before, after) in lines.iter().filter(|(names, _, _)| !names.is_empty()) {
                span { (before) b { (foreign_line(&names.join(", "))) } (after[usize::from(names.len() > 1)]) }
            }
            @if history.open_tasks == 0 { span { "no open request" } }
            // Its outcome has the same word.
            @if history.view.summary.state == Running::Stopped { span { "takes no messages until it is opened again" } }
            @if history.refused > 0 { span.bad { (number(history.refused)) " refused" } }
            (budget(history))
        }
    }
}

/// Returns whether a limit or a human keeps what is open: an open turn may end, and nothing follows it.
const fn is_kept(history: &History) -> bool {
    matches!(history.state, ConversationState::Open(WorkState::Held | WorkState::Controlled(_)))
}

/// Shows what was spent, and of which budget if one open grant alone pays for the work.
fn budget(history: &History) -> Markup {
    let open: Vec<&GrantView> = history.view.grants.iter().filter(|grant| grant.open).collect();
    let total = |name: &str| match open.as_slice() {
        [only] => only.limits.iter().find(|limit| limit.name == name && limit.limit > 0),
        _ => None,
    };
    let (tokens, cost) = (total("grant_tokens_max"), total("grant_cost_microusd_max"));
    html! {
        @if let Some(limit) = tokens {
            span { "grant: " @if limit.estimated { (about()) } (counted(limit.current)) " of " (counted(limit.limit)) " tokens"
                @if let Some(limit) = cost { ", " (money(limit.current)) " of " (money(limit.limit)) } }
        }
        @if history.spent.tokens > 0 {
            span { (spent(history.spent.tokens, history.spent.estimated, history.spent.cost_microusd)) @if tokens.is_some() { " in all" } }
        }
    }
}

/// Shows the decisions that hold up its work, each with the link to its page.
fn waiting(viewer: &Viewer, moment: &Moment, history: &History) -> Markup {
    let more = history.waiting.beyond(WAITING_MAX);
    html! {
        @if !history.waiting.all.is_empty() {
            section.card.waits aria-label=(capital(viewer.waiting())) {
                ul.lines {
                    @for decision in history.waiting.first.iter().take(WAITING_MAX) {
                        @let (verb, id) = (decision::verb(viewer, decision), decision.asked.id());
                        li.waits-line data-row tabindex="-1" {
                            span.what { (now::alarmed(decision, &history.view.summary.reference)) }
                            (decision::ends(decision, moment))
                            span.to-do { a.button data-open-row href=(url(&decision::path(&decision.asked))) aria-label={ (verb) " " (id) } { (verb) } " " span.faint.id { (id) } }
                        }
                    }
                }
                @if !more.is_empty() { p { a href=(url("/inbox")) { "and " (more) } } }
            }
        }
    }
}

/// Shows the open requests in a fold, each with the newest note on its progress; the newest of all stands outside.
fn open_work(viewer: &Viewer, moment: &Moment, history: &History) -> Markup {
    let unlisted = history.open_tasks.saturating_sub(history.open.len() as u64);
    let newest =
        history.open.iter().filter_map(|one| Some((one, one.note.as_ref()?))).max_by_key(|(_, note)| note.message);
    html! {
        @if !history.open.is_empty() {
            details #open-work.open-work {
                summary {
                    "Open work: " (plural(history.open_tasks, "request", "requests"))
                    @if let Some((one, note)) = newest {
                        " · " (foreign_line(&one.agent)) ": " span.ink { (markdown::line(&note.text, 90)) } " " (time(&rfc3339(note.at), moment.now))
                    }
                }
                ul.lines { @for one in &history.open { (open_request(viewer, moment, history, one)) } }
                @if unlisted > 0 { p.faint { "and " (number(unlisted)) " newer ones" } }
            }
        }
    }
}

fn open_request(viewer: &Viewer, moment: &Moment, history: &History, one: &OpenRequest) -> Markup {
    let is_ending = one.state == WorkState::Working && is_kept(history);
    let state = if is_ending { badge("open turn") } else { work_badge(viewer.waiting(), one.state) };
    let subject = html! { @if one.subject.is_empty() { "no text" } @else { (markdown::line(&one.subject, 90)) } };
    html! {
        li data-row tabindex="-1" {
            (state) " " b { (foreign_line(&one.agent)) } " "
            @match one.message {
                Some(message) => a.plain data-open-row href={ (url("/messages/")) (message) } { (subject) },
                None => "on its own root",
            }
            @if one.reference != history.view.summary.reference { " in " (conversation(&one.reference)) }
            span.faint { @if let Some(from) = &one.from { " from " (foreign_line(from)) } " " (time(&rfc3339(one.since), moment.now)) }
            @if let (WorkState::Gone, Some(message)) = (one.state, one.message) && viewer.role <= Role::Operator {
                " " a.step href={ (url("/compose?reference=")) (encoded(&one.reference)) "&again=" (message) } { "Ask another agent" }
            }
            @if let Some(note) = &one.note {
                p.progress-note { a.plain href={ (url("/messages/")) (note.message) } { (markdown::line(&note.text, 140)) } " " span.faint { (time(&rfc3339(note.at), moment.now)) } }
            }
        }
    }
}

/// Shows the rest in a fold: who takes part, each limit, and the grants.
fn details(moment: &Moment, history: &History) -> Markup {
    let view = &history.view;
    let summary = &view.summary;
    let open = view.grants.iter().filter(|grant| grant.open).count();
    html! {
        details #details.fold {
            summary {
                "Participants, limits" @if !view.grants.is_empty() { ", " (plural(view.grants.len() as u64, "grant", "grants")) }
                @if view.grants.len() > 1 { " (" (open) " open)" }
                @if view.grants.iter().any(|grant| grant.latched.is_some()) { " " (badge("held")) }
            }
            p.facts {
                @if let Some(parent) = &summary.parent_ref { span { "opened from " (conversation(parent)) } }
                span { "opened by " (foreign_line(&summary.opener)) " " (time(&summary.opened_at, moment.now)) }
                span { "with " (foreign_line(&history.participants.join(", "))) }
                span { "last message " (time(&summary.last_at, moment.now)) }
                span { (number(history.messages)) @if history.messages == 1 { " message" } @else { " messages" }
                    @if history.messages > summary.counters.messages { ", child conversations included" } }
            }
            (bars(&view.limits))
            @for granted in &view.grants { (grant(moment, granted)) }
            @if !view.grants.is_empty() { p.faint { "A grant counts all the work it causes, in every conversation." } }
        }
    }
}

/// Shows the limits of which something is used.
fn bars(limits: &[Distance]) -> Markup {
    let mut used = limits.iter().filter(|distance| distance.current > 0).peekable();
    html! { @if used.peek().is_some() { div.bars { @for distance in used { (bar(distance)) } } } }
}

/// Shows a grant and its totals.
fn grant(moment: &Moment, grant: &GrantView) -> Markup {
    let word = if grant.latched.is_some() {
        "held"
    } else if grant.open {
        "open"
    } else {
        "closed"
    };
    html! {
        section.grant aria-label={ "Grant " (grant.id) } {
            p.facts {
                span { "grant " code { (grant.id) } " of " (foreign_line(&grant.giver)) " " (badge(word)) }
                @if grant.kind == GrantKind::Typed { span { "typed into a session" } }
                @if grant.open {
                    span { "ends " (time(&grant.expires_at, moment.now)) }
                    @if let Some(left) = grant.messages_left() { span { (left) } }
                }
                @if let Some(incident) = &grant.latched {
                    span { "held by " a href={ (url("/incidents/")) (incident) } { code { (incident) } } }
                }
                @if let Some(trace) = &grant.trace {
                    span {
                        "trace "
                        @if let Some(outside) = &grant.trace_url {
                            a href=(outside) rel="noreferrer" { code { (trace) } }
                        } @else {
                            code { (trace) }
                        }
                    }
                }
            }
            (bars(&grant.limits))
        }
    }
}

fn controls(viewer: &Viewer, view: &ConversationView) -> Markup {
    let reference = &view.summary.reference;
    let button = |verb: &str, name: &str, question: &str| {
        let class = if verb == "stop" { "danger" } else { "" };
        viewer.asked(
            &format!("do-{verb}"),
            &format!("/conversations/{}/{verb}", encoded(reference)),
            question,
            &html! { button type="submit" class=(class) { (name) } },
        )
    };
    let pause_or_stop = || {
        html! {
            (button("pause", "Pause", &format!("Pause {reference}? Nothing new is delivered in it until it is resumed.")))
            (button("stop", "Stop", &format!("Stop {reference}? {}", incidents::STOPPED)))
        }
    };
    viewer.allowed(Role::Operator, "Pausing or stopping it", || {
        html! {
            div.controls {
                @match view.summary.state {
                    // Nothing is open, so a pause or stop is rarely meant.
                    Running::Active if view.summary.standing() == ConversationStatus::Idle => {
                        details #control { summary { "Pause or stop" } div.buttons { (pause_or_stop()) } }
                    }
                    Running::Active => {
                        (pause_or_stop())
                        @if view.summary.latched {
                            (button("resume", "Lift", &format!("Lift the hold on {reference}? {}", incidents::EFFECT)))
                        }
                    }
                    Running::Paused => (button("resume", "Resume", &format!("Resume {reference}?"))),
                    Running::Stopped => {
                        (button("resume", "Open again", &format!("Open {reference} again? It takes messages again. What was stopped stays cancelled.")))
                    }
                }
            }
        }
    })
}

/// Shows the form that extends a grant, if one is open.
fn more_budget(viewer: &Viewer, view: &ConversationView) -> Markup {
    if !view.grants.iter().any(|grant| grant.open) {
        return html! {};
    }
    viewer.allowed(Role::Operator, "Extending a grant", || extension(viewer, view))
}

fn extension(viewer: &Viewer, view: &ConversationView) -> Markup {
    let open: Vec<&GrantView> = view.grants.iter().filter(|grant| grant.open).collect();
    let to = format!("/conversations/{}/grant", encoded(&view.summary.reference));
    let only = if let [grant] = open.as_slice() { Some(*grant) } else { None };
    html! {
        details #more.fold {
            summary { "More budget" }
            (viewer.form("do-grant", &to, &html! {
                @if let [_, _, ..] = open.as_slice() {
                    label { span { "To" } select name="grant" {
                        @for grant in &open {
                            option value=(grant.id) selected[grant.latched.is_some()] { (grant.id) " of " (foreign_line(&grant.giver)) @if grant.latched.is_some() { ", held" } }
                        }
                        option value="" { "every open grant" }
                    } }
                }
                p.faint { "Each number is added to what the grant may still use. Leave empty what stays." }
                (amounts(|_| None, |name| only.and_then(|grant| at_most(grant, name))))
                button type="submit" { "Extend" }
            }))
        }
    }
}

/// Returns what a grant has used, and what it may at most, of what a field extends.
fn at_most(grant: &GrantView, name: &str) -> Option<String> {
    let limit = AMOUNTS.iter().find(|(field, ..)| *field == name)?.2;
    let known = grant.limits.iter().find(|distance| distance.name == limit)?;
    Some(format!("{} of {} used", quantity(limit, known.current), quantity(limit, known.limit)))
}

/// The amounts of an extension: the name of the field, its label, and the limit that it extends.
const AMOUNTS: [(&str, &str, &str); 6] = [
    ("messages", "Messages", "grant_messages_max"),
    ("turns", "Turns", "grant_turns_max"),
    ("agents", "Agents", "grant_agents_max"),
    ("tokens", "Tokens", "grant_tokens_max"),
    ("dollars", "Dollars", "grant_cost_microusd_max"),
    ("hours", "Hours", "grant_age_ms"),
];

/// Shows the fields for the amounts of an extension, with the offered ones filled in, and what is used of each limit.
pub(super) fn amounts(offered: impl Fn(&str) -> Option<u64>, used: impl Fn(&str) -> Option<String>) -> Markup {
    let field = |name: &str, label: &str| {
        html! {
            label { span { (label) @if let Some(used) = used(name) { ", " (used) } } input type="number" name=(name) min="0" step=[(name == "dollars").then_some("any")] inputmode=(if name == "dollars" { "decimal" } else { "numeric" }) placeholder="0" value=[offered(name)]; }
        }
    };
    let (first, others): (Vec<_>, Vec<_>) = AMOUNTS.iter().partition(|(name, ..)| offered(name).is_some());
    html! {
        @if first.is_empty() {
            div.fields { @for (name, label, _) in &others { (field(name, label)) } }
        } @else {
            div.fields { @for (name, label, _) in &first { (field(name, label)) } }
            details { summary { "Other limits as well" } div.fields { @for (name, label, _) in &others { (field(name, label)) } } }
        }
    }
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct More {
    #[serde(default)]
    grant: String,
    #[serde(default)]
    messages: String,
    #[serde(default)]
    turns: String,
    #[serde(default)]
    agents: String,
    #[serde(default)]
    tokens: String,
    #[serde(default)]
    dollars: String,
    #[serde(default)]
    hours: String,
}

/// `POST /conversations/{ref}/{verb}`: pauses, resumes or stops it, or extends its grants.
pub(super) async fn control(
    State(ctx): State<Context>,
    Path((reference, verb)): Path<(String, String)>,
    form: Form<More>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields } = form;
    let conv = conversations::find(&ctx, viewer.caller, &reference).await?;
    let next = format!("/conversations/{}", encoded(&reference));
    let topics = [Topic::Conversation(conv), Topic::Incidents, Topic::Inbox];
    let words = if verb == "grant" {
        let extended = grants::extend(&ctx, viewer.caller, conv, more(&fields)?).await?;
        if let Some(still) = extended.held_by.first() {
            return Ok(viewer.failed(&not_lifted(still), &next, &topics));
        }
        html! { "Extended the grant of " (foreign_line(&reference)) " by " (added(&fields)) "." }
    } else {
        let control = Control::from_word(&verb).ok_or_else(|| ApiError::unknown(&verb))?;
        let look = move |live: &Live<'_>| {
            let state = live.state;
            let latched = |known: &Grant| known.conv == conv && known.end.is_none() && known.latched.is_some();
            let known = state.conversations.get(&conv);
            let is_held = known.is_some_and(|known| known.latched) || state.grants.iter().any(|(_, one)| latched(one));
            (known.map(|known| known.running), is_held)
        };
        let (was, was_held) = ctx.handle.query(look).await.map_err(ApiError::from)?;
        control::control(&ctx, viewer.caller, Scope::Conversation(conv), control).await?;
        if control == Control::Resume && was_held && was == Some(Running::Active) {
            html! { "The hold on " (foreign_line(&reference)) " is lifted: its work goes on." }
        } else if control == Control::Resume && was == Some(Running::Stopped) {
            html! { (foreign_line(&reference)) " takes messages again. What was stopped stays cancelled." }
        } else {
            html! { (foreign_line(&reference)) " is " (done_word(control)) "." }
        }
    };
    Ok(viewer.done(&words, &next, &topics))
}

/// Returns the amounts of an extension, in words.
fn added(fields: &More) -> String {
    let More { messages, turns, agents, tokens, dollars, hours, .. } = fields;
    let texts = [messages, turns, agents, tokens, dollars, hours];
    let given = texts.into_iter().zip(AMOUNTS).filter(|(text, _)| !matches!(text.trim(), "" | "0"));
    let words = given.map(|(text, (name, label, _))| {
        let amount = text.trim();
        if name == "dollars" {
            return money(microusd(amount.parse().unwrap_or_default()));
        }
        let shown = amount.parse::<u64>().map_or_else(|_| amount.to_owned(), number);
        format!("{shown} {}", label.to_lowercase())
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Says that an extension doesn't lift what holds the work, and what does.
pub(super) fn not_lifted(still: &HeldBy) -> Markup {
    html! {
        "Not lifted: the amount was added, but " (foreign_line(&still.text)) ". What lifts it: " (foreign_line(&still.lift.text))
    }
}

fn dollars(text: &str) -> Result<f64, ApiError> {
    let amount = match text.trim() {
        "" => Ok(0.0),
        text => text.parse::<f64>(),
    };
    let fits = |amount: &f64| amount.is_finite() && *amount >= 0.0;
    let refused = || ApiError::new(Code::Malformed, format!("`dollars` isn't an amount such as 2.50: {text}"));
    amount.ok().filter(fits).ok_or_else(refused)
}

fn more(fields: &More) -> Result<Extend, ApiError> {
    let read = |name: &str, text: &str| match text.trim() {
        "" => Ok(0),
        text => text
            .parse::<u64>()
            .map_err(|_| ApiError::new(Code::Malformed, format!("`{name}` isn't a whole number: {text}"))),
    };
    let hours = read("hours", &fields.hours)?;
    let grant = Some(fields.grant.trim()).filter(|id| !id.is_empty()).map(str::to_owned);
    let more = Extend {
        grant,
        messages: read("messages", &fields.messages)?,
        turns: read("turns", &fields.turns)?,
        agents: read("agents", &fields.agents)?,
        tokens: read("tokens", &fields.tokens)?,
        time_ms: hours.saturating_mul(HOUR_MS),
        cost_usd: dollars(&fields.dollars)?,
        ..Extend::default()
    };
    let amounts = [more.messages, more.turns, more.agents, more.tokens, more.time_ms];
    if amounts.iter().all(|amount| *amount == 0) && microusd(more.cost_usd) == 0 {
        return Err(ApiError::new(
            Code::Malformed,
            "Enter at least one amount: messages, turns, agents, tokens, dollars or hours",
        ));
    }
    Ok(more)
}
