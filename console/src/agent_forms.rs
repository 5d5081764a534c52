//! Forms for what humans set on an agent, its limits and today's budget (§1, B1), and on a human, the role (H7).

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::response::Response;
use lastword_facts::Code;
use lastword_facts::fact::Role;
use lastword_server::calls::{agents, humans};
use lastword_server::{ApiError, Context};
use lastword_wire::{AgentGrant, AgentPatch, AgentView, LimitsView, microusd};
use maud::{Markup, html};
use serde::Deserialize;

use super::conversation::not_lifted;
use super::forms::Form;
use super::frame::ErrorPage;
use super::live::Topic;
use super::parts::{badge, encoded, foreign_line, money, number, quantity};
use super::session::Viewer;

/// The per-agent limits: the name, the label, and how many of the limit's units make one of the field's.
const FIELDS: [(&str, &str, u64); 7] = [
    ("pair_messages_max", "To one recipient in a window", 1),
    ("sender_messages_max", "Messages in a window", 1),
    ("roots_per_hour_max", "Roots in an hour", 1),
    ("agent_turns_max", "Turns at once", 1),
    ("ack_ms", "Time to acknowledge, in seconds", 1_000),
    ("agent_day_tokens_max", "Tokens a day", 1),
    ("agent_day_cost_microusd_max", "Dollars a day", 1_000_000),
];

/// Shows an agent's own limits, with the forms that set them and extend today's budget.
pub(super) fn own(viewer: &Viewer, limits: &LimitsView, view: &AgentView) -> Markup {
    let own = FIELDS.iter().filter_map(|(name, label, _)| Some((name, label, *view.limits.get(*name)?)));
    html! {
        @if view.limits.is_empty() {
            p #own { "No per-agent limits; the workspace's limits apply." }
        } @else {
            h3 { "Per-agent limits" }
            ul #own.lines {
                @for (name, label, value) in own { li { (label.split(',').next().unwrap_or(label)) ": " b { (quantity(name, value)) } } }
            }
        }
        (viewer.allowed(Role::Owner, "Setting per-agent limits", || limits_form(viewer, limits, view)))
        (viewer.allowed(Role::Operator, "Extending today's budget", || grant_form(viewer, &view.name)))
    }
}

fn limits_form(viewer: &Viewer, limits: &LimitsView, view: &AgentView) -> Markup {
    let workspace = |name: &str| limits.items.iter().find(|limit| limit.name == name).map_or(0, |limit| limit.value);
    let action = format!("/agents/{}/limits", encoded(&view.name));
    html! {
        details #own-limits.fold {
            summary { "Set per-agent limits" }
            (viewer.fill_in("limits-form", &action, &html! {
                div.fields.wide {
                    @for (name, label, unit) in FIELDS {
                        @let own = view.limits.get(name).map(|value| amount(*value, unit));
                        // What the agent was registered with comes before the workspace's limit.
                        @let instead = if name == "agent_turns_max" { view.turns_max } else { workspace(name) };
                        label {
                            span { (label.replace("a window", &quantity("window_ms", workspace("window_ms")))) }
                            input type="text" name=(name) inputmode="decimal" autocomplete="off" value=[own]
                                placeholder=(if instead == 0 { "none".to_owned() } else { amount(instead, unit) });
                        }
                    }
                }
                p.faint { "Empty or 0 removes a limit; the workspace's limit, shown in the empty field, then applies." }
                button type="submit" { "Set" }
            }))
        }
    }
}

fn grant_form(viewer: &Viewer, name: &str) -> Markup {
    html! {
        details #more-today.fold {
            summary { "Extend today's budget" }
            (viewer.fill_in("grant-form", &format!("/agents/{}/grant", encoded(name)), &html! {
                div.fields {
                    label { span { "Tokens" } input type="text" name="tokens" inputmode="numeric" autocomplete="off" placeholder="0"; }
                    label { span { "Dollars" } input type="text" name="cost_usd" inputmode="decimal" autocomplete="off" placeholder="0"; }
                }
                p.faint { "Added to today's limits until midnight UTC. An agent whose day budget is used up resumes if this is enough." }
                button type="submit" { "Give" }
            }))
        }
    }
}

/// Shows a human's role, with the form that sets it.
pub(super) fn role(viewer: &Viewer, name: &str, role: Role) -> Markup {
    html! {
        h2 { "Role" }
        p { (foreign_line(name)) " is " (badge(role.word())) " and may " (may(role)) "." }
        (viewer.allowed(Role::Owner, "Setting a role", || {
            viewer.fill_in("role-form", &format!("/agents/{}/role", encoded(name)), &html! {
                div.fields {
                    label { span { "Role" } select name="role" {
                        @for known in Role::ALL {
                            option value=(known.word()) selected[*known == role] { (known.word()) }
                        }
                    } }
                }
                dl.about { @for known in Role::ALL { dt { (known.word()) } dd { (may(*known)) } } }
                button type="submit" { "Set the role" }
            })
        }))
    }
}

const fn may(role: Role) -> &'static str {
    match role {
        Role::Owner => "do everything: register, set limits and roles, and everything an operator may",
        Role::Operator => "stop, pause, resume, grant, schedule and ask agents, and everything an approver may",
        Role::Approver => "answer questions, decide held calls, and read",
        Role::Viewer => "read, and post in rooms",
    }
}

