//! L4: what is full is refused, never queued without bound.

use super::View;
use crate::refusal::{Code, Refusal};

/// Until a full queue has probably moved, in ms.
const RETRY_MS: u64 = 1_000;

/// A body or payload longer than `body_bytes_max`.
pub(super) fn too_large(view: &View<'_>) -> Option<Refusal> {
    let max = view.state.limits.body_bytes_max;
    let payload = view.draft.payload.as_ref().map_or(0, |p| p.len());
    let longest = view.draft.body.len().max(payload) as u64;
    (longest > max).then(|| Refusal::new(Code::TooLarge).numbers(max, longest))
}

/// The recipient's queue holds `inbox_max` requests.
pub(super) fn saturated(view: &View<'_>) -> Option<Refusal> {
    let max = view.state.limits.inbox_max;
    let recipient = view.recipient().filter(|_| view.is_request())?;
    let waiting = recipient.queue.len() as u64;
    (waiting >= max)
        .then(|| Refusal::new(Code::Saturated).numbers(max, waiting + 1).about(recipient.name()).retry_after(RETRY_MS))
}
