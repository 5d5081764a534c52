//! `GET /v1/checkpoint`: the log's hash at its end or at a position, signed.

use axum::extract::State;
use serde::Deserialize;

use super::extract::Params;
use crate::calls::{Caller, Context, checkpoints};
use crate::error::ApiError;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckpointParams {
    /// The position, at which a batch of facts ends; without it, the end of the log.
    at: Option<u64>,
}

/// Answers in plain text, the form in which a signed note is kept.
pub(super) async fn sign(
    State(ctx): State<Context>,
    caller: Caller,
    Params(params): Params<CheckpointParams>,
) -> Result<String, ApiError> {
    Ok(checkpoints::sign(&ctx, caller, params.at).await?.to_string())
}
