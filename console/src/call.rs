//! The card of a held call in the inbox, with everything that an approval would allow.

use std::collections::BTreeSet;

use lastword_facts::fact::Role;
use lastword_server::calls::policy::{self, written};
use lastword_wire::call::{Argument, ArgumentKind, arguments, without_secrets};
use lastword_wire::redact::redacted_call;
use lastword_wire::{ApprovalView, Arguments, LimitsView};
use maud::{Markup, html};

use super::decision::{chain, ends, urgency};
use super::edit;
use super::highlight::{Tone, tones};
use super::layout::Moment;
use super::parts::{Fold, clock, encoded, excerpt, foreign, foreign_line, plural, quantity, running_word, time, url};
use super::session::Viewer;
use crate::reads::decisions::Decision;
use crate::reads::risk::{Alike, Differs, Risk, subject};
use crate::reads::work_state::PausedScope;

/// The subject of a call is shown unfolded up to this size, far beyond other texts.
const SUBJECT_FOLD: Fold = Fold { bytes_max: 8_000, lines_max: 80 };

/// The largest call that is edited within a list; the fields of a larger one are on its own page.
const EDITED_BYTES_MAX: usize = 4_000;

/// The characters that are shown of what differs.
const DIFFERS_CHARS: usize = 300;

/// The most agents that are named above the calls of a group.
const NAMES_MAX: usize = 5;

/// How much of a call is shown at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Long parts are folded.
    Folded,
    /// All of it, on its own page.
    Whole,
}

/// Shows a held call, the requests that led to it, and the forms that decide it.
pub(super) fn card(
    viewer: &Viewer,
    moment: &Moment,
    limits: &LimitsView,
    decision: &Decision,
    held: &ApprovalView,
    extent: Extent,
) -> Markup {
    let id = &held.id;
    // Who decides has to see all of it; who only looks on has not.
    let shown = if viewer.role <= Role::Approver { held.arguments.clone() } else { redacted_call(&held.arguments) };
    let parts = arguments(&shown);
    let unseen = |part: &Argument| fold(part, extent).lines_unseen(&part.text);
    html! {
        article.card id=(id) tabindex="-1" data-row aria-labelledby={ (id) "-title" } {
            header {
                @if viewer.role <= Role::Approver { input.pick type="checkbox" name=(id) form="reject-many" aria-label={ "Select " (id) }; }
                h2 id={ (id) "-title" } { b { (foreign_line(&held.agent)) } " asks to call " b { (foreign_line(&held.tool)) } }
                (urgency(decision.priority))
                @if let Some(tier) = &held.tier { span.badge.plain { (foreign_line(tier)) } }
                span.grow {}
                (ends(decision, moment))
                a.faint href={ (url("/approvals/")) (id) } { code { (id) } } (time(&held.created_at, moment.now))
            }
            (apart(decision))
            (chain(viewer, decision, held.reference.as_deref().unwrap_or_default()))
            (alike(decision, held))
            (arguments_of(&shown, extent))
            (differs(decision))
            @if let Some(reason) = &held.reason { div.reason { span.faint { (foreign_line(&held.agent)) " says why" } (foreign(reason)) } }
            div.facts {
                @match decision.lease_until {
                    Some(until) if decision.due == Some(until) => span { "Withdrawn if " (foreign_line(&held.agent)) " isn't heard of in the time left, before " (clock(until)) "." },
                    Some(_) | None => span { "Denied if nobody decides in time." },
                }
                @if let Some((scope, running)) = decision.agent_state {
                    span.paused {
                        @match scope { PausedScope::Workspace => "The workspace", PausedScope::Agent => (foreign_line(&held.agent)) }
                        " is " (running_word(running)) ": an approved call waits until it is resumed."
                        @if scope == PausedScope::Agent { " " a href={ (url("/agents/")) (encoded(&held.agent)) } { "Look at the agent" } }
                    }
                }
                @if let Some(time) = time_to_use(limits) { span { "Once approved, the call must be made within " (time) "." } }
                @if let Some(policy) = &held.policy { span { "Held by the rule " code { (foreign_line(policy)) } } }
                (digest(held))
            }
            (viewer.allowed(Role::Approver, "Deciding a call", || html! {
                (decide(viewer, decision, held, parts.iter().map(unseen).sum()))
                @if decision.alike.is_empty() { (edited(viewer, held, extent)) (otherwise(viewer, held)) }
            }))
        }
    }
}

/// Shows in a few words what a call destroys and how far it reaches.
pub(super) fn alarms(risk: &Risk) -> Markup {
    html! {
        @if let Some(words) = risk.destroys { span.badge.bad { (words) } " " }
        @for change in &risk.changes { span.badge.warn { (foreign_line(change)) } " " }
        @for host in &risk.new_hosts { span.badge.warn { "new host " (foreign_line(host)) } " " }
    }
}

