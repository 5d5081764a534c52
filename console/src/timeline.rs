//! The history as a sequence diagram: agents as lanes, time downwards, requests as solid and answers as dashed arcs.

use lastword_facts::MessageType;
use lastword_facts::names::SYSTEM_NAME;
use lastword_facts::visible::escape;
use maud::{Markup, html};

use super::layout::empty;
use super::parts::{Shown, foreign_line, plural, url, zone};
use crate::reads::history::{History, HistoryEntry};

/// The distance between two lanes, in pixels.
const LANE: usize = 170;
/// The width left of the first lane, for the times, in pixels.
const TIMES: usize = 66;
/// The distance between two rows, in pixels.
const ROW: usize = 34;
/// The height of the names, in pixels.
const HEAD: usize = 32;
/// The height above the first row, for the words over its arc, in pixels.
const TOP: usize = 10;

/// The lanes that a wide window has room for.
const LANES_SEEN: usize = 5;

/// The content of a row.
enum RowContent<'a> {
    /// A message from one lane to another.
    Message { from: usize, to: usize, line: &'a HistoryEntry, class: &'static str },
    /// An event on one lane.
    Mark { lane: usize, sign: &'static str, class: &'static str, words: String, seq: u64, at: &'a str },
}

impl RowContent<'_> {
    fn at(&self) -> &str {
        match self {
            Self::Message { line, .. } => &line.event.at,
            Self::Mark { at, .. } => at,
        }
    }
}

/// Shows the diagram.
pub(super) fn view(history: &History) -> Markup {
    let mut lanes = Vec::new();
    let steps: Vec<RowContent<'_>> = history.page_lines().iter().filter_map(|line| step(line, &mut lanes)).collect();
    if steps.is_empty() {
        let words =
            if history.page.total == 0 { "No activity yet." } else { "No activity in this part of the history." };
        return empty(words, &html! {});
    }
    let (width, height) = (TIMES + lanes.len() * LANE + 70, TOP + steps.len() * ROW + 10);
    html! {
        p.legend {
            span.request { "request" } " " span.answer { "answer" } " " span.note { "other message" } " "
            span.bad { "✕ refused" } " " span.warn { "! warning" } " " span.warn { "↻ delivered again" } " " span { "? question or held call" } " " span { "Times are in " (zone()) }
        }
        // A narrow window has room for one lane.
        p.faint.lanes.some[lanes.len() > 1].many[lanes.len() > LANES_SEEN] {
            (plural(lanes.len() as u64, "lane", "lanes")) ": " (foreign_line(&lanes.join(", "))) ". Scroll sideways to see them all."
        }
        div.diagram tabindex="0" role="region" aria-label="Timeline" {
            svg.heads width=(width) height=(HEAD) viewBox={ "0 0 " (width) " " (HEAD) } role="group" aria-label="Agents" {
                text x="6" y="20" { "Time" }
                @for (index, name) in lanes.iter().enumerate() {
                    text.name x=(x(index)) y="20" text-anchor="middle" { (escape(&short(name, 20))) }
                }
            }
            svg width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } role="group" aria-label="Messages between agents, top to bottom" {
                @for index in 0..lanes.len() { line.lane x1=(x(index)) y1="0" x2=(x(index)) y2=(height) {} }
                @for (index, step) in steps.iter().enumerate() {
                    @let y = TOP + index * ROW + ROW / 2;
                    @if index == 0 || second(steps[index - 1].at()) != second(step.at()) { text.at x="6" y=(y + 4) data-at=(step.at()) data-local=(Shown::Second.pattern()) { (second(step.at())) } }
                    (drawn(step, y))
                }
            }
        }
    }
}

const fn x(lane: usize) -> usize {
    TIMES + lane * LANE + LANE / 2
}

/// Returns the hour, minute and second of a time.
fn second(at: &str) -> String {
    Shown::Second.of(at)
}

fn lane(lanes: &mut Vec<String>, name: &str) -> usize {
    let found = lanes.iter().position(|known| known == name);
    found.unwrap_or_else(|| {
        lanes.push(name.to_owned());
        lanes.len() - 1
    })
}

