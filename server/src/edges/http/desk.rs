//! `/v1/escalations` and `/v1/approvals`.

use axum::Json as Out;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use lastword_proto::ids::{ApprovalId, EscalationId};
use lastword_proto::wire::{
    ApprovalView, DecideApproval, EscalationAnswer, EscalationView, HeldCall, NewEscalation, Page, UseApproval,
};

use super::extract::{Json, Key, Params, WaitParams, id};
use crate::calls::{Caller, Context, desk};
use crate::error::ApiError;

pub(super) async fn escalations(
    State(ctx): State<Context>,
    caller: Caller,
) -> Result<Out<Page<EscalationView>>, ApiError> {
    desk::escalations(&ctx, caller).await.map(Out)
}

pub(super) async fn escalate(
    State(ctx): State<Context>,
    caller: Caller,
    Key(key): Key,
    Json(new): Json<NewEscalation>,
) -> Result<(StatusCode, Out<EscalationView>), ApiError> {
    let new = NewEscalation { key, ..new };
    Ok((StatusCode::CREATED, Out(desk::escalate(&ctx, caller, new).await?)))
}

pub(super) async fn escalation(
    State(ctx): State<Context>,
    caller: Caller,
    Path(text): Path<String>,
) -> Result<Out<EscalationView>, ApiError> {
    let id = id(&text, EscalationId::parse)?;
    let all = desk::escalations(&ctx, caller).await?.items;
    all.into_iter().find(|e| e.id == id.to_string()).map(Out).ok_or_else(|| ApiError::unknown(&text))
}

pub(super) async fn answer(
    State(ctx): State<Context>,
    caller: Caller,
    Path(text): Path<String>,
    Json(answer): Json<EscalationAnswer>,
) -> Result<Out<EscalationView>, ApiError> {
    desk::answer(&ctx, caller, id(&text, EscalationId::parse)?, &answer).await.map(Out)
}

pub(super) async fn approvals(State(ctx): State<Context>, caller: Caller) -> Result<Out<Page<ApprovalView>>, ApiError> {
    let page = desk::approvals(&ctx, caller).await?;
    ctx.shown.remember_views(caller.principal.agent(), &page.items);
    Ok(Out(page))
}

pub(super) async fn hold(
    State(ctx): State<Context>,
    caller: Caller,
    Key(key): Key,
    Json(call): Json<HeldCall>,
) -> Result<(StatusCode, Out<ApprovalView>), ApiError> {
    let call = HeldCall { key, ..call };
    Ok((StatusCode::CREATED, Out(desk::hold(&ctx, caller, call).await?)))
}

pub(super) async fn approval(
    State(ctx): State<Context>,
    caller: Caller,
    Path(text): Path<String>,
    Params(params): Params<WaitParams>,
) -> Result<Out<ApprovalView>, ApiError> {
    let wait = params.wait()?.unwrap_or_default();
    let view = desk::approval(&ctx, caller, id(&text, ApprovalId::parse)?, wait).await?;
    ctx.shown.remember_views(caller.principal.agent(), [&view]);
    Ok(Out(view))
}

pub(super) async fn decide(
    State(ctx): State<Context>,
    caller: Caller,
    Path(text): Path<String>,
    Json(decision): Json<DecideApproval>,
) -> Result<Out<ApprovalView>, ApiError> {
    desk::decide(&ctx, caller, id(&text, ApprovalId::parse)?, decision).await.map(Out)
}

pub(super) async fn spend(
    State(ctx): State<Context>,
    caller: Caller,
    Path(text): Path<String>,
    Json(call): Json<UseApproval>,
) -> Result<Out<ApprovalView>, ApiError> {
    desk::spend(&ctx, caller, id(&text, ApprovalId::parse)?, call).await.map(Out)
}
