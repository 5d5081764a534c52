//! The list of conversations, most recently active first, with the filters in the URL's query.

use axum::extract::{Query, State};
use axum::response::Response;
use lastword_facts::MessageType;
use lastword_facts::visible::escape;
use lastword_server::Context;
use lastword_server::views::fullest;
use lastword_wire::{ConversationStatus, ConversationView, Distance, Outcome};
use maud::{Markup, html};

use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, empty, heading};
use super::live::Topic;
use super::pages::ViewParams;
use super::parts::{
    badge, bar, conversation as link, encoded, foreign_line, is_near, number, plural, running_word, spent, time, url,
};
use super::session::Viewer;
use super::{conversation, incidents, markdown};
use crate::reads::conversation_list::{self, ListParams, ListedConversation, WORK_FILTERS};
use crate::reads::work_state::{ConversationState, WorkState};

/// `GET /conversations`: the list of conversations.
pub(super) async fn page(
    State(ctx): State<Context>,
    viewer: Viewer,
    Query(params): Query<ListParams>,
) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let listed = conversation_list::list(&ctx, viewer.caller, params.clone()).await?;
    let filtered = query(&ListParams { cursor: String::new(), open: String::new(), ..params.clone() });
    let (conv, detail) = if params.open.is_empty() {
        (None, None)
    } else {
        let view = ViewParams::default();
        let (history, detail) = conversation::detail(&ctx, &viewer, &moment, &params.open, &view).await?;
        (Some(history.conv), Some(detail))
    };
    let by = filters_in_words(&viewer, &params);
    // What tripped before is no part of what a filter finds.
    let tripped = if filtered.is_empty() { Some(incidents::history(&ctx, &viewer, &moment).await?) } else { None };
    let list = html! {
        (heading("Work", &html! { p.faint { (foreign_line(&by)) } }))
        (filters(&viewer, &params, !filtered.is_empty()))
        @if listed.items.is_empty() {
            (nothing(&params, !filtered.is_empty()))
        } @else {
            p.faint {
                @if params.asks_for_messages() { "By the last message that matches." }
                @else { "First what is " (viewer.waiting()) " or held, then other open work, then the rest, each by its last activity." }
            }
            div.list role="list" {
                @for one in &listed.items { (row(&viewer, &moment, one, &params.open)) }
            }
        }
        p.paging {
            @if !params.cursor.is_empty() { a.button href={ (url("/conversations?")) (filtered) } { "Newest" } }
            @if let Some(next) = &listed.next {
                a.button href={ (url("/conversations?")) (query(&ListParams { cursor: next.clone(), open: String::new(), ..params.clone() })) } { "Older" }
            }
        }
        @if let Some(tripped) = &tripped { (tripped) }
    };
    let main = html! {
        div.beside[detail.is_some()] {
            // Where there is room, the script opens a conversation beside the list.
            div data-beside={ (url("/conversations?")) (query(&ListParams { open: String::new(), ..params.clone() })) } { (list) }
            @if let Some(detail) = &detail {
                aside aria-label=(params.open) { (detail) }
            }
        }
    };
    let topics: Vec<Topic> = [Topic::Conversations].into_iter().chain(conv.map(Topic::Conversation)).collect();
    let title = if by.is_empty() { "Work".to_owned() } else { format!("Work: {}", escape(&by)) };
    let page = Page { title: &title, place: Place::Work, topics: &topics, main };
    viewer.page(&ctx, &moment, page).await
}

fn nothing(params: &ListParams, filtered: bool) -> Markup {
    if filtered {
        let words = html! {
            @if !params.q.is_empty() {
                "The filter finds whole words of messages. "
                button type="button" data-open="palette" data-find=(params.q) { "Find “" (foreign_line(&params.q)) "”" }
                " also among the begins of words, in held calls, questions, posts and reasons of failures. "
            }
            a href=(url("/conversations")) { "Clear the filters" } " to see all conversations."
        };
        return empty("No conversation matches these filters.", &words);
    }
    empty(
        "No conversations yet.",
        &html! {
            a href=(url("/compose")) { "Ask an agent" } ", or let an agent send a request."
        },
    )
}

