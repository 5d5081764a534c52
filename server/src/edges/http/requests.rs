//! The calls under `/v1/requests`.

use axum::Json as Out;
use axum::extract::{Path, State};
use lastword_wire::RequestView;

use crate::calls::{Caller, Context, requests};
use crate::error::ApiError;

pub(super) async fn show(
    State(ctx): State<Context>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Out<RequestView>, ApiError> {
    requests::show(&ctx, caller, &id).await.map(Out)
}

pub(super) async fn cancel(
    State(ctx): State<Context>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Out<RequestView>, ApiError> {
    requests::cancel(&ctx, caller, &id).await.map(Out)
}
