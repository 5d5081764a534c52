//! The limits in force.

use lastword_proto::wire::LimitsView;

use super::Context;
use crate::error::ApiError;

/// The numbers in force.
pub(crate) async fn in_force(ctx: &Context) -> Result<LimitsView, ApiError> {
    Ok(ctx.handle.query(|live| LimitsView::of(&live.state.limits, &live.state.policy)).await?)
}
