//! Words the output of `/lastword`.

use lastword_client::ClientError;
use lastword_client::wire::{ConversationView, Distance, LimitView, TreeNode, is_cost, money};
use lastword_facts::fact::Kind;
use lastword_facts::status::ApprovalState;
use lastword_facts::status::EscalationState;
use lastword_facts::status::Running;

use super::NAME;
use crate::interactions::within;
use crate::text::title;
use lastword_client::RetryingClient;

/// Most lines of a list.
const LINES_MAX: usize = 12;
/// Longest excerpt in a list.
const BODY_CHARS_MAX: usize = 60;
/// Columns of a code block that a phone shows without wrapping.
const COLUMNS_MAX: usize = 40;
/// Longest tree: one message.
const TREE_CHARS_MAX: usize = 1_800;
const NO_REF: &str = "Give a `ref`, or ask in the thread of a conversation.";

/// Shows the state of a conversation, or of the workspace.
pub(super) async fn status(broker: &RetryingClient, about: Option<&str>) -> Result<String, ClientError> {
    let Some(reference) = about else { return workspace(broker).await };
    let view = within(broker, broker.client().conversation(reference)).await?;
    let held = if view.summary.latched { ", held by a limit: a human's message or `resume` lifts it" } else { "" };
    let counters = view.summary.counters;
    let mut text = format!("**{reference}** {}{held}\n", running(view.summary.state));
    let several = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    text.push_str(&format!(
        "{}, {} since a human spoke, {}\n",
        several(counters.messages, "message"),
        counters.agent_messages,
        several(counters.open_tasks, "open task"),
    ));
    text.push_str(&format!("Participants: {}", view.participants.join(", ")));
    if let Some(nearest) = &view.summary.nearest {
        text.push_str(&format!("\nNearest limit: {}", distance(nearest)));
    }
    Ok(text)
}

async fn workspace(broker: &RetryingClient) -> Result<String, ClientError> {
    let calls = within(broker, broker.client().approvals()).await?.items;
    let questions = within(broker, broker.client().escalations()).await?.items;
    let incidents = within(broker, broker.client().incidents()).await?.items;
    let agents = within(broker, broker.client().agents()).await?.items;
    let mut waits = Vec::new();
    for call in calls.iter().filter(|call| call.state == ApprovalState::Pending) {
        waits.push(format!("- {}: {} asks to call {}", call.id, call.agent, title(&call.tool, BODY_CHARS_MAX)));
    }
    for question in questions.iter().filter(|question| question.state == EscalationState::Open) {
        let words = title(&question.message, BODY_CHARS_MAX);
        waits.push(format!("- {} on {}: {} asks: {words}", question.id, question.reference, question.agent));
    }
    for held in incidents.iter().filter(|incident| incident.lifted_at.is_none()) {
        let parked = if held.parked.is_empty() { String::new() } else { format!(", {} parked", held.parked.len()) };
        waits.push(format!(
            "- {} {} is held: {} {}{parked}",
            held.scope,
            held.on,
            held.code,
            held.amounts().join(" of ")
        ));
    }
    let mut lines = vec![format!("**Pending decisions**: {}", if waits.is_empty() { "nothing" } else { "" })];
    list(&mut lines, waits);
    lines.push("**Agents**".to_owned());
    let agents = agents.iter().filter(|agent| agent.kind == Kind::Agent).map(|agent| {
        let busy =
            if agent.turns.is_empty() { "idle".to_owned() } else { format!("working ({})", agent.turns.join(" ")) };
        let state = if agent.state == Running::Active { busy } else { running(agent.state).to_owned() };
        let queued = if agent.queued == 0 { String::new() } else { format!(", {} waiting for it", agent.queued) };
        format!("- {}: {state}{queued}", agent.name)
    });
    list(&mut lines, agents.collect());
    Ok(lines.join("\n"))
}

fn list(lines: &mut Vec<String>, mut items: Vec<String>) {
    let more = items.len().saturating_sub(LINES_MAX);
    items.truncate(LINES_MAX);
    lines.extend(items);
    if more > 0 {
        lines.push(format!("- … and {more} more"));
    }
}

const fn running(state: Running) -> &'static str {
    match state {
        Running::Active => "is running",
        Running::Paused => "is paused",
        Running::Stopped => "is stopped",
    }
}

fn distance(to: &Distance) -> String {
    format!("{} {}", to.name, to.amounts().join(" of "))
}

/// Shows a conversation, each message under its cause.
pub(super) async fn tree(broker: &RetryingClient, about: Option<&str>) -> Result<String, ClientError> {
    let Some(reference) = about else { return Ok(NO_REF.to_owned()) };
    let view = within(broker, broker.client().conversation(reference)).await?;
    Ok(drawn(&view))
}

