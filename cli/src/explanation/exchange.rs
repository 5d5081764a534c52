//! Formats an exchange that makes no progress: its numbers message by message, and which messages repeat which (R5).

use std::collections::BTreeMap;

use lastword_client::wire::{ExchangeLine, ExchangeVerdict, ExchangeView};
use lastword_facts::stall::{SAME_MAX, StallCause};

use super::{head, indented, plain};
use crate::out::{StyledLine, Tone, cut, escape_line};

/// The heights of a column that shows how dry an exchange is.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The columns of an agent's name.
const NAME: usize = 10;
/// The most messages whose texts are shown because later ones repeat them.
const REPEATED_MAX: usize = 3;
/// The columns of a line.
const COLUMNS: usize = 100;

/// Formats the whole exchange, in lines of at most 100 columns.
pub(super) fn lines(told: &ExchangeView) -> Vec<StyledLine> {
    let between = format!("exchange of {} and {}", escape_line(&told.asker), escape_line(&told.delegate));
    let mut lines = vec![head(&between), indented(Tone::Plain, told.summary.clone())];
    let (dry, warn, hold) = (messages(told.dry_millis), messages(told.warn_at_millis), messages(told.hold_at_millis));
    let limits = format!("dry {dry} messages; a warning is due at {warn}, a hold at {hold} (R5)");
    lines.push(indented(Tone::Plain, limits));
    let stuck = told.lines.iter().find(|line| line.reason == Some(StallCause::Stuck));
    if let Some(verdict) = stuck.and_then(|line| line.verdict) {
        let text = format!("{}: the same message {SAME_MAX} times in a row", word(verdict).0);
        lines.push(indented(word(verdict).1, text));
    }
    if told.unread > 0 {
        let text =
            format!("the first {} messages can't be read, so these numbers count from the first line", told.unread);
        lines.push(indented(Tone::Warn, text));
    }
    if told.omitted > 0 {
        lines.push(indented(Tone::Faint, format!("the first {} messages aren't listed", told.omitted)));
    }
    let (id, from, to) = ("message", "from", "to");
    let route = format!("{from:NAME$}   {to:NAME$}");
    let heading = format!("{id:10} {route} {:>7} {:>5} {:>5}   {:10}  repeats", "tokens", "new", "dry", "");
    lines.push(indented(Tone::Faint, heading));
    lines.extend(told.lines.iter().map(|line| row(line, told.hold_at_millis)));
    lines.extend(said_again(told));
    lines.into_iter().map(|line| cut(line, COLUMNS)).collect()
}

fn row(line: &ExchangeLine, hold_at: u64) -> StyledLine {
    let route = format!("{} → {}", name(&line.from), name(&line.to));
    let (word, tone) = line.verdict.map_or(("", Tone::Plain), word);
    let dry = messages(line.dry_millis);
    let numbers = format!("{:10} {route} {:>7} {:>5} {dry:>5} ", line.id, line.context_tokens, line.new_units);
    let repeats = line.repeats.as_ref().map_or_else(String::new, |repeats| {
        if repeats.same {
            format!("= {}", repeats.id)
        } else {
            format!("~ {} {}/{}", repeats.id, repeats.units, repeats.of)
        }
    });
    let mut cells = vec![plain("  "), plain(numbers), (tone, column(line.dry_millis, hold_at).to_string())];
    match (word.is_empty(), repeats.is_empty()) {
        (true, true) => {}
        (false, true) => cells.push((tone, format!(" {word}"))),
        (_, false) => cells.extend([(tone, format!(" {word:10}  ")), (Tone::Faint, repeats)]),
    }
    cells
}

const fn word(verdict: ExchangeVerdict) -> (&'static str, Tone) {
    match verdict {
        ExchangeVerdict::Warned => ("warned", Tone::Warn),
        ExchangeVerdict::WouldWarn => ("would warn", Tone::Warn),
        ExchangeVerdict::Held => ("held", Tone::Bad),
        ExchangeVerdict::WouldHold => ("would hold", Tone::Bad),
    }
}

/// Formats thousandths of messages as messages with one decimal.
fn messages(millis: u64) -> String {
    format!("{}.{}", millis / 1_000, millis % 1_000 / 100)
}

/// Returns a column whose height is the share of the dry messages at which an exchange is held.
fn column(dry: u64, hold_at: u64) -> char {
    let height = dry.saturating_mul(HEIGHTS.len() as u64 - 1) / hold_at.max(1);
    usize::try_from(height).ok().and_then(|height| HEIGHTS.get(height)).copied().unwrap_or('█')
}

/// Returns a name in exactly the columns of a name.
fn name(name: &str) -> String {
    let short: String = cut(vec![plain(escape_line(name))], NAME).into_iter().map(|(_, text)| text).collect();
    format!("{short:NAME$}")
}

/// Lists the messages that later ones repeat most, and how often, with their texts.
fn said_again(told: &ExchangeView) -> Vec<StyledLine> {
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    for repeats in told.lines.iter().filter_map(|line| line.repeats.as_ref()) {
        *times.entry(&repeats.id).or_default() += 1;
    }
    if times.is_empty() {
        return vec![];
    }
    let mut lines = vec![
        indented(Tone::Faint, "= the same text, ~ this many of its words; tokens: read with the message".to_owned()),
        head("said again"),
    ];
    let text_of = |id: &str| told.lines.iter().find(|line| line.id == id).and_then(|line| line.excerpt.as_deref());
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    for (id, times) in times.into_iter().take(REPEATED_MAX) {
        let text = text_of(id).map(|text| format!(" \"{}\"", escape_line(text))).unwrap_or_default();
        let often = if times == 1 { "once".to_owned() } else { format!("{times} times") };
        lines.push(vec![plain(format!("  {id}, {often}:")), (Tone::Strong, text)]);
    }
    lines
}
