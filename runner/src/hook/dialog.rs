//! Dialogs of a session's program: who asked is told of them, or a human of the team decides in place of its user (H2).

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use lastword_client::wire::{Arguments, HeldCall, Progress, UseApproval, quote};
use lastword_client::{Client, ClientError, is_transient};
use lastword_proto::state::ApprovalState;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::kept::Kept;
use super::{HookError, Occasion, Session};
use crate::wording::seed;

/// Longest wait for a decision in one call; the call is repeated.
const POLL: Duration = Duration::from_secs(25);
/// Pause before a call that failed is repeated.
const RETRY: Duration = Duration::from_secs(1);

/// Tells who asked that a dialog of the program is open. It waits for the session's user, and no one else can answer it.
pub(super) async fn waits_for_user(client: &Client, session: &mut Session, message: &str) {
    if let Some(open) = &session.turn {
        session.waits = true;
        let note = format!("waits for its user at the terminal: {message}");
        let report = Progress { note, waits_for_user: true, ..Progress::default() };
        // A report right behind another one is refused; the lease's renewal repeats it.
        let _told = client.progress(&open.id, &report).await;
    }
}

/// Has humans of the team decide on a call that a message asked for, and returns the decision for the program; `None` for
/// a call that the session's user asked for, which is the user's own.
pub(super) async fn permit(client: &Client, folder: &Path, occasion: &Occasion) -> Result<Option<Value>, HookError> {
    let session = Kept::of(folder, &occasion.session_id)?.read()?;
    if session.turn.is_none() {
        return Ok(None);
    }
    let decision = match decided(client, occasion).await {
        Ok(decision) => decision,
        Err(error) => refused(&format!("the call can't be held: {error}")),
    };
    Ok(Some(json!({ "hookSpecificOutput": { "hookEventName": "PermissionRequest", "decision": decision } })))
}

async fn decided(client: &Client, occasion: &Occasion) -> Result<Value, ClientError> {
    let (tool, arguments) = (occasion.tool_name.clone(), occasion.tool_input.clone());
    let call = HeldCall { tool: tool.clone(), arguments: arguments.clone(), reason: None, key: None };
    let mut view = persist(|| client.hold(&call)).await?;
    while view.state == ApprovalState::Pending {
        view = persist(|| client.approval(&view.id, Some(POLL))).await?;
    }
    if view.state != ApprovalState::Approved {
        return Ok(refused(&quote::denied(&view, seed())));
    }
    let edited = view.arguments != arguments;
    let call = UseApproval { tool, arguments: view.arguments };
    // The broker checks the digest, and that the approval is used only once.
    persist(|| client.use_approval(&view.id, &call)).await?;
    let allowed = json!({ "behavior": "allow" });
    Ok(if edited { with_input(allowed, &call.arguments) } else { allowed })
}

fn with_input(mut decision: Value, input: &Arguments) -> Value {
    decision["updatedInput"] = json!(input);
    decision
}

fn refused(message: &str) -> Value {
    json!({ "behavior": "deny", "message": message })
}

/// Repeats a call until the broker answers it.
async fn persist<T, F>(call: impl Fn() -> F) -> Result<T, ClientError>
where
    F: Future<Output = Result<T, ClientError>>,
{
    loop {
        match call().await {
            Err(error) if is_transient(&error) => sleep(RETRY).await,
            ended => return ended,
        }
    }
}
