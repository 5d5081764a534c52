//! The card of a held call in the inbox, with everything that an approval would allow.

use lastword_proto::fact::Role;
use lastword_proto::wire::ApprovalView;
use lastword_proto::wire::call::{Argument, ArgumentKind, arguments, json};
use maud::{Markup, html};

use super::decision::{chain, ends, urgency};
use super::layout::Moment;
use super::parts::{Fold, foreign, foreign_line, plural, time};
use super::session::Viewer;
use crate::calls::decisions::Decision;

/// The subject of a call is shown unfolded up to this size, far beyond other texts.
const SUBJECT_FOLD: Fold = Fold { bytes_max: 8_000, lines_max: 80 };

/// Shows a held call, the requests that led to it, and the forms that decide it.
pub(super) fn card(viewer: &Viewer, moment: &Moment, decision: &Decision, held: &ApprovalView) -> Markup {
    let id = &held.id;
    html! {
        article.card id=(id) tabindex="-1" data-row aria-labelledby={ (id) "-title" } {
            header {
                h2 id={ (id) "-title" } { b { (foreign_line(&held.agent)) } " asks to call " code { (foreign_line(&held.tool)) } }
                (urgency(decision.priority))
                @if let Some(tier) = &held.tier { span.badge.plain { (foreign_line(tier)) } }
                span.grow {}
                (ends(decision, moment))
                a.faint href={ "/approvals/" (id) } { code { (id) } } (time(&held.created_at, moment.now))
            }
            (chain(decision, held.reference.as_deref().unwrap_or_default()))
            @let parts = arguments(&held.arguments);
            (arguments_of(held))
            @if let Some(reason) = &held.reason { div.reason { span.faint { "Reason" } (foreign(reason)) } }
            p.facts {
                span { "denied if nobody decides" }
                @if let Some(policy) = &held.policy { span { "rule " code { (foreign_line(policy)) } } }
                span.digest title="SHA-256 of this call; your approval is for exactly this call" { "digest " code { (held.digest) } }
            }
            (viewer.allowed(Role::Approver, "Deciding a call", || html! {
                (decide(viewer, held, parts.iter().map(|part| fold(part).lines_unseen(&part.text)).sum()))
                (otherwise(viewer, held))
            }))
        }
    }
}

/// Shows the whole call.
pub(super) fn arguments_of(held: &ApprovalView) -> Markup {
    html! { div.call { @for part in &arguments(&held.arguments) { (argument(part)) } } }
}

const fn fold(part: &Argument) -> Fold {
    if part.is_subject() { SUBJECT_FOLD } else { Fold::USUAL }
}

/// Shows one part of the arguments according to its kind.
fn argument(part: &Argument) -> Markup {
    let class = match part.kind {
        ArgumentKind::Command => "foreign code command",
        ArgumentKind::Address => "foreign code address",
        ArgumentKind::Path | ArgumentKind::Query | ArgumentKind::Text | ArgumentKind::Rest => "foreign code",
    };
    html! {
        div.argument {
            p.name { (part.name) }
            (fold(part).escaped(&part.text, class))
        }
    }
}

/// Shows the two most frequent decisions. The script removes the number of unseen lines from the button once they are
/// unfolded.
fn decide(viewer: &Viewer, held: &ApprovalView, unseen: usize) -> Markup {
    let id = &held.id;
    html! {
        div.decide {
            (viewer.form(&format!("{id}-approve"), &format!("/approvals/{id}/approve"), &html! {
                input type="hidden" name="digest" value=(held.digest);
                button.main type="submit" data-key="a" data-approve {
                    "Approve" @if unseen > 0 { ", " (plural(unseen as u64, "line", "lines")) " unseen" }
                }
            }))
            (viewer.form(&format!("{id}-reject"), &format!("/approvals/{id}/reject"), &html! {
                label.unseen for={ (id) "-reason" } { "Reason for rejecting " (id) }
                input id={ (id) "-reason" } type="text" name="comment" placeholder="Reason for the agent" data-key="r" autocomplete="off";
                button.danger type="submit" { "Reject" }
            }))
        }
    }
}

fn otherwise(viewer: &Viewer, held: &ApprovalView) -> Markup {
    let id = &held.id;
    let to = |verb: &str| format!("/approvals/{id}/{verb}");
    let arguments = json(&held.arguments);
    html! {
        details id={ (id) "-more" } {
            summary { "Respond, edit or ignore" }
            (viewer.form(&format!("{id}-respond"), &to("respond"), &html! {
                label for={ (id) "-words" } { "Reject it with instructions for the agent" }
                textarea id={ (id) "-words" } name="comment" rows="2" {}
                button type="submit" { "Respond" }
            }))
            (viewer.form(&format!("{id}-edit"), &to("edit"), &html! {
                label for={ (id) "-input" } { "Approve it with different arguments" }
                textarea.code id={ (id) "-input" } name="input" rows=(arguments.lines().count().clamp(2, 16)) spellcheck="false" { (arguments) }
                button type="submit" { "Approve the edited call" }
            }))
            (viewer.form(&format!("{id}-ignore"), &to("ignore"), &html! {
                button type="submit" { "Ignore" } " " span.faint { "The agent is told that the call was not decided." }
            }))
        }
    }
}
