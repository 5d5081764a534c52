//! Edits of a session's program: each claims the files that it changes before it is made (C1).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lastword_client::Client;
use serde_json::{Value, json};

use super::session_file::SessionFile;
use super::{HookError, HookSession, Occasion, context};
use crate::edits::{self, ClaimLasts, Claimed, ToolCall, Verdict};

/// Tools that read the file which they name.
const READS: [&str; 3] = ["Read", "read_file", "read"];

/// The most files that a session remembers to have been refused.
const REFUSED_MAX: usize = 256;

/// Claims what a call would change, and returns what stops it; `None` if nothing does.
pub(super) async fn permit(client: &Client, folder: &Path, occasion: &Occasion) -> Result<Option<Value>, HookError> {
    let (cwd, arguments) = called(occasion);
    let call = ToolCall { tool: &occasion.tool_name, arguments: Some(&arguments) };
    let verdict = match edits::claim(client, &cwd, call).await {
        Ok(verdict) => verdict,
        Err(error) => {
            return Ok(Some(match edits::unclaimed(&error) {
                Some(note) => json!({ "systemMessage": note }),
                None => denied(&edits::refused(&error)),
            }));
        }
    };
    let kept = SessionFile::of(folder, &occasion.session_id)?;
    match verdict {
        // What a task holds and was never refused leaves nothing to keep.
        Verdict::Free(claimed) if !kept.read()?.edits.concerns(&claimed) => Ok(None),
        Verdict::Free(claimed) => {
            let _alone = kept.lock()?;
            let mut session = kept.read()?;
            let stale = session.edits.claimed(&claimed, &arguments);
            kept.write(&session)?;
            if stale.is_some() {
                edits::give_back(client, &claimed).await;
            }
            Ok(stale.map(|told| denied(&told)))
        }
        Verdict::Held(held) => {
            let _alone = kept.lock()?;
            let mut session = kept.read()?;
            if session.edits.refused.len() < REFUSED_MAX {
                session.edits.refused.insert(held.path.clone(), edits::hash(&held.path));
                kept.write(&session)?;
            }
            Ok(Some(denied(&held.told)))
        }
    }
}

/// Returns where a call is made, and its arguments.
fn called(occasion: &Occasion) -> (PathBuf, Value) {
    let cwd = occasion.cwd.clone().or_else(|| std::env::current_dir().ok()).unwrap_or_default();
    (cwd, serde_json::to_value(&occasion.tool_input).unwrap_or_default())
}

/// Returns what the model is told of an edit that it has made to a file that another task holds by now.
pub(super) async fn made(client: &Client, occasion: &Occasion) -> Option<Value> {
    let (cwd, arguments) = called(occasion);
    let call = ToolCall { tool: &occasion.tool_name, arguments: Some(&arguments) };
    // The edit is made: a broker that is away is asked no longer.
    let told = edits::collision(client, &cwd, call).await.ok().flatten();
    told.map(|told| context("PostToolUse", &told))
}

fn denied(reason: &str) -> Value {
    json!({ "hookSpecificOutput": {
        "hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason,
    } })
}

/// What a session knows of its edits.
#[derive(Clone, Debug, Default, serde::Deserialize, serde::Serialize)]
#[serde(default)]
pub(super) struct Edits {
    /// The files that were refused, with the hash of what was in them then: an edit of another text is no longer based on what
    /// the model has read.
    refused: BTreeMap<PathBuf, Option<String>>,
    /// The claims that end with the user's prompt, because no task does it.
    loose: Vec<String>,
    /// The claims that end with their call, which these arguments tell from others.
    of_calls: Vec<ClaimOfCall>,
}

/// A claim that ends with its call.
#[derive(Clone, Debug, serde::Deserialize, serde::Serialize)]
struct ClaimOfCall {
    claim: Claimed,
    arguments: Value,
}

impl Edits {
    /// Whether claims change what is known.
    fn concerns(&self, claimed: &[Claimed]) -> bool {
        let is_new = |one: &Claimed| match one.lasts {
            ClaimLasts::Call => true,
            ClaimLasts::Prompt => !self.loose.contains(&one.claim),
            ClaimLasts::Task => false,
        };
        claimed.iter().any(|one| is_new(one) || self.refused.contains_key(&one.path))
    }

    /// Notes the claims of a call. Returns what the model is told if it was refused one of the files earlier, and the file has
    /// changed since.
    fn claimed(&mut self, claimed: &[Claimed], arguments: &Value) -> Option<String> {
        for one in claimed {
            match one.lasts {
                ClaimLasts::Prompt if !self.loose.contains(&one.claim) => self.loose.push(one.claim.clone()),
                ClaimLasts::Call => {
                    self.of_calls.push(ClaimOfCall { claim: one.clone(), arguments: arguments.clone() });
                }
                ClaimLasts::Prompt | ClaimLasts::Task => {}
            }
        }
        let refused = claimed.iter().filter_map(|one| Some((&one.path, self.refused.remove(&one.path)?)));
        let compared: Vec<_> = refused.map(|(path, before)| (path, before, edits::hash(path))).collect();
        let changed = compared.into_iter().find(|(_, before, now)| before != now);
        changed.map(|(path, _, now)| edits::stale(path, now.as_deref()))
    }

    /// Notes that the model has read a file.
    pub(super) fn read(&mut self, occasion: &Occasion) {
        if !self.refused.is_empty() && READS.contains(&occasion.tool_name.as_str()) {
            let arguments = serde_json::to_value(&occasion.tool_input).unwrap_or_default();
            let cwd = occasion.cwd.clone().unwrap_or_default();
            let named =
                ["file_path", "filePath", "absolute_path"].into_iter().find_map(|name| arguments[name].as_str());
            named.and_then(|path| self.refused.remove(&cwd.join(path)));
        }
    }

    /// Ends the claims of calls that have ended, or wait for a human: of one call, or of all at the end of the model's turn.
    pub(super) async fn end_calls(&mut self, client: &Client, occasion: &Occasion) {
        let made = match occasion.hook_event_name.as_str() {
            "PermissionRequest" | "PostToolUse" | "PostToolUseFailure" if !occasion.begins => Some(called(occasion).1),
            "Stop" | "StopFailure" => None,
            _ => return,
        };
        let has_ended = |call: &mut ClaimOfCall| made.as_ref().is_none_or(|made| *made == call.arguments);
        let ended: Vec<Claimed> = self.of_calls.extract_if(.., has_ended).map(|call| call.claim).collect();
        edits::give_back(client, &ended).await;
    }

    /// Ends the claims of the user's prompt.
    pub(super) async fn release(&mut self, client: &Client) {
        for claim in self.loose.drain(..) {
            // One that can't be released now ends by its lease.
            let _released = client.release(&claim).await;
        }
    }
}

impl HookSession {
    /// Ends what a prompt of the user claimed, once its model has ended its turn.
    pub(super) async fn ends_edits(&mut self, client: &Client, occasion: &Occasion) {
        if matches!(occasion.hook_event_name.as_str(), "Stop" | "StopFailure") && !self.works {
            self.edits.release(client).await;
        }
    }
}
