//! Everything that humans set, in one place: what it is now, what a change means, and where it is made.

use std::collections::BTreeMap;

use axum::extract::{Path, Query, State};
use axum::response::Response;
use lastword_facts::fact::Role;
use lastword_facts::limits::{LIMITS, Profile};
use lastword_facts::{Code, Limits, Time};
use lastword_server::calls::humans;
use lastword_server::{ApiError, Context};
use lastword_wire::rfc3339;
use maud::{Markup, html};

use super::agents::name_link;
use super::forms::{Form, Nothing};
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, heading};
use super::live::Topic;
use super::parts::{badge, capital, encoded, foreign_line, limit_words, number, plural, quantity, time, url};
use super::session::Viewer;
use crate::reads::settings::{self, BOUNDING, Bound, Person, SettingsView};

/// A token that expires within this time is marked, in ms.
const SOON_MS: u64 = 7 * 24 * 3_600_000;

/// `GET /settings?hops_max=4`: what is set, and what other limits would bound.
pub(super) async fn page(
    State(ctx): State<Context>,
    viewer: Viewer,
    Query(wanted): Query<BTreeMap<String, String>>,
) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let all = settings::all(&ctx, viewer.caller).await?;
    let (humans, agents): (Vec<_>, Vec<_>) = all.people.iter().partition(|person| person.role.is_some());
    let main = html! {
        (heading("Settings", &html! {}))
        div.columns {
            div {
                (bound(&ctx, &all.limits, &wanted))
                (channels(&ctx, &viewer))
            }
            div {
                (roles(&humans))
                (own_limits(&agents))
                (tokens(&moment, &all.people))
                (elsewhere(&all))
            }
        }
    };
    let topics = [Topic::Agents, Topic::Limits];
    viewer.page(&ctx, &moment, Page { title: "Settings", place: Place::Settings, topics: &topics, main }).await
}

/// Shows the profile, what one grant can cause, and what it could with other limits.
fn bound(ctx: &Context, limits: &Limits, wanted: &BTreeMap<String, String>) -> Markup {
    let other = changed(limits, wanted);
    html! {
        section.card #bound aria-labelledby="bound-title" {
            header { h2 #bound-title { "Profile and bound" } span.grow {} a href=(url("/limits")) { "All limits" } }
            p { "Profile " b { (limits.profile) } ". " (about(limits.profile)) }
            p { (can_cause(Bound::of(limits))) }
            form method="get" action=(url("/settings")) {
                div.fields.wide {
                    @for name in BOUNDING {
                        label title=(meaning(name)) { span { (capital(limit_words(name))) @if name.starts_with("grant_") { " of a grant" } ", " code { (name) } ", now " (number(limits.value(name).unwrap_or_default())) } input type="number" name=(name) min="1" inputmode="numeric"
                            value=(wanted.get(name).cloned().unwrap_or_default()) placeholder=(limits.value(name).unwrap_or_default()); }
                    }
                }
                p { button type="submit" { "Compare" } }
            }
            @match &other {
                Ok(None) => { p.faint { "Enter other values to compare the bounds. Nothing changes here." } }
                Ok(Some((other, lines))) => div #after role="status" {
                    (compared(limits, other))
                    (warning(other))
                    p { "Only the configuration changes these limits. Write in " code { (place(ctx)) } ", under " code { "[limits]" } ", and start the server again:" }
                    pre.rule { (lines) }
                },
                Err(problem) => { p.bad role="alert" { (problem) } }
            }
        }
    }
}

/// Returns the limits with the wanted values, and the lines that set them; `None` if nothing differs.
fn changed(limits: &Limits, wanted: &BTreeMap<String, String>) -> Result<Option<(Limits, String)>, String> {
    let (mut other, mut lines) = (limits.clone(), String::new());
    for name in BOUNDING {
        let text = wanted.get(name).map(|text| text.trim()).unwrap_or_default();
        if text.is_empty() {
            continue;
        }
        let value: u64 = text.parse().map_err(|_| format!("{name} is a whole number, not {text:?}"))?;
        if limits.value(name) != Some(value) {
            other.set(name, value);
            lines.push_str(&format!("{name} = {value}\n"));
        }
    }
    Ok((!lines.is_empty()).then_some((other, lines)))
}

/// Returns what a limit counts, in a sentence.
fn meaning(name: &str) -> &'static str {
    LIMITS.iter().find(|row| row.name == name).map_or("", |row| row.meaning)
}

fn can_cause(bound: Bound) -> String {
    let Bound { messages, turns, structure } = bound;
    let by = if structure > messages {
        format!(
            "The total of messages in a grant sets this; hops and requests of a task alone would allow {}.",
            number(structure)
        )
    } else {
        "Hops and requests of a task set this.".to_owned()
    };
    format!("One grant can cause at most {} waking messages and {} turns. {by}", number(messages), number(turns))
}

/// Shows what one grant can cause before and after a change.
fn compared(limits: &Limits, other: &Limits) -> Markup {
    let (now, then) = (Bound::of(limits), Bound::of(other));
    let rows = [
        ("Waking messages of a grant", now.messages, then.messages),
        ("Turns of a grant", now.turns, then.turns),
        ("Messages by hops and requests alone", now.structure, then.structure),
    ];
    html! {
        table {
            thead { tr { th scope="col" { "At most" } th scope="col" { "Now" } th scope="col" { "Then" } } }
            tbody { @for (name, now, then) in rows {
                tr { th scope="row" { (name) } td { (number(now)) } td { @if now == then { "the same" } @else { b { (number(then)) } } } }
            } }
        }
        @if (now.messages, now.turns) == (then.messages, then.turns) {
            @let first = if then.structure > then.messages { "the total of messages in a grant bounds" } else { "hops and requests of a task bound" };
            p { "A grant can cause as much as now, because " (first) " it first." }
        }
    }
}

