//! The agents and humans of the team, their tokens, and the forms that change them.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::{Html, IntoResponse as _, Response};
use lastword_facts::Time;
use lastword_facts::fact::{Kind, Role};
use lastword_server::calls::{agents, tokens};
use lastword_server::{ApiError, Context};
use lastword_wire::{AgentToken, NewAgent, NewHuman, SignInLink, TokenTerms, rfc3339};
use maud::{Markup, html};
use serde::Deserialize;

use super::agents::{View, name_link, views};
use super::forms::{Form, Nothing, filled};
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, heading};
use super::live::Topic;
use super::parts::{badge, encoded, foreign_line, limit_words, quantity, time, url};
use super::session::{Viewer, secure};
use super::{channels, passkeys};
use crate::reads::people::{self, Person};

/// A token that expires within this time is marked, in ms.
const SOON_MS: u64 = 7 * DAY_MS;
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
/// How long a token is valid that replaces another, and how long that one stays valid; 0 for no end, and for none.
const EXPIRES: [(u64, &str); 4] =
    [(0, "doesn't expire"), (30 * DAY_MS, "30 days"), (90 * DAY_MS, "90 days"), (365 * DAY_MS, "a year")];
const OVERLAPS: [(u64, &str); 3] = [(0, "ends at once"), (HOUR_MS, "stays valid for an hour"), (DAY_MS, "for a day")];

/// `GET /team`: the agents and humans, and the forms that change who they are.
pub(super) async fn page(State(ctx): State<Context>, viewer: Viewer) -> Result<Response, ErrorPage> {
    shown(&ctx, &viewer, &html! {}).await
}

/// Shows the page, with what was just made at its top.
async fn shown(ctx: &Context, viewer: &Viewer, made: &Markup) -> Result<Response, ErrorPage> {
    let moment = Moment::of(ctx);
    let all = people::people(ctx, viewer.caller).await?;
    let (humans, agents): (Vec<_>, Vec<_>) = all.iter().partition(|person| person.role.is_some());
    let main = html! {
        (heading("Team", &html! { @if ctx.nodes.is_some() { a href=(url("/nodes")) { "Nodes" } } }))
        (views(View::Team))
        (made)
        div.columns {
            div {
                (members(ctx, viewer, &moment, "agents", "Agents", &agents))
                (own_limits(&agents))
                (channels::section(ctx, viewer))
            }
            div {
                (members(ctx, viewer, &moment, "humans", "Humans", &humans))
                section.card #add aria-labelledby="add-title" {
                    header { h2 #add-title { "Add" } }
                    div { (viewer.allowed(Role::Owner, "Adding an agent or a human", || adding(viewer))) }
                }
            }
        }
    };
    let topics = [Topic::Agents, Topic::Limits];
    viewer.page(ctx, &moment, Page { title: "Team", place: Place::Team, topics: &topics, main }).await
}

fn members(ctx: &Context, viewer: &Viewer, moment: &Moment, id: &str, title: &str, people: &[&Person]) -> Markup {
    html! {
        section.card #(id) aria-labelledby={ (id) "-title" } {
            header { h2 id={ (id) "-title" } { (title) } }
            @if people.is_empty() { p.faint { "None yet." } }
            ul.lines { @for person in people { (member(ctx, viewer, moment, person)) } }
        }
    }
}

fn member(ctx: &Context, viewer: &Viewer, moment: &Moment, person: &Person) -> Markup {
    let soon = |at: &Time| at.since(moment.now) < SOON_MS;
    html! {
        li id={ "m-" (encoded(&person.name)) } {
            p {
                b { (name_link(&person.name)) } " "
                @if let Some(name) = &person.display_name { span.faint { (foreign_line(name)) } " " }
                @if let Some(role) = person.role { (badge(role.word())) " " }
                @if person.name == viewer.name { (badge("you")) " " }
                @if let Some(at) = &person.token_expires_at {
                    span.faint { "token expires " (time(&rfc3339(*at), moment.now)) }
                    @if soon(at) { " " (badge("soon")) }
                }
            }
            @if viewer.role <= Role::Owner {
                details {
                    summary { "Renew the token" @if person.name != viewer.name { ", or remove" } }
                    (renewing(viewer, &person.name))
                    @if person.name != viewer.name && person.role.is_some() { (passkeys::removal(ctx, viewer, &person.name)) }
                    @if person.name != viewer.name { (removing(viewer, person)) }
                }
            }
        }
    }
}

