//! The calls under `/v1/escalations`.

use axum::Json as Out;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use lastword_facts::ids::EscalationId;
use lastword_wire::{EscalationAnswer, EscalationView, NewEscalation, Page};

use super::extract::{Json, Key, Params, id};
use crate::calls::audit::PageParams;
use crate::calls::{Caller, Context, epochs, escalations};
use crate::error::ApiError;

pub(super) async fn list(
    State(ctx): State<Context>,
    caller: Caller,
    Params(params): Params<PageParams>,
) -> Result<Out<Page<EscalationView>>, ApiError> {
    escalations::list(&ctx, caller, &params).await.map(Out)
}

pub(super) async fn escalate(
    State(ctx): State<Context>,
    caller: Caller,
    Key(key): Key,
    Json(new): Json<NewEscalation>,
) -> Result<(StatusCode, Out<EscalationView>), ApiError> {
    let new = NewEscalation { key, ..new };
    Ok((StatusCode::CREATED, Out(escalations::escalate(&ctx, caller, new).await?)))
}

pub(super) async fn show(
    State(ctx): State<Context>,
    caller: Caller,
    Path(text): Path<String>,
) -> Result<Out<EscalationView>, ApiError> {
    let id = id(&text, EscalationId::parse)?;
    let found = escalations::seen(&ctx, caller, id).await?;
    epochs::found(&ctx, &text, found).await.map(Out)
}

pub(super) async fn answer(
    State(ctx): State<Context>,
    caller: Caller,
    Path(text): Path<String>,
    Json(answer): Json<EscalationAnswer>,
) -> Result<Out<EscalationView>, ApiError> {
    escalations::answer(&ctx, caller, id(&text, EscalationId::parse)?, &answer).await.map(Out)
}
