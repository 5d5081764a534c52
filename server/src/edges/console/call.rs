//! The card of a held call in the inbox, with everything that an approval would allow.

use lastword_proto::fact::Role;
use lastword_proto::names::AgentName;
use lastword_proto::policy::{ApprovalRule, CallPattern, Ruling};
use lastword_proto::visible::escape;
use lastword_proto::wire::call::{self, Argument, ArgumentKind, arguments, json};
use lastword_proto::wire::{ApprovalView, LimitsView};
use maud::{Markup, html};

use super::decision::{chain, ends, urgency};
use super::highlight::tones;
use super::layout::Moment;
use super::parts::{Fold, foreign, foreign_line, plural, quantity, time};
use super::session::Viewer;
use crate::calls::decisions::Decision;
use crate::calls::policy::written;

/// The subject of a call is shown unfolded up to this size, far beyond other texts.
const SUBJECT_FOLD: Fold = Fold { bytes_max: 8_000, lines_max: 80 };

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
    (decision, held): (&Decision, &ApprovalView),
    extent: Extent,
) -> Markup {
    let id = &held.id;
    let parts = arguments(&held.arguments);
    let unseen = |part: &Argument| fold(part, extent).lines_unseen(&part.text);
    html! {
        article.card id=(id) tabindex="-1" data-row aria-labelledby={ (id) "-title" } {
            header {
                @if viewer.role <= Role::Approver { input.pick type="checkbox" name=(id) form="reject-many" aria-label={ "Select " (id) }; }
                h2 id={ (id) "-title" } { b { (foreign_line(&held.agent)) } " asks to call " code { (foreign_line(&held.tool)) } }
                (urgency(decision.priority))
                @if let Some(tier) = &held.tier { span.badge.plain { (foreign_line(tier)) } }
                span.grow {}
                (ends(decision, moment))
                a.faint href={ "/approvals/" (id) } { code { (id) } } (time(&held.created_at, moment.now))
            }
            (chain(viewer, decision, held.reference.as_deref().unwrap_or_default()))
            (arguments_of(held, extent))
            @if let Some(reason) = &held.reason { div.reason { span.faint { (foreign_line(&held.agent)) " says why" } (foreign(reason)) } }
            div.facts {
                span { "Denied if nobody decides in time." }
                @if let Some(time) = time_to_use(limits) { span { "Once approved, the call must be made within " (time) "." } }
                @if let Some(policy) = &held.policy { span { "Held by the rule " code { (foreign_line(policy)) } } }
                (digest(held))
            }
            (viewer.allowed(Role::Approver, "Deciding a call", || html! {
                (decide(viewer, held, parts.iter().map(unseen).sum()))
                (otherwise(viewer, held))
            }))
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
pub(super) fn arguments_of(held: &ApprovalView, extent: Extent) -> Markup {
    html! { div.call { @for part in &arguments(&held.arguments) { (argument(part, extent)) } } }
}

const fn fold(part: &Argument, extent: Extent) -> Fold {
    match extent {
        Extent::Whole => Fold::NONE,
        Extent::Folded if part.is_subject() => SUBJECT_FOLD,
        Extent::Folded => Fold::USUAL,
    }
}

/// Shows one part of the arguments according to its kind.
fn argument(part: &Argument, extent: Extent) -> Markup {
    let class = match part.kind {
        ArgumentKind::Command => "foreign code command",
        ArgumentKind::Address => "foreign code address",
        ArgumentKind::Path | ArgumentKind::Query | ArgumentKind::Text | ArgumentKind::Rest => "foreign code",
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
fn decide(viewer: &Viewer, held: &ApprovalView, unseen: usize) -> Markup {
    let id = &held.id;
    html! {
        div.decide {
            (viewer.form(&format!("{id}-approve"), &format!("/approvals/{id}/approve"), &html! {
                input type="hidden" name="digest" value=(held.digest);
                // The script clears it once the call was seen to its end.
                input type="hidden" name="unseen" value=(unseen);
                button.main type="submit" data-key="a" data-approve=(id) {
                    "Approve " (id) @if unseen > 0 { ", " (plural(unseen as u64, "line", "lines")) " unseen" }
                }
            }))
            (viewer.form(&format!("{id}-reject"), &format!("/approvals/{id}/reject"), &html! {
                button.danger type="submit" aria-label={ "Reject " (id) } { "Reject" }
                label.unseen for={ (id) "-reason" } { "Reason for rejecting " (id) }
                input id={ (id) "-reason" } type="text" name="comment" placeholder="Reason for the agent, if you reject" data-key="r" autocomplete="off";
            }))
        }
    }
}

/// Returns the one thing that a call acts on.
fn subject(held: &ApprovalView) -> Option<&str> {
    let own = held.arguments.get(call::INPUT).filter(|input| input.is_object()).unwrap_or(&held.arguments);
    let mut subjects = call::SUBJECTS.iter().filter_map(|(name, _)| own.get(name)?.as_str());
    let first = subjects.next()?;
    // A rule allows no call with two subjects.
    subjects.next().is_none().then_some(first)
}

/// Returns what the offered rule lets the agent do.
pub(super) fn allows(held: &ApprovalView) -> Markup {
    let what = if subject(held).is_some() { "make exactly this call" } else { "call this tool with any arguments" };
    html! { "It lets " b { (foreign_line(&held.agent)) } " " (what) " without asking a human." }
}

/// Returns what the rule allows, as the heading of its page.
pub(super) fn allowed(held: &ApprovalView) -> String {
    let arguments = if subject(held).is_some() { "exactly like this" } else { "with any arguments" };
    format!("Always allow {} to call {} {arguments}", held.agent, held.tool)
}

/// Returns the rule that allows this call without a human; `None` if no rule could.
pub(super) fn rule(held: &ApprovalView) -> Option<ApprovalRule> {
    let plain = |text: &str| !text.contains(['\'', '\n', '\r', '*']) && escape(text) == text;
    let pattern = match subject(held) {
        Some(subject) => format!("{}({subject})", held.tool),
        None if call::SUBJECTS.iter().all(|(name, _)| held.arguments.get(name).is_none()) => held.tool.clone(),
        None => return None,
    };
    // A rule that allows matches nothing that leads out of the command.
    let leads_out = subject(held).is_some_and(|text| {
        text.contains([';', '&', '|', '<', '>', '$', '(', ')', '{', '}', '`']) || text.contains("..")
    });
    let call = CallPattern::parse(&pattern).filter(|parsed| parsed.to_string() == pattern)?;
    let agent = AgentName::new(&held.agent).ok()?;
    let allow =
        ApprovalRule { call, agents: vec![agent], ruling: Ruling::Allow, tier: None, who: None, timeout_ms: None };
    (plain(&pattern) && plain(&held.agent) && !leads_out).then_some(allow)
}

fn otherwise(viewer: &Viewer, held: &ApprovalView) -> Markup {
    let id = &held.id;
    let to = |verb: &str| format!("/approvals/{id}/{verb}");
    let arguments = json(&held.arguments);
    let rule = rule(held);
    html! {
        details id={ (id) "-more" } {
            summary { @if rule.is_some() { "Reject with instructions, edit, ignore or always allow" } @else { "Reject with instructions, edit or ignore" } }
            (viewer.form(&format!("{id}-respond"), &to("respond"), &html! {
                label for={ (id) "-words" } { "Instructions for the agent" }
                textarea id={ (id) "-words" } name="comment" rows="2" {}
                button type="submit" { "Reject with instructions" }
            }))
            (viewer.form(&format!("{id}-edit"), &to("edit"), &html! {
                label for={ (id) "-input" } { "Approve it with different arguments" }
                textarea.code id={ (id) "-input" } name="input" rows=(arguments.lines().count().clamp(2, 16)) spellcheck="false" data-json { (arguments) }
                // What differs, and what is no JSON, is filled in by the script.
                div.diff id={ (id) "-diff" } role="status" data-said {}
                button type="submit" { "Approve the edited call" }
            }))
            @if let Some(rule) = rule {
                h3 { "Always allow this" }
                p { "This rule in " code { "lastword.toml" } ", above other rules that match the call, allows it:" }
                pre.rule { (written(&rule)) }
                p.faint { (allows(held)) }
                p { a.button href={ "/approvals/" (id) "/always" } { "Write this rule…" } }
            }
            (viewer.form(&format!("{id}-ignore"), &to("ignore"), &html! {
                button type="submit" { "Ignore" } " " span.faint { "Tells the agent that nobody decided the call." }
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use lastword_proto::fact::Kind;
    use serde_json::{Value, json};

    use super::*;

    fn held(tool: &str, arguments: &Value) -> ApprovalView {
        let view = json!({
            "id": "apr-1", "digest": "00", "state": "pending", "expires_at": "2026-01-31T09:00:00Z", "agent": "coder",
            "tool": tool, "arguments": arguments, "created_at": "2026-01-31T09:00:00Z", "by_kind": Kind::Agent,
        });
        serde_json::from_value(view).unwrap()
    }

    #[test]
    fn a_rule_allows_exactly_the_call_or_is_not_offered() {
        let of = |tool: &str, arguments: Value| rule(&held(tool, &arguments)).map(|rule| written(&rule));
        let wanted = "[[approval]]\ntool = 'Bash(cargo test -p core)'\nagents = ['coder']\ndecision = \"allow\"\n";
        assert_eq!(of("Bash", json!({"command": "cargo test -p core", "timeout": 5})).as_deref(), Some(wanted));
        assert!(of("mcp__deploy__status", json!({})).unwrap().contains("tool = 'mcp__deploy__status'\n"));
        for (tool, arguments) in [
            ("Bash", json!({"command": "rm -rf x; echo done"})),
            ("Bash", json!({"command": "rm *"})),
            ("Bash", json!({"command": "echo 'quoted'"})),
            ("Bash", json!({"command": "ls", "path": "/tmp"})),
            ("Bash", json!({"command": ["ls"]})),
            ("Read", json!({"file_path": "../secret"})),
            ("a tool", json!({})),
            ("Bash", json!({"command": "ls\u{202e}"})),
        ] {
            assert_eq!(of(tool, arguments.clone()), None, "{tool} {arguments}");
        }
    }
}
