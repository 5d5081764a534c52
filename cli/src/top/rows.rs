//! The rows of the lists: the text of their cells, and the words by which the filter finds them.

use std::collections::BTreeSet;

use lastword_client::wire::call::{Argument, arguments, without_secrets};
use lastword_client::wire::{
    AgentView, ApprovalView, ConversationStatus, ConversationSummary, Distance, EscalationView, IncidentView,
    parse_rfc3339,
};
use lastword_facts::fact::{EscalationCause, Kind};
use lastword_facts::status::ApprovalState;
use lastword_facts::status::EscalationState;
use lastword_facts::status::Running;

use super::model::Lists;
use super::screen::wall_clock;
use crate::families::{Counted, Families};
use crate::out::{Out, Tone, escape_line};
use crate::render;
use crate::render::outcome_tone;

/// The state of an agent whose program has a dialog open for its own user, and of its work.
pub(crate) const WAITS_FOR_USER: &str = "waits for its user";

/// The state of a conversation whose work waits for a human's decision.
const WAITS_FOR_HUMAN: &str = "for you";

/// A row, and the object that it shows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item<'a> {
    /// A held call that waits for a decision.
    Approval(&'a ApprovalView),
    /// A question that waits for an answer.
    Escalation(&'a EscalationView),
    /// A limit that tripped and holds work.
    Incident(&'a IncidentView),
    /// A conversation, in its own tab, with what it and those folded into it count, and whether work in one of them waits for
    /// a human.
    Conversation(&'a ConversationSummary, Counted, bool),
    /// An agent or human.
    Agent(&'a AgentView),
}

/// A cell: its text, escaped, and its tone.
pub(super) type Cell = (String, Tone);

/// Returns everything that waits for a human: held calls, which expire, then questions, then holds.
pub(super) fn inbox(lists: &Lists) -> Vec<Item<'_>> {
    let mut approvals: Vec<_> = lists.approvals.iter().filter(|a| a.state == ApprovalState::Pending).collect();
    approvals.sort_by(|a, b| a.due().cmp(b.due()));
    let open = |asked: &&EscalationView| {
        asked.state == EscalationState::Open && !render::is_asked_twice(asked, &lists.escalations)
    };
    let escalations = lists.escalations.iter().rev().filter(open);
    // An incident about an agent holds nothing, so it needs no human.
    let incidents = lists.incidents.iter().rev().filter(|i| i.lifted_at.is_none() && i.scope != "agent");
    let approvals = approvals.into_iter().map(Item::Approval);
    approvals.chain(escalations.map(Item::Escalation)).chain(incidents.map(Item::Incident)).collect()
}

impl<'a> Item<'a> {
    /// Returns the key by which the row stays selected.
    pub(super) fn key(&self) -> &'a str {
        match *self {
            Self::Approval(view) => &view.id,
            Self::Escalation(view) => &view.id,
            Self::Incident(view) => &view.id,
            Self::Conversation(view, ..) => &view.reference,
            Self::Agent(view) => &view.name,
        }
    }

    /// Returns all text of the row in lower case, for the filter.
    pub(super) fn text(&self) -> String {
        let cells = self.cells(0).into_iter().map(|(text, _)| text).collect::<Vec<_>>().join(" ");
        let more = match self {
            Self::Approval(view) => format!("{} {}", view.reason.as_deref().unwrap_or_default(), view.arguments),
            Self::Escalation(view) => view.message.clone(),
            Self::Conversation(view, ..) => view.parent_ref.clone().unwrap_or_default(),
            Self::Incident(_) | Self::Agent(_) => String::new(),
        };
        format!("{cells} {more}").to_lowercase()
    }

    /// Returns the row's cells.
    pub(super) fn cells(&self, now_ms: u64) -> Vec<Cell> {
        let plain = |text: &str| (escape_line(text), Tone::Plain);
        let faint = |text: &str| (escape_line(text), Tone::Faint);
        match *self {
            Self::Approval(view) => vec![
                ("approve?".to_owned(), Tone::Bad),
                plain(&view.id),
                plain(&view.agent),
                faint(view.reference.as_deref().unwrap_or("-")),
                left(view.due(), now_ms),
                plain(&format!("{} {}", view.tool, about(view))),
            ],
            Self::Escalation(view) => vec![
                match view.cause {
                    EscalationCause::TimedOut => ("timed out".to_owned(), Tone::Bad),
                    EscalationCause::Asked | EscalationCause::NoProgress => ("answer?".to_owned(), Tone::Warn),
                },
                plain(&view.id),
                plain(&view.agent),
                faint(&view.reference),
                age(&view.created_at, now_ms),
                plain(&view.message),
            ],
            Self::Incident(view) => vec![
                ("held".to_owned(), Tone::Bad),
                plain(&view.id),
                faint("-"),
                faint(view.reference.as_deref().unwrap_or(&view.on)),
                age(&view.at, now_ms),
                plain(&format!("{} {}: {}", view.code, view.amounts().join("/"), view.code.title())),
            ],
            Self::Conversation(view, counted, waits) => conversation(view, &counted, waits, now_ms),
            Self::Agent(view) => agent(view),
        }
    }
}

/// Returns a held call's subject in short: the command, file or address, else its arguments.
fn about(view: &ApprovalView) -> String {
    let first = arguments(&view.arguments).into_iter().next().filter(Argument::is_subject);
    without_secrets(&first.map_or_else(|| view.arguments.to_string(), |part| part.text))
}

fn conversation(view: &ConversationSummary, counted: &Counted, waits: bool, now_ms: u64) -> Vec<Cell> {
    let open = if counted.open_tasks == 0 { Tone::Faint } else { Tone::Good };
    vec![
        (escape_line(&view.reference) + &counted.folded(), Tone::Plain),
        if waits { (WAITS_FOR_HUMAN.to_owned(), Tone::Warn) } else { state_of(view) },
        (escape_line(&view.subject), Tone::Plain),
        (counted.open_tasks.to_string(), open),
        (counted.spent(), Tone::Plain),
        view.nearest.as_ref().map_or_else(|| ("-".to_owned(), Tone::Faint), nearest),
        (counted.messages.to_string(), Tone::Plain),
        age(&view.last_at, now_ms),
    ]
}

/// Returns the conversations. Folded, one that was opened from another in the list is counted at that one instead.
pub(super) fn conversations(lists: &Lists, unfolded: bool) -> Vec<Item<'_>> {
    let families = Families::of(&lists.conversations, unfolded);
    let calls = lists.approvals.iter().filter(|call| call.state == ApprovalState::Pending);
    let calls = calls.filter_map(|call| call.reference.as_deref());
    let asked = lists.escalations.iter().filter(|asked| asked.state == EscalationState::Open);
    let asked = asked.filter(|asked| asked.cause != EscalationCause::TimedOut).map(|asked| asked.reference.as_str());
    // What is folded into another conversation waits there.
    let waiting: BTreeSet<&str> = calls.chain(asked).map(|name| families.top(name)).collect();
    let shown = lists.conversations.iter().filter_map(|one| Some((one, families.counted(&one.reference)?)));
    shown.map(|(one, counted)| Item::Conversation(one, counted, waiting.contains(one.reference.as_str()))).collect()
}

fn agent(view: &AgentView) -> Vec<Cell> {
    let human = view.kind == Kind::Human;
    let (link, look) = match (human, view.connected) {
        (true, _) => ("human", Tone::Faint),
        (false, true) => ("connected", Tone::Good),
        (false, false) => ("disconnected", Tone::Plain),
    };
    let turn = match view.turns.as_slice() {
        [] => ("-".to_owned(), Tone::Faint),
        [only] => (escape_line(only), Tone::Good),
        [first, more @ ..] => (format!("{} +{}", escape_line(first), more.len()), Tone::Good),
    };
    let window = |name: &str| {
        let found = view.windows.iter().find(|window| window.name == name);
        found.map_or_else(|| ("-".to_owned(), Tone::Faint), share)
    };
    vec![
        (escape_line(&render::named(view)), Tone::Plain),
        // The detail says it in full.
        if rests(view).is_some() { ("budget".to_owned(), Tone::Warn) } else { runs(view) },
        (link.to_owned(), look),
        (view.queued.to_string(), if view.queued == 0 { Tone::Faint } else { Tone::Plain }),
        turn,
        window("sender_messages_max"),
        window("fan_out_targets_max"),
        window("roots_per_hour_max"),
        (view.tokens_today.to_string(), Tone::Plain),
    ]
}

/// Returns the end of an agent's rest, if its day budget is used up and no human paused or stopped it.
pub(super) fn rests(view: &AgentView) -> Option<&str> {
    view.rests_until.as_deref().filter(|_| view.state == Running::Active)
}

/// Formats whether a human paused or stopped an agent.
pub(super) fn runs(view: &AgentView) -> Cell {
    if view.waits_for_user {
        return (WAITS_FOR_USER.to_owned(), Tone::Warn);
    }
    standing(ConversationStatus::of(view.state, false, true))
}

/// Formats a conversation's status, or for whom its work waits.
pub(crate) fn told_state(summary: &ConversationSummary, waits_for_human: bool) -> Cell {
    // An open dialog counts as a wait for a human, too, and only its own user can answer it.
    let waits = waits_for_human && summary.waits_for_user.is_empty();
    if waits && summary.standing() == ConversationStatus::Active {
        return ("waiting for a human".to_owned(), Tone::Warn);
    }
    state_of(summary)
}

/// Formats a conversation's status, or that its work waits for a program's own user.
fn state_of(summary: &ConversationSummary) -> Cell {
    let found = summary.standing();
    if found == ConversationStatus::Active && !summary.waits_for_user.is_empty() {
        return (WAITS_FOR_USER.to_owned(), Tone::Warn);
    }
    summary.ended().map_or_else(|| standing(found), |outcome| (outcome.label().to_owned(), outcome_tone(outcome)))
}

/// Formats a status as one word.
fn standing(standing: ConversationStatus) -> Cell {
    let look = match standing {
        ConversationStatus::Stopped | ConversationStatus::Latched => Tone::Bad,
        ConversationStatus::Paused => Tone::Warn,
        ConversationStatus::Active => Tone::Good,
        ConversationStatus::Idle => Tone::Faint,
    };
    (standing.label().to_owned(), look)
}

/// Formats the nearest limit, by its name in `lastword limits`.
fn nearest(distance: &Distance) -> Cell {
    let (text, look) = share(distance);
    (format!("{} {text}", distance.name.trim_end_matches("_max").trim_end_matches("_microusd")), look)
}

/// Formats the used share of a limit.
pub(crate) fn share(distance: &Distance) -> Cell {
    let percent = distance.current.saturating_mul(100) / distance.limit.max(1);
    let look = match percent {
        100.. => Tone::Bad,
        75.. => Tone::Warn,
        _ => Tone::Plain,
    };
    (distance.amounts().join("/"), look)
}

/// Formats how long ago a time was.
pub(super) fn age(at: &str, now_ms: u64) -> Cell {
    let at = parse_rfc3339(at).map_or(now_ms, |at| at.0);
    (format!("{} ago", span(now_ms.saturating_sub(at))), Tone::Faint)
}

/// Formats a time: on a terminal how long ago it was, else in full.
pub(crate) fn moment(at: &str, out: &Out) -> String {
    if out.columns().is_some() { age(at, wall_clock()).0 } else { at.to_owned() }
}

/// Formats how long it is until a time.
fn left(at: &str, now_ms: u64) -> Cell {
    let at = parse_rfc3339(at).map_or(now_ms, |at| at.0);
    let left = at.saturating_sub(now_ms);
    (format!("{} left", span(left)), if left < 60_000 { Tone::Bad } else { Tone::Warn })
}

/// Formats a duration in its two largest units.
pub(crate) fn span(ms: u64) -> String {
    let s = ms / 1_000;
    match s {
        0..60 => format!("{s}s"),
        60..3_600 => format!("{}m{:02}s", s / 60, s % 60),
        3_600..172_800 => format!("{}h{:02}m", s / 3_600, s / 60 % 60),
        _ => format!("{}d", s / 86_400),
    }
}
