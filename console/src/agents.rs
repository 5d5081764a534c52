//! The agents and humans: their current work, the distance to their limits, and the controls.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::response::Response;
use lastword_facts::fact::{Control, Kind, Role, Scope};
use lastword_facts::status::Running;
use lastword_server::calls::{agents, audit, control, limits};
use lastword_server::views::{self, Activity, Member, OpenTurn, Shown, activities, fullest};
use lastword_server::{ApiError, Context};
use lastword_store::{Cursor, Filter};
use lastword_wire::{AgentView, StoredMessage, rfc3339};
use maud::{Markup, html};

use super::forms::{Form, Nothing};
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, empty, heading};
use super::live::Topic;
use super::parts::{badge, bar, clock, conversation, encoded, foreign_line, is_near, plural, spent, time, url};
use super::session::Viewer;
use super::{agent_forms, compose, parts};

/// `GET /agents`: the list of agents and humans.
pub(super) async fn page(State(ctx): State<Context>, viewer: Viewer) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let members = agents::members(&ctx, viewer.caller).await?;
    let does = ctx.handle.query(activities).await.map_err(ApiError::from)?;
    let (humans, mut agents): (Vec<_>, Vec<_>) = members.iter().partition(|member| member.view.kind == Kind::Human);
    // What a human should see is first; the others stand where they stood.
    let calm = [Activity::Working, Activity::Queued, Activity::Idle, Activity::Away];
    let trouble = |member: &&Member| Some(member.activity()).filter(|does| !calm.contains(does));
    agents.sort_by_key(|member| {
        trouble(member).unwrap_or(if member.failed > 0 { Activity::Down } else { Activity::Away })
    });
    let main = html! {
        (heading("Agents", &html! { span.faint { (plural(agents.len() as u64, "agent", "agents")) @if !agents.is_empty() { " · " (doing(&viewer, &does)) } } span.grow {} a href={ (url("/team")) "#add" } { "Add an agent" } }))
        (views(View::List))
        @if agents.is_empty() {
            (empty("No agent is registered.", &html! {
                a href={ (url("/team")) "#add" } { "Add an agent" } " and see how its program joins."
            }))
        }
        @if !agents.is_empty() {
            div.list role="list" { @for member in &agents { (row(&viewer, &moment, member)) } }
        }
        h2 { "Humans" }
        ul.lines {
            @for member in &humans {
                li {
                    (name_link(&member.view.name)) (display_name(&member.view)) " "
                    @if let Some(role) = member.view.role { (badge(role.word())) " " }
                    @if member.view.name == viewer.name { (badge("you")) } @else { (connected(member)) }
                }
            }
        }
    };
    viewer
        .page(
            &ctx,
            &moment,
            Page { title: "Agents", place: Place::Agents, topics: &[Topic::Agents, Topic::Inbox], main },
        )
        .await
}

/// Returns how many agents do what, in one line.
pub(super) fn doing(viewer: &Viewer, activities: &BTreeMap<Activity, u64>) -> String {
    const SHOWN: [Activity; 8] = [
        Activity::WaitsForHuman,
        Activity::Held,
        Activity::Rests,
        Activity::Paused,
        Activity::Stopped,
        Activity::Unable,
        Activity::Down,
        Activity::Queued,
    ];
    let count = |does| activities.get(&does).copied().unwrap_or_default();
    let mut line = match count(Activity::Working) {
        0 => "no agent is working".to_owned(),
        n => plural(n, "agent is working", "agents are working"),
    };
    for does in SHOWN.into_iter().filter(|does| count(*does) > 0) {
        // Those that merely have nothing to do aren't counted.
        let of = if does == Activity::Down { " with work queued" } else { "" };
        line.push_str(&format!(", {} {}{of}", count(does), viewer.word(does.word())));
    }
    line
}

/// The pages about agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    List,
    Graph,
    Rooms,
    Team,
}

/// Shows the links to the pages about agents.
pub(super) fn views(here: View) -> Markup {
    let all = [(View::List, "/agents", "List"), (View::Graph, "/graph", "Graph"), (View::Rooms, "/rooms", "Rooms")];
    // The menu leads to it.
    if here == View::Team {
        return html! {};
    }
    html! {
        nav.views aria-label="Views" {
            @for (view, path, name) in all {
                a href=(url(path)) aria-current=[(view == here).then_some("page")] { (name) }
            }
        }
    }
}

