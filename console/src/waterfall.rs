//! The history as a waterfall: time from left to right, a bar for each request below the one that caused it.

use std::collections::BTreeMap;

use lastword_facts::ids::TaskId;
use lastword_facts::visible::escape;
use lastword_facts::{AnswerStatus, Seq, Time};
use lastword_server::calls::subjects::first_line;
use lastword_wire::{ExchangeLine, ExchangeView, rfc3339};
use maud::{Markup, html};
use serde::Deserialize;

use super::exchange;
use super::layout::{Moment, empty};
use super::pages::ViewParams;
use super::parts::{badge, encoded, excerpt, foreign_line, money, plural, spent, url};
use super::terms::told_of;
use super::work::{Mark, Span, Work, Works, duration};
use crate::reads::history::History;

/// The width of the drawing without zoom, in pixels.
const WIDTH: u64 = 560;
/// The height of a row, in pixels; the style sheet has the same.
const ROW: u64 = 30;
/// The height of a curve below a row, in pixels; the style sheet has the same.
const CURVE: u64 = 60;
/// The height of the axis, in pixels; the style sheet has the same.
const AXIS: u64 = 26;
/// The room that a label of the axis takes, in pixels.
const LABEL: u64 = 84;
/// The deepest indentation that differs.
const INDENT_MAX: usize = 8;
/// The most labels on the axis without zoom.
const TICKS_MAX: u64 = 6;
/// The distances between two labels, in ms.
const STEPS_MS: [u64; 23] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000,
    1_800_000, 3_600_000, 7_200_000, 21_600_000, 86_400_000,
];

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

/// The time that is drawn, and its width.
struct Scale {
    from: Time,
    ms: u64,
    width: u64,
    now: Time,
}

impl Scale {
    fn of(works: &Works, now: Time, zoom: Zoom) -> Self {
        let from = works.tasks.values().map(|work| work.asked).min().unwrap_or(now);
        let to = works.tasks.values().map(|work| work.answered.unwrap_or(now)).max().unwrap_or(now);
        Self { from, ms: to.since(from).max(1), width: WIDTH * zoom.times(), now }
    }

    fn x(&self, at: Time) -> u64 {
        // In 128 bits, which can't overflow.
        let x = u128::from(at.since(self.from)) * u128::from(self.width) / u128::from(self.ms);
        u64::try_from(x).unwrap_or(self.width).min(self.width)
    }

    /// Returns the begin and the width of a stretch, which is never too narrow to be seen.
    fn bar(&self, span: Span) -> (u64, u64) {
        let (from, to) = (self.x(span.from), self.x(span.to.unwrap_or(self.now)));
        (from, to.saturating_sub(from).max(2))
    }

    /// Returns the labels of the axis.
    fn ticks(&self, zoom: Zoom) -> Vec<(u64, String)> {
        let max = TICKS_MAX * zoom.times();
        let last = STEPS_MS[STEPS_MS.len() - 1];
        let step = STEPS_MS.into_iter().find(|step| self.ms / step <= max).unwrap_or(last * (self.ms / last / max + 1));
        let first = self.from.0.div_ceil(step) * step;
        let moments = (0..).map(|n| Time(first + n * step)).take_while(|at| at.0 <= self.from.0 + self.ms);
        moments.map(|at| (self.x(at), label(at, step))).collect()
    }

    /// Returns where each label of the axis begins: right of its tick, or left of it where it would end outside. One that
    /// would cover the label before it is left out.
    fn labels(&self, zoom: Zoom) -> Vec<(u64, String)> {
        let mut free = 0;
        let mut labels = Vec::new();
        for (x, text) in self.ticks(zoom) {
            let begins = if x + LABEL > self.width { x.saturating_sub(LABEL) } else { x + 3 };
            if begins >= free {
                free = begins + LABEL;
                labels.push((begins, text));
            }
        }
        labels
    }
}

