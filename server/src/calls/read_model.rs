//! Questions to the read model, which follows the log.

use std::fmt::Display;
use std::time::Duration;

use lastword_store::{IndexReader, ReadError};

use super::Context;
use crate::broker::off_thread;
use crate::error::ApiError;

/// How long a query waits for the read model to reach the position of the question.
const FRESH_WAIT: Duration = Duration::from_secs(2);

/// Waits until the read model is up to this moment.
pub(super) async fn fresh(ctx: &Context) {
    let now = *ctx.handle.committed().borrow();
    let mut indexed = ctx.indexed.clone();
    if *indexed.borrow() < now {
        ctx.hurry.notify_one();
    }
    // An audit that is a moment behind is better than none: what is there is shown when the wait is over.
    if tokio::time::timeout(FRESH_WAIT, indexed.wait_for(|seq| *seq >= now)).await.is_err() {
        tracing::warn!("the read model is behind the log");
    }
}

/// Asks the read model as far as it is, on a thread that may block.
pub(super) async fn ask<T: Send + 'static, E: Display>(
    ctx: &Context,
    question: impl FnOnce(&IndexReader) -> Result<T, E> + Send + 'static,
) -> Result<T, ApiError> {
    let index = ctx.index.clone();
    let run = move || question(&index).map_err(|e| ReadError::Unavailable { reason: e.to_string() });
    Ok(off_thread(run).await?)
}

/// Asks the read model once it is up to this moment.
pub(super) async fn ask_fresh<T: Send + 'static, E: Display>(
    ctx: &Context,
    question: impl FnOnce(&IndexReader) -> Result<T, E> + Send + 'static,
) -> Result<T, ApiError> {
    fresh(ctx).await;
    ask(ctx, question).await
}
