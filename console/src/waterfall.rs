//! The history as a waterfall: time from left to right, a bar for each request below the one that caused it.

use std::collections::BTreeMap;

use lastword_facts::Seq;
use lastword_facts::ids::TaskId;
use lastword_facts::visible::escape;
use lastword_server::calls::subjects::first_line;
use lastword_wire::{ExchangeLine, ExchangeView, Outcome};
use maud::{Markup, html};
use serde::Deserialize;

use super::axis::{BREAK, Scale, Tick};
use super::layout::{Moment, empty};
use super::pages::ViewParams;
use super::parts::{badge, encoded, excerpt, foreign_line, money, plural, spent, url, zone};
use super::session::Viewer;
use super::terms::told_of;
use super::work::{Happened, Span, Work, Works, duration};
use super::{exchange, log, markdown};
use crate::reads::history::History;

/// The height of a row, in pixels; the style sheet has the same.
const ROW: u64 = 30;
/// The height of a curve below a row, in pixels; the style sheet has the same.
const CURVE: u64 = 60;
/// The height of the axis, in pixels; the style sheet has the same.
const AXIS: u64 = 26;
/// The deepest indentation that differs.
const INDENT_MAX: usize = 8;
/// How many times wider than without zoom the drawing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(super) struct Zoom(u64);

impl Default for Zoom {
    fn default() -> Self {
        Self(1)
    }
}

impl Zoom {
    const MAX: u64 = 32;

    pub(super) const fn times(self) -> u64 {
        if self.0 == 0 {
            1
        } else if self.0 > Self::MAX {
            Self::MAX
        } else {
            self.0
        }
    }
}

/// One row: a request, how deep it is below the first, and the exchanges of its task that R5 warned of, which are drawn
/// below it.
struct RequestRow<'a> {
    depth: usize,
    task: TaskId,
    work: &'a Work,
    stalled: Vec<&'a ExchangeView>,
    /// Its distance from the top, in pixels.
    y: u64,
}

impl RequestRow<'_> {
    const fn height(&self) -> u64 {
        ROW + CURVE * self.stalled.len() as u64
    }
}

/// Shows the waterfall.
pub(super) fn view(
    viewer: &Viewer,
    moment: &Moment,
    history: &History,
    stalled: &[(TaskId, ExchangeView)],
    params: &ViewParams,
) -> Markup {
    let zoom = params.zoom;
    let works = Works::of(history);
    let rows = rows(&works, stalled);
    if rows.is_empty() {
        let words =
            if history.page.total == 0 { "No requests yet." } else { "No requests in this part of the history." };
        return empty(words, &html! {});
    }
    // What is unanswered as far as was read is drawn up to there.
    let end = history.lines.last().filter(|_| history.is_cut).map(|line| line.entry.at);
    let scale = Scale::of(&works, end.unwrap_or(moment.now), zoom.times());
    let messages: BTreeMap<u64, (&str, &str)> = history
        .lines
        .iter()
        .filter_map(|line| Some((line.event.seq, line.event.message.as_ref()?)))
        .map(|(seq, message)| (seq, (message.to.as_str(), message.body.as_str())))
        .collect();
    html! {
        (legend(&scale, history, params))
        p.faint.narrow-only { "Scroll sideways to see the whole time." }
        div.waterfall tabindex="0" role="region" aria-label="Waterfall" {
            div.names {
                div.axis { "Request" }
                @for row in &rows { (name(row, history, &messages)) @for told in &row.stalled { (stalled_name(told)) } }
            }
            div.bars-area { (drawing(viewer, &scale, &rows, history)) }
            div.sums {
                div.axis { "Spent" }
                @for row in &rows { (sums(row.work)) @for told in &row.stalled { div.sum.curve { (exchange::tenths(told.dry_millis)) " of " (exchange::tenths(told.hold_at_millis)) " dry" } } }
            }
        }
    }
}

fn legend(scale: &Scale, history: &History, params: &ViewParams) -> Markup {
    let times = params.zoom.times();
    html! {
        div.legend {
            span { span.key.turn {} " an agent is working" } span { span.key.human {} " waiting for a human" }
            span { "queued or waiting for answers: "
                span { span.key.done {} " completed " } span { span.key.open {} " open or partial " } span { span.key.failed {} " failed" } }
            span.bad { "✕ refused" }
            span { (duration(scale.ms)) " in all, in " (zone()) @if !scale.breaks.is_empty() { ", of which " span.key.waited {} " " (duration(scale.waited_ms())) " of waiting are drawn narrow" } }
            span.zoom { "Zoom "
                @if times > 1 { a href=(url(&params.to_zoom(history, times / 2))) aria-label="Zoom out" { "−" } }
                " " (times) "× "
                @if times < Zoom::MAX { a href=(url(&params.to_zoom(history, times * 2))) aria-label="Zoom in" { "+" } }
            }
            // Shown by the script that moves it.
            label.scrub hidden { "Play " input type="range" min="0" max="1000" value="1000" data-scrub aria-label="Moment shown";
                button type="button" data-play aria-label="Play the history" { "▶" } }
        }
    }
}

