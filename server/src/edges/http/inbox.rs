//! The calls under `/v1/inbox` and `/v1/turns`.

use axum::Json as Out;
use axum::extract::{Path, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use lastword_facts::ids::TurnId;
use lastword_wire::{Finish, Finished, Progress, Renewed};

use super::extract::{AnswerJson, InboxParams, Json, Params, id};
use crate::calls::taking::Taking;
use crate::calls::{Caller, Context, turns};
use crate::error::ApiError;

/// The header of an empty answer if another client holds what the agent has.
const HELD_HEADER: HeaderName = HeaderName::from_static("lastword-held-by");

pub(super) async fn take(
    State(ctx): State<Context>,
    caller: Caller,
    Params(params): Params<InboxParams>,
) -> Result<Response, ApiError> {
    let wait = params.wait()?.unwrap_or_default();
    Ok(match turns::take(&ctx, caller, params.consumer(&caller), wait).await? {
        Taking::Delivery(delivery) => Out(delivery).into_response(),
        Taking::Nothing { held } => {
            let mut response = StatusCode::NO_CONTENT.into_response();
            if held {
                response.headers_mut().insert(HELD_HEADER, HeaderValue::from_static("other-client"));
            }
            response
        }
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
