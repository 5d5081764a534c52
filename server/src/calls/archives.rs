//! Calls on the archive of the log.

use lastword_broker::archive::{ArchivePolicy, MoveError, archives_of, segment};
use lastword_broker::off_thread;
use lastword_facts::fact::Role;
use lastword_facts::{Code, Refusal, Seq};
use lastword_wire::{ArchivesView, FieldError, MoveToArchive, MovedToArchive};

use super::{Caller, Context, humans};
use crate::error::ApiError;

/// Returns the log's extent and growth, and the segments that left it.
pub(crate) async fn show(ctx: &Context, caller: Caller) -> Result<ArchivesView, ApiError> {
    caller.human()?;
    let (archives, now) = (ctx.archives.clone(), ctx.handle.now());
    let looked =
        off_thread(move || archives_of(archives.archive.as_ref(), archives.log.as_ref(), archives.policy, now));
    Ok(looked.await?)
}

/// Moves the oldest part of the log to the archive, for an owner.
pub(crate) async fn move_now(ctx: &Context, caller: Caller, wanted: MoveToArchive) -> Result<MovedToArchive, ApiError> {
    humans::require(ctx, caller, Role::Owner).await?;
    let policy = match wanted {
        MoveToArchive { after_ms: None, above_bytes: None } => ctx.archives.policy,
        MoveToArchive { after_ms, above_bytes } => ArchivePolicy { after_ms, above_bytes },
    };
    if policy == ArchivePolicy::default() {
        let wrong = FieldError::new("after_ms", "or above_bytes is needed: the configuration moves nothing by itself");
        return Err(ApiError::pointless(&wrong));
    }
    let moved = ctx.archives.move_now(policy).await.map_err(|error| failed(&error))?;
    let segments = moved.segments.iter().map(segment).collect();
    Ok(MovedToArchive { segments, held_back_at: moved.held_back.map(|at| at.0) })
}

/// Refuses a position that has left the log: what follows it would be skipped in silence.
pub(crate) fn check_position(ctx: &Context, after: Seq) -> Result<(), ApiError> {
    let first = *ctx.archives.first.borrow();
    if after.0 + 1 >= first.0 {
        return Ok(());
    }
    let refusal = Refusal::new(Code::Archived).about(format_args!("position {}", after.0));
    Err(refusal.numbers(first.0 - 1, after.0).into())
}

fn failed(error: &MoveError) -> ApiError {
    tracing::warn!(%error, "nothing more moved to the archive");
    ApiError::internal(&error.to_string())
}