/// Returns a link to the page of an agent or human.
pub(super) fn name_link(name: &str) -> Markup {
    html! { a href={ (url("/agents/")) (encoded(name)) } { (foreign_line(name)) } }
}

/// Shows the display name behind the name.
fn display_name(view: &AgentView) -> Markup {
    html! { @if let Some(name) = &view.display_name { " " span.faint { (foreign_line(name)) } } }
}

fn row(viewer: &Viewer, moment: &Moment, member: &Member) -> Markup {
    let view = &member.view;
    html! {
        div.row.agent role="listitem" tabindex="-1" data-row id={ "a-" (encoded(&view.name)) } {
            div.what { b { (name_link(&view.name)) } (display_name(view)) " " (connected(member)) }
            div.who {
                div { (state(viewer, member)) (polled(moment, member)) (waits(member)) }
                (rests(member))
                // What is held is named already.
                @for turn in member.turns.iter().filter(|turn| !member.held.contains(&turn.reference)) { div { (works_on(moment, turn)) } }
            }
            div.counts {
                @if view.tokens_today > 0 { div { (spent_today(member)) } }
                @if view.queued > 0 { div { (plural(view.queued, "request queued", "requests queued")) } }
                @if view.notices > 0 { div { (plural(view.notices, "notice", "notices")) } }
            }
            div.limit {
                @if member.failed > 0 { div.counts { a.bad href=(url("/?wrong=all#wrong")) { (member.failed) " went wrong" } } }
                @if let Some(nearest) = fullest(view.windows.iter().chain(&member.day)).filter(|nearest| is_near(nearest)) { (bar(nearest)) } }
        }
    }
}

fn spent_today(member: &Member) -> Markup {
    html! { (spent(member.view.tokens_today, member.view.tokens_estimated, member.view.cost_today_microusd)) " today" }
}

/// Shows what a human decides for an agent: its held calls and questions, and the conversations that a limit holds.
fn waits(member: &Member) -> Markup {
    let (is_held, mut sign) = (member.activity() == Activity::Held, " · ");
    html! {
        @for id in &member.asks {
            " " a.id href={ (url(if id.starts_with("apr") { "/approvals/" } else { "/questions/" })) (id) } { (id) }
        }
        @for reference in &member.held {
            @if is_held { " in " (conversation(reference)) }
            @else { (std::mem::replace(&mut sign, ", ")) (conversation(reference)) " is held" }
        }
    }
}

/// Shows what an agent does, in one word for each state on every page. What keeps requests waiting is red.
fn state(viewer: &Viewer, member: &Member) -> Markup {
    let word = viewer.word(member.activity().word());
    if matches!(member.activity(), Activity::Unable | Activity::Down) {
        html! { span.badge.bad { (word) } }
    } else {
        badge(word)
    }
}

/// Shows how long ago an agent that polls asked for work, while some waits for it.
fn polled(moment: &Moment, member: &Member) -> Markup {
    html! {
        @if let (Activity::Queued, Some(at)) = (member.activity(), member.polled_at) {
            " " span.faint { "last asked for work " (time(&rfc3339(at), moment.now)) }
        }
    }
}

/// Shows when an agent whose day budget is used up works again, and what a human can do before.
fn rests(member: &Member) -> Markup {
    html! {
        @if let Some(until) = member.rests_until {
            div { "Works again at " (clock(until)) ", or once you " a href={ (url("/agents/")) (encoded(&member.view.name)) "#more-today" } { "extend today's budget" } }
        }
    }
}

fn works_on(moment: &Moment, turn: &OpenTurn) -> Markup {
    html! {
        (conversation(&turn.reference)) " " (time(&turn.opened_at, moment.now))
        @if turn.attempt > 1 { " " span.faint { "attempt " (turn.attempt) } }
    }
}

