//! Permission for a call that a client holds: it asks once and gets a yes or a no. Any failure is a no.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

use lastword_broker::Live;
use lastword_facts::fact::Decision;
use lastword_facts::ids::ApprovalId;
use lastword_facts::status::ApprovalState;
use lastword_server::calls::{Caller, approvals, turns};
use lastword_server::{ApiError, Context};
use lastword_wire::{Arguments, HeldCall, Progress, UseApproval, quote};

/// How long one wait for the decision lasts, before the token is checked again.
const LOOK: Duration = Duration::from_secs(15);
/// The number of waits between two renewals of the turn's lease.
const RENEWED_EVERY: u32 = 4;

/// The reply to a client about a call that it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// The call may be made now, once, with these arguments.
    Allow(Arguments),
    /// The call may not be made, with the reason in words for the model.
    Deny(String),
}

/// Holds a call until it is decided, and uses the approval up.
pub(super) async fn permission(ctx: &Context, caller: Caller, call: HeldCall) -> Permission {
    match decided(ctx, caller, call).await {
        Ok(permission) => permission,
        Err(fault) => {
            let problem = &fault.0;
            Permission::Deny(format!("Not allowed: {} ({}). {}", problem.detail, problem.code, problem.hint))
        }
    }
}

async fn decided(ctx: &Context, caller: Caller, call: HeldCall) -> Result<Permission, ApiError> {
    if let Some(id) = approved_before(ctx, caller, &call).await? {
        return spend(ctx, caller, id, call.tool, call.arguments).await;
    }
    let mut view = approvals::hold(ctx, caller, call.clone()).await?;
    let id = ApprovalId::parse(&view.id).ok_or_else(|| ApiError::unknown(&view.id))?;
    for look in 1_u32.. {
        if view.state != ApprovalState::Pending {
            break;
        }
        if *ctx.stopping.borrow() {
            return Ok(Permission::Deny(format!("Not allowed: the server stopped before {id} was decided.")));
        }
        view = approvals::show(ctx, caller, id, LOOK).await?;
        // The wait may last hours, in which the agent can be removed or get a new token.
        caller.reauthenticate(&ctx.handle)?;
        if look % RENEWED_EVERY == 0 {
            // Outside a turn a lease doesn't exist, so a failed renewal must not end the wait.
            let _renewed = turns::progress(ctx, caller, None, Progress::default()).await;
        }
    }
    match (view.state, view.decision) {
        // An edited call is used with the arguments that the human wrote.
        (ApprovalState::Approved, Some(Decision::Edit)) => spend(ctx, caller, id, call.tool, view.arguments).await,
        (ApprovalState::Approved | ApprovalState::Used, _) => spend(ctx, caller, id, call.tool, call.arguments).await,
        _ => Ok(Permission::Deny(quote::denied(&view, seed()))),
    }
}

/// Returns an unused approval that the agent got earlier in this task for exactly this call.
async fn approved_before(ctx: &Context, caller: Caller, call: &HeldCall) -> Result<Option<ApprovalId>, ApiError> {
    let call = call.clone();
    let find = move |live: &Live<'_>| {
        let digest = approvals::digest_of(live, caller, &call.tool, &call.arguments);
        let mut known = live.state.approvals.iter().rev();
        let agent = caller.principal.agent();
        // The digest contains the task; without one, an approval could be used in unrelated work.
        let fits = |a: &lastword_core::state::Approval| a.agent == agent && a.task.is_some() && a.digest == digest;
        known.find(|(_, a)| a.state == ApprovalState::Approved && fits(a)).map(|(id, _)| *id)
    };
    Ok(ctx.handle.query(find).await?)
}

async fn spend(
    ctx: &Context,
    caller: Caller,
    id: ApprovalId,
    tool: String,
    arguments: Arguments,
) -> Result<Permission, ApiError> {
    approvals::spend(ctx, caller, id, UseApproval { tool, arguments: arguments.clone(), key: None }).await?;
    Ok(Permission::Allow(arguments))
}

/// Returns a random number for a boundary. The standard library seeds these keys from the system's randomness.
fn seed() -> u32 {
    let [a, b, c, d, ..] = RandomState::new().build_hasher().finish().to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
