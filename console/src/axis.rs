//! The time axis of a waterfall. Where all agents wait for long, the axis is broken: the wait is drawn narrow, with its
//! length, so that the work beside it stays visible.

use std::collections::BTreeMap;

use lastword_facts::Time;
use lastword_wire::rfc3339;

use super::parts::Shown;
use super::work::{Span, Works};

/// The width of the drawing without zoom, in pixels.
pub(super) const WIDTH: u64 = 560;
/// The width of a wait that is drawn narrow, in pixels.
pub(super) const BREAK: u64 = 56;
/// The most waits that are drawn narrow without zoom: half of the width is left for the work.
const BREAKS_MAX: u64 = WIDTH / BREAK / 2;
/// The room that a label of the axis takes, in pixels.
const LABEL: u64 = 84;
/// The most labels on the axis without zoom.
const TICKS_MAX: u64 = 6;
/// The distances between two labels, in ms.
const STEPS_MS: [u64; 23] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000,
    1_800_000, 3_600_000, 7_200_000, 21_600_000, 86_400_000,
];

/// A stretch of the axis, in ms from its begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    from: u64,
    to: u64,
}

impl Stretch {
    pub(super) const fn ms(self) -> u64 {
        self.to - self.from
    }
}

/// A mark or a label of the axis.
#[derive(Clone, Debug)]
pub(super) struct Tick {
    /// Its place, in pixels.
    pub(super) x: u64,
    /// The moment that it marks.
    pub(super) at: String,
    /// The parts of that moment which its label has.
    pub(super) shown: Shown,
}

/// The time that is drawn, and its width.
pub(super) struct Scale {
    from: Time,
    pub(super) ms: u64,
    pub(super) width: u64,
    now: Time,
    zoom: u64,
    /// The waits that are drawn narrow, in the order of time.
    pub(super) breaks: Vec<Stretch>,
}

impl Scale {
    pub(super) fn of(works: &Works, now: Time, zoom: u64) -> Self {
        let from = works.tasks.values().map(|work| work.asked).min().unwrap_or(now);
        let to = works.tasks.values().map(|work| work.answered.unwrap_or(now)).max().unwrap_or(now);
        let breaks = breaks(works, from, now, zoom);
        Self { from, ms: to.since(from).max(1), width: WIDTH * zoom, now, zoom, breaks }
    }

    /// Returns the time that is drawn to scale, in ms.
    fn flowing_ms(&self) -> u64 {
        (self.ms - self.waited_ms()).max(1)
    }

    /// Returns the time of the waits that are drawn narrow, in ms.
    pub(super) fn waited_ms(&self) -> u64 {
        self.breaks.iter().map(|wait| wait.ms()).sum()
    }

    pub(super) fn x(&self, at: Time) -> u64 {
        let at = at.since(self.from).min(self.ms);
        let (mut waited, mut narrow) = (0, 0);
        for wait in self.breaks.iter().filter(|wait| wait.from < at) {
            let part = at.min(wait.to) - wait.from;
            waited += part;
            narrow += scaled(part, BREAK, wait.ms());
        }
        let width = self.width - BREAK * self.breaks.len() as u64;
        (scaled(at - waited, width, self.flowing_ms()) + narrow).min(self.width)
    }

    /// Returns the begin and the width of a stretch, which is never too narrow to be seen.
    pub(super) fn bar(&self, span: Span) -> (u64, u64) {
        let (from, to) = (self.x(span.from), self.x(span.to.unwrap_or(self.now)));
        (from, to.saturating_sub(from).max(2))
    }

    /// Returns where a wait that is drawn narrow begins.
    pub(super) fn begin(&self, wait: Stretch) -> u64 {
        self.x(Time(self.from.0 + wait.from))
    }