fn filters(viewer: &Viewer, params: &ListParams, any: bool) -> Markup {
    let text = |name: &str, label: &str, value: &str| {
        html! {
            label { span { (label) } input type="text" name=(name) value=(value) autocomplete="off" spellcheck="false"; }
        }
    };
    let is_narrow = [&params.reference, &params.from, &params.to, &params.kind].iter().any(|value| !value.is_empty());
    html! {
        form.filters method="get" action=(url("/conversations")) role="search" aria-label="Filters" data-filters {
            label.wide { span { "Words of messages" } input type="search" name="q" value=(params.q) data-search autocomplete="off"; }
            label { span { "State" } select name="state" {
                option value="" { "any" }
                @for status in ConversationStatus::ALL {
                    option value=(status.label()) selected[[status.word(), status.label()].contains(&params.state.as_str())] { (status.label()) }
                    @if status == ConversationStatus::Active {
                        @for (name, work) in WORK_FILTERS { option value=(name) selected[name == params.state] { "active: " (work_word(viewer.waiting(), work)) } }
                    }
                }
                // A stop is a status as well.
                @for outcome in Outcome::ALL.iter().filter(|outcome| **outcome != Outcome::Stopped) {
                    option value=(outcome.word()) selected[outcome.word() == params.state] { "ended: " (outcome.label()) }
                }
            } }
            button type="submit" { "Filter" }
            @if any { a href=(url("/conversations")) { "Clear" } }
            details #more-filters open[is_narrow] {
                summary { "More filters" }
                div.filters {
                    (text("ref", "REF", &params.reference))
                    (text("from", "From", &params.from))
                    (text("to", "To", &params.to))
                    label { span { "Type" } select name="type" {
                        option value="" { "any" }
                        @for kind in MessageType::ALL { option value=(kind.word()) selected[kind.word() == params.kind] { (kind.word()) } }
                    } }
                }
            }
        }
    }
}