/// `POST /agents/{name}/limits`: sets the limits whose fields were changed.
pub(super) async fn limit(
    State(ctx): State<Context>,
    Path(name): Path<String>,
    form: Form<BTreeMap<String, String>>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields } = form;
    let known = agents::member(&ctx, viewer.caller, &name).await?.view.limits;
    let mut changed = BTreeMap::new();
    for (name, _, unit) in FIELDS {
        let Some(text) = fields.get(name) else { continue };
        let value = units(name, text, unit)?;
        if value != known.get(name).copied().unwrap_or_default() {
            changed.insert(name.to_owned(), value);
        }
    }
    if changed.is_empty() {
        return Err(ApiError::new(Code::Malformed, "These limits are already set").into());
    }
    let patch = AgentPatch { limits: Some(changed), ..AgentPatch::default() };
    agents::amend(&ctx, viewer.caller, &name, patch).await?;
    let used = agents::member(&ctx, viewer.caller, &name).await?.day;
    let over = used.iter().find(|day| day.limit > 0 && day.current >= day.limit);
    let words = html! {
        "The limits of " (foreign_line(&name)) " are set."
        @if let Some(day) = over { " It has used " (quantity(&day.name, day.current)) " of " (quantity(&day.name, day.limit)) " today already." }
    };
    Ok(viewer.done(&words, &format!("/agents/{}", encoded(&name)), &[Topic::Agents]))
}

#[derive(Debug, Deserialize)]
pub(super) struct More {
    #[serde(default)]
    tokens: String,
    #[serde(default)]
    cost_usd: String,
}

/// `POST /agents/{name}/grant`: extends today's budget.
pub(super) async fn grant(
    State(ctx): State<Context>,
    Path(name): Path<String>,
    form: Form<More>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields } = form;
    let cost_usd = match fields.cost_usd.trim() {
        "" => 0.0,
        text => text.parse().ok().filter(|usd: &f64| usd.is_finite()).ok_or_else(|| no_amount("cost_usd", text))?,
    };
    let more = AgentGrant { tokens: units("tokens", &fields.tokens, 1)?, cost_usd };
    let given = match (more.tokens, more.cost_usd) {
        (0, cost) => money(microusd(cost)),
        (tokens, 0.0) => format!("{} tokens", number(tokens)),
        (tokens, cost) => format!("{} tokens and {}", number(tokens), money(microusd(cost))),
    };
    let view = agents::grant(&ctx, viewer.caller, &name, more).await?;
    let (next, topics) = (format!("/agents/{}", encoded(&name)), [Topic::Agents]);
    if let Some(still) = view.held_by.first() {
        return Ok(viewer.failed(&not_lifted(still), &next, &topics));
    }
    let words = html! { (foreign_line(&name)) " may spend " (given) " more today." };
    Ok(viewer.done(&words, &next, &topics))
}

#[derive(Debug, Deserialize)]
pub(super) struct NewRole {
    #[serde(default)]
    role: String,
}

/// `POST /agents/{name}/role`: sets a human's role.
pub(super) async fn set_role(
    State(ctx): State<Context>,
    Path(name): Path<String>,
    form: Form<NewRole>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: NewRole { role } } = form;
    let viewer = viewer.confirmed(&ctx, Role::Owner).await?;
    let wrong = || ApiError::new(Code::Malformed, format!("{role:?} isn't a role"));
    let role = Role::from_word(&role).ok_or_else(wrong)?;
    humans::set_role(&ctx, viewer.caller, &name, role).await?;
    let words = html! { (foreign_line(&name)) " is " (role) " now." };
    Ok(viewer.done(&words, &format!("/agents/{}", encoded(&name)), &[Topic::Agents]))
}

/// Formats a limit's value in the field's unit.
pub(super) fn amount(value: u64, unit: u64) -> String {
    let places = unit.ilog10() as usize;
    let text = format!("{}.{:0places$}", value / unit, value % unit);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Parses a field's text into the limit's own unit; an empty field is 0.
pub(super) fn units(name: &str, text: &str, unit: u64) -> Result<u64, ApiError> {
    let wrong = || no_amount(name, text);
    let (whole, part) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    // Parsed as digits, not as a float: money must not be rounded.
    let places = unit.ilog10() as usize;
    if part.len() > places || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let digits = |text: &str| if text.is_empty() { Ok(0) } else { text.parse::<u64>().map_err(|_| wrong()) };
    let whole = digits(whole)?.checked_mul(unit).ok_or_else(wrong)?;
    whole.checked_add(digits(&format!("{part:0<places$}"))?).ok_or_else(wrong)
}

fn no_amount(name: &str, text: &str) -> ApiError {
    ApiError::new(Code::Malformed, format!("`{name}` isn't an amount: {text:?}"))
}

#[cfg(test)]
mod tests {
    use lastword_facts::fact::AgentLimits;

    use super::*;

    #[test]
    fn there_is_a_field_for_each_limit_that_an_agent_can_have_of_its_own() {
        assert_eq!(FIELDS.map(|(name, ..)| name), AgentLimits::NAMES);
    }

    #[test]
    fn an_amount_is_read_as_it_is_shown() {
        for (text, unit, value) in
            [("20", 1, 20), ("90", 1_000, 90_000), ("0.5", 1_000, 500), ("1.5", 1_000_000, 1_500_000)]
        {
            assert_eq!(units("x", text, unit).unwrap(), value);
            assert_eq!(amount(value, unit), text);
        }
        assert_eq!((units("x", " ", 1).unwrap(), units("x", ".5", 1_000).unwrap()), (0, 500));
        for (text, unit) in [
            ("-1", 1),
            ("1.5", 1),
            ("much", 1),
            ("1.0001", 1_000),
            ("1.+5", 1_000),
            ("18446744073709551616", 1),
            ("18446744073709551615", 1_000),
        ] {
            let Err(fault) = units("x", text, unit) else { panic!("{text}") };
            assert!(fault.0.detail.contains(text), "{}", fault.0.detail);
        }
    }
}
