//! Small parts that many pages show: times, badges, bars, and texts of others.

use lastword_facts::Time;
use lastword_facts::fact::{Control, EndReason};
use lastword_facts::names::SYSTEM_NAME;
use lastword_facts::status::Running;
use lastword_facts::visible::escape;
use lastword_wire::call::json;
pub(super) use lastword_wire::money;
use lastword_wire::{Distance, StoredMessage, parse_rfc3339, rfc3339};
use maud::{Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::highlight::{Tone, coloured};
use crate::reads::decisions::RequestLink;
pub(super) use lastword_server::url;

const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The bytes of a folded text in one block: a browser lays out only the visible blocks.
const BLOCK_BYTES: usize = 8_000;

/// Encodes a text as one segment of a path or one value of a query.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// Formats `1 message`, `2 messages`.
pub(super) fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Shows a text of others on one line: escaped, with invisible characters made visible.
pub(super) fn foreign_line(text: &str) -> Markup {
    html! { (escape(text).replace('\n', "⏎")) }
}

/// Shows the beginning of a text of others on one line.
pub(super) fn excerpt(text: &str, chars: usize) -> Markup {
    let cut: String = text.chars().take(chars).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    html! { (foreign_line(&cut)) (more) }
}

/// Shows a text of others with its line ends; a long one is folded.
pub(super) fn foreign(text: &str) -> Markup {
    Fold::USUAL.escaped(&escape(text), "foreign")
}

/// Shows the reason that the agent gave in its answer. The broker's word for what ended the request says what its text does.
pub(super) fn reason_of(message: &StoredMessage) -> Markup {
    let by_broker = |why: &&str| match EndReason::from_word(why) {
        Some(EndReason::Answered | EndReason::Empty) => true,
        Some(_) => message.from == SYSTEM_NAME,
        None => false,
    };
    let own = message.reason.as_deref().filter(|why| !by_broker(why));
    html! { @if let Some(why) = own { (reason(&message.id, why)) } }
}

/// Shows the reason that an agent gave for a failure, on one line; a longer one unfolds.
pub(super) fn reason(id: &str, text: &str) -> Markup {
    const CHARS: usize = 160;
    let is_long = text.contains('\n') || text.chars().nth(CHARS).is_some();
    html! {
        @if is_long { details.why id={ (id) "-why" } { summary { "Reason: " (excerpt(text, CHARS)) } (foreign(text)) } }
        @else { p.why { span.faint { "Reason: " } (foreign_line(text)) } }
    }
}

/// Shows JSON; a long text is folded.
pub(super) fn code(value: &Value) -> Markup {
    Fold::USUAL.escaped(&json(&value.into()), "foreign code")
}

/// How much of a text is shown before the fold.
#[derive(Clone, Copy)]
pub(super) struct Fold {
    /// The most bytes before the fold.
    pub(super) bytes_max: usize,
    /// The most lines before the fold.
    pub(super) lines_max: usize,
}

impl Fold {
    /// The fold for most texts.
    pub(super) const USUAL: Self = Self { bytes_max: 1_200, lines_max: 24 };
    /// No fold.
    pub(super) const NONE: Self = Self { bytes_max: usize::MAX, lines_max: usize::MAX };

    /// Returns the number of lines behind the fold.
    pub(super) fn lines_unseen(self, text: &str) -> usize {
        text[cut(text, self.bytes_max, self.lines_max)..].lines().count()
    }

    /// Shows a text that is already escaped.
    pub(super) fn escaped(self, text: &str, class: &str) -> Markup {
        self.coloured(text, class, &[])
    }

    /// Shows a text that is already escaped, in these tones.
    pub(super) fn coloured(self, text: &str, class: &str, tones: &[Tone]) -> Markup {
        let (first, rest) = text.split_at(cut(text, self.bytes_max, self.lines_max));
        let unseen = rest.lines().count();
        html! {
            div class=(class) {
                pre { (coloured(first, 0, tones)) }
                @if unseen > 0 {
                    details.rest data-lines=(unseen) {
                        summary { "Show all (" (bytes(text.len() as u64)) "), " (plural(unseen as u64, "more line", "more lines")) }
                        div tabindex="-1" {
                            @for (from, block) in placed(first.len(), rest) { pre { (coloured(block, from, tones)) } }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the place of the cut, with at most so many bytes and lines before it; at the end of a line if one is near.
fn cut(text: &str, max_bytes: usize, max_lines: usize) -> usize {
    let lines = text.match_indices('\n').nth(max_lines.saturating_sub(1)).map_or(text.len(), |(at, _)| at + 1);
    if lines <= max_bytes {
        return lines;
    }
    let end = text.floor_char_boundary(max_bytes);
    match text[..end].rfind('\n') {
        Some(line) if line > end / 2 => line + 1,
        Some(_) | None => end,
    }
}

/// Returns the blocks of a text that begins at `at`, each with its begin.
fn placed(mut at: usize, text: &str) -> Vec<(usize, &str)> {
    let place = |block: &'_ str| {
        let from = at;
        at += block.len();
        from
    };
    let blocks = blocks(text);
    let begins: Vec<usize> = blocks.iter().copied().map(place).collect();
    begins.into_iter().zip(blocks).collect()
}

fn blocks(mut text: &str) -> Vec<&str> {
    let mut blocks = Vec::new();
    while !text.is_empty() {
        let (block, rest) = text.split_at(cut(text, BLOCK_BYTES, usize::MAX));
        blocks.push(block);
        text = rest;
    }
    blocks
}

/// Formats a size for humans.
pub(super) fn bytes(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} bytes"),
        1_000..10_000_000 => format!("{} kB", number(n.div_ceil(1_000))),
        _ => format!("{} MB", number(n.div_ceil(1_000_000))),
    }
}

/// Shows a time relative to now, with the exact time as its tooltip. The script keeps it current with the same words.
pub(super) fn time(moment: &str, now: Time) -> Markup {
    let words = parse_rfc3339(moment).map_or_else(|| moment.to_owned(), |at| relative(at, now));
    html! { time datetime=(moment) title=(utc(moment)) data-relative { (words) } }
}

/// Returns a moment in full.
pub(super) fn utc(moment: &str) -> String {
    moment.replace('T', " ").replace('Z', " UTC")
}

/// The parts of a moment that are shown. The script shows the same parts in the browser's time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Its day of the month.
    Day,
    /// Its hour and minute.
    Minute,
    /// Its time to the second.
    Second,
    /// Its time to the millisecond.
    Millisecond,
    /// Its date, hour and minute.
    DateAndMinute,
    /// Its date, and its time to the second.
    DateAndSecond,
}

impl Shown {
    /// All that can be shown of a moment, as the script makes it.
    const ALL: &'static str = "YYYY-MM-DD HH:mm:ss.SSS";

    /// Returns the parts as the script reads them.
    pub(super) const fn pattern(self) -> &'static str {
        match self {
            Self::Day => "MM-DD",
            Self::Minute => "HH:mm",
            Self::Second => "HH:mm:ss",
            Self::Millisecond => "HH:mm:ss.SSS",
            Self::DateAndMinute => "YYYY-MM-DD HH:mm",
            Self::DateAndSecond => "YYYY-MM-DD HH:mm:ss",
        }
    }

    /// Returns these parts of a moment, in UTC.
    pub(super) fn of(self, moment: &str) -> String {
        let at = Self::ALL.find(self.pattern()).unwrap_or_default();
        moment.get(at..at + self.pattern().len()).unwrap_or(moment).replace('T', " ")
    }
}

/// Shows a moment, which the script puts into the browser's time zone.
pub(super) fn local(moment: &str, shown: Shown) -> Markup {
    html! { time datetime=(moment) title=(utc(moment)) data-local=(shown.pattern()) { (shown.of(moment)) " UTC" } }
}

/// Shows the hour and minute of a moment, which the script puts into the browser's time zone.
pub(super) fn clock(at: Time) -> Markup {
    local(&rfc3339(at), Shown::Minute)
}

/// Names the time zone of the times beside it: UTC, until the script puts them into the browser's.
pub(super) fn zone() -> Markup {
    html! { span data-zone { "UTC" } }
}

/// Shows a time relative to now, and the exact time beside it.
pub(super) fn exactly(moment: &str, now: Time) -> Markup {
    html! { (time(moment, now)) ", " span.faint { (local(moment, Shown::DateAndSecond)) } }
}

/// Shows the clock time of a moment, with its date if that isn't today.
pub(super) fn clock_time(moment: &str, now: Time) -> Markup {
    let today = moment.split_once('T').is_some_and(|(date, _)| rfc3339(now).starts_with(date));
    local(moment, if today { Shown::Second } else { Shown::DateAndSecond })
}

/// Shows the time left until a moment, by the second. The script keeps it current with the same words.
pub(super) fn countdown(until: Time, now: Time) -> Markup {
    let exact = rfc3339(until);
    let left = until.since(now);
    html! {
        time.countdown.near[left < NEAR_MS].soon[left < SOON_MS] datetime=(exact) title={ "expires at " (utc(&exact)) } data-countdown {
            (remaining(left))
        }
    }
}

/// The times left from which on a countdown is marked.
const NEAR_MS: u64 = 300_000;
const SOON_MS: u64 = 60_000;

fn remaining(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0..60 => format!("{seconds} s left"),
        60..3_600 => format!("{} min {} s left", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min left", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h left", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Shows what was spent: tokens, and the cost if one was reported.
pub(super) fn spent(tokens: u64, estimated: bool, microusd: u64) -> Markup {
    html! {
        span.spent {
            @if estimated { (about()) } (self::tokens(tokens)) " tokens"
            @if microusd > 0 { ", " b { (money(microusd)) } }
        }
    }
}

/// Stands before tokens that are no exact number, and says why.
pub(super) fn about() -> Markup {
    html! { abbr title="At least in part estimated: an agent reported no tokens, or stopped responding before its turn ended" { "≈" } " " }
}

fn relative(at: Time, now: Time) -> String {
    let (ms, ahead) = if at > now { (at.since(now), true) } else { (now.since(at), false) };
    let seconds = ms / 1000;
    let text = match seconds {
        0..10 if !ahead => return "just now".into(),
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    };
    if ahead { format!("in {text}") } else { format!("{text} ago") }
}

/// Shows a state in a colour that fits it.
pub(super) fn badge(word: &str) -> Markup {
    let tone = match word {
        "active" | "working" | "connected" | "approve" | "chosen" | "open" | "completed" | "approved" | "answered"
        | "approved and made" | "settled" => "good",
        "pending"
        | "paused"
        | "budget used up"
        | "waiting for you"
        | "waiting for a human"
        | "waiting for an approver"
        | "timed out"
        | "partial"
        | "warning"
        | "urgent"
        | "high" => "warn",
        "stopped" | "held" | "down" | "rejected" | "failed" | "refused" | "expired" | "timed_out" | "exhausted"
        | "alert" => "bad",
        _ => "plain",
    };
    html! { span class={ "badge " (tone) } { (word.replace('_', " ")) } }
}

/// Returns the word for whether an agent, conversation or the workspace runs.
pub(super) const fn running_word(state: Running) -> &'static str {
    match state {
        Running::Active => "active",
        Running::Paused => "paused",
        Running::Stopped => "stopped",
    }
}

/// Returns the word for the state after a control.
pub(super) const fn done_word(control: Control) -> &'static str {
    match control {
        Control::Pause => "paused",
        Control::Resume => "resumed",
        Control::Stop => "stopped",
    }
}

/// Returns a link to a conversation.
pub(super) fn conversation(reference: &str) -> Markup {
    html! { a.ref href={ (url("/conversations/")) (encoded(reference)) } { (foreign_line(reference)) } }
}

/// Returns a link to a room.
pub(super) fn room(name: &str) -> Markup {
    html! { a href={ (url("/rooms/")) (encoded(name)) } { (foreign_line(name)) } }
}

/// Shows a name; the viewer's own as "you".
pub(super) fn or_you(name: &str, own: &str) -> Markup {
    if name == own {
        html! { "you" }
    } else {
        foreign_line(name)
    }
}

/// Shows the requests of a chain, from the root on.
pub(super) fn links(chain: &[RequestLink], own: &str) -> Markup {
    html! {
        @for (index, link) in chain.iter().enumerate() {
            @if index > 0 { span.faint { " › " } }
            (conversation(&link.reference)) " "
            span.faint {
                @match &link.from {
                    Some(from) => { (or_you(from, own)) " asked " (foreign_line(&link.to)) }
                    None => { (foreign_line(&link.to)) " began" }
                }
            }
        }
    }
}

/// Whether half of a limit is used: one that is far away says nothing.
pub(super) fn is_near(distance: &Distance) -> bool {
    distance.current.saturating_mul(2) >= distance.limit
}

/// Shows the used share of a limit as a bar, with its name and numbers.
pub(super) fn bar(distance: &Distance) -> Markup {
    let name = limit_words(&distance.name);
    html! {
        span.bar title=(distance.name) {
            (share(name, distance.current, distance.limit))
            span.numbers { (name) " " (numbers(&distance.name, distance.current, distance.limit))
                @if distance.estimated { " (estimated)" } }
        }
    }
}

/// Returns words with a capital at their begin.
pub(super) fn capital(words: &str) -> String {
    let mut chars = words.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Returns what a limit counts, in words; a limit that no bar shows keeps its name.
pub(super) fn limit_words(name: &str) -> &str {
    const WORDS: &[(&str, &str)] = &[
        ("depth_max", "depth"),
        ("turns_soft_max", "soft turn limit"),
        ("turns_hard_max", "hard turn limit"),
        ("hops_max", "hops"),
        ("task_requests_max", "requests of a task"),
        ("grant_messages_max", "messages"),
        ("grant_turns_max", "turns"),
        ("grant_agents_max", "agents"),
        ("grant_tokens_max", "tokens"),
        ("grant_cost_microusd_max", "cost"),
        ("grant_age_ms", "time"),
        ("sender_messages_max", "messages sent"),
        ("pair_messages_max", "messages to one agent"),
        ("fan_out_targets_max", "recipients at once"),
        ("roots_per_hour_max", "own roots per hour"),
        ("root_messages_per_day_max", "messages of own roots today"),
        ("agent_day_tokens_max", "tokens today"),
        ("agent_day_cost_microusd_max", "cost today"),
        ("agent_day_bytes_max", "bytes today"),
    ];
    WORDS.iter().find(|(known, _)| *known == name).map_or(name, |(_, words)| words)
}

/// Shows the bar without the name.
pub(super) fn bar_of(name: &str, current: u64, limit: u64) -> Markup {
    html! { span.bar { (share(name, current, limit)) span.numbers { (numbers(name, current, limit)) } } }
}

fn share(name: &str, current: u64, limit: u64) -> Markup {
    let tone = if current >= limit {
        "bad"
    } else if current.saturating_mul(4) >= limit.saturating_mul(3) {
        "warn"
    } else {
        "good"
    };
    html! { progress class=(tone) max=(limit.max(1)) value=(current.min(limit.max(1))) aria-label=(name) {} }
}

fn numbers(name: &str, current: u64, limit: u64) -> Markup {
    if name.contains("microusd") {
        return html! { (quantity("microusd", current)) "/" (quantity("microusd", limit)) };
    }
    if name.contains("bytes") {
        return html! { (bytes(current)) "/" (bytes(limit)) };
    }
    if name.contains("tokens") {
        return html! { (tokens(current)) "/" (tokens(limit)) };
    }
    html! { (number(current)) "/" (number(limit)) }
}

/// Formats a number for humans, in the unit that the end of a limit's name indicates.
pub(super) fn quantity(name: &str, n: u64) -> String {
    let plain = name.trim_end_matches("_max");
    if plain.ends_with("microusd") {
        return if n == 0 && name != "microusd" { "none".into() } else { money(n) };
    }
    if plain.ends_with("percent") {
        return format!("{n} %");
    }
    if plain.ends_with("bytes") {
        return format!("{} bytes", number(n));
    }
    if !plain.ends_with("_ms") {
        return number(n);
    }
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    let whole = units.iter().find(|(ms, _)| n > 0 && n.is_multiple_of(*ms));
    whole.map_or_else(|| format!("{} ms", number(n)), |(ms, unit)| format!("{} {unit}", number(n / ms)))
}

/// Shows a number of tokens; a long one in millions, with the exact value as its tooltip.
pub(super) fn tokens(n: u64) -> Markup {
    let millions = match n {
        0..1_000_000 => return html! { (number(n)) },
        1_000_000..10_000_000 => format!("{}.{:02}", n / 1_000_000, n / 10_000 % 100),
        10_000_000..100_000_000 => format!("{}.{}", n / 1_000_000, n / 100_000 % 10),
        _ => number(n / 1_000_000),
    };
    html! { span title=(number(n)) { (millions) "\u{202f}M" } }
}

/// Formats a number with its thousands separated.
pub(super) fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_folded_and_nothing_of_it_is_lost() {
        let text = "ä\n".repeat(100_000);
        let Fold { bytes_max, lines_max } = Fold::USUAL;
        let at = cut(&text, bytes_max, lines_max);
        assert_eq!(text[..at].lines().count(), lines_max);
        assert_eq!(Fold::USUAL.lines_unseen(&text), 100_000 - lines_max);
        assert_eq!(blocks(&text[at..]).concat(), text[at..]);
        assert_eq!(blocks(&"ä".repeat(20_000)).concat().len(), 40_000);
        assert_eq!(cut("short", bytes_max, lines_max), 5);
        assert!(foreign(&text).into_string().contains("Show all (300 kB), 99976 more lines"));
    }

    #[test]
    fn what_others_write_is_inert() {
        let shown = foreign("<img src=x onerror=alert(1)>\u{202e}\u{1b}[2J").into_string();
        assert!(shown.contains("&lt;img src=x onerror=alert(1)&gt;\\u{202e}\\u{1b}[2J"), "{shown}");
        assert_eq!(encoded("LOGIN-1/1"), "LOGIN-1%2F1");
    }

    #[test]
    fn numbers_are_told_in_their_unit() {
        for (name, n, told) in [
            ("depth_max", 5, "5"),
            ("lease_ms", 600_000, "10 min"),
            ("grant_age_ms", 86_400_000, "1 d"),
            ("eta_ms_max", 1_500, "1\u{202f}500 ms"),
            ("body_bytes_max", 262_144, "262\u{202f}144 bytes"),
            ("grant_cost_microusd_max", 0, "none"),
            ("grant_cost_microusd_max", 2_500_000, "$2.50"),
            ("budget_warning_percent", 80, "80 %"),
        ] {
            assert_eq!(quantity(name, n), told);
        }
    }

    #[test]
    fn many_tokens_are_told_in_millions_with_the_exact_value_beside() {
        assert_eq!(tokens(999_999).into_string(), "999\u{202f}999");
        let told = |n| tokens(n).into_string();
        assert_eq!(told(1_124_999), "<span title=\"1\u{202f}124\u{202f}999\">1.12\u{202f}M</span>");
        assert!(told(12_345_678).contains(">12.3\u{202f}M<") && told(123_456_789).contains(">123\u{202f}M<"));
        assert!(
            spent(1_050_000, true, 0)
                .into_string()
                .contains("≈</abbr> <span title=\"1\u{202f}050\u{202f}000\">1.05\u{202f}M</span> tokens")
        );
    }

    #[test]
    fn what_is_left_is_told_in_two_units() {
        let told = [
            (59_999, "59 s left"),
            (61_000, "1 min 1 s left"),
            (7_260_000, "2 h 1 min left"),
            (90_000_000, "1 d 1 h left"),
        ];
        for (ms, words) in told {
            assert_eq!(remaining(ms), words);
        }
    }

    #[test]
    fn a_countdown_has_a_colour_in_its_last_minutes_and_another_in_the_last_one() {
        let class = |left| {
            let shown = countdown(Time(left), Time(0)).into_string();
            shown.split('"').nth(1).unwrap_or_default().to_owned()
        };
        assert_eq!([class(3_600_000), class(NEAR_MS)], ["countdown"; 2]);
        assert_eq!([class(NEAR_MS - 1), class(60_000)], ["countdown near"; 2]);
        assert_eq!([class(59_999), class(0)], ["countdown near soon"; 2]);
    }

    #[test]
    fn a_moment_is_shown_in_utc_with_all_that_the_script_needs_to_show_it_in_another_zone() {
        let moment = "2026-05-12T07:08:09.123Z";
        for (shown, told) in [
            (Shown::Day, "05-12"),
            (Shown::Minute, "07:08"),
            (Shown::Second, "07:08:09"),
            (Shown::Millisecond, "07:08:09.123"),
            (Shown::DateAndMinute, "2026-05-12 07:08"),
            (Shown::DateAndSecond, "2026-05-12 07:08:09"),
        ] {
            assert_eq!(shown.of(moment), told);
        }
        let told = "<time datetime=\"2026-05-12T07:08:09.123Z\" title=\"2026-05-12 07:08:09.123 UTC\" data-local=\"HH:mm\">07:08 UTC</time>";
        assert_eq!(local(moment, Shown::Minute).into_string(), told);
    }

    #[test]
    fn times_are_told_as_long_ago() {
        let now = Time(100_000_000);
        for (at, told) in
            [(99_999_000, "just now"), (99_970_000, "30 s ago"), (100_290_000, "in 4 min"), (10_000_000, "1 d ago")]
        {
            assert_eq!(relative(Time(at), now), told);
        }
    }
}
