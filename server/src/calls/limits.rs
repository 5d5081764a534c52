//! Calls on the limits in force.

use lastword_wire::LimitsView;

use super::Context;
use crate::error::ApiError;

/// Returns the limits and the policy in force.
pub async fn in_force(ctx: &Context) -> Result<LimitsView, ApiError> {
    Ok(ctx.handle.query(|live| LimitsView::of(&live.state.limits, &live.state.policy)).await?)
}
