//! An exchange that makes no progress: what was said again and again, message by message (R5).

use lastword_facts::fact::{Part, Recipient, Stalled};
use lastword_facts::ids::TaskId;
use lastword_facts::{Fact, Seq};
use lastword_server::calls::{Caller, exchanges};
use lastword_server::{ApiError, Context};
use lastword_wire::{ExchangeLine, ExchangeVerdict, ExchangeView};
use maud::{Markup, html};

use super::parts::{badge, excerpt, foreign_line, number, url};
use crate::reads::history::HistoryEntry;

/// The most exchanges of one history that are explained.
const SHOWN_MAX: usize = 8;
/// The characters that are shown of a message.
const EXCERPT_CHARS: usize = 100;

/// Returns the exchanges of a history that R5 warned of or held, or would have, each with the task that asks; at most
/// [`SHOWN_MAX`], the newest ones.
pub(super) async fn in_history(
    ctx: &Context,
    caller: Caller,
    history: &[HistoryEntry],
) -> Result<Vec<(TaskId, ExchangeView)>, ApiError> {
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for (at, line) in history.iter().enumerate().rev() {
        let Fact::Stalled(Stalled { task, agent, .. }) = &line.entry.fact else { continue };
        if seen.contains(&(*task, *agent)) || found.len() >= SHOWN_MAX {
            continue;
        }
        seen.push((*task, *agent));
        let of_pair = |line: &&HistoryEntry| match exchanges::message_of(&line.entry) {
            Some(message) if message.part.is_request() => {
                message.sender_task == Some(*task) && message.to == Recipient::One(*agent)
            }
            Some(message) => message.from == *agent && matches!(message.part, Part::Answer(_)),
            None => false,
        };
        let Some(last) = history[..at].iter().rfind(of_pair) else { continue };
        let Some(message) = exchanges::message_of(&last.entry) else { continue };
        let view = exchanges::of_message(ctx, caller, Seq(last.event.seq), message).await?;
        found.extend(view.map(|view| (*task, view)));
    }
    Ok(found)
}

/// Shows an exchange as a table.
pub(super) fn table(told: &ExchangeView) -> Markup {
    let caption = format!("The exchange of {} and {}", told.asker, told.delegate);
    html! {
        h2 { (foreign_line(&caption)) }
        p { (told.summary) ". Dry counts messages that brought nothing: a warning is due at " (tenths(told.warn_at_millis))
            ", a hold at " (tenths(told.hold_at_millis)) "." }
        @if told.unread > 0 {
            p { "The first " (told.unread) " messages can't be read, so the numbers below count from the first line." }
        }
        @if told.omitted > 0 { p.faint { "The first " (told.omitted) " messages aren't listed." } }
        div.table tabindex="0" role="region" aria-label="The exchange" {
            table {
                thead { tr { th scope="col" { "Message" } th scope="col" { "Dry" } th scope="col" { "New" } th scope="col" { "Tokens read" } th scope="col" { "Text" } } }
                tbody { @for line in &told.lines { (row(line, told.hold_at_millis)) } }
            }
        }
    }
}

fn row(line: &ExchangeLine, hold_at: u64) -> Markup {
    html! {
        tr {
            th scope="row" { a href={ (url("/messages/")) (line.id) } { (line.id) }
                div.faint { (foreign_line(&line.from)) " → " (foreign_line(&line.to)) } }
            td { (dry(line.dry_millis, hold_at))
                @if let Some(verdict) = line.verdict { div { (badge(word(verdict))) } } }
            td { (number(line.new_units)) }
            td { (number(line.context_tokens)) }
            td {
                @if let Some(text) = &line.excerpt { (excerpt(text, EXCERPT_CHARS)) }
                @if let Some(repeats) = &line.repeats {
                    div.faint {
                        @if repeats.same { "the same text as " } @else { (repeats.units) " of " (repeats.of) " words as in " }
                        a href={ (url("/messages/")) (repeats.id) } { (repeats.id) }
                    }
                }
            }
        }
    }
}

/// Shows dry messages as a share of those at which an exchange is held.
fn dry(millis: u64, hold_at: u64) -> Markup {
    let tone = if millis >= hold_at {
        "bad"
    } else if millis * 2 >= hold_at {
        "warn"
    } else {
        "good"
    };
    html! {
        span.bar { progress class=(tone) max=(hold_at.max(1)) value=(millis.min(hold_at)) aria-label="dry" {}
            span.numbers { (tenths(millis)) } }
    }
}

const fn word(verdict: ExchangeVerdict) -> &'static str {
    match verdict {
        ExchangeVerdict::Warned => "warned",
        ExchangeVerdict::Held => "held",
        ExchangeVerdict::WouldWarn => "would warn",
        ExchangeVerdict::WouldHold => "would hold",
    }
}

/// Formats thousandths with one place.
pub(super) fn tenths(millis: u64) -> String {
    format!("{}.{}", millis / 1_000, millis % 1_000 / 100)
}
