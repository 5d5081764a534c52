//! Keeps checkpoints while the server runs. A thread of its own reads the end of the log, signs and writes, so that the
//! writer does no work for it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lastword_facts::Seq;
use tokio::sync::watch;

use super::LogSigner;
use crate::priority;
use crate::sync::thread::{self, JoinHandle};

/// The shortest time between two checkpoints: each syncs a file, on the disk that the log is on.
const PACE: Duration = Duration::from_secs(1);

/// Starts the thread that keeps a checkpoint every `every` facts, none if that is 0, and one at the end unless that was passed
/// on; `takes_over` says that it may have been, so that there is one at the start. It ends when the sender of `committed`, the
/// broker, does. `stopping` becomes true at the start of a shutdown.
///
/// # Errors
/// The system can't start the thread.
pub fn keep(
    signer: Arc<LogSigner>,
    every: u64,
    takes_over: bool,
    mut committed: watch::Receiver<Seq>,
    mut stopping: watch::Receiver<bool>,
) -> io::Result<JoinHandle<()>> {
    let wait = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    thread::Builder::new().name("checkpoints".into()).spawn(move || {
        priority::lower(priority::NEVER_URGENT);
        let mut kept = *committed.borrow();
        if takes_over {
            try_keep(&signer);
        }
        // An error means that the broker dropped the sender: it has ended, and its last facts are durable.
        while wait.block_on(committed.changed()).is_ok() {
            let last = *committed.borrow_and_update();
            if every > 0 && last.0.saturating_sub(kept.0) >= every {
                try_keep(&signer);
                // Also if that failed: a full disk isn't tried again at once.
                kept = last;
            }
            // Between two looks the writer has no waiter to wake. A shutdown ends the pause.
            let shutdown = async { tokio::time::timeout(PACE, stopping.wait_for(|stopping| *stopping)).await };
            let _either = wait.block_on(shutdown).is_ok();
        }
        if !signer.passed_on.load(Ordering::Acquire) {
            try_keep(&signer);
        }
    })
}

/// A checkpoint that isn't kept costs nothing that was acknowledged, so a failure doesn't stop the server.
fn try_keep(signer: &LogSigner) {
    if let Err(error) = signer.keep() {
        tracing::warn!(%error, "no checkpoint was kept");
    }
}
