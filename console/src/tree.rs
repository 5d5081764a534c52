//! The history as a tree: each message below its cause.

use std::collections::{BTreeMap, BTreeSet};

use lastword_facts::fact::WriteRefused;
use lastword_facts::{Fact, MessageType, Seq};
use lastword_server::views;
use lastword_wire::{StoredMessage, TreeNode};
use maud::{Markup, html};

use super::layout::{Moment, empty};
use super::markdown;
use super::pages::in_tree;
use super::parts::{badge, bytes, conversation, foreign_line, reason_of, room, spent, time, url};
use super::terms::told_of;
use super::work::{Happened, Mark, Work, Works, duration};
use crate::reads::history::{History, HistoryEntry};

/// What a human may do about a request that timed out.
const TIMED_OUT: &str = "Nobody finished it in time. Ask again, ask another agent, or dismiss it?";
/// The characters that are shown of a message.
const BODY_CHARS: usize = 240;

/// What all nodes of a tree are shown with.
struct Showing<'a> {
    moment: &'a Moment,
    history: &'a History,
    works: &'a Works,
    /// What happened on the way, by the message below which it stands; by `None` what stands at the first level.
    marks: BTreeMap<Option<u64>, Vec<&'a Mark>>,
}

impl<'a> Showing<'a> {
    /// Puts what happened on the way below the message that opened its turn, or else below its request.
    fn of(moment: &'a Moment, history: &'a History, works: &'a Works) -> Self {
        let messages = history.page_lines().iter().filter(|line| line.event.message.is_some());
        let shown: BTreeSet<u64> = messages.map(|line| line.event.seq).collect();
        let mut marks: BTreeMap<Option<u64>, Vec<&Mark>> = BTreeMap::new();
        for work in works.tasks.values() {
            for mark in &work.marks {
                let causes = [mark.cause.map(|seq| seq.0), work.message];
                let below = causes.into_iter().flatten().find(|seq| shown.contains(seq));
                marks.entry(below).or_default().push(mark);
            }
        }
        Self { moment, history, works, marks }
    }

