//! The history as recorded: every line, with rule and numbers for refusals.

use lastword_facts::fact::{Control, Crossing, Decision, EventKind, GrantEnd, Rerun, TurnEnd};
use lastword_facts::policy::Ruling;
use lastword_facts::{AnswerStatus, Code};
use lastword_wire::{Event, Outcome};
use maud::{Markup, html};
use serde_json::Value;

use super::layout::Moment;
use super::markdown;
use super::parts::{
    badge, clock_time, conversation, done_word, excerpt, foreign_line, money, or_you, quantity, url, zone,
};
use super::session::Viewer;
use super::terms::{told, told_of};
use super::work::decided;
use crate::reads::history::{History, HistoryEntry, Wake, Waker};

/// Shows the lines, newest last.
pub(super) fn view(viewer: &Viewer, moment: &Moment, history: &History) -> Markup {
    html! {
        p.faint { "Times are in " (zone()) "." }
        ol.log { @for line in history.page_lines() { (row(viewer, moment, line, &history.view.summary.reference)) } }
    }
}

fn row(viewer: &Viewer, moment: &Moment, line: &HistoryEntry, reference: &str) -> Markup {
    let event = &line.event;
    html! {
        li id={ "line-" (event.seq) } tabindex="-1" data-row {
            a.seq data-open-row href={ (url("/messages/msg-")) (event.seq) } { (event.seq) }
            span.kind { (badge(&event.kind)) }
            span.what {
                @if let Some(agent) = &event.agent { b { (foreign_line(agent)) } " " }
                @if event.reference.as_deref().is_some_and(|found| found != reference) {
                    "in " (conversation(event.reference.as_deref().unwrap_or_default())) " "
                }
                (what(viewer, line))
            }
            (clock_time(&event.at, moment.now))
        }
    }
}

/// Says in one sentence why an agent woke: through whom the work came to it, and what opened its turn.
pub(super) fn woke(viewer: &Viewer, line: &HistoryEntry) -> Markup {
    let Some(Waker { from, what, attempt }) = &line.waker else { return html! {} };
    let you = &viewer.name;
    let agent = line.event.agent.as_deref().unwrap_or_default();
    let asked = line.chain.first().and_then(|link| link.from.as_deref());
    let names: Vec<&str> = asked.into_iter().chain(line.chain.iter().map(|link| link.to.as_str())).collect();
    html! {
        @for (index, name) in names.iter().enumerate() { @if index > 0 { " → " } (or_you(name, you)) }
        @if !names.is_empty() { "; " }
        @if from == you { "your" } @else if from == agent { "its own" } @else { (foreign_line(from)) "'s" }
        @match what {
            Wake::Request => " request",
            Wake::Answer => " answer",
            Wake::Reply => " reply",
            Wake::Message => " message",
        }
        " woke it" @if *attempt > 1 { ", for the " (attempt) @match attempt { 2 => "nd", 3 => "rd", _ => "th" } " time" } "."
    }
}

fn what(viewer: &Viewer, line: &HistoryEntry) -> Markup {
    if line.waker.is_some() {
        return html! { (woke(viewer, line)) " " span.faint { (data(&line.event)) } };
    }
    if let Some(problem) = &line.refusal {
        return html! { (foreign_line(&told_of(problem))) " " span.faint { "rule " (problem.rule) ", " code { (problem.code) } } };
    }
    if let Some(message) = &line.event.message {
        return html! {
            (message.kind.word()) " to " b { (foreign_line(&message.to)) } " " span.faint { "depth " (message.depth) ", hop " (message.hops) } " "
            @if let Some(outcome) = message.outcome() { (badge(outcome.word())) " " }
            (markdown::line(&message.body, 160))
        };
    }
    html! { (data(&line.event)) }
}

/// Shows the members of an event without a message.
pub(super) fn data(event: &Event) -> Markup {
    let is_cost = event.data.contains_key("is_cost");
    let unit = |name: &str| if is_cost && matches!(name, "limit" | "current") { "_microusd" } else { "" };
    let members = event.data.iter().map(|(name, value)| (name.clone() + unit(name), value));
    html! {
        @for (name, value) in members {
            @if !is_unknown(&name, value) {
                @let meaning = value.as_str().and_then(|word| in_words(&event.kind, &name, word));
                span.pair { span.faint { (member(&name)) } " " @match meaning { Some(meaning) => (meaning), None => (excerpt(&words(&name, value), 160)) } } " "
            }
        }
    }
}

