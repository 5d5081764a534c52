//! Calls on humans: the list of those registered, their roles, and the record of their acts (H7, D12).

use lastword_broker::{Live, Unserved};
use lastword_core::{Input, Principal};
use lastword_facts::Code;
use lastword_facts::fact::{Credential, Kind, Role};
use lastword_wire::{AgentView, Page};

use super::{Caller, Context, admitted, agents};
use crate::error::ApiError;

/// Lists the registered humans.
pub(crate) async fn list(ctx: &Context) -> Result<Page<AgentView>, ApiError> {
    agents::listed(ctx, &[Kind::Human]).await
}

/// Returns the workspace's first human and the hash of their token. Access to the data directory allows acting for that
/// human.
pub async fn operator(ctx: &Context) -> Result<Option<(Credential, Principal)>, ApiError> {
    let first = ctx.handle.query(|live| live.state.any_human()).await?;
    Ok(ctx.handle.proof_of(first).filter(|(_, principal)| principal.is_human()))
}

/// Records that a human signed in or opened a page (D12). The page is shown in any case, even if a viewer's visit
/// doesn't count as an act or the disk has no room for the fact.
pub async fn act(ctx: &Context, human: Principal) -> Result<(), ApiError> {
    match ctx.handle.submit(Input::Act(human)).await {
        Ok(_) | Err(Unserved::DiskLow { .. } | Unserved::LogGone) => Ok(()),
        Err(unserved) => Err(unserved.into()),
    }
}

/// Refuses a caller that isn't a human with at least this role (H7).
pub async fn require(ctx: &Context, caller: Caller, role: Role) -> Result<(), ApiError> {
    caller.human()?;
    let who = caller.principal.agent();
    let own = ctx.handle.query(move |live: &Live<'_>| live.state.agent(who).map(|human| human.role)).await?;
    match own {
        // Roles are ordered from owner to viewer, so a smaller one may do more.
        Some(own) if own <= role => Ok(()),
        own => {
            let own = own.map(|own| format!(", not {own}")).unwrap_or_default();
            Err(ApiError::new(Code::Forbidden, format!("That is for a human with the role {role}{own}")))
        }
    }
}

/// Sets the role of a human (H7).
pub async fn set_role(ctx: &Context, caller: Caller, name: &str, role: Role) -> Result<AgentView, ApiError> {
    caller.human()?;
    caller.gives_rights(ctx)?;
    let human = agents::find(ctx, name).await?;
    admitted(ctx.handle.submit(Input::SetRole(caller.principal, human, role)).await)?;
    agents::show(ctx, name).await
}