/// Shows in a few words all that sets a call apart.
fn chips(risk: &Risk) -> Markup {
    html! { (alarms(risk)) @if risk.is_first { span.badge.plain { "first of its kind" } " " } }
}

/// Returns what a call acts on, for a line of `chars` characters: from where it destroys something, if that is behind them.
pub(super) fn gist(all: &Arguments, chars: usize) -> String {
    let text = subject(all);
    let far = arguments(all).into_iter().next().filter(|part| part.is_subject() && part.text.len() > chars);
    let begin = far.and_then(|part| tones(&part).iter().position(|tone| *tone == Tone::Danger));
    let behind = begin.filter(|at| *at > chars / 2).and_then(|at| text.get(at..));
    without_secrets(&behind.map_or(text.clone(), |behind| format!("… {behind}")))
}

fn apart(decision: &Decision) -> Markup {
    let Some(risk) = &decision.risk else { return html! {} };
    html! {
        @if risk.destroys.is_some() || !risk.changes.is_empty() || !risk.new_hosts.is_empty() || risk.is_first {
            p.apart title="As far as the approvals of this workspace are remembered" { (chips(risk)) }
        }
    }
}

/// Shows how a call differs from the last one of its tool and agent that was approved.
fn differs(decision: &Decision) -> Markup {
    let Some(Differs { from, without, with }) = decision.risk.as_ref().and_then(|risk| risk.differs.as_ref()) else {
        return html! {};
    };
    let from = from.to_string();
    let shown = |text: &str| excerpt(&without_secrets(text), DIFFERS_CHARS);
    html! {
        p.differs {
            "Differs from " a href={ (url("/approvals/")) (from) } { (from) } ", which was approved: "
            @if !without.is_empty() { del { (shown(without)) } " " }
            @if !with.is_empty() { ins { (shown(with)) } }
        }
    }
}

/// Lists the calls that are decided with this one.
fn alike(decision: &Decision, held: &ApprovalView) -> Markup {
    if decision.alike.is_empty() {
        return html! {};
    }
    let names: BTreeSet<&str> =
        decision.alike.iter().map(|one| one.agent.as_str()).chain([held.agent.as_str()]).collect();
    let more = names.len().saturating_sub(NAMES_MAX);
    let names: Vec<&str> = names.into_iter().take(NAMES_MAX).collect();
    html! {
        details.alike id={ (decision.asked.id()) "-alike" } {
            summary { (plural(decision.alike.len() as u64 + 1, "call", "calls")) " of this tool with these very arguments, by " (foreign_line(&names.join(", "))) @if more > 0 { " and " (more) " others" } }
            ul.lines { @for Alike { id, agent, .. } in &decision.alike {
                @let id = id.to_string();
                li { a.id href={ (url("/approvals/")) (id) } { (id) } " of " b { (foreign_line(agent)) } }
            } }
        }
    }
}

/// Returns the time in which an approved call may be made.
fn time_to_use(limits: &LimitsView) -> Option<String> {
    let limit = limits.items.iter().find(|limit| limit.name == "approval_use_ms")?;
    Some(quantity(&limit.name, limit.value))
}

/// Shows the digest on demand.
pub(super) fn digest(held: &ApprovalView) -> Markup {
    html! {
        details.digest id={ (held.id) "-digest" } {
            summary { "Digest" }
            code { (held.digest) } " is computed from this call; an approval is for exactly this one."
        }
    }
}

/// Shows the whole call.
pub(super) fn arguments_of(all: &Arguments, extent: Extent) -> Markup {
    html! { div.call { @for part in &arguments(all) { (argument(part, extent)) } } }
}

fn fold(part: &Argument, extent: Extent) -> Fold {
    match extent {
        Extent::Whole => Fold::NONE,
        Extent::Folded if part.is_subject() || part.kind == ArgumentKind::Change => SUBJECT_FOLD,
        Extent::Folded => Fold::USUAL,
    }
}

/// Shows one part of the arguments according to its kind.
fn argument(part: &Argument, extent: Extent) -> Markup {
    let class = match part.kind {
        ArgumentKind::Command => "foreign code command",
        ArgumentKind::Address => "foreign code address",
        ArgumentKind::Path | ArgumentKind::Query | ArgumentKind::Change | ArgumentKind::Text | ArgumentKind::Rest => {
            "foreign code"
        }
    };
    html! {
        div.argument {
            p.name { (part.name) }
            (fold(part, extent).coloured(&part.text, class, &tones(part)))
        }
    }
}

