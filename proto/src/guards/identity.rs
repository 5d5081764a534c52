//! E3: what the broker mints is at most claimed, and a claim that differs is refused.

use super::View;
use crate::refusal::{Code, Refusal};

/// FROM is who the token proves.
pub(super) fn from_mismatch(view: &View<'_>) -> Option<Refusal> {
    let claim = view.draft.from.as_ref()?;
    (claim.as_str() != view.state.name_of(view.sender)).then(|| Refusal::new(Code::FromMismatch).about(claim))
}

/// DEPTH is what the sender's task has received.
pub(super) fn depth_mismatch(view: &View<'_>) -> Option<Refusal> {
    let claim = view.draft.depth?;
    let (claim, depth) = (u64::from(claim), u64::from(view.line.depth));
    (claim != depth && !view.to_human()).then(|| Refusal::new(Code::DepthMismatch).numbers(depth, claim))
}
