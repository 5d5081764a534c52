//! The log of facts, which is the whole truth of a workspace, and a read model, which can be rebuilt from it.
//!
//! [`Store`] names a store and opens it. What it opens is a [`Log`], a [`LogReader`] for other threads, and
//! [`Snapshots`]: one contract, and one conformance suite that runs against every store. [`SqliteLog`](Store::Sqlite)
//! keeps the log on disk; [`MemoryLog`] keeps it in memory and fails on request, for tests and the simulator.
//!
//! [`Index`] is the read model. It follows the log outside the acknowledging transaction and may be deleted at any
//! time. [`Store::verify`] proves that nothing in the log was altered or removed, and the [`witness`] recounts what
//! the facts amount to.

mod backup;
mod data_dir;
mod log;
mod pool;
mod read_model;
#[cfg(feature = "cluster")]
mod registry;
mod rows;
mod store;

pub use crate::backup::{BackedUp, BackupError, KeptFile};
#[cfg(feature = "cluster")]
pub use crate::log::jetstream::{
    Copies, Lease, Mirror, MirrorError, MoveError, Moved, Nats, NatsError, NatsOptions, move_in, move_out,
};
pub use crate::log::memory::{InjectedFault, MemoryLog};
pub use crate::log::verify::{Anchor, Broken, Expected, Problem, Verified, VerifyError};
pub use crate::log::{
    AppendError, Archive, ArchiveError, Log, LogReader, OpenError, ReadError, Segment, SnapshotError, Snapshots,
};
pub use crate::read_model::aggregates::{CodeCount, Count, Peak, Sums};
pub use crate::read_model::history_page::{HistoryPage, PageCut, PagePlace, PageUnit};
pub use crate::read_model::index::{Index, IndexError};
pub use crate::read_model::query::{Cursor, Filter, IndexReader, PostFilter, RefusalFilter, TurnTokens};
pub use crate::read_model::spend_index::{SpentIn, SpentOnModels, SpentTurn};
#[cfg(feature = "cluster")]
pub use crate::registry::{Record, Registry, RegistryError, Watch};
pub use crate::rows::RowsError;
pub use crate::store::{ChainReader, Store, StoreLock};

/// The stored format: the framing of a batch, file names and versions, for tests and for tools that read the files.
pub mod format {
    pub use crate::data_dir::{
        FILE_BASE, FILE_DATABASE, FILE_HEAD, FILE_INDEX, FILE_LOCK, FILE_SNAPSHOT, FOLDER_ARCHIVE,
    };
    pub use crate::data_dir::{INDEX_VERSION, LOG_VERSION};
    pub use crate::log::frame::{FrameError, decode, encode, split};
}