/// Shows whether it is connected, where its activity doesn't say so.
fn connected(member: &Member) -> Markup {
    match (member.view.connected, member.view.kind) {
        (_, Kind::Agent) if let Some(reason) = &member.view.unavailable => {
            html! { span.faint { (foreign_line(reason)) } }
        }
        (_, Kind::Agent) if member.view.waits_for_user => html! { span.badge.warn { "waits for its user" } },
        (true, Kind::Human) => badge("connected"),
        (_, Kind::Agent) if member.view.clients > 1 => html! {
            span.badge.plain { (plural(member.view.clients, "client", "clients")) }
        },
        // A poll that hands over a request ends, so an agent that works may have no connection.
        (_, Kind::Agent) => html! {},
        (false, Kind::Human) => html! { span.badge.plain { "not connected" } },
    }
}

/// `GET /agents/{name}`: the page of an agent or human.
pub(super) async fn one(
    State(ctx): State<Context>,
    viewer: Viewer,
    Path(name): Path<String>,
) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let member = agents::member(&ctx, viewer.caller, &name).await?;
    let view = &member.view;
    let agent = view.kind == Kind::Agent;
    let limits = limits::in_force(&ctx).await?;
    let is_gone = matches!(member.activity(), Activity::Unable | Activity::Down | Activity::Away);
    let last = if agent && is_gone { Some(last_sent(&ctx, &name).await?) } else { None };
    let main = html! {
        (heading(&name, &html! {
            (display_name(view)) " "
            @if !agent { (badge("human")) " " }
            @if name == viewer.name { (badge("you")) } @else { (connected(&member)) }
            @if agent { " " (state(&viewer, &member)) (polled(&moment, &member)) }
        }))
        p.facts {
            @if view.queued > 0 { span { (plural(view.queued, "request queued", "requests queued")) " in its inbox" } }
            @if view.notices > 0 && agent { span { (plural(view.notices, "notice", "notices")) " for its next turn" } }
            @if view.notices > 0 && !agent { span { (plural(view.notices, "unread message", "unread messages")) } }
            @if agent { span { (spent_today(&member)) } }
            @if agent { span { (plural(member.turns.len() as u64, "turn", "turns")) " open, at most " (view.turns_max) } }
            @if member.failed > 0 { span { a.bad href=(url("/?wrong=all#wrong")) { (member.failed) " went wrong" } } }
            @if !view.actions.is_empty() { span { "serves " (foreign_line(&view.actions.join(", "))) } }
            @if !view.groups.is_empty() { span { "in " (foreign_line(&view.groups.join(", "))) } }
            span { a href={ (url("/conversations?from=")) (encoded(&name)) } { "sent messages" } }
            span { a href={ (url("/conversations?to=")) (encoded(&name)) } { "received messages" } }
        }
        (rests(&member))
        @if let Some(sent) = &last { (last_signs(&viewer, &moment, &member, sent.as_ref())) }
        @if agent && view.state == Running::Active && matches!(member.activity(), Activity::Paused | Activity::Stopped) {
            p #paused-around {
                @if member.turns.is_empty() { "The workspace is paused or stopped, and its work with it." }
                @else {
                    "A human paused or stopped what it works on, or the workspace: "
                    @for (index, turn) in member.turns.iter().enumerate() { @if index > 0 { ", " } (conversation(&turn.reference)) }
                    ". Resume it there."
                }
            }
        }
        @if agent {
            (viewer.allowed(Role::Operator, "Pausing or stopping an agent", || controls(&viewer, &name, view.state)))
        }
        @if let Some(role) = view.role { (agent_forms::role(&viewer, &name, role)) }
        @if agent {
            @if !member.asks.is_empty() || !member.held.is_empty() { p { "For a human to decide:" (waits(&member)) } }
            h2 { "Open turns" }
            @if member.turns.is_empty() { p.faint { "No open turns." } }
            ul.lines { @for turn in &member.turns { li { (at_work(&moment, turn)) } } }
            h2 { "Limits" }
            div.bars {
                @for distance in view.windows.iter().chain(&member.day) { (bar(distance)) }
            }
            p.faint { "Rates count the current windows; budgets count usage since midnight UTC. "
                a href=(url("/limits")) { "All limits" } }
            (agent_forms::own(&viewer, &limits, view))
            h2 #compose { "Ask" }
            (compose::form(&viewer, &compose::Filled::to(&name)))
        }
    };
    let page = Page { title: &name, place: Place::Agents, topics: &[Topic::Agents, Topic::Limits, Topic::Inbox], main };
    viewer.page(&ctx, &moment, page).await
}

