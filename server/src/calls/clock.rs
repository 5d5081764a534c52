//! The broker's clock (L6).

use lastword_proto::Input;
use lastword_proto::wire::ClockView;

use super::{Caller, Context, admitted};
use crate::error::ApiError;
use crate::views;

/// The broker's time beside the wall clock's.
pub(crate) fn show(ctx: &Context) -> ClockView {
    views::clock(ctx.handle.clock())
}

/// The wall clock is right: where it is ahead, the broker's time jumps there. Where it is behind nothing happens, for time
/// never goes back; the answer says so.
pub(crate) async fn accept(ctx: &Context, caller: Caller) -> Result<ClockView, ApiError> {
    caller.human()?;
    // However far it is: the broker's thread looks.
    admitted(ctx.handle.submit(Input::Idled(Some(caller.principal), u64::MAX)).await)?;
    Ok(show(ctx))
}
