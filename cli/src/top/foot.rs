//! The footer: the prompt, the result of the last action, and the key hints.

use ratatui::layout::Rect;
use ratatui::widgets::{Paragraph, Wrap};

use super::model::{ActionResult, Mode, Model, Order, Purpose, Seen, ServerConnection};
use super::rows::Item;
use crate::out::{StyledLine, Tone, escape_line};

/// What is said in place of what has no room on the screen.
const TOO_LONG: &str = "too long to show here: decide in the console · Esc back";

/// Returns how many rows a line takes.
pub(super) fn rows_of(line: &StyledLine, columns: u16) -> u16 {
    let words: String = line.iter().map(|(_, words)| words.as_str()).collect();
    u16::try_from(Paragraph::new(words).wrap(Wrap { trim: false }).line_count(columns)).unwrap_or(u16::MAX).max(1)
}

/// Returns the prompt or the result of the last action, if there is one, and whether the screen has room for all of it.
pub(super) fn prompt(model: &Model, area: Rect) -> (Option<StyledLine>, bool) {
    let line = match (&model.mode, &model.told) {
        (Mode::StyledLine(purpose, typed), _) => typed_line(purpose, typed),
        (Mode::Confirm(question, _), _) => {
            vec![(Tone::Warn, question.clone()), (Tone::Strong, " [y/N]".to_owned())]
        }
        (_, Some(ActionResult::Done(words))) => vec![(Tone::Good, words.clone())],
        (_, Some(ActionResult::Failed(words))) => vec![(Tone::Bad, words.clone())],
        (Mode::List | Mode::Detail | Mode::Help, None) => return (None, false),
    };
    // The heading and a row of the body stay.
    if rows_of(&line, area.width) <= area.height.saturating_sub(2) {
        return (Some(line), true);
    }
    (Some(vec![(Tone::Warn, TOO_LONG.to_owned())]), false)
}

/// Returns the line below the body.
pub(super) fn footing(model: &Model, seen: Seen, asked: Option<StyledLine>) -> StyledLine {
    match (&model.mode, asked, &model.link) {
        (Mode::Confirm(_, order), Some(asked), _) => match unread(model, seen, order) {
            Some(words) => vec![(Tone::Warn, words)],
            None => asked,
        },
        (_, Some(asked), _) => asked,
        (_, None, ServerConnection::Lost(reason)) => {
            vec![(Tone::Bad, format!("reconnecting: {}", escape_line(reason)))]
        }
        (Mode::Help, ..) => vec![(Tone::Faint, "press any key to close the help".to_owned())],
        (_, None, ServerConnection::Connecting | ServerConnection::Live) => hints(model),
    }
}

/// Returns the note that replaces the question until the whole call was shown.
fn unread(model: &Model, seen: Seen, order: &Order) -> Option<String> {
    let left = seen.scroll_max.saturating_sub(model.scroll);
    match order {
        Order::Approve { id, digest } if !model.shows(digest) => {
            Some(format!("{id} changed or was settled · Esc back"))
        }
        Order::Approve { .. } if model.is_ready(order) || (seen.has_end && left == 0) => None,
        Order::Approve { .. } if !seen.has_end => Some(TOO_LONG.to_owned()),
        Order::Approve { .. } => {
            let lines = if left == 1 { "line" } else { "lines" };
            Some(format!("{left} more {lines}: Space scrolls, then asks · Esc back"))
        }
        Order::Lift { id, .. } if !model.is_ready(order) => Some(format!("{id} changed or was settled · Esc back")),
        Order::Reject { .. }
        | Order::Answer { .. }
        | Order::Lift { .. }
        | Order::Control(..)
        | Order::Refresh
        | Order::Quit => None,
    }
}

fn typed_line(purpose: &Purpose, typed: &str) -> StyledLine {
    let label = match purpose {
        Purpose::Filter => "filter: ".to_owned(),
        Purpose::Reject(id) => format!("reject {id}, because: "),
        Purpose::Answer(id, options) if options.is_empty() => format!("answer {id}: "),
        Purpose::Answer(id, _) => format!("answer {id} (Tab: options): "),
    };
    vec![(Tone::Warn, label), (Tone::Plain, escape_line(typed)), (Tone::Strong, "▏".to_owned())]
}

fn hints(model: &Model) -> StyledLine {
    let keys = match (&model.mode, model.current()) {
        (_, Some(_)) if !model.is_settled() => "new here: keys decide in a moment",
        (_, Some(Item::Approval(_))) => "a approve · r reject · p pause",
        (_, Some(Item::Escalation(view))) if view.offered().next().is_some() => "L choose lift · e answer · s stop",
        (_, Some(Item::Escalation(_))) => "e answer · p pause · s stop",
        (_, Some(Item::Incident(view))) if view.reference.is_some() => "u resume · s stop",
        (_, Some(Item::Incident(_))) => "1 2 3 tabs",
        (_, Some(Item::Conversation(..))) => "f fold · p pause · u resume · s stop",
        (_, Some(Item::Agent(_))) => "p pause · u resume · s stop",
        (_, None) => "1 2 3 tabs",
    };
    let first = if model.mode == Mode::List { "Enter open" } else { "Esc back" };
    let filter =
        if model.filter.is_empty() { String::new() } else { format!(" · filter {:?}", escape_line(&model.filter)) };
    vec![(Tone::Faint, format!("{first} · {keys} · / filter · ? help · q quit{filter}"))]
}
