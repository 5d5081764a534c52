//! Claims: leases on resources.

use lastword_core::State;
use lastword_facts::ids::ClaimId;
use lastword_wire::{ClaimView, rfc3339};

use super::requests::request_of;

/// Returns a claim; `None` once it has ended.
pub(crate) fn claim(state: &State, id: ClaimId) -> Option<ClaimView> {
    let claim = state.claims.get(&id)?;
    Some(ClaimView {
        id: id.to_string(),
        fence: id.0,
        resource: claim.resource.to_string(),
        mode: claim.mode,
        agent: state.name_of(claim.agent).to_owned(),
        request_id: request_of(state, claim.task),
        expires_at: rfc3339(claim.expires_at),
    })
}
