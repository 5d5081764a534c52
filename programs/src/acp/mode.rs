//! The mode of a session: one in which the agent asks before it acts, unless the settings say otherwise.

use agent_client_protocol_schema::v1::{SessionId, SessionModeId, SessionModeState, SetSessionModeRequest};

use super::process::AgentConnection;
use super::session::said;
use crate::run::RunnerContext;

/// Modes in which agents ask before they act, by the names that their adapters give them. In the last one, of `codex-acp`,
/// what only reads runs in a sandbox that lets nothing else through.
const ASKING: [&str; 4] = ["default", "manual", "ask", "read-only"];

/// Returns whether an agent asks in this mode.
pub(super) fn asks(mode: &SessionModeId) -> bool {
    ASKING.contains(&&*mode.0)
}

/// Sets a session to a mode in which the agent asks, and returns it; `None` if the agent reports no modes or may run
/// unheld.
///
/// # Errors
/// The agent has no such mode, or refuses it.
pub(super) async fn hold(
    shared: &RunnerContext,
    link: &AgentConnection,
    session: &SessionId,
    modes: Option<&SessionModeState>,
) -> Result<Option<SessionModeId>, String> {
    let Some(modes) = modes.filter(|_| !shared.settings.unheld) else { return Ok(None) };
    if asks(&modes.current_mode_id) {
        return Ok(Some(modes.current_mode_id.clone()));
    }
    let known = modes.available_modes.iter().map(|mode| &mode.id);
    // In the order of the names: in the last one an agent can do the least.
    let asking = ASKING.iter().find_map(|name| known.clone().find(|id| &*id.0 == *name));
    let Some(asking) = asking else {
        let known: Vec<&str> = known.map(|id| &*id.0).collect();
        return Err(format!(
            "the agent has no mode in which it asks before it acts (its modes: {}); --unheld runs it as it is, and \
             none of its calls is held",
            known.join(", ")
        ));
    };
    set(link, session, asking).await?;
    Ok(Some(asking.clone()))
}

/// Sets a session's mode.
pub(super) async fn set(link: &AgentConnection, session: &SessionId, mode: &SessionModeId) -> Result<(), String> {
    let request = SetSessionModeRequest::new(session.clone(), mode.clone());
    let set = link.connection.call(&request).await;
    set.map(drop).map_err(|error| format!("the agent refuses the mode {}: {}", mode.0, said(&error)))
}
