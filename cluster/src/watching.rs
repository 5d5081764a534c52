//! Watches the registry and the time, and tells the tasks of the node what changes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use lastword_broker::clock::{Stopwatch, wall};
use lastword_store::{Record, Watch};

use crate::members::{ClusterView, DEAD_AFTER, NODE, RENEW_EVERY, SERVE_MAX, WATCHED, node_key, workspace_of};
use crate::{Shared, Starter};

/// How often a node looks at what time alone changes.
const LOOK_AT_TIME: Duration = Duration::from_millis(50);
/// The workspaces that time wakes at a look: each of them takes a while to open.
const DUE_MAX: usize = 8;
/// The pause before the registry is watched anew.
const WATCH_AGAIN: Duration = Duration::from_millis(200);

/// Tells of what no record tells: that the node may no longer serve, and while leadership may pass to another by time
/// alone. One task for all workspaces, which cost nothing while nothing happens.
pub(super) async fn watch_time(shared: Arc<Shared>) {
    let mut valid = false;
    loop {
        let before = std::mem::replace(&mut valid, shared.heartbeat.is_valid());
        if before && !valid {
            shared.lapses.send_modify(|lapses| *lapses += 1);
        }
        let settled = shared.view(|view, now| {
            view.look(now);
            view.is_settled(now)
        });
        // A node that has only just been heard again still has to judge the others.
        if before != valid || !settled || shared.heartbeat.healthy_for() < 2 * SERVE_MAX {
            shared.looks.send_modify(|looks| *looks += 1);
        }
        tokio::time::sleep(LOOK_AT_TIME).await;
    }
}

/// Wakes the workspaces at rest that have something due, as far as that is this node's part.
pub(super) async fn wake_due(shared: Arc<Shared>) {
    loop {
        let due =
            if shared.heartbeat.is_valid() { shared.view(|view, now| view.due(now, DUE_MAX)) } else { Vec::new() };
        join_all(due.iter().map(|workspace| shared.wake(workspace))).await;
        tokio::time::sleep(LOOK_AT_TIME).await;
    }
}

/// Removes the records of nodes that are gone for good, so that nobody is told of them any more.
pub(super) async fn forget_dead(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(DEAD_AFTER).await;
        for (node, revision) in shared.view(|view, now| view.expired(now)) {
            match shared.registry.delete(&node_key(&node), revision).await {
                Ok(()) => tracing::info!(node, "the record of a node that is gone was removed"),
                // It may be back.
                Err(error) => tracing::debug!(node, %error, "the record of a node stays"),
            }
        }
    }
}

/// Keeps the view up to date, and starts following each workspace that appears.
pub(super) async fn watch_registry(starter: Starter, holders: Arc<Mutex<Vec<std::thread::JoinHandle<()>>>>) {
    let shared = Arc::clone(&starter.shared);
    loop {
        match shared.registry.watch(&WATCHED).await {
            Ok(mut watched) => {
                shared.view(ClusterView::hear_anew);
                while let Some(record) = next(&shared, &mut watched).await {
                    let news = shared.view(|view, now| {
                        let news = view.apply(&record, now, wall());
                        view.look(now);
                        news
                    });
                    if let Some(workspace) = workspace_of(&record.key) {
                        starter.start(workspace, &holders);
                    }
                    if news {
                        shared.looks.send_modify(|looks| *looks += 1);
                    }
                    // Also by a renewal, which tells this node that it is heard.
                    if news || record.key.starts_with(NODE) {
                        shared.changed.send_modify(|changed| *changed += 1);
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "the registry isn't watched"),
        }
        tokio::time::sleep(WATCH_AGAIN).await;
    }
}

/// Waits for the next record; `None` if the watch is over, or brings nothing although this node's renewals are written.
async fn next(shared: &Shared, watched: &mut Watch) -> Option<Record> {
    let asked = Stopwatch::start();
    loop {
        match tokio::time::timeout(RENEW_EVERY, watched.next()).await {
            Ok(record) => return record,
            Err(_) if asked.elapsed() >= DEAD_AFTER && shared.heartbeat.is_valid() => {
                tracing::warn!("the registry isn't heard; this node watches it anew");
                return None;
            }
            Err(_) => {}
        }
    }
}
