//! The calls under `/v1/agents`.

use axum::Json as Out;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lastword_facts::fact::Scope;
use lastword_facts::names::OWN_NAME;
use lastword_wire::{AgentGrant, AgentPatch, AgentToken, AgentView, NewAgent, Page, Prompt, TokenTerms, Unavailable};

use super::conversations::word;
use super::extract::{Json, Key, parse, read};
use crate::calls::{Caller, Context, agents, control};
use crate::error::ApiError;

pub(super) async fn list(State(ctx): State<Context>, _caller: Caller) -> Result<Out<Page<AgentView>>, ApiError> {
    agents::list(&ctx).await.map(Out)
}

pub(super) async fn add(
    State(ctx): State<Context>,
    caller: Caller,
    Key(key): Key,
    Json(new): Json<NewAgent>,
) -> Result<(StatusCode, Out<AgentToken>), ApiError> {
    caller.human()?;
    let new = NewAgent { key, ..new };
    Ok((StatusCode::CREATED, Out(agents::add(&ctx, caller, new).await?)))
}

pub(super) async fn show(
    State(ctx): State<Context>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Out<AgentView>, ApiError> {
    if name == OWN_NAME {
        return agents::own(&ctx, caller).await.map(Out);
    }
    agents::show(&ctx, &name).await.map(Out)
}

pub(super) async fn amend(
    State(ctx): State<Context>,
    caller: Caller,
    Path(name): Path<String>,
    Json(patch): Json<AgentPatch>,
) -> Result<Out<AgentView>, ApiError> {
    agents::amend(&ctx, caller, &name, patch).await.map(Out)
}

pub(super) async fn remove(
    State(ctx): State<Context>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    agents::remove(&ctx, caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Extends an agent's budget for today.
pub(super) async fn grant(
    State(ctx): State<Context>,
    caller: Caller,
    Path(name): Path<String>,
    Json(more): Json<AgentGrant>,
) -> Result<Out<AgentView>, ApiError> {
    agents::grant(&ctx, caller, &name, more).await.map(Out)
}

/// Reports a prompt in an agent's session.
pub(super) async fn prompt(
    State(ctx): State<Context>,
    caller: Caller,
    Path(name): Path<String>,
    Json(prompt): Json<Prompt>,
) -> Result<StatusCode, ApiError> {
    agents::prompt(&ctx, caller, &name, prompt).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Tells why an agent's program can't work.
pub(super) async fn unavailable(
    State(ctx): State<Context>,
    caller: Caller,
    Path(name): Path<String>,
    Json(told): Json<Unavailable>,
) -> Result<StatusCode, ApiError> {
    agents::unavailable(&ctx, caller, &name, told).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Replaces the token, or pauses, resumes or stops the agent.
pub(super) async fn verb(
    State(ctx): State<Context>,
    caller: Caller,
    Path((name, verb)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    caller.human()?;
    if verb == "token" {
        let (parts, body) = request.into_parts();
        let body = read(&parts, body).await?;
        let terms = if body.is_empty() { TokenTerms::default() } else { parse(&body)? };
        return Ok((StatusCode::CREATED, Out(agents::rekey(&ctx, caller, &name, terms).await?)).into_response());
    }
    let agent = agents::find(&ctx, &name).await?;
    control::control(&ctx, caller, Scope::Agent(agent), word(&verb)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
