//! The calls under `/v1/rooms`.

use axum::Json as Out;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use lastword_wire::{NewRoom, Page, Post, Posted, RoomView};

use super::extract::{Json, Key};
use crate::calls::{Caller, Context, rooms};
use crate::error::ApiError;

pub(super) async fn list(State(ctx): State<Context>, caller: Caller) -> Result<Out<Page<RoomView>>, ApiError> {
    rooms::list(&ctx, caller).await.map(Out)
}

pub(super) async fn open(
    State(ctx): State<Context>,
    caller: Caller,
    Key(key): Key,
    Json(new): Json<NewRoom>,
) -> Result<(StatusCode, Out<RoomView>), ApiError> {
    let new = NewRoom { key, ..new };
    Ok((StatusCode::CREATED, Out(rooms::open(&ctx, caller, new).await?)))
}

pub(super) async fn post(
    State(ctx): State<Context>,
    caller: Caller,
    Path(room): Path<String>,
    Key(key): Key,
    Json(post): Json<Post>,
) -> Result<(StatusCode, Out<Posted>), ApiError> {
    Ok((StatusCode::CREATED, Out(rooms::post(&ctx, caller, &room, post, key).await?)))
}