/// Returns the requests in the order of a tree: each below the one in whose turn it was sent.
fn rows<'a>(works: &'a Works, stalled: &'a [(TaskId, ExchangeView)]) -> Vec<RequestRow<'a>> {
    let mut below: BTreeMap<Option<TaskId>, Vec<TaskId>> = BTreeMap::new();
    for (task, work) in &works.tasks {
        let parent = work.parent.filter(|parent| works.tasks.contains_key(parent) && parent != task);
        below.entry(parent).or_default().push(*task);
    }
    let mut rows: Vec<RequestRow<'_>> = Vec::new();
    let mut stack: Vec<(usize, TaskId)> =
        below.remove(&None).into_iter().flatten().rev().map(|task| (0, task)).collect();
    while let Some((depth, task)) = stack.pop() {
        if let Some(work) = works.tasks.get(&task) {
            let y = rows.last().map_or(0, |above| above.y + above.height());
            let stalled = stalled.iter().filter(|(of, _)| *of == task).map(|(_, told)| told).collect();
            rows.push(RequestRow { depth, task, work, stalled, y });
        }
        stack.extend(below.remove(&Some(task)).into_iter().flatten().rev().map(|task| (depth + 1, task)));
    }
    rows
}

fn name(row: &RequestRow<'_>, history: &History, messages: &BTreeMap<u64, (&str, &str)>) -> Markup {
    let (agent, body) = row.work.message.and_then(|seq| messages.get(&seq)).copied().unwrap_or(("", ""));
    let words = first_line(&markdown::plain(body));
    let indent = format!("name in{}", row.depth.min(INDENT_MAX));
    let above = row.work.cause.filter(|cause| row.depth == 0 && history.above.contains_key(cause));
    html! {
        div class=(indent) data-row tabindex="-1" {
            @if let Some(seq) = above {
                @let words = format!("Caused by {seq}, on an earlier page");
                a href=(url(&earlier_page(history, seq))) title=(words) aria-label=(words) { "↑" } " "
            }
            @match row.work.message {
                Some(seq) => { a data-open-row href={ (url("/messages/msg-")) (seq) } title=(escape(&words)) { b { (foreign_line(agent)) } " " (excerpt(&words, 60)) } },
                None => { "own root " code { (row.task) } },
            }
            @if let Some(outcome) = row.work.outcome.filter(|outcome| *outcome != Outcome::Completed) { " " (badge(outcome.word())) }
            // A narrow window has no room for the column.
            span.narrow { (took_in_short(row.work)) }
        }
    }
}

fn earlier_page(history: &History, seq: Seq) -> String {
    format!("/conversations/{}?view=waterfall&at={seq}", encoded(&history.view.summary.reference))
}

fn sums(work: &Work) -> Markup {
    html! {
        div.sum { (took(work)) }
    }
}

fn took(work: &Work) -> Markup {
    html! {
        @if let Some(ms) = work.took_ms() { (duration(ms)) } @else { span.faint { "open" } }
        @if work.tokens() > 0 { span.faint { " · " (spent(work.tokens(), work.is_estimated(), work.cost_microusd())) } }
    }
}

/// Returns the same in few characters.
fn took_in_short(work: &Work) -> String {
    let took = work.took_ms().map_or_else(|| "open".to_owned(), in_short);
    let about = if work.is_estimated() { "≈" } else { "" };
    let tokens = match work.tokens() {
        0 => return took,
        n @ 1..1_000 => format!("{about}{n} tokens"),
        n => format!("{about}{}k tokens", n.saturating_add(500) / 1_000),
    };
    let cost = work.cost_microusd();
    if cost > 0 { format!("{took} · {tokens} · {}", money(cost)) } else { format!("{took} · {tokens}") }
}

fn in_short(ms: u64) -> String {
    match ms {
        0..60_000 => duration(ms),
        60_000..3_600_000 => format!("{} min", ms / 60_000),
        3_600_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} d", ms / 86_400_000),
    }
}

fn drawing(viewer: &Viewer, scale: &Scale, rows: &[RequestRow<'_>], history: &History) -> Markup {
    let height = AXIS + rows.last().map_or(0, |last| last.y + last.height());
    let label = format!("{} over {}", plural(rows.len() as u64, "request", "requests"), duration(scale.ms));
    html! {
        svg.axis width=(scale.width) height=(AXIS) viewBox={ "0 0 " (scale.width) " " (AXIS) } aria-hidden="true" {
            @for Tick { x, .. } in scale.ticks() { line x1=(x) y1=(AXIS - 6) x2=(x) y2=(AXIS) {} }
            @for Tick { x, at, shown } in scale.labels() { text x=(x) y="16" data-at=(at) data-local=(shown.pattern()) { (shown.of(&at)) } }
            @for wait in &scale.breaks { text.waited x=(scale.begin(*wait) + BREAK / 2) y="16" text-anchor="middle" { (in_short(wait.ms())) } }
        }
        svg.rows width=(scale.width) height=(height - AXIS) viewBox={ "0 0 " (scale.width) " " (height - AXIS) } role="group" aria-label=(label) {
            defs { pattern #hatch width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                rect.hatch-back width="6" height="6" {} line.hatch-line x1="0" y1="0" x2="0" y2="6" {}
            } }
            @for Tick { x, .. } in scale.ticks() { line.tick x1=(x) y1="0" x2=(x) y2=(height) {} }
            @for row in rows {
                (bars(viewer, scale, row, history))
                @for (index, told) in row.stalled.iter().enumerate() { (curve(scale, told, row.y + ROW + CURVE * index as u64, history)) }
            }
            @for wait in &scale.breaks {
                rect.waited x=(scale.begin(*wait)) y="0" width=(BREAK) height=(height) { title { "no agent works for " (duration(wait.ms())) } }
            }
            line.cursor x1=(scale.width) y1="0" x2=(scale.width) y2=(height) {}
        }
    }
}

