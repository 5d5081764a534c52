//! Prints events one below the other.

use lastword_client::wire::{Event, StoredMessage, amount};
use serde_json::Value;

use crate::failure::Failure;
use crate::out::{Out, StyledLine, Tone, escape, escape_line};
use crate::render::outcome_tone;
use crate::tree::route;

/// Most lines shown of a body; `lastword audit` shows all.
const BODY_LINES: usize = 3;

/// Prints events, with a line for each new day.
pub(crate) struct Story {
    out: Out,
    day: String,
}

impl Story {
    /// Starts a story without a day.
    pub(crate) const fn new(out: Out) -> Self {
        Self { out, day: String::new() }
    }

    /// Prints an event, as JSON or in words.
    pub(crate) fn tell(&mut self, event: &Event) -> Result<(), Failure> {
        if self.out.is_json() {
            return self.out.json(event);
        }
        let (day, time) = event.at.split_once('T').unwrap_or(("", &event.at));
        let mut lines = Vec::new();
        if self.day != day {
            day.clone_into(&mut self.day);
            lines.push(vec![(Tone::Faint, format!("{} UTC", escape_line(day)))]);
        }
        let clock = escape_line(time.trim_end_matches('Z').get(..8).unwrap_or(time));
        let mut told = words(event).into_iter();
        let head = told.next().unwrap_or_default();
        lines.push([vec![(Tone::Faint, format!("{clock} "))], head].concat());
        lines.extend(told);
        self.out.text(&self.out.lines(lines))
    }
}

/// Formats an event: a line, and below it a message's body.
fn words(event: &Event) -> Vec<StyledLine> {
    match (&event.message, event.kind.as_str()) {
        (Some(message), _) => admitted(message),
        (None, "refused" | "observed") => vec![refused(event)],
        (None, "latch_set") => vec![latched(event)],
        (None, "warned" | "budget_warned") => vec![other(event, Tone::Warn)],
        (None, "escalation_opened" | "approval_asked") => vec![other(event, Tone::All)],
        (None, _) => vec![other(event, Tone::Faint)],
    }
}

fn admitted(message: &StoredMessage) -> Vec<StyledLine> {
    let mut line = vec![(Tone::Faint, format!("{} ", message.id))];
    line.extend(route(message));
    line.push((Tone::Plain, format!(" {}", escape_line(&message.reference))));
    if let Some(action) = &message.action {
        line.push((Tone::Plain, format!(" #{}", escape_line(action))));
    }
    if let Some(outcome) = message.outcome() {
        line.push((outcome_tone(outcome), format!(" {}", outcome.label())));
    }
    if let Some(reason) = &message.reason {
        line.push((Tone::Warn, format!(" ({})", escape_line(reason))));
    }
    line.push((Tone::Faint, format!("  depth {} hop {}", message.depth, message.hops)));
    if let Some(id) = &message.request_id {
        line.push((Tone::Faint, format!("  {}", escape_line(id))));
    }
    let body = escape(&message.body);
    let total = body.lines().count();
    let mut lines = vec![line];
    lines.extend(
        body.lines()
            .take(BODY_LINES)
            .map(|text| vec![(Tone::Plain, format!("           {}", text.replace('\t', " ")))]),
    );
    if total > BODY_LINES {
        lines.push(vec![(Tone::Faint, format!("           … {} more lines", total - BODY_LINES))]);
    }
    lines
}

fn data<'a>(event: &'a Event, name: &str) -> Option<&'a str> {
    event.data.get(name).and_then(Value::as_str)
}

/// Formats a refusal with its rule and numbers; an observed one is marked as such.
fn refused(event: &Event) -> StyledLine {
    let observed = event.kind == "observed";
    let (mark, tone) = if observed { ("! would refuse", Tone::Warn) } else { ("✗", Tone::Bad) };
    let mut route = escape_line(event.agent.as_deref().unwrap_or("?"));
    if let Some(to) = data(event, "to") {
        route.push_str(&format!(" → {}", escape_line(to)));
    }
    let kind = data(event, "type").map(|kind| format!(" {}", escape_line(&kind.to_uppercase()))).unwrap_or_default();
    let reference = data(event, "ref").map(|at| format!(" {}", escape_line(at))).unwrap_or_default();
    let code = data(event, "code").unwrap_or("?");
    let rule = data(event, "rule").map(|rule| format!(" ({rule})")).unwrap_or_default();
    let mut why = data(event, "subject").map(|subject| format!(" {}", escape_line(subject))).unwrap_or_default();
    why.push_str(&numbers(event));
    vec![
        (tone, format!("{mark} refused-{} ", event.seq)),
        (Tone::Strong, route),
        (Tone::Plain, format!("{kind}{reference}")),
        (tone, format!(" {}{rule}", escape_line(code))),
        (Tone::Plain, why),
    ]
}

fn numbers(event: &Event) -> String {
    let number = |name: &str| event.data.get(name).and_then(Value::as_u64);
    let mut text = String::new();
    if let (Some(limit), Some(current)) = (number("limit"), number("current")) {
        let [limit, current] = [limit, current].map(|n| amount(event.data.contains_key("is_cost"), n));
        text.push_str(&format!(" limit {limit}, would be {current}"));
    }
    if let Some(ms) = number("retry_after_ms") {
        text.push_str(&format!(", again in {}", crate::tree::duration(ms)));
    }
    text
}

fn latched(event: &Event) -> StyledLine {
    let number = |name: &str| {
        let n = event.data.get(name).and_then(Value::as_u64).unwrap_or_default();
        amount(event.data.contains_key("is_cost"), n)
    };
    let on = event.reference.as_deref().or(data(event, "room")).or(data(event, "grant")).unwrap_or_default();
    let incident = data(event, "incident").unwrap_or("held");
    vec![
        (Tone::Bad, format!("■ {} ", escape_line(incident))),
        (Tone::Strong, escape_line(on)),
        (Tone::Bad, format!(" held by {}", escape_line(data(event, "code").unwrap_or("?")))),
        (Tone::Plain, format!(" limit {}, is {}: a human lifts it", number("limit"), number("current"))),
    ]
}

fn other(event: &Event, tone: Tone) -> StyledLine {
    let mut text = String::new();
    for part in [&event.agent, &event.reference, &event.request_id].into_iter().flatten() {
        text.push_str(&format!(" {}", escape_line(part)));
    }
    for (name, value) in &event.data {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.push_str(&format!(" {name}={}", escape_line(&value)));
    }
    vec![(tone, escape_line(&event.kind)), (Tone::Faint, text)]
}
