//! The calls under `/v1/archives`.

use axum::Json as Out;
use axum::extract::State;
use lastword_wire::{ArchivesView, MoveToArchive, MovedToArchive};

use super::extract::Json;
use crate::calls::{Caller, Context, archives};
use crate::error::ApiError;

pub(super) async fn show(State(ctx): State<Context>, caller: Caller) -> Result<Out<ArchivesView>, ApiError> {
    archives::show(&ctx, caller).await.map(Out)
}

pub(super) async fn move_now(
    State(ctx): State<Context>,
    caller: Caller,
    Json(wanted): Json<MoveToArchive>,
) -> Result<Out<MovedToArchive>, ApiError> {
    archives::move_now(&ctx, caller, wanted).await.map(Out)
}
