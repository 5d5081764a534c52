//! The calls under `/v1/incidents`.

use axum::Json as Out;
use axum::extract::State;
use lastword_wire::{IncidentView, Page};

use crate::calls::{Caller, Context, incidents};
use crate::error::ApiError;

pub(super) async fn list(State(ctx): State<Context>, caller: Caller) -> Result<Out<Page<IncidentView>>, ApiError> {
    incidents::list(&ctx, caller).await.map(Out)
}
