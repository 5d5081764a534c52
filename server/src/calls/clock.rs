//! Calls on the broker's clock (L6).

use lastword_core::Input;
use lastword_wire::ClockView;

use super::{Caller, Context, admitted};
use crate::error::ApiError;
use crate::views;

/// Returns the broker's time and its difference from the wall clock's.
pub(crate) fn show(ctx: &Context) -> ClockView {
    views::clock(ctx.handle.clock())
}

/// Accepts the wall clock's time: if it is ahead, the broker's time jumps to it. If it is behind nothing changes,
/// because time never goes back; the reply says so.
pub async fn accept(ctx: &Context, caller: Caller) -> Result<ClockView, ApiError> {
    caller.human()?;
    // No exact distance: the broker's thread limits the jump to the difference at that moment.
    admitted(ctx.handle.submit(Input::Idled(Some(caller.principal), u64::MAX)).await)?;
    Ok(show(ctx))
}
