//! The calls under `/v1/conversations` and `/v1/workspace`.

use axum::Json as Out;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use lastword_facts::fact::{Control, Scope};
use lastword_wire::{ConversationSummary, ConversationView, Extend, Page};

use super::extract::{Json, Params};
use crate::calls::audit::PAGE_BYTES_MAX;
use crate::calls::conversations::{self, ListParams};
use crate::calls::{Caller, Context, control, grants, tree};
use crate::error::ApiError;

pub(super) async fn list(
    State(ctx): State<Context>,
    caller: Caller,
    Params(params): Params<ListParams>,
) -> Result<Out<Page<ConversationSummary>>, ApiError> {
    conversations::list(&ctx, caller, params).await.map(Out)
}

pub(super) async fn show(
    State(ctx): State<Context>,
    caller: Caller,
    Path(reference): Path<String>,
) -> Result<Out<ConversationView>, ApiError> {
    tree::conversation(&ctx, caller, &reference, PAGE_BYTES_MAX).await.map(Out)
}

pub(super) async fn control(
    State(ctx): State<Context>,
    caller: Caller,
    Path((reference, verb)): Path<(String, String)>,
    Json(more): Json<Extend>,
) -> Result<Response, ApiError> {
    caller.human()?;
    let conv = conversations::find(&ctx, caller, &reference).await?;
    if verb != "grant" {
        control::control(&ctx, caller, Scope::Conversation(conv), word(&verb)?).await?;
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let extended = grants::extend(&ctx, caller, conv, more).await?;
    let lifts = extended.held_by.is_empty();
    Ok(if lifts { StatusCode::NO_CONTENT.into_response() } else { Out(extended).into_response() })
}

pub(super) async fn control_all(
    State(ctx): State<Context>,
    caller: Caller,
    Path(verb): Path<String>,
) -> Result<StatusCode, ApiError> {
    control::control(&ctx, caller, Scope::Workspace, word(&verb)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the control that a path names.
pub(super) fn word(verb: &str) -> Result<Control, ApiError> {
    Control::from_word(verb).ok_or_else(|| ApiError::unknown(verb))
}
