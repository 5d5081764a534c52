//! Renews the leases of the turns at which sessions work, and follows how those turns end.

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::time::Duration;

use lastword_client::wire::{Event, Progress};
use lastword_client::{Client, ClientError};
use serde_json::Value;
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use super::{HookSession, Occasion};
use crate::launch::{INTERRUPTED, REFUSED};
use crate::watch::withdrawn;

/// Longest pause between two renewals of a lease.
const RENEWAL_MAX: Duration = Duration::from_secs(60);
/// Pause before a broker that is away is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// Renews the leases of the turns at which sessions of this agent work, whatever their model waits for: a tool that takes
/// an hour calls no hook, and neither does a dialog that its user hasn't seen. Never returns.
pub async fn keep_leases(client: &Client, folder: &Path) -> Infallible {
    let mut pause = RENEWAL_MAX;
    loop {
        // A broker that is away is asked again.
        if let Ok(limits) = client.limits().await {
            let lease = limits.items.iter().find(|limit| limit.name == "lease_ms");
            pause = lease.map_or(pause, |lease| Duration::from_millis(lease.value / 3)).min(RENEWAL_MAX);
        }
        sleep(pause).await;
        let Ok(me) = client.agent("me").await else { continue };
        if me.turns.is_empty() {
            continue;
        }
        for (_, session) in sessions(folder) {
            if let Some(open) = session.turn.as_ref().filter(|open| me.turns.contains(&open.id))
                && !open.stopped
                && !session.is_interrupted()
            {
                let report = Progress { waits_for_user: session.waits, ..Progress::default() };
                let _renewed = client.progress(&open.id, &report).await;
            }
        }
    }
}

/// Ends the turns that the user of a session interrupted, of which no hook tells, and hands in the answers that a broker
/// that was away has not taken. Never returns.
pub async fn end_interrupted(client: &Client, folder: &Path) -> Infallible {
    loop {
        sleep(RETRY).await;
        for (id, session) in sessions(folder) {
            let broke_off = session.works && session.is_interrupted();
            if broke_off || session.owed.is_some() {
                let event = if broke_off { "StopFailure" } else { "" };
                let failure = if session.waits { REFUSED } else { INTERRUPTED }.to_owned();
                let over = Occasion { transcript_path: session.transcript, failure, ..Occasion::default() };
                let over = Occasion { hook_event_name: event.to_owned(), session_id: id, ..over };
                let _ended = super::claude(client, folder, &over).await;
            }
        }
    }
}

/// Sends a sign each time the broker ends what a session with its state in `folder` works at: its turn by a stop, a cancellation or a
/// deadline; everything by a stop of the agent or the workspace. Returns once nobody receives the signs.
pub async fn follow_ends(client: &Client, agent: &str, folder: &Path, ended: &Sender<()>) {
    let mut after = None;
    while !ended.is_closed() {
        let mut events = match client.events(after).await {
            Ok(events) => events,
            Err(error) => {
                // After a restore the position is no more.
                after = after.filter(|_| !matches!(error, ClientError::Refused(_)));
                sleep(RETRY).await;
                continue;
            }
        };
        while let Ok(Some(event)) = events.next().await {
            after = Some(event.seq);
            let stopped = stops(&event, agent);
            let turn = withdrawn(&event);
            // A hook may have noticed the end first, and the model works on.
            let at = |session: &HookSession| {
                session.turn.as_ref().map(|open| open.id.clone()).or_else(|| session.after.clone())
            };
            let mut known = sessions(folder).into_iter();
            let worked = turn.is_some() && known.any(|(_, session)| at(&session).as_deref() == turn);
            if (stopped || worked) && ended.send(()).await.is_err() {
                return;
            }
        }
    }
}

/// Whether a human stopped everything that this agent does.
fn stops(event: &Event, agent: &str) -> bool {
    let says = |name: &str, word: &str| event.data.get(name).and_then(Value::as_str) == Some(word);
    let all = says("scope", "workspace") || event.agent.as_deref() == Some(agent);
    event.kind == "controlled" && says("control", "stop") && all
}

/// Whether the model of a session with its state in `folder` works, as far as its hooks and its transcript tell.
#[must_use]
pub fn is_at_work(folder: &Path) -> bool {
    sessions(folder).iter().any(|(_, session)| session.works && !session.is_interrupted())
}

/// Returns the sessions whose state is in a folder, each with its id.
fn sessions(folder: &Path) -> Vec<(String, HookSession)> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let states = files.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let named = |path: &Path| {
        let id = path.file_stem()?.to_str()?.to_owned();
        Some((id, serde_json::from_slice(&fs::read(path).ok()?).ok()?))
    };
    states.filter_map(|path| named(&path)).collect()
}
