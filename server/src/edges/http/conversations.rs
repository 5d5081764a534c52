//! `/v1/conversations`, `/v1/workspace`, `/v1/requests`, `/v1/explanations` and `/v1/incidents`.

use axum::Json as Out;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use lastword_proto::fact::{Control, Scope};
use lastword_proto::wire::{
    ConversationSummary, ConversationView, Explanation, Extend, IncidentView, Page, RequestView,
};

use super::extract::{Json, Params};
use crate::calls::audit::{self, ListParams};
use crate::calls::{Caller, Context, control as calls, explain, tree};
use crate::error::ApiError;

pub(super) async fn list(
    State(ctx): State<Context>,
    caller: Caller,
    Params(params): Params<ListParams>,
) -> Result<Out<Page<ConversationSummary>>, ApiError> {
    audit::conversations(&ctx, caller, params).await.map(Out)
}

pub(super) async fn show(
    State(ctx): State<Context>,
    caller: Caller,
    Path(reference): Path<String>,
) -> Result<Out<ConversationView>, ApiError> {
    tree::conversation(&ctx, caller, &reference).await.map(Out)
}

pub(super) async fn control(
    State(ctx): State<Context>,
    caller: Caller,
    Path((reference, verb)): Path<(String, String)>,
    Json(more): Json<Extend>,
) -> Result<StatusCode, ApiError> {
    caller.human()?;
    let conv = audit::find(&ctx, caller, &reference).await?;
    if verb == "grant" {
        calls::extend(&ctx, caller, conv, more).await?;
    } else {
        calls::control(&ctx, caller, Scope::Conversation(conv), word(&verb)?).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn control_all(
    State(ctx): State<Context>,
    caller: Caller,
    Path(verb): Path<String>,
) -> Result<StatusCode, ApiError> {
    calls::control(&ctx, caller, Scope::Workspace, word(&verb)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The control that a path names.
pub(super) fn word(verb: &str) -> Result<Control, ApiError> {
    Control::from_word(verb).ok_or_else(|| ApiError::unknown(verb))
}

pub(super) async fn request(
    State(ctx): State<Context>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Out<RequestView>, ApiError> {
    calls::request(&ctx, caller, &id).await.map(Out)
}

pub(super) async fn cancel(
    State(ctx): State<Context>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Out<RequestView>, ApiError> {
    calls::cancel(&ctx, caller, &id).await.map(Out)
}

pub(super) async fn explain(
    State(ctx): State<Context>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Out<Explanation>, ApiError> {
    explain::explain(&ctx, caller, &id).await.map(Out)
}

pub(super) async fn incidents(State(ctx): State<Context>, caller: Caller) -> Result<Out<Page<IncidentView>>, ApiError> {
    calls::incidents(&ctx, caller).await.map(Out)
}