/// Says what `serve` does with limits that bound so much.
fn warning(limits: &Limits) -> Markup {
    let messages = limits.bound_messages();
    html! {
        @if messages > limits.bound_ceiling_messages { p.bad { "The server refuses this: more than " (number(limits.bound_ceiling_messages)) " messages in a grant." } }
        @else if messages > limits.bound_warning_messages { p.warn { "The server warns of this: more than " (number(limits.bound_warning_messages)) " messages in a grant." } }
    }
}

const fn about(profile: Profile) -> &'static str {
    match profile {
        Profile::Strict => "Its limits suit short work.",
        Profile::Long => "Its limits suit long work.",
    }
}

fn place(ctx: &Context) -> String {
    ctx.policies.place().unwrap_or_else(|| "lastword.toml".to_owned())
}

fn channels(ctx: &Context, viewer: &Viewer) -> Markup {
    html! {
        section.card #notifications aria-labelledby="notifications-title" {
            header { h2 #notifications-title { "Notifications" } }
            @if ctx.channels.is_empty() {
                p { "No channel is configured, so only an open page notifies. A channel is a table in " code { (place(ctx)) } ":" }
                pre.rule { "[[notify]]\nname = \"desk\"\ncommand = [\"notify-send\", \"Lastword\"]\n" }
            }
            ul.lines {
                @for channel in ctx.channels.iter() {
                    li {
                        b { (foreign_line(channel.name())) } " from severity " (channel.minimum()) ", at most " (channel.hourly_max()) " an hour "
                        @if viewer.role <= Role::Operator {
                            (viewer.form(&format!("test-{}", encoded(channel.name())), &format!("/settings/channels/{}/test", encoded(channel.name())), &html! {
                                button type="submit" aria-label={ "Send a test through " (channel.name()) } { "Send a test" }
                            }))
                        }
                    }
                }
            }
        }
    }
}

fn roles(humans: &[&Person]) -> Markup {
    html! {
        section.card #roles aria-labelledby="roles-title" {
            header { h2 #roles-title { "Humans and roles" } }
            ul.lines {
                @for human in humans {
                    li { (name_link(&human.name)) " " @if let Some(role) = human.role { (badge(role.word())) } }
                }
            }
            p.faint { "A viewer reads; an approver decides; an operator stops, grants and schedules; an owner sets limits and roles. Change a role on the human's page." }
        }
    }
}

fn own_limits(agents: &[&Person]) -> Markup {
    let own = agents.iter().filter(|agent| !agent.limits.is_empty());
    html! {
        section.card #own-limits aria-labelledby="own-limits-title" {
            header { h2 #own-limits-title { "Agents' own limits" } span.grow {} a href=(url("/agents")) { "Agents" } }
            @if own.clone().next().is_none() { p { "No agent has limits of its own, so the workspace's limits apply." } }
            ul.lines {
                @for agent in own {
                    li { a href={ (url("/agents/")) (encoded(&agent.name)) "#own-limits" } { (foreign_line(&agent.name)) }
                        @for (name, value) in &agent.limits { " " code { (name) } " " b { (quantity(name, *value)) } } }
                }
            }
            p.faint { "An agent's own limit replaces the workspace's for that agent, at once. Set it on the agent's page." }
        }
    }
}

fn tokens(moment: &Moment, people: &[Person]) -> Markup {
    let soon = |at: &Time| at.since(moment.now) < SOON_MS;
    html! {
        section.card #tokens aria-labelledby="tokens-title" {
            header { h2 #tokens-title { "Access tokens" } }
            ul.lines {
                @for person in people {
                    li {
                        (name_link(&person.name)) ": "
                        @match &person.token_expires_at {
                            None => "doesn't expire",
                            Some(at) => { "expires " (time(&rfc3339(*at), moment.now)) @if soon(at) { " " (badge("soon")) } },
                        }
                    }
                }
            }
            p.faint { "A new token is shown once, so no page makes one: " code { "lastword agent token NAME" } " replaces one, and " code { "--overlap 1h" } " keeps the old one valid meanwhile." }
        }
    }
}

fn elsewhere(all: &SettingsView) -> Markup {
    html! {
        section.card #elsewhere aria-labelledby="elsewhere-title" {
            header { h2 #elsewhere-title { "Elsewhere" } }
            ul.lines {
                li { a href=(url("/schedules")) { (plural(all.schedules as u64, "schedule", "schedules")) } " for recurring requests" }
                li { a href=(url("/limits#held-calls")) { "The policy of held calls" } ", and the rules that always allow one" }
                li { a href=(url("/limits")) { "Every limit" } ", with what it bounds and where it was set" }
            }
        }
    }
}

/// `POST /settings/channels/{name}/test`: sends a test notification.
pub(super) async fn test(
    State(ctx): State<Context>,
    Path(name): Path<String>,
    form: Form<Nothing>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Nothing {} } = form;
    humans::require(&ctx, viewer.caller, Role::Operator).await?;
    let channel = ctx.channels.iter().find(|channel| channel.name() == name).ok_or_else(|| ApiError::unknown(&name))?;
    let failed = |problem: String| ApiError::new(Code::Malformed, format!("{name} failed: {problem}"));
    channel.test().await.map_err(failed)?;
    Ok(viewer.done(&html! { "Sent a test through " (foreign_line(&name)) "." }, "/settings#notifications", &[]))
}