/// Shows one request: from the request to its answer, with its turns and the times in which it waited for a human.
fn bars(viewer: &Viewer, scale: &Scale, row: &RequestRow<'_>, history: &History) -> Markup {
    let (work, y) = (row.work, row.y);
    let (x, width) = scale.bar(Span { from: work.asked, to: work.answered });
    let tone = match work.outcome {
        None => "open",
        Some(Outcome::Completed) => "done",
        Some(Outcome::Partial | Outcome::Cancelled) => "half",
        Some(Outcome::Failed | Outcome::TimedOut | Outcome::Stopped) => "failed",
    };
    html! {
        rect class={ "whole " (tone) } data-x=(x) x=(x) y=(y + 8) width=(width) height=(ROW - 16) rx="3" {}
        @for turn in &work.turns {
            @let (x, width) = scale.bar(turn.span);
            rect.turn data-x=(x) x=(x) y=(y + 5) width=(width) height=(ROW - 10) rx="2" { title { "turn" @if let Some(line) = history.lines.get(turn.line) { ": " (log::woke(viewer, line)) } } }
        }
        @for wait in &work.waits {
            @let (x, width) = scale.bar(*wait);
            rect.human data-x=(x) x=(x) y=(y + 5) width=(width) height=(ROW - 10) rx="2" fill="url(#hatch)" { title { "waiting for a human" } }
        }
        @for mark in &work.marks {
            @if let Happened::Refused = mark.what && let Some(line) = history.lines.get(mark.line) {
                @let x = scale.x(line.entry.at).min(scale.width - 14);
                a href={ (url("/messages/msg-")) (line.event.seq) } {
                    title { (escape(&line.refusal.as_ref().map_or_else(|| "refused".to_owned(), told_of))) }
                    circle.cut data-x=(x) cx=(x + 6) cy=(y + ROW / 2) r="8" {}
                    text.cut data-x=(x) x=(x + 6) y=(y + ROW / 2 + 4) text-anchor="middle" { "✕" }
                }
            }
        }
    }
}

fn stalled_name(told: &ExchangeView) -> Markup {
    let last = told.lines.last().map(|line| line.id.as_str()).unwrap_or_default();
    html! {
        div.name.curve {
            a href={ (url("/messages/")) (last) } title=(told.summary) { "No progress with " b { (foreign_line(&told.delegate)) } }
        }
    }
}

/// Draws how many messages of an exchange brought nothing, message by message, up to the line at which R5 holds it.
fn curve(scale: &Scale, told: &ExchangeView, y: u64, history: &History) -> Markup {
    let at = |id: &str| {
        let seq = Seq::parse(id)?.0;
        let place = history.lines.binary_search_by_key(&seq, |line| line.event.seq).ok()?;
        Some(history.lines[place].entry.at)
    };
    let top = told.hold_at_millis.max(1);
    let height = |millis: u64| y + CURVE - 6 - millis.min(top) * (CURVE - 16) / top;
    let points: Vec<(u64, u64, &ExchangeLine)> =
        told.lines.iter().filter_map(|line| Some((scale.x(at(&line.id)?), height(line.dry_millis), line))).collect();
    let path = points.iter().map(|(x, y, _)| format!("{x},{y}")).collect::<Vec<_>>().join(" ");
    let words = format!("Messages of {} and {} that brought nothing. {}", told.asker, told.delegate, told.summary);
    html! {
        g.dry role="img" aria-label=(escape(&words)) {
            @for (millis, word) in [(told.warn_at_millis, "warns"), (told.hold_at_millis, "holds")] {
                line.threshold x1="0" y1=(height(millis)) x2=(scale.width) y2=(height(millis)) {}
                text x="3" y=(height(millis) - 2) { "R5 " (word) }
            }
            polyline points=(path) {}
            @for (x, y, line) in &points {
                circle.verdict[line.verdict.is_some()] data-x=(x) cx=(x) cy=(y) r="3" {
                    title { (line.id) ": " (exchange::tenths(line.dry_millis)) " dry, " (line.new_units) " new, " (line.context_tokens) " tokens read" }
                }
            }
        }
    }
}
