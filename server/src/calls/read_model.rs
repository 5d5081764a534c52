//! Queries of the read model, which follows the log.

use std::fmt::Display;
use std::time::Duration;

use lastword_broker::off_thread;
use lastword_store::{IndexReader, ReadError};

use super::Context;
use crate::error::ApiError;

/// How long a query waits for the read model to reach the log's current position.
const FRESH_WAIT: Duration = Duration::from_secs(2);

/// Returns by how many facts the read model is behind the log.
pub(crate) fn behind(ctx: &Context) -> u64 {
    let (committed, indexed) = (*ctx.handle.committed().borrow(), *ctx.indexed.borrow());
    committed.0.saturating_sub(indexed.0)
}

/// Waits until the read model has indexed every fact that is durable now. Returns how many of them it lacks after a
/// reasonable wait.
pub(super) async fn fresh(ctx: &Context) -> u64 {
    let now = *ctx.handle.committed().borrow();
    let mut indexed = ctx.indexed.clone();
    if *indexed.borrow() < now {
        // The follower pauses between steps; this ends its pause.
        ctx.hurry.notify_one();
    }
    // An audit that is slightly behind is better than none: after the wait, it shows as much as is indexed.
    if tokio::time::timeout(FRESH_WAIT, indexed.wait_for(|seq| *seq >= now)).await.is_ok() {
        return 0;
    }
    let behind = now.0.saturating_sub(indexed.borrow().0);
    tracing::warn!(behind, "the read model is behind the log");
    behind
}

/// Queries the read model in its current state, on a thread that may block.
pub async fn ask<T: Send + 'static, E: Display>(
    ctx: &Context,
    question: impl FnOnce(&IndexReader) -> Result<T, E> + Send + 'static,
) -> Result<T, ApiError> {
    let index = ctx.index.clone();
    let run = move || question(&index).map_err(|e| ReadError::Unavailable { reason: e.to_string() });
    Ok(off_thread(run).await?)
}

/// Queries the read model once it has caught up.
pub async fn ask_fresh<T: Send + 'static, E: Display>(
    ctx: &Context,
    question: impl FnOnce(&IndexReader) -> Result<T, E> + Send + 'static,
) -> Result<T, ApiError> {
    fresh(ctx).await;
    ask(ctx, question).await
}
