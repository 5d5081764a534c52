//! D3 and E6: depth can't be reset by starting over, so a REF always belongs to one conversation.

use lastword_facts::refusal::{Code, Refusal};

use super::{RefProblem, View};

/// Refuses a message outside a turn without a REF.
pub(super) fn ref_required(view: &View<'_>) -> Option<Refusal> {
    (view.placement.fault == Some(RefProblem::Required)).then(|| Refusal::new(Code::RefRequired))
}

/// Refuses the REF of a conversation that the sender can't start or join.
pub(super) fn ref_in_use(view: &View<'_>) -> Option<Refusal> {
    match &view.placement.fault {
        Some(RefProblem::InUse(reference)) => Some(Refusal::new(Code::RefInUse).about(reference)),
        Some(RefProblem::Required | RefProblem::Conflict(_)) | None => None,
    }
}

/// Refuses another REF for a delegate with which this task has a conversation.
pub(super) fn ref_conflict(view: &View<'_>) -> Option<Refusal> {
    match &view.placement.fault {
        Some(RefProblem::Conflict(reference)) => Some(Refusal::new(Code::RefConflict).about(reference)),
        Some(RefProblem::Required | RefProblem::InUse(_)) | None => None,
    }
}
