//! The calls under `/v1/clock`.

use axum::Json as Out;
use axum::extract::State;
use lastword_wire::ClockView;

use crate::calls::{Caller, Context, clock};
use crate::error::ApiError;

pub(super) async fn show(State(ctx): State<Context>, _caller: Caller) -> Out<ClockView> {
    Out(clock::show(&ctx))
}

pub(super) async fn accept(State(ctx): State<Context>, caller: Caller) -> Result<Out<ClockView>, ApiError> {
    clock::accept(&ctx, caller).await.map(Out)
}
