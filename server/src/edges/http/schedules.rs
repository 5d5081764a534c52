//! The calls under `/v1/schedules` (D13).

use axum::Json as Out;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use lastword_wire::{NewSchedule, Page, ScheduleView};

use super::extract::Json;
use crate::calls::{Caller, Context, schedules};
use crate::error::ApiError;

pub(super) async fn list(State(ctx): State<Context>, caller: Caller) -> Result<Out<Page<ScheduleView>>, ApiError> {
    schedules::list(&ctx, caller).await.map(Out)
}

pub(super) async fn set(
    State(ctx): State<Context>,
    caller: Caller,
    Json(new): Json<NewSchedule>,
) -> Result<(StatusCode, Out<ScheduleView>), ApiError> {
    Ok((StatusCode::CREATED, Out(schedules::set(&ctx, caller, new).await?)))
}

pub(super) async fn remove(
    State(ctx): State<Context>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    schedules::remove(&ctx, caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn run(
    State(ctx): State<Context>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Out<ScheduleView>, ApiError> {
    schedules::run(&ctx, caller, &name).await.map(Out)
}
