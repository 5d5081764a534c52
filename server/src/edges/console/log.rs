//! The history as recorded: every line, with rule and numbers for refusals.

use lastword_proto::wire::Event;
use maud::{Markup, html};
use serde_json::Value;

use super::layout::Moment;
use super::parts::{badge, conversation, excerpt, foreign_line, time};
use crate::calls::history::{History, HistoryEntry};

/// Shows the lines, newest last.
pub(super) fn view(moment: &Moment, history: &History) -> Markup {
    html! {
        ol.log { @for line in &history.lines { (row(moment, line, &history.view.summary.reference)) } }
    }
}

fn row(moment: &Moment, line: &HistoryEntry, reference: &str) -> Markup {
    let event = &line.event;
    html! {
        li id={ "line-" (event.seq) } tabindex="-1" data-row {
            a.seq data-open-row href={ "/messages/msg-" (event.seq) } { (event.seq) }
            span.kind { (badge(&event.kind)) }
            span.what {
                @if let Some(agent) = &event.agent { b { (foreign_line(agent)) } " " }
                @if event.reference.as_deref().is_some_and(|found| found != reference) {
                    "in " (conversation(event.reference.as_deref().unwrap_or_default())) " "
                }
                (what(line))
            }
            (time(&event.at, moment.now))
        }
    }
}

fn what(line: &HistoryEntry) -> Markup {
    if let Some(problem) = &line.refusal {
        return html! { (foreign_line(&problem.detail)) " " span.faint { "rule " (problem.rule) ", " code { (problem.code) } } };
    }
    if let Some(message) = &line.event.message {
        return html! {
            (message.kind.word()) " to " b { (foreign_line(&message.to)) } " " span.faint { "depth " (message.depth) ", hop " (message.hops) } " "
            @if let Some(status) = message.status { (badge(status.word())) " " }
            (excerpt(&message.body, 160))
        };
    }
    html! { (data(&line.event)) }
}

/// Shows the members of an event without a message.
pub(super) fn data(event: &Event) -> Markup {
    html! {
        @for (name, value) in &event.data {
            span.pair { span.faint { (name.replace('_', " ")) } " " (plain(value)) } " "
        }
    }
}

fn plain(value: &Value) -> Markup {
    match value {
        Value::String(text) => excerpt(text, 160),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            excerpt(&value.to_string(), 160)
        }
    }
}
