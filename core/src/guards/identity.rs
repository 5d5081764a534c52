//! E3: members that the broker mints may be claimed, and a claim that differs is refused.

use lastword_facts::refusal::{Code, Refusal};

use super::View;

/// Refuses a FROM that isn't the sender that the token proves.
pub(super) fn from_mismatch(view: &View<'_>) -> Option<Refusal> {
    let claim = view.draft.from.as_ref()?;
    (claim.as_str() != view.state.name_of(view.sender)).then(|| Refusal::new(Code::FromMismatch).about(claim))
}

/// Refuses a DEPTH that isn't the depth of the message.
pub(super) fn depth_mismatch(view: &View<'_>) -> Option<Refusal> {
    let claim = view.draft.depth?;
    let (claim, depth) = (u64::from(claim), u64::from(view.placement.depth));
    (claim != depth && !view.to_human()).then(|| Refusal::new(Code::DepthMismatch).numbers(depth, claim))
}
