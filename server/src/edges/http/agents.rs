//! `/v1/agents` and `/v1/humans`.

use axum::Json as Out;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lastword_proto::fact::Scope;
use lastword_proto::names::OWN_NAME;
use lastword_proto::wire::{AgentGrant, AgentPatch, AgentToken, AgentView, HumanPatch, NewAgent, NewHuman, Page};

use super::conversations::word;
use super::extract::{Json, Key};
use crate::calls::{Caller, Context, control, registry};
use crate::error::ApiError;

pub(super) async fn list(State(ctx): State<Context>, _caller: Caller) -> Result<Out<Page<AgentView>>, ApiError> {
    registry::list(&ctx).await.map(Out)
}

pub(super) async fn add(
    State(ctx): State<Context>,
    caller: Caller,
    Key(key): Key,
    Json(new): Json<NewAgent>,
) -> Result<(StatusCode, Out<AgentToken>), ApiError> {
    caller.human()?;
    let new = NewAgent { key, ..new };
    Ok((StatusCode::CREATED, Out(registry::add(&ctx, caller, new).await?)))
}

pub(super) async fn show(
    State(ctx): State<Context>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Out<AgentView>, ApiError> {
    if name == OWN_NAME {
        return registry::own(&ctx, caller).await.map(Out);
    }
    registry::show(&ctx, &name).await.map(Out)
}

pub(super) async fn amend(
    State(ctx): State<Context>,
    caller: Caller,
    Path(name): Path<String>,
    Json(patch): Json<AgentPatch>,
) -> Result<Out<AgentView>, ApiError> {
    registry::amend(&ctx, caller, &name, patch).await.map(Out)
}

pub(super) async fn remove(
    State(ctx): State<Context>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    registry::remove(&ctx, caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Gives an agent more for today.
pub(super) async fn grant(
    State(ctx): State<Context>,
    caller: Caller,
    Path(name): Path<String>,
    Json(more): Json<AgentGrant>,
) -> Result<Out<AgentView>, ApiError> {
    registry::grant(&ctx, caller, &name, more).await.map(Out)
}

pub(super) async fn humans(State(ctx): State<Context>, _caller: Caller) -> Result<Out<Page<AgentView>>, ApiError> {
    registry::humans(&ctx).await.map(Out)
}

pub(super) async fn add_human(
    State(ctx): State<Context>,
    caller: Caller,
    Key(key): Key,
    Json(new): Json<NewHuman>,
) -> Result<(StatusCode, Out<AgentToken>), ApiError> {
    caller.human()?;
    let new = NewAgent { key, ..NewAgent::from(new) };
    Ok((StatusCode::CREATED, Out(registry::add(&ctx, caller, new).await?)))
}

pub(super) async fn amend_human(
    State(ctx): State<Context>,
    caller: Caller,
    Path(name): Path<String>,
    Json(patch): Json<HumanPatch>,
) -> Result<Out<AgentView>, ApiError> {
    registry::set_role(&ctx, caller, &name, patch.role).await.map(Out)
}

/// A new token, or a control.
pub(super) async fn verb(
    State(ctx): State<Context>,
    caller: Caller,
    Path((name, verb)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    caller.human()?;
    if verb == "token" {
        return Ok((StatusCode::CREATED, Out(registry::rekey(&ctx, caller, &name).await?)).into_response());
    }
    let agent = registry::find(&ctx, &name).await?;
    control::control(&ctx, caller, Scope::Agent(agent), word(&verb)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
