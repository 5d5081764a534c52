//! The log of facts, which is the whole truth of a workspace, and a read model, which can be rebuilt from it.
//!
//! [`DataDir`] opens the log of a data directory. A store is what implements [`Log`], [`LogReader`] and [`Snapshots`]: one
//! contract, and one conformance suite that runs against every store. SQLite keeps the log on disk; [`MemoryLog`] keeps it in
//! memory and fails on request, for tests and the simulator; with the feature `cluster`, a stream of NATS JetStream keeps it.
//!
//! [`Index`] is the read model. It follows the log outside the acknowledging transaction and may be deleted at any
//! time. [`DataDir::verify`] proves that nothing in the log was altered or removed.

mod backup;
mod data_dir;
mod log;
mod opening;
mod pool;
mod read_model;
#[cfg(feature = "cluster")]
mod registry;
mod rows;

pub use crate::backup::{BackedUp, BackupError, KeptFile};
#[cfg(feature = "cluster")]
pub use crate::log::jetstream::{
    AskError, Copies, Lease, Listener, Mirror, MirrorError, MoveError, Moved, Nats, NatsError, NatsOptions, Question,
    Questions, SetAside, move_in, move_out, shown_address,
};
pub use crate::log::memory::{InjectedFault, MemoryLog};
pub use crate::log::verify::{Anchor, Broken, Expected, Problem, Verified, VerifyError};
pub use crate::log::{
    AppendError, Archive, ArchiveError, Base, Log, LogReader, OpenError, ReadError, Segment, SnapshotError, Snapshots,
};
pub use crate::opening::{ChainReader, DataDir, DataDirLock};
pub use crate::read_model::aggregates::{CodeCount, Count, Peak, Sums};
pub use crate::read_model::history_page::{HistoryPage, PageCut, PagePlace, PageUnit};
pub use crate::read_model::index::{Index, IndexError};
pub use crate::read_model::query::{Cursor, Filter, IndexReader, PostFilter, RefusalFilter, TurnTokens};
pub use crate::read_model::spend_index::{SpentIn, SpentOnModels, SpentTurn};
#[cfg(feature = "cluster")]
pub use crate::registry::{
    KEY_CHARS_MIN, KEY_FILES, KEY_NODES_SECRET, Lagging, Record, Registry, RegistryError, Sealing, Watch,
};
pub use crate::rows::RowsError;

/// The stored format: the framing of a batch, file names and versions, for tests and for tools that read the files.
pub mod format {
    pub use crate::data_dir::{
        FILE_BASE, FILE_DATABASE, FILE_HEAD, FILE_INDEX, FILE_LOCK, FILE_SNAPSHOT, FILE_VERSION, FOLDER_ARCHIVE,
    };
    pub use crate::data_dir::{INDEX_VERSION, LOG_VERSION};
    pub use crate::log::frame::{FrameError, decode, encode, split};
}
