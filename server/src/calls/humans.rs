//! Humans: who is there, what they may do, and that they act (H7, D12).

use lastword_proto::fact::{Credential, Kind, Role};
use lastword_proto::wire::{AgentView, Page};
use lastword_proto::{Input, Principal};

use super::{Caller, Context, admitted, agents};
use crate::broker::Unserved;
use crate::error::ApiError;

/// The humans who are registered.
pub(crate) async fn list(ctx: &Context) -> Result<Page<AgentView>, ApiError> {
    agents::listed(ctx, &[Kind::Human]).await
}

/// The first human of the workspace, as whoever may read the data directory can act; and the hash of their token.
pub(crate) async fn operator(ctx: &Context) -> Result<Option<(Credential, Principal)>, ApiError> {
    let first = ctx.handle.query(|live| live.state.any_human()).await?;
    Ok(ctx.handle.proof_of(first).filter(|(_, principal)| principal.is_human()))
}

/// A human signed in or opened a page (D12). That a viewer's is no act, or that the disk has no room for it, is no failure:
/// the page is shown.
pub(crate) async fn act(ctx: &Context, human: Principal) -> Result<(), ApiError> {
    match ctx.handle.submit(Input::Act(human)).await {
        Ok(_) | Err(Unserved::DiskLow { .. }) => Ok(()),
        Err(unserved) => Err(unserved.into()),
    }
}

/// Sets what a human may do (H7).
pub(crate) async fn set_role(ctx: &Context, caller: Caller, name: &str, role: Role) -> Result<AgentView, ApiError> {
    caller.human()?;
    let human = agents::find(ctx, name).await?;
    admitted(ctx.handle.submit(Input::SetRole(caller.principal, human, role)).await)?;
    agents::show(ctx, name).await
}
