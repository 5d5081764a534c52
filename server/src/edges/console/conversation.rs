//! One conversation: its status, its controls, and its history in three views.

use axum::extract::{Path, Query, State};
use axum::response::Response;
use lastword_proto::Code;
use lastword_proto::fact::{Control, Role, Scope};
use lastword_proto::ids::{ConvId, HOUR_MS};
use lastword_proto::state::Running;
use lastword_proto::wire::{ConversationView, Extend, GrantView};
use maud::{Markup, html};
use serde::Deserialize;

use super::conversations::standing;
use super::forms::Form;
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, heading};
use super::live::Topic;
use super::parts::{badge, bar, conversation, done_word, encoded, foreign_line, number, plural, spent, time};
use super::session::Viewer;
use super::{decision, graph, incidents, log, now, timeline, tree, waterfall};
use crate::calls::graph as calls;
use crate::calls::history::{self, History};
use crate::calls::{Context, control, conversations, exchanges, grants};
use crate::error::ApiError;

/// The view of the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum View {
    #[default]
    Tree,
    Waterfall,
    Timeline,
    Graph,
    Log,
}

const VIEWS: [(View, &str, &str); 5] = [
    (View::Tree, "tree", "Tree"),
    (View::Waterfall, "waterfall", "Waterfall"),
    (View::Timeline, "timeline", "Timeline"),
    (View::Graph, "graph", "Graph"),
    (View::Log, "log", "Log"),
];

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ViewParams {
    #[serde(default)]
    view: View,
    /// How many times wider than the window the waterfall is.
    #[serde(default)]
    zoom: waterfall::Zoom,
}

/// `GET /conversations/{ref}`: the page of a conversation.
pub(super) async fn page(
    State(ctx): State<Context>,
    viewer: Viewer,
    Path(reference): Path<String>,
    Query(params): Query<ViewParams>,
) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let (conv, main) = detail(&ctx, &viewer, &moment, &reference, &params).await?;
    let topics = [Topic::Conversation(conv), Topic::Inbox];
    let page = Page { title: &reference, place: Place::Conversations, topics: &topics, main };
    viewer.page(&ctx, &moment, page).await
}

/// Shows a conversation, as a page or beside the list of all.
pub(super) async fn detail(
    ctx: &Context,
    viewer: &Viewer,
    moment: &Moment,
    reference: &str,
    params: &ViewParams,
) -> Result<(ConvId, Markup), ApiError> {
    let history = history::of(ctx, viewer.caller, reference).await?;
    let graph = match params.view {
        View::Graph => Some(calls::graph(ctx, viewer.caller, Some(reference)).await?),
        View::Tree | View::Waterfall | View::Timeline | View::Log => None,
    };
    let stalled = match params.view {
        View::Waterfall => exchanges::in_history(ctx, viewer.caller, &history.lines).await?,
        View::Tree | View::Timeline | View::Graph | View::Log => Vec::new(),
    };
    let main = html! {
        div.split {
        div.side {
        (heading(reference, &standing(&history.view, !history.waiting.is_empty())))
        @if !history.subject.is_empty() { p.subject { (foreign_line(&history.subject)) } }
        (facts(moment, &history))
        (waiting(moment, &history))
        (viewer.allowed(Role::Operator, "Pausing, stopping or extending a grant", || controls(viewer, &history.view)))
        }
        div.content {
        nav.views aria-label="Views" {
            @for (view, word, name) in VIEWS {
                a href={ "/conversations/" (encoded(reference)) "?view=" (word) } aria-current=[(view == params.view).then_some("page")] { (name) }
            }
        }
        @if history.cut { p.faint { "Only the latest part is shown; " code { "lastword audit" } " finds earlier messages." } }
        @match params.view {
            View::Tree => (tree::view(moment, &history)),
            View::Waterfall => (waterfall::view(moment, &history, &stalled, params.zoom)),
            View::Timeline => (timeline::view(&history)),
            View::Graph => { @if let Some(graph) = &graph { (graph::view(graph)) } },
            View::Log => (log::view(moment, &history)),
        }
        }
        }
    };
    Ok((history.conv, main))
}

fn facts(moment: &Moment, history: &History) -> Markup {
    let view = &history.view;
    let summary = &view.summary;
    let open = view.grants.iter().filter(|grant| grant.open).count();
    html! {
        p.facts {
            @if let Some(parent) = &summary.parent_ref { span { "opened from " (conversation(parent)) } }
            span { "opened by " (foreign_line(&summary.opener)) " " (time(&summary.opened_at, moment.now)) }
            span { "with " (foreign_line(&view.participants.join(", "))) }
            span { (plural(history.messages, "message", "messages"))
                @if history.messages > summary.counters.messages { ", child conversations included" } }
            span { (plural(history.open_tasks, "open request", "open requests")) }
            @if history.spent.tokens > 0 { span { (spent(history.spent.tokens, history.spent.estimated, history.spent.cost_microusd)) } }
            span { "last message " (time(&summary.last_at, moment.now)) }
        }
        div.bars {
            @for distance in &view.limits { (bar(distance)) }
        }
        @match view.grants.as_slice() {
            [] => {}
            [only] => (grant(moment, only)),
            many => details #grants.fold {
                summary { (plural(many.len() as u64, "grant", "grants")) ", " (open) " open"
                    @if many.iter().any(|grant| grant.latched.is_some()) { " " (badge("held")) } }
                @for granted in many { (grant(moment, granted)) }
            },
        }
        @if !view.grants.is_empty() { p.faint { "A grant counts all the work it causes, in every conversation." } }
    }
}