fn step<'a>(line: &'a HistoryEntry, lanes: &mut Vec<String>) -> Option<RowContent<'a>> {
    let event = &line.event;
    if let Some(message) = &event.message {
        let class = match message.kind {
            MessageType::Request => "request",
            MessageType::Response => "answer",
            MessageType::Status | MessageType::Alert | MessageType::Info | MessageType::Broadcast => "note",
        };
        let from = lane(lanes, &message.from);
        return Some(RowContent::Message { from, to: lane(lanes, &message.to), line, class });
    }
    let words = |text: &str| text.to_owned();
    let attempt = event.data.get("attempt").and_then(serde_json::Value::as_u64).unwrap_or(1);
    let (sign, class, words) = match (event.kind.as_str(), &line.refusal) {
        (_, Some(problem)) => ("✕", "bad", problem.code.to_string().replace('_', " ")),
        ("warned" | "budget_warned", None) => ("!", "warn", words("warned")),
        ("latch_set", None) => ("!", "bad", words("held by a limit")),
        ("latch_lifted", None) => ("!", "good", words("lifted")),
        ("requeued", None) => ("↻", "warn", words("handed back")),
        ("late", None) => ("!", "warn", words("late answer")),
        ("turn_opened", None) if attempt > 1 => ("↻", "warn", format!("attempt {attempt}")),
        ("escalation_opened", None) => ("?", "note", words("asks a human")),
        ("approval_asked", None) => ("?", "note", words("a call is held")),
        ("approval_decided", None) => ("?", "good", words("decided")),
        ("controlled", None) => ("!", "warn", words("control by a human")),
        (_, None) => return None,
    };
    let name = event.agent.as_deref().or_else(|| event.data.get("by").and_then(serde_json::Value::as_str));
    Some(RowContent::Mark {
        lane: lane(lanes, name.unwrap_or(SYSTEM_NAME)),
        sign,
        class,
        words,
        seq: event.seq,
        at: &event.at,
    })
}

fn drawn(step: &RowContent<'_>, y: usize) -> Markup {
    match step {
        RowContent::Message { from, to, line, class } => {
            let Some(message) = &line.event.message else { return html! {} };
            let (a, b) = (x(*from), x(*to));
            let title =
                format!("{} {} → {}: {}", message.kind.word(), message.from, message.to, short(&message.body, 200));
            let words =
                message.outcome().map_or_else(|| short(&message.body, 24), |outcome| outcome.label().to_owned());
            html! {
                a href={ (url("/messages/")) (message.id) } {
                    title { (escape(&title)) }
                    @if a == b {
                        circle class=(class) cx=(a) cy=(y) r="5" {}
                        text x=(a + 10) y=(y + 4) { (escape(&words)) }
                    } @else {
                        path class={ "arc " (class) } d=(arc(a, b, y)) {}
                        path class={ "tip " (class) } d=(tip(a, b, y)) {}
                        text.over x=(usize::midpoint(a, b)) y=(y.saturating_sub(10)) text-anchor="middle" { (escape(&words)) }
                    }
                }
            }
        }
        RowContent::Mark { lane, sign, class, words, seq, .. } => html! {
            a href={ (url("/messages/msg-")) (seq) } {
                title { (escape(words)) }
                circle class={ "mark " (class) } cx=(x(*lane)) cy=(y) r="9" {}
                text class={ "sign " (class) } x=(x(*lane)) y=(y + 4) text-anchor="middle" { (sign) }
                text x=(x(*lane) + 14) y=(y + 4) { (escape(&short(words, 22))) }
            }
        },
    }
}

/// Returns the path of a flat arc from one lane to another.
fn arc(a: usize, b: usize, y: usize) -> String {
    format!("M {a} {y} Q {} {} {b} {y}", usize::midpoint(a, b), y.saturating_sub(10))
}

fn tip(a: usize, b: usize, y: usize) -> String {
    let back = if a < b { b - 9 } else { b + 9 };
    format!("M {b} {y} L {back} {} L {back} {} Z", y.saturating_sub(6), y + 2)
}

fn short(text: &str, chars: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    let cut: String = line.chars().take(chars).collect();
    if cut.len() < text.len() { format!("{cut}…") } else { cut }
}
