//! The calls under `/v1/token`: the token that makes the call, narrowed or ended.

use axum::Json as Out;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use lastword_wire::{NarrowedToken, NewToken};

use super::extract::{Json, bearer};
use crate::calls::{Caller, Context, tokens};
use crate::error::ApiError;

pub(super) async fn narrow(
    State(ctx): State<Context>,
    caller: Caller,
    Json(new): Json<NewToken>,
) -> Result<(StatusCode, Out<NarrowedToken>), ApiError> {
    Ok((StatusCode::CREATED, Out(tokens::narrow(&ctx, caller, new).await?)))
}

pub(super) async fn end(
    State(ctx): State<Context>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<StatusCode, ApiError> {
    let text = bearer(&headers).unwrap_or_default().to_owned();
    tokens::end(&ctx, caller, text).await.map(|()| StatusCode::NO_CONTENT)
}
