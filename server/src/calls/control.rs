//! The controls of humans: pause, resume and stop (H4).

use lastword_broker::Live;
use lastword_core::{Input, State};
use lastword_facts::fact::{Control, Scope};
use lastword_facts::status::Running;

use super::{Caller, Context, admitted};
use crate::error::ApiError;

/// Pauses, resumes or stops work in `scope`.
pub async fn control(ctx: &Context, caller: Caller, scope: Scope, control: Control) -> Result<(), ApiError> {
    caller.human()?;
    admitted(ctx.handle.submit(Input::Control(caller.principal, scope, control)).await).map(|_| ())
}

/// Returns whether the workspace is running, paused or stopped.
pub async fn running(ctx: &Context) -> Result<Running, ApiError> {
    Ok(ctx.handle.query(|live| live.state.running).await?)
}

/// The state of the workspace, and how much work a stop would cancel.
pub struct Workspace {
    /// Whether it is running, paused or stopped.
    pub running: Running,
    /// The open work.
    pub open: OpenWork,
}

/// How much work is open. Every page that shows one of these numbers has it from here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenWork {
    /// The number of grants that are open.
    pub grants: u64,
    /// The number of conversations with open work, held and paused ones included.
    pub conversations: u64,
    /// The number of open turns of all agents.
    pub turns: u64,
}

impl OpenWork {
    /// Counts the open work.
    pub fn of(state: &State) -> Self {
        let convs = state.conversations.range(..).filter(|(_, conv)| !conv.open_tasks.is_empty());
        Self {
            grants: state.grants.iter().filter(|(_, grant)| grant.end.is_none()).count() as u64,
            conversations: convs.count() as u64,
            turns: state.agents.iter().map(|agent| agent.turns.len() as u64).sum(),
        }
    }
}

/// Returns the state of the workspace.
pub async fn workspace(ctx: &Context) -> Result<Workspace, ApiError> {
    let look = |live: &Live<'_>| Workspace { running: live.state.running, open: OpenWork::of(live.state) };
    Ok(ctx.handle.query(look).await?)
}
