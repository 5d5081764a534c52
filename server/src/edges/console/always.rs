//! "Always allow this": a human sees the rule and what it would have matched, and then puts it into force.

use axum::extract::{Path, State};
use axum::response::Response;
use lastword_proto::Code;
use lastword_proto::fact::Role;
use lastword_proto::policy::ApprovalRule;
use lastword_proto::state::ApprovalState;
use lastword_proto::wire::ApprovalView;
use maud::{Markup, html};
use serde::Deserialize;

use super::call::{Extent, allowed, allows, arguments_of, rule};
use super::forms::{Form, Nothing};
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, heading};
use super::live::Topic;
use super::parts::foreign_line;
use super::session::Viewer;
use crate::calls::decisions::{self, Asked};
use crate::calls::policy::{self, Matched, written};
use crate::calls::{Caller, Context};
use crate::error::ApiError;

/// `GET /approvals/{id}/always`: the rule that would allow such a call, and what it would have matched.
pub(super) async fn page(
    State(ctx): State<Context>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let (held, rule) = offered(&ctx, viewer.caller, &id).await?;
    let matched = policy::matched(&ctx, rule.clone()).await?;
    let main = html! {
        (heading(&allowed(&held), &html! {}))
        p { (allows(&held)) " The rule:" }
        pre.rule { (written(&rule)) }
        p { (words(matched)) }
        (confirm(&ctx, &viewer, &held))
        h2 { "The call of " code { (id) } }
        (arguments_of(&held, Extent::Whole))
        p { a href={ "/approvals/" (id) } { "Back to " (id) } }
    };
    viewer.page(&ctx, &moment, Page { title: "Always allow", place: Place::Inbox, topics: &[], main }).await
}

/// Returns a held call and the rule that would allow it.
async fn offered(ctx: &Context, caller: Caller, id: &str) -> Result<(ApprovalView, ApprovalRule), ApiError> {
    let decision = decisions::one(ctx, caller, id).await?;
    let Asked::Call(held) = decision.asked else { return Err(ApiError::unknown(id)) };
    let none = || ApiError::new(Code::Malformed, format!("No rule could allow exactly the call of {id}"));
    let rule = rule(&held).ok_or_else(none)?;
    Ok((*held, rule))
}

fn words(matched: Matched) -> String {
    match matched {
        Matched { matched: 1, held: 1 } => "One call was held in the last 7 days, and it matches.".to_owned(),
        Matched { matched, held } => format!("It matches {matched} of the {held} calls held in the last 7 days."),
    }
}

fn confirm(ctx: &Context, viewer: &Viewer, held: &ApprovalView) -> Markup {
    let Some(place) = ctx.policies.place() else {
        return html! {
            p { "This server has no configuration file that it can write. Add the rule to its " code { "lastword.toml" } ", above the other rules; it takes effect at the next server start." }
            p { "Nothing has changed" @if held.state == ApprovalState::Pending { ", and " (held.id) " itself stays pending until you decide it" } "." }
        };
    };
    let to = format!("/approvals/{}/always", held.id);
    html! {
        p.faint { "The broker writes it into " code { (foreign_line(&place)) } ", above the other rules, with your name and the time, and takes effect at once. "
            "Take it back under " a href="/limits#held-calls" { "Limits" } "."
            @if held.state == ApprovalState::Pending { " " (held.id) " itself stays pending until you decide it." } }
        (viewer.allowed(Role::Owner, "Changing the policy", || {
            viewer.fill_in("always-form", &to, &html! { button.main type="submit" { "Allow from now on" } })
        }))
    }
}

/// `POST /approvals/{id}/always`: puts the rule into force and writes it into the configuration file.
pub(super) async fn allow(
    State(ctx): State<Context>,
    Path(id): Path<String>,
    form: Form<Nothing>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Nothing {} } = form;
    let (_, rule) = offered(&ctx, viewer.caller, &id).await?;
    policy::allow(&ctx, viewer.caller, rule, &id).await?;
    Ok(viewer.done(&html! { "The rule is in force." }, "/limits#held-calls", &[Topic::Limits, Topic::Inbox]))
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
    Ok(viewer.done(&html! { "The rule is taken back." }, "/limits#held-calls", &[Topic::Limits]))
}