/// Returns the filters in words, for the heading and for the name of a bookmark.
fn filters_in_words(viewer: &Viewer, params: &ListParams) -> String {
    let state = params.state.as_str();
    let status = ConversationStatus::ALL.iter().find(|status| [status.word(), status.label()].contains(&state));
    let work =
        WORK_FILTERS.into_iter().find(|(name, _)| *name == state).map(|(_, work)| work_word(viewer.waiting(), work));
    let status = status.map(|status| status.label()).or(work);
    let outcome = Outcome::ALL.iter().find(|outcome| outcome.word() == state).map(|outcome| outcome.label());
    let words = |before: &str, value: &str| (!value.is_empty()).then(|| [before, value].concat());
    let parts = [
        words("", status.or(outcome).unwrap_or_default()),
        words("with ", &params.q),
        words("from ", &params.from),
        words("to ", &params.to),
        words("below ", &params.reference),
        words("type ", &params.kind),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns the filters as a URL's query, without empty ones.
fn query(params: &ListParams) -> String {
    let pairs = [
        ("ref", &params.reference),
        ("from", &params.from),
        ("to", &params.to),
        ("type", &params.kind),
        ("state", &params.state),
        ("q", &params.q),
        ("cursor", &params.cursor),
        ("open", &params.open),
    ];
    let filled = pairs.into_iter().filter(|(_, value)| !value.trim().is_empty());
    filled.map(|(name, value)| format!("{name}={}", encoded(value))).collect::<Vec<_>>().join("&")
}

fn row(viewer: &Viewer, moment: &Moment, listed: &ListedConversation, open: &str) -> Markup {
    let (view, summary) = (&listed.view, &listed.view.summary);
    html! {
        div.row.talk.chosen[summary.reference == open] role="listitem" tabindex="-1" data-row id={ "c-" (encoded(&summary.reference)) } {
            div.what {
                (link(&summary.reference)) " " (standing(viewer.waiting(), view, listed.state))
                @if !listed.subject.is_empty() { div.subject { (markdown::line(&listed.subject, usize::MAX)) } }
            }
            div.who { (foreign_line(&view.participants.join(", "))) }
            div.counts {
                span {
                (plural(listed.messages, "message", "messages"))
                @if listed.open_tasks > 0 { " · " (number(listed.open_tasks)) " open" }
                @if listed.refused > 0 { " · " span.bad { (number(listed.refused)) " refused" } }
                }
                @if listed.spent.tokens > 0 { div { (spent(listed.spent.tokens, listed.spent.estimated, listed.spent.cost_microusd)) } }
            }
            div.limit { (nearest(listed)) }
            div.when { (time(&summary.last_at, moment.now)) }
            @if !listed.below.is_empty() {
                details.below id={ "below-" (encoded(&summary.reference)) } {
                    summary { (plural((listed.below.len() + listed.below_more) as u64, "child conversation", "child conversations")) }
                    ul { @for one in &listed.below { li { (below(viewer, moment, one)) } } }
                    @if listed.below_more > 0 { p.faint { "and " (listed.below_more) " earlier ones" } }
                }
            }
        }
    }
}

/// Shows the limit of which the largest share is used, if that is half, in the conversation or in one that is shown below it.
fn nearest(listed: &ListedConversation) -> Markup {
    // Its own comes last, because the last of equal shares is shown.
    let all = || listed.below.iter().chain(std::iter::once(listed)).map(|one| &one.view.summary);
    let near = |nearest: &&Distance| is_near(nearest);
    let nearest = fullest(all().filter_map(|summary| summary.nearest.as_ref()).filter(near));
    let of = |nearest| all().find(|summary| summary.nearest.as_ref().is_some_and(|own| std::ptr::eq(own, nearest)));
    html! {
        @if let Some(nearest) = nearest {
            (bar(nearest))
            @if let Some(summary) = of(nearest).filter(|summary| summary.reference != listed.view.summary.reference) {
                div.faint { "in " (foreign_line(&summary.reference)) }
            }
        }
    }
}

/// Shows a conversation below another on one line.
fn below(viewer: &Viewer, moment: &Moment, listed: &ListedConversation) -> Markup {
    let summary = &listed.view.summary;
    html! {
        (link(&summary.reference)) " " (standing(viewer.waiting(), &listed.view, listed.state)) " " (markdown::line(&listed.subject, usize::MAX))
        span.faint {
            " · " (plural(listed.messages, "message", "messages"))
            @if listed.refused > 0 { " · " span.bad { (number(listed.refused)) " refused" } }
            @if listed.spent.tokens > 0 { " · " (spent(listed.spent.tokens, listed.spent.estimated, listed.spent.cost_microusd)) }
            " · " (time(&summary.last_at, moment.now))
        }
    }
}

/// Shows what a conversation does, or how it ended, in one word.
pub(super) fn standing(waits: &'static str, view: &ConversationView, state: ConversationState) -> Markup {
    let user = &view.summary.waits_for_user;
    match state {
        ConversationState::Open(WorkState::Working | WorkState::WaitsForHuman) if !user.is_empty() => {
            html! { span.badge.warn title=(user.join(", ")) { "waits for its user" } }
        }
        ConversationState::Open(work) => work_badge(waits, work),
        ConversationState::Stopped => badge(ConversationStatus::Stopped.label()),
        ConversationState::Ended(outcome) => badge(outcome.map_or(ConversationStatus::Idle.label(), Outcome::word)),
    }
}

/// Returns the word for what open work does; `waits` is the one for what waits for a human.
pub(super) const fn work_word(waits: &'static str, state: WorkState) -> &'static str {
    match state {
        WorkState::Held => "held",
        WorkState::Controlled(running) => running_word(running),
        WorkState::WaitsForHuman => waits,
        WorkState::Working => "working",
        WorkState::Gone => "not connected",
        WorkState::Queued => "queued",
        WorkState::WaitsForAnswers => "waiting for answers",
    }
}

/// Shows what open work does, in one word. *Not connected* is red, because nothing goes on.
pub(super) fn work_badge(waits: &'static str, state: WorkState) -> Markup {
    let word = work_word(waits, state);
    if state == WorkState::Gone {
        html! { span.badge.bad { (word) } }
    } else {
        badge(word)
    }
}
