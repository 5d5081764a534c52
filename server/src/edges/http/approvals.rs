//! The calls under `/v1/approvals`.

use axum::Json as Out;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use lastword_facts::ids::ApprovalId;
use lastword_wire::{ApprovalView, DecideApproval, HeldCall, Page, UseApproval};

use super::extract::{Json, Key, Params, WaitParams, id};
use crate::calls::audit::PageParams;
use crate::calls::{Caller, Context, approvals};
use crate::error::ApiError;

pub(super) async fn list(
    State(ctx): State<Context>,
    caller: Caller,
    Params(params): Params<PageParams>,
) -> Result<Out<Page<ApprovalView>>, ApiError> {
    let page = approvals::list(&ctx, caller, &params).await?;
    // The list shows each call in full, so its reader may decide without the digest (H2).
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
    Ok((StatusCode::CREATED, Out(approvals::hold(&ctx, caller, call).await?)))
}

pub(super) async fn show(
    State(ctx): State<Context>,
    caller: Caller,
    Path(text): Path<String>,
    Params(params): Params<WaitParams>,
) -> Result<Out<ApprovalView>, ApiError> {
    let wait = params.wait()?.unwrap_or_default();
    let view = approvals::show(&ctx, caller, id(&text, ApprovalId::parse)?, wait).await?;
    ctx.shown.remember_views(caller.principal.agent(), [&view]);
    Ok(Out(view))
}

pub(super) async fn decide(
    State(ctx): State<Context>,
    caller: Caller,
    Path(text): Path<String>,
    Json(decision): Json<DecideApproval>,
) -> Result<Out<ApprovalView>, ApiError> {
    approvals::decide(&ctx, caller, id(&text, ApprovalId::parse)?, decision).await.map(Out)
}

pub(super) async fn spend(
    State(ctx): State<Context>,
    caller: Caller,
    Path(text): Path<String>,
    Json(call): Json<UseApproval>,
) -> Result<Out<ApprovalView>, ApiError> {
    approvals::spend(&ctx, caller, id(&text, ApprovalId::parse)?, call).await.map(Out)
}
