//! Calls on claims: leases on resources (C1).

use lastword_broker::Live;
use lastword_core::input::ClaimDraft;
use lastword_core::{Input, Reply};
use lastword_facts::ids::ClaimId;
use lastword_facts::names::Resource;
use lastword_wire::{ClaimView, FieldError, NewClaim, Page};

use super::{Caller, Context, admitted, checked, fault_of};
use crate::error::ApiError;
use crate::views;

/// Claims a resource (C1).
pub async fn take(ctx: &Context, caller: Caller, new: NewClaim) -> Result<ClaimView, ApiError> {
    let resource = checked("resource", &new.resource, Resource::new)?;
    // Claims are compared as text, so another spelling of a directory would conflict with none of them.
    if new.resource.split(['/', ':']).any(|part| part == "..") {
        let text = format!("{:?} has the part `..`; name the directory itself", new.resource);
        return Err(FieldError::new("resource", text).into());
    }
    let ttl_ms = match new.ttl_ms {
        Some(0) => return Err(FieldError::new("ttl_ms", "is 0, so the claim would have ended already").into()),
        Some(ttl_ms) => ttl_ms,
        None => ctx.handle.query(|live| live.state.limits.claim_ms_max).await?,
    };
    let then = |reply: Reply, live: &Live<'_>| match reply {
        Reply::Claimed(id) => Ok(views::claim(live.state, id)),
        other => Err(other),
    };
    let claim = ClaimDraft { resource, mode: new.mode, ttl_ms, key: new.key };
    let input = Input::Claim(caller.principal, caller.turn, Box::new(claim));
    match ctx.handle.submit_then(input, then).await? {
        Ok(claim) => claim.ok_or_else(|| ApiError::unknown(&new.resource)),
        Err(other) => Err(fault_of(other)),
    }
}

/// Lists all claims. Every agent may see them, to learn which resources are taken.
pub(crate) async fn list(ctx: &Context) -> Result<Page<ClaimView>, ApiError> {
    let all = |live: &Live<'_>| live.state.claims.keys().filter_map(|id| views::claim(live.state, *id)).collect();
    Ok(Page::whole(ctx.handle.query(all).await?))
}

/// Releases a claim.
pub async fn release(ctx: &Context, caller: Caller, id: ClaimId) -> Result<(), ApiError> {
    admitted(ctx.handle.submit(Input::Release(caller.principal, id)).await).map(|_| ())
}
