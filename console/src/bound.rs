//! What one grant can cause with the limits in force, and what it could with others.

use std::collections::BTreeMap;

use lastword_facts::Limits;
use lastword_facts::fact::Role;
use lastword_facts::limits::{LIMITS, Profile};
use lastword_server::Context;
use maud::{Markup, html};

use super::parts::{capital, limit_words, number, url};
use super::session::Viewer;

/// The limits on which the bound of a grant depends.
const BOUNDING: [&str; 4] = ["hops_max", "task_requests_max", "grant_messages_max", "grant_turns_max"];

/// Values of some limits, by name.
type Values = Vec<(&'static str, u64)>;

/// What one grant can cause, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    /// Waking messages.
    messages: u64,
    /// Turns.
    turns: u64,
    /// Waking messages that its structure allows, before the total of a grant cuts it.
    structure: u64,
}

impl Bound {
    fn of(limits: &Limits) -> Self {
        Self { messages: limits.bound_messages(), turns: limits.bound_turns(), structure: limits.potential(0) }
    }
}

/// Shows the profile, what one grant can cause, and what it could with other limits.
pub(super) fn bound(ctx: &Context, viewer: &Viewer, limits: &Limits, wanted: &BTreeMap<String, String>) -> Markup {
    let other = changed(limits, wanted);
    html! {
        section.card #bound aria-labelledby="bound-title" {
            header { h2 #bound-title { "What one grant can cause" } }
            p { (can_cause(Bound::of(limits))) }
            form method="get" action={ (url("/limits")) "#bound" } {
                div.fields.wide {
                    @for name in BOUNDING {
                        label title=(meaning(name)) { span { (capital(limit_words(name))) @if name.starts_with("grant_") { " of a grant" } ", " code { (name) } ", now " (number(limits.value(name).unwrap_or_default())) } input type="number" name=(name) min="1" inputmode="numeric"
                            value=(wanted.get(name).cloned().unwrap_or_default()) placeholder=(limits.value(name).unwrap_or_default()); }
                    }
                }
                p { button type="submit" { "Compare" } }
            }
            @match &other {
                Ok(None) => { p.faint { "Enter other values to compare the bounds. Comparing changes nothing." } }
                Ok(Some((other, values))) => div #after role="status" {
                    (compared(limits, other))
                    (warning(other))
                    @if ctx.config.place().is_none() {
                        p { "These limits are changed where the configuration of this server is kept, under " code { "[limits]" } ":" }
                        pre.rule { @for (name, value) in values { (name) " = " (value) "\n" } }
                    } @else if other.bound_messages() <= other.bound_ceiling_messages {
                        (viewer.allowed(Role::Owner, "Changing limits", || viewer.fill_in("set-bound", "/limits", &html! {
                            @for (name, value) in values { input type="hidden" name=(name) value=(value); }
                            button type="submit" { "Change these limits" }
                        })))
                    }
                },
                Err(problem) => { p.bad role="alert" { (problem) } }
            }
        }
    }
}

/// Returns the limits with the wanted values, and those values; `None` if nothing differs.
fn changed(limits: &Limits, wanted: &BTreeMap<String, String>) -> Result<Option<(Limits, Values)>, String> {
    let (mut other, mut values) = (limits.clone(), Values::new());
    for name in BOUNDING {
        let text = wanted.get(name).map(|text| text.trim()).unwrap_or_default();
        if text.is_empty() {
            continue;
        }
        let value: u64 = text.parse().map_err(|_| format!("{name} is a whole number, not {text:?}"))?;
        if limits.value(name) != Some(value) {
            other.set(name, value);
            values.push((name, value));
        }
    }
    Ok((!values.is_empty()).then_some((other, values)))
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

pub(super) const fn about(profile: Profile) -> &'static str {
    match profile {
        Profile::Strict => "Its limits suit short work.",
        Profile::Long => "Its limits suit long work.",
    }
}

pub(super) fn place(ctx: &Context) -> String {
    ctx.config.place().unwrap_or_else(|| "lastword.toml".to_owned())
}
