//! Formats messages and other objects as text. All foreign text is escaped here.

use lastword_client::wire::{
    AgentView, ApprovalView, Delivery, EscalationView, LiftView, Notice, Outcome, StoredMessage,
};
use lastword_facts::fact::EscalationCause;
use lastword_facts::status::ApprovalState;
use lastword_facts::status::EscalationState;
use serde::Serialize;
use serde_json::Value;

use crate::out::{Out, Tone, escape, escape_line};

/// Returns the name with the display name behind it.
pub(crate) fn named(agent: &AgentView) -> String {
    agent.display_name.as_ref().map_or_else(|| agent.name.clone(), |other| format!("{} ({other})", agent.name))
}

/// Returns a value's word in JSON.
pub(crate) fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        Ok(_) | Err(_) => String::new(),
    }
}

/// Returns the tone of an outcome.
pub(crate) const fn outcome_tone(outcome: Outcome) -> Tone {
    match outcome {
        Outcome::Completed => Tone::Good,
        Outcome::Partial | Outcome::Cancelled => Tone::Warn,
        Outcome::Failed | Outcome::TimedOut | Outcome::Stopped => Tone::Bad,
    }
}

/// Formats a message: a headline and its body.
pub(crate) fn message(message: &StoredMessage, out: &Out) -> String {
    let mut text = out.tone(Tone::Faint, &message.created_at);
    text.push(' ');
    text.push_str(&headline(message, out));
    append_body(&mut text, &message.body, "    ", usize::MAX);
    if let Some(payload) = &message.payload {
        append_body(&mut text, &payload.to_string(), "    ", usize::MAX);
    }
    text
}

/// Formats messages, one below the other.
pub(crate) fn messages<'a>(items: impl IntoIterator<Item = &'a StoredMessage>, out: &Out) -> String {
    items.into_iter().map(|item| message(item, out)).collect::<Vec<_>>().join("\n")
}

fn headline(message: &StoredMessage, out: &Out) -> String {
    let route = format!("{} → {}", escape_line(&message.from), escape_line(&message.to));
    let mut text = format!("{} {} {}", message.id, out.tone(Tone::Strong, &route), message.kind.keyword());
    if let Some(action) = &message.action {
        text.push_str(&format!(" #{}", escape_line(action)));
    }
    text.push_str(&format!(" {} depth {}", escape_line(&message.reference), message.depth));
    if let Some(id) = &message.request_id {
        text.push_str(&format!(" {}", escape_line(id)));
    }
    if let Some(outcome) = message.outcome() {
        text.push_str(&format!(" {}", out.tone(outcome_tone(outcome), outcome.label())));
    }
    if let Some(reason) = &message.reason {
        text.push_str(&format!(" ({})", escape_line(reason)));
    }
    text.push_str(&out.tone(Tone::Faint, &format!(" [{}]", message.delivery_state)));
    text
}

fn append_body(text: &mut String, body: &str, indent: &str, lines_max: usize) {
    let body = escape(body);
    let total = body.lines().count();
    for line in body.lines().take(lines_max) {
        text.push_str(&format!("\n{indent}{line}"));
    }
    if total > lines_max {
        text.push_str(&format!("\n{indent}… {} more lines", total - lines_max));
    }
}

/// Formats a delivery.
pub(crate) fn delivery(delivery: &Delivery, out: &Out) -> String {
    let mut text = String::new();
    for notice in &delivery.notices {
        text.push_str(&notice_line(notice, out));
        text.push('\n');
    }
    if let Some(turn) = &delivery.turn {
        let line = format!("{} attempt {} until {}", turn.id, turn.attempt, turn.deadline);
        text.push_str(&format!("{}\n", out.tone(Tone::Strong, &line)));
    }
    text.push_str(&message(&delivery.message, out));
    text
}

fn notice_line(notice: &Notice, out: &Out) -> String {
    let subject = notice.request_id.as_deref().or(notice.reference.as_deref()).unwrap_or_default();
    let line = format!("notice {} from {} {}:", notice.kind, escape_line(&notice.from), escape_line(subject));
    format!("{} {}", out.tone(Tone::Faint, &line), escape_line(&notice.body))
}

/// Formats an escalation.
pub(crate) fn escalation(view: &EscalationView, out: &Out) -> String {
    let mut text = format!(
        "{} {} {} {} {}",
        out.tone(Tone::Strong, &view.id),
        word(&view.state),
        escape_line(&view.agent),
        escape_line(&view.reference),
        out.tone(Tone::Faint, &view.created_at),
    );
    append_body(&mut text, &view.message, "    ", usize::MAX);
    for option in &view.options {
        text.push_str(&format!("\n    · {}", escape_line(option)));
    }
    if let Some(limit) = &view.limit {
        append_body(&mut text, limit, "    ", usize::MAX);
    }
    if view.state == EscalationState::Open {
        for line in lifts(view) {
            text.push_str(&format!("\n    {line}"));
        }
    }
    if let (Some(by), Some(answer)) = (&view.answered_by, &view.answer) {
        append_body(&mut text, &format!("{by}: {answer}"), "    → ", usize::MAX);
    }
    text
}

