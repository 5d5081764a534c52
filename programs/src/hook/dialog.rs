//! Dialogs of a session's program: who asked is told of them, or a human of the team decides in place of its user (H2).

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use lastword_client::wire::{ApprovalView, Arguments, DecideApproval, HeldCall, Progress, UseApproval, quote};
use lastword_client::{Client, ClientError, is_transient};
use lastword_facts::fact::Decision;
use lastword_facts::status::ApprovalState;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::session_file::SessionFile;
use super::{Background, HookError, HookSession, Occasion, edit};
use crate::wording::{new_key, seed};

/// Longest wait for a decision in one call; the call is repeated.
const POLL: Duration = Duration::from_secs(25);
/// Pause before a call that failed is repeated.
const RETRY: Duration = Duration::from_secs(1);

/// The comment on a call that needs no decision in Lastword any more.
const ANSWERED: &str = "the session's user answered in the program's own dialog";

/// A call of a dialog that waits for a human of the team.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct DialogCall {
    approval: String,
    tool: String,
    arguments: Arguments,
    /// Its dialog is gone, and the broker was away when it was.
    #[serde(default)]
    answered: bool,
}

/// Gives up the calls whose dialogs are gone without a decision of the team: the one that was made, or all of them at the
/// end of the model's turn, which else would wait for the decision. Where the broker is away, the next event does it.
pub(super) async fn answered(client: &Client, session: &mut HookSession, occasion: &Occasion) {
    let goes_on = occasion.background_tasks.iter().any(Background::is_of_turn);
    let ends = matches!(occasion.hook_event_name.as_str(), "Stop" | "StopFailure") && !goes_on;
    let made = matches!(occasion.hook_event_name.as_str(), "PostToolUse" | "PostToolUseFailure");
    let is_it = |held: &DialogCall| held.tool == occasion.tool_name && held.arguments == occasion.tool_input;
    let gone = |held: &mut DialogCall| ends || held.answered || (made && is_it(held));
    let mut owed = Vec::new();
    for held in session.held.extract_if(.., gone) {
        let comment = Some(ANSWERED.to_owned());
        let given_up = DecideApproval { decision: Decision::Ignore, comment, input: None, digest: None };
        // One that a human decided stays as it is.
        if client.decide(&held.approval, &given_up).await.is_err_and(|error| is_transient(&error)) {
            owed.push(DialogCall { answered: true, ..held });
        }
    }
    session.held.append(&mut owed);
}

/// Tells who asked that a dialog of the program is open. It waits for the session's user, and no one else can answer it.
pub(super) async fn waits_for_user(client: &Client, session: &mut HookSession, message: &str) {
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
    let session = SessionFile::of(folder, &occasion.session_id)?.read()?;
    if session.turn.is_none() {
        return Ok(None);
    }
    let (tool, arguments) = (occasion.tool_name.clone(), occasion.tool_input.clone());
    let call = HeldCall { tool: tool.clone(), arguments: arguments.clone(), reason: None, key: new_key() };
    let view = match persist(|| client.hold(&call)).await {
        Ok(view) => view,
        Err(error) => return Ok(Some(said(&unheld(&error)))),
    };
    let kept = SessionFile::of(folder, &occasion.session_id)?;
    let noted = kept.lock()?;
    let mut session = kept.read()?;
    session.held.push(DialogCall { approval: view.id.clone(), tool, arguments, answered: false });
    // Others go on in the tree for as long as the call waits.
    session.edits.end_calls(client, occasion).await;
    kept.write(&session)?;
    drop(noted);
    let decision = decided(client, view, call).await.unwrap_or_else(|error| Some(unheld(&error)));
    let Some(decision) = decision else { return Ok(None) };
    let conflict = match decision["behavior"] == "allow" {
        true => conflict(client, folder, occasion, &decision).await?,
        false => None,
    };
    Ok(Some(said(&conflict.unwrap_or(decision))))
}

/// Claims what an allowed call changes, and refuses it if another task holds that by now.
async fn conflict(
    client: &Client,
    folder: &Path,
    occasion: &Occasion,
    decision: &Value,
) -> Result<Option<Value>, HookError> {
    let mut call = Occasion { hook_event_name: "PreToolUse".to_owned(), ..occasion.clone() };
    if let Some(edited) = decision.get("updatedInput") {
        call.tool_input = edited.clone().into();
    }
    let stopped = edit::permit(client, folder, &call).await?;
    let reason = stopped.as_ref().and_then(|said| said.pointer("/hookSpecificOutput/permissionDecisionReason"));
    Ok(reason.and_then(Value::as_str).map(refused))
}

fn said(decision: &Value) -> Value {
    json!({ "hookSpecificOutput": { "hookEventName": "PermissionRequest", "decision": decision } })
}

fn unheld(error: &ClientError) -> Value {
    refused(&format!("the call can't be held: {error}"))
}

/// Waits for the decision; `None` if it was made in the dialog.
async fn decided(client: &Client, mut view: ApprovalView, call: HeldCall) -> Result<Option<Value>, ClientError> {
    let HeldCall { tool, arguments, .. } = call;
    while view.state == ApprovalState::Pending {
        view = persist(|| client.approval(&view.id, Some(POLL))).await?;
    }
    if view.state == ApprovalState::Ignored && view.by.as_ref() == Some(&view.agent) {
        return Ok(None);
    }
    if view.state != ApprovalState::Approved {
        return Ok(Some(refused(&quote::denied(&view, seed()))));
    }
    let edited = view.arguments != arguments;
    let call = UseApproval { tool, arguments: view.arguments, key: new_key() };
    // The broker checks the digest, and that the approval is used only once.
    persist(|| client.use_approval(&view.id, &call)).await?;
    let allowed = json!({ "behavior": "allow" });
    Ok(Some(if edited { with_input(allowed, &call.arguments) } else { allowed }))
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
