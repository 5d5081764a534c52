//! The calls under `/v1/limits`.

use axum::Json as Out;
use axum::extract::State;
use lastword_wire::LimitsView;

use crate::calls::{Caller, Context, limits};
use crate::error::ApiError;

pub(super) async fn show(State(ctx): State<Context>, _caller: Caller) -> Result<Out<LimitsView>, ApiError> {
    limits::in_force(&ctx).await.map(Out)
}