/// Shows the decisions that hold up its work, each with the link to its page.
fn waiting(moment: &Moment, history: &History) -> Markup {
    html! {
        @if !history.waiting.is_empty() {
            section.card.waits aria-label="Waiting for you" {
                ul.lines {
                    @for decision in &history.waiting {
                        li data-row tabindex="-1" {
                            (badge("waiting for you")) " " (now::sentence(decision)) " " (decision::ends(decision, moment)) " "
                            a.step data-open-row href=(decision::path(&decision.asked)) { (decision.asked.id()) }
                        }
                    }
                }
            }
        }
    }
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
                @if grant.open {
                    span { "ends " (time(&grant.expires_at, moment.now)) }
                    span { "can still cause up to " (number(grant.can_still_cause)) " messages" }
                }
                @if let Some(incident) = &grant.latched {
                    span { "held by " a href={ "/incidents#" (incident) } { code { (incident) } } }
                }
            }
            div.bars { @for distance in &grant.limits { (bar(distance)) } }
        }
    }
}

fn controls(viewer: &Viewer, view: &ConversationView) -> Markup {
    let open = view.grants.iter().filter(|grant| grant.open);
    let reference = &view.summary.reference;
    let to = |verb: &str| format!("/conversations/{}/{verb}", encoded(reference));
    let button = |verb: &str, name: &str, question: &str| {
        let class = if verb == "stop" { "danger" } else { "" };
        viewer.confirmed(
            &format!("do-{verb}"),
            &to(verb),
            question,
            &html! { button type="submit" class=(class) { (name) } },
        )
    };
    html! {
        div.controls {
            @match view.summary.state {
                Running::Active => {
                    (button("pause", "Pause", &format!("Pause {reference}? Nothing new is delivered in it until it is resumed.")))
                    (button("stop", "Stop", &format!("Stop {reference}? Its open requests are cancelled, and their requesters are notified.")))
                    @if view.summary.latched {
                        (button("resume", "Lift", &format!("Lift the hold on {reference}? {}", incidents::EFFECT)))
                    }
                }
                Running::Paused | Running::Stopped => {
                    (button("resume", "Resume", &format!("Resume {reference}?")))
                }
            }
            @if open.clone().next().is_some() {
                details #more {
                    summary { "Extend a grant" }
                    (viewer.form("do-grant", &to("grant"), &html! {
                        @if let [_, _, ..] = open.clone().collect::<Vec<_>>().as_slice() {
                            label { span { "To" } select name="grant" {
                                @for grant in open {
                                    option value=(grant.id) selected[grant.latched.is_some()] { (grant.id) " of " (foreign_line(&grant.giver)) @if grant.latched.is_some() { ", held" } }
                                }
                                option value="" { "every open grant" }
                            } }
                        }
                        (amounts(|_| None))
                        button type="submit" { "Extend" }
                    }))
                }
            }
        }
    }
}

/// Shows the fields for the amounts of an extension, with the offered ones filled in.
pub(super) fn amounts(offered: impl Fn(&str) -> Option<u64>) -> Markup {
    const FIELDS: [(&str, &str); 5] =
        [("messages", "Messages"), ("turns", "Turns"), ("agents", "Agents"), ("tokens", "Tokens"), ("hours", "Hours")];
    html! {
        div.fields {
            @for (name, label) in FIELDS {
                label { span { (label) } input type="number" name=(name) min="0" inputmode="numeric" placeholder="0" value=[offered(name)]; }
            }
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
    let words = if verb == "grant" {
        grants::extend(&ctx, viewer.caller, conv, more(&fields)?).await?;
        html! { "Extended the grant of " (foreign_line(&reference)) "." }
    } else {
        let control = Control::from_word(&verb).ok_or_else(|| ApiError::unknown(&verb))?;
        control::control(&ctx, viewer.caller, Scope::Conversation(conv), control).await?;
        html! { (foreign_line(&reference)) " is " (done_word(control)) "." }
    };
    Ok(viewer.done(
        &words,
        &format!("/conversations/{}", encoded(&reference)),
        &[Topic::Conversation(conv), Topic::Incidents, Topic::Inbox],
    ))
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
        ..Extend::default()
    };
    let amounts = [more.messages, more.turns, more.agents, more.tokens, more.time_ms];
    if amounts.iter().all(|amount| *amount == 0) {
        return Err(ApiError::new(
            Code::Malformed,
            "Enter at least one amount: messages, turns, agents, tokens or hours",
        ));
    }
    Ok(more)
}
