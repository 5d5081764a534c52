//! Saves snapshots while the server runs. A thread of its own replays the log into a second core, so the broker does no
//! work for it.

use std::io;
use std::sync::Arc;

use lastword_store::{Archive, LogReader, Snapshots};

use crate::boot::replay;
use crate::handle::Handle;
use crate::priority;
use crate::sync::thread::{self, JoinHandle};

/// Facts between two snapshots. Bounds what a start replays after a crash, to about a second.
pub(crate) const SNAPSHOT_FACTS: u64 = 2_500_000;

/// Starts the snapshot thread. It ends when the broker does.
///
/// # Errors
/// The system can't start the thread.
pub fn keep_snapshots(
    (log, archive): (Arc<dyn LogReader>, Arc<dyn Archive>),
    snapshots: Arc<dyn Snapshots>,
    handle: Handle,
) -> io::Result<JoinHandle<()>> {
    let mut milestones = handle.milestones();
    let wait = tokio::runtime::Builder::new_current_thread().build()?;
    thread::Builder::new().name("snapshots".into()).spawn(move || {
        priority::lower(priority::NEVER_URGENT);
        // An error means that the broker dropped the sender: it has ended.
        while wait.block_on(milestones.changed()).is_ok() {
            // A snapshot is only a cache: without it, the next start replays more of the log.
            if let Err(error) = snapshot((log.as_ref(), archive.as_ref()), snapshots.as_ref(), &handle) {
                tracing::warn!(%error, "no snapshot was saved");
            }
        }
    })
}

fn snapshot(
    (log, archive): (&dyn LogReader, &dyn Archive),
    snapshots: &dyn Snapshots,
    handle: &Handle,
) -> Result<(), Box<dyn std::error::Error>> {
    let core = replay(snapshots.load()?, log, archive)?;
    let bytes = postcard::to_allocvec(core.state())?;
    let _one = handle.saving();
    snapshots.save(core.state().seq, &bytes)?;
    Ok(())
}
