//! "Always allow this": a human sees the rule and what it would have matched, and then puts it into force.

use axum::extract::{Path, State};
use axum::response::Response;
use lastword_facts::Code;
use lastword_facts::fact::Role;
use lastword_facts::policy::ApprovalRule;
use lastword_facts::status::ApprovalState;
use lastword_facts::visible::escape;
use lastword_server::calls::Caller;
use lastword_server::calls::policy::{self, Matched, written};
use lastword_server::{ApiError, Context};
use lastword_wire::ApprovalView;
use maud::{Markup, html};
use serde::Deserialize;

use super::call::{Extent, arguments_of};
use super::forms::Form;
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, heading};
use super::live::Topic;
use super::parts::{excerpt, foreign_line, url};
use super::session::Viewer;
use crate::reads::decisions::{self, Asked};
use crate::reads::risk::on_a_line;

/// `GET /approvals/{id}/always`: the rule that would allow such a call, and what it would have matched.
pub(super) async fn page(
    State(ctx): State<Context>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let held = held(&ctx, viewer.caller, &id).await?;
    let exact = policy::exact(&held);
    let wider = match policy::wider(&held) {
        Some((rule, free)) => Some((policy::matched(&ctx, rule.clone()).await?, rule, free)),
        None => None,
    };
    let title = format!("Always allow {} to call {}", held.agent, held.tool);
    let main = html! {
        (heading(&title, &html! {}))
        @if let Some(rule) = &exact {
            h2 { "Exactly like this" }
            p { "It lets " b { (foreign_line(&held.agent)) } " make exactly this call, with all these arguments, without asking a human. The rule has their digest:" }
            pre.rule { (written(rule)) }
            (confirm(&ctx, &viewer, &held, Width::Exact))
        }
        @if let Some((matched, rule, free)) = &wider {
            h2 { "A wider rule" }
            p { (allows(&held, rule, free)) }
            pre.rule { (written(rule)) }
            p { (words(matched)) }
            @if !matched.newest.is_empty() {
                ul { @for call in &matched.newest { li { a href={ (url("/approvals/")) (call.id) } { (call.id) } " " code { (excerpt(&on_a_line(&call.arguments), 160)) } } } }
            }
            (confirm(&ctx, &viewer, &held, Width::Wider))
        }
        @if exact.is_none() && wider.is_none() { p { "No rule could allow this call: the name of its tool can't stand in one." } }
        h2 { "The call of " code { (id) } }
        (arguments_of(held.requested.as_ref().unwrap_or(&held.arguments), Extent::Whole))
        p { a href={ (url("/approvals/")) (id) } { "Back to " (id) } }
    };
    viewer.page(&ctx, &moment, Page { title: "Always allow", place: Place::Inbox, topics: &[], main }).await
}

/// How much a rule allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Width {
    /// The very call.
    #[default]
    Exact,
    /// Calls with the same subject, or all of a tool that names none.
    Wider,
}

async fn held(ctx: &Context, caller: Caller, id: &str) -> Result<ApprovalView, ApiError> {
    let Asked::Call(held) = decisions::one(ctx, caller, id).await?.asked else { return Err(ApiError::unknown(id)) };
    Ok(*held)
}

/// Says what a wider rule allows, in words that are as wide.
fn allows(held: &ApprovalView, rule: &ApprovalRule, free: &[String]) -> Markup {
    let subject = rule.call.argument();
    html! {
        "It lets " b { (foreign_line(&held.agent)) } " call " code { (foreign_line(&held.tool)) } " "
        @if let Some(subject) = subject { "for " code { (foreign_line(subject)) } " " }
        "with "
        @for name in free { "any " code { (foreign_line(name)) } ", " }
        @if free.is_empty() { "any arguments" } @else { "and any other argument" }
        @if subject.is_some() { " beside it" }
        ", without asking a human:"
    }
}

