//! Claims: leases on resources.

use lastword_core::State;
use lastword_core::state::Phase;
use lastword_facts::ids::ClaimId;
use lastword_wire::{ClaimView, rfc3339};

use super::requests::request_of;

/// Returns a claim; `None` once it has ended.
pub(crate) fn claim(state: &State, id: ClaimId) -> Option<ClaimView> {
    let claim = state.claims.get(&id)?;
    let task = claim.task.and_then(|task| state.tasks.get(&task));
    let turn = task.and_then(|task| match task.phase {
        Phase::Open(turn) => state.turns.get(&turn),
        Phase::Queued | Phase::Waiting | Phase::Closed(..) => None,
    });
    Some(ClaimView {
        id: id.to_string(),
        fence: id.0,
        resource: claim.resource.to_string(),
        mode: claim.mode,
        agent: state.name_of(claim.agent).to_owned(),
        request_id: request_of(state, claim.task),
        reference: task.and_then(|task| state.ref_of(task.conv)).map(ToString::to_string),
        works_since: turn.map(|turn| rfc3339(turn.opened_at)),
        expires_at: rfc3339(claim.expires_at),
    })
}