fn renewing(viewer: &Viewer, name: &str) -> Markup {
    let choice = |name: &str, label: &str, all: &[(u64, &str)]| {
        html! {
            label { span { (label) } select name=(name) { @for (ms, words) in all { option value=(ms) { (words) } } } }
        }
    };
    let path = encoded(name);
    viewer.fill_in(
        &format!("token-{path}"),
        &format!("/team/{path}/token"),
        &html! {
            div.fields {
                (choice("expires_in_ms", "The new token", &EXPIRES))
                (choice("overlap_ms", "The old one", &OVERLAPS))
            }
            @if name == viewer.name { p.faint { "This ends your sessions, this one too. Keep the token: the file " code { "operator.token" } " of the server isn't changed." } }
            button type="submit" { "Make a new token" }
        },
    )
}

fn removing(viewer: &Viewer, person: &Person) -> Markup {
    let name = &person.name;
    let effect = if person.role.is_some() {
        "Sessions and tokens of this human end at once."
    } else {
        "Its token ends at once, and its requests are handed back to their senders."
    };
    viewer.asked(
        &format!("remove-{}", encoded(name)),
        &format!("/team/{}/remove", encoded(name)),
        &format!("Remove {name}? {effect}"),
        &html! { button.danger type="submit" aria-label={ "Remove " (name) } { "Remove" } },
    )
}

fn adding(viewer: &Viewer) -> Markup {
    html! {
        h3 { "An agent" }
        (viewer.fill_in("add-agent", "/team/agents", &html! {
            div.fields.wide {
                (field("name", "Name", true, "coder"))
                (field("display_name", "Display name", false, "in any script"))
                (field("actions", "Actions that it serves", false, "review_code, deploy"))
                (field("groups", "Groups", false, "backend"))
            }
            button.main type="submit" { "Add the agent" }
        }))
        h3 { "A human" }
        (viewer.fill_in("add-human", "/team/humans", &html! {
            div.fields.wide {
                (field("name", "Name", true, "anna"))
                label { span { "Role" } select name="role" {
                    @for role in Role::ALL { option value=(role.word()) selected[*role == Role::Approver] { (role.word()) } }
                } }
            }
            p.faint { "A viewer reads, and posts in rooms; an approver decides; an operator stops, grants and schedules; an owner sets limits and roles." }
            button type="submit" { "Invite" }
        }))
    }
}

pub(super) fn field(name: &str, label: &str, required: bool, example: &str) -> Markup {
    html! {
        label { span { (label) } input type="text" name=(name) required[required] placeholder=(example) autocomplete="off" spellcheck="false"; }
    }
}

fn own_limits(agents: &[&Person]) -> Markup {
    let own = agents.iter().filter(|agent| !agent.limits.is_empty());
    html! {
        section.card #own-limits aria-labelledby="own-limits-title" {
            header { h2 #own-limits-title { "Agents' own limits" } span.grow {} a href=(url("/limits")) { "All limits" } }
            @if own.clone().next().is_none() { p.faint { "No agent has limits of its own, so the workspace's limits apply. Set one on the agent's page." } }
            ul.lines {
                @for agent in own {
                    li { a href={ (url("/agents/")) (encoded(&agent.name)) "#own-limits" } { (foreign_line(&agent.name)) }
                        @for (name, value) in &agent.limits { " " (limit_words(name)) " " code.faint { (name) } " " b { (quantity(name, *value)) } } }
                }
            }
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct AgentFields {
    #[serde(default)]
    name: String,
    #[serde(default)]
    display_name: String,
    #[serde(default)]
    actions: String,
    #[serde(default)]
    groups: String,
}

/// `POST /team/agents`: registers an agent, and shows its token once.
pub(super) async fn add_agent(
    State(ctx): State<Context>,
    headers: HeaderMap,
    form: Form<AgentFields>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields } = form;
    let viewer = viewer.confirmed(&ctx, Role::Owner).await?;
    let list = |text: &str| text.split([',', ' ']).filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let new = NewAgent {
        name: fields.name.trim().to_owned(),
        actions: list(&fields.actions),
        groups: list(&fields.groups),
        kind: Kind::Agent,
        turns_max: 0,
        role: None,
        display_name: filled(&fields.display_name),
        key: None,
    };
    let made = agents::add(&ctx, viewer.caller, new).await?;
    reply(&ctx, &viewer, &joins(&ctx, &headers, &made)).await
}

#[derive(Debug, Deserialize)]
pub(super) struct HumanFields {
    #[serde(default)]
    name: String,
    role: String,
}

/// `POST /team/humans`: registers a human, and shows the link and the token once.
pub(super) async fn add_human(
    State(ctx): State<Context>,
    headers: HeaderMap,
    form: Form<HumanFields>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields } = form;
    let viewer = viewer.confirmed(&ctx, Role::Owner).await?;
    let role = Role::from_word(&fields.role).ok_or_else(|| ApiError::unknown(&fields.role))?;
    let new = NewHuman { name: fields.name.trim().to_owned(), role }.into();
    let made = agents::add(&ctx, viewer.caller, new).await?;
    let link = tokens::invite(&ctx, viewer.caller, &made).await?;
    reply(&ctx, &viewer, &signs_in(&ctx, &headers, &made, &link)).await
}

#[derive(Debug, Deserialize)]
pub(super) struct TokenFields {
    #[serde(default)]
    expires_in_ms: u64,
    #[serde(default)]
    overlap_ms: u64,
}

/// `POST /team/{name}/token`: replaces a token, and shows the new one once.
pub(super) async fn renew(
    State(ctx): State<Context>,
    Path(name): Path<String>,
    headers: HeaderMap,
    form: Form<TokenFields>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: TokenFields { expires_in_ms, overlap_ms } } = form;
    let viewer = viewer.confirmed(&ctx, Role::Owner).await?;
    let terms = TokenTerms { expires_in_ms: Some(expires_in_ms).filter(|ms| *ms > 0), overlap_ms };
    let made = agents::rekey(&ctx, viewer.caller, &name, terms).await?;
    let is_agent = agents::member(&ctx, viewer.caller, &name).await?.view.kind == Kind::Agent;
    let card = if is_agent {
        joins(&ctx, &headers, &made)
    } else {
        let link = tokens::invite(&ctx, viewer.caller, &made).await?;
        signs_in(&ctx, &headers, &made, &link)
    };
    reply(&ctx, &viewer, &card).await
}