fn words(matched: &Matched) -> String {
    match matched {
        Matched { matched: 1, held: 1, .. } => {
            "One call was held in the last 7 days, and the rule would have allowed it:".to_owned()
        }
        Matched { matched: 0, held, .. } => {
            format!("It would have allowed none of the {held} calls held in the last 7 days.")
        }
        Matched { matched, held, newest } if newest.len() < *matched => {
            format!("It would have allowed {matched} of the {held} calls held in the last 7 days, these last:")
        }
        Matched { matched, held, .. } => {
            format!("It would have allowed {matched} of the {held} calls held in the last 7 days:")
        }
    }
}

fn confirm(ctx: &Context, viewer: &Viewer, held: &ApprovalView, width: Width) -> Markup {
    let Some(place) = ctx.config.place() else {
        return html! {
            p { "This server has no configuration file that it can write. Add the rule to its " code { "lastword.toml" } ", above the other rules; it takes effect at the next server start." }
            p { "Nothing has changed" @if held.state == ApprovalState::Pending { ", and " (held.id) " itself stays pending until you decide it" } "." }
        };
    };
    let to = format!("/approvals/{}/always", held.id);
    let (form, name, label) = match width {
        Width::Exact => ("always-form", "exact", "Allow this call from now on"),
        Width::Wider => ("always-wider-form", "wider", "Allow all of these from now on"),
    };
    html! {
        p.faint { "The broker writes it into " code { (foreign_line(&place)) } ", above the other rules, with your name and the time, and takes effect at once. "
            "Take it back under " a href=(url("/limits#held-calls")) { "Limits" } "."
            @if held.state == ApprovalState::Pending { " " (held.id) " itself stays pending until you decide it." } }
        (viewer.allowed(Role::Owner, "Changing the policy", || {
            let button = html! { input type="hidden" name="width" value=(name); button.main[width == Width::Exact] type="submit" { (label) } };
            viewer.fill_in(form, &to, &button)
        }))
    }
}

/// `POST /approvals/{id}/always`: puts the rule into force and writes it into the configuration file.
pub(super) async fn allow(
    State(ctx): State<Context>,
    Path(id): Path<String>,
    form: Form<Chosen>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Chosen { width } } = form;
    let viewer = viewer.confirmed(&ctx, Role::Owner).await?;
    let held = held(&ctx, viewer.caller, &id).await?;
    let rule = match width {
        Width::Exact => policy::exact(&held),
        Width::Wider => policy::wider(&held).map(|(rule, _)| rule),
    };
    let none = || ApiError::new(Code::Malformed, format!("No such rule could allow the call of {id}"));
    // The digest says nothing to the reader of the file.
    let call: String =
        escape(&on_a_line(held.requested.as_ref().unwrap_or(&held.arguments))).chars().take(CALL_CHARS).collect();
    let after = format!("{id}: {} {}", held.tool, call.replace(['\n', '\r'], " "));
    let rule = rule.ok_or_else(none)?;
    let words = html! { "The rule " code { (foreign_line(&rule.call.to_string())) } " is in force." };
    policy::allow(&ctx, viewer.caller, rule, &after).await?;
    Ok(viewer.done(&words, "/limits#held-calls", &[Topic::Limits, Topic::Inbox]))
}

/// The most characters of a call in the comment of its rule.
const CALL_CHARS: usize = 120;

#[derive(Debug, Deserialize)]
pub(super) struct Chosen {
    #[serde(default)]
    width: Width,
}

#[derive(Debug, Deserialize)]
pub(super) struct Rule {
    rule: String,
}

/// `POST /limits/rules/withdraw`: takes back a rule that was written so.
pub(super) async fn withdraw(State(ctx): State<Context>, form: Form<Rule>) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Rule { rule } } = form;
    // Browsers send line ends as two characters.
    policy::withdraw(&ctx, viewer.caller, &rule.replace("\r\n", "\n")).await?;
    let tool = rule.lines().find_map(|line| line.strip_prefix("tool = ")).unwrap_or_default();
    let words = html! { "The rule " code { (foreign_line(tool.trim_matches(['\'', '"', '\r']))) } " is taken back." };
    Ok(viewer.done(&words, "/limits#held-calls", &[Topic::Limits]))
}
