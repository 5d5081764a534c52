//! `/v1/agents`.

use axum::Json as Out;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lastword_proto::fact::Scope;
use lastword_proto::wire::{AgentPatch, AgentToken, AgentView, NewAgent, Page};

use super::conversations::word;
use super::extract::Json;
use crate::calls::{Caller, Context, control, registry};
use crate::edges::Fault;

pub(super) async fn list(State(ctx): State<Context>, _caller: Caller) -> Result<Out<Page<AgentView>>, Fault> {
    registry::list(&ctx).await.map(Out)
}

pub(super) async fn add(
    State(ctx): State<Context>,
    caller: Caller,
    Json(new): Json<NewAgent>,
) -> Result<(StatusCode, Out<AgentToken>), Fault> {
    caller.human()?;
    Ok((StatusCode::CREATED, Out(registry::add(&ctx, caller, new).await?)))
}

/// The reserved name under which everybody finds itself.
const OWN_NAME: &str = "me";

pub(super) async fn show(
    State(ctx): State<Context>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Out<AgentView>, Fault> {
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
) -> Result<Out<AgentView>, Fault> {
    registry::amend(&ctx, caller, &name, patch).await.map(Out)
}

pub(super) async fn remove(
    State(ctx): State<Context>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Fault> {
    registry::remove(&ctx, caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A new token, or a control.
pub(super) async fn verb(
    State(ctx): State<Context>,
    caller: Caller,
    Path((name, verb)): Path<(String, String)>,
) -> Result<Response, Fault> {
    caller.human()?;
    if verb == "token" {
        return Ok((StatusCode::CREATED, Out(registry::rekey(&ctx, caller, &name).await?)).into_response());
    }
    let agent = registry::find(&ctx, &name).await?;
    control::control(&ctx, caller, Scope::Agent(agent), word(&verb)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
