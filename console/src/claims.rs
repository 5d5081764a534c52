//! Claims: the files and other resources that tasks hold, and the forms by which a human ends one (C1).

use axum::extract::{Path, Query, State};
use axum::response::Response;
use lastword_facts::fact::{ClaimMode, Role};
use lastword_facts::ids::ClaimId;
use lastword_server::calls::claims as calls;
use lastword_server::{ApiError, Context};
use lastword_wire::ClaimView;
use maud::{Markup, html};
use serde::Deserialize;

use super::agents::name_link;
use super::forms::{Form, Nothing};
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, empty, heading};
use super::live::Topic;
use super::parts::{conversation, encoded, foreign_line, plural, time, url};
use super::session::Viewer;

#[derive(Debug, Default, Deserialize)]
pub(super) struct Filter {
    /// Only those of this work item.
    #[serde(rename = "ref")]
    reference: Option<String>,
}

/// `GET /claims`: the list of claims.
pub(super) async fn page(
    State(ctx): State<Context>,
    Query(filter): Query<Filter>,
    viewer: Viewer,
) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let mut claims = calls::list(&ctx).await?.items;
    claims.retain(|claim| filter.reference.is_none() || claim.reference == filter.reference);
    claims.sort_by(|one, two| one.resource.cmp(&two.resource));
    let main = html! {
        (heading("Claims", &html! { span.faint { (plural(claims.len() as u64, "file or directory is held", "files and directories are held")) } }))
        @if let Some(reference) = &filter.reference {
            p { "For " (conversation(reference)) ". " a href=(url("/claims")) { "Show all" } }
        }
        @if claims.is_empty() {
            (empty("Nothing is held.", &html! {
                "An agent's edit claims its file, so that no other task changes it at the same time. The claim ends with the task."
            }))
        } @else {
            div.cards { @for claim in &claims { (card(&viewer, &moment, claim)) } }
        }
    };
    let page = Page { title: "Claims", place: Place::Claims, topics: &[Topic::Rooms], main };
    viewer.page(&ctx, &moment, page).await
}

fn card(viewer: &Viewer, moment: &Moment, claim: &ClaimView) -> Markup {
    let tree = claim.resource.split_once(':').map(|(tree, _)| tree);
    html! {
        article.card id=(claim.id) tabindex="-1" data-row aria-label={ "Claim of " (claim.path()) } {
            header {
                h2 { code { (foreign_line(claim.path())) } }
                span.grow {}
                code.faint { (claim.id) }
            }
            dl.about {
                @if let Some(tree) = tree { dt { "In" } dd { (foreign_line(tree)) } }
                dt { "Held by" } dd { (name_link(&claim.agent)) @if claim.mode == ClaimMode::Shared { ", shared" } }
                @if let Some(reference) = &claim.reference { dt { "For" } dd { (conversation(reference)) } }
                @if let Some(since) = &claim.works_since { dt { "At work since" } dd { (time(since, moment.now)) } }
                dt { "Ends" } dd { (time(&claim.expires_at, moment.now)) ", or with its task" }
            }
            (viewer.allowed(Role::Operator, "Ending a claim", || viewer.asked(
                &format!("end-{}", encoded(&claim.id)),
                &format!("/claims/{}/end", encoded(&claim.id)),
                &format!("End the claim of {}? {} isn't told before its next edit, which may then meet another one's.", claim.path(), claim.agent),
                &html! { button.danger type="submit" data-key="r" { "End it" } },
            )))
        }
    }
}

/// `POST /claims/{id}/end`: a human ends a claim.
pub(super) async fn end(
    State(ctx): State<Context>,
    Path(id): Path<String>,
    form: Form<Nothing>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Nothing {} } = form;
    let claim = ClaimId::parse(&id).ok_or_else(|| ApiError::unknown(&id))?;
    calls::release(&ctx, viewer.caller, claim).await?;
    Ok(viewer.done(&html! { "Ended " code { (foreign_line(&id)) } "." }, "/claims", &[Topic::Rooms]))
}

/// Shows on the page of a conversation what its requests hold.
pub(super) fn held(claims: &[ClaimView], reference: &str) -> Markup {
    const SHOWN_MAX: usize = 3;
    let Some(last) = claims.len().checked_sub(1) else { return html! {} };
    html! {
        p.faint {
            "Holds "
            @for (n, claim) in claims.iter().take(SHOWN_MAX).enumerate() {
                @if n > 0 { ", " } code { (foreign_line(claim.path())) }
            }
            @if last >= SHOWN_MAX { " and " (claims.len() - SHOWN_MAX) " more" }
            ". " a href={ (url("/claims?ref=")) (encoded(reference)) } { "Who holds what" }
        }
    }
}