fn drawn(view: &ConversationView) -> String {
    let mut lines = vec![format!("{} {}", view.summary.reference, running(view.summary.state))];
    for (place, node) in view.tree.iter().enumerate() {
        draw(&mut lines, node, "", place + 1 == view.tree.len());
    }
    let mut text = String::new();
    for line in &lines {
        // A backtick could end the code block and let a message's text act as markup.
        let line = line.replace('`', "'");
        if text.chars().count() + line.chars().count() > TREE_CHARS_MAX {
            text.push_str("… `lastword tree` has all of it\n".replace('`', "").as_str());
            break;
        }
        text.push_str(&line);
        text.push('\n');
    }
    format!("```\n{text}```")
}

fn draw(lines: &mut Vec<String>, node: &TreeNode, indent: &str, last: bool) {
    let message = &node.message;
    let branch = if last { "└ " } else { "├ " };
    let how = message.status.map(|status| format!(" {status}")).unwrap_or_default();
    let route = format!("{} → {} {}{how}", message.from, message.to, message.kind.keyword());
    lines.push(column(&format!("{indent}{branch}{route}")));
    let indent = format!("{indent}{}", if last { "  " } else { "│ " });
    let body = title(&message.body, BODY_CHARS_MAX);
    if !body.is_empty() {
        lines.push(column(&format!("{indent}{body}")));
    }
    for refused in &node.refusals {
        let to = refused.to.as_deref().unwrap_or("?");
        lines.push(column(&format!("{indent}✗ {} → {to}: {}", refused.from, refused.problem.code)));
    }
    for (place, child) in node.children.iter().enumerate() {
        draw(lines, child, &indent, place + 1 == node.children.len());
    }
}

/// Cuts a line to the columns of a phone.
fn column(line: &str) -> String {
    // Not `title`, which takes the indentation away.
    if line.chars().count() <= COLUMNS_MAX {
        return line.to_owned();
    }
    line.chars().take(COLUMNS_MAX - 1).chain(['…']).collect()
}

/// Shortens a number from a million on.
fn brief(number: u64) -> String {
    match number {
        0..1_000_000 => number.to_string(),
        1_000_000..10_000_000_000 => format!("{}M", number / 1_000_000),
        _ => format!("{}G", number / 1_000_000_000),
    }
}

/// Shows limits, the nearest first.
fn rows(limits: &[Distance]) -> Vec<String> {
    let mut limits: Vec<&Distance> = limits.iter().collect();
    limits.sort_by_key(|to| std::cmp::Reverse(u128::from(to.current) * 1_000 / u128::from(to.limit.max(1))));
    let row = |to: &&Distance| {
        let words = |n| if is_cost(&to.name) { money(n) } else { brief(n) };
        let used = format!("{}/{}", words(to.current), words(to.limit));
        column(&format!("{:<24} {used:>14}", to.name))
    };
    limits.iter().map(row).collect()
}

/// Shows a conversation's and its grants' distance to each limit; without a conversation, the limits in force.
pub(super) async fn limits(broker: &RetryingClient, about: Option<&str>) -> Result<String, ClientError> {
    let Some(reference) = about else {
        let view = within(broker, broker.client().limits()).await?;
        let (set, usual): (Vec<_>, Vec<_>) = view.items.iter().partition(|limit| limit.value != limit.default);
        let mut text = format!(
            "A grant can cause at most {} waking messages. In a thread, `/{NAME} limits` shows what is left.\n",
            view.bound_messages
        );
        if !set.is_empty() {
            let mut lines = Vec::new();
            let row = |limit: &&LimitView| column(&format!("{:<28} {:>11}", limit.name, limit.value));
            list(&mut lines, set.iter().map(row).collect());
            text.push_str(&format!("```\n{}\n```", lines.join("\n")));
        }
        let others = if set.is_empty() { "limits have" } else { "others have" };
        return Ok(format!("{text}{} {others} their defaults: `lastword limits`.", usual.len()));
    };
    let view = within(broker, broker.client().conversation(reference)).await?;
    let mut lines = rows(&view.limits);
    for grant in &view.grants {
        let left = || grant.messages_left().unwrap_or_else(|| "is open".to_owned());
        let open = if grant.open { left() } else { "is over".to_owned() };
        lines.push(format!("\n{}", column(&format!("{} of {}", grant.id, grant.giver))));
        lines.push(column(&open));
        lines.extend(rows(&grant.limits));
    }
    Ok(format!("**{reference}**\n```\n{}\n```", lines.join("\n")))
}
