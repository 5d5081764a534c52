//! Formats one row in full.

use lastword_client::wire::call::{Argument, arguments};
use lastword_client::wire::{AgentView, ApprovalView, Distance, EscalationView, IncidentView};

use super::model::Model;
use super::rows::{Item, age, rests, runs, share};
use crate::out::{StyledLine, Tone, escape, escape_line};
use crate::{render, tree};

/// Returns the lines of the selected row; all foreign text in them is escaped.
pub(super) fn lines(model: &Model) -> Vec<StyledLine> {
    match model.current() {
        None => vec![faint("no row selected")],
        Some(Item::Approval(view)) => approval(view, model.now_ms),
        Some(Item::Escalation(view)) => escalation(view, model.now_ms),
        Some(Item::Incident(view)) => incident(view, model.now_ms),
        Some(Item::Agent(view)) => agent(view),
        Some(Item::Conversation(summary, ..)) => match &model.conversation {
            Some(view) if view.summary.reference == summary.reference => tree::lines(view),
            Some(_) | None => vec![faint("…")],
        },
    }
}

fn faint(text: &str) -> StyledLine {
    vec![(Tone::Faint, text.to_owned())]
}

/// Formats a name and its value.
fn row(name: &str, value: &str) -> StyledLine {
    vec![(Tone::Faint, format!("{name:<12}")), (Tone::Plain, escape_line(value))]
}

/// Adds the lines of an escaped text, indented.
fn block(lines: &mut Vec<StyledLine>, text: &str) {
    lines.extend(text.lines().map(|line| vec![(Tone::Plain, format!("  {}", line.replace('\t', "    ")))]));
}

/// Formats the call as it would be made: its subject first, then the other arguments, and the digest that an approval
/// binds.
fn approval(view: &ApprovalView, now_ms: u64) -> Vec<StyledLine> {
    let (left, tone) = Item::Approval(view).cells(now_ms).swap_remove(4);
    let mut lines = vec![vec![
        (Tone::Strong, format!("{} asks to call {}", escape_line(&view.agent), escape_line(&view.tool))),
        (tone, format!("  {left}, then it is denied")),
    ]];
    let parts = arguments(&view.arguments);
    let (subjects, others): (Vec<_>, Vec<_>) = parts.iter().partition(|part| part.is_subject());
    let show = |lines: &mut Vec<StyledLine>, part: &Argument| {
        lines.push(faint(&part.name));
        block(lines, &part.text);
    };
    subjects.into_iter().for_each(|part| show(&mut lines, part));
    lines.extend([
        row("id", &view.id),
        row("digest", &view.digest),
        row("ref", view.reference.as_deref().unwrap_or("outside every task")),
    ]);
    lines.extend(view.reason.as_ref().map(|reason| row("because", reason)));
    if let Some(rule) = &view.policy {
        let tier = view.tier.as_ref().map(|tier| format!(", tier {tier}")).unwrap_or_default();
        lines.push(row("policy", &format!("{rule}{tier}")));
    }
    others.into_iter().for_each(|part| show(&mut lines, part));
    lines.push(StyledLine::new());
    lines.push(faint("a approves exactly this call, once · r rejects it with a reason"));
    lines
}

fn escalation(view: &EscalationView, now_ms: u64) -> Vec<StyledLine> {
    let mut lines = vec![
        vec![
            (Tone::Strong, format!("{} asks", escape_line(&view.agent))),
            (Tone::Faint, format!("  {}", age(&view.created_at, now_ms).0)),
        ],
        row("id", &view.id),
        row("ref", &view.reference),
        row("why", &render::word(&view.cause)),
        faint("question"),
    ];
    block(&mut lines, &escape(&view.message));
    if !view.options.is_empty() {
        lines.push(faint("answers to choose from"));
        lines.extend(view.options.iter().map(|option| vec![(Tone::Plain, format!("  · {}", escape_line(option)))]));
    }
    if let Some(limit) = view.limit.as_ref().filter(|_| view.offered().next().is_some()) {
        lines.push(faint("beside it, a limit stopped the task"));
        block(&mut lines, &escape(limit));
        lines.extend(view.offered().map(|lift| {
            vec![(Tone::Strong, format!("  {}", escape_line(&lift.text))), (Tone::Faint, format!("  {}", lift.id))]
        }));
    }
    lines.push(StyledLine::new());
    if view.offered().next().is_some() {
        lines.push(faint("L lifts it and goes on; the question stays open, and an answer lifts nothing"));
    }
    lines.push(faint("e answers it; the answer is routed to exactly the task that asked"));
    lines
}

fn incident(view: &IncidentView, now_ms: u64) -> Vec<StyledLine> {
    let parked = if view.parked.is_empty() { "nothing".to_owned() } else { view.parked.join(" ") };
    let next = match view.reference {
        Some(_) => "u lifts it and resumes the work · s stops the conversation",
        None => "a room is released when a human posts in it",
    };
    vec![
        vec![
            (Tone::Strong, format!("{} {} is held", view.scope, escape_line(&view.on))),
            (Tone::Faint, format!("  {}", age(&view.at, now_ms).0)),
        ],
        row("id", &view.id),
        row("ref", view.reference.as_deref().unwrap_or("-")),
        row("code", &format!("{} ({}): {}", view.code, view.code.rule(), view.code.title())),
        row("numbers", &view.amounts().join(" of ")),
        row("parked", &parked),
        StyledLine::new(),
        faint(next),
    ]
}

fn agent(view: &AgentView) -> Vec<StyledLine> {
    let (state, tone) = match rests(view) {
        Some(until) => (format!("budget used up, works again {}", escape_line(until)), Tone::Warn),
        None => runs(view),
    };
    let list = |items: &[String]| if items.is_empty() { "-".to_owned() } else { items.join(", ") };
    let mut lines = vec![
        vec![
            (Tone::Strong, escape_line(&render::named(view))),
            (Tone::Plain, format!("  {}  ", render::word(&view.kind))),
            (tone, state),
        ],
        row("connected", if view.connected { "yes" } else { "no" }),
        row("turns", &format!("{} (at most {} at once)", list(&view.turns), view.turns_max)),
        row("inbox", &format!("{} waiting, {} notices", view.queued, view.notices)),
        row("actions", &list(&view.actions)),
        row("groups", &list(&view.groups)),
        row("tokens", &format!("{} today{}", view.tokens_today, tree::estimated(view.tokens_estimated))),
        row("incarnation", &view.incarnation.to_string()),
    ];
    if !view.windows.is_empty() {
        lines.push(faint("windows"));
        lines.extend(view.windows.iter().map(window));
    }
    lines
}

fn window(distance: &Distance) -> StyledLine {
    let (text, tone) = share(distance);
    vec![(Tone::Plain, format!("  {:<22}", distance.name)), (tone, text)]
}