    /// Returns all that stands below a message, or at the first level, oldest first.
    fn branches(&self, above: Option<u64>, nodes: impl Iterator<Item = Branch<'a>>) -> Vec<Branch<'a>> {
        let marks = self.marks.get(&above).into_iter().flatten();
        let marks = marks.filter_map(|mark| Some(Branch::Mark(mark, self.history.lines.get(mark.line)?)));
        let mut branches: Vec<Branch<'a>> = nodes.chain(marks).collect();
        branches.sort_by_key(Branch::seq);
        branches
    }
}

/// What stands below a message, or at the first level.
enum Branch<'a> {
    /// A message with all that it caused.
    Message(&'a TreeNode),
    /// Messages whose cause is on an earlier page, and that cause.
    Earlier(Seq, Vec<&'a TreeNode>),
    /// Something on the way to an answer, and its event.
    Mark(&'a Mark, &'a HistoryEntry),
    /// A message that was refused outside of the requests of the page.
    Outside(&'a HistoryEntry),
}

impl Branch<'_> {
    fn seq(&self) -> u64 {
        match self {
            Self::Message(node) => node.message.seq,
            Self::Earlier(_, nodes) => nodes.first().map_or(0, |node| node.message.seq),
            Self::Mark(_, line) | Self::Outside(line) => line.event.seq,
        }
    }
}

/// Shows the tree, each level in the order of time. What was refused, held and asked stands below the message in whose turn
/// it happened; what was refused outside of every turn stands at the first level.
pub(super) fn view(moment: &Moment, history: &History) -> Markup {
    let messages = history.page_lines().iter().filter_map(|line| line.event.message.clone()).collect();
    let works = Works::of(history);
    let showing = Showing::of(moment, history, &works);
    let nodes = views::tree(messages);
    let outside = works.outside.iter().filter_map(|at| history.lines.get(*at)).map(Branch::Outside);
    let branches = showing.branches(None, first_level(&showing, &nodes).into_iter().chain(outside));
    if branches.is_empty() {
        let words =
            if history.page.total == 0 { "No messages yet." } else { "No messages in this part of the history." };
        return empty(words, &html! {});
    }
    level(&showing, &branches)
}

/// Returns the messages without a cause on the page. Those with one on an earlier page stand below a line that leads there.
fn first_level<'a>(showing: &Showing<'_>, nodes: &'a [TreeNode]) -> Vec<Branch<'a>> {
    let above = |node: &TreeNode| {
        let cause = node.message.cause.as_deref().or(node.message.in_reply_to.as_deref())?;
        Seq::parse(cause).filter(|seq| showing.history.above.contains_key(seq))
    };
    let mut branches: Vec<Branch<'a>> = Vec::new();
    for node in nodes {
        let Some(cause) = above(node) else {
            branches.push(Branch::Message(node));
            continue;
        };
        let group = branches.iter_mut().find_map(|branch| match branch {
            Branch::Earlier(known, group) if *known == cause => Some(group),
            Branch::Earlier(..) | Branch::Message(_) | Branch::Mark(..) | Branch::Outside(_) => None,
        });
        match group {
            Some(group) => group.push(node),
            None => branches.push(Branch::Earlier(cause, vec![node])),
        }
    }
    branches
}

fn level(showing: &Showing<'_>, branches: &[Branch<'_>]) -> Markup {
    let at = |seq: &Seq| in_tree(&showing.history.view.summary.reference, &seq.to_string());
    html! {
        ul.tree {
            @for branch in branches {
                @match branch {
                    Branch::Message(node) => (twig(showing, node)),
                    Branch::Earlier(seq, nodes) => li {
                        p.node.on-earlier-page { "↑ On an earlier page: " a href=(url(&at(seq))) { (seq) } " "
                            @if let Some(text) = showing.history.above.get(seq) { (markdown::line(text, 120)) } }
                        ul.tree { @for node in nodes { (twig(showing, node)) } }
                    },
                    Branch::Mark(mark, line) => (marked(showing, mark, line)),
                    Branch::Outside(line) => (refusal(showing.moment, line)),
                }
            }
        }
    }
}

fn twig(showing: &Showing<'_>, node: &TreeNode) -> Markup {
    let below = showing.branches(Some(node.message.seq), node.children.iter().map(Branch::Message));
    html! {
        li {
            (message(showing, showing.works.on(node.message.seq), &node.message))
            @if !below.is_empty() { (level(showing, &below)) }
        }
    }
}

/// Shows what happened on the way to an answer.
fn marked(showing: &Showing<'_>, mark: &Mark, line: &HistoryEntry) -> Markup {
    match &mark.what {
        Happened::Refused => refusal(showing.moment, line),
        Happened::Call(id, tool, settled) => html! {
            li.mark data-row tabindex="-1" {
                (badge(settled.unwrap_or("pending"))) " call of " code { (foreign_line(tool)) } " "
                a.id data-open-row href={ (url("/approvals/")) (id) } { (id) }
            }
        },
        Happened::Question(id, body, settled) => html! {
            li.mark data-row tabindex="-1" {
                @match body {
                    Some(_) => { (badge(settled.unwrap_or("open"))) " question " }
                    None => { (badge(settled.unwrap_or("timed out"))) " " }
                }
                a data-open-row href={ (url("/questions/")) (id) } { (id) } ": " (markdown::line(body.as_deref().unwrap_or(TIMED_OUT), 140))
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
                @if let Some(outcome) = message.outcome().or(work.and_then(|work| work.outcome)) { " " (badge(outcome.word())) }
                @if message.kind == MessageType::Request {
                    @if work.is_none_or(|work| work.outcome.is_none()) { " " (badge(message.delivery_state.word())) }
                }
                @if let Some(work) = work { (took(work)) }
                " " (time(&message.created_at, moment.now))
                span.faint.deep { " · depth " (message.depth) ", hop " (message.hops) }
            }
            p { a.plain data-open-row href={ (url("/messages/")) (message.id) } {
                @if message.body.is_empty() { span.faint { "no text" } } @else { (markdown::line(&message.body, BODY_CHARS)) }
            }
            @if message.body.chars().nth(BODY_CHARS).is_some() {
                " " a href={ (url("/messages/")) (message.id) } aria-label={ "Show all of " (message.id) } { "Show all (" (bytes(message.body.len() as u64)) ")" }
            } }
            (reason_of(message))
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
        li.mark data-row tabindex="-1" {
            (badge("refused")) " " b { (foreign_line(line.event.agent.as_deref().unwrap_or_default())) }
            @if let Fact::WriteRefused(WriteRefused { write, refusal, .. }) = &line.entry.fact {
                "'s " (write.word()) @if let Some(name) = refusal.room() { " in the room " (room(name)) } ": "
            } @else { " " }
            @if let Some(problem) = &line.refusal {
                a data-open-row href={ (url("/messages/msg-")) (line.event.seq) } { (foreign_line(&told_of(problem))) }
                " " span.faint { "rule " (problem.rule) }
            }
            " " (time(&line.event.at, moment.now))
        }
    }
}