/// Shows the two most frequent decisions. The script removes the number of unseen lines from the button once they are
/// unfolded; without it, the first press leads to the call's own page, which folds nothing.
fn decide(viewer: &Viewer, decision: &Decision, held: &ApprovalView, unseen: usize) -> Markup {
    let (id, alike) = (&held.id, &decision.alike);
    // The button says what it allows, and looks like it.
    let destroys = decision.risk.as_ref().and_then(|risk| risk.destroys);
    let (what, to) = match alike.len() {
        0 => (id.clone(), format!("/approvals/{id}")),
        more => (format!("all {}", more + 1), "/inbox/alike".to_owned()),
    };
    let rejected = what.clone();
    let what = destroys.map_or(what.clone(), |words| format!("{what}: {words}"));
    // Each call is named with its digest: what came since isn't decided.
    let named = html! { @if !alike.is_empty() {
        input type="hidden" name=(id) value=(held.digest);
        @for Alike { id, digest, .. } in alike { input type="hidden" name=(id) value=(digest); }
    } };
    html! {
        div.decide {
            (viewer.form(&format!("{id}-approve"), &format!("{to}/approve"), &html! {
                input type="hidden" name="digest" value=(held.digest);
                (named)
                // A press without scripts sends nothing of the fields below. A call with unseen lines is asked about on its page.
                @if alike.is_empty() && unseen == 0 { input type="hidden" name="question" value={ "Approve " (id) " as it was asked? An edit or words that you typed on its card are left out: go back to send them." }; }
                // The script clears it once the call was seen to its end.
                input type="hidden" name="unseen" value=(unseen);
                button.main.grave[destroys.is_some()] type="submit" data-key="a" data-approve=(what) {
                    "Approve " (what) @if unseen > 0 { ", " (plural(unseen as u64, "line", "lines")) " unseen" }
                }
            }))
            (viewer.form(&format!("{id}-reject"), &format!("{to}/reject"), &html! {
                (named)
                button.danger type="submit" aria-label={ "Reject " (rejected) } { @if alike.is_empty() { "Reject" } @else { "Reject " (rejected) } }
                label.unseen for={ (id) "-reason" } { "Reason for rejecting " (id) }
                input id={ (id) "-reason" } type="text" name="comment" placeholder="Reason for the agent, if you reject" data-key="r" autocomplete="off";
            }))
        }
    }
}

/// Shows the form that edits the call.
fn edited(viewer: &Viewer, held: &ApprovalView, extent: Extent) -> Markup {
    let id = &held.id;
    html! {
        @if extent == Extent::Whole || held.arguments.as_str().len() <= EDITED_BYTES_MAX {
            details id={ (id) "-edited" } {
                summary { "Edit, then approve" }
                (edit::form(viewer, held))
            }
        } @else {
            p { a href={ (url("/approvals/")) (id) } { "Edit it on its page" } }
        }
    }
}

/// Shows the other decisions.
fn otherwise(viewer: &Viewer, held: &ApprovalView) -> Markup {
    let id = &held.id;
    let to = |verb: &str| format!("/approvals/{id}/{verb}");
    let rule = policy::exact(held);
    html! {
        details id={ (id) "-more" } {
            summary { @if rule.is_some() { "Reject with instructions, ignore or always allow" } @else { "Reject with instructions or ignore" } }
            (viewer.form(&format!("{id}-respond"), &to("respond"), &html! {
                label for={ (id) "-words" } { "Instructions for the agent" }
                textarea id={ (id) "-words" } name="comment" rows="2" {}
                button type="submit" { "Reject with instructions" }
            }))
            @if let Some(rule) = rule {
                h3 { "Always allow this" }
                p { "This rule in " code { "lastword.toml" } ", above other rules that match the call, allows this very call, with all its arguments:" }
                pre.rule { (written(&rule)) }
                @if viewer.role == Role::Owner {
                    p { a.button href={ (url("/approvals/")) (id) "/always" } { "Write this rule, or a wider one…" } }
                } @else {
                    p.faint { "An owner can write it." }
                }
            }
            (viewer.form(&format!("{id}-ignore"), &to("ignore"), &html! {
                button type="submit" { "Ignore" } " " span.faint { "Tells the agent that nobody decided the call." }
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_about_a_long_command_begins_where_it_destroys() {
        let of = |command: &str| {
            let all = serde_json::json!({ "command": command });
            gist(&Arguments::stored(&all.to_string()), 110)
        };
        let steps = "ls -la && ".repeat(20);
        assert_eq!(of(&format!("{steps}rm -rf /srv; ls")), "… rm -rf /srv; ls");
        assert_eq!(of(&steps), steps);
        assert_eq!(of("ls; rm -rf /srv"), "ls; rm -rf /srv");
    }
}