fn label(at: Time, step: u64) -> String {
    let text = rfc3339(at);
    let range = match step {
        86_400_000.. => 5..10,
        60_000.. => 11..16,
        1_000.. => 11..19,
        _ => 11..23,
    };
    text.get(range).unwrap_or_default().to_owned()
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
    let scale = Scale::of(&works, end.unwrap_or(moment.now), zoom);
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
            div.bars-area { (drawing(&scale, zoom, &rows, history)) }
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
            span { (duration(scale.ms)) " in all, UTC" }
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
    let indent = format!("name in{}", row.depth.min(INDENT_MAX));
    let above = row.work.cause.filter(|cause| row.depth == 0 && history.above.contains_key(cause));
    html! {
        div class=(indent) data-row tabindex="-1" {
            @if let Some(seq) = above {
                @let words = format!("Caused by {seq}, on an earlier page");
                a href=(url(&earlier_page(history, seq))) title=(words) aria-label=(words) { "↑" } " "
            }
            @match row.work.message {
                Some(seq) => { a data-open-row href={ (url("/messages/msg-")) (seq) } title=(escape(&first_line(body))) { b { (foreign_line(agent)) } " " (excerpt(&first_line(body), 60)) } },
                None => { "own root " code { (row.task) } },
            }
            @if let Some(status) = row.work.status.filter(|status| *status != AnswerStatus::Completed) { " " (badge(status.word())) }
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
    let took = work.took_ms().map_or_else(
        || "open".to_owned(),
        |ms| match ms {
            0..60_000 => duration(ms),
            60_000..3_600_000 => format!("{} min", ms / 60_000),
            _ => format!("{} h", ms / 3_600_000),
        },
    );
    let about = if work.is_estimated() { "≈" } else { "" };
    let tokens = match work.tokens() {
        0 => return took,
        n @ 1..1_000 => format!("{about}{n} tokens"),
        n => format!("{about}{}k tokens", n.saturating_add(500) / 1_000),
    };
    let cost = work.cost_microusd();
    if cost > 0 { format!("{took} · {tokens} · {}", money(cost)) } else { format!("{took} · {tokens}") }
}

fn drawing(scale: &Scale, zoom: Zoom, rows: &[RequestRow<'_>], history: &History) -> Markup {
    let height = AXIS + rows.last().map_or(0, |last| last.y + last.height());
    let label = format!("{} over {}", plural(rows.len() as u64, "request", "requests"), duration(scale.ms));
    html! {
        svg.axis width=(scale.width) height=(AXIS) viewBox={ "0 0 " (scale.width) " " (AXIS) } aria-hidden="true" {
            @for (x, _) in scale.ticks(zoom) { line x1=(x) y1=(AXIS - 6) x2=(x) y2=(AXIS) {} }
            @for (x, text) in scale.labels(zoom) { text x=(x) y="16" { (text) } }
        }
        svg.rows width=(scale.width) height=(height - AXIS) viewBox={ "0 0 " (scale.width) " " (height - AXIS) } role="group" aria-label=(label) {
            defs { pattern #hatch width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                rect.hatch-back width="6" height="6" {} line.hatch-line x1="0" y1="0" x2="0" y2="6" {}
            } }
            @for (x, _) in scale.ticks(zoom) { line.tick x1=(x) y1="0" x2=(x) y2=(height) {} }
            @for row in rows {
                (bars(scale, row, row.y, history))
                @for (index, told) in row.stalled.iter().enumerate() { (curve(scale, told, row.y + ROW + CURVE * index as u64, history)) }
            }
            line.cursor x1=(scale.width) y1="0" x2=(scale.width) y2=(height) {}
        }
    }
}

/// Shows one request: from the request to its answer, with its turns and the times in which it waited for a human.
fn bars(scale: &Scale, row: &RequestRow<'_>, y: u64, history: &History) -> Markup {
    let work = row.work;
    let (x, width) = scale.bar(Span { from: work.asked, to: work.answered });
    let tone = match work.status {
        None => "open",
        Some(AnswerStatus::Completed) => "done",
        Some(AnswerStatus::Partial | AnswerStatus::Cancelled) => "half",
        Some(AnswerStatus::Rejected | AnswerStatus::Failed | AnswerStatus::TimedOut | AnswerStatus::Exhausted) => {
            "failed"
        }
    };
    html! {
        rect class={ "whole " (tone) } data-x=(x) x=(x) y=(y + 8) width=(width) height=(ROW - 16) rx="3" {}
        @for turn in &work.turns {
            @let (x, width) = scale.bar(turn.span);
            rect.turn data-x=(x) x=(x) y=(y + 5) width=(width) height=(ROW - 10) rx="2" { title { "turn" } }
        }
        @for wait in &work.waits {
            @let (x, width) = scale.bar(*wait);
            rect.human data-x=(x) x=(x) y=(y + 5) width=(width) height=(ROW - 10) rx="2" fill="url(#hatch)" { title { "waiting for a human" } }
        }
        @for mark in &work.marks {
            @if let Mark::Refused(at) = mark && let Some(line) = history.lines.get(*at) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_has_labels_whatever_the_span() {
        for ms in [1, 900, 59_000, 3_700_000, 90_000_000, 900_000_000_000] {
            let scale = Scale { from: Time(1_700_000_000_123), ms, width: WIDTH, now: Time(0) };
            let ticks = scale.ticks(Zoom(1));
            assert!(ticks.len() <= 8, "{ms}: {ticks:?}");
            assert!(ticks.iter().all(|(x, text)| *x <= WIDTH && !text.is_empty()), "{ms}: {ticks:?}");
            let labels = scale.labels(Zoom(1));
            assert!(
                !labels.is_empty() && labels.windows(2).all(|two| two[0].0 + LABEL <= two[1].0),
                "{ms}: {labels:?}"
            );
            assert!(labels.iter().all(|(x, _)| x + LABEL <= WIDTH + 3), "{ms}: {labels:?}");
        }
    }

    #[test]
    fn a_bar_is_never_too_narrow_to_be_seen() {
        let scale = Scale { from: Time(0), ms: 10_000_000, width: WIDTH, now: Time(10_000_000) };
        assert_eq!(scale.bar(Span { from: Time(5_000_000), to: Some(Time(5_000_001)) }), (WIDTH / 2, 2));
        assert_eq!(scale.bar(Span { from: Time(0), to: None }), (0, WIDTH));
    }
}
