//! The calls under `/v1/humans`.

use axum::Json as Out;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use lastword_wire::{AgentToken, AgentView, HumanPatch, NewAgent, NewHuman, Page};

use super::extract::{Json, Key};
use crate::calls::{Caller, Context, agents, humans};
use crate::error::ApiError;

pub(super) async fn list(State(ctx): State<Context>, _caller: Caller) -> Result<Out<Page<AgentView>>, ApiError> {
    humans::list(&ctx).await.map(Out)
}

pub(super) async fn add(
    State(ctx): State<Context>,
    caller: Caller,
    Key(key): Key,
    Json(new): Json<NewHuman>,
) -> Result<(StatusCode, Out<AgentToken>), ApiError> {
    caller.human()?;
    let new = NewAgent { key, ..NewAgent::from(new) };
    Ok((StatusCode::CREATED, Out(agents::add(&ctx, caller, new).await?)))
}

pub(super) async fn amend(
    State(ctx): State<Context>,
    caller: Caller,
    Path(name): Path<String>,
    Json(patch): Json<HumanPatch>,
) -> Result<Out<AgentView>, ApiError> {
    humans::set_role(&ctx, caller, &name, patch.role).await.map(Out)
}
