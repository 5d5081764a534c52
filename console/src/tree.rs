//! The history as a tree: each message below its cause.

use lastword_facts::{MessageType, Seq};
use lastword_server::views;
use lastword_wire::{StoredMessage, TreeNode};
use maud::{Markup, html};

use super::layout::{Moment, empty};
use super::pages::in_tree;
use super::parts::{badge, conversation, excerpt, foreign_line, spent, time, url};
use super::terms::told_of;
use super::work::{Mark, Work, Works, duration};
use crate::reads::history::{History, HistoryEntry};

/// What all nodes of a tree are shown with.
struct Showing<'a> {
    moment: &'a Moment,
    history: &'a History,
    works: Works,
}

/// Shows the tree. What was refused, held and asked stands below the request in whose turn it happened; refusals outside
/// of every turn follow below.
pub(super) fn view(moment: &Moment, history: &History) -> Markup {
    let messages = history.page_lines().iter().filter_map(|line| line.event.message.clone()).collect();
    let showing = Showing { moment, history, works: Works::of(history) };
    let nodes = views::tree(messages);
    let outside: Vec<&HistoryEntry> = showing.works.outside.iter().filter_map(|at| history.lines.get(*at)).collect();
    if nodes.is_empty() && outside.is_empty() {
        let words =
            if history.page.total == 0 { "No messages yet." } else { "No messages in this part of the history." };
        return empty(words, &html! {});
    }
    html! {
        (roots(&showing, &nodes))
        @if !outside.is_empty() {
            h2 { "Refused outside of the requests above " span.count { (outside.len()) } }
            ul.lines { @for line in &outside { (refusal(moment, line)) } }
        }
    }
}

/// Shows the tree's first level. Below a line that leads to its page stands what a message of an earlier page caused.
fn roots(showing: &Showing<'_>, nodes: &[TreeNode]) -> Markup {
    let above = |node: &TreeNode| {
        let cause = node.message.cause.as_deref().or(node.message.in_reply_to.as_deref())?;
        Seq::parse(cause).filter(|seq| showing.history.above.contains_key(seq))
    };
    let mut groups: Vec<(Option<Seq>, Vec<&TreeNode>)> = Vec::new();
    for node in nodes {
        let cause = above(node);
        match groups.iter_mut().find(|(known, _)| cause.is_some() && *known == cause) {
            Some((_, group)) => group.push(node),
            None => groups.push((cause, vec![node])),
        }
    }
    let at = |seq: &Seq| in_tree(&showing.history.view.summary.reference, &seq.to_string());
    html! {
        ul.tree {
            @for (cause, group) in &groups {
                @match cause {
                    None => { @for node in group { (twig(showing, node)) } },
                    Some(seq) => li {
                        p.node.on-earlier-page { "↑ On an earlier page: " a href=(url(&at(seq))) { (seq) } " "
                            @if let Some(text) = showing.history.above.get(seq) { (excerpt(text, 120)) } }
                        ul.tree { @for node in group { (twig(showing, node)) } }
                    },
                }
            }
        }
    }
}

fn branch(showing: &Showing<'_>, nodes: &[TreeNode]) -> Markup {
    html! { ul.tree { @for node in nodes { (twig(showing, node)) } } }
}

fn twig(showing: &Showing<'_>, node: &TreeNode) -> Markup {
    html! {
        li {
            @let work = showing.works.on(node.message.seq);
            (message(showing, work, &node.message))
            @if let Some(work) = work.filter(|work| !work.marks.is_empty()) {
                ul.marks { @for mark in &work.marks { (marked(showing, mark)) } }
            }
            @if !node.children.is_empty() { (branch(showing, &node.children)) }
        }
    }
}

/// Shows what happened on the way to an answer.
fn marked(showing: &Showing<'_>, mark: &Mark) -> Markup {
    match mark {
        Mark::Refused(at) => {
            html! { @if let Some(line) = showing.history.lines.get(*at) { (refusal(showing.moment, line)) } }
        }
        Mark::Call(id, tool, settled) => html! {
            li data-row tabindex="-1" {
                (badge(settled.unwrap_or("pending"))) " call of " code { (foreign_line(tool)) } " "
                a.id data-open-row href={ (url("/approvals/")) (id) } { (id) }
            }
        },
        Mark::Question(id, body, settled) => html! {
            li data-row tabindex="-1" {
                (badge(settled.unwrap_or("open"))) " question " a data-open-row href={ (url("/questions/")) (id) } { (id) } ": " (excerpt(body, 140))
            }
        },
    }
}

fn message(showing: &Showing<'_>, work: Option<&Work>, message: &StoredMessage) -> Markup {
    let (moment, reference) = (showing.moment, &showing.history.view.summary.reference);
    html! {
        div.node id=(message.id) tabindex="-1" data-row {
            p.head {
                (badge(message.kind.word())) " "
                b { (foreign_line(&message.from)) } " → " b { (foreign_line(&message.to)) }
                @if message.reference != *reference { " in " (conversation(&message.reference)) }
                @if let Some(action) = &message.action { " " code { "#" (foreign_line(action)) } }
                " " span.faint { "depth " (message.depth) ", hop " (message.hops) }
                @if let Some(status) = message.status { " " (badge(status.word())) }
                @if message.kind == MessageType::Request {
                    @if work.is_none_or(|work| work.status.is_none()) { " " (badge(message.delivery_state.word())) }
                }
                @if let Some(work) = work { (took(work)) }
                " " (time(&message.created_at, moment.now))
            }
            p { a.plain data-open-row href={ (url("/messages/")) (message.id) } {
                @if message.body.is_empty() { span.faint { "no text" } } @else { (excerpt(&message.body, 240)) }
            } }
        }
    }
}

fn took(work: &Work) -> Markup {
    html! {
        span.faint {
            @if let Some(ms) = work.took_ms() { " · " (duration(ms)) }
            @if work.tokens() > 0 { " · " (spent(work.tokens(), work.is_estimated(), work.cost_microusd())) }
            @if work.attempts > 1 { " · " (work.attempts) " attempts" }
        }
    }
}

fn refusal(moment: &Moment, line: &HistoryEntry) -> Markup {
    html! {
        li data-row tabindex="-1" {
            (badge("refused")) " " b { (foreign_line(line.event.agent.as_deref().unwrap_or_default())) } " "
            @if let Some(problem) = &line.refusal {
                a data-open-row href={ (url("/messages/msg-")) (line.event.seq) } { (foreign_line(&told_of(problem))) }
                " " span.faint { "rule " (problem.rule) }
            }
            " " (time(&line.event.at, moment.now))
        }
    }
}
