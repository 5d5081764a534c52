//! What happened: messages by the hour, refusals by rule, and the conversations by what they do.

use lastword_store::CodeCount;
use lastword_wire::rfc3339;
use maud::{Markup, html};

use super::parts::{Shown, number, plural, quantity, url, utc, zone};
use super::terms::told;
use crate::reads::figures::Figures;

/// Shows the figures.
pub(super) fn activity(figures: &Figures) -> Markup {
    let sums = &figures.sums;
    html! {
        h2 #activity { "Activity " span.faint { (number(sums.messages.all)) " messages, " (number(sums.messages.since)) " in the last 24 h" } }
        section.panels {
            (hours(figures))
            (conversations(figures))
            (refusals(&sums.refused, sums.observed.iter().map(|code| code.count.all).sum()))
        }
    }
}

/// The width of a bar of the chart, and of the bar with its gap.
const BAR: (usize, usize) = (16, 20);
const CHART_HEIGHT: u64 = 96;

fn hours(figures: &Figures) -> Markup {
    let most = figures.hours.iter().map(|(_, n)| *n).max().unwrap_or_default();
    let label =
        format!("Messages by the hour: {} in the last 24 hours, at most {} in one", figures.sums.messages.since, most);
    html! {
        article.card.wide {
            h2 { "Messages by the hour" }
            svg.chart viewBox={ "0 0 " (figures.hours.len() * BAR.1) " " (CHART_HEIGHT + 18) } role="img" aria-label=(label) {
                line.grid x1="0" y1="0.5" x2=(figures.hours.len() * BAR.1) y2="0.5" {}
                line.grid x1="0" y1=(CHART_HEIGHT / 2) x2=(figures.hours.len() * BAR.1) y2=(CHART_HEIGHT / 2) {}
                text x="2" y="12" { (number(most)) }
                @for (index, (at, n)) in figures.hours.iter().enumerate() {
                    @let height = height(*n, most);
                    rect x=(index * BAR.1) y=(CHART_HEIGHT - height) width=(BAR.0) height=(height.max(1)) class=[(*n == 0).then_some("none")] {
                        title { (utc(&rfc3339(*at))) ": " (n) }
                    }
                    @if index % 3 == 0 { text.below x=(index * BAR.1) y=(CHART_HEIGHT + 5) data-at=(rfc3339(*at)) data-local=(Shown::Minute.pattern()) { (Shown::Minute.of(&rfc3339(*at))) } }
                }
            }
            p.faint { "Times are in " (zone()) "; at most " (number(most)) " in one hour. The last bar is the current hour." }
        }
    }
}

fn height(n: u64, most: u64) -> u64 {
    // A value above zero is never drawn as zero.
    if n == 0 { 0 } else { (n * CHART_HEIGHT).checked_div(most).unwrap_or_default().max(2) }
}

/// The most rules in a list.
const RULES_MAX: usize = 8;

/// Shows what the rules refused. What that work would have cost is unknown, so it isn't shown.
fn refusals(codes: &[CodeCount], observed: u64) -> Markup {
    let mut codes: Vec<&CodeCount> = codes.iter().collect();
    codes.sort_by_key(|code| std::cmp::Reverse(code.count.all));
    let most = codes.first().map_or(1, |code| code.count.all);
    html! {
        article.card.wide {
            h2 { "Refusals by rule" }
            @if codes.is_empty() { p.faint { "No message was refused." } }
            ul.measures {
                @for code in codes.iter().take(RULES_MAX) {
                    li {
                        a href={ (url("/messages/msg-")) (code.last.0) } title="Latest" { (told(code.code)) }
                        b { (number(code.count.all)) }
                        progress max=(most) value=(code.count.all) aria-label={ (told(code.code)) ", of the most frequent" } {}
                    }
                }
            }
            @if codes.len() > RULES_MAX { p.faint { "and " (codes.len() - RULES_MAX) " other codes" } }
            p.faint { "A refused message wakes no agent. The work that it would have caused is unknown, so no saved tokens or cost are shown." }
            @if observed > 0 { p.faint { "Guards that observe would have refused " (plural(observed, "more message", "more messages")) "." } }
        }
    }
}

fn conversations(figures: &Figures) -> Markup {
    let now = &figures.standing;
    let rows = [
        ("Active", "/conversations?state=active", now.active, "good"),
        ("Ended", "/conversations?state=idle", now.ended, "plain"),
        ("Held by a limit", "/conversations?state=latched", now.held, "bad"),
        ("Paused by a human", "/conversations?state=paused", now.paused, "warn"),
        ("Stopped by a human", "/conversations?state=stopped", now.stopped, "bad"),
    ];
    let most = rows.iter().map(|row| row.2).max().unwrap_or_default().max(1);
    html! {
        article.card {
            h2 { "Conversations" }
            ul.measures {
                @for (name, to, n, class) in rows {
                    li { a href=(url(to)) { (name) } b { (number(n)) } progress class=(class) max=(most) value=(n) aria-label=(name) {} }
                }
            }
            p.faint { "Child conversations are counted, too. " (plural(now.open.conversations, "conversation has", "conversations have")) " open work, held and paused ones included. A conversation without open work leaves this list after " (quantity("retention_ms", now.retention_ms)) " and stays in the log." }
        }
    }
}
