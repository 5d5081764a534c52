//! L4: a full queue refuses; nothing is queued without bound.

use lastword_facts::envelope::nesting_above;
use lastword_facts::refusal::{Code, Refusal};

use super::View;
use crate::state::State;

/// The time after which a full queue has probably moved, in ms.
const RETRY_MS: u64 = 1_000;

/// Refuses a body or payload longer than `body_bytes_max`, or a payload nested deeper than `payload_depth_max`.
pub(super) fn too_large(view: &View<'_>) -> Option<Refusal> {
    let max = view.state.limits.body_bytes_max;
    let payload = view.draft.payload.as_ref().map_or(0, |p| p.len());
    let longest = view.draft.body.len().max(payload) as u64;
    if longest > max {
        return Some(Refusal::new(Code::TooLarge).numbers(max, longest));
    }
    too_deep(view.state, view.draft.payload.as_deref())
}

/// Refuses a payload that is nested deeper than `payload_depth_max`.
fn too_deep(state: &State, payload: Option<&str>) -> Option<Refusal> {
    let max = state.limits.payload_depth_max;
    let depth = nesting_above(payload?.as_bytes(), max)?;
    Some(Refusal::new(Code::TooLarge).about("nesting of the payload").numbers(max, depth))
}

/// Refuses a request if the recipient's queue holds `inbox_max` requests.
pub(super) fn saturated(view: &View<'_>) -> Option<Refusal> {
    let max = view.state.limits.inbox_max;
    let recipient = view.recipient().filter(|_| view.is_request())?;
    let waiting = recipient.queue.len() as u64;
    (waiting >= max)
        .then(|| Refusal::new(Code::Saturated).numbers(max, waiting + 1).about(recipient.name()).retry_after(RETRY_MS))
}
