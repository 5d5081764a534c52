//! The calls under `/v1/explanations`.

use axum::Json as Out;
use axum::extract::{Path, State};
use lastword_wire::Explanation;

use crate::calls::{Caller, Context, explanations};
use crate::error::ApiError;

pub(super) async fn show(
    State(ctx): State<Context>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Out<Explanation>, ApiError> {
    explanations::explain(&ctx, caller, &id).await.map(Out)
}
