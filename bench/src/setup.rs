//! How a measurement is set up.

use std::future::Future;

use futures_util::StreamExt as _;

use crate::failure::Failure;

/// Calls in flight at once.
const AT_ONCE: usize = 64;

/// Runs all futures, some at a time, and keeps their order.
pub(crate) async fn at_once<T>(
    work: impl Iterator<Item = impl Future<Output = Result<T, Failure>>>,
) -> Result<Vec<T>, Failure> {
    let mut running = futures_util::stream::iter(work).buffered(AT_ONCE);
    let mut done = Vec::new();
    while let Some(one) = running.next().await {
        done.push(one?);
    }
    Ok(done)
}
