//! Starts to follow workspaces, and what is known of each that this node follows.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lastword_broker::clock::Stopwatch;
use lastword_facts::Seq;
use lastword_facts::fact::Credential;
use tokio::sync::watch;

use crate::Shared;
use crate::holder::Holder;
use crate::workspaces::NodeSettings;

/// The messages by which a node may be behind and still take over: it reads them in a fraction of a second.
const LAG_MAX: u64 = 1_000;
/// The time in which a node begins to follow a workspace, before it says that it doesn't.
const BEGIN_MAX: Duration = Duration::from_secs(2);

/// How a workspace that is awake stands on this node.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    /// When this node began to follow it.
    begun: Stopwatch,
    /// The last position that this node knows.
    pub(crate) last: Seq,
    /// The messages of the stream that it has not read yet.
    pub(crate) lag: u64,
    /// Whether it follows the workspace, or leads it.
    pub(crate) follows: bool,
    /// Why it doesn't follow.
    pub(crate) fault: Option<String>,
    /// The hashes of the workspace's tokens, in order, as of when NATS last heard this node.
    pub(crate) tokens: Arc<Vec<Credential>>,
}

impl Standing {
    /// Returns whether this node can't lead the workspace now.
    pub(super) fn is_unfit(&self) -> bool {
        let begins = self.fault.is_none() && self.begun.elapsed() < BEGIN_MAX;
        !(self.follows || begins) || self.lag > LAG_MAX
    }
}

/// Starts a thread for each workspace.
pub(super) struct Starter {
    pub(super) shared: Arc<Shared>,
    pub(super) dir: PathBuf,
    pub(super) settings: Arc<NodeSettings>,
    pub(super) following: watch::Receiver<bool>,
}

impl Starter {
    /// Starts to follow a workspace that is awake, unless this node follows it already.
    pub(super) fn start(&self, workspace: &str, holders: &Mutex<Vec<std::thread::JoinHandle<()>>>) {
        let shared = &self.shared;
        let mut standings = shared.standings.lock().unwrap_or_else(PoisonError::into_inner);
        if standings.contains_key(workspace) || *self.following.borrow() || !shared.is_awake(workspace) {
            return;
        }
        let begun = Stopwatch::start();
        let standing = Standing { begun, last: Seq(0), lag: 0, follows: false, fault: None, tokens: Arc::default() };
        standings.insert(workspace.to_owned(), standing);
        drop(standings);
        let holder = Holder {
            shared: Arc::clone(shared),
            workspace: workspace.to_owned(),
            dir: self.dir.join(workspace),
            settings: Arc::clone(&self.settings),
            stream_id: None,
            rested: None,
            stopping: self.following.clone(),
        };
        let runtime = tokio::runtime::Handle::current();
        let name = format!("ws-{workspace}");
        let run = move || runtime.block_on(holder.run());
        let mut holders = holders.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of workspaces that rest by now.
        holders.retain(|thread| !thread.is_finished());
        match std::thread::Builder::new().name(name).spawn(run) {
            Ok(thread) => holders.push(thread),
            Err(error) => {
                tracing::error!(workspace, %error, "no thread for a workspace");
                // Its next record starts it.
                shared.standings.lock().unwrap_or_else(PoisonError::into_inner).remove(workspace);
            }
        }
    }
}
