//! The calls under `/v1/claims`.

use axum::Json as Out;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use lastword_facts::ids::ClaimId;
use lastword_wire::{ClaimView, NewClaim, Page};

use super::extract::{Json, Key, id};
use crate::calls::{Caller, Context, claims};
use crate::error::ApiError;

pub(super) async fn list(State(ctx): State<Context>, _caller: Caller) -> Result<Out<Page<ClaimView>>, ApiError> {
    claims::list(&ctx).await.map(Out)
}

pub(super) async fn take(
    State(ctx): State<Context>,
    caller: Caller,
    Key(key): Key,
    Json(new): Json<NewClaim>,
) -> Result<(StatusCode, Out<ClaimView>), ApiError> {
    let new = NewClaim { key, ..new };
    Ok((StatusCode::CREATED, Out(claims::take(&ctx, caller, new).await?)))
}

pub(super) async fn release(
    State(ctx): State<Context>,
    caller: Caller,
    Path(text): Path<String>,
) -> Result<StatusCode, ApiError> {
    claims::release(&ctx, caller, id(&text, ClaimId::parse)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