/// `POST /team/{name}/remove`: removes an agent or human.
pub(super) async fn remove(
    State(ctx): State<Context>,
    Path(name): Path<String>,
    form: Form<Nothing>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Nothing {} } = form;
    agents::remove(&ctx, viewer.caller, &name).await?;
    Ok(viewer.done(&html! { "Removed " (foreign_line(&name)) "." }, "/team", &[Topic::Agents]))
}

/// Shows what was made: in the form that made it, or on the page.
pub(super) async fn reply(ctx: &Context, viewer: &Viewer, card: &Markup) -> Result<Response, ErrorPage> {
    if viewer.partial {
        let trigger = [("hx-trigger", Topic::Agents.to_string())];
        return Ok((trigger, Html(card.clone().into_string())).into_response());
    }
    shown(ctx, viewer, card).await
}

/// Returns the address of this server as the browser named it.
pub(super) fn address(ctx: &Context, headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost:7171");
    let scheme = if secure(ctx, headers).is_empty() { "http" } else { "https" };
    format!("{scheme}://{host}{}", url(""))
}

/// Shows an agent's token, and how each kind of program joins with it.
fn joins(ctx: &Context, headers: &HeaderMap, made: &AgentToken) -> Markup {
    let (address, AgentToken { name, token, .. }) = (address(ctx, headers), made);
    let configured = format!(
        "{{\"mcpServers\": {{\"lastword\": {{\"type\": \"http\", \"url\": \"{address}/mcp\",\n  \"headers\": {{\"Authorization\": \"Bearer {token}\"}}}}}}}}"
    );
    html! {
        div.made {
            p { "The token of " b { (foreign_line(name)) } ", shown once" (until(made)) ":" }
            pre.rule { (token) }
            h4 { "Any program, once for each delivery" }
            pre.rule { "export LASTWORD_URL=" (address) "\nexport LASTWORD_TOKEN=" (token) "\nlastword run --input prompt -- claude -p     # or: codex exec, opencode run, any command" }
            h4 { "A session in your own terminal" }
            p { "It needs you signed in, and not this token." }
            pre.rule { "lastword claude --as " (name) "     # or: codex, opencode, gemini" }
            h4 { "A client of MCP" }
            pre.rule { (configured) }
            h4 { "Python and TypeScript" }
            p { "The SDKs read the two variables above." }
        }
    }
}

/// Shows a human's link and token.
fn signs_in(ctx: &Context, headers: &HeaderMap, made: &AgentToken, link: &SignInLink) -> Markup {
    let address = address(ctx, headers);
    html! {
        div.made {
            p { "This link signs " b { (foreign_line(&made.name)) } " in once, before " (link.expires_at.get(11..16).unwrap_or_default()) " UTC. Whoever has it is " (foreign_line(&made.name)) "." }
            pre.rule { (address) (link.path) }
            p { "The token, shown once" (until(made)) ", for later and for the command line:" }
            pre.rule { (made.token) }
        }
    }
}

fn until(made: &AgentToken) -> String {
    made.expires_at.as_ref().map_or_else(String::new, |at| format!(", valid until {at}"))
}
