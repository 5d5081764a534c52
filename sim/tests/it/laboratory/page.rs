//! The page of a replay: each conversation as a strip of messages, with what they cost and added, and where it was cut.

use std::collections::BTreeMap;

use lastword_facts::stall::{Reading, Stall};
use lastword_facts::visible::escape;
use lastword_replay::{Played, Said, Trace};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::no_progress::verdicts::number;

/// The characters of a message that the page shows.
const EXCERPT_CHARS: usize = 160;
/// The tokens read again that one new word pays for (R5).
const PRICE_TOKENS: u64 = 200;
const STYLE: &str = include_str!("page.css");

/// The page, as far as conversations were added.
#[derive(Default)]
pub(super) struct ReplayPage {
    /// The strips of each class: those that were cut by the first rules come first.
    classes: BTreeMap<String, (Vec<Markup>, Vec<Markup>)>,
}

/// What one message added to its conversation.
struct Added {
    new_words: u64,
    dry: u64,
    context: u64,
}

impl ReplayPage {
    /// Adds a conversation with what came of it under each set of rules.
    pub(super) fn add(&mut self, trace: &Trace, outcomes: &[(&str, Played)]) {
        let (cut, went_on) = self.classes.entry(trace.class.clone()).or_default();
        let was_cut = outcomes.first().is_some_and(|(_, outcome)| outcome.cut.is_some());
        if was_cut { cut } else { went_on }.push(strip(trace, outcomes));
    }

    /// Returns the page.
    pub(super) fn html(self, names: &[&str]) -> String {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { "Replay" }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    h1 { "Replay of recorded conversations" }
                    (legend(names))
                    @for (class, (cut, went_on)) in self.classes {
                        section {
                            h2 { (class) " " small { (cut.len() + went_on.len()) " conversations" } }
                            @for one in &cut { (one) }
                            @if !went_on.is_empty() {
                                details open[cut.is_empty()] {
                                    summary { (went_on.len()) " that " @if let Some(first) = names.first() { (first) } " lets go on" }
                                    @for one in &went_on { (one) }
                                }
                            }
                        }
                    }
                }
            }
        }
        .into_string()
    }
}

fn legend(names: &[&str]) -> Markup {
    html! {
        dl.legend {
            dt { span.strip { i style="--c:20;--n:100" {} i style="--c:50;--n:50" {} i style="--c:90;--n:0" {} } }
            dd { "A bar is a message. Its height is what was read to write it: the whole conversation so far. "
                "Its color is what it added: green pays for its reading with new words, red says nothing new, gray has no text." }
            @for (n, name) in names.iter().enumerate() {
                dt { b.cut.{ "r" (n % 6) } { (n + 1) } }
                dd { "Here " strong { (name) } " cuts the conversation." }
            }
            dt { u {} }
            dd { "Here it begins to loop, as its recording says." }
        }
    }
}

fn strip(trace: &Trace, outcomes: &[(&str, Played)]) -> Markup {
    let added = added(trace);
    let most = added.last().map_or(1, |last| last.context.max(1));
    let end = outcomes.iter().filter_map(|(_, outcome)| outcome.cut.as_ref().map(|(at, _)| *at)).min();
    html! {
        article {
            h3 { (trace.conversation_id) }
            p.outcome {
                (trace.messages.len()) " messages, " (most) " tokens"
                @for (name, outcome) in outcomes { @if let Some(told) = told(name, outcome) { " · " (told) } }
            }
            div.strip role="img" aria-label={ (trace.messages.len()) " messages of " (trace.conversation_id) } {
                @for (i, (said, added)) in trace.messages.iter().zip(&added).enumerate() {
                    @if trace.onset == Some(i) { u title="onset" {} }
                    @for (n, (name, outcome)) in outcomes.iter().enumerate() {
                        @if let Some((at, code)) = &outcome.cut && *at == i {
                            b.cut.{ "r" (n % 6) } title={ (name) ": " (code) } { (n + 1) }
                        }
                    }
                    i.after[end.is_some_and(|end| i >= end)].unread[!trace.has_texts] style=(style(added, most)) title=(title(i, said, added)) {}
                }
            }
        }
    }
}

/// Says what some rules do to a conversation; `None` if they let it go on.
fn told(name: &str, outcome: &Played) -> Option<String> {
    let Played { cut, is_final, lifts, warned, held, .. } = outcome;
    let cut = cut.as_ref().map(|(at, code)| format!("{code} at {at}"));
    let times = if *lifts == 1 { "once" } else { &format!("{lifts} times") };
    let yes =
        (*lifts > 0).then(|| format!("a human says yes {times}{}", if *is_final { ", then it ends" } else { "" }));
    let [warned, held] =
        [("warns", warned), ("holds", held)].map(|(word, at)| at.map(|at| format!("R5 {word} at {at}")));
    let told: Vec<String> = [cut, yes, warned, held].into_iter().flatten().collect();
    (!told.is_empty()).then(|| format!("{name}: {}", told.join(", ")))
}

fn style(added: &Added, most: u64) -> String {
    let paid = added.new_words * PRICE_TOKENS * 100 / added.context.max(1);
    format!("--c:{};--n:{}", added.context * 100 / most, paid.min(100))
}

fn title(i: usize, said: &Said, added: &Added) -> String {
    let to = said.to.as_deref().unwrap_or("all");
    let text: String = said.text.chars().take(EXCERPT_CHARS).collect();
    let (from, Added { new_words, dry, context }) = (&said.from, added);
    let told = format!("{i} {from} → {to}: {new_words} new words for {context} tokens read, dry {dry}\n{text}");
    escape(&told)
}

/// Returns what each message added to the conversation, which is taken as one exchange.
fn added(trace: &Trace) -> Vec<Added> {
    let mut speakers: Vec<&str> = Vec::new();
    let mut stall = Stall::default();
    let (mut context, mut units) = (0, 0);
    let mut all = Vec::with_capacity(trace.messages.len());
    for said in &trace.messages {
        context += said.tokens;
        let from = number(&mut speakers, &said.from);
        let to = said.to.as_deref().map(|to| number(&mut speakers, to));
        stall.message(from, to, &Reading::of(&said.text, None));
        let curve = stall.curve();
        all.push(Added { new_words: curve.units - units, dry: curve.dry, context });
        units = curve.units;
    }
    all
}