/// Returns what a code word of a record means; `None` for a text or name, which is shown as it is.
fn in_words(kind: &str, name: &str, word: &str) -> Option<&'static str> {
    if name == "code" || (name == "why" && kind == EventKind::ScheduleSkipped.word() && word != "still_open") {
        return Code::from_word(word).map(told);
    }
    let words = match (name, word) {
        ("end", _) if kind == EventKind::GrantClosed.word() => match GrantEnd::from_word(word)? {
            GrantEnd::Finished => "all its work has ended",
            GrantEnd::Expired => "its time was over",
            GrantEnd::Stopped => "its work was stopped",
        },
        ("end", _) => match TurnEnd::from_word(word)? {
            TurnEnd::Finished => "finished",
            TurnEnd::LeaseLost => "the agent stopped responding",
            TurnEnd::Withdrawn => "withdrawn",
        },
        ("why", "still_open") => "the work of the last time is still open",
        ("why", _) => match Rerun::from_word(word)? {
            Rerun::AckTimeout => "not acknowledged in time",
            Rerun::LeaseLost => "the agent stopped responding",
            Rerun::Rejected => "declined",
            Rerun::Partial => "done in part",
        },
        ("decision", _) => decided(Decision::from_word(word)?),
        ("status", _) => AnswerStatus::from_word(word).map(|status| Outcome::of(status, false).label())?,
        ("control", _) => done_word(Control::from_word(word)?),
        ("crossing", _) => match Crossing::from_word(word)? {
            Crossing::Soft => "the first limit: a warning",
            Crossing::Hard => "the last limit: a hold",
        },
        ("ruling", _) => match Ruling::from_word(word)? {
            Ruling::Ask => "ask a human",
            Ruling::Allow => "allow without asking",
            Ruling::Deny => "deny without asking",
        },
        ("by", "policy") => "a rule of held calls",
        _ => return None,
    };
    Some(words)
}

/// Returns whether a member says nothing: a cost of 0 is one that nobody reported, a report is the usual case, and the
/// unit of the numbers is with them.
fn is_unknown(name: &str, value: &Value) -> bool {
    value.is_null()
        || (name.ends_with("_microusd") && value == 0)
        || (name == "estimated" && value == false)
        || name == "is_cost"
}

/// Returns the name of a member without its unit, which its value has.
fn member(name: &str) -> String {
    let name = name.strip_suffix("_ms").or_else(|| name.strip_suffix("_microusd")).unwrap_or(name);
    name.replace('_', " ")
}

/// Returns a value in words: numbers in their unit, lists and objects member by member.
fn words(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Null => String::new(),
        Value::Number(number) => match number.as_u64() {
            Some(n) if name.ends_with("_microusd") => money(n),
            Some(n) => quantity(name, n),
            None => number.to_string(),
        },
        Value::Array(all) => all.iter().map(|one| words(name, one)).collect::<Vec<_>>().join("; "),
        Value::Object(members) => {
            // What is named comes first, then its numbers.
            let texts = members.values().filter_map(Value::as_str).map(str::to_owned);
            let others = members.iter().filter(|(name, value)| !is_unknown(name, value) && !value.is_string());
            let others = others.map(|(name, value)| format!("{} {}", member(name), words(name, value)));
            texts.chain(others).collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn code_words_are_told_in_words() {
        assert_eq!(in_words("grant_closed", "end", "finished"), Some("all its work has ended"));
        assert_eq!(in_words("turn_closed", "end", "lease_lost"), Some("the agent stopped responding"));
        assert_eq!(in_words("approval_decided", "decision", "approve"), Some("approved"));
        assert_eq!(in_words("root_ended", "status", "timed_out"), Some("timed out"));
        assert_eq!(in_words("refused", "code", "depth_cap"), Some(told(Code::DepthCap)));
        assert_eq!(in_words("approval_asked", "tool", "end"), None);
    }

    #[test]
    fn values_are_told_in_words_and_in_their_unit() {
        let models = json!([{"cost_microusd": 250_000, "model": "large", "tokens": 12_000}, {"cost_microusd": 0, "model": "small", "tokens": 5}]);
        assert_eq!(words("models", &models), "large, cost $0.25, tokens 12\u{202f}000; small, tokens 5");
        assert_eq!(words("lease_ms", &json!(600_000)), "10 min");
        assert_eq!(words("estimated", &json!(true)), "yes");
        assert_eq!(words("waits_for", &json!(["kilo", "lima"])), "kilo; lima");
    }
}
