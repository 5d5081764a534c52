//! Formats a conversation as a tree: each message under its cause, with its request's usage, and the refusals on the
//! way.

use std::fmt::Write as _;

use lastword_client::wire::{
    ClaimView, ConversationSummary, ConversationView, DeliveryState, Distance, EscalationView, GrantKind, GrantView,
    HeldBy, RefusedSend, StoredMessage, TreeNode,
};
use lastword_facts::MessageType;
use lastword_facts::status::EscalationState;

use crate::out::{StyledLine, Tone, escape, escape_line};
use crate::render::outcome_tone;
use crate::top::{share, told_state};

/// Most lines shown of a body.
const BODY_LINES: usize = 3;

/// Returns the lines of the whole conversation.
pub(crate) fn lines(view: &ConversationView) -> Vec<StyledLine> {
    let mut lines = vec![heading(&view.summary), counts(view)];
    lines.extend(view.grants.iter().flat_map(grant));
    lines.extend(held(&view.held_by));
    lines.extend(view.claims.iter().map(claimed));
    let mut branches: Vec<Branch<'_>> = view.tree.iter().map(Branch::Node).collect();
    branches.extend(view.refusals.iter().map(Branch::Refusal));
    branches.extend(view.questions.iter().map(Branch::Question));
    branches.sort_by_key(Branch::seq);
    grow(&mut lines, &branches, &view.summary.reference, "");
    lines
}

/// Returns a text in the plain tone.
pub(crate) fn plain(text: impl Into<String>) -> (Tone, String) {
    (Tone::Plain, text.into())
}

/// Formats a conversation's REF, state and origin.
pub(crate) fn heading(summary: &ConversationSummary) -> StyledLine {
    let (state, tone) = told_state(summary, summary.waits_for_human);
    let mut line = vec![(Tone::Strong, escape_line(&summary.reference)), plain("  "), (tone, state)];
    let mut rest = format!("  opened by {}", escape_line(&summary.opener));
    if let Some(parent) = &summary.parent_ref {
        rest.push_str(&format!("  child of {}", escape_line(parent)));
    }
    line.push((Tone::Faint, rest));
    line
}

fn counts(view: &ConversationView) -> StyledLine {
    let counters = &view.summary.counters;
    // As the console counts them; a view without its tree has those of the conversation alone.
    let all = (nodes(&view.tree) + view.left_out).max(counters.messages);
    let in_all = if all > counters.messages { " in all" } else { "" };
    let mut line = vec![plain(format!("  {all} messages{in_all}, {} open", counters.open_tasks))];
    for (name, what) in [("depth_max", "deepest"), ("turns_soft_max", "since a human spoke")] {
        let limit = view.limits.iter().find(|limit| limit.name == name);
        line.extend(limit.into_iter().flat_map(|limit| [plain(", "), used(what, limit)]));
    }
    for name in &view.summary.waits_for_user {
        line.push((Tone::Warn, format!(", {} waits for its user", escape_line(name))));
    }
    line
}

fn nodes(tree: &[TreeNode]) -> u64 {
    tree.iter().map(|node| 1 + nodes(&node.children)).sum()
}

/// Formats a grant on one line, and below its usage and the trace of its work.
pub(crate) fn grant(view: &GrantView) -> Vec<StyledLine> {
    let state = if view.open { "open" } else { "closed" };
    let typed = if view.kind == GrantKind::Typed { ", typed" } else { "" };
    let mut first = vec![plain(format!("  {} of {}{typed}, {state}", view.id, escape_line(&view.giver)))];
    if let Some(left) = view.messages_left().filter(|_| view.open) {
        first.push((Tone::Faint, format!(", {left}")));
    }
    if let Some(incident) = &view.latched {
        first.push((Tone::Bad, format!(", held by {incident}")));
    }
    let mut usage = vec![plain("    ")];
    for (i, limit) in view.limits.iter().enumerate() {
        if i > 0 {
            usage.push(plain(", "));
        }
        let what = limit.name.trim_start_matches("grant_").trim_end_matches("_max").trim_end_matches("_microusd");
        usage.push(used(what, limit));
        if limit.estimated {
            usage.push((Tone::Faint, estimated(true).to_owned()));
        }
    }
    let traced = view.trace.as_ref().map(|trace| {
        vec![(Tone::Faint, format!("    trace {}", escape_line(view.trace_url.as_ref().unwrap_or(trace))))]
    });
    [first, usage].into_iter().chain(traced).collect()
}

/// Formats a limit's usage, in a tone by how near the limit is.
pub(crate) fn used(what: &str, limit: &Distance) -> (Tone, String) {
    let (text, tone) = share(limit);
    (tone, format!("{what} {text}"))
}

/// Lists what holds work until a human acts, each with the command that lifts it (H6).
pub(crate) fn held(holds: &[HeldBy]) -> Vec<StyledLine> {
    let line = |held: &HeldBy| {
        let what = vec![(Tone::Bad, format!("  held: {}", escape_line(&held.text)))];
        [what, vec![(Tone::Strong, format!("    lift it: {}", escape_line(&held.lift.cli)))]]
    };
    holds.iter().flat_map(line).collect()
}

/// Shows what a request of the conversation holds.
fn claimed(claim: &ClaimView) -> StyledLine {
    let text = format!("  {} works on {} ({})", claim.agent, claim.path(), claim.id);
    vec![(Tone::Plain, escape_line(&text))]
}

/// A child of a message in the tree.
enum Branch<'a> {
    Node(&'a TreeNode),
    Refusal(&'a RefusedSend),
    Question(&'a EscalationView),
}

impl Branch<'_> {
    /// Returns its log position.
    fn seq(&self) -> u64 {
        match self {
            Self::Node(node) => node.message.seq,
            Self::Question(asked) => asked.seq,
            Self::Refusal(refused) => {
                let record = refused.problem.record.as_deref().and_then(|record| record.rsplit('-').next());
                record.and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX)
            }
        }
    }
}

