//! The history as a tree: each message below its cause.

use std::collections::BTreeMap;

use lastword_proto::MessageType;
use lastword_proto::wire::{StoredMessage, TreeNode};
use maud::{Markup, html};

use super::layout::{Moment, empty};
use super::parts::{badge, conversation, excerpt, foreign_line, number, time};
use super::work::{self, Work, duration};
use crate::calls::history::{History, HistoryEntry};
use crate::views;

type Works = BTreeMap<u64, Work>;

/// Shows the tree, and below it the refusals, which aren't messages.
pub(super) fn view(moment: &Moment, history: &History) -> Markup {
    let messages = history.lines.iter().filter_map(|line| line.event.message.clone()).collect();
    let works = work::of(&history.lines);
    let nodes = views::tree(messages);
    let refused: Vec<&HistoryEntry> = history.lines.iter().filter(|line| line.refusal.is_some()).collect();
    if nodes.is_empty() && refused.is_empty() {
        return empty("No messages yet.", &html! {});
    }
    html! {
        (branch(moment, &works, &nodes, &history.view.summary.reference))
        @if !refused.is_empty() {
            h2 { "Refused " span.count { (refused.len()) } }
            ul.lines { @for line in &refused { (refusal(moment, line)) } }
        }
    }
}

fn branch(moment: &Moment, works: &Works, nodes: &[TreeNode], reference: &str) -> Markup {
    html! {
        ul.tree {
            @for node in nodes {
                li {
                    (message(moment, works.get(&node.message.seq), &node.message, reference))
                    @if !node.children.is_empty() { (branch(moment, works, &node.children, reference)) }
                }
            }
        }
    }
}

fn message(moment: &Moment, work: Option<&Work>, message: &StoredMessage, reference: &str) -> Markup {
    html! {
        div.node id=(message.id) tabindex="-1" data-row {
            p.head {
                (badge(message.kind.word())) " "
                b { (foreign_line(&message.from)) } " → " b { (foreign_line(&message.to)) }
                @if message.reference != reference { " in " (conversation(&message.reference)) }
                @if let Some(action) = &message.action { " " code { "#" (foreign_line(action)) } }
                " " span.faint { "depth " (message.depth) ", hop " (message.hops) }
                @if let Some(status) = message.status { " " (badge(status.word())) }
                @if message.kind == MessageType::Request {
                    @if work.is_none_or(|work| work.status.is_none()) { " " (badge(message.delivery_state.word())) }
                }
                @if let Some(work) = work { (spent(work)) }
                " " (time(&message.created_at, moment.now))
            }
            p { a.plain data-open-row href={ "/messages/" (message.id) } {
                @if message.body.is_empty() { span.faint { "no text" } } @else { (excerpt(&message.body, 240)) }
            } }
        }
    }
}

fn spent(work: &Work) -> Markup {
    html! {
        span.faint {
            @if let Some(ms) = work.took_ms() { " · " (duration(ms)) }
            @if work.tokens > 0 { " · " (number(work.tokens)) " tokens" @if work.estimated { " (estimated)" } }
            @if work.attempts > 1 { " · " (work.attempts) " attempts" }
        }
    }
}

fn refusal(moment: &Moment, line: &HistoryEntry) -> Markup {
    html! {
        li data-row tabindex="-1" {
            (badge("refused")) " " b { (foreign_line(line.event.agent.as_deref().unwrap_or_default())) } " "
            @if let Some(problem) = &line.refusal {
                a data-open-row href={ "/messages/msg-" (line.event.seq) } { (foreign_line(&problem.detail)) }
                " " span.faint { "rule " (problem.rule) }
            }
            " " (time(&line.event.at, moment.now))
        }
    }
}
