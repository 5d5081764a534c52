//! Saves snapshots while the server runs. A thread of its own replays the log into a second core, so the broker does no
//! work for it.

use std::io;
use std::sync::Arc;

use lastword_core::Core;
use lastword_store::{Archive, Log, LogReader, Snapshots};

use crate::boot::replay;
use crate::handle::Handle;
use crate::priority;
use crate::sync::thread::{self, JoinHandle};

/// Facts between two snapshots. Bounds what a start replays after a crash, to about a second.
pub(crate) const SNAPSHOT_FACTS: u64 = 2_500_000;

/// What other threads read of a log, and write beside it.
#[derive(Clone)]
pub struct Stored {
    /// Its entries.
    pub log: Arc<dyn LogReader>,
    /// The states of earlier positions.
    pub snapshots: Arc<dyn Snapshots>,
    /// Its oldest parts.
    pub archive: Arc<dyn Archive>,
}

impl Stored {
    /// Returns them of a log.
    #[must_use]
    pub fn of(log: &dyn Log) -> Self {
        Self { log: log.reader(), snapshots: log.snapshots(), archive: log.archive() }
    }
}

/// Starts the snapshot thread. It ends when the broker does.
///
/// # Errors
/// The system can't start the thread.
pub fn keep_snapshots(stored: Stored, handle: Handle) -> io::Result<JoinHandle<()>> {
    let mut milestones = handle.milestones();
    let wait = tokio::runtime::Builder::new_current_thread().build()?;
    thread::Builder::new().name("snapshots".into()).spawn(move || {
        priority::lower(priority::NEVER_URGENT);
        // An error means that the broker dropped the sender: it has ended.
        while wait.block_on(milestones.changed()).is_ok() {
            // A snapshot is only a cache: without it, the next start replays more of the log.
            if let Err(error) = snapshot(&stored, &handle) {
                tracing::warn!(%error, "no snapshot was saved");
            }
        }
    })
}

fn snapshot(stored: &Stored, handle: &Handle) -> Result<(), Box<dyn std::error::Error>> {
    let core = replay(stored.snapshots.load()?, stored.log.as_ref(), stored.archive.as_ref())?;
    let _one = handle.saving();
    save_snapshot(&core, stored.snapshots.as_ref())
}

/// Saves the state of a core, so that the next start begins there.
///
/// # Errors
/// The snapshot can't be written.
pub fn save_snapshot(core: &Core, snapshots: &dyn Snapshots) -> Result<(), Box<dyn std::error::Error>> {
    snapshots.save(core.state().seq, &postcard::to_allocvec(core.state())?)?;
    Ok(())
}