fn grow(lines: &mut Vec<StyledLine>, branches: &[Branch<'_>], reference: &str, indent: &str) {
    for (i, branch) in branches.iter().enumerate() {
        let (arm, below) = if i + 1 == branches.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let arm = (Tone::Faint, format!("{indent}{arm}"));
        match branch {
            Branch::Refusal(refused) => lines.push([vec![arm], refusal(refused)].concat()),
            Branch::Question(asked) => {
                lines.push([vec![arm], question(asked)].concat());
                body(lines, &asked.message, &format!("{indent}{below}  "));
                if let (Some(by), Some(answer)) = (&asked.answered_by, &asked.answer) {
                    body(lines, &format!("→ {by}: {answer}"), &format!("{indent}{below}  "));
                }
            }
            Branch::Node(node) => {
                let below = format!("{indent}{below}");
                let mut under: Vec<Branch<'_>> = node.children.iter().map(Branch::Node).collect();
                under.extend(node.refusals.iter().map(Branch::Refusal));
                under.extend(node.questions.iter().map(Branch::Question));
                under.sort_by_key(Branch::seq);
                lines.push([vec![arm], headline(node, reference)].concat());
                body(lines, &node.message.body, &format!("{below}{}", if under.is_empty() { "  " } else { "│ " }));
                grow(lines, &under, &node.message.reference, &below);
            }
        }
    }
}

fn headline(node: &TreeNode, above: &str) -> StyledLine {
    let message = &node.message;
    let mut line = vec![(Tone::Faint, format!("{} ", message.id))];
    line.extend(route(message));
    if message.reference != above {
        line.push((Tone::Strong, format!(" {}", escape_line(&message.reference))));
    }
    if let Some(action) = &message.action {
        line.push(plain(format!(" #{}", escape_line(action))));
    }
    if let Some(outcome) = message.outcome() {
        line.push((outcome_tone(outcome), format!(" {}", outcome.label())));
    }
    if let Some(reason) = &message.reason {
        line.push((Tone::Warn, format!(" ({})", escape_line(reason))));
    }
    let mut facts = format!("  depth {} hop {}", message.depth, message.hops);
    // Writing to a `String` can't fail.
    let _ok = taken(&mut facts, node);
    if message.kind == MessageType::Request && message.delivery_state != DeliveryState::Settled {
        let _ok = write!(facts, "  {}", message.delivery_state);
    }
    line.push((Tone::Faint, facts));
    line
}

fn taken(facts: &mut String, node: &TreeNode) -> std::fmt::Result {
    if let Some(ms) = node.duration_ms {
        write!(facts, "  {}", duration(ms))?;
    }
    if node.turns > 0 {
        write!(facts, "  {} turn{}", node.turns, if node.turns == 1 { "" } else { "s" })?;
    }
    if node.tokens > 0 {
        write!(facts, "  {} tokens{}", node.tokens, estimated(node.estimated))?;
    }
    Ok(())
}

/// Marks a figure that is estimated.
pub(crate) const fn estimated(is_estimated: bool) -> &'static str {
    if is_estimated { " (estimated)" } else { "" }
}

/// Formats a message's sender, recipient and type.
pub(crate) fn route(message: &StoredMessage) -> StyledLine {
    let names = format!("{} → {} ", escape_line(&message.from), escape_line(&message.to));
    vec![(Tone::Strong, names), (kind_tone(message.kind), message.kind.keyword().to_owned())]
}

/// Returns the tone of a message type.
pub(crate) const fn kind_tone(kind: MessageType) -> Tone {
    match kind {
        MessageType::Request => Tone::Ask,
        MessageType::Response => Tone::Good,
        MessageType::Status => Tone::Faint,
        MessageType::Alert => Tone::Warn,
        MessageType::Info => Tone::Plain,
        MessageType::Broadcast => Tone::All,
    }
}

/// Formats a refused message.
fn refusal(refused: &RefusedSend) -> StyledLine {
    let problem = &refused.problem;
    let record = problem.record.as_deref().unwrap_or("refused");
    let to = refused.to.as_deref().map(|to| format!(" → {}", escape_line(to))).unwrap_or_default();
    let kind = refused.kind.map(|kind| format!(" {}", kind.keyword())).unwrap_or_default();
    vec![
        (Tone::Bad, format!("✗ {record} ")),
        (Tone::Strong, format!("{}{to}", escape_line(&refused.from))),
        plain(kind),
        (Tone::Bad, format!(" {} ", problem.code)),
        plain(escape_line(&problem.detail)),
    ]
}

/// Formats a question to a human (H1).
fn question(asked: &EscalationView) -> StyledLine {
    let open = asked.state == EscalationState::Open;
    vec![
        (Tone::Warn, format!("? {} ", asked.id)),
        (Tone::Strong, format!("{} → humans", escape_line(&asked.agent))),
        (if open { Tone::Warn } else { Tone::Plain }, format!(" {}", crate::render::word(&asked.state))),
    ]
}

fn body(lines: &mut Vec<StyledLine>, text: &str, indent: &str) {
    let text = escape(text);
    let total = text.lines().count();
    for line in text.lines().take(BODY_LINES) {
        lines.push(vec![(Tone::Faint, format!("{indent} ")), plain(line.replace('\t', " "))]);
    }
    if total > BODY_LINES {
        lines.push(vec![(Tone::Faint, format!("{indent} … {} more lines", total - BODY_LINES))]);
    }
}

/// Formats a duration.
pub(crate) fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{}.{}s", ms / 1_000, ms / 100 % 10),
        _ => crate::top::span(ms),
    }
}
