//! The calls under `/v1/inbox` and `/v1/turns`.

use axum::Json as Out;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lastword_proto::ids::TurnId;
use lastword_proto::wire::{Finish, Finished, Progress, Renewed};

use super::extract::{AnswerJson, Json, Params, WaitParams, id};
use crate::calls::{Caller, Context, turns};
use crate::error::ApiError;

pub(super) async fn take(
    State(ctx): State<Context>,
    caller: Caller,
    Params(params): Params<WaitParams>,
) -> Result<Response, ApiError> {
    let wait = params.wait()?.unwrap_or_default();
    Ok(match turns::take(&ctx, caller, wait).await? {
        Some(delivery) => Out(delivery).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

pub(super) async fn finish(
    State(ctx): State<Context>,
    caller: Caller,
    Path(turn): Path<String>,
    AnswerJson(finish): AnswerJson<Finish>,
) -> Result<Out<Finished>, ApiError> {
    let turn = id(&turn, TurnId::parse)?;
    turns::finish(&ctx, caller, Some(turn), Box::new(finish)).await.map(Out)
}

pub(super) async fn progress(
    State(ctx): State<Context>,
    caller: Caller,
    Path(turn): Path<String>,
    Json(report): Json<Progress>,
) -> Result<Out<Renewed>, ApiError> {
    let turn = id(&turn, TurnId::parse)?;
    turns::progress(&ctx, caller, Some(turn), report).await.map(Out)
}
