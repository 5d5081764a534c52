//! How long calls wait for a leader that may have handed its workspace over.

use std::time::Duration;

use lastword_broker::clock::Stopwatch;

use crate::members::Leader;
use crate::{LOOK_EVERY, Shared};

/// How long a leader that handed a workspace over may take to answer what it took before.
const FAREWELL_MAX: Duration = Duration::from_secs(5);

impl Shared {
    /// Waits until another epoch of a workspace begins, or its leader is no longer heard of.
    pub(crate) async fn superseded(&self, workspace: &str, epoch: u64) {
        let mut changed = self.changed.subscribe();
        while self.leader(workspace).is_some_and(|leader| leader.epoch == epoch) {
            // A death is silent: no change tells of it.
            let _either = tokio::time::timeout(LOOK_EVERY, changed.changed()).await;
        }
    }

    /// Waits until nothing more comes of a leader: its epoch is over, and it isn't heard of, or had time to answer what it took
    /// before it handed the workspace over.
    pub(crate) async fn given_up(&self, workspace: &str, leader: &Leader) {
        self.superseded(workspace, leader.epoch).await;
        let since = Stopwatch::start();
        let lives = || {
            self.view(|view, now| {
                view.nodes(now)
                    .any(|(node, info, alive)| alive && node == leader.node && info.session == leader.info.session)
            })
        };
        while since.elapsed() < FAREWELL_MAX && lives() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