    /// Returns the marks of the axis; a wait that is drawn narrow has none.
    pub(super) fn ticks(&self) -> Vec<Tick> {
        let max = TICKS_MAX * self.zoom;
        let last = STEPS_MS[STEPS_MS.len() - 1];
        let ms = self.flowing_ms();
        let step = STEPS_MS.into_iter().find(|step| ms / step <= max).unwrap_or(last * (ms / last / max + 1));
        let begins = std::iter::once(0).chain(self.breaks.iter().map(|wait| wait.to));
        let ends = self.breaks.iter().map(|wait| wait.from).chain([self.ms]);
        let moments = begins.zip(ends).flat_map(|(begin, end)| {
            let first = (self.from.0 + begin).div_ceil(step) * step;
            (0..).map(move |n| Time(first + n * step)).take_while(move |at| at.0 <= self.from.0 + end)
        });
        moments.map(|at| Tick { x: self.x(at), at: rfc3339(at), shown: shown(step) }).collect()
    }

    /// Returns the labels of the axis: right of its mark, or left of it where it would end outside. One that would cover the
    /// label before it, or the length of a wait, is left out.
    pub(super) fn labels(&self) -> Vec<Tick> {
        let waits: Vec<u64> = self.breaks.iter().map(|wait| self.begin(*wait)).collect();
        let covers = |x: u64| waits.iter().any(|begin| x < begin + BREAK && *begin < x + LABEL);
        let mut free = 0;
        let mut labels = Vec::new();
        for Tick { x, at, shown } in self.ticks() {
            let x = if x + LABEL > self.width { x.saturating_sub(LABEL) } else { x + 3 };
            if x >= free && !covers(x) {
                free = x + LABEL;
                labels.push(Tick { x, at, shown });
            }
        }
        labels
    }
}

/// Returns `part · width / whole`, in 128 bits, which can't overflow.
fn scaled(part: u64, width: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * u128::from(width) / u128::from(whole.max(1))).unwrap_or(width)
}

/// Returns the waits that are longer than all work together, in the order of time; the longest if there are too many.
fn breaks(works: &Works, from: Time, now: Time, zoom: u64) -> Vec<Stretch> {
    let (mut worked, mut waits) = (0, Vec::new());
    let (mut agents, mut last) = (0, 0);
    for (at, change) in changes(works, from, now) {
        let stretch = Stretch { from: last, to: at };
        if agents > 0 {
            worked += stretch.ms();
        } else {
            waits.push(stretch);
        }
        agents += change;
        last = at;
    }
    waits.retain(|wait| worked > 0 && wait.ms() > worked);
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.ms()));
    waits.truncate(usize::try_from(BREAKS_MAX * zoom).unwrap_or(usize::MAX));
    waits.sort_by_key(|wait| wait.from);
    waits
}

/// Returns by how many the number of agents that work changes at each moment, in ms from the begin. A turn that waits for a
/// human doesn't work. The moments of requests and answers are among them, because the axis isn't broken over one.
fn changes(works: &Works, from: Time, now: Time) -> BTreeMap<u64, i64> {
    let at = |time: Time| time.since(from);
    let mut changes: BTreeMap<u64, i64> = BTreeMap::new();
    let mut add = |begin: u64, end: u64, n: i64| {
        if begin < end {
            *changes.entry(begin).or_default() += n;
            *changes.entry(end).or_default() -= n;
        }
    };
    for work in works.tasks.values() {
        add(at(work.asked), at(work.answered.unwrap_or(now)), 0);
        for turn in &work.turns {
            let (begin, end) = (at(turn.span.from), at(turn.span.to.unwrap_or(now)));
            add(begin, end, 1);
            // Waits of one task may overlap; each moment counts once.
            let mut free = begin;
            for wait in &work.waits {
                let until = at(wait.to.unwrap_or(now)).min(end);
                add(at(wait.from).max(free), until, -1);
                free = free.max(until);
            }
        }
    }
    changes
}