/// Returns the newest message of an agent.
async fn last_sent(ctx: &Context, name: &str) -> Result<Option<StoredMessage>, ApiError> {
    let wanted = name.to_owned();
    let Some(from) = ctx.handle.query(move |live| live.state.agent_of(&wanted)).await? else { return Ok(None) };
    let cursor = Cursor { limit: 1, ..Cursor::default() };
    let seqs = audit::search(ctx, Filter { from: Some(from), cursor, ..Filter::default() }).await?;
    Ok(views::show(&ctx.handle, seqs).await?.into_iter().find_map(Shown::stored))
}

/// Shows the last signs of an agent that isn't connected or can't work, and how it comes back.
fn last_signs(viewer: &Viewer, moment: &Moment, member: &Member, sent: Option<&StoredMessage>) -> Markup {
    let name = &member.view.name;
    html! {
        section.card #silent aria-label="Last signs" {
            p {
                @match member.asked_at {
                    Some(at) => { "It last asked for work " (time(&rfc3339(at), moment.now)) }
                    None => { "It hasn't asked for work since the server started" }
                }
                @match sent {
                    Some(sent) => {
                        ", and sent " a href={ (url("/messages/")) (sent.id) } { "its last message" } " " (time(&sent.created_at, moment.now)) "."
                    }
                    None => { ", and has sent no message." }
                }
                @if member.view.queued > 0 { " It takes what is queued once it is back." }
            }
            p { "To bring it back, start its program again where it runs: " }
            pre.rule { "lastword claude --as " (name) "     # a session in your terminal; or: codex, opencode, gemini\nlastword run --as " (name) " --input prompt -- claude -p     # once for each delivery; or any command" }
            @if viewer.role <= Role::Owner { p.faint { a href={ (url("/team")) "#m-" (encoded(name)) } { "Renew its token" } " if that is lost." } }
        }
    }
}

fn at_work(moment: &Moment, turn: &OpenTurn) -> Markup {
    html! {
        code { (turn.id) } " in " (conversation(&turn.reference))
        @if let Some(asker) = &turn.asker { " for " (name_link(asker)) }
        ", since " (time(&turn.opened_at, moment.now)) ", lease expires " (time(&turn.lease_until, moment.now))
        @if turn.attempt > 1 { ", attempt " (turn.attempt) }
        @if let Some(message) = &turn.message { ". " a href={ (url("/messages/")) (message) } { "Show the request" } }
    }
}

fn controls(viewer: &Viewer, name: &str, state: Running) -> Markup {
    let to = |verb: &str| format!("/agents/{}/{verb}", encoded(name));
    let button = |verb: &str, label: &str, question: &str| {
        let class = if verb == "stop" { "danger" } else { "" };
        let id = format!("do-{verb}");
        viewer.asked(&id, &to(verb), question, &html! { button type="submit" class=(class) { (label) } })
    };
    html! {
        div.controls {
            @match state {
                Running::Active => {
                    p.faint { "A pause keeps its inbox. A stop cancels the requests that it works on and those in its inbox, and notifies their requesters. Both last until a human resumes it." }
                    (button("pause", "Pause", &format!("Pause {name}? Until it is resumed it receives nothing new and can't send. Its inbox is kept.")))
                    (button("stop", "Stop", &format!("Stop {name}? The requests that it works on and those in its inbox are cancelled, and their requesters are notified. It stays stopped until a human resumes it.")))
                }
                Running::Paused | Running::Stopped => { (button("resume", "Resume", &format!("Resume {name}?"))) }
            }
        }
    }
}

/// `POST /agents/{name}/{verb}`: pauses, resumes or stops an agent.
pub(super) async fn act(
    State(ctx): State<Context>,
    Path((name, verb)): Path<(String, String)>,
    form: Form<Nothing>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Nothing {} } = form;
    let word = Control::from_word(&verb).ok_or_else(|| ApiError::unknown(&verb))?;
    let agent = agents::find(&ctx, &name).await?;
    control::control(&ctx, viewer.caller, Scope::Agent(agent), word).await?;
    let words = html! { (foreign_line(&name)) " is " (parts::done_word(word)) "." };
    Ok(viewer.done(&words, &format!("/agents/{}", encoded(&name)), &[Topic::Agents]))
}
