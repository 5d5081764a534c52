//! An edit of a file that another task holds: the edit's own claim ended by its lease or by a human's word, or the broker was
//! away. Both tasks are told (C1).

use std::path::Path;
use std::process::{Command, Stdio};

use lastword_client::wire::{ClaimView, Envelope};
use lastword_client::{Client, ClientError, SendTerms};
use lastword_facts::fact::ClaimMode;
use lastword_facts::resource::Resource;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{ToolCall, WorkTree, who, writes};

/// The most bytes of a difference that the holder is sent.
const DIFF_BYTES_MAX: usize = 4_000;

/// Looks whether another task holds a file that a call has changed. Its holder gets an ALERT with the difference; returns what
/// the model is told.
///
/// # Errors
/// The broker is away.
pub async fn collision(client: &Client, cwd: &Path, call: ToolCall<'_>) -> Result<Option<String>, ClientError> {
    let found = writes(call, cwd);
    if found.files.is_empty() {
        return Ok(None);
    }
    let mut others = client.claims().await?.items;
    others.retain(|claim| claim.mode == ClaimMode::Exclusive);
    if others.is_empty() {
        return Ok(None);
    }
    let me = client.agent("me").await?;
    others.retain(|claim| claim.agent != me.name);
    for path in found.files.iter().filter(|_| !others.is_empty()) {
        let Some(name) = WorkTree::of(path).name(path) else { continue };
        let overlaps = |claim: &&ClaimView| Resource::new(&claim.resource).is_ok_and(|held| held.overlaps(&name));
        if let Some(held) = others.iter().find(overlaps) {
            return Ok(Some(report(client, path, &name, held, !me.turns.is_empty()).await));
        }
    }
    Ok(None)
}

/// Tells the holder, once for each of its claims and each file, and words it for the model.
async fn report(client: &Client, path: &Path, name: &Resource, held: &ClaimView, in_turn: bool) -> String {
    let file = name.split().1;
    // Inside a turn a message belongs to the turn's work item. Outside, a REF belongs to two: each claim has its own.
    let reference = (!in_turn).then(|| format!("EDITS-{}", held.fence));
    // A key has no spaces, and a file may.
    let key: String = Sha256::digest(file).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let difference = diff(path).map(|diff| format!("\n\n```diff\n{diff}\n```")).unwrap_or_default();
    let alert = json!({
        "type": "alert", "to": held.agent, "ref": reference,
        "body": format!(
            "{file}, which you hold, was changed by me without a claim on it. Read it again before you edit it.{difference}"
        ),
    });
    let terms = SendTerms { idempotency_key: Some(format!("collision-{}-{key}", held.id)), ..SendTerms::default() };
    let sent = match serde_json::from_value::<Envelope>(alert) {
        Ok(alert) => client.send(&alert, &terms).await.is_ok(),
        Err(_) => false,
    };
    let told = if sent { "It was told, with the difference." } else { "Tell it what you changed." };
    format!(
        "{file} is held by {}, and you have just changed it without a claim on it. {told} Read the file again, and agree \
         with {} before you edit it once more.",
        who(held),
        held.agent
    )
}

/// Returns how a file differs from what its branch has; `None` outside of git, and for one that git doesn't know.
fn diff(path: &Path) -> Option<String> {
    let (folder, file) = (path.parent()?, path.file_name()?);
    let mut git = Command::new("git");
    git.arg("-C").arg(folder).args(["diff", "--no-color", "--no-ext-diff", "HEAD", "--"]).arg(file);
    let ended = git.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let diff = String::from_utf8_lossy(&ended.stdout);
    let kept = &diff[..diff.floor_char_boundary(DIFF_BYTES_MAX)];
    let mark = if kept.len() < diff.len() { "\n…" } else { "" };
    (!kept.is_empty()).then(|| format!("{}{mark}", kept.trim_end()))
}