const fn shown(step: u64) -> Shown {
    match step {
        86_400_000.. => Shown::Day,
        60_000.. => Shown::Minute,
        1_000.. => Shown::Second,
        _ => Shown::Millisecond,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::{Work, WorkTurn};

    fn scale(from: u64, ms: u64) -> Scale {
        Scale { from: Time(from), ms, width: WIDTH, now: Time(from + ms), zoom: 1, breaks: Vec::new() }
    }

    fn span(from: u64, to: u64) -> Span {
        Span { from: Time(from), to: Some(Time(to)) }
    }

    /// A request from 0 to 10 000 s: an agent works for 10 s at its begin and at its end, and for 10 s in the middle.
    fn waiting() -> Works {
        let turns = [(0, 10_000), (5_000_000, 5_010_000), (9_990_000, 10_000_000)];
        let turns = turns.map(|(from, to)| WorkTurn::at(span(from, to)));
        let work = Work { asked: Time(0), answered: Some(Time(10_000_000)), turns: turns.to_vec(), ..Work::default() };
        Works::with(work)
    }

    #[test]
    fn the_axis_has_labels_whatever_the_span() {
        for ms in [1, 900, 59_000, 3_700_000, 90_000_000, 900_000_000_000] {
            let scale = scale(1_700_000_000_123, ms);
            let ticks = scale.ticks();
            assert!(ticks.len() <= 8, "{ms}: {ticks:?}");
            assert!(ticks.iter().all(|tick| tick.x <= WIDTH && !tick.shown.of(&tick.at).is_empty()), "{ms}: {ticks:?}");
            let labels = scale.labels();
            assert!(!labels.is_empty() && labels.windows(2).all(|two| two[0].x + LABEL <= two[1].x), "{labels:?}");
            assert!(labels.iter().all(|label| label.x + LABEL <= WIDTH + 3), "{ms}: {labels:?}");
        }
    }

    #[test]
    fn a_bar_is_never_too_narrow_to_be_seen() {
        let scale = scale(0, 10_000_000);
        assert_eq!(scale.bar(span(5_000_000, 5_000_001)), (WIDTH / 2, 2));
        assert_eq!(scale.bar(Span { from: Time(0), to: None }), (0, WIDTH));
    }

    #[test]
    fn a_long_wait_is_drawn_narrow_and_the_work_fills_the_rest() {
        let scale = Scale::of(&waiting(), Time(10_000_000), 1);
        assert_eq!(scale.breaks, [Stretch { from: 10_000, to: 5_000_000 }, Stretch { from: 5_010_000, to: 9_990_000 }]);
        assert_eq!(scale.waited_ms(), 9_970_000);
        let work = (WIDTH - 2 * BREAK) / 3;
        assert!(scale.bar(span(0, 10_000)).1.abs_diff(work) <= 1, "{:?}", scale.bar(span(0, 10_000)));
        assert_eq!(scale.bar(span(10_000, 5_000_000)).1, BREAK);
        assert_eq!((scale.x(Time(0)), scale.x(Time(10_000_000))), (0, WIDTH));
        let all: Vec<u64> = (0..=1_000).map(|n| scale.x(Time(n * 10_000))).collect();
        assert!(all.is_sorted(), "time never runs backwards");
        assert!(scale.ticks().len() < 40 && !scale.labels().is_empty());
    }

    #[test]
    fn time_in_which_an_agent_works_is_to_scale_and_a_turn_that_waits_for_a_human_does_not_work() {
        let long = WorkTurn::at(span(0, 10_000_000));
        let asked = Work { answered: Some(Time(10_000_000)), turns: vec![long], ..Work::default() };
        assert_eq!(Scale::of(&Works::with(asked.clone()), Time(10_000_000), 1).breaks, []);
        // Two questions at once.
        let waits = vec![span(1_000, 9_000_000), span(2_000, 9_999_000)];
        let waits = Scale::of(&Works::with(Work { waits, ..asked }), Time(10_000_000), 1).breaks;
        assert_eq!(waits.iter().map(|wait| wait.ms()).sum::<u64>(), 9_998_000, "{waits:?}");
        let queued = Work { answered: Some(Time(10_000_000)), ..Work::default() };
        assert_eq!(Scale::of(&Works::with(queued), Time(10_000_000), 1).breaks, [], "no work is squeezed");
    }
}