/// Formats the lifts that the broker offers for a question, each with its command (H6).
pub(crate) fn lifts(view: &EscalationView) -> Vec<String> {
    let width = view.offered().map(|lift| lift.text.len()).max().unwrap_or(0);
    let line =
        |lift: &LiftView| format!("{:width$}  lastword answer {} --lift {}", escape_line(&lift.text), view.id, lift.id);
    view.offered().map(line).collect()
}

/// Whether the broker's question about a hold is also asked by the agent that it holds: both offer the same lift.
pub(crate) fn is_asked_twice(question: &EscalationView, all: &[EscalationView]) -> bool {
    let same = |other: &EscalationView| {
        let task = |view: &EscalationView| (view.reference.clone(), view.request_id.clone());
        other.state == EscalationState::Open
            && other.cause == EscalationCause::Asked
            && !other.lifts.is_empty()
            && task(other) == task(question)
    };
    question.cause == EscalationCause::NoProgress && all.iter().any(same)
}

/// The lines of a long call that a list shows.
const FOLDED_LINES: usize = 12;
/// The characters of a line of it.
const FOLDED_CHARS: usize = 300;

/// Formats a held call for a list on a screen: a long one in short, with how to see all of it instead of its digest.
pub(crate) fn approval_in_list(view: &ApprovalView, out: &Out) -> String {
    let whole = view.arguments.pretty();
    let long = |line: &str| line.chars().nth(FOLDED_CHARS).is_some();
    if whole.lines().count() <= FOLDED_LINES && !whole.lines().any(long) {
        return approval(view, out);
    }
    let mut text = headline_of(view, out);
    let cut = |line: &str| {
        let more = line.chars().count().saturating_sub(FOLDED_CHARS);
        let shown: String = line.chars().take(FOLDED_CHARS).collect();
        if more > 0 { format!("{shown} … {more} more characters") } else { shown }
    };
    let short: Vec<String> = whole.lines().map(cut).collect();
    append_body(&mut text, &short.join("\n"), "    ", FOLDED_LINES);
    text.push_str(&out.tone(Tone::Faint, "\n    all of it, and its digest: `lastword approvals --whole`"));
    text
}

fn headline_of(view: &ApprovalView, out: &Out) -> String {
    format!(
        "{} {} {} asks to call {}",
        out.tone(Tone::Strong, &view.id),
        word(&view.state),
        escape_line(&view.agent),
        out.tone(Tone::Strong, &escape_line(&view.tool)),
    )
}

/// Formats a held call and its decision.
pub(crate) fn approval(view: &ApprovalView, out: &Out) -> String {
    let mut text = headline_of(view, out);
    if let Some(requested) = &view.requested {
        append_body(&mut text, &requested.pretty(), "    ", usize::MAX);
        let by = view.by.as_deref().unwrap_or_default();
        append_body(&mut text, &format!("edited by {by}:"), "    ", usize::MAX);
    }
    append_body(&mut text, &view.arguments.pretty(), "    ", usize::MAX);
    if let Some(reason) = &view.reason {
        append_body(&mut text, &format!("because: {reason}"), "    ", usize::MAX);
    }
    if let Some(rule) = &view.policy {
        let tier = view.tier.as_ref().map(|tier| format!(", tier {tier}")).unwrap_or_default();
        append_body(&mut text, &format!("policy: {rule}{tier}"), "    ", usize::MAX);
    }
    if let (Some(decision), Some(by)) = (view.decision, &view.by) {
        let words = view.comment.as_ref().map(|words| format!(": {words}")).unwrap_or_default();
        append_body(&mut text, &format!("{decision} by {by}{words}"), "    → ", usize::MAX);
    }
    if let Some(why) = view.undecided() {
        append_body(&mut text, &format!("denied: {why}"), "    → ", usize::MAX);
    }
    text.push_str(&format!("\n    digest {}", view.digest));
    if view.state == ApprovalState::Pending {
        let ends = match view.lease_until.as_deref() {
            Some(lease) if lease == view.due() => {
                format!("withdrawn at {lease}, unless {} is heard of before", escape_line(&view.agent))
            }
            Some(_) | None => format!("denied automatically at {}", view.expires_at),
        };
        text.push_str(&format!("\n    {}", out.tone(Tone::Faint, &ends)));
    }
    text
}
